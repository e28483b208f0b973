#include "harness/trace/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/problem/json.h"
#include "harness/trace/shares.h"

namespace ladder {
namespace {

using nlohmann::ordered_json;

// With the digits that a float has, and null for what JSON cannot write.
ordered_json number(float value) {
    if (!std::isfinite(value)) return nullptr;
    return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

/// Writes one trace.
class TraceWriter {
  public:
    TraceWriter(const Trace& trace, const Case& c) : trace_(trace), case_(c), shape_(c.shape) {}

    ordered_json write() {
        ordered_json launches = ordered_json::array();
        for (const TracedLaunch& launch : trace_.launches) {
            ordered_json blocks = ordered_json::array();
            std::size_t idle = 0;
            for (const TracedBlock& block : launch.blocks) {
                if (block.length > 0) {
                    blocks.push_back(block_json(block));
                } else {
                    ++idle;
                }
            }
            launches.push_back({{"grid", launch.grid},
                                {"threads", launch.threads},
                                {"shared_bytes", launch.shared_bytes},
                                {"blocks_per_multiprocessor", launch.blocks_per_multiprocessor},
                                {"start", units(launch.start)},
                                {"end", units(launch.end)},
                                {"idle_blocks", idle},
                                {"blocks", std::move(blocks)}});
        }
        ordered_json L = ordered_json::array();
        for (const float value : trace_.L) L.push_back(number(value));
        return {{"stage", trace_.stage->folder()},  {"change", trace_.stage->change},
                {"pass", name(trace_.stage->pass)}, {"end", units(trace_.end())},
                {"total", list(trace_.counters)},   {"L", std::move(L)},
                {"work", std::move(work_)},         {"shares", std::move(shares_)},
                {"launches", std::move(launches)}};
    }

  private:
    double units(double mma) const { return rounded(mma / shape_.d); }

    static std::vector<std::uint64_t> list(const simt::Counters& counters) {
        std::vector<std::uint64_t> values;
        for (const auto& field : simt::counter_fields) values.push_back(counters.*field.value);
        return values;
    }

    std::size_t index_of(const simt::Counters& work) {
        const auto [place, added] = known_.try_emplace(list(work), known_.size());
        if (added) work_.push_back(place->first);
        return place->second;
    }

    std::size_t index_of(const Share& share) {
        const auto [place, added] = known_shares_.try_emplace(share, known_shares_.size());
        if (!added) return place->second;
        ordered_json written = ordered_json::object();
        const auto add = [&](const char* key, const auto& list) {
            if (!list.empty()) written[key] = list;
        };
        add("rows", share.rows);
        add("keys", share.keys);
        add("value_keys", share.value_keys);
        add("received", share.received);
        shares_.push_back(std::move(written));
        return place->second;
    }

    ordered_json block_json(const TracedBlock& block) {
        const bool in_time = !block.record.timeline.empty();
        ordered_json visits = ordered_json::array(), phases = ordered_json::array();
        if (in_time) {
            add_phases_in_time(phases, block);
        } else if (block.visits.empty()) {
            add_phases(phases, block, -1, {}, 0, block.record.phases.size(), block.start, block.length);
        }
        for (std::size_t v = 0; v < block.visits.size(); ++v) {
            const auto& [tile, first, start, length, first_warp, warps] = block.visits[v];
            visits.push_back({{"batch", tile.batch},
                              {"head", tile.head},
                              {"group", tile.group},
                              {"i", tile.query_tile},
                              {"j", tile.key_tile},
                              {"masked", tile.masked},
                              {"start", units(start)},
                              {"end", units(start + length)},
                              {"rows", tile.rows},
                              {"keys", tile.keys}});
            if (in_time) {
                visits.back()["first_warp"] = first_warp;
                visits.back()["warps"] = warps;
            } else {
                add_phases(phases, block, static_cast<int>(v), tile, static_cast<std::size_t>(first),
                           block.end_of(v), start, length);
            }
        }
        ordered_json written = {{"number", block.record.number},
                                {"multiprocessor", block.multiprocessor},
                                {"place", block.place},
                                {"start", units(block.start)},
                                {"end", units(block.start + block.length)},
                                {"visits", std::move(visits)},
                                {"phases", std::move(phases)}};
        if (in_time) written["timeline"] = timeline_json(block, trace_.stage->pass, shape_.d);
        return written;
    }

    // Of each visit its warps' part of its phase; then, in phases of the whole block, what no visit has.
    void add_phases_in_time(ordered_json& phases, const TracedBlock& block) {
        auto left = block.record.phases;
        for (std::size_t v = 0; v < block.visits.size(); ++v) {
            const Visit& visit = block.visits[v];
            const auto own = phases_of(block, v).front();
            for (int w = visit.first_warp; w < visit.first_warp + visit.warps; ++w)
                left[static_cast<std::size_t>(visit.first_phase)].warps[static_cast<std::size_t>(w)] = {};
            phases.push_back(phase_json(own, units(visit.start), units(visit.start + visit.length),
                                        static_cast<int>(v), shares_of(own, visit.tile, case_),
                                        visit.tile.group));
        }
        if (left.empty()) left.emplace_back().warps.resize(1);
        left.front().warps.front().work += block.record.timeline.counted();
        for (const auto& phase : left) {
            const bool is_nothing = !phase.behind_barrier &&
                                    std::all_of(phase.warps.begin(), phase.warps.end(), [](const auto& warp) {
                                        return warp.work == simt::Counters{};
                                    });
            if (is_nothing) continue;
            phases.push_back(phase_json(phase, units(block.start), units(block.start + block.length), -1,
                                        std::vector<Share>(phase.warps.size()), 1));
        }
    }

    void add_phases(ordered_json& phases, const TracedBlock& block, int visit, const simt::Tile& tile,
                    std::size_t first, std::size_t end, std::uint64_t start, std::uint64_t length) {
        const int group = block.visits.empty() ? 1 : block.visits.front().tile.group;
        for (std::size_t k = first; k < end; ++k) {
            const auto& phase = block.record.phases[k];
            const auto at = [&](std::size_t n) {
                return units(start +
                             length * static_cast<double>(n - first) / static_cast<double>(end - first));
            };
            phases.push_back(
                phase_json(phase, at(k), at(k + 1), visit, shares_of(phase, tile, case_), group));
        }
    }

    ordered_json phase_json(const simt::BlockTrace::Phase& phase, double start, double end, int visit,
                            const std::vector<Share>& shares, int group) {
        ordered_json work = ordered_json::array(), parts = ordered_json::array();
        for (const auto& warp : phase.warps) work.push_back(index_of(warp.work));
        for (const Share& share : shares) parts.push_back(index_of(share));
        return {{"start", start},
                {"end", end},
                {"visit", visit},
                {"barrier", phase.behind_barrier},
                {"work", std::move(work)},
                {"shares", std::move(parts)},
                {"rows", rows_json(phase, shape_.Nq * group)}};
    }

    static ordered_json rows_json(const simt::BlockTrace::Phase& phase, int row_count) {
        ordered_json runs = ordered_json::array();
        for (std::size_t w = 0; w < phase.warps.size(); ++w) {
            const auto& rows = phase.warps[w].rows;
            const bool known = std::any_of(phase.warps.begin(), phase.warps.begin() + static_cast<int>(w),
                                           [&](const auto& other) { return other.rows == rows; });
            if (known) continue;
            int next = -1;
            for (const auto& [row, state] : rows) {
                if (row >= row_count) break;  // a ragged tile has rows past the last
                if (row != next) {
                    runs.push_back({{"warp", w},
                                    {"first", row},
                                    {"m", ordered_json::array()},
                                    {"l", ordered_json::array()}});
                }
                runs.back()["m"].push_back(number(state.m));
                runs.back()["l"].push_back(number(state.l()));
                next = row + 1;
            }
        }
        return runs;
    }

    const Trace& trace_;
    const Case& case_;
    const Shape& shape_;
    std::map<std::vector<std::uint64_t>, std::size_t> known_;
    ordered_json work_ = ordered_json::array();
    std::map<Share, std::size_t> known_shares_;
    ordered_json shares_ = ordered_json::array();
};

}  // namespace

double rounded(double value) {
    return std::round(value * 1e4) / 1e4;
}

ordered_json to_json(const Case& c, int multiprocessors, const std::vector<Trace>& traces) {
    ordered_json counters = ordered_json::array(), written = ordered_json::array();
    for (const auto& field : simt::counter_fields) counters.push_back(field.name);
    for (const Trace& trace : traces) written.push_back(TraceWriter(trace, c).write());
    return {{"kind", "trace"},
            {"shape",
             {{"B", c.shape.B},
              {"H", c.shape.H},
              {"Hkv", c.shape.Hkv},
              {"Nq", c.shape.Nq},
              {"Nk", c.shape.Nk},
              {"d", c.shape.d}}},
            {"dtype", name(c.dtype)},
            {"causal", c.causal},
            {"input", c.input},
            {"seed", c.seed},
            {"problem", c.description()},
            {"multiprocessors", multiprocessors},
            {"counters", std::move(counters)},
            {"traces", std::move(written)}};
}

}  // namespace ladder
