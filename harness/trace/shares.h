/// @file
/// What each warp of a traced block read of the tile that the block visits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "harness/trace/trace.h"

namespace ladder {

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

}  // namespace ladder
