/// @file
/// What 43 and its children count alike: a block has a key tile, and adds what its keys give to dQ.
#pragma once

#include "../41_recompute/claims.h"

namespace ladder::formulas {

/// How a block shares the scores of a tile among its warps.
struct KeyTiles {
    Count slices;  ///< of 16 keys, of a warp
    Count warps;   ///< of a block
    Count
        gradients;  ///< that a warp sums up: dK and dV, or one of them, and then two warps have the same keys
    Count parts;  ///< blocks that share the columns of the gradients of a key tile, each with all of S and dP
    Count Br;     ///< query rows
    Count steps;  ///< in which a warp takes them

    Count Bc() const { return 16 * slices * warps * gradients / 2; }
    Count scores() const { return Br * Bc(); }
    /// By query tiles: the pairs are the same.
    std::vector<Visit> visits_of(const Counted& p) const {
        return visits(p, static_cast<int>(Br), static_cast<int>(Bc()));
    }
    /// (query tile, key tile) pairs, as often as they are visited
    Count visited(const Counted& p) const { return parts * tiles_of(visits_of(p)); }
};

/// Blocks of the kernel that computes gradients
inline Count key_blocks(const Counted& p, const KeyTiles& of) {
    return p.B() * Count(p.shape.Hkv) * up_to(p.Nk(), of.Bc()) * of.parts;
}

/// All but what the warps of a block wait for, and how they hand P and dS on.
inline void claim_key_tiles(Claims& c, const KeyTiles& of) {
    const Counted& p = c.p;
    const auto blocks = of.visits_of(p);
    const Count tiles = tiles_of(blocks), visited = of.parts * tiles, padded = padded_rows(p, of.Br);
    // dQ, L and D in fp32, for whole tiles
    c.is("workspace_bytes", p.heads() * p.Tr() * tile * (p.d() + 2) * 4);
    c.is("launches", 3);
    c.is("tiles", visited);
    c.is("masked_tiles", of.parts * masked_of(blocks));
    c.is("mma", tiles * (2 * of.parts + 3) * of.scores() * p.d() / (16 * 8 * 16));
    c.is("exponentials", visited * of.scores());
    // dQ = 0, L and D, and then what every stage writes
    c.is("global_store_bytes", padded * (p.d() + 2) * 4 + output_bytes(p));
    // For S and dP a warp reads its keys once for each step, and the query rows once for all its keys; for dV
    // and dK the query rows once more. For dQ it has 32 rows and 32 columns at a time.
    const Count fragments = p.d() / 16;
    const Count ldmatrix =
        visited * of.warps * of.gradients * fragments * (of.steps * of.slices + of.Br / 16) +
        tiles * (of.warps * of.gradients * of.Br / 16 * fragments + of.Br / 32 * p.d() / 32 * of.Bc() / 4);
    const Count copies =
        key_blocks(p, of) * 2 * of.Bc() * p.d() / 8 + visited * (2 * of.Br * p.d() / 8 + of.Br / 2);
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    c.is("shuffles", prepare_shuffles(p, of.Br));
}

/// What blocks load but for the sums of dQ: dO, O and L once; K and V once per block; Q, dO, L and D per
/// tile, the last two with the rows past the last query.
inline Count loads_of_tiles(const Counted& p, const KeyTiles& of) {
    const Count rows_visited = of.parts * sum(of.visits_of(p), [](auto& v) { return v.tiles * v.queries; });
    return p.rows() * (2 * p.d() * 2 + 4) + of.parts * 2 * p.B() * Count(p.shape.Hkv) * p.Nk() * p.d() * 2 +
           rows_visited * 2 * p.d() * 2 + of.visited(p) * of.Br * 2 * 4;
}

/// Elements of dQ that the blocks add to: each has all rows of a tile, and its own columns.
inline Count added_elements(const Counted& p, const KeyTiles& of) {
    return tiles_of(of.visits_of(p)) * of.Br * p.d();
}

/// Sums of dQ by fragments of 16 x 8: 16-byte atomics, and a last kernel that reads 16 rows at a time.
inline void claim_fragments(Claims& c, const KeyTiles& of) {
    const Counted& p = c.p;
    c.is("atomics", added_elements(p, of) / 4);
    c.is("blocks", prepare_blocks(p, of.Br) + key_blocks(p, of) +
                       p.heads() * up_to(up_to(p.Nq(), of.Br) * of.Br * p.d() / 16, 256));
    c.is("global_load_bytes", loads_of_tiles(p, of) + p.heads() * up_to(p.Nq(), 16) * 16 * p.d() * 4);
}

/// The tiles of 43
inline KeyTiles whole_gradients(const Counted& p) {
    return {.slices = 1,
            .warps = p.d() == 256 ? 2u : 4u,
            .gradients = 2,
            .parts = p.d() == 256 ? 2u : 1u,
            .Br = p.d() == 256 ? 32u : 64u,
            .steps = 1};
}

}  // namespace ladder::formulas
