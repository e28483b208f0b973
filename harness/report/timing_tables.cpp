#include "harness/report/timing_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "harness/base/numbers.h"
#include "harness/cases/regimes.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/report/problem_rows.h"
#include "harness/time/timing.h"

namespace ladder {
namespace {

// What is compared in one table: the rates of a pass in a unit.
struct Kind {
    std::string_view unit;
    Pass pass;
    std::string key;
    std::string title;
};
const Kind kinds[]{{"TFLOP/s", Pass::forward, "flop_rate", "TFLOP/s"},
                   {"GB/s", Pass::forward, "bytes_rate", "GB/s"},
                   {"TFLOP/s", Pass::backward, "gradients_flop_rate", "Gradients: TFLOP/s"},
                   {"GB/s", Pass::backward, "gradients_bytes_rate", "Gradients: GB/s"}};

std::vector<ProblemRows> of_kind(std::vector<ProblemRows> groups, const Kind& kind) {
    std::erase_if(groups, [&](const ProblemRows& g) {
        return counts_bytes(g.first->shape) != (kind.unit == "GB/s") || g.first->pass != kind.pass;
    });
    return groups;
}

// How many times as fast as the peer the stage is; empty if one of them has no time.
std::optional<double> over_peer(const ProblemRows& group, const Row* row, const std::string& peer) {
    const PeerRow* yardstick = group.peer(peer);
    if (yardstick == nullptr || row == nullptr) return std::nullopt;
    const auto ratio = yardstick->stage_speedups.find(row->folder);
    return ratio == yardstick->stage_speedups.end() ? std::nullopt : std::optional(ratio->second);
}

// "peer: cuDNN", in the column of the stages
std::string label(const std::string& peer) {
    return "peer: " + peer;
}

// Marked where the stage's change should show.
Tone tone_of(const Row& row) {
    return row.shows_here ? Tone::marked : Tone::plain;
}

Cell ratio(const std::optional<double>& value, Tone tone = Tone::plain) {
    if (!value) return {};
    return {Value(*value), fmt::format("{:.2f}x", *value), tone};
}

Cell speedup(const Row& row) {
    return row.over_parent ? ratio(*row.over_parent, tone_of(row)) : Cell();
}

Cell verified_cell(const Row& row) {
    if (row.verified) return {Value(true), "yes", Tone::good};
    return row.timing ? Cell(Value(false), "WRONG", Tone::bad) : Cell(Value(), "cannot run", Tone::faint);
}

Cell milliseconds(const Measurement& row) {
    if (!row.timing) return {};
    return {Value(row.timing->median_ms), fmt::format("{:.3f}", row.timing->median_ms)};
}

Cell noise(const Measurement& row) {
    if (!row.timing) return {};
    return {Value(row.timing->noise), fmt::format("{:.1f}%", 100 * row.timing->noise)};
}

Cell rate(const Measurement& row) {
    if (!row.timing) return {};
    return {Value(row.rate), fmt::format("{:.{}f}", row.rate, row.rate < 100 ? 1 : 0)};
}

Cell share(const Measurement& row) {
    if (!row.ceiling_share) return {};
    return {Value(*row.ceiling_share), fmt::format("{:.0f}%", 100 * *row.ceiling_share)};
}

// "212 (1.52x)": the rate and the speedup over the parent
Cell rate_and_speedup(const Row* row) {
    if (row == nullptr || !row->timing) return {Value(), "-", Tone::faint};
    if (!row->verified) return {Value(row->rate), "WRONG", Tone::bad};
    std::string text = rate(*row).text;
    if (row->over_parent) text += fmt::format(" ({:.2f}x)", *row->over_parent);
    return {Value(row->rate), text, tone_of(*row)};
}

Cell rate_or_dash(const Measurement* row) {
    return row == nullptr || !row->timing ? Cell(Value(), "-", Tone::faint) : rate(*row);
}

Cell fact(const std::string& text) {
    return Cell(text);
}

Cell rate_fact(const std::optional<double>& value, const char* unit) {
    return value ? Cell(Value(*value), fmt::format("{:.0f} {}", *value, unit))
                 : Cell(Value(), "not measured");
}

// "d=64 N=2k B=8 H=32 causal": what tells the problems of a sweep apart
std::string problem_name(const ProblemRows& group) {
    const Shape& s = group.first->shape;
    if (!is_sweep(group.first->regime)) return group.short_name();
    return fmt::format("d={} N={}{} B={} H={}{}{}{}", s.d, short_size(s.Nk),
                       s.Nq == 1 || s.Nq == s.Nk ? "" : " Nq=" + short_size(s.Nq), s.B, s.H,
                       s.H == s.Hkv ? "" : fmt::format(" Hkv={}", s.Hkv),
                       group.first->causal ? " causal" : "", in_words(group.first->features));
}

// Who is compared with the peers: a stage, or the fastest one on each problem.
struct Contender {
    const Stage* stage;  // null for the fastest

    std::string name() const { return stage != nullptr ? stage->folder() : "fastest"; }
    std::string short_name() const {
        return stage != nullptr ? fmt::format("{:02}", stage->number) : "fastest";
    }
    const Row* row(const ProblemRows& group) const {
        if (stage != nullptr) return group.row(stage->number);
        const Row* fastest = nullptr;
        for (const Row* row : group.rows) {
            if (!row->timing || !row->verified) continue;
            if (fastest == nullptr || row->rate > fastest->rate) fastest = row;
        }
        return fastest;
    }
    Cell cell(const ProblemRows& group) const {
        const Row* row = this->row(group);
        Cell cell = rate_and_speedup(row);
        if (stage == nullptr && row != nullptr && row->timing && row->verified)
            cell = {Value(row->rate), fmt::format("{} ({:02})", rate(*row).text, row->stage)};
        return cell;
    }
};

// All of a few, else the fastest.
std::vector<Contender> contenders_of(const Results& results) {
    constexpr std::size_t few = 3;
    std::vector<Contender> contenders;
    for (const Stage& stage : stages()) {
        if (std::any_of(results.rows.begin(), results.rows.end(),
                        [&](const Row& row) { return row.stage == stage.number; }))
            contenders.push_back({&stage});
    }
    return contenders.size() <= few || results.peers.empty() ? contenders : std::vector<Contender>{{nullptr}};
}

// A contender against a peer.
struct Pair {
    Contender contender;
    std::string peer;

    Column column() const {
        return {fmt::format("{}_over_{}", contender.name(), peer),
                fmt::format("{} over {}", contender.short_name(), peer), Align::right};
    }
    std::optional<double> ratio(const ProblemRows& group) const {
        return over_peer(group, contender.row(group), peer);
    }
};

// Why who has no time, or a wrong answer, in one line
std::string reasons(const ProblemRows& group, const std::vector<Contender>& contenders) {
    std::vector<std::string> list;
    const bool any_timed = std::any_of(group.rows.begin(), group.rows.end(),
                                       [](const Row* row) { return row->timing.has_value(); });
    for (const Contender& contender : contenders) {
        const Row* row = contender.row(group);
        // Among stages that are for this head dimension, one that is not needs no reason in each row.
        const bool not_for_it =
            any_timed && contender.stage != nullptr && !contender.stage->has_head_dim(group.first->shape.d);
        if (row != nullptr && !row->why_not.empty() && !not_for_it)
            list.push_back(fmt::format("{}: {}", contender.short_name(), row->why_not));
    }
    for (const PeerRow* row : group.peers) {
        if (!row->why_not.empty()) list.push_back(fmt::format("{}: {}", row->peer, row->why_not));
    }
    return fmt::format("{}", fmt::join(list, "; "));
}

// "0.97x, 0.81x": the geometric mean of the ratios and the smallest; "(12 of 16)" if other problems have none
Cell mean_and_minimum(const std::vector<double>& ratios, std::size_t problems) {
    if (ratios.empty()) return {Value(), "-", Tone::faint};
    double logarithms = 0;
    for (const double ratio : ratios) logarithms += std::log(ratio);
    const double mean = std::exp(logarithms / static_cast<double>(ratios.size()));
    const double least = *std::min_element(ratios.begin(), ratios.end());
    const std::string some =
        ratios.size() == problems ? "" : fmt::format(" ({} of {})", ratios.size(), problems);
    return {Value(mean), fmt::format("{:.2f}x, {:.2f}x{}", mean, least, some)};
}

// A row for each head dimension, if there are several, and one for all.
Table summary_table(const Kind& kind, const std::vector<ProblemRows>& groups,
                    const std::vector<Pair>& pairs) {
    std::vector<Column> columns{{"problems", "problems"}};
    for (const Pair& pair : pairs) columns.push_back(pair.column());
    Table table(kind.key + "_summary", "Geometric mean and minimum of the ratios", columns);
    const auto add_row = [&](const std::string& name, const auto& is_in) {
        std::vector<Cell> cells{name};
        for (const Pair& pair : pairs) {
            std::vector<double> ratios;
            std::size_t of_peer = 0, known = 0;  // problems on which some stage has a ratio to it, or to any
            for (const ProblemRows& group : groups) {
                if (!is_in(group)) continue;
                if (const auto ratio = pair.ratio(group)) ratios.push_back(*ratio);
                std::set<std::string> timed;
                for (const Pair& each : pairs) {
                    if (each.ratio(group)) timed.insert(each.peer);
                }
                of_peer += timed.count(pair.peer);
                known += !timed.empty();
            }
            // A mean over fewer problems than another stage has would be taken for theirs.
            if (ratios.size() < of_peer) ratios.clear();
            cells.push_back(mean_and_minimum(ratios, known));
        }
        table.add_row(std::move(cells));
    };
    std::set<int> dimensions;
    for (const ProblemRows& group : groups) dimensions.insert(group.first->shape.d);
    if (dimensions.size() > 1) {
        for (const int d : dimensions)
            add_row(fmt::format("d={}", d),
                    [=](const ProblemRows& group) { return group.first->shape.d == d; });
    }
    add_row("all", [](const ProblemRows&) { return true; });
    return table;
}

// What the peers are made of: "PyTorch 2.11.0, cuDNN 9.10.2"
std::string libraries(const Results& results) {
    std::vector<std::string> names;
    for (const auto& [library, version] : results.libraries)
        names.push_back(fmt::format("{} {}", library, version));
    return fmt::format("{}", fmt::join(names, ", "));
}

// The peers that were timed on one of these problems
std::vector<std::string> timed_peers(const std::vector<ProblemRows>& groups, std::vector<std::string> names) {
    std::erase_if(names, [&](const std::string& name) {
        return std::none_of(groups.begin(), groups.end(), [&](const ProblemRows& group) {
            const PeerRow* row = group.peer(name);
            return row != nullptr && row->timing;
        });
    });
    return names;
}

// sm_90 of 90
std::string architecture(int arch) {
    return fmt::format("sm_{}", arch);
}

}  // namespace

std::vector<std::pair<std::string, Cell>> machine_facts(const Record& record) {
    const Hardware& h = record.hardware;
    return {
        {"GPU", fact(fmt::format("{}, {} SMs, {}", h.gpu, h.sm_count, architecture(h.device_arch)))},
        {"driver", fact(h.driver)},
        {"toolkit", fact(fmt::format("CUDA {}, compiled for {}", h.toolkit, architecture(h.binary_arch)))},
        {"date", fact(record.date)},
        {"commit", fact(record.commit)}};
}

std::vector<std::pair<std::string, Cell>> measurement_facts(const Results& results) {
    auto facts = machine_facts(results);
    facts.emplace_back("ceiling, bf16 GEMM", rate_fact(results.ceilings.bf16_tflops, "TFLOP/s"));
    facts.emplace_back("ceiling, fp16 GEMM", rate_fact(results.ceilings.fp16_tflops, "TFLOP/s"));
    facts.emplace_back("ceiling, copy", rate_fact(results.ceilings.copy_gbs, "GB/s"));
    if (!results.libraries.empty()) facts.emplace_back("peers", fact(libraries(results)));
    return facts;
}

std::vector<Table> timing_tables(const Results& results) {
    std::vector<Table> tables;
    for (const ProblemRows& group : by_problem(results)) {
        const Row& first = *group.first;
        const auto peers = timed_peers({group}, peer_names(results));
        std::vector<Column> columns{{"stage", "stage"},
                                    {"verified", "verified"},
                                    {"median_ms", "median ms", Align::right},
                                    {"noise", "noise", Align::right},
                                    {"rate", counts_bytes(first.shape) ? "GB/s" : "TFLOP/s", Align::right},
                                    {"ceiling_share", "of ceiling", Align::right, true},
                                    {"over_parent", "over parent", Align::right},
                                    {"over_baseline", "over 00", Align::right, true}};
        for (const std::string& peer : peers)
            columns.push_back({"over_" + peer, "over " + peer, Align::right, peer == Peers::slow});
        columns.push_back({"why_not", ""});
        Table table(fmt::format("{}_{}", first.regime, tables.size()), long_name(first), columns);
        for (const Row* row : group.rows) {
            std::vector<Cell> cells{row->folder, verified_cell(*row), milliseconds(*row), noise(*row),
                                    rate(*row),  share(*row),         speedup(*row)};
            cells.push_back(row->over_baseline ? ratio(*row->over_baseline) : Cell());
            for (const std::string& peer : peers) cells.push_back(ratio(over_peer(group, row, peer)));
            cells.push_back(row->why_not.empty() ? Cell() : Cell(row->why_not));
            table.add_row(std::move(cells));
        }
        for (const std::string& peer : peers) {
            const PeerRow* row = group.peer(peer);
            table.add_row({label(peer), {}, milliseconds(*row), noise(*row), rate(*row), share(*row)});
        }
        tables.push_back(std::move(table));
    }
    return tables;
}

Table regime_table(const Results& results) {
    const auto groups = by_problem(results);
    const bool bytes = counts_bytes(groups.front().first->shape);
    Table table("times", "",
                {{"problem", "problem"},
                 {"stage", "stage"},
                 {"verified", "verified"},
                 {"median_ms", "median ms", Align::right},
                 {"noise", "noise", Align::right, true},
                 {"rate", bytes ? "GB/s" : "TFLOP/s", Align::right},
                 {"over_parent", "over parent", Align::right},
                 {"why_not", ""}});
    for (const ProblemRows& group : groups) {
        for (const Row* row : group.rows) {
            table.add_row({group.short_name(), row->folder, verified_cell(*row), milliseconds(*row),
                           noise(*row), rate(*row), speedup(*row),
                           row->why_not.empty() ? Cell() : Cell(row->why_not)});
        }
    }
    return table;
}

std::vector<Table> rate_tables(const Results& results, const std::string& regime) {
    std::vector<Table> tables;
    for (const Kind& kind : kinds) {
        std::vector<ProblemRows> groups = of_kind(by_problem(results), kind);
        std::erase_if(groups,
                      [&](const ProblemRows& g) { return !regime.empty() && g.first->regime != regime; });
        if (groups.empty()) continue;
        std::vector<Column> columns{{"stage", "stage"}};
        for (const ProblemRows& group : groups)
            columns.push_back({group.short_name(), group.short_name(), Align::right});
        Table table(kind.key, kind.title + " (speedup over the parent)", columns);
        for (const Stage& stage : stages()) {
            std::vector<Cell> cells{stage.folder()};
            bool any = false;
            for (const ProblemRows& group : groups) {
                const Row* row = group.row(stage.number);
                any = any || row != nullptr;
                cells.push_back(rate_and_speedup(row));
            }
            if (any) table.add_row(std::move(cells));
        }
        for (const std::string& peer : timed_peers(groups, peer_names(results))) {
            std::vector<Cell> cells{label(peer)};
            for (const ProblemRows& group : groups) cells.push_back(rate_or_dash(group.peer(peer)));
            table.add_row(std::move(cells));
        }
        tables.push_back(std::move(table));
    }
    return tables;
}

Printout first_printout(const Results& results) {
    Printout printout;
    printout.facts = measurement_facts(results);
    printout.tables = rate_tables(results);
    std::vector<std::string>& notes = printout.notes;
    std::vector<std::string> reasons, names;
    double most_noise = 0;
    bool all_right = true;
    for (const Row& row : results.rows) {
        if (row.timing) most_noise = std::max(most_noise, row.timing->noise);
        all_right = all_right && row.verified;
        if (!row.why_not.empty())
            reasons.push_back(fmt::format("{}, {}: {}", row.folder, row.regime, row.why_not));
        if (std::find(names.begin(), names.end(), row.regime) == names.end()) names.push_back(row.regime);
    }
    notes.push_back(
        fmt::format("{}Times are medians, with a noise of at most {:.1f}%. In brackets: the speedup over the "
                    "parent, marked where the stage's change should show.",
                    all_right ? "Every result was verified against attention in double precision. " : "",
                    100 * most_noise));
    for (const std::string& name : names) {
        if (const Regime* regime = regime_named(name))
            notes.push_back(fmt::format("{}: {}.", name, regime->description));
    }
    notes.insert(notes.end(), reasons.begin(), reasons.end());
    return printout;
}

std::vector<std::string> untimed_notes(const Results& results) {
    using Regimes = std::vector<std::string>;
    const auto add = [](Regimes& names, const std::string& name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    std::set<std::string> timed;                                    // peers, somewhere
    std::map<std::pair<std::string, std::string>, Regimes> reason;  // of a peer's name and a reason: where
    for (const PeerRow& row : results.peers) {
        if (row.timing) timed.insert(row.peer);
        if (!row.why_not.empty()) add(reason[{row.why_not, row.peer}], row.regime);
    }
    std::map<std::pair<std::string, std::string>, Regimes> peers_of;  // by the reason and " in decode"
    for (const auto& [what, where] : reason) {
        const auto& [why, peer] = what;
        peers_of[{why, !timed.contains(peer) ? "" : fmt::format(" in {}", fmt::join(where, ", "))}].push_back(
            peer);
    }
    std::vector<std::string> notes;
    for (const auto& [what, peers] : peers_of)
        notes.push_back(fmt::format("Not timed{}: {}: {}.", what.second, fmt::join(peers, ", "), what.first));
    return notes;
}

std::vector<Table> comparison_tables(const Results& results) {
    const auto contenders = contenders_of(results);
    const auto peers = peer_names(results);
    std::vector<Pair> pairs;
    for (const Contender& contender : contenders) {
        for (const std::string& peer : peers) pairs.push_back({contender, peer});
    }
    std::vector<Table> tables;
    for (const Kind& kind : kinds) {
        const auto groups = of_kind(by_problem(results), kind);
        if (groups.empty()) continue;
        std::vector<Column> columns{{"problem", "problem"}};
        for (const Contender& contender : contenders)
            columns.push_back({contender.name(), contender.name(), Align::right});
        for (const std::string& peer : peers) columns.push_back({peer, peer, Align::right});
        for (const Pair& pair : pairs) columns.push_back(pair.column());
        const bool all_ran = std::all_of(groups.begin(), groups.end(), [&](const ProblemRows& group) {
            return reasons(group, contenders).empty();
        });
        if (!all_ran) columns.push_back({"why_not", ""});
        Table table(kind.key, kind.title, columns);
        for (const ProblemRows& group : groups) {
            std::vector<Cell> cells{problem_name(group)};
            for (const Contender& contender : contenders) cells.push_back(contender.cell(group));
            for (const std::string& peer : peers) cells.push_back(rate_or_dash(group.peer(peer)));
            for (const Pair& pair : pairs) cells.push_back(ratio(pair.ratio(group)));
            if (!all_ran) cells.emplace_back(reasons(group, contenders));
            table.add_row(std::move(cells));
        }
        tables.push_back(std::move(table));
        if (!pairs.empty()) tables.push_back(summary_table(kind, groups, pairs));
    }
    return tables;
}

std::string recorded_label(const Results& results) {
    std::map<std::string, std::string> shown;
    for (const Row& row : results.rows) {
        const auto kernel = results.kernels.find(row.folder);
        if (kernel != results.kernels.end()) shown.insert(*kernel);
    }
    std::string since;
    for (const Stage* stage : changed_since(shown))
        since += fmt::format("{}{:02}", since.empty() ? "; since then changed: " : ", ", stage->number);
    return fmt::format("Recorded on {}, {}, commit {}{}", results.hardware.gpu, results.date.substr(0, 10),
                       results.commit.substr(0, 7), since);
}

}  // namespace ladder
