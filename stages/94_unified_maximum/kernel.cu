// Stage 94: unified maximum. Scores near a number that is fixed in advance need no maximum of their row.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int Br = 16;                          // query rows of a tile
constexpr int warps = 4, threads = 32 * warps;  // of a block

/// Keys of a tile, and tiles of the ring: what fills a multiprocessor's shared memory.
template <int d>
constexpr int Bc = d > 128 ? 64 : 128;
template <int d>
constexpr int slice = Bc<d> / warps;  // keys of a tile that a warp takes
template <int d>
constexpr int depth = d > 64 ? 3 : 6;

/// The unified maximum, for all rows. A score within this distance of it, in base 2, has a P that T holds as
/// a normal number.
constexpr float phi = 0.0f;
template <class T>
constexpr float band = std::is_same_v<T, fp16> ? 10.0f : 60.0f;

template <class T, int d>
struct Shared {
    T Q[Br][d];
    T K[depth<d>][Bc<d>][d];  // tile j is in slot j % depth
    T V[depth<d>][Bc<d>][d];
    bool is_last;  // of the blocks that share a query tile
};

/// Where a tile keeps the 16 bytes at this column of a row. Eight rows keep them at eight positions of a
/// line, so ldmatrix has no bank conflicts; and a line of memory fills one line here.
template <class T, int rows, int d>
__device__ T* at(T (&tile)[rows][d], int row, int column) {
    return &tile[row][column ^ row % 8 * 8];
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

/// Starts copying packed rows first .. first + 15 of Q into a tile. Rows past the last become 0.
template <class T, int d>
__device__ void load_queries(T (&tile)[Br][d], const Problem& p, int b, int h_kv, int first) {
#pragma unroll
    for (int n = 0; n < Br * d / 8; n += threads) {
        const int row = (n + threadIdx.x) / (d / 8), column = (n + threadIdx.x) % (d / 8) * 8;
        const bool valid = first + row < PackedRow::count(p);
        const auto [h, i] = PackedRow(p, h_kv, valid ? first + row : 0);
        copy_async(at(tile, row, column), matrix<T>(p.Q, b, h) + i * p.Q.row + column, valid);
    }
}

/// Starts copying rows first .. first + Bc - 1 of X (N, d) into a tile. Rows from N on become 0.
template <class T, int d>
__device__ void load_tile(T (&tile)[Bc<d>][d], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < Bc<d>; n += threads * 8 / d) {
        copy_async<Reads::once>(at(tile, row + n, column), source + n * stride, first + row + n < N);
    }
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// S = Q K^T, (16, slice): the rows of the tile and this warp's keys of it (algorithm 1, line 8).
template <class T, int d>
__device__ void score(Shared<T, d>& shared, int j, float (&S)[slice<d> / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[4], kt[4];
        ldmatrix(q, at(shared.Q, a_row(lane), k + a_column(lane)));
#pragma unroll
        for (int n = 0; n < slice<d>; n += 16) {
            ldmatrix(kt, at(shared.K[j % depth<d>], slice<d> * warp + n + b_row(lane), k + b_column(lane)));
            mma<T>(S[n / 8], q, kt[0], kt[1]);
            mma<T>(S[n / 8 + 1], q, kt[2], kt[3]);
        }
    }
}

/// m = max(m, rowmax(S)), and O and l go from the old m to the new one (algorithm 1, line 9).
template <int d>
__device__ void raise_maximum(const float (&S)[slice<d> / 8][4], float (&O)[d / 8][4], float (&m)[2],
                              float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float row_max = -inf;
#pragma unroll
        for (int n = 0; n < slice<d> / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        const float m_old = m[r];
        m[r] = fmaxf(m[r], row_max);
        const float alpha = m[r] == -inf ? 0.0f : fast_exp2(m_old - m[r]);
        l[r] *= alpha;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O[n][2 * r] *= alpha;
            O[n][2 * r + 1] *= alpha;
        }
    }
}

/// Turns the scores S (16, slice) with key tile j into P, and adds this lane's part of each row to l. As
/// long as all scores of this warp lie in the band, m is phi. Lanes hold rows g and g + 8.
template <class T, int d>
__device__ void softmax(const Problem& p, int first_row, int j, bool masked, bool& in_band,
                        float (&S)[slice<d> / 8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * log2_e;  // scores and m are in base 2
    float distance = 0.0f;                 // of this lane's scores from phi, at most
#pragma unroll
    for (int c = 0; c < slice<d> / 2; ++c) {
        S[c / 4][c % 4] *= scale;
        distance = fmaxf(distance, fabsf(S[c / 4][c % 4] - phi));
    }
    if (masked) {
        const int row = first_row + g, key = j * Bc<d> + slice<d> * warp + 2 * t, group = p.H / p.Hkv;
        const int query[2] = {row / group, (row + 8) / group};
#pragma unroll
        for (int c = 0; c < slice<d> / 2; ++c) {
            if (!visible(p, query[row_of(c)], key + column_of(c))) S[c / 4][c % 4] = -inf;
        }
    }

    // The sums so far refer to m = phi, which is as good as a maximum: the warp continues from them.
    in_band = in_band && !__any_sync(~0u, distance > band<T>);
    if (in_band) {
        m[0] = m[1] = phi;
    } else {
        raise_maximum<d>(S, O, m, l);
    }

    // P = exp(S - m), in place of S, and l += rowsum(P)
#pragma unroll
    for (int c = 0; c < slice<d> / 2; ++c) {
        const float m_used =
            m[row_of(c)] == -inf ? 0.0f : m[row_of(c)];  // no key yet: exp(-inf - 0) = 0, not NaN
        S[c / 4][c % 4] = fast_exp2(S[c / 4][c % 4] - m_used);
        l[row_of(c)] += S[c / 4][c % 4];
    }
}

/// Folds key tile j, given its S, into this warp's m, l and O (16, d), which are of its own keys (algorithm
/// 1, lines 9 and 10).
template <class T, int d>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int first_row, int j, bool masked, bool& in_band,
                     float (&S)[slice<d> / 8][4], float (&O)[d / 8][4], float (&m)[2], float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    softmax<T, d>(p, first_row, j, masked, in_band, S, O, m, l);
#pragma unroll
    for (int k = 0; k < slice<d> / 8; k += 2) {
        std::uint32_t P[4];
        pack_operand<T>(P, S[k], S[k + 1]);
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            std::uint32_t v[4];
            ldmatrix_transposed(
                v, at(shared.V[j % depth<d>], slice<d> * warp + 8 * k + a_row(lane), n + a_column(lane)));
            mma<T>(O[n / 8], P, v[0], v[1]);
            mma<T>(O[n / 8 + 1], P, v[2], v[3]);
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
#pragma unroll
    for (int r = 0; r < 2; ++r) {  // of a row, four lanes have a part of l
        l[r] += __shfl_xor_sync(~0u, l[r], 1);
        l[r] += __shfl_xor_sync(~0u, l[r], 2);
        if (l[r] == 0.0f) m[r] = -inf;  // no key: phi must not hide smaller maxima of the others
    }
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

/// Writes O / l (rows g and g + 8, this warp's columns) and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h_kv, int first_row, const float (&O)[d / 8][4],
                           const float (&m)[2], const float (&l)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + g + 8 * r;
        if (row >= PackedRow::count(p)) continue;
        const auto [h, i] = PackedRow(p, h_kv, row);
        const float inverse_l = l[r] == 0.0f ? 0.0f : divide(1.0f, l[r]);
        T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + d / warps * warp + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8 / warps; ++n) {
            store_pair(O_row + 8 * n, O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l);
        }
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + i;
        if (warp == 0 && t == 0) store(L, (m[r] + log2f(l[r])) * ln_2);
    }
}

/// What the blocks take of the query tiles, which are numbered through all heads: an even share of the key
/// tiles (Tc for each) of the first `rest`, then tiles rest + block, rest + block + blocks, ...
struct Shares {
    int Tr, Tc, tiles, blocks, rest, least, more;

    /// Even blocks are equally many for each query tile. Shares keep all resident blocks busy, for one more
    /// part to merge where a share spans two query tiles. They pay from 16 key tiles each on if more than an
    /// eighth of the blocks would idle without them, and from 256 on if fewer would.
    Shares(const Shape& s, int resident)
        : Tr(ceil_div(PackedRow::count(s), Br)), Tc(ceil_div(s.Nk, s.d > 128 ? Bc<256> : Bc<128>)) {
        tiles = s.B * s.Hkv * Tr;
        const int even_blocks = tiles > resident ? resident : tiles * min(Tc, resident / tiles);
        const int worth_sharing = 8 * even_blocks < 7 * resident ? 16 : 256;  // key tiles of a share
        blocks = tiles * Tc / worth_sharing >= resident ? resident : even_blocks;
        rest = tiles % blocks * Tc < blocks ? 0 : tiles % blocks;  // too few to share
        least = rest * Tc / blocks, more = rest * Tc % blocks;  // a share's key tiles; shares with one more
    }
    /// The first key tile of a block's share: rest Tc block / blocks. Key tile j of query tile r is r Tc + j.
    __device__ int begin(int block) const { return least * block + more * block / blocks; }
    /// The query tile that a block takes after r: the next in its share, or of those that are not shared.
    __device__ int next_tile(int block, int r) const {
        if (r >= rest) return r + blocks;
        return (r + 1) * Tc < begin(block + 1) ? r + 1 : rest + block;
    }
};

/// The parts of query tile r < rest: a block's second is of a tile that begins in its share. Workspace: O (2
/// blocks, 16, d), not divided by l, m and l (2 blocks, 16, 2), and a counter for each of these tiles, 0
/// between launches.
struct Parts {
    float *O, *m_l;
    unsigned* counter;
    int block, splits;  // the first of the blocks, and their number

    __device__ Parts(const Problem& p, const Shares& shares, int r) : O(static_cast<float*>(p.workspace)) {
        m_l = O + 2 * shares.blocks * Br * p.d;
        counter = reinterpret_cast<unsigned*>(m_l + 4 * shares.blocks * Br) + r;
        const std::int64_t first = std::int64_t{r} * shares.Tc, all = max(1, shares.rest * shares.Tc);
        block = ((first + 1) * shares.blocks - 1) / all;
        splits = ((first + shares.Tc) * shares.blocks - 1) / all - block + 1;
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
        for (int n = 0; n < d / 8 / warps; ++n) {
            store_pair(parts.O + row * d + d / warps * warp + 8 * n + 2 * t, O[n][2 * r], O[n][2 * r + 1]);
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
/// l the sum of exp(m_s - m) l_s, and O likewise. A warp per row, a lane for d / 32 columns. Parts come 16 at
/// a time: none of their loads waits for another.
template <class T, int d>
__device__ void merge(const Problem& p, const Parts& parts, int k, int b, int h, int i) {
    const int lane = threadIdx.x % 32;
    float m = -inf, l = 0.0f;
    float2 O[d / 64] = {};  // columns 2 lane and 2 lane + 1 of each 64
    for (int first = 0; first < parts.splits; first += 16) {
        float2 m_l[16], O_s[16][d / 64];
        const float m_old = m;
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const bool valid = first + s < parts.splits;
            const int part = (2 * (parts.block + first + s) + (first + s == 0)) * Br + k;
            m_l[s] = valid ? load_pair(parts.m_l + 2 * part) : float2{-inf, 0.0f};
            m = fmaxf(m, m_l[s].x);
#pragma unroll
            for (int n = 0; n < d / 64; ++n) {
                O_s[s][n] = valid ? load_pair(parts.O + part * d + 64 * n + 2 * lane) : float2{};
            }
        }
        const float m_used = m == -inf ? 0.0f : m;  // no part has a key: exp(-inf - 0) = 0, not NaN
        const float alpha = fast_exp2(m_old - m_used);
        l *= alpha;
        for (float2& pair : O) pair = {alpha * pair.x, alpha * pair.y};
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const float alpha_s = fast_exp2(m_l[s].x - m_used);
            l += alpha_s * m_l[s].y;
#pragma unroll
            for (int n = 0; n < d / 64; ++n)
                O[n] = {O[n].x + alpha_s * O_s[s][n].x, O[n].y + alpha_s * O_s[s][n].y};
        }
    }
    const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
    T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * lane;
#pragma unroll
    for (int n = 0; n < d / 64; ++n) {
        store_pair(O_row + 64 * n, O[n].x * inverse_l, O[n].y * inverse_l);
    }
    if (lane == 0) store(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i, (m + log2f(l)) * ln_2);
}

/// Folds key tiles first .. end - 1 into query tile r.
template <class T, int d>
__device__ void take(Shared<T, d>& shared, const Problem& p, const Shares& shares, int r, int first,
                     int end) {
    const int i = r % shares.Tr, h_kv = r / shares.Tr % p.Hkv, b = r / shares.Tr / p.Hkv, group = p.H / p.Hkv;
    // The last keys that the tile's first and last rows see
    const int reach = p.causal ? i * Br / group + p.Nk - p.Nq : p.Nk;
    const int last_reach = p.causal ? (i * Br + Br - 1) / group + p.Nk - p.Nq : p.Nk;
    const int last = min(end, ceil_div(min(p.Nk, last_reach + 1), Bc<d>));
    float O[d / 8][4] = {}, m[2] = {-inf, -inf}, l[2] = {};
    bool in_band = true;  // all scores of this warp so far
    __syncthreads();      // what the warps found for another query tile has been read
    if (first < last) load_queries<T, d>(shared.Q, p, b, h_kv, i * Br);  // otherwise no thread waits for it
    const auto load = [&](int j) {  // one group of copies, empty past the last tile
        if (j < last) {
            load_tile<T, d>(shared.K[j % depth<d>], matrix<T>(p.K, b, h_kv), p.K.row, j * Bc<d>, p.Nk);
            load_tile<T, d>(shared.V[j % depth<d>], matrix<T>(p.V, b, h_kv), p.V.row, j * Bc<d>, p.Nk);
        }
        copy_commit();
    };
    for (int j = first; j < first + depth<d>; ++j) load(j);  // Q is in the first group
    const Parts parts(p, shares, r);  // its divisions, while the first copies are on their way
    for (int j = first; j < last; ++j) {
        copy_wait<depth<d> - 1>();
        __syncthreads();  // all copies of Q, and of K and V of tile j, have landed
        const bool masked = (j + 1) * Bc<d> > min(p.Nk, reach + 1);
        note_tile(shared, b, h_kv, i, j, masked, group);
        float S[slice<d> / 8][4] = {};
        score<T, d>(shared, j, S);
        fold<T, d>(shared, p, i * Br, j, masked, in_band, S, O, m, l);
        note_lane_sums(i * Br, m, l);
        __syncthreads();  // K and V of tile j have been read: their slot is free
        load(j + depth<d>);
    }
    merge_warps<T, d>(shared, O, m, l);
    if (threadIdx.x < 32 && first < last) note_rows(i * Br, m, l);
    if (end - first == shares.Tc) return write_rows<T, d>(p, b, h_kv, i * Br, O, m, l);
    write_part<d>(p, parts, 2 * blockIdx.x + (first == 0), i * Br, O, m, l);
    if (!count_block(shared, parts)) return;
    for (int k = threadIdx.x / 32; k < min(Br, PackedRow::count(p) - i * Br); k += warps) {
        const auto [h, query] = PackedRow(p, h_kv, i * Br + k);
        merge<T, d>(p, parts, k, b, h, query);
    }
}

template <class T, int d>
__global__ void __launch_bounds__(threads, 1) attention(const Problem p, const Shares shares) {
    const int block = blockIdx.x, rest = shares.rest, Tc = shares.Tc;
    const int begin = shares.begin(block), end = shares.begin(block + 1);
    for (int r = begin < end ? begin / Tc : rest + block; r < shares.tiles;) {
        const bool whole = r >= rest;
        const int first = whole ? 0 : max(begin - r * Tc, 0), last = whole ? Tc : min(end - r * Tc, Tc);
        take<T, d>(shared_memory<Shared<T, d>>(), p, shares, r, first, last);
        r = shares.next_tile(block, r);
    }
}

std::size_t counter_bytes(const Shape& s, int sm_count) {
    return Shares(s, sm_count).rest * sizeof(unsigned);
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const Shares shares(s, sm_count);
    const int rows = shares.rest > 0 ? 2 * shares.blocks * Br : 0;
    return rows * (s.d + 2) * sizeof(float) + counter_bytes(s, sm_count);
}

template <class T, int d>
void forward(const Problem& p) {
    const Shares shares(p, p.sm_count);
    launch(attention<T, d>, dim3(shares.blocks), threads, sizeof(Shared<T, d>), p, shares);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 94, .name = "unified_maximum", .parent = 17,
             .formerly = "84_unified_maximum",
             .tilings = LADDER_TILES((Br, Bc<d>, depth<d>), {16, 128, 6}, {16, 128, 3}, {16, 64, 3}),
             .change = "m is fixed beforehand: a warp looks for a maximum once a score leaves a band",
             .shows_in = "decode", .most_lines = 500,  // with a fixed maximum
             .batch_invariant = false, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
