#include "harness/count/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "harness/base/file.h"
#include "harness/count/counting.h"
#include "harness/count/schedule.h"
#include "harness/problem/json.h"
#include "stages/errors.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

using nlohmann::ordered_json;

std::uint64_t mma_of(const simt::BlockTrace::Phase& phase) {
    std::uint64_t mma = 0;
    for (const auto& warp : phase.warps) mma += warp.work.mma;
    return mma;
}

// Divides the phases of a block among its visits, and the block's length by their mma.
std::vector<Visit> visits_of(const simt::BlockTrace& record) {
    std::vector<Visit> visits;
    int phase = 0, first = 0;
    for (const simt::BlockTrace::Phase& own : record.phases) {
        if (mma_of(own) > 0 && own.tiles.empty()) first = phase + 1;
        for (const simt::Tile& tile : own.tiles) {
            visits.push_back({.tile = tile, .first_phase = visits.empty() ? 0 : first});
            first = phase + 1;
        }
        ++phase;
    }
    return visits;
}

// The same where warpgroups note their own tiles. Starts count from the block's.
std::vector<Visit> visits_in_time(const simt::BlockTrace& record) {
    std::vector<Visit> visits;
    const auto clock = [](double time) { return static_cast<std::uint64_t>(std::llround(time)); };
    for (std::size_t w = 0; w < record.timeline.warps.size(); ++w) {
        const auto& notes = record.timeline.warps[w].tiles;
        for (std::size_t k = 0; k < notes.size(); ++k) {
            const auto& [time, tile] = notes[k];
            const auto known = std::find_if(visits.begin(), visits.end(),
                                            [tile = tile](const Visit& other) { return other.tile == tile; });
            if (known != visits.end()) {
                known->warps += 1;
                continue;
            }
            const auto phase =
                std::find_if(record.phases.begin(), record.phases.end(), [tile = tile](const auto& own) {
                    return std::find(own.tiles.begin(), own.tiles.end(), tile) != own.tiles.end();
                });
            const double end = k + 1 < notes.size() ? notes[k + 1].first : record.timeline.end;
            visits.push_back({.tile = tile,
                              .first_phase = static_cast<int>(phase - record.phases.begin()),
                              .start = clock(time),
                              .length = clock(end) - clock(time),
                              .first_warp = static_cast<int>(w),
                              .warps = 1});
        }
    }
    std::stable_sort(visits.begin(), visits.end(),
                     [](const Visit& a, const Visit& b) { return a.start < b.start; });
    return visits;
}

// One past the last phase of a visit.
std::size_t end_of(const TracedBlock& block, std::size_t visit) {
    return visit + 1 < block.visits.size() ? static_cast<std::size_t>(block.visits[visit + 1].first_phase)
                                           : block.record.phases.size();
}

bool did_nothing(const simt::BlockTrace& record) {
    return std::all_of(record.phases.begin(), record.phases.end(), [](const auto& phase) {
        return std::all_of(phase.warps.begin(), phase.warps.end(),
                           [](const auto& warp) { return warp.work == simt::Counters{}; });
    });
}

// Fills in the visits and lengths, then the places.
void lay_out(TracedLaunch& launch, int d, int multiprocessors) {
    std::vector<std::uint64_t> lengths;
    for (TracedBlock& block : launch.blocks) {
        if (const simt::Timeline& timeline = block.record.timeline; !timeline.empty()) {
            block.visits = visits_in_time(block.record);
            block.length = static_cast<std::uint64_t>(std::llround(timeline.end));
            lengths.push_back(block.length);
            continue;
        }
        block.visits = visits_of(block.record);
        for (const auto& phase : block.record.phases) block.length += mma_of(phase);
        if (block.length == 0 && !did_nothing(block.record)) block.length = static_cast<std::uint64_t>(d);
        lengths.push_back(block.length);
    }
    const auto places = static_cast<std::size_t>(multiprocessors * launch.blocks_per_multiprocessor);
    const Schedule schedule = list_schedule(lengths, places);
    launch.end = launch.start + schedule.end;
    for (std::size_t k = 0; k < launch.blocks.size(); ++k) {
        TracedBlock& block = launch.blocks[k];
        const Slot& slot = schedule.slots[k];
        // As GPUs do, a first block goes to each multiprocessor before any gets a second one.
        block.multiprocessor = static_cast<int>(slot.place) % multiprocessors;
        block.place = static_cast<int>(slot.place) / multiprocessors;
        block.start = launch.start + slot.start;
        if (!block.record.timeline.empty()) {
            for (Visit& visit : block.visits) visit.start += block.start;
            continue;
        }
        std::uint64_t start = block.start;
        for (std::size_t v = 0; v < block.visits.size(); ++v) {
            Visit& visit = block.visits[v];
            visit.start = start;
            for (auto phase = static_cast<std::size_t>(visit.first_phase); phase < end_of(block, v);
                 ++phase) {
                visit.length += mma_of(block.record.phases[phase]);
            }
            start += visit.length;
        }
    }
}

// Where a byte of a tensor is.
struct Element {
    int batch, head, row;
};

// Tensors have no gaps, so each index follows from its stride.
Element element_at(std::size_t byte, const View& view, int heads, int N, const Shape& s) {
    const auto at = static_cast<std::int64_t>(byte / sizeof(std::uint16_t));
    return {static_cast<int>(at / view.batch % s.B), static_cast<int>(at / view.head % heads),
            static_cast<int>(at / view.row % N)};
}

Ranges ranges_of(const std::set<int>& numbers) {
    Ranges ranges;
    for (const int n : numbers) {
        if (ranges.empty() || ranges.back().second != n) ranges.emplace_back(n, n);
        ranges.back().second = n + 1;
    }
    return ranges;
}

// With the digits that a float has, and null for what JSON cannot write.
ordered_json number(float value) {
    if (!std::isfinite(value)) return nullptr;
    return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

// What a product of a warpgroup computes, as its operands say. Those of the backward pass that have one in
// registers, or in shared memory that warps have stored to, are of P or dS.
const char* result_of(const simt::Timeline::Product& product, Pass pass) {
    const std::string &A = product.A.tensor, &B = product.B.tensor;
    if (pass == Pass::forward) return B == "V" ? "values" : "scores";
    if (A.empty() != B.empty()) {
        const std::string& tensor = A.empty() ? B : A;
        if (tensor == "dO") return "dV";
        if (tensor == "Q") return "dK";
        if (tensor == "K") return "dQ";
    }
    return A == "dO" || B == "dO" ? "dP" : "scores";
}

// With few digits, since it is drawn.
double rounded(double value) {
    return std::round(value * 1e4) / 1e4;
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
                           end_of(block, v), start, length);
            }
        }
        ordered_json written = {{"number", block.record.number},
                                {"multiprocessor", block.multiprocessor},
                                {"place", block.place},
                                {"start", units(block.start)},
                                {"end", units(block.start + block.length)},
                                {"visits", std::move(visits)},
                                {"phases", std::move(phases)}};
        if (in_time) written["timeline"] = timeline_json(block);
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

    ordered_json timeline_json(const TracedBlock& block) const {
        const simt::Timeline& timeline = block.record.timeline;
        ordered_json lanes = ordered_json::array();
        const auto at = [&](double time) { return units(block.start + time); };
        const auto add_lane = [&](const char* kind, const std::string& name) -> ordered_json& {
            lanes.push_back({{"name", name}, {"kind", kind}, {"spans", ordered_json::array()}});
            return lanes.back();
        };
        // Spans of the same kind that touch are one.
        const auto add = [&](ordered_json& lane, double start, double end, const char* what) {
            ordered_json& spans = lane["spans"];
            if (at(start) >= at(end)) return;
            if (!spans.empty() && spans.back()[2] == what && spans.back()[1] >= at(start)) {
                spans.back()[1] = std::max(spans.back()[1].get<double>(), at(end));
            } else {
                spans.push_back({at(start), at(end), what});
            }
        };
        const auto add_waits = [&](ordered_json& lane, std::size_t warp) {
            static constexpr const char* names[] = {"loads", "mbarrier", "barrier", "products",
                                                    "tensor_units"};
            for (const auto& wait : timeline.warps[warp].waits)
                add(lane, wait.start, wait.end, names[static_cast<std::size_t>(wait.what)]);
        };
        for (std::size_t w = 0; w < timeline.warps.size(); ++w) {
            ordered_json* lane = nullptr;
            for (const auto& load : timeline.loads) {
                if (load.warp != static_cast<int>(w)) continue;
                if (lane == nullptr) lane = &add_lane("loads", fmt::format("warp {}", w));
                (*lane)["start"].push_back(at(load.issued));
                add(*lane, load.issued, load.landed, "copy");
            }
            if (lane != nullptr) add_waits(*lane, w);
        }
        const std::size_t first_place = lanes.size();
        std::map<std::string, int> places;  // of each tensor
        for (const auto& place : timeline.places) {
            std::vector<std::string> tensors = place.tensors;
            std::erase(tensors, "workspace");  // it comes beside what the place is for
            const std::string name = fmt::format("{}", fmt::join(tensors, " "));
            ordered_json& lane = add_lane("place", fmt::format("{} {}", name, places[name]++));
            for (const auto& fill : place.fills) {
                const double freed = std::max(fill.freed, std::max(fill.landed, fill.last_read));
                add(lane, fill.issued, fill.landed, "copy");
                add(lane, fill.landed, fill.last_read > 0 ? std::max(fill.first_read, fill.landed) : freed,
                    "full");
                add(lane, fill.first_read, fill.last_read, "read");
                if (fill.last_read > 0) add(lane, fill.last_read, freed, "full");
            }
        }
        // The places of Q before those of K, and these before those of V.
        const auto rank = [](const ordered_json& lane) {
            const auto name = lane["name"].get<std::string>();
            return std::pair(std::string_view("QKV").find(name.front()), name);
        };
        std::sort(lanes.begin() + static_cast<std::ptrdiff_t>(first_place), lanes.end(),
                  [&](const ordered_json& a, const ordered_json& b) { return rank(a) < rank(b); });
        double busy = 0;
        for (const auto& product : timeline.products) busy += product.ended - product.started;
        for (int group = 0; group < static_cast<int>(timeline.warps.size() + 3) / 4; ++group) {
            std::vector<simt::Timeline::Product> own;
            std::copy_if(timeline.products.begin(), timeline.products.end(), std::back_inserter(own),
                         [&](const auto& product) { return product.warpgroup == group; });
            if (own.empty()) continue;
            ordered_json& products = add_lane("products", fmt::format("group {}", group));
            for (std::size_t first = 0, next = 0; first < own.size(); first = next) {
                while (next < own.size() && own[next].A == own[first].A && own[next].B == own[first].B)
                    ++next;
                products["spans"].push_back({at(own[first].issued), at(own[next - 1].ended), "flight"});
            }
            for (const auto& product : own)
                add(products, product.started, product.ended, result_of(product, trace_.stage->pass));
            ordered_json& lane = add_lane("warpgroup", fmt::format("group {}", group));
            for (const auto& span : timeline.warps[static_cast<std::size_t>(4 * group)].exponentials)
                add(lane, span.start, span.end, "exp");
            add_waits(lane, static_cast<std::size_t>(4 * group));
        }
        double exponentials = 0;
        for (const auto& phase : block.record.phases) {
            for (const auto& warp : phase.warps) exponentials += static_cast<double>(warp.work.exponentials);
        }
        return {
            {"products", rounded(busy / std::max(timeline.end, 1.0))},
            {"beside", rounded(timeline.exponentials_beside_products / std::max(exponentials, 1.0))},
            {"beside_own", rounded(timeline.exponentials_beside_own_products / std::max(exponentials, 1.0))},
            {"lanes", std::move(lanes)}};
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
                if (row >= row_count) break;  // a ragged tile has rows that are nobody's
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

void require_traceable(const Shape& s) {
    // As doubles, since the product of four sizes may be more than an integer holds.
    const double count = double(s.B) * s.H * std::ceil(s.Nq / 64.0) * std::ceil(s.Nk / 64.0);
    if (count > most_traced_tiles) {
        throw BadUsage(
            fmt::format("the problem has {:.0f} tiles of 64 x 64, and lab trace shows at most {}; fewer "
                        "heads, query rows or keys show the same",
                        count, most_traced_tiles));
    }
}

std::vector<simt::BlockTrace::Phase> phases_of(const TracedBlock& block, std::size_t number) {
    const Visit& visit = block.visits[number];
    const auto& record = block.record.phases;
    const auto first = static_cast<std::size_t>(visit.first_phase);
    if (visit.warps == 0) {
        return {record.begin() + static_cast<std::ptrdiff_t>(first),
                record.begin() + static_cast<std::ptrdiff_t>(end_of(block, number))};
    }
    simt::BlockTrace::Phase own{.tiles = {visit.tile}, .warps = {}};
    own.warps.resize(record[first].warps.size());
    for (int warp = visit.first_warp; warp < visit.first_warp + visit.warps; ++warp) {
        const auto w = static_cast<std::size_t>(warp);
        own.warps[w] = record[first].warps[w];
        if (first == 0) continue;
        // Its scores may have been multiplied before the note of it.
        for (const auto what : {&simt::BlockTrace::Warp::read, &simt::BlockTrace::Warp::read_transposed}) {
            for (const auto& [tensor, bytes] : record[first - 1].warps[w].*what)
                (own.warps[w].*what)[tensor].add(bytes);
        }
    }
    return {own};
}

std::vector<Share> shares_of(const simt::BlockTrace::Phase& phase, const simt::Tile& tile, const Case& c) {
    const Shape& s = c.shape;
    const Problem problem = make_problem(c, {});
    const auto row_of = [&](const Element& at) {
        if (at.head / tile.group != tile.head) return -1;
        return at.row * tile.group + at.head % tile.group - tile.query_tile * tile.rows;
    };
    const auto key_of = [&](const Element& at) { return at.row - tile.key_tile * tile.keys; };
    std::vector<Share> shares;
    for (const auto& warp : phase.warps) {
        // The rows of the tile, numbered by `number_of`, of which the warp read anything of that tensor.
        const auto read_of = [&](const auto& read, const char* name, const View& view, int heads, int N,
                                 int rows, auto number_of) {
            std::set<int> numbers;
            const auto found = read.find(name);
            if (found == read.end()) return ranges_of(numbers);
            for (const auto& [first, end] : found->second.pieces()) {
                for (std::size_t byte = first; byte < end; byte += 16) {  // a copy's
                    const Element at = element_at(byte, view, heads, N, s);
                    const int number = number_of(at);
                    if (at.batch == tile.batch && number >= 0 && number < rows) numbers.insert(number);
                }
            }
            return ranges_of(numbers);
        };
        Share& share = shares.emplace_back();
        share.rows = read_of(warp.read, "Q", problem.Q, s.H, s.Nq, tile.rows, row_of);
        share.keys = read_of(warp.read, "K", problem.K, s.Hkv, s.Nk, tile.keys, key_of);
        share.value_keys = read_of(warp.read_transposed, "V", problem.V, s.Hkv, s.Nk, tile.keys, key_of);
        if (!warp.received.empty()) share.received.resize(phase.warps.size());
        for (const auto& [other, bytes] : warp.received)
            share.received[static_cast<std::size_t>(other)] = bytes;
    }
    return shares;
}

Trace record_trace(Device& device, const Stage& stage, const Case& problem, int multiprocessors) {
    Case c = problem;
    c.pass = stage.pass;
    Trace trace{.stage = &stage, .counters = {}, .L = {}, .launches = {}};
    Inputs inputs = make_inputs(c);
#ifdef LADDER_HAS_CPU
    const simt::KeptOptions kept;
    std::mutex mutex;
    simt::options().multiprocessors = multiprocessors;
    // What an atomic returns depends on who came before.
    if (device.ready(stage).counter_bytes) simt::options().workers = 1;
    take_turns(device, stage, c);
    simt::options().on_trace = [&](const simt::Launch& config, simt::BlockTrace&& record) {
        const std::lock_guard lock(mutex);
        if (trace.launches.size() <= record.launch) {
            trace.launches.resize(record.launch + 1);
            TracedLaunch& launch = trace.launches.back();
            launch.grid[0] = config.grid.x;
            launch.grid[1] = config.grid.y;
            launch.grid[2] = config.grid.z;
            launch.threads = static_cast<int>(config.block.count());
            launch.shared_bytes = config.shared_bytes;
            launch.blocks_per_multiprocessor = blocks_per_multiprocessor(stage, config.shared_bytes);
            launch.blocks.resize(config.grid.count());
        }
        TracedBlock& block = trace.launches[record.launch].blocks[record.number];
        block.record = std::move(record);
    };
#endif
    Outputs outputs = run_stage(device, stage, c, inputs);
    trace.counters = device.counters();
    const Verdict verdict = judge(c, Expected(c, inputs), outputs, stage.rounds_large_scores);
    if (!verdict.passed) throw CheckFailed(fmt::format("{} is wrong: {}", stage.folder(), verdict.report));
    trace.L = std::move(stage.pass == Pass::forward ? outputs.L : inputs.L);
    for (TracedLaunch& launch : trace.launches) {
        launch.start = &launch == &trace.launches.front() ? 0 : (&launch - 1)->end;
        lay_out(launch, c.shape.d, multiprocessors);
    }
    return trace;
}

ordered_json to_json(const Case& c, int multiprocessors, const std::vector<Trace>& traces) {
    ordered_json counters = ordered_json::array(), written = ordered_json::array();
    for (const auto& field : simt::counter_fields) counters.push_back(field.name);
    for (const Trace& trace : traces) written.push_back(TraceWriter(trace, c).write());
    return {{"kind", "trace"},
            {"shape", nlohmann::json(c.shape)},
            {"dtype", name(c.dtype)},
            {"causal", c.causal},
            {"input", c.input},
            {"seed", c.seed},
            {"problem", c.description()},
            {"multiprocessors", multiprocessors},
            {"counters", std::move(counters)},
            {"traces", std::move(written)}};
}

std::string explorer_page(const ordered_json& traces) {
    std::string page = read_file(LADDER_SOURCE_DIR "/harness/count/explorer.html");
    std::string data = traces.dump();
    // Inside of <script>, nothing may look like its end.
    for (std::size_t at = 0; (at = data.find("</", at)) != data.npos; at += 3) data.replace(at, 2, "<\\/");
    const std::string marker = "@TRACES@</script>";
    const std::size_t place = page.find(marker);
    if (place == page.npos) throw CheckFailed("harness/count/explorer.html has no place for the traces");
    return page.replace(place, marker.find('<'), data);
}

}  // namespace ladder
