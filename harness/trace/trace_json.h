/// @file
/// Traces in their JSON form: what `lab trace --json` writes and the schedule explorer shows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/problem/case.h"
#include "harness/trace/trace.h"

namespace ladder {

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
///             barrier      whether it begins after a barrier of the block
///             work[]       for each warp an index into the trace's work
///             shares[]     for each warp an index into the trace's shares
///             rows[]       warp, first, m[], l[]: the state of rows first, first + 1 ... when the warp had
///                          folded the tile, m in base 2 and null for -inf. A warp that holds the same rows
///                          with the same values as one before it is left out
///           timeline       of a block that uses Hopper's instructions. Its visits have first_warp and warps
///                          besides, and a phase each, of these warps alone; what is of no visit is in
///                          phases as long as the block
///             products     the part of the block's time in which its tensor units have a product
///             during, during_own   the parts of its exponentials that it computes while they have one of
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

/// The `timeline` of that, of a block that has one; `d` is the unit of its times.
nlohmann::ordered_json timeline_json(const TracedBlock& block, Pass pass, int d);

/// A time or a part of one with as many digits as a drawing has.
double rounded(double value);

}  // namespace ladder
