/// @file
/// New rows of K and V on their way into a cache, before a stage decodes: what append.cu is given.
#pragma once

#include "stages/stage.h"

namespace ladder {

/// Of a Shape, Nk is the number of new rows of each request. Strides may be any; a row's elements are side by
/// side.
struct Append : Shape {
    View K, V;  ///< (B, Hkv, Nk, d), of dtype
    View K_cache,
        V_cache;      ///< (entries, Hkv, slots, d), of dtype, or e4m3 with scales; an entry may be a page
    int entries = 0;  ///< requests that the cache has room for, or pages
    int slots = 0;    ///< keys of each
    /// (B): the keys that each request has, which its new rows follow.
    const int* lengths = nullptr;
    int* new_lengths = nullptr;  ///< (B): what is written there, lengths + Nk
    /// (B): the entry of each request. Null: request b has entry b.
    const int* batch_index = nullptr;
    /// (B, pages), as in Problem. Null: no pages.
    const int* block_table = nullptr;
    int pages = 0;
    const float *K_scales = nullptr, *V_scales = nullptr;  ///< (B, Hkv), as in Problem
    /// (entries, Hkv, slots) instead, as in Problem: each new row is divided by a scale of its own, which is
    /// written there: its largest magnitude / 448, or 1 for a row of zeros.
    View K_token_scales, V_token_scales;
    /// Rotary embedding: the first 2 pairs columns of a row of K or Q are turned, pair by pair, by the angles
    /// of the row's position. A row of K is where its request puts it. 0 pairs: nothing is.
    int pairs = 0;
    bool interleaved = false;  ///< pair c is columns 2 c and 2 c + 1; otherwise c and c + pairs
    const void *cos = nullptr, *sin = nullptr;  ///< (positions, pairs)
    bool fp32_angles = false;                   ///< these are fp32; otherwise of dtype
    int positions = 0;
    View Q, rotated_Q;    ///< (B, H, Nq, d); Nq is 0 if no row is to be rotated
    bool causal = false;  ///< row i of Q is where row i of K is; otherwise all are where row 0 is
    DType dtype = DType::fp16;
};

/// append.cu's ladder_append().
using RunAppend = void (*)(const Append& a);

}  // namespace ladder
