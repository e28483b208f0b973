// Stage 82: FP8 cache. K and V are e4m3, with a scale per head or per token; warps convert them to 16 bits
// before mma.

#include "stages/device.cuh"

namespace {

using namespace ladder;

#include "stages/82_fp8_cache/scales.cuh"

constexpr int Br = 16;                          // query rows of a tile
constexpr int warps = 4, threads = 32 * warps;  // of a block
constexpr int per_sm = 2;                       // blocks of a multiprocessor, to hide waits

/// Keys of a tile, and tiles of the ring: those of all blocks fill a multiprocessor's shared memory.
template <int d>
constexpr int Bc = d > 128 ? 64 : 128;
template <int d>
constexpr int slice = Bc<d> / warps;  // keys of a tile that a warp takes
template <int d>
constexpr int depth = d > 64 ? 3 : 6;

template <class T, int d>
struct Shared {
    T Q[Br][d];
    std::uint8_t K[depth<d>][Bc<d>][d];  // tile j is in slot j % depth
    std::uint8_t V[depth<d>][Bc<d>][d];
    bool is_last;  // of the blocks that share a query tile
};

/// The same with a scale for each token
template <class T, int d>
struct SharedOfTokens : Shared<T, d> {
    ScaleRing<depth<d>, Bc<d>> scales;
};

template <class T, int d>
__device__ HeadScales scales_of(Shared<T, d>&, const Problem& p, int b, int h_kv) {
    return {load(p.K_scales + b * p.Hkv + h_kv), load(p.V_scales + b * p.Hkv + h_kv)};
}
template <class T, int d>
__device__ TokenScales<depth<d>, Bc<d>, warps> scales_of(SharedOfTokens<T, d>& shared, const Problem&, int,
                                                         int) {
    return {shared.scales};
}

/// Where a tile keeps the 16 bytes at this column of a row. Eight rows keep them at eight positions of a
/// line, so ldmatrix has no bank conflicts; and a line of memory fills one line here.
template <class T, int rows, int d>
__device__ T* at(T (&tile)[rows][d], int row, int column) {
    constexpr int rows_per_line = sizeof(T) * d < 128 ? 2 : 1;  // of 128 bytes
    return &tile[row][column ^ row / rows_per_line % (8 / rows_per_line) * int(16 / sizeof(T))];
}

/// Row r of the queries of key/value head h_kv: query i of head h. The heads of its group alternate.
struct PackedRow {
    int h, i;

    __device__ PackedRow(const Problem& p, int h_kv, int r) {
        const int group = p.H / p.Hkv;
        h = h_kv * group + r % group;
        i = r / group;
    }
    static __host__ __device__ int count(const Shape& s) { return s.H / s.Hkv * s.Nq; }
};

/// Copies packed rows first .. first + 15 of Q into a tile. Rows past the last become 0. Of each 16 columns,
/// 4t to 4t + 3 go to places 2t, 2t + 1, 2t + 8 and 2t + 9, since ldmatrix gives lane t these bytes of K.
template <class T, int d>
__device__ void load_queries(T (&tile)[Br][d], const Problem& p, int b, int h_kv, int first) {
#pragma unroll
    for (int n = 0; n < Br * d / 4; n += threads) {
        const int row = (n + threadIdx.x) / (d / 4), column = (n + threadIdx.x) % (d / 4) * 4;
        const bool valid = first + row < PackedRow::count(p);
        const auto [h, i] = PackedRow(p, h_kv, valid ? first + row : 0);
        const T* four = matrix<T>(p.Q, b, h) + i * p.Q.row + column;
        const uint2 pairs = valid ? load(reinterpret_cast<const uint2*>(four)) : uint2{};
        const int to = column / 16 * 16 + column % 16 / 2;
        store(reinterpret_cast<std::uint32_t*>(at(tile, row, to)), pairs.x);
        store(reinterpret_cast<std::uint32_t*>(at(tile, row, to + 8)), pairs.y);
    }
}

/// The slot of key j of a request in its page, which the block table names: j % page_size. Without a table
/// the request is one page.
__device__ int page_of(const Problem& p, int b, int j) {
    if (p.block_table == nullptr) return b;
    return load(p.block_table + b * ceil_div(p.Nk, p.page_size) + (j >> (__ffs(p.page_size) - 1)));
}
__device__ int slot_of(const Problem& p, int j) {
    return p.block_table == nullptr ? j : j & (p.page_size - 1);
}

/// Starts copying key tile j of request b into tiles of K and V. Keys from Nk on become 0, whatever their
/// slots hold. Each lane looks up the page of one key of its warp, and where K and V have it.
template <class T, int d, class Scales>
__device__ void load_tiles(T (&K)[Bc<d>][d], T (&V)[Bc<d>][d], const Scales& scales, const Problem& p, int b,
                           int h_kv, int j_tile, int Nk) {
    const int first = j_tile * Bc<d>;
    constexpr int block_rows = threads * 16 / d, warp_rows = 32 * 16 / d;  // copied at a time
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int own = first + lane / warp_rows * block_rows + warp * warp_rows + lane % warp_rows;
    const std::int64_t page = own < Nk ? page_of(p, b, own) : 0, slot = slot_of(p, own);
    const std::int64_t own_K = page * p.K.batch + slot * p.K.row, own_V = page * p.V.batch + slot * p.V.row;
    scales.copy(p, h_kv, page, slot, j_tile, own - first, own < Nk);
    const int row = threadIdx.x / (d / 16), column = threadIdx.x % (d / 16) * 16;
#pragma unroll
    for (int n = 0; n < Bc<d>; n += block_rows) {
        const int j = first + row + n, from = n / block_rows * warp_rows + row % warp_rows;
        const T* K_row = matrix<T>(p.K, 0, h_kv) + column + __shfl_sync(~0u, own_K, from);
        const T* V_row = matrix<T>(p.V, 0, h_kv) + column + __shfl_sync(~0u, own_V, from);
        copy_async<Reads::once>(at(K, row + n, column), K_row, j < Nk);
        copy_async<Reads::once>(at(V, row + n, column), V_row, j < Nk);
    }
}

__device__ bool visible(const Problem& p, int Nk, int row, int key) {
    return key < Nk && (!p.causal || key <= row + Nk - p.Nq);
}

/// S = Q K^T, (16, slice): the rows of the tile and this warp's keys of it (algorithm 1, line 8).
template <class T, int d>
__device__ void score(Shared<T, d>& shared, int j, float (&S)[slice<d> / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 32) {
        std::uint32_t q[2][4], kt[4];
        for (int half = 0; half < 2; ++half)
            ldmatrix(q[half], at(shared.Q, a_row(lane), k + 16 * half + a_column(lane)));
#pragma unroll
        for (int n = 0; n < slice<d>; n += 16) {
            ldmatrix(kt,
                     at(shared.K[j % depth<d>], slice<d> * warp + n + b_row(lane), k + 2 * b_column(lane)));
            for (int c = 0; c < 4; ++c) {  // 8 keys, 16 columns
                const uint2 pairs = unpack_e4m3<T>(kt[c]);
                mma<T>(S[n / 8 + c / 2], q[c % 2], pairs.x, pairs.y);
            }
        }
    }
}

/// Turns S (16, slice) with key tile j, times `scale` scores in base 2, into P, and rescales O to the new m
/// (algorithm 1, line 9). Lanes hold rows g and g + 8.
template <int d>
__device__ void softmax(const Problem& p, float scale, int Nk, int first_row, int j, bool masked,
                        float (&S)[slice<d> / 8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < slice<d> / 2; ++c) S[c / 4][c % 4] *= scale;
    if (masked) {
        const int row = first_row + g, key = j * Bc<d> + slice<d> * warp + 2 * t, group = p.H / p.Hkv;
        const int query[2] = {row / group, (row + 8) / group};
#pragma unroll
        for (int c = 0; c < slice<d> / 2; ++c) {
            if (!visible(p, Nk, query[row_of(c)], key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }

    // m = max(m, rowmax(S))
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float row_max = -inf;
#pragma unroll
        for (int n = 0; n < slice<d> / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        const float m_old = m[r];
        m[r] = fmaxf(m[r], row_max);
        const float m_used = m[r] == -inf ? 0.0f : m[r];  // no key yet: exp(-inf - 0) = 0, not NaN
        alpha[r] = fast_exp2(m_old - m_used);

        // P = exp(S - m), in place of S
        float row_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < slice<d> / 8; ++n) {
            S[n][2 * r] = fast_exp2(S[n][2 * r] - m_used);
            S[n][2 * r + 1] = fast_exp2(S[n][2 * r + 1] - m_used);
            row_sum += S[n][2 * r] + S[n][2 * r + 1];
        }
        row_sum += __shfl_xor_sync(~0u, row_sum, 1);
        row_sum += __shfl_xor_sync(~0u, row_sum, 2);

        // l = alpha l + rowsum(P) and O = alpha O + P V
        l[r] = alpha[r] * l[r] + row_sum;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O[n][2 * r] *= alpha[r];
            O[n][2 * r + 1] *= alpha[r];
        }
    }
}

/// Folds key tile j, given its S, into this warp's m, l and O (16, d), which are of its own keys (algorithm
/// 1, lines 9 and 10). P and V become fp16 whatever T is, since it holds both. ldmatrix transposes pairs of
/// bytes; put side by side by key, those of the even columns are one product, those of the odd ones another.
template <class T, int d, class Scales>
__device__ void fold(Shared<T, d>& shared, const Problem& p, Scales& scales, int Nk, int first_row, int j,
                     bool masked, float (&S)[slice<d> / 8][4], float (&O)[d / 8][4], float (&m)[2],
                     float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    softmax<d>(p, scales.multiply_scores(p, j, S), Nk, first_row, j, masked, S, O, m, l);
    scales.multiply_weights(j, S, O);
#pragma unroll
    for (int k = 0; k < slice<d> / 8; k += 2) {
        std::uint32_t P[4];
        pack_operand<fp16>(P, S[k], S[k + 1]);
#pragma unroll
        for (int n = 0; n < d; n += 32) {
            std::uint32_t v[4];
            ldmatrix_transposed(
                v, at(shared.V[j % depth<d>], slice<d> * warp + 8 * k + a_row(lane), n + 2 * a_column(lane)));
            for (int c = 0; c < 4; c += 2) {  // 16 keys, 16 columns
                const uint2 upper = unpack_e4m3<fp16>(__byte_perm(v[c], 0, 0x3120));
                const uint2 lower = unpack_e4m3<fp16>(__byte_perm(v[c + 1], 0, 0x3120));
                mma<fp16>(O[n / 8 + c], P, upper.x, lower.x);
                mma<fp16>(O[n / 8 + c + 1], P, upper.y, lower.y);
            }
        }
    }
}

/// Merges the warps' m, l and O, each of its own keys. Of O each warp gets d / warps columns, first in its O.
template <class T, int d>
__device__ void merge_warps(Shared<T, d>& shared, float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    static_assert(warps * (d / 8 + 1) * 32 * sizeof(float4) <= sizeof shared.K + sizeof shared.V);
    const auto place = [&](int w, int n) {  // lane by lane: O in d / 8 pieces, then m and l
        return reinterpret_cast<float4*>(shared.K) + (w * (d / 8 + 1) + n) * 32 + lane;
    };
    __syncthreads();  // every warp has read its last K and V, whose memory this is
#pragma unroll
    for (int n = 0; n < d / 8; ++n) store(place(warp, n), {O[n][0], O[n][1], O[n][2], O[n][3]});
    store(place(warp, d / 8), {m[0], m[1], l[0], l[1]});
    __syncthreads();  // every warp's results are complete
    for (int w = 0; w < warps; ++w) {
        const float4 found = load(place(w, d / 8));
        m[0] = fmaxf(m[0], found.x);
        m[1] = fmaxf(m[1], found.y);
    }
    l[0] = l[1] = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) {
        const float4 found = load(place(w, d / 8));
        const float alpha[2] = {m[0] == -inf ? 0.0f : fast_exp2(found.x - m[0]),
                                m[1] == -inf ? 0.0f : fast_exp2(found.y - m[1])};
        l[0] += alpha[0] * found.z;
        l[1] += alpha[1] * found.w;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; ++n) {
            const float4 O_w = load(place(w, d / 8 / warps * warp + n));
            O[n][0] = alpha[0] * O_w.x + (w > 0 ? O[n][0] : 0.0f);
            O[n][1] = alpha[0] * O_w.y + (w > 0 ? O[n][1] : 0.0f);
            O[n][2] = alpha[1] * O_w.z + (w > 0 ? O[n][2] : 0.0f);
            O[n][3] = alpha[1] * O_w.w + (w > 0 ? O[n][3] : 0.0f);
        }
    }
}

/// Row r of a lane's O in 16 columns, even and odd ones: four side by side, from column 4t on.
template <class T>
__device__ void store_columns(T* first, const float (&even)[4], const float (&odd)[4], int r, float factor) {
    store_pair(first, even[2 * r] * factor, odd[2 * r] * factor);
    store_pair(first + 2, even[2 * r + 1] * factor, odd[2 * r + 1] * factor);
}

/// Writes O V_scale / l (rows g and g + 8, this warp's columns) and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, float V_scale, int b, int h_kv, int first_row,
                           const float (&O)[d / 8][4], const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= PackedRow::count(p)) continue;
        const auto [h, i] = PackedRow(p, h_kv, row);
        const float inverse_l = l[r] == 0.0f ? 0.0f : divide(V_scale, l[r]);
        T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + d / warps * warp + 4 * t;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; n += 2) store_columns(O_row + 8 * n, O[n], O[n + 1], r, inverse_l);
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + i;
        if (warp == 0 && t == 0) store(L, (m[r] + log2f(l[r])) * ln_2);
    }
}

/// Keys of a request, which are the first of its Nk.
__device__ int keys_of(const Problem& p, int b) {
    return p.lengths == nullptr ? p.Nk : load(p.lengths + b);
}

/// Key tiles of a query tile. Without keys it still has one, for a block to write its rows.
template <int d>
__host__ __device__ int key_tiles(int Nk) {
    return max(1, ceil_div(Nk, Bc<d>));
}

/// Query tile i of head h_kv of request b. Its Nk keys are Tc tiles, which begin at `begin` in the line.
struct QueryTile {
    int b, h_kv, i, Nk, Tc, begin;
};

constexpr int past_all = std::numeric_limits<int>::max();  // past every key tile

/// All query tiles in one line: request by request, head by head. Each has `start` places, for what it costs
/// a block to begin and end with one, and then a place for each key tile. Each block takes an equal share.
template <int d>
struct Line {
    int start = 0;          // places of a query tile before its key tiles
    int Tr, total, blocks;  // query tiles of a head, all places, and the blocks that take some of them

    __device__ explicit Line(const Problem& p)
        : Tr(ceil_div(PackedRow::count(p), Br)), total(find(p, past_all).begin) {
        blocks = min(static_cast<int>(gridDim.x), total);
        if (total < 16 * blocks) return;  // short shares end where query tiles do
        start = 2;
        total += start * p.B * p.Hkv * Tr;
    }
    /// The first place of a block's share: total block / blocks
    __device__ int begin(int block) const { return total / blocks * block + total % blocks * block / blocks; }

    struct Request {
        int b, begin;  // of its places
    };
    /// The request that place t of the line belongs to; the end of the line if t is past it. A lane counts
    /// the places of one request, and adds those of the lanes before it.
    __device__ Request find(const Problem& p, int t) const {
        if (p.lengths == nullptr) {  // each request takes as many
            const int places = p.Hkv * Tr * (start + key_tiles<d>(p.Nk)), b = min(p.B, t / places);
            return {b, b * places};
        }
        const int lane = threadIdx.x % 32;
        int begin = 0;
        for (int first = 0; first < p.B; first += 32) {
            const int b = first + lane;
            const int own = b < p.B ? p.Hkv * Tr * (start + key_tiles<d>(keys_of(p, b))) : 0;
            int end = begin + own;
            for (int n = 1; n < 32; n *= 2) {
                const int before = __shfl_up_sync(~0u, end, n) - begin;
                if (lane >= n) end += before;
            }
            const unsigned later = __ballot_sync(~0u, end > t);
            if (later != 0) return {first + __ffs(later) - 1, __shfl_sync(~0u, end - own, __ffs(later) - 1)};
            begin = __shfl_sync(~0u, end, 31);
        }
        return {p.B, begin};
    }

    /// The query tile that place t of the line belongs to
    __device__ QueryTile tile(const Problem& p, int t) const {
        const auto [b, first] = find(p, t);
        const int Nk = keys_of(p, b), Tc = key_tiles<d>(Nk), places = start + Tc, r = (t - first) / places;
        return {b, r / Tr, r % Tr, Nk, Tc, first + r * places + start};
    }
};

/// The parts of a query tile: a block's second is of a tile that begins in its share. Workspace: O (2 blocks,
/// 16, d), not divided by l, m and l (2 blocks, 16, 2), and a counter for each query tile, 0 between
/// launches.
struct Parts {
    float *O, *m_l;
    unsigned* counter;
    int block, splits;  // the first of the blocks, and their number

    template <int d>
    __device__ Parts(const Problem& p, const Line<d>& line, const QueryTile& tile)
        : O(static_cast<float*>(p.workspace)) {
        m_l = O + 2 * gridDim.x * Br * p.d;
        counter = reinterpret_cast<unsigned*>(m_l + 4 * gridDim.x * Br) +
                  (tile.b * p.Hkv + tile.h_kv) * line.Tr + tile.i;
        const std::int64_t t = tile.begin, all = line.total;
        block = ((t + 1) * line.blocks - 1) / all;
        splits = ((t + tile.Tc) * line.blocks - 1) / all - block + 1;
    }
};

/// Writes O, m and l to a part, in fp32.
template <int d>
__device__ void write_part(const Problem& p, const Parts& parts, int part, int first_row,
                           const float (&O)[d / 8][4], const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (first_row + g + 8 * r >= PackedRow::count(p)) continue;
        const int row = part * Br + g + 8 * r;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; n += 2) {
            store_columns(parts.O + row * d + d / warps * warp + 8 * n + 4 * t, O[n], O[n + 1], r, 1.0f);
        }
        if (warp == 0 && t == 0) store_pair(parts.m_l + 2 * row, m[r], l[r]);
    }
}

/// Counts this block, whose part is written. Was it the last one of the query tile? Then it sees every part.
template <class T, int d>
__device__ bool count_block(Shared<T, d>& shared, const Parts& parts) {
    const unsigned last = parts.splits - 1;
    __syncthreads();  // the part is written, by whichever thread
    if (threadIdx.x == 0) {
        // A thread that sees the count sees the part. From `last` it returns to 0, for the next launch.
        store(&shared.is_last, atomic_inc_acq_rel(parts.counter, last) == last);
    }
    __syncthreads();  // all threads know, and see what thread 0 sees
    return load(&shared.is_last);
}

/// Merges the parts of row k of a tile, query i of head h, as if each were a key tile: m is the largest m_s,
/// l the sum of exp(m_s - m) l_s, and O likewise. A warp per row, a lane for d / 32 columns, and for m and l
/// of one part. Parts come 32 at a time, or as many as registers hold: none of their loads waits for another.
template <class T, int d>
__device__ void merge(const Problem& p, float V_scale, const Parts& parts, int k, int b, int h, int i) {
    constexpr int at_a_time = d > 128 ? 16 : 32;
    const auto row_of = [&](int s) { return (2 * (parts.block + s) + (s == 0)) * Br + k; };
    const int lane = threadIdx.x % 32;
    float m = -inf, l = 0.0f;  // l of this lane's parts, until all are merged
    float2 O[d / 64] = {};     // columns 2 lane and 2 lane + 1 of each 64
    for (int first = 0; first < parts.splits; first += at_a_time) {
        const int end = min(first + at_a_time, parts.splits);
        float2 m_l = {-inf, 0.0f}, O_s[at_a_time][d / 64];
        if (first + lane < end) m_l = load_pair(parts.m_l + 2 * row_of(first + lane));
#pragma unroll
        for (int s = 0; s < at_a_time; ++s) {
#pragma unroll
            for (int n = 0; n < d / 64; ++n) {
                const float* pair = parts.O + row_of(first + s) * d + 64 * n + 2 * lane;
                O_s[s][n] = first + s < end ? load_pair(pair) : float2{};
            }
        }
        const float m_old = m;
        m = fmaxf(m, m_l.x);
#pragma unroll
        for (int n = 16; n > 0; n /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, n));
        const float m_used = m == -inf ? 0.0f : m;  // no part has a key: exp(-inf - 0) = 0, not NaN
        const float alpha = fast_exp2(m_old - m_used), alpha_lane = fast_exp2(m_l.x - m_used);
        l = alpha * l + alpha_lane * m_l.y;
        for (float2& pair : O) pair = {alpha * pair.x, alpha * pair.y};
#pragma unroll
        for (int s = 0; s < at_a_time; ++s) {
            const float alpha_s = __shfl_sync(~0u, alpha_lane, s);
#pragma unroll
            for (int n = 0; n < d / 64; ++n)
                O[n] = {O[n].x + alpha_s * O_s[s][n].x, O[n].y + alpha_s * O_s[s][n].y};
        }
    }
#pragma unroll
    for (int n = 16; n > 0; n /= 2) l += __shfl_xor_sync(~0u, l, n);
    const float inverse_l = l == 0.0f ? 0.0f : divide(V_scale, l);
    T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * lane;
#pragma unroll
    for (int n = 0; n < d / 64; ++n) {
        store_pair(O_row + 64 * n, O[n].x * inverse_l, O[n].y * inverse_l);
    }
    if (lane == 0) store(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i, (m + log2f(l)) * ln_2);
}

/// Folds key tiles first .. end - 1 into a query tile.
template <class T, int d, class Tiles>
__device__ void take(Tiles& shared, const Problem& p, const Line<d>& line, const QueryTile& tile, int first,
                     int end) {
    const int i = tile.i, h_kv = tile.h_kv, b = tile.b, Nk = tile.Nk, group = p.H / p.Hkv;
    // The last keys that the tile's first and last rows see
    const int reach = p.causal ? i * Br / group + Nk - p.Nq : Nk;
    const int last_reach = p.causal ? (i * Br + Br - 1) / group + Nk - p.Nq : Nk;
    const int last = min(end, ceil_div(min(Nk, last_reach + 1), Bc<d>));
    float O[d / 8][4] = {}, m[2] = {-inf, -inf}, l[2] = {};
    __syncthreads();  // what the warps found for another query tile has been read
    auto scales = scales_of(shared, p, b, h_kv);
    const auto load = [&](int j) {  // one group of copies, empty past the last tile
        if (j < last) {
            load_tiles<std::uint8_t, d>(shared.K[j % depth<d>], shared.V[j % depth<d>], scales, p, b, h_kv, j,
                                        Nk);
        }
        copy_commit();
    };
    for (int j = first; j < first + depth<d>; ++j) load(j);
    const Parts parts(p, line, tile);  // its divisions, while the first copies are on their way
    if (first < last) load_queries<T, d>(shared.Q, p, b, h_kv, i * Br);
    for (int j = first; j < last; ++j) {
        copy_wait<depth<d> - 1>();
        __syncthreads();  // all copies of Q, and of K and V of tile j, have landed
        const bool masked = (j + 1) * Bc<d> > min(Nk, reach + 1);
        note_tile(shared, b, h_kv, i, j, masked, group);
        float S[slice<d> / 8][4] = {};
        score<T, d>(shared, j, S);
        fold<T, d>(shared, p, scales, Nk, i * Br, j, masked, S, O, m, l);
        note_rows(i * Br, m, l);
        __syncthreads();  // K and V of tile j have been read: their slot is free
        load(j + depth<d>);
    }
    scales.finish(O);
    merge_warps<T, d>(shared, O, m, l);
    if (threadIdx.x < 32 && first < last) note_rows(i * Br, m, l);
    if (end - first == tile.Tc) return write_rows<T, d>(p, scales.of_O(), b, h_kv, i * Br, O, m, l);
    write_part<d>(p, parts, 2 * blockIdx.x + (first == 0), i * Br, O, m, l);
    if (!count_block(shared, parts)) return;
    for (int k = threadIdx.x / 32; k < min(Br, PackedRow::count(p) - i * Br); k += warps) {
        const auto [h, query] = PackedRow(p, h_kv, i * Br + k);
        merge<T, d>(p, scales.of_O(), parts, k, b, h, query);
    }
}

template <class T, int d, class Tiles>
__global__ void __launch_bounds__(threads, per_sm) attention(const Problem p) {
    for (int done = 0;;) {
        const Line<d> line(p);  // recomputed for each query tile, to free its registers meanwhile
        const int t = line.begin(blockIdx.x) + done, end = min(line.total, line.begin(blockIdx.x + 1));
        if (t >= end) return;
        const QueryTile tile = line.tile(p, t);
        const int first = max(0, t - tile.begin), last = min(tile.Tc, end - tile.begin);
        if (first < last) take<T, d>(shared_memory<Tiles>(), p, line, tile, first, last);
        done += min(tile.begin + tile.Tc, end) - t;
    }
}

/// As many blocks for one query tile as for another, but no more than shorten its longest part; or all that
/// fit. Even shares keep these busy, for one more part wherever a share spans two query tiles. They pay from
/// 16 key tiles each on if more than an eighth of the blocks would idle without them, and from 256 on if
/// fewer would. The last blocks idle where requests have fewer keys than Nk.
int block_count(const Shape& s, int sm_count) {
    const int resident = sm_count * per_sm;
    const int tiles = s.B * s.Hkv * ceil_div(PackedRow::count(s), Br);
    const int Tc = ceil_div(s.Nk, s.d > 128 ? Bc<256> : Bc<128>);
    const int longest = ceil_div(Tc, max(1, resident / tiles));  // part of a query tile, in key tiles
    const int even_blocks = min(resident, tiles * ceil_div(Tc, longest));
    const int worth_sharing = 8 * even_blocks < 7 * resident ? 16 : 256;  // key tiles of a share
    return tiles * Tc / worth_sharing >= resident ? resident : even_blocks;
}

std::size_t counter_bytes(const Shape& s, int) {
    return s.B * s.Hkv * ceil_div(PackedRow::count(s), Br) * sizeof(unsigned);
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    return 2 * block_count(s, sm_count) * Br * (s.d + 2) * sizeof(float) + counter_bytes(s, sm_count);
}

template <class T, int d>
void forward(const Problem& p) {
    const auto run = [&](auto kernel, std::size_t bytes) {
        launch(kernel, dim3(block_count(p, p.sm_count)), threads, bytes, p);
    };
    if (p.K_token_scales.data == nullptr) return run(attention<T, d, Shared<T, d>>, sizeof(Shared<T, d>));
    run(attention<T, d, SharedOfTokens<T, d>>, sizeof(SharedOfTokens<T, d>));
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(
    forward, Dims, .number = 82, .name = "fp8_cache", .parent = 81, .formerly = "74_fp8_cache",
    .tilings = LADDER_TILES((Br, Bc<d>, depth<d>), {16, 128, 6}, {16, 128, 3}, {16, 64, 3}),
    .change = "K and V are e4m3 in memory, one scale per head, and become 16 bits before mma",
    .shows_in = "decode", .takes = {Feature::lengths, Feature::pages, Feature::token_scales},
    .products = Products::of_8_bit_cache, .diff_budget = 260,
    .most_lines = 670,  // schedules ragged requests, unpacks, waits less, has scales of heads and of tokens
    .batch_invariant = false, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
