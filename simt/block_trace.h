/// @file
/// What one block did, as the CPU back-end records it for Options::on_trace.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
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

/// Some of the bytes of an allocation: pieces that do not touch, each from its first byte to past its last.
class ByteSet {
  public:
    void add(std::size_t first, std::size_t bytes) {
        std::size_t end = first + bytes;
        auto next = pieces_.upper_bound(first);
        if (next != pieces_.begin() && std::prev(next)->second >= first) --next;
        while (next != pieces_.end() && next->first <= end) {
            first = std::min(first, next->first);
            end = std::max(end, next->second);
            next = pieces_.erase(next);
        }
        pieces_.emplace_hint(next, first, end);
    }
    void add(const ByteSet& others) {
        for (const auto& [first, end] : others.pieces_) add(first, end - first);
    }
    const std::map<std::size_t, std::size_t>& pieces() const { return pieces_; }

    bool operator==(const ByteSet&) const = default;

  private:
    std::map<std::size_t, std::size_t> pieces_;
};

/// When a block that uses Hopper's instructions did what, in the model of simt/time_model.h. Times are clocks
/// from the block's start. Empty for other blocks.
struct Timeline {
    struct Span {
        double start = 0, end = 0;
        bool operator==(const Span&) const = default;
    };
    enum class For : std::uint8_t {
        loads,        ///< at an mbarrier that bulk loads signal
        mbarrier,     ///< at another one
        barrier,      ///< a named one, or the block's
        products,     ///< of its own warpgroup, to be over
        tensor_units  ///< to issue a product
    };
    struct Wait : Span {
        For what = For::mbarrier;
        bool operator==(const Wait&) const = default;
    };
    struct Warp {
        std::vector<Span> exponentials;
        std::vector<Wait> waits;
        std::vector<std::pair<double, Tile>> tiles;  ///< as it notes them, and when
        bool operator==(const Warp&) const = default;
    };
    struct Load {
        int warp = 0;
        int place = 0;
        double issued = 0, landed = 0;
        bool operator==(const Load&) const = default;
    };
    /// A place of shared memory that bulk loads fill, again and again: all that signals one mbarrier.
    struct Place {
        struct Fill {
            double issued = 0, landed = 0;         ///< from its first load's issue to when its last has come
            double first_read = 0, last_read = 0;  ///< by products; both 0 if none reads it
            double freed = 0;  ///< when the thread that filled it anew was told that it may; 0: none did
            bool operator==(const Fill&) const = default;
        };
        std::vector<std::string> tensors;  ///< that it was filled from: "K"
        std::vector<Fill> fills;
        bool operator==(const Place&) const = default;
    };
    struct Product {
        int warpgroup = 0;
        int columns = 0;
        struct Operand {
            int place = -1;      ///< -1: registers, or memory that no bulk load filled
            std::string tensor;  ///< that was loaded there
            bool operator==(const Operand&) const = default;
        };
        Operand A, B;
        double issued = 0;              ///< by the last of the four warps
        double started = 0, ended = 0;  ///< on the tensor units
        bool operator==(const Product&) const = default;
    };

    std::vector<Warp> warps;
    std::vector<Load> loads;  ///< in the order of their issue
    std::vector<Place> places;
    std::vector<Product> products;  ///< in the order in which they start
    /// Exponentials computed while the tensor units had a product of another warpgroup, or of the same one.
    double exponentials_during_products = 0, exponentials_during_own_products = 0;
    /// Waits at mbarriers and at named barriers, once per thread, that were not over at once.
    std::uint64_t mbarrier_stalls = 0, named_stalls = 0;
    double end = 0;

    bool empty() const { return warps.empty(); }
    /// The counters that it gives.
    Counters counted() const {
        Counters counters;
        counters.exponentials_during_products = std::llround(exponentials_during_products);
        counters.exponentials_during_own_products = std::llround(exponentials_during_own_products);
        counters.mbarrier_stalls = mbarrier_stalls;
        counters.named_stalls = named_stalls;
        return counters;
    }
    bool operator==(const Timeline&) const = default;
};

/// What a block did. Of the order in which threads ran, nothing shows but what their atomics returned.
struct BlockTrace {
    struct Warp {
        /// All but launches, blocks and barriers, which are no warp's own.
        Counters work;
        std::map<int, RowState> rows;  ///< by their number in the matrix that the tile is part of
        /// By the allocation's name, global memory that ldmatrix and products read by way of a copy: operands
        /// whose rows are summed over, such as Q and K of Q K^T, or whose columns are, such as V of P V.
        std::map<std::string, ByteSet> read, read_transposed;
        /// Bytes of shared memory that it, its products or ldmatrix read, by the warp that stored them.
        std::map<int, std::uint64_t> received;

        bool operator==(const Warp&) const = default;
    };
    /// From one barrier of the block to its next; or, where there is none between two tiles, for each thread
    /// from its note of the one to that of the other.
    struct Phase {
        std::vector<Tile> tiles;  ///< that were noted in it: several if warpgroups note their own
        std::vector<Warp> warps;
        bool behind_barrier = false;  ///< and not after a note

        bool operator==(const Phase&) const = default;
    };

    std::uint64_t launch = 0;  ///< since the counters were reset, from 0
    std::uint64_t number = 0;  ///< of the block, x fastest
    std::vector<Phase> phases;
    Timeline timeline;

    bool operator==(const BlockTrace&) const = default;
};

}  // namespace simt
