#include "harness/report/climb.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "harness/base/table.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/report/problem_rows.h"
#include "harness/time/peers.h"

namespace ladder {
namespace {

// The stages on the way to the last one here whose change shows in a problem of this unit, in that order.
std::vector<const Row*> path(const std::vector<ProblemRows>& problems, const ProblemRows& problem) {
    int last = -1;
    for (const ProblemRows& p : problems) {
        if (counts_bytes(p.first->shape) != counts_bytes(problem.first->shape)) continue;
        for (const Row* row : p.rows) {
            const Row* here = problem.row(row->stage);
            if (is_ablation(row->stage)) continue;
            if (row->shows_here && here != nullptr && here->timing) last = std::max(last, row->stage);
        }
    }
    std::vector<const Row*> rows;
    for (const Row* row = problem.row(last); row != nullptr; row = problem.row(row->parent))
        rows.push_back(row);
    std::reverse(rows.begin(), rows.end());
    return rows;
}

std::set<int> numbers(const std::vector<const Row*>& rows) {
    std::set<int> numbers;
    for (const Row* row : rows) numbers.insert(row->stage);
    return numbers;
}

std::string describe(const Row& row) {
    const Shape& s = row.shape;
    const std::string heads =
        s.H == s.Hkv ? fmt::format("{} heads of {}", s.H, s.d) : fmt::format("{} heads over {}", s.H, s.Hkv);
    return fmt::format("{}{}, {} {}, {}, {}", s.B > 1 ? fmt::format("{} x ", s.B) : "", heads,
                       short_size(s.Nk), s.Nq == 1 ? "keys" : "tokens",
                       s.Nq == 1    ? "one query"
                       : row.causal ? "causal mask"
                                    : "no mask",
                       name(row.dtype));
}

Climb make_climb(const Results& results, const ProblemRows& problem, const std::vector<const Row*>& rows,
                 const std::set<int>& shared) {
    const Row& first = *problem.first;
    Climb climb{.name = first.regime,
                .title = problem.short_name(),
                .problem = describe(first),
                .machine = results.hardware.gpu,
                .unit = first.unit,
                .steps = {},
                .yardsticks = {}};
    for (const Row* row : rows) {
        Climb::Step step{.folder = row->folder,
                         .rate = {},
                         .over_parent = {},
                         .shows_here = row->shows_here,
                         .shared = shared.contains(row->stage)};
        if (row->timing && row->verified) step.rate = row->rate;
        if (row->over_parent) step.over_parent = row->over_parent->value;
        climb.steps.push_back(step);
    }
    for (const PeerRow* peer : problem.peers) {
        if (peer->timing && peer->peer != Peers::slow) climb.yardsticks.push_back({peer->peer, peer->rate});
    }
    if (counts_bytes(first.shape) && results.ceilings.copy_gbs)
        climb.yardsticks.push_back({"a copy", *results.ceilings.copy_gbs});
    std::stable_sort(climb.yardsticks.begin(), climb.yardsticks.end(),
                     [](const auto& a, const auto& b) { return a.rate < b.rate; });
    return climb;
}

std::string rate_text(double rate) {
    return fmt::format("{:.{}f}", rate, rate < 10 ? 1 : 0);
}

nlohmann::ordered_json optional_json(const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string speedup_text(double speedup) {
    return fmt::format("{:.{}f}x", speedup, speedup < 10 ? 2 : 0);
}

}  // namespace

std::vector<Climb> climbs(const Results& results) {
    const auto problems = by_problem(results);
    std::set<int> shared;
    bool any = false;
    for (const ProblemRows& problem : problems) {
        if (problem.first->pass == Pass::backward) continue;  // whose stages are a branch of their own
        const std::set<int> own = numbers(path(problems, problem));
        if (!any) shared = own;
        any = true;
        std::erase_if(shared, [&](int stage) { return !own.contains(stage); });
    }
    std::vector<Climb> climbs;
    for (const char* regime : {"train", "causal", "decode", "backward"}) {
        const ProblemRows* problem = telling_problem(problems, regime);
        if (problem == nullptr) continue;
        const Climb climb = make_climb(results, *problem, path(problems, *problem), shared);
        const bool timed = std::any_of(climb.steps.begin(), climb.steps.end(),
                                       [](const auto& step) { return step.rate.has_value(); });
        if (timed) climbs.push_back(climb);
    }
    return climbs;
}

std::string to_line(const Climb& climb) {
    nlohmann::ordered_json line{{"name", climb.name},
                                {"title", climb.title},
                                {"problem", climb.problem},
                                {"machine", climb.machine},
                                {"unit", climb.unit}};
    for (const Climb::Step& step : climb.steps) {
        line["steps"].push_back({{"stage", step.folder},
                                 {"rate", optional_json(step.rate)},
                                 {"over_parent", optional_json(step.over_parent)},
                                 {"shows_here", step.shows_here},
                                 {"shared", step.shared}});
    }
    line["yardsticks"] = nlohmann::ordered_json::array();
    for (const Climb::Yardstick& yardstick : climb.yardsticks)
        line["yardsticks"].push_back({{"name", yardstick.name}, {"rate", yardstick.rate}});
    return line.dump();
}

Picture picture_of(const Climb& climb) {
    return {.name = climb.name, .data = to_line(climb), .words = to_words(climb)};
}

std::string to_words(const Climb& climb) {
    std::string words = fmt::format("{} in {} on {}:", climb.title, climb.unit, climb.machine);
    for (const Climb::Step& step : climb.steps) {
        words +=
            fmt::format(" {} {}", in_words(step.folder), step.rate ? rate_text(*step.rate) : "not timed");
        if (step.over_parent) words += fmt::format(" ({})", speedup_text(*step.over_parent));
        words += ",";
    }
    for (const Climb::Yardstick& yardstick : climb.yardsticks)
        words += fmt::format(" {} {},", yardstick.name, rate_text(yardstick.rate));
    words.pop_back();
    return words;
}

}  // namespace ladder
