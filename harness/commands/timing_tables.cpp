#include "harness/commands/timing_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "harness/shape.h"

namespace ladder {
namespace {

// The rows of one problem.
struct Group {
    const Row* first;
    std::vector<const Row*> rows;
};

bool same_problem(const Row& a, const Row& b) {
    return std::tie(a.regime, a.shape, a.causal, a.dtype) == std::tie(b.regime, b.shape, b.causal, b.dtype);
}

std::vector<Group> by_problem(const Results& results) {
    std::vector<Group> groups;
    for (const Row& row : results.rows) {
        const auto group = std::find_if(groups.begin(), groups.end(),
                                        [&](const Group& g) { return same_problem(*g.first, row); });
        if (group == groups.end()) {
            groups.push_back({&row, {&row}});
        } else {
            group->rows.push_back(&row);
        }
    }
    return groups;
}

const Row* find_row(const Group& group, int stage) {
    const auto row =
        std::find_if(group.rows.begin(), group.rows.end(), [&](const Row* r) { return r->stage == stage; });
    return row == group.rows.end() ? nullptr : *row;
}

// 2048 as "2k"
std::string short_size(int n) {
    return n >= 1024 && n % 1024 == 0 ? fmt::format("{}k", n / 1024) : std::to_string(n);
}

// "train", "causal 16k", "decode 64k": the regime, and what tells its problems apart.
std::string short_name(const Row& row) {
    return fmt::format("{} {}", row.regime, short_size(row.shape.Nk));
}

std::string long_name(const Row& row) {
    return fmt::format("{}: {} {}{}", row.regime, to_string(row.shape), name(row.dtype),
                       row.causal ? " causal" : "");
}

// Marked where the stage's change should show.
Tone tone_of(const Row& row) {
    return row.shows_here ? Tone::marked : Tone::plain;
}

Cell speedup(const Row& row) {
    if (!row.over_parent) return {};
    return {Value(row.over_parent->value), fmt::format("{:.2f}x", row.over_parent->value), tone_of(row)};
}

Cell verified_cell(const Row& row) {
    if (row.verified) return {Value(true), "yes", Tone::good};
    return row.timing ? Cell(Value(false), "WRONG", Tone::bad) : Cell(Value(), "cannot run", Tone::faint);
}

Cell milliseconds(const Row& row) {
    if (!row.timing) return {};
    return {Value(row.timing->median_ms), fmt::format("{:.3f}", row.timing->median_ms)};
}

Cell noise(const Row& row) {
    if (!row.timing) return {};
    return {Value(row.timing->noise), fmt::format("{:.1f}%", 100 * row.timing->noise)};
}

Cell rate(const Row& row) {
    if (!row.timing) return {};
    return {Value(row.rate), fmt::format("{:.{}f}", row.rate, row.rate < 100 ? 1 : 0)};
}

Cell share(const Row& row) {
    if (!row.ceiling_share) return {};
    return {Value(*row.ceiling_share), fmt::format("{:.0f}%", 100 * *row.ceiling_share)};
}

Cell fact(const std::string& text) {
    return Cell(text);
}

Cell rate_fact(const std::optional<double>& value, const char* unit) {
    return value ? Cell(Value(*value), fmt::format("{:.0f} {}", *value, unit))
                 : Cell(Value(), "not measured");
}

// sm_90 of 90
std::string architecture(int arch) {
    return fmt::format("sm_{}", arch);
}

}  // namespace

std::vector<std::pair<std::string, Cell>> machine_facts(const Hardware& h, const std::string& date,
                                                        const std::string& commit) {
    return {
        {"GPU", fact(fmt::format("{}, {} SMs, {}", h.gpu, h.sm_count, architecture(h.device_arch)))},
        {"driver", fact(h.driver)},
        {"toolkit", fact(fmt::format("CUDA {}, compiled for {}", h.toolkit, architecture(h.binary_arch)))},
        {"date", fact(date)},
        {"commit", fact(commit)}};
}

std::vector<std::pair<std::string, Cell>> measurement_facts(const Results& results) {
    auto facts = machine_facts(results.hardware, results.date, results.commit);
    facts.emplace_back("ceiling, bf16 GEMM", rate_fact(results.ceilings.bf16_tflops, "TFLOP/s"));
    facts.emplace_back("ceiling, fp16 GEMM", rate_fact(results.ceilings.fp16_tflops, "TFLOP/s"));
    facts.emplace_back("ceiling, copy", rate_fact(results.ceilings.copy_gbs, "GB/s"));
    return facts;
}

std::vector<Table> timing_tables(const Results& results) {
    std::vector<Table> tables;
    for (const Group& group : by_problem(results)) {
        const Row& first = *group.first;
        const auto timed =
            std::find_if(group.rows.begin(), group.rows.end(), [](const Row* r) { return !r->unit.empty(); });
        const std::string unit = timed == group.rows.end() ? "rate" : (*timed)->unit;
        Table table(fmt::format("{}_{}", first.regime, tables.size()), long_name(first),
                    {{"stage", "stage"},
                     {"verified", "verified"},
                     {"median_ms", "median ms", Align::right},
                     {"noise", "noise", Align::right},
                     {"rate", unit, Align::right},
                     {"ceiling_share", "of ceiling", Align::right},
                     {"over_parent", "over parent", Align::right},
                     {"over_baseline", "over 00", Align::right},
                     {"why_not", ""}});
        for (const Row* row : group.rows) {
            table.add_row({row->folder, verified_cell(*row), milliseconds(*row), noise(*row), rate(*row),
                           share(*row), speedup(*row),
                           row->over_baseline ? Cell(Value(row->over_baseline->value),
                                                     fmt::format("{:.2f}x", row->over_baseline->value))
                                              : Cell(),
                           row->why_not.empty() ? Cell() : Cell(row->why_not)});
        }
        tables.push_back(std::move(table));
    }
    return tables;
}

std::vector<Table> rate_tables(const Results& results, const std::string& regime) {
    std::vector<Table> tables;
    for (const char* unit : {"TFLOP/s", "GB/s"}) {
        std::vector<Group> groups = by_problem(results);
        std::erase_if(groups, [&](const Group& g) {
            return (!regime.empty() && g.first->regime != regime) ||
                   counts_bytes(g.first->shape) != (unit[0] == 'G');
        });
        if (groups.empty()) continue;
        std::vector<Column> columns{{"stage", "stage"}};
        for (const Group& group : groups)
            columns.push_back({short_name(*group.first), short_name(*group.first), Align::right});
        Table table(unit[0] == 'G' ? "bytes_rate" : "flop_rate",
                    fmt::format("{} (speedup over the parent)", unit), columns);
        for (const Stage& stage : stages()) {
            std::vector<Cell> cells{stage.folder()};
            bool any = false;
            for (const Group& group : groups) {
                const Row* row = find_row(group, stage.number);
                any = any || row != nullptr;
                if (row == nullptr || !row->timing) {
                    cells.push_back({Value(), "-", Tone::faint});
                    continue;
                }
                std::string text = rate(*row).text;
                if (row->over_parent) text += fmt::format(" ({:.2f}x)", row->over_parent->value);
                cells.push_back({Value(row->rate), text, tone_of(*row)});
            }
            if (any) table.add_row(std::move(cells));
        }
        tables.push_back(std::move(table));
    }
    return tables;
}

Table stage_timing_table(const Results& results, const Stage& stage) {
    Table table("measured", "",
                {{"problem", "problem"},
                 {"parent_ms", "parent's ms", Align::right},
                 {"median_ms", "its own ms", Align::right},
                 {"noise", "noise", Align::right},
                 {"rate", "rate", Align::right},
                 {"ceiling_share", "of ceiling", Align::right},
                 {"over_parent", "over parent", Align::right}});
    for (const Group& group : by_problem(results)) {
        const Row* row = find_row(group, stage.number);
        const Row* parent = find_row(group, stage.parent);
        if (row == nullptr) continue;
        Cell own_rate = rate(*row);
        if (row->timing) own_rate.text += " " + row->unit;
        table.add_row({short_name(*row), parent ? milliseconds(*parent) : Cell(),
                       row->timing ? milliseconds(*row) : Cell(row->why_not), noise(*row), own_rate,
                       share(*row), speedup(*row)});
    }
    return table;
}

std::string recorded_label(const Results& results) {
    return fmt::format("Recorded on {}, {}, commit {}", results.hardware.gpu, results.date.substr(0, 10),
                       results.commit.substr(0, 7));
}

}  // namespace ladder
