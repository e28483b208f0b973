#include "harness/report/standard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "harness/count/counting.h"
#include "harness/device/workspace.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/report/problem_rows.h"
#include "harness/report/profile_tables.h"

namespace ladder {
namespace {

constexpr int compared[]{standard_stage, flash_attention_1_stage, on_chip_stage};
constexpr int ladder_Bc = 64;  // keys of a tile in 01

using Bytes = std::optional<double>;

Bytes over(const Bytes& a, const Bytes& b) {
    return a && b ? Bytes(*a / *b) : std::nullopt;
}

Cell bytes_cell(const Bytes& bytes) {
    return bytes ? Cell(Value(*bytes), human_bytes(*bytes)) : Cell(Value(), "-", Tone::faint);
}

Cell ratio_cell(const std::optional<double>& ratio) {
    return ratio ? Cell(Value(*ratio), fmt::format("{:.2f}x", *ratio)) : Cell(Value(), "-", Tone::faint);
}

double heads(const Shape& s) {
    return double(s.B) * s.H;
}

// The formulas of all heads, in bytes of 16-bit elements.
double standard_formula(const Shape& s) {
    return 2 * heads(s) * standard_accesses(s.Nk, s.d);
}
double flash_attention_formula(const Shape& s) {
    return 2 * heads(s) * flash_attention_accesses(s.Nk, s.d, sram_of(s.d, ladder_Bc));
}

std::string short_problem(const Shape& s) {
    return fmt::format("d={} N={}", s.d, short_size(s.Nk));
}

std::string numbered(int stage, const char* what) {
    return fmt::format("{:02} {}", stage, what);
}

}  // namespace

double standard_accesses(double N, double d) {
    return N * d + N * N;
}

double flash_attention_accesses(double N, double d, double M) {
    return N * N * d * d / M;
}

double sram_of(int d, int Bc) {
    return 4.0 * d * Bc;
}

RequestedBytes::RequestedBytes(Device& device, const Stage& stage, DType dtype, int d) {
    for (int tiles = 1; tiles <= 3; ++tiles) {
        Case c;
        c.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 64 * tiles, .Nk = 64 * tiles, .d = d};
        c.dtype = dtype;
        const Work work = count_work(device, stage, c, make_inputs(c));
        if (!work.why_not.empty()) throw CannotRun(work.why_not);
        counted_[tiles - 1] =
            double(work.counters.global_load_bytes) + double(work.counters.global_store_bytes);
    }
}

double RequestedBytes::of(int N) const {
    const auto& f = counted_;
    const double t = N / 64.0 - 1;  // Newton's form of the quadratic through the three
    return f[0] + t * (f[1] - f[0]) + t * (t - 1) / 2 * (f[2] - 2 * f[1] + f[0]);
}

std::vector<StandardRow> standard_rows(const Results& results, const std::optional<Profile>& bytes,
                                       Device& cpu) {
    std::vector<StandardRow> rows;
    std::map<std::pair<int, int>, RequestedBytes> requested;  // by stage and head dimension
    for (const ProblemRows& problem : by_problem(results)) {
        const Shape& s = problem.first->shape;
        StandardRow& row = rows.emplace_back();
        row.shape = s;
        for (const int number : compared) {
            const Stage& stage = *find_stage(number);
            StandardCell& cell = row.stages[number];
            if (const Row* timed = problem.row(number); timed != nullptr && timed->timing && timed->verified)
                cell.milliseconds = timed->timing->median_ms;
            const std::pair key(number, s.d);
            if (!requested.contains(key))
                requested.emplace(key, RequestedBytes(cpu, stage, problem.first->dtype, s.d));
            cell.requested = heads(s) * requested.at(key).of(s.Nk);
            cell.workspace = double(Workspace::bytes(cpu, stage, s));
            if (!bytes) continue;
            for (const ProfileRow& profiled : bytes->rows) {
                if (profiled.stage != number || !same_problem(profiled, *problem.first)) continue;
                const auto read = total(profiled, "hbm_read_bytes"),
                           written = total(profiled, "hbm_write_bytes");
                if (read && written) cell.moved = *read + *written;
            }
        }
    }
    return rows;
}

Table standard_times(const std::vector<StandardRow>& rows) {
    std::vector<Column> columns{{"problem", "problem"}};
    for (const int stage : compared)
        columns.push_back({numbered(stage, "ms"), numbered(stage, "ms"), Align::right});
    for (const int stage : {flash_attention_1_stage, on_chip_stage})
        columns.push_back({numbered(stage, "over 00"), numbered(stage, "over 00"), Align::right});
    for (const int stage : {standard_stage, flash_attention_1_stage})
        columns.push_back({numbered(stage, "workspace"), numbered(stage, "workspace"), Align::right});
    Table table("standard_times", "", columns);
    for (const StandardRow& row : rows) {
        std::vector<Cell> cells{short_problem(row.shape)};
        for (const int stage : compared) {
            const auto& ms = row.stages.at(stage).milliseconds;
            cells.push_back(ms ? Cell(Value(*ms), fmt::format("{:.3f}", *ms))
                               : Cell(Value(), "-", Tone::faint));
        }
        for (const int stage : {flash_attention_1_stage, on_chip_stage})
            cells.push_back(ratio_cell(
                over(row.stages.at(standard_stage).milliseconds, row.stages.at(stage).milliseconds)));
        for (const int stage : {standard_stage, flash_attention_1_stage})
            cells.push_back(bytes_cell(row.stages.at(stage).workspace));
        table.add_row(std::move(cells));
    }
    return table;
}

Table standard_bytes(const std::vector<StandardRow>& rows) {
    std::vector<Column> columns{{"problem", "problem"}};
    const auto add_column = [&](const std::string& title) {
        columns.push_back({title, title, Align::right});
    };
    for (const int stage : compared) {
        add_column(numbered(stage, "requested"));
        add_column(numbered(stage, "moved"));
    }
    add_column("N d + N^2");
    add_column("N^2 d^2 / M");
    for (const char* what : {"requested", "moved", "formulas"}) add_column(fmt::format("01 / 00, {}", what));
    Table table("standard_bytes", "", columns);
    for (const StandardRow& row : rows) {
        std::vector<Cell> cells{short_problem(row.shape)};
        for (const int stage : compared) {
            cells.push_back(bytes_cell(row.stages.at(stage).requested));
            cells.push_back(bytes_cell(row.stages.at(stage).moved));
        }
        const auto& naive = row.stages.at(standard_stage);
        const auto& flash = row.stages.at(flash_attention_1_stage);
        const double of_naive = standard_formula(row.shape), of_flash = flash_attention_formula(row.shape);
        cells.push_back(bytes_cell(of_naive));
        cells.push_back(bytes_cell(of_flash));
        cells.push_back(ratio_cell(flash.requested / naive.requested));
        cells.push_back(ratio_cell(over(flash.moved, naive.moved)));
        cells.push_back(ratio_cell(of_flash / of_naive));
        table.add_row(std::move(cells));
    }
    return table;
}

Table grid_table(const Results& results) {
    std::vector<Column> columns{{"problem", "problem"}, {"heads", "B H", Align::right}};
    for (const int stage : {flash_attention_1_stage, on_chip_stage}) {
        for (const char* what : {"blocks", "SMs with a block", "TFLOP/s"})
            columns.push_back({numbered(stage, what), numbered(stage, what), Align::right});
    }
    Table table("grid", "", columns);
    for (const ProblemRows& problem : by_problem(results)) {
        const Shape& s = problem.first->shape;
        const bool timed =
            problem.row(flash_attention_1_stage) != nullptr && problem.row(on_chip_stage) != nullptr;
        if (problem.first->causal || !timed) continue;
        std::vector<Cell> cells{short_problem(s), Cell::count(static_cast<std::uint64_t>(heads(s)))};
        for (const int stage : {flash_attention_1_stage, on_chip_stage}) {
            const Row& row = *problem.row(stage);
            const double blocks = heads(s) * (stage == on_chip_stage ? (s.Nq + 63) / 64 : 1);
            const double fill = std::min(1.0, blocks / results.hardware.sm_count);
            cells.push_back(Cell::count(static_cast<std::uint64_t>(blocks)));
            cells.push_back({Value(fill), fmt::format("{:.0f}%", 100 * fill)});
            const bool valid = row.timing && row.verified;
            cells.push_back(
                valid ? Cell(Value(row.rate), fmt::format("{:.{}f}", row.rate, row.rate < 10 ? 1 : 0))
                      : Cell(Value(), "-", Tone::faint));
        }
        table.add_row(std::move(cells));
    }
    return table;
}

std::string crossovers(const std::vector<StandardRow>& rows) {
    std::set<int> dims;
    for (const StandardRow& row : rows) dims.insert(row.shape.d);
    std::string text;
    for (const int d : dims) {
        std::vector<std::string> faster, slower;
        for (const StandardRow& row : rows) {
            const auto speedup = over(row.stages.at(standard_stage).milliseconds,
                                      row.stages.at(flash_attention_1_stage).milliseconds);
            if (row.shape.d == d && speedup)
                (*speedup > 1 ? faster : slower).push_back(short_size(row.shape.Nk));
        }
        text += fmt::format("- d = {}: 01 is faster than 00 at {}, and slower at {}.\n", d,
                            faster.empty() ? "no N" : fmt::format("N = {}", fmt::join(faster, ", ")),
                            slower.empty() ? "none" : fmt::format("N = {}", fmt::join(slower, ", ")));
    }
    return text;
}

Chart standard_chart(const std::vector<StandardRow>& rows, const std::string& gpu) {
    Chart chart{.name = "standard",
                .title = fmt::format("Time and bytes over those of standard attention (00), {}", gpu),
                .problem = "Below 1x: less than 00",
                .are_ratios = true,
                .N = {},
                .lines = {{"01, time", true},
                          {"05, time", true},
                          {"01, HBM bytes moved", false},
                          {"01, bytes requested", false},
                          {"01, the paper's formula", false}},
                .panels = {}};
    std::set<int> lengths, dims;
    for (const StandardRow& row : rows) {
        lengths.insert(row.shape.Nk);
        dims.insert(row.shape.d);
    }
    if (rows.empty()) return chart;
    chart.N.assign(lengths.begin(), lengths.end());
    chart.problem = fmt::format("{} sequences of N, {} heads, no mask. ", rows[0].shape.B, rows[0].shape.H) +
                    chart.problem;
    for (const int d : dims) {
        Chart::Panel& panel = chart.panels.emplace_back();
        panel.title = fmt::format("d = {}", d);
        panel.values.resize(chart.lines.size(), std::vector<std::optional<double>>(chart.N.size()));
        for (const StandardRow& row : rows) {
            if (row.shape.d != d) continue;
            const auto at = std::find(chart.N.begin(), chart.N.end(), row.shape.Nk) - chart.N.begin();
            const auto& naive = row.stages.at(standard_stage);
            const auto& flash = row.stages.at(flash_attention_1_stage);
            panel.values[0][at] = over(flash.milliseconds, naive.milliseconds);
            panel.values[1][at] = over(row.stages.at(on_chip_stage).milliseconds, naive.milliseconds);
            panel.values[2][at] = over(flash.moved, naive.moved);
            panel.values[3][at] = flash.requested / naive.requested;
            panel.values[4][at] = flash_attention_formula(row.shape) / standard_formula(row.shape);
        }
    }
    return chart;
}

}  // namespace ladder
