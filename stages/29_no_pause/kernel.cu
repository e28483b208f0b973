// Stage 29: no pause. A block that stays asks for the Q, K and V of its next query tile during the last key
// tile of this one.

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds
constexpr int few_keys = 1024;     // up to here the start and the end of a query tile weigh
constexpr int pad = 8;             // rows start one 16-byte bank apart: ldmatrix has no conflicts

template <int d>
constexpr int Bc = d == 64 ? 128 : 64;  // keys of a tile

// Slices of 16 query rows per warp: two, unless O (16, d) of two is more than its registers hold.
template <int d>
constexpr int slices = d <= 128 ? 2 : 1;

template <int d>
constexpr int warps = d <= 128 ? 4 : 8;  // of a block; a multiprocessor has the registers of eight

template <int d>
constexpr int threads = 32 * warps<d>;

template <int d>
constexpr int Br = 16 * slices<d>* warps<d>;  // query rows of a tile

template <class T, int d>
struct Shared {
    T Q[Br<d>][d + pad];
    T K[2][Bc<d>][d + pad], V[2][Bc<d>][d + pad];  // the block's tile j is in place j % 2
    T O[d == 256 ? warps<d> : 1][16][64 + pad];    // 64 columns of a slice; at d < 256 in Q
    Mbarrier K_there[2], V_there[2];  // phase j / 2: tile j is there, every thread's copies of it
    Mbarrier K_read[2], V_read[2];    // phase j / 2: every thread has read tile j
    Mbarrier next_there;              // phase q: it is known which query tile follows the block's q-th
    int next[2];                      // that one, in place q % 2
};

/// Query tile i of head h of batch b: the r-th in line. Groups of heads follow each other, of a group the
/// last query tile of every head, then the one before.
template <int d>
struct QueryTile {
    int b, h, i;

    __device__ QueryTile(const Problem& p, int group, int r) {
        const int Tr = ceil_div(p.Nq, Br<d>), first = r / (group * Tr) * group;
        const int heads = min(group, p.B * p.H - first), k = r - first * Tr, head = first + k % heads;
        b = head / p.H, h = head % p.H, i = Tr - 1 - k / heads;
    }
};

/// Starts copying rows first, first + 1 ... of X (N, d), by a team of threads. Rows from N on become 0.
template <class T, int d, int rows, int team = threads<d>>
__device__ void load_tile(T (*tile)[d + pad], const T* X, std::int64_t stride, int first, int N) {
    const int row = threadIdx.x % team / (d / 8), column = threadIdx.x % (d / 8) * 8;
    const T* source = X + (first + row) * stride + column;
#pragma unroll
    for (int n = 0; n < rows; n += team * 8 / d) {
        copy_async(&tile[row + n][column], source + n * stride, first + row + n < N);
    }
}

__device__ bool visible(const Problem& p, int row, int key) {
    return key < p.Nk && (!p.causal || key <= row + p.Nk - p.Nq);
}

/// Sets the scores S (16, Bc) of a slice with key tile j to -inf where masked. Lanes hold rows g and g + 8.
/// If scale is negative, S changes its sign, so that the largest score has the largest exponent.
template <int d>
__device__ void mask(const Problem& p, int first_row, int j, float (&S)[Bc<d> / 8][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = first_row + g, key = j * Bc<d> + 2 * t;
#pragma unroll
    for (int c = 0; c < Bc<d> / 2; ++c) {
        const bool seen = visible(p, row + c / 2 % 2 * 8, key + c / 4 * 8 + c % 2);
        S[c / 4][c % 4] = seen ? copysignf(1.0f, p.scale) * S[c / 4][c % 4] : -inf;
    }
}

/// The largest score of row g + 8 r in this lane.
template <int d>
__device__ float lane_max(const float (&S)[Bc<d> / 8][4], int r) {
    float row_max = -inf;
#pragma unroll
    for (int n = 0; n < Bc<d> / 8; ++n) row_max = fmaxf(row_max, fmaxf(S[n][2 * r], S[n][2 * r + 1]));
    return row_max;
}

/// Raises m to the maximum of its row, and rescales the slice to it. The first tile sets m, even to less than
/// 0. Exponents, S scale - m, and m count in base 2.
template <int d>
__device__ void rescale(float scale, bool first, const float (&S)[Bc<d> / 8][4], float (&O)[d / 8][4],
                        float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max<d>(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        rise = rise * scale - m[r];
        rise = rise == -inf ? 0.0f : first ? rise : fmaxf(rise, 0.0f);  // no key so far: m stays 0
        const float alpha = first ? 0.0f : fast_exp2(-rise);
        m[r] += rise;
        l[r] *= alpha;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O[n][2 * r] *= alpha;
            O[n][2 * r + 1] *= alpha;
        }
    }
}

/// S = Q K^T, (16, Bc) for each of this warp's slices, with key tile j (algorithm 1, line 8).
template <class T, int d>
__device__ void score(Shared<T, d>& shared, int j, float (&S)[slices<d>][Bc<d> / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < d; k += 16) {
        std::uint32_t q[slices<d>][4], kt[4];
        for (int a = 0; a < slices<d>; ++a) {
            ldmatrix(q[a], &shared.Q[16 * (slices<d> * warp + a) + lane % 16][k + lane / 16 * 8]);
        }
#pragma unroll
        for (int n = 0; n < Bc<d>; n += 16) {
            ldmatrix(kt, &shared.K[j % 2][n + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
            for (int a = 0; a < slices<d>; ++a) {
                mma<T>(S[a][n / 8], q[a], kt[0], kt[1]);
                mma<T>(S[a][n / 8 + 1], q[a], kt[2], kt[3]);
            }
        }
    }
}

/// Folds key tile j in `place`, given its S, into this warp's slices (algorithm 1, lines 9 and 10).
/// A warp takes all keys of the tile, and the O (16, d) of its slices are its own.
template <class T, int d>
__device__ void fold(Shared<T, d>& shared, const Problem& p, int first_row, int j, int place, bool masked,
                     float (&S)[slices<d>][Bc<d> / 8][4], float (&O)[slices<d>][d / 8][4],
                     float (&m)[slices<d>][2], float (&l)[slices<d>][2]) {
    const int lane = threadIdx.x % 32;
    const float scale = fmaxf(fabsf(p.scale), 1e-30f) * log2_e;  // not 0, for 0 x -inf is no exponent
    bool above = j == 0;                                         // is an exponent above the threshold?
#pragma unroll
    for (int a = 0; a < slices<d>; ++a) {
        if (masked || p.scale < 0) mask<d>(p, first_row + 16 * a, j, S[a]);
        for (int r = 0; r < 2; ++r) above |= lane_max<d>(S[a], r) * scale - m[a][r] > threshold;
    }
    if (__any_sync(~0u, above)) {
#pragma unroll
        for (int a = 0; a < slices<d>; ++a) rescale<d>(scale, j == 0, S[a], O[a], m[a], l[a]);
    }

    // P = exp(S scale - m), l += rowsum(P) over this lane's columns, O += P V
#pragma unroll
    for (int k = 0; k < Bc<d> / 8; k += 2) {
        std::uint32_t P[slices<d>][4], v[4];
#pragma unroll
        for (int c = 0; c < 4 * slices<d>; ++c) {
            const float *S_c = &S[c / 4][k + c % 4 / 2][c % 2 * 2], m_c = m[c / 4][c % 2];
            const float P_0 = fast_exp2(S_c[0] * scale - m_c), P_1 = fast_exp2(S_c[1] * scale - m_c);
            l[c / 4][c % 2] += P_0 + P_1;
            P[c / 4][c % 4] = pack<T>(P_0, P_1);
        }
#pragma unroll
        for (int n = 0; n < d; n += 16) {
            ldmatrix_transposed(v, &shared.V[place][8 * k + lane % 16][n + lane / 16 * 8]);
            for (int a = 0; a < slices<d>; ++a) {
                mma<T>(O[a][n / 8], P[a], v[0], v[1]);
                mma<T>(O[a][n / 8 + 1], P[a], v[2], v[3]);
            }
        }
    }
}

/// Writes O / l of a slice (rows g and g + 8) by way of `place`, 64 columns at a time, and L = m + log(l),
/// where l is the sum over the four lanes of a row.
template <class T, int d>
__device__ void write_slice(const Problem& p, int b, int h, int first_row, T (*place)[64 + pad],
                            const float (&O)[d / 8][4], const float (&m)[2], const float (&lane_l)[2]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float inverse_l[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = lane_l[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const int row = first_row + g + 8 * r;
        inverse_l[r] = l == 0.0f ? 0.0f : divide(1.0f, l);
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (row < p.Nq && t == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
#pragma unroll
    for (int c = 0; c < d; c += 64) {
#pragma unroll
        for (int n = 0; n < 16; ++n) {
            const float* pair = &O[c / 8 + n / 2][n % 2 * 2];
            store(reinterpret_cast<std::uint32_t*>(&place[g + n % 2 * 8][n / 2 * 8 + 2 * t]),
                  pack<T>(pair[0] * inverse_l[n % 2], pair[1] * inverse_l[n % 2]));
        }
        __syncwarp();  // the columns are there, whichever lane wrote them
#pragma unroll
        for (int n = lane / 8; n < 16; n += 4) {
            T* O_row = matrix<T>(p.O, b, h) + (first_row + n) * p.O.row + c + lane % 8 * 8;
            if (first_row + n < p.Nq) {
                store(reinterpret_cast<uint4*>(O_row),
                      load(reinterpret_cast<const uint4*>(&place[n][lane % 8 * 8])));
            }
        }
        __syncwarp();  // they have been read
    }
}

/// Asks for what a query tile begins with: each warp for its rows of Q, all for K and V, the block's tile n.
template <class T, int d>
__device__ void ask(Shared<T, d>& shared, const Problem& p, const QueryTile<d>& tile, int n) {
    const int first = 16 * slices<d> * (threadIdx.x / 32), h_kv = tile.h / (p.H / p.Hkv);
    const T* Q = matrix<T>(p.Q, tile.b, tile.h);
    load_tile<T, d, 16 * slices<d>, 32>(&shared.Q[first], Q, p.Q.row, tile.i * Br<d> + first, p.Nq);
    mbarrier_wait(&shared.K_read[n % 2], n / 2 - 1);  // the place is free
    load_tile<T, d, Bc<d>>(shared.K[n % 2], matrix<T>(p.K, tile.b, h_kv), p.K.row, 0, p.Nk);
    mbarrier_arrive_behind_copies(&shared.K_there[n % 2]);
    mbarrier_wait(&shared.V_read[n % 2], n / 2 - 1);
    load_tile<T, d, Bc<d>>(shared.V[n % 2], matrix<T>(p.V, tile.b, h_kv), p.V.row, 0, p.Nk);
    mbarrier_arrive_behind_copies(&shared.V_there[n % 2]);
}

/// Folds all key tiles into query tile i of a head. They come behind the `done` that the block had before.
/// If it stays, this is its q-th query tile, and the next one is returned.
template <class T, int d, bool causal, bool stays>
__device__ int take(Shared<T, d>& shared, const Problem& p, int b, int h, int i, int& done, int q,
                    int group) {
    const int h_kv = h / (p.H / p.Hkv);
    const int diagonal = p.causal ? i * Br<d> + p.Nk - p.Nq : p.Nk;  // the last key that row i * Br sees
    const int Tc = ceil_div(min(p.Nk, diagonal + Br<d>), Bc<d>);     // what the tile's last row sees

    if (done == 0 && Tc > 0) load_tile<T, d, Br<d>>(shared.Q, matrix<T>(p.Q, b, h), p.Q.row, i * Br<d>, p.Nq);
    if (done == 0 && threadIdx.x == 0) {
        for (int place = 0; place < 2; ++place) {
            mbarrier_init(&shared.K_there[place], threads<d>);
            mbarrier_init(&shared.V_there[place], threads<d>);
            mbarrier_init(&shared.K_read[place], threads<d>);
            mbarrier_init(&shared.V_read[place], threads<d>);
        }
        mbarrier_init(&shared.next_there, 32);
    }
    if (done == 0) __syncthreads();  // the mbarriers are set up
    const auto copy = [&](auto& ring, const View& X, int j, Mbarrier* there, Mbarrier* read) {
        if (j >= Tc) return;
        mbarrier_wait(&read[(done + j) % 2], (done + j) / 2 - 1);  // the place is free
        load_tile<T, d, Bc<d>>(ring[(done + j) % 2], matrix<T>(X, b, h_kv), X.row, j * Bc<d>, p.Nk);
        mbarrier_arrive_behind_copies(&there[(done + j) % 2]);
    };
    const auto has_read = [&](int j, Mbarrier* read) {
        __syncwarp();  // ldmatrix reads for the whole warp: all of it has before a lane says so
        mbarrier_arrive(&read[(done + j) % 2]);
    };

    const int warp = threadIdx.x / 32, own = 16 * slices<d> * warp, first_row = i * Br<d> + own;
    int next = 0, tiles = ceil_div(p.Nq, Br<d>) * p.B * p.H;
    float O[slices<d>][d / 8][4] = {}, m[slices<d>][2] = {}, l[slices<d>][2] = {};
    if (done == 0) {
        copy(shared.K, p.K, 0, shared.K_there, shared.K_read);  // K_there waits for the copies of Q, too
        copy(shared.V, p.V, 0, shared.V_there, shared.V_read);
    }
    // The last key that this warp's first row sees. At d = 64 and 128 a branch for it would cost more than it
    // saves.
    const int own_diagonal = d == 256 && causal ? first_row + p.Nk - p.Nq : diagonal;
    for (int j = 0; j < Tc; ++j) {
        const bool masked = (j + 1) * Bc<d> > min(p.Nk, own_diagonal + 1);
        note_tile(shared, b, h, i, j, masked);
        float S[slices<d>][Bc<d> / 8][4] = {};
        mbarrier_wait(&shared.K_there[(done + j) % 2], (done + j) / 2);  // Q and K, whoever copied them
        copy(shared.K, p.K, j + 1, shared.K_there, shared.K_read);
        const bool is_last = stays && j + 1 == Tc;
        if (is_last && warp == 0) {  // once for each query tile, and then the counter is 0 again
            const auto counter = static_cast<unsigned*>(p.workspace);
            if (threadIdx.x == 0) store(&shared.next[q % 2], int(gridDim.x + atomicInc(counter, tiles - 1)));
            __syncwarp();  // it is there before a lane says so
            mbarrier_arrive(&shared.next_there);
        }
        const bool sees = d < 256 || !causal || j * Bc<d> <= own_diagonal + 15;
        if (sees) score<T, d>(shared, done + j, S);
        has_read(j, shared.K_read);
        if (is_last) {
            mbarrier_wait(&shared.next_there, q);
            next = load(&shared.next[q % 2]);
            if (next < tiles) ask<T, d>(shared, p, QueryTile<d>(p, group, next), done + Tc);
        }
        mbarrier_wait(&shared.V_there[(done + j) % 2], (done + j) / 2);  // V is there
        copy(shared.V, p.V, j + 1, shared.V_there, shared.V_read);
        if (sees) fold<T, d>(shared, p, first_row, j, (done + j) % 2, masked, S, O, m, l);
        has_read(j, shared.V_read);
        note_lane_sums(first_row, m, l);
    }

    const auto place = d == 256 ? shared.O[warp] : reinterpret_cast<T(*)[64 + pad]>(shared.Q[own]);
#pragma unroll
    for (int a = 0; a < slices<d>; ++a) {
        write_slice<T, d>(p, b, h, first_row + 16 * a, place, O[a], m[a], l[a]);
    }
    done += Tc;
    return next;
}

/// One query tile per block.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(threads<d>, 8 / warps<d>)
    attention(const Problem p, [[maybe_unused]] int group_bits) {
    int i = blockIdx.x, h = blockIdx.y;
    if constexpr (causal) {  // 2^group_bits heads together: the last query tile of each, then the one before
        i = (gridDim.x - 1 - blockIdx.x) >> group_bits;
        h = (blockIdx.y << group_bits) + (blockIdx.x & ((1 << group_bits) - 1));
        if (h >= p.H) return;
    }
    int done = 0;
    take<T, d, causal, false>(shared_memory<Shared<T, d>>(), p, blockIdx.z, h, i, done, 0, 0);
}

/// As many query tiles per block as it gets to.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(threads<d>, 1) attention_in_line(const Problem p, int group) {
    auto& shared = shared_memory<Shared<T, d>>();
    const int tiles = ceil_div(p.Nq, Br<d>) * p.B * p.H;
    for (int r = blockIdx.x, q = 0, done = 0; r < tiles; ++q) {
        const QueryTile<d> tile(p, group, r);
        r = take<T, d, causal, true>(shared, p, tile.b, tile.h, tile.i, done, q, group);
    }
}

template <class T, int d>
void forward(const Problem& p) {
    const int Tr = ceil_div(p.Nq, Br<d>);
    if constexpr (d == 256) {
        if (p.Nk <= few_keys && (!p.causal || p.Nq <= p.Nk)) {  // and each query tile sees a key
            const int heads = p.B * p.H, tiles = Tr * heads;    // a group has three for each block, or more
            const int group = p.causal ? ceil_div(heads, max(1, tiles / (3 * p.sm_count))) : 1;
            const auto kernel = p.causal ? attention_in_line<T, d, true> : attention_in_line<T, d, false>;
            return launch(kernel, min(tiles, p.sm_count), threads<d>, sizeof(Shared<T, d>), p, group);
        }
    }
    int group_bits = 0;  // enough blocks for about two rounds; more heads would not share the L2 cache
    while (p.causal && 1 << group_bits < p.H && Tr << group_bits < 3 * p.sm_count) ++group_bits;
    const dim3 grid(Tr << group_bits, ceil_div(p.H, 1 << group_bits), p.B);
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, grid, threads<d>, sizeof(Shared<T, d>), p, group_bits);
}

std::size_t counter_bytes(const Shape& s, int) {
    return s.d == 256 && s.Nk <= few_keys ? sizeof(unsigned) : 0;
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 29, .name = "no_pause", .parent = 28,
             .change = "d = 256, few keys: the next query tile is asked for before this one ends",
             .shows_in = "wide", .workspace_bytes = counter_bytes, .counter_bytes = counter_bytes);

}  // namespace
