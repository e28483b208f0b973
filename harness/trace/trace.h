/// @file
/// What a stage did on a small problem, block by block and phase by phase, laid out in model time: the matter
/// of `lab trace` and of its page, the schedule explorer.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/device/device.h"
#include "harness/problem/case.h"
#include "simt/block_trace.h"
#include "stages/stage.h"

namespace ladder {

/// A block's visit of one tile: the phases first_phase, first_phase + 1 ... up to the next visit's. The
/// phases before a tile that have no mma copy it or wait for it, so they are part of its visit. In a block
/// with a timeline warpgroups visit tiles at the same time: a visit is one phase of these warps alone, and
/// lasts from their note of the tile to their next one.
struct Visit {
    simt::Tile tile;
    int first_phase = 0;
    std::uint64_t start = 0;   ///< in the launch, in mma
    std::uint64_t length = 0;  ///< its mma
    int first_warp = 0;
    int warps = 0;  ///< 0: all of the block
};

/// One block, at its place in the model.
struct TracedBlock {
    simt::BlockTrace record;
    std::uint64_t start = 0;  ///< in the launch, in mma
    /// Its mma, or the clocks of its timeline: in one, a multiprocessor has one mma.
    std::uint64_t length = 0;
    int multiprocessor = 0;
    int place = 0;  ///< of the multiprocessor's
    std::vector<Visit> visits;

    /// One past the last phase of a visit.
    std::size_t end_of(std::size_t visit) const {
        return visit + 1 < visits.size() ? static_cast<std::size_t>(visits[visit + 1].first_phase)
                                         : record.phases.size();
    }
};

/// One kernel.
struct TracedLaunch {
    std::uint64_t grid[3] = {1, 1, 1};
    int threads = 0;  ///< of a block
    std::size_t shared_bytes = 0;
    int blocks_per_multiprocessor = 1;
    std::uint64_t start = 0, end = 0;  ///< in mma: it starts when the one before it ends
    std::vector<TracedBlock> blocks;   ///< by their number
};

/// A run of a stage.
///
/// Its time is a model, not a measurement: a block is as long as the mma that it counted, and one without mma
/// (softmax, merge) as long as what 16 query rows and 64 keys take, d mma; one that did nothing has no
/// length. A block that uses Hopper's instructions is as long as its timeline (simt/time_model.h). Blocks
/// start in the order of their number at the first free place (harness/trace/schedule.h), and kernels follow
/// each other.
struct Trace {
    const Stage* stage = nullptr;
    simt::Counters counters;  ///< of the whole run
    std::vector<float> L;     ///< (B, H, Nq), natural logarithm, as the kernels wrote it, or were given it
    std::vector<TracedLaunch> launches;

    std::uint64_t end() const { return launches.empty() ? 0 : launches.back().end; }
};

/// The most tiles of 64 x 64 that a problem may have, over all heads: what a page shows and a browser bears.
inline constexpr int most_traced_tiles = 1024;

/// Throws BadUsage if the problem is larger than a trace may be.
void require_traceable(const Shape& shape);

/// Runs a stage on a CPU back-end as if it had that many multiprocessors, records it and verifies what it
/// wrote. Whether the problem is the forward or the backward pass is the stage's. The record depends on
/// nothing but the arguments. Throws CheckFailed if the stage is wrong, and what run_stage throws.
Trace record_trace(Device& device, const Stage& stage, const Case& c, int multiprocessors);

}  // namespace ladder
