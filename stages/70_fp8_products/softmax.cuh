// The softmax of a tile of scores, up to the exponentials.
// Included by kernels of the part inside of their namespace.

/// Turns the scores S (64, Bc) of a warpgroup with key tile j into exponents S scale - m, with -inf where
/// masked. Lanes hold rows g and g + 8 of their warp's 16.
template <int d, int Bc = Tile<d>::Bc>
__device__ void shift(const Problem& p, float scale, int first_row, int j, bool masked, float (&S)[Bc / 2],
                      const float (&m)[2]) {
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c] = S[c] * scale - m[row_of(c)];
    if (masked) {
        const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        int end[2];  // the first of this lane's columns that the row does not see
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = first_row + 16 * warp + g + 8 * r;
            end[r] = min(p.Nk, p.causal ? row + p.Nk - p.Nq + 1 : p.Nk) - j * Bc - 2 * t;
        }
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            if (column_of(c) >= end[row_of(c)]) S[c] = -inf;
        }
    }
}

/// The largest exponent of row g + 8 r in this lane.
template <int n>
__device__ float lane_max(const float (&S)[n], int r) {
    float row_max = -inf;
#pragma unroll
    for (int c = 2 * r; c < n; c += 4) row_max = fmaxf(row_max, fmaxf(S[c], S[c + 1]));
    return row_max;
}

/// max(0, the largest exponent in this lane).
template <int n>
__device__ float positive_max(const float (&S)[n]) {
    float row_max[2] = {};
#pragma unroll
    for (int c = 0; c < n; c += 2) row_max[row_of(c)] = max3(row_max[row_of(c)], S[c], S[c + 1]);
    return fmaxf(row_max[0], row_max[1]);
}

/// Raises m to `top` below the maximum of its row, and rescales S and l to it. The caller multiplies O by
/// alpha. The first tile sets m, which may be below 0.
template <int n>
__device__ void rescale(bool first, float (&S)[n], float (&alpha)[2], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        rise -= top;
        rise = rise == -inf ? 0.0f : first ? rise : fmaxf(rise, 0.0f);  // no key so far: m stays 0
        alpha[r] = first ? 0.0f : fast_exp2(-rise);
        m[r] += rise;
        l[r] *= alpha[r];
#pragma unroll
        for (int c = 0; c < n; ++c) {
            if (row_of(c) == r) S[c] -= rise;
        }
    }
}
