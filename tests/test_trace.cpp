// What traces record, against what was counted, what the formulas say, and what the kernels wrote.
#ifdef LADDER_HAS_CPU

#    include "harness/trace/trace.h"

#    include <algorithm>
#    include <array>
#    include <cmath>
#    include <limits>
#    include <map>
#    include <nlohmann/json.hpp>
#    include <set>
#    include <tuple>

#    include "harness/count/counting.h"
#    include "harness/ladder/ladder.h"
#    include "harness/time/profile.h"
#    include "harness/trace/shares.h"
#    include "harness/trace/trace_json.h"
#    include "simt/cuda.h"
#    include "simt/simt.h"
#    include "tests/any_stage.h"
#    include "tests/catch.h"
#    include "tests/traces.h"

using namespace ladder;
using namespace ladder::test;

namespace {

// Ragged, grouped heads, fewer and more queries than keys, rows without keys, and decoding.
std::vector<Case> cases() {
    return {make_case({1, 2, 1, 100, 150, 64}, false), make_case({2, 1, 1, 140, 70, 64}, true),
            make_case({1, 1, 1, 70, 140, 128}, true), make_case({1, 2, 1, 1, 300, 64}, false)};
}

// Calls f(stage, case, trace) for every stage. Whoever asks first has them recorded.
template <class F>
void for_each_trace(F&& f) {
    static std::map<std::string, Trace> recorded;
    for (const Stage& stage : stages()) {
        for (const Case& c : cases()) {
            const std::string key = stage.folder() + " " + description_of(c);
            INFO(key);
            if (!stage.has_head_dim(c.shape.d)) continue;
            auto found = recorded.find(key);
            if (found == recorded.end()) found = recorded.emplace(key, trace_of(stage, c)).first;
            f(stage, c, found->second);
        }
    }
}

std::vector<const TracedBlock*> blocks_of(const Trace& trace) {
    std::vector<const TracedBlock*> all;
    for (const TracedLaunch& launch : trace.launches) {
        for (const TracedBlock& block : launch.blocks) all.push_back(&block);
    }
    return all;
}

std::vector<Visit> visits_of(const TracedLaunch& launch) {
    std::vector<Visit> all;
    for (const TracedBlock& block : launch.blocks)
        all.insert(all.end(), block.visits.begin(), block.visits.end());
    return all;
}

std::vector<Visit> visits_of(const Trace& trace) {
    std::vector<Visit> all;
    for (const TracedLaunch& launch : trace.launches) {
        const auto own = visits_of(launch);
        all.insert(all.end(), own.begin(), own.end());
    }
    return all;
}

// All phases of a block; where warpgroups visit tiles of their own, one for each visit.
std::vector<simt::BlockTrace::Phase> phases_of(const TracedBlock& block) {
    if (block.record.timeline.empty()) return block.record.phases;
    std::vector<simt::BlockTrace::Phase> all;
    for (std::size_t v = 0; v < block.visits.size(); ++v) all.push_back(phases_of(block, v).front());
    return all;
}

int Br(const Stage& stage, int d) {
    const auto dim = std::find(stage.head_dims.begin(), stage.head_dims.end(), d) - stage.head_dims.begin();
    return stage.tilings.at(static_cast<std::size_t>(dim)).Br;
}

// The key tiles that stages visit which skip some, and of these the masked ones, by asking every row and key.
// Warpgroups with tiles of their own go on as long as any row of their block sees a key, and see one tile at
// least, unless requests have lengths; with a diagonal of their own, as long as their own rows do.
struct Tiles {
    std::uint64_t seen = 0, masked = 0;
    int query_rows;  ///< of whole blocks

    Tiles(const Stage& stage, const Case& c, const simt::Tile& size) {
        const Shape& s = c.shape;
        const int rows = s.Nq * size.group;
        const bool by_warpgroup = size.threads > 0;
        const int together = by_warpgroup && !follows(stage, "own_diagonal") ? Br(stage, s.d) : size.rows;
        query_rows = (rows + together - 1) / together * together;
        for (int block_row = 0; block_row < query_rows; block_row += together) {
            for (int first_key = 0; first_key < s.Nk; first_key += size.keys) {
                bool any = by_warpgroup && first_key == 0 && !takes(stage, Feature::lengths);
                std::uint64_t not_all = 0;
                for (int first_row = block_row; first_row < block_row + together; first_row += size.rows) {
                    bool all = true;
                    for (int row = first_row; row < first_row + size.rows; ++row) {
                        for (int key = first_key; key < first_key + size.keys; ++key) {
                            const bool visible =
                                key < s.Nk && (!c.causal || key <= row / size.group + s.Nk - s.Nq);
                            any |= visible;
                            all &= visible;
                        }
                    }
                    not_all += !all;
                }
                seen += any ? static_cast<std::uint64_t>(together / size.rows) : 0;
                masked += any ? not_all : 0;
            }
        }
        const auto grids = static_cast<std::uint64_t>(s.B * s.H / size.group);
        seen *= grids;
        masked *= grids;
    }
};

// log2 of the sum of 2^x
double log2_sum(const std::vector<double>& xs) {
    const double most = *std::max_element(xs.begin(), xs.end());
    if (most == -std::numeric_limits<double>::infinity()) return most;
    double sum = 0;
    for (const double x : xs) sum += std::exp2(x - most);
    return most + std::log2(sum);
}

double log2_sum_of(const simt::RowState& state) {
    return state.l() == 0 ? -std::numeric_limits<double>::infinity()
                          : double(state.m) + std::log2(double(state.l()));
}

}  // namespace

TEST_CASE("trace: warps, barriers and blocks add up to what was counted", "[trace][ladder]") {
    for_each_trace([](const Stage&, const Case&, const Trace& trace) {
        simt::Counters sum{.launches = trace.launches.size(),
                           .early_launches = trace.counters.early_launches,
                           .cooperative_launches = trace.counters.cooperative_launches};
        for (const TracedLaunch& launch : trace.launches) {
            sum.blocks += launch.blocks.size();
            for (const TracedBlock& block : launch.blocks) {
                sum += block.record.timeline.counted();
                for (const auto& phase : block.record.phases) {
                    sum.barriers += phase.behind_barrier;
                    for (const auto& warp : phase.warps) sum += warp.work;
                }
            }
        }
        CHECK(sum == trace.counters);
    });
}

TEST_CASE("trace: visits are the tiles that were counted, each once, and those of the formula",
          "[trace][ladder]") {
    for_each_trace([](const Stage& stage, const Case& c, const Trace& trace) {
        const auto visits = visits_of(trace);
        REQUIRE(visits.size() == trace.counters.tiles);
        CHECK(static_cast<std::uint64_t>(std::count_if(visits.begin(), visits.end(), [](const Visit& v) {
                  return v.tile.masked;
              })) == trace.counters.masked_tiles);
        if (stage.pass == Pass::backward || takes_on_hopper(stage, Feature::tiles)) return;  // below

        const simt::Tile size = visits.front().tile;
        const bool packed = follows(stage, "packed_gqa") || follows(stage, "packed_rows");
        CHECK(size.group == (packed ? c.shape.H / c.shape.Hkv : 1));
        Case all = c;
        const bool skips = follows(stage, "causal_skip");
        all.causal = c.causal && skips;
        const Tiles expected(stage, all, size);
        std::set<std::tuple<int, int, int, int>> places;
        bool in_range = true;
        for (const auto& visit : visits) {
            const simt::Tile& t = visit.tile;
            places.emplace(t.batch, t.head, t.query_tile, t.key_tile);
            in_range &= t.batch >= 0 && t.batch < c.shape.B && t.head >= 0 &&
                        t.head < c.shape.H / size.group && t.query_tile >= 0 &&
                        t.query_tile * size.rows < expected.query_rows && t.key_tile >= 0 &&
                        t.key_tile * size.keys < c.shape.Nk &&
                        std::tie(t.rows, t.keys, t.group) == std::tie(size.rows, size.keys, size.group);
        }
        CHECK(in_range);
        CHECK(places.size() == visits.size());
        CHECK(visits.size() == expected.seen);
        // Those of column bounds are tested for both warpgroups of a block if one of them must.
        const std::uint64_t masked = trace.counters.masked_tiles, least = expected.masked;
        const bool more = takes_on_hopper(stage, Feature::columns) && masked > least;
        if (skips) CHECK((more || masked == least));
    });
}

TEST_CASE("trace: kernels of gradients visit each tile that sees a key, and mask where not all is seen",
          "[trace][ladder]") {
    for_each_trace([](const Stage& stage, const Case& c, const Trace& trace) {
        if (stage.pass != Pass::backward) return;
        const Shape& s = c.shape;
        std::size_t kernels = 0;
        for (const TracedLaunch& launch : trace.launches) {
            std::map<std::array<int, 4>, bool> masked;  // by batch entry, head, first row and key
            int rows = 0, keys = 0;
            bool once = true;
            for (const Visit& visit : visits_of(launch)) {
                const simt::Tile& t = visit.tile;
                rows = t.rows, keys = t.keys;
                const std::array<int, 4> place{t.batch, t.head, t.query_tile * rows, t.key_tile * keys};
                once &= masked.try_emplace(place, t.masked).second;
            }
            if (masked.empty()) continue;
            ++kernels;
            CHECK(once);
            bool all_seen = true, all_masked = true;
            for (int batch = 0; batch < s.B; ++batch) {
                for (int head = 0; head < s.H; ++head) {
                    for (int row = 0; row < s.Nq; row += rows) {
                        for (int key = 0; key < s.Nk; key += keys) {
                            // The last row of the tile sees its first key; the first row, its last.
                            const auto limit = [&](int i) { return c.causal ? i + s.Nk - s.Nq : s.Nk - 1; };
                            const bool any = key <= limit(std::min(row + rows, s.Nq) - 1);
                            const bool all = key + keys <= s.Nk && key + keys - 1 <= limit(row);
                            const auto visit = masked.find({batch, head, row, key});
                            all_seen &= !any || visit != masked.end();
                            all_masked &= all || visit == masked.end() || visit->second;
                        }
                    }
                }
            }
            CHECK(all_seen);
            CHECK(all_masked);
        }
        CHECK(kernels == (stage.name == "recompute" ? 2 : 1));  // by query tiles and by key tiles
    });
}

TEST_CASE("trace: the shares of the warps are each tile's scores, each once", "[trace][ladder]") {
    for_each_trace([](const Stage& stage, const Case& c, const Trace& trace) {
        // A trace does not know the rows of rounded copies; lists are multiplied in pairs; 07 has no mma.
        if (stage.products != Products::of_16_bits || takes_on_hopper(stage, Feature::tiles)) return;
        if (trace.counters.mma + trace.counters.wgmma == 0) return;
        // 00 multiplies by V in another kernel; of gradients no product is P V
        const bool multiplies_elsewhere = stage.parent < 0 || stage.pass == Pass::backward;
        bool rows_and_keys_once = true, all_values = true;
        for (const TracedBlock* traced : blocks_of(trace)) {
            const TracedBlock& block = *traced;
            for (std::size_t v = 0; v < block.visits.size(); ++v) {
                const simt::Tile& tile = block.visits[v].tile;
                const int rows = std::min(tile.rows, c.shape.Nq * tile.group - tile.query_tile * tile.rows);
                const int keys = std::min(tile.keys, c.shape.Nk - tile.key_tile * tile.keys);
                std::vector<int> scores(static_cast<std::size_t>(tile.rows * tile.keys));
                std::set<int> values;
                for (const auto& phase : phases_of(block, v)) {
                    const auto shares = shares_of(phase, tile, c);
                    for (const Share& share : shares) {
                        for (const auto& [row, row_end] : share.rows) {
                            for (const auto& [key, key_end] : share.keys) {
                                for (int i = row; i < row_end; ++i) {
                                    for (int j = key; j < key_end; ++j)
                                        ++scores[static_cast<std::size_t>(i * tile.keys + j)];
                                }
                            }
                        }
                        for (const auto& [key, key_end] : share.value_keys) {
                            for (int j = key; j < key_end; ++j) values.insert(j);
                        }
                    }
                }
                int n = 0;
                for (const int times : scores) {
                    rows_and_keys_once &= times == (n / tile.keys < rows && n % tile.keys < keys ? 1 : 0);
                    ++n;
                }
                all_values &= multiplies_elsewhere || values.size() == static_cast<std::size_t>(keys);
            }
        }
        CHECK(rows_and_keys_once);
        CHECK(all_values);
    });
}

TEST_CASE("trace: sliced keys are exchanged between warps, and split-Q exchanges nothing", "[trace]") {
    const Case c = make_case({1, 1, 1, 64, 128, 64}, false);
    for (const bool slices : {true, false}) {
        INFO(slices);
        const Trace trace = trace_of(named(slices ? "sequence_parallel" : "split_q"), c);
        const TracedBlock& block = trace.launches.front().blocks.front();
        std::vector<std::set<Ranges>> rows(4), keys(4);
        std::uint64_t received = 0, from_others = 0;
        for (const auto& phase : block.record.phases) {
            const auto shares = shares_of(phase, block.visits.front().tile, c);
            for (std::size_t w = 0; w < shares.size(); ++w) {
                if (!shares[w].rows.empty()) rows[w].insert(shares[w].rows);
                if (!shares[w].keys.empty()) keys[w].insert(shares[w].keys);
                for (std::size_t other = 0; other < shares[w].received.size(); ++other) {
                    received += shares[w].received[other];
                    from_others += other == w ? 0 : shares[w].received[other];
                }
            }
        }
        for (int w = 0; w < 4; ++w) {
            const Ranges own{{16 * w, 16 * w + 16}}, all{{0, 64}};
            const auto& [mine, sliced] =
                std::tie(rows[static_cast<std::size_t>(w)], keys[static_cast<std::size_t>(w)]);
            CHECK(mine.size() == (slices ? 4u : 1u));
            CHECK(sliced == std::set<Ranges>{slices ? own : all});
            if (!slices) CHECK(mine == std::set<Ranges>{own});
        }
        // Of each of 2 tiles, for each of 64 rows and by each of 4 warps: a maximum and a sum of each warp,
        // by each of the 4 lanes that hold the row; and a quarter of the 64 sums of each warp's P V.
        const std::uint64_t all = 2 * 64 * 4 * (4 * 4 * (4 + 4) + 4 * 16 * 4);
        CHECK(received == (slices ? all : 0));
        CHECK(from_others == (slices ? all / 4 * 3 : 0));
        if (!slices) continue;
        const auto shares = shares_of(block.record.phases.front(), block.visits.front().tile, c);
        CHECK(shares.front() == Share{});  // K and Q are being copied
    }
}

TEST_CASE("trace: blocks, warps and rows are in range, and no place has two blocks at once",
          "[trace][ladder]") {
    for_each_trace([](const Stage&, const Case& c, const Trace& trace) {
        std::uint64_t before = 0;
        for (const TracedLaunch& launch : trace.launches) {
            CHECK(launch.start == before);
            CHECK(launch.blocks.size() == launch.grid[0] * launch.grid[1] * launch.grid[2]);
            std::map<std::pair<int, int>, std::uint64_t> free_at;
            std::uint64_t last = launch.start;
            bool rows_in_their_tile = true;
            for (std::size_t k = 0; k < launch.blocks.size(); ++k) {
                const TracedBlock& block = launch.blocks[k];
                CHECK(block.record.number == k);
                CHECK((block.multiprocessor >= 0 && block.multiprocessor < multiprocessors));
                CHECK((block.place >= 0 && block.place < launch.blocks_per_multiprocessor));
                auto [place, first] = free_at.try_emplace({block.multiprocessor, block.place}, launch.start);
                CHECK(block.start == place->second);
                place->second = block.start + block.length;
                last = std::max(last, place->second);

                // Visits follow each other, and share all of the block's time and phases.
                std::uint64_t now = block.start;
                int first_phase = 0;
                for (const Visit& visit : block.visits) {
                    if (visit.warps > 0) {  // or each warpgroup's do, each a phase
                        CHECK(visit.start >= now);
                        CHECK(visit.start + visit.length <= block.start + block.length);
                        now = visit.start;
                        continue;
                    }
                    CHECK(visit.start == now);
                    now += visit.length;
                    CHECK(visit.length > 0);
                    CHECK((&visit == &block.visits.front() ? visit.first_phase == 0
                                                           : visit.first_phase > first_phase));
                    first_phase = visit.first_phase;
                }
                if (!block.visits.empty() && block.visits.front().warps == 0)
                    CHECK(now == block.start + block.length);

                int tile_of_rows = -1, rows_of_tile = 1;
                for (const auto& phase : phases_of(block)) {
                    CHECK(static_cast<int>(phase.warps.size()) == launch.threads / 32);
                    for (const simt::Tile& tile : phase.tiles) {
                        tile_of_rows = tile.query_tile;
                        rows_of_tile = tile.rows;
                    }
                    for (const auto& warp : phase.warps) {
                        for (const auto& [row, state] : warp.rows) {
                            const int group = block.visits.empty() ? 1 : block.visits.front().tile.group;
                            if (row >= c.shape.Nq * group) continue;  // of a ragged tile, nobody's
                            rows_in_their_tile &= tile_of_rows == -1 || row / rows_of_tile == tile_of_rows;
                        }
                    }
                }
            }
            CHECK(rows_in_their_tile);
            CHECK(launch.end == last);
            before = launch.end;
        }
    });
}

TEST_CASE("trace: m never falls, and the last m + log l of a row are its L", "[trace][ladder]") {
    for_each_trace([](const Stage& stage, const Case& c, const Trace& trace) {
        if (stage.parent < 0 || stage.pass == Pass::backward) return;  // they keep no running state
        // By batch entry, head (or group of them) and row: what each block has at its end.
        std::map<std::tuple<int, int, int>, std::vector<double>> ends;
        int group = 1;
        bool fell = false;
        // 70 rounds Q, K and V in kernels that come before it, and 06 merges in one that comes after.
        const auto launch = std::ranges::find_if(trace.launches, [](const TracedLaunch& each) {
            return std::ranges::any_of(each.blocks,
                                       [](const TracedBlock& block) { return !block.visits.empty(); });
        });
        REQUIRE(launch != trace.launches.end());
        for (const TracedBlock& block : launch->blocks) {
            if (block.visits.empty()) continue;
            simt::Tile tile = block.visits.front().tile;
            group = tile.group;
            // From 25 on a block can have query tiles of several heads, one after another.
            std::map<std::tuple<int, int, std::size_t, int>, float> m_before;
            std::map<std::tuple<int, int, int>, double> end;
            for (const auto& phase : phases_of(block)) {
                if (!phase.tiles.empty()) tile = phase.tiles.front();
                std::map<int, double> end_of_phase;  // of the first warp that has the row
                for (std::size_t w = 0; w < phase.warps.size(); ++w) {
                    for (const auto& [row, state] : phase.warps[w].rows) {
                        fell |= !(state.l() >= 0);
                        if (state.l() > 0) {  // a row without keys so far has no m that says anything
                            const auto [m, first] =
                                m_before.try_emplace({tile.batch, tile.head, w, row}, state.m);
                            fell |= !(state.m >= m->second);
                            m->second = state.m;
                        }
                        end_of_phase.try_emplace(row, log2_sum_of(state));
                    }
                }
                for (const auto& [row, value] : end_of_phase) end[{tile.batch, tile.head, row}] = value;
            }
            for (const auto& [where, value] : end) {
                if (std::get<2>(where) < c.shape.Nq * group) ends[where].push_back(value);
            }
        }
        CHECK_FALSE(fell);
        std::size_t compared = 0;
        for (const auto& [where, values] : ends) {
            const auto& [batch, head, row] = where;
            const int h = head * group + row % group, i = row / group;
            const double L = trace.L[static_cast<std::size_t>((batch * c.shape.H + h) * c.shape.Nq + i)];
            const double expected = log2_sum(values) * std::log(2.0);
            const bool same =
                std::isinf(L) ? expected == L : std::abs(expected - L) <= 1e-5 * std::max(1.0, std::abs(L));
            INFO("batch entry " << batch << ", head " << h << ", row " << i << ": " << expected << ", " << L);
            if (!same) CHECK(expected == L);
            ++compared;
        }
        // Where tiles are skipped, blocks whose rows see no key start none and so have no state.
        if (!c.causal || !follows(stage, "causal_skip") || c.shape.Nq <= c.shape.Nk) {
            CHECK(compared == static_cast<std::size_t>(c.shape.B * c.shape.H * c.shape.Nq));
        }
    });
}

TEST_CASE("trace: warps that share rows merge to what the first of them has at the end", "[trace][ladder]") {
    const Case c = make_case({1, 4, 2, 1, 520, 64}, false);
    const Trace trace = trace_of(named("keys_per_warp"), c);
    for (const TracedBlock& block : trace.launches.front().blocks) {
        std::map<int, std::map<std::size_t, double>> parts;
        double merged = 0;
        for (const auto& phase : block.record.phases) {
            const bool alone = phase.warps[1].rows.empty();
            for (std::size_t w = 0; w < phase.warps.size(); ++w) {
                for (const auto& [row, state] : phase.warps[w].rows) {
                    if (row == 0 && alone) merged = log2_sum_of(state);
                    if (row == 0 && !alone) parts[row][w] = log2_sum_of(state);
                }
            }
        }
        std::vector<double> found;
        for (const auto& [warp, part] : parts[0]) found.push_back(part);
        REQUIRE(found.size() == 4);
        CHECK(std::abs(log2_sum(found) - merged) < 1e-4);
    }
}

TEST_CASE("trace: the same whatever the order of threads and the number of workers", "[trace][ladder]") {
    const simt::KeptOptions kept;
    for (const Stage* stage : stages_of_all_kinds()) {
        const Case c = make_case({1, 2, 1, 130, 200, 64}, true);
        INFO(stage->folder());
        const auto written = [&] { return to_json(c, multiprocessors, {trace_of(*stage, c)}).dump(); };
        simt::options().workers = 1;
        simt::options().order = simt::Order::forward;
        const Trace first = trace_of(*stage, c);
        const std::string json = written();
        for (const auto order : {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled}) {
            simt::options().workers = 3;
            simt::options().order = order;
            const Trace again = trace_of(*stage, c);
            REQUIRE(again.launches.size() == first.launches.size());
            for (std::size_t k = 0; k < first.launches.size(); ++k) {
                CHECK(std::ranges::equal(first.launches[k].blocks, again.launches[k].blocks, {},
                                         &TracedBlock::record, &TracedBlock::record));
            }
            CHECK(written() == json);
        }
        CHECK(simt::options().on_trace == nullptr);  // it was put back
    }
}

#endif
