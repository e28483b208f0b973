/// @file
/// What claims are written in: a problem in numbers, what each block of a launch visits, and the sums that
/// formulas are made of. What only one stage and its children say stands in that stage's folder.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "harness/count/work.h"
#include "harness/problem/case.h"

namespace ladder::formulas {

using Count = std::uint64_t;

inline constexpr Count tile = 64;      // Br and Bc
inline constexpr Count in_a_quad = 4;  // lanes that hold the same row of a fragment
inline constexpr Count warps = 4;

/// A problem to count, and the quantities that the formulas are made of.
struct Counted {
    Shape shape;
    bool causal = false;
    std::string input;
    int sm_count = 1;
    Pass pass = Pass::forward;
    Features features = {};
    std::uint64_t seed = 1;

    Count B() const { return shape.B; }
    Count H() const { return shape.H; }
    Count Nq() const { return shape.Nq; }
    Count Nk() const { return shape.Nk; }
    Count d() const { return shape.d; }
    Count heads() const { return B() * H(); }
    Count rows() const { return heads() * Nq(); }
    Count Tr() const { return (Nq() + tile - 1) / tile; }
    Count Tc() const { return (Nk() + tile - 1) / tile; }
    /// (query tile, key tile) pairs, all heads
    Count tiles() const { return heads() * Tr() * Tc(); }
    /// (slice of 16 query rows, key tile) pairs, all heads. A slice without rows is not computed.
    Count slice_tiles() const { return heads() * ((Nq() + 15) / 16) * Tc(); }

    /// Query heads that share a key/value head
    int group() const { return shape.H / shape.Hkv; }
    /// Rows that see no key: only under a mask, and only where queries outnumber keys
    Count rows_without_keys() const { return causal && Nq() > Nk() ? heads() * (Nq() - Nk()) : 0; }
};

// --- Problems -------------------------------------------------------------------------------------------

/// Long and short, ragged and not, grouped heads, both head dimensions, Nq != Nk.
inline constexpr Shape usual_shapes[] = {{1, 2, 2, 256, 256, 64}, {1, 1, 1, 128, 320, 128},
                                         {2, 4, 1, 100, 197, 64}, {1, 2, 1, 65, 63, 128},
                                         {1, 1, 1, 208, 70, 64},  {1, 3, 3, 1, 130, 64}};

/// The same at d = 256, where a warp of these stages owns 16 rows; in the last, a warp begins where the rows
/// end.
inline constexpr Shape wide_shapes[] = {
    {1, 2, 1, 256, 256, 256}, {1, 2, 2, 100, 197, 256}, {1, 1, 1, 160, 37, 256}};

/// Few queries of grouped heads, and keys that are split; with and without a group, few heads and many.
inline constexpr Shape decode_shapes[] = {
    {1, 8, 2, 1, 1024, 64}, {1, 8, 2, 1, 1000, 128}, {1, 4, 1, 3, 640, 128},  {2, 8, 4, 1, 500, 64},
    {1, 2, 2, 1, 700, 64},  {1, 16, 1, 20, 130, 64}, {3, 12, 4, 7, 130, 64},  {1, 4, 2, 130, 70, 64},
    {1, 1, 1, 1, 2600, 64}, {1, 1, 1, 1, 64, 64},    {1, 8, 2, 1, 1024, 256}, {1, 6, 2, 9, 300, 256}};

/// All these problems without a mask, for each kind of input, and then with one.
std::vector<Case> cases_of(std::initializer_list<std::span<const Shape>> shapes,
                           std::initializer_list<const char*> inputs = {"normal"});

/// A shape, and how many rows its documents have: "200,40,272"
struct PackedShape {
    Shape shape;
    const char* documents;
};

/// These problems without a window, with one to the left and with this one, each without a causal mask and
/// with one.
std::vector<Case> packed_in_windows(std::initializer_list<PackedShape> problems, const Window& window);

/// The same problems, of the backward pass.
std::vector<Case> backward(std::vector<Case> cases);

/// The same problems, and then these.
std::vector<Case> joined(std::vector<Case> cases, const std::vector<Case>& more);

// --- What blocks visit ----------------------------------------------------------------------------------

/// What one block visits: its loop over key tiles, in numbers.
struct Visit {
    Count tiles = 0;
    Count masked = 0;   ///< of these, crossed by the diagonal or the end of the keys
    Count keys = 0;     ///< that there are, in these tiles
    Count rows = 0;     ///< of the query tile that there are and that see one of these keys
    Count padded = 0;   ///< the same, and those past the last query that a warp with queries carries along
    Count warps = 0;    ///< that take part, of four that share the tile's rows: those that have a query row
    Count queries = 0;  ///< rows of the query tile that there are
};

/// Keys that a row of the query heads of a group sees, which are the first ones
int seen_by(const Counted& p, int group, int row);

/// A block with key tiles begin to end - 1, of those that it sees, and the query tile whose first row is
/// given. `all_warps`: those without a query row compute like the others.
Visit visit(const Counted& p, int Br, int Bc, int group, int first, int begin, int end, bool all_warps);

/// The blocks of one launch, in the order head, query tile, split. Tiles have Br rows of a query head, or of
/// the `group` query heads that share a key/value head, and Bc keys.
std::vector<Visit> visits(const Counted& p, int Br, int Bc, int group = 1, Count splits = 1,
                          bool all_warps = false);

// --- Sums over blocks -----------------------------------------------------------------------------------

template <class F>
Count sum(const std::vector<Visit>& blocks, F&& f) {
    Count total = 0;
    for (const Visit& block : blocks) total += f(block);
    return total;
}

Count tiles_of(const std::vector<Visit>& blocks);
Count masked_of(const std::vector<Visit>& blocks);
/// (warp, key tile) pairs
Count warp_tiles_of(const std::vector<Visit>& blocks);
/// Warps that have a first tile
Count first_tiles_of(const std::vector<Visit>& blocks);
/// Bytes of K and V that the blocks read
Count KV_bytes_of(const std::vector<Visit>& blocks, const Counted& p);
/// The tiles of each block, as a BlockOrder has them
std::vector<Count> tiles_of_each(const std::vector<Visit>& blocks);

// --- What many stages do alike --------------------------------------------------------------------------

/// Every stage writes 16-bit O and fp32 L once, or 16-bit dQ, dK and dV.
Count output_bytes(const Counted& p);

/// What copies write into shared memory and ldmatrix reads from it.
Count tile_bytes(Count async_copies, Count ldmatrix);

/// The workspace for `splits` parts of the keys: their fp32 O and L.
Count part_bytes(Count splits, const Counted& p);
/// Parts of the keys, given that workspace.
Count splits_of(const Work& work, const Counted& p);

/// As many parts of the keys as fill the multiprocessors once, with so many resident blocks on each.
Count splits_to_fill(const Counted& p, Count unsplit, Count resident);

/// Query rows of a tile whose four warps own two slices of 16 rows each, or one at d = 256, for want of
/// registers; the keys of a tile next to it, and that number of slices.
int wide_Br(const Counted& p);
int wide_Bc(const Counted& p);
Count slices(const Counted& p);

}  // namespace ladder::formulas
