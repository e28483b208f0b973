// The scales of a cache in e4m3: one for each head of a request, or one for each token of each head.
// Part of the kernel's namespace.

/// One scale of K and one of V. That of K goes with the softmax scale, and that of V with the division by l.
struct HeadScales {
    float K, V;

    __device__ void copy(const Problem&, int, int, int, int, int, bool) const {}
    template <int pieces>
    __device__ float multiply_scores(const Problem& p, int, float (&)[pieces][4]) const {
        return p.scale * K * log2_e;
    }
    template <int pieces, int columns>
    __device__ void multiply_weights(int, float (&)[pieces][4], float (&)[columns][4]) const {}
    template <int columns>
    __device__ void finish(float (&)[columns][4]) const {}
    __device__ float of_O() const { return V; }
};

/// Scales of the keys of tiles: tile j is in slot j % depth, as K and V are in theirs.
template <int depth, int Bc>
struct ScaleRing {
    alignas(16) float K[depth][Bc];
    float V[depth][Bc];
};

/// A scale of K and one of V for each token. Scores are multiplied by those of K, and P by those of V before
/// it becomes fp16: with P <= 1, by scale / unit < 2^15, the most that fp16 holds. `unit` belongs to a warp,
/// grows with the largest scale of V so far, and O is in units of it: as it is rescaled to a new m, so is it
/// to a new unit. The smallest normal fp16 is 2^-29 of the largest product, so P keeps the bits that it has
/// without scales where a scale is at least 2^-15 of the largest.
template <int depth, int Bc, int warps>
struct TokenScales {
    static constexpr int keys = Bc / warps;  // of a tile that a warp takes

    ScaleRing<depth, Bc>& ring;
    float unit = 0x1p-125f, inverse = 0x1p125f;  // of scales up to 2^-110

    /// Starts copying the scales of a key to its place in tile j; zeros if not `valid`. A warp may have more
    /// lanes than the tile has keys for it.
    __device__ void copy(const Problem& p, int h_kv, int page, int slot, int j, int key, bool valid) const {
        if (key >= Bc) return;
        const View &K = p.K_token_scales, &V = p.V_token_scales;
        copy_word_async(&ring.K[j % depth][key], matrix<float>(K, page, h_kv) + slot * K.row, valid);
        copy_word_async(&ring.V[j % depth][key], matrix<float>(V, page, h_kv) + slot * V.row, valid);
    }

    /// This lane's two of 8 n .. 8 n + 7 of the warp's keys.
    __device__ float2 two(const float (&of_tiles)[depth][Bc], int j, int n) const {
        return load_pair(of_tiles[j % depth] + keys * (threadIdx.x / 32) + 8 * n + threadIdx.x % 4 * 2);
    }

    /// S (16, keys) becomes scores in base 2. Returns what is left to multiply them by.
    __device__ float multiply_scores(const Problem& p, int j, float (&S)[keys / 8][4]) const {
        const float scale = p.scale * log2_e;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n) {
            const float2 K = two(ring.K, j, n);
            for (int c = 0; c < 4; ++c) S[n][c] *= (c % 2 == 0 ? K.x : K.y) * scale;
        }
        return 1.0f;
    }

    /// P (16, keys) becomes P V_scale / unit, and O is rescaled to a unit that grows.
    template <int columns>
    __device__ void multiply_weights(int j, float (&P)[keys / 8][4], float (&O)[columns][4]) {
        float2 V[keys / 8];
        float largest = 0.0f;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n) {
            V[n] = two(ring.V, j, n);
            largest = fmaxf(largest, fmaxf(V[n].x, V[n].y));
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2)) * 0x1p-15f;
        if (largest > unit) {  // in all lanes
            const float alpha = divide(unit, largest);
#pragma unroll
            for (int c = 0; c < 4 * columns; ++c) O[c / 4][c % 4] *= alpha;
            unit = largest;
            inverse = divide(1.0f, unit);
        }
#pragma unroll
        for (int n = 0; n < keys / 8; ++n) {
            for (int c = 0; c < 4; ++c) P[n][c] *= (c % 2 == 0 ? V[n].x : V[n].y) * inverse;
        }
    }

    /// O becomes sums of P V, not in units.
    template <int columns>
    __device__ void finish(float (&O)[columns][4]) const {
#pragma unroll
        for (int c = 0; c < 4 * columns; ++c) O[c / 4][c % 4] *= unit;
    }
    __device__ float of_O() const {
        return 1.0f;
    }
};
