#include "harness/report/chart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "harness/base/table.h"
#include "harness/ladder/ladder.h"
#include "harness/report/problem_rows.h"

namespace ladder {
namespace {

// Of a value on a chart; "-" for none.
std::string value_text(const std::optional<double>& value, bool is_ratio) {
    if (!value) return "-";
    return is_ratio ? fmt::format("{:.2g}x", *value) : fmt::format("{:.{}f}", *value, *value < 10 ? 1 : 0);
}

}  // namespace

Chart benchmark_chart(const Results& results) {
    auto problems = by_problem(results);
    std::erase_if(problems, [](const ProblemRows& p) { return p.first->shape.H != p.first->shape.Hkv; });
    Chart chart{.name = "papers",
                .title = fmt::format("Forward attention on {}: TFLOP/s", results.hardware.gpu),
                .problem = "16k tokens in sequences of N; heads of d, 2048 columns in all",
                .N = {},
                .lines = {},
                .panels = {}};
    if (problems.empty()) return chart;
    chart.problem += fmt::format("; {}", name(problems.front().first->dtype));
    std::set<int> lengths;
    std::set<std::pair<int, bool>> kinds;  // head dimension and mask
    for (const ProblemRows& problem : problems) {
        lengths.insert(problem.first->shape.Nk);
        kinds.insert({problem.first->shape.d, problem.first->causal});
    }
    chart.N.assign(lengths.begin(), lengths.end());
    std::vector<int> numbers;
    for (const Row* row : problems.front().rows) {
        numbers.push_back(row->stage);
        chart.lines.push_back({in_words(row->folder), true});
    }
    const auto peers = peer_names(results);
    for (const std::string& peer : peers) chart.lines.push_back({peer, false});
    for (const auto& [d, causal] : kinds) {
        Chart::Panel& panel = chart.panels.emplace_back();
        panel.title = fmt::format("d = {}, {}", d, causal ? "causal mask" : "no mask");
        panel.values.resize(chart.lines.size(), std::vector<std::optional<double>>(chart.N.size()));
        for (const ProblemRows& problem : problems) {
            const Shape& s = problem.first->shape;
            if (s.d != d || problem.first->causal != causal) continue;
            const auto at = std::find(chart.N.begin(), chart.N.end(), s.Nk) - chart.N.begin();
            auto values = panel.values.begin();
            for (const int number : numbers) {
                const Row* row = problem.row(number);
                if (row != nullptr && row->timing && row->verified) (*values)[at] = row->rate;
                ++values;
            }
            for (const std::string& peer : peers) {
                const PeerRow* row = problem.peer(peer);
                if (row != nullptr && row->timing) (*values)[at] = row->rate;
                ++values;
            }
        }
    }
    return chart;
}

Picture picture_of(const Chart& chart) {
    nlohmann::ordered_json data{
        {"name", chart.name},      {"title", chart.title}, {"problem", chart.problem},
        {"log", chart.are_ratios}, {"N", chart.N},         {"lines", nlohmann::ordered_json::array()}};
    for (const Chart::Line& line : chart.lines)
        data["lines"].push_back({{"name", line.name}, {"kind", line.is_stage ? "stage" : "other"}});
    std::vector<std::string> lengths, panels;
    for (const int n : chart.N) lengths.push_back(short_size(n));
    for (const Chart::Panel& panel : chart.panels) {
        auto all = nlohmann::ordered_json::array();
        std::vector<std::string> lines;
        for (std::size_t i = 0; i < panel.values.size(); ++i) {
            auto values = nlohmann::ordered_json::array();
            std::vector<std::string> texts;
            for (const auto& value : panel.values[i]) {
                values.push_back(value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr));
                texts.push_back(value_text(value, chart.are_ratios));
            }
            all.push_back(values);
            const bool any = std::any_of(panel.values[i].begin(), panel.values[i].end(),
                                         [](const auto& value) { return value.has_value(); });
            if (any) lines.push_back(fmt::format("{} {}", chart.lines[i].name, fmt::join(texts, " ")));
        }
        data["panels"].push_back({{"title", panel.title}, {"values", all}});
        panels.push_back(fmt::format("{}: {}", panel.title, fmt::join(lines, ", ")));
    }
    return {.name = chart.name,
            .data = data.dump(),
            .words = fmt::format("{}. {}. At N = {}. {}", chart.title, chart.problem, fmt::join(lengths, " "),
                                 fmt::join(panels, "; ")),
            .width = 620};
}

}  // namespace ladder
