#include "harness/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "harness/count/counting.h"
#include "harness/trace/schedule.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/verdict.h"
#include "stages/errors.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

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

// The mma that both products of a tile take, for a block that computes them without.
std::uint64_t mma_in_place_of(const simt::Tile& tile, int d) {
    return static_cast<std::uint64_t>(tile.rows) * static_cast<std::uint64_t>(tile.keys * d) / 1024;
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
        if (block.length == 0) {
            for (const Visit& visit : block.visits) block.length += mma_in_place_of(visit.tile, d);
        }
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
        const bool has_mma = std::ranges::any_of(block.record.phases, mma_of);
        std::uint64_t start = block.start;
        for (std::size_t v = 0; v < block.visits.size(); ++v) {
            Visit& visit = block.visits[v];
            visit.start = start;
            for (auto phase = static_cast<std::size_t>(visit.first_phase); phase < block.end_of(v); ++phase) {
                visit.length += mma_of(block.record.phases[phase]);
            }
            if (!has_mma) visit.length = mma_in_place_of(visit.tile, d);
            start += visit.length;
        }
    }
}

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
    const Verdict verdict = judge(stage, c, inputs, outputs);
    if (!verdict.passed) throw CheckFailed(fmt::format("{} is wrong: {}", stage.folder(), verdict.report));
    trace.L = std::move(stage.pass == Pass::forward ? outputs.L : inputs.L);
    for (TracedLaunch& launch : trace.launches) {
        launch.start = &launch == &trace.launches.front() ? 0 : (&launch - 1)->end;
        lay_out(launch, c.shape.d, multiprocessors);
    }
    return trace;
}

}  // namespace ladder
