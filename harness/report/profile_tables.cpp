#include "harness/report/profile_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/base/numbers.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/report/timing_tables.h"

namespace ladder {
namespace {

// In the unit that the metric's name ends with.
std::string text_of(double value, const std::string& metric) {
    if (metric.ends_with("_pct")) return fmt::format("{:.1f}%", value);
    if (metric.ends_with("_bytes")) return human_bytes(value);
    if (metric.ends_with("_ns")) return fmt::format("{:.3f} ms", value * 1e-6);
    if (metric == "warps_active") return fmt::format("{:.1f}", value);
    return with_separators(static_cast<std::uint64_t>(std::max(0.0, std::round(value))));
}

Cell not_available() {
    return {Value(), "n/a", Tone::faint};
}

Cell metric_cell(const KernelProfile& kernel, const std::string& key) {
    const auto found = kernel.metrics.find(key);
    if (found == kernel.metrics.end()) return not_available();
    return {Value(found->second), text_of(found->second, key)};
}

// The longest reasons to wait, each with its share of the cycles from one instruction of a warp to its next.
Cell waits_cell(const KernelProfile& kernel) {
    const std::string stall = "stall_";
    std::vector<std::pair<double, std::string>> waits;
    double sum = 0;
    for (const auto& [key, value] : kernel.metrics) {
        if (!key.starts_with(stall)) continue;
        sum += value;
        if (key != "stall_selected") waits.emplace_back(value, in_words(key.substr(stall.size())));
    }
    std::stable_sort(waits.begin(), waits.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> longest;
    for (const auto& [value, reason] : waits) {
        if (longest.size() < 3 && value >= 0.05 * sum && sum > 0)
            longest.push_back(fmt::format("{} {:.0f}%", reason, 100 * value / sum));
    }
    return longest.empty() ? not_available() : Cell(fmt::format("{}", fmt::join(longest, ", ")));
}

}  // namespace

std::optional<double> total(const ProfileRow& row, const std::string& key) {
    if (row.kernels.empty()) return std::nullopt;
    double sum = 0;
    for (const KernelProfile& kernel : row.kernels) {
        const auto found = kernel.metrics.find(key);
        if (found == kernel.metrics.end()) return std::nullopt;
        sum += found->second;
    }
    return sum;
}

std::vector<Table> profile_tables(const Profile& profile) {
    std::vector<Table> tables;
    for (std::size_t i = 0; i < profile.rows.size(); ++i) {
        const ProfileRow& row = profile.rows[i];
        if (i == 0 || !same_problem(row, profile.rows[i - 1])) {
            tables.emplace_back(fmt::format("{}_{}", row.regime, tables.size()), long_name(row),
                                std::vector<Column>{{"stage", "stage"},
                                                    {"kernel", "kernel"},
                                                    {"duration_ns", "time", Align::right},
                                                    {"sm_busy_pct", "SMs at work", Align::right},
                                                    {"tensor_pipe_pct", "tensor pipe", Align::right},
                                                    {"issue_pct", "issue slots", Align::right},
                                                    {"warps_active", "warps per SM", Align::right},
                                                    {"hbm_read_bytes", "HBM read", Align::right},
                                                    {"hbm_write_bytes", "HBM written", Align::right},
                                                    {"l2_hit_pct", "L2 hits", Align::right},
                                                    {"shared_pipe_pct", "shared pipe", Align::right},
                                                    {"bank_conflicts", "bank conflicts", Align::right},
                                                    {"waits", "waits for"}});
        }
        Table& table = tables.back();
        if (!row.why_not.empty()) table.add_row({row.folder, Cell(row.why_not)});
        for (const KernelProfile& kernel : row.kernels) {
            std::vector<Cell> cells{Cell(row.folder, row.shows_here ? Tone::marked : Tone::plain),
                                    kernel.kernel};
            for (const Column& column : table.columns()) {
                if (column.align == Align::right) cells.push_back(metric_cell(kernel, column.key));
            }
            cells.push_back(waits_cell(kernel));
            table.add_row(std::move(cells));
        }
    }
    return tables;
}

Table bytes_table(const Profile& profile) {
    Table table("bytes", "What each stage moved",
                {{"problem", "problem"},
                 {"stage", "stage"},
                 {"kernels", "kernels", Align::right},
                 {"hbm_read_bytes", "HBM read", Align::right},
                 {"hbm_write_bytes", "HBM written", Align::right},
                 {"why_not", ""}});
    for (const ProfileRow& row : profile.rows) {
        const auto bytes = [&](const char* key) {
            const auto moved = total(row, key);
            return moved ? Cell(Value(*moved), human_bytes(*moved)) : not_available();
        };
        table.add_row({long_name(row), Cell(row.folder, row.shows_here ? Tone::marked : Tone::plain),
                       Cell::count(row.kernels.size()), bytes("hbm_read_bytes"), bytes("hbm_write_bytes"),
                       row.why_not.empty() ? Cell() : Cell(row.why_not)});
    }
    return table;
}

Table occupancy_table(const Profile& profile) {
    Table table("occupancy", "What a block takes, and how many fit a multiprocessor",
                {{"stage", "stage"},
                 {"kernel", "kernel"},
                 {"threads", "threads per block", Align::right},
                 {"registers", "registers per thread", Align::right},
                 {"local_bytes", "spilled bytes", Align::right},
                 {"shared_bytes", "shared memory per block", Align::right},
                 {"blocks_per_sm", "blocks per SM", Align::right},
                 {"warps_per_sm", "warps per SM", Align::right},
                 {"limited_by", "limited by"}});
    for (const Stage& stage : stages()) {
        std::vector<std::string> seen;
        for (const ProfileRow& row : profile.rows) {
            if (row.stage != stage.number) continue;
            for (const KernelProfile& k : row.kernels) {
                if (std::find(seen.begin(), seen.end(), k.kernel) != seen.end()) continue;
                seen.push_back(k.kernel);
                const auto count = [](int n) { return Cell::count(static_cast<std::uint64_t>(n)); };
                table.add_row({row.folder, k.kernel, count(k.threads), count(k.registers),
                               count(k.local_bytes), count(k.shared_bytes), count(k.blocks_per_sm),
                               count(k.warps_per_sm), k.limited_by});
            }
        }
    }
    return table;
}

}  // namespace ladder
