/// @file
/// What stages with products of 8 bits do before they multiply, and how much they copy.
#pragma once

#include "../35_tile_scheduler/claims.h"

namespace ladder::formulas {

inline constexpr int fp8_rows = 128;  // that a block quantizes

/// The warpgroups and the tiles of keys of 70, 75 and 79
inline Count fp8_warpgroups(const Counted& p) {
    return p.d() <= 128 ? 3 : 2;
}
inline int fp8_Bc(const Counted& p) {
    return p.d() == 128 ? 64 : 128;
}
/// With a sum for each key tile: two at d = 128, where its registers leave no room for a third one
inline Count promoting_warpgroups(const Counted& p) {
    return p.d() == 64 ? 3 : 2;
}
inline int promoting_Bc(const Counted& p) {
    return p.d() == 64 ? 64 : 128;
}

/// Bytes of a row of Q or K in shared memory
inline Count fp8_row(const Counted& p) {
    return std::max<Count>(p.d(), 128);
}

/// Heads of Q, and of K and V
inline Count fp8_heads(const Counted& p) {
    return p.heads() + 2 * p.B() * p.shape.Hkv;
}

/// Blocks for each head of the kernels that quantize, also where it has fewer rows
inline Count fp8_blocks(const Counted& p) {
    return (std::max(p.Nq(), p.Nk()) + fp8_rows - 1) / fp8_rows;
}

/// Of these, the ones that have rows
inline Count fp8_blocks_with_rows(const Counted& p) {
    const auto blocks = [](Count N) { return (N + fp8_rows - 1) / fp8_rows; };
    return p.heads() * blocks(p.Nq()) + 2 * p.B() * p.shape.Hkv * blocks(p.Nk());
}

/// Q and K as they are, V by whole blocks of keys, a byte for each element
inline Count fp8_bytes(const Counted& p) {
    const Count KV_heads = p.B() * p.shape.Hkv, V_rows = (p.Nk() + fp8_rows - 1) / fp8_rows * fp8_rows;
    return p.d() * (p.heads() * p.Nq() + KV_heads * (p.Nk() + V_rows));
}

/// What bulk loads bring into shared memory: rows of Bc keys of V are padded to 128 bytes
inline Count fp8_loaded_bytes(const std::vector<QueryTile>& tiles, Count groups, int Bc, const Counted& p) {
    return tiles.size() * 64 * groups * fp8_row(p) + copied_tiles(tiles) * (Bc * fp8_row(p) + p.d() * 128);
}

}  // namespace ladder::formulas
