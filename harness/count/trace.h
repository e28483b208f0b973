/// @file
/// What a stage did on a small problem, block by block and phase by phase, laid out in model time: the matter
/// of `lab trace` and of its page, the schedule explorer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/device/device.h"
#include "harness/verify/verify.h"
#include "simt/trace.h"
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

/// Rows and columns of a matrix, as ranges [first, end) that do not touch each other.
using Ranges = std::vector<std::pair<int, int>>;

/// What one warp touched in one phase, as its accesses say; places count from the corner of the tile.
struct Share {
    Ranges rows;                          ///< query rows whose Q it read for S = Q K^T
    Ranges keys;                          ///< keys whose K it read for it: with the rows, its part of S
    Ranges value_keys;                    ///< keys whose V it read for P V
    std::vector<std::uint64_t> received;  ///< bytes of shared memory that it read, by the warp that stored
                                          ///< them; as many as the block has warps, or none

    auto operator<=>(const Share&) const = default;
};

/// The phases of a block's visit. Where warpgroups visit tiles of their own it is one, in which other warps
/// do nothing; it has what these have read in the phase before, too.
std::vector<simt::BlockTrace::Phase> phases_of(const TracedBlock& block, std::size_t visit);

/// The part of each warp in a phase of a visit of `tile`.
std::vector<Share> shares_of(const simt::BlockTrace::Phase& phase, const simt::Tile& tile, const Case& c);

/// A run of a stage.
///
/// Its time is a model, not a measurement: a block is as long as the mma that it counted, and one without mma
/// (softmax, merge) as long as what 16 query rows and 64 keys take, d mma; one that did nothing has no
/// length. A block that uses Hopper's instructions is as long as its timeline (simt/time_model.h). Blocks
/// start in the order of their number at the first free place (harness/count/schedule.h), and kernels follow
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

/// The JSON form of traces of one problem. Times are in units of what 16 query rows and 64 keys take (d mma):
///
///     kind                 "trace"
///     shape, dtype, causal, input, seed
///     problem              all of that in words
///     multiprocessors
///     counters             the names of the counters, in the order of every list of them
///     traces[]             one per stage
///       stage, change      "05_causal_skip" and its one line
///       pass               "forward" or "backward"
///       end                when its last block ends
///       total              its counters
///       L[]                (B, H, Nq) as the kernels wrote it, or were given it; null for -inf
///       work[]             each list of counters that occurs; phases name them by index
///       shares[]           each Share that occurs, without what is empty; phases name them by index.
///                          Ranges are pairs: first, end
///       launches[]
///         grid, threads, shared_bytes, blocks_per_multiprocessor, start, end
///         idle_blocks      that found nothing to do, and are not among the
///         blocks[]
///           number, multiprocessor, place, start, end
///           visits[]       batch, head, group, i, j, masked, start, end, and rows and keys of a whole tile.
///                          If `group` heads alternate in the rows of a tile, head is the number of their
///                          group and row r is query r / group of head `head` * group + r % group
///           phases[]       from one barrier to the next; those of a visit share its time evenly
///             start, end
///             visit        an index into visits; -1 in a block without any
///             barrier      whether it begins behind a barrier of the block
///             work[]       for each warp an index into the trace's work
///             shares[]     for each warp an index into the trace's shares
///             rows[]       warp, first, m[], l[]: the state of rows first, first + 1 ... when the warp had
///                          folded the tile, m in base 2 and null for -inf. A warp that holds the same rows
///                          with the same values as one before it is left out
///           timeline       of a block that uses Hopper's instructions. Its visits have first_warp and warps
///                          besides, and a phase each, of these warps alone; what is of no visit is in
///                          phases as long as the block
///             products     the part of the block's time in which its tensor units have a product
///             beside, beside_own   the parts of its exponentials that it computes while they have one of
///                          another warpgroup, and of the same one
///             lanes[]      name, kind ("loads", "place", "products", "warpgroup"); start[]: when loads are
///                          issued; spans[]: start, end, and what
///                            loads      "copy": loads in flight
///                            place      of shared memory that loads fill: "copy" while they do, "read" from
///                                       the first product that reads it to the last, "full" otherwise; empty
///                                       between spans
///                            products   "flight" from the issue of the first product that reads the same
///                                       place to the end of the last; while the tensor units have one, what
///                                       it computes: "scores" or, by V, "values"; in the backward pass
///                                       "scores", "dP", "dV", "dK" or "dQ"
///                            warpgroup  "exp": exponentials of its first warp
///                          and in those of loads and warpgroups "loads", "mbarrier", "barrier", "products",
///                          "tensor_units": it waits for them
nlohmann::ordered_json to_json(const Case& c, int multiprocessors, const std::vector<Trace>& traces);

/// The schedule explorer: one self-contained HTML page that shows traces in their JSON form.
std::string explorer_page(const nlohmann::ordered_json& traces);

}  // namespace ladder
