/// @file
/// What one block did, as the CPU back-end records it for Options::on_trace.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "simt/counters.h"
#include "simt/launch.h"

namespace simt {

/// A kernel's note of the state of one query row.
struct RowState {
    float m = 0.0f;                     ///< running maximum, in base 2
    std::array<float, 4> l_of_lanes{};  ///< running sum, in parts; what needs no adding up is in the first
    float l() const { return l_of_lanes[0] + l_of_lanes[1] + l_of_lanes[2] + l_of_lanes[3]; }

    bool operator==(const RowState&) const = default;
};

/// What a block did. Of the order in which threads ran, nothing shows but what their atomics returned.
struct BlockTrace {
    struct Warp {
        /// All but launches, blocks and barriers, which are no warp's own.
        Counters work;
        std::map<int, RowState> rows;  ///< by their number in the matrix that the tile is part of

        bool operator==(const Warp&) const = default;
    };
    /// From one barrier of the block to its next; or, where there is none between two tiles, for each thread
    /// from its note of the one to that of the other.
    struct Phase {
        std::vector<Tile> tiles;  ///< that were noted in it
        std::vector<Warp> warps;
        bool behind_barrier = false;  ///< and not behind a note

        bool operator==(const Phase&) const = default;
    };

    std::uint64_t launch = 0;  ///< since the counters were reset, from 0
    std::uint64_t number = 0;  ///< of the block, x fastest
    std::vector<Phase> phases;

    bool operator==(const BlockTrace&) const = default;
};

}  // namespace simt
