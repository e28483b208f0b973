// What the workspace of stages with V transposed holds.
// Included by kernels of the part inside of their namespace.

/// What the workspace holds. `scales` and `largest` are of the heads of Q, then of K, then of V.
struct Quantized {
    std::uint8_t *Q, *K;  // (B, H, Nq, d), (B, Hkv, Nk, d)
    std::uint8_t* V;      // (B, Hkv, Tc, d, Bc): the tiles of keys, transposed, up to padded_keys
    float* scales;        // (heads): an element is its 8-bit number times its scale
    float* largest;       // (heads, blocks): |element| of each rows_per_block rows
    unsigned* taken;      // of TileOrder

    Quantized(const Shape& s, void* workspace) {
        const std::int64_t Q_heads = s.B * s.H, KV_heads = s.B * s.Hkv, heads = Q_heads + 2 * KV_heads;
        Q = static_cast<std::uint8_t*>(workspace);
        K = Q + Q_heads * s.Nq * s.d;
        V = K + KV_heads * s.Nk * s.d;
        scales = reinterpret_cast<float*>(V + KV_heads * padded_keys(s.Nk) * s.d);
        largest = scales + heads;
        taken = reinterpret_cast<unsigned*>(largest + heads * blocks_of(s));
    }
    static int blocks_of(const Shape& s) { return ceil_div(std::max(s.Nq, s.Nk), rows_per_block); }
};
