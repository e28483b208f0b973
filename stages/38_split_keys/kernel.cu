// Stage 38: split keys. Blocks take even shares of the key tiles of all query tiles; where a query tile is
// shared, a second kernel merges its parts.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr int merge_threads = 128;
constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d == 64 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 40;
    static constexpr int consumer_registers = groups == 3 ? 160 : 232;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = 128;
    static constexpr int depth = d == 64 ? 6 : 3;  // slots of K and V, with the room of 36's second Q and O
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T Q[Tile<d>::groups][d / 64][64][64];
    alignas(1024) T K[Tile<d>::depth][d / 64][Tile<d>::Bc][64];  // tile k of the block is in slot k % depth
    alignas(1024) T V[Tile<d>::depth][d / 64][Tile<d>::Bc][64];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read tile k
};

struct Maps {
    TensorMap K, V;
};

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

/// What each block takes of the query tiles, which are numbered through all heads: an even share of the key
/// tiles (Tc each) of the first `rest`, then the whole tiles rest + block, rest + block + blocks, ...
struct Shares {
    int Br, Tr, Tc, tiles, blocks, rest, least, more;

    /// Even blocks are equally many for each query tile. Sharing keeps all resident blocks busy, but parts
    /// must be merged. `most` of the blocks take nearly all of the memory bandwidth: if so many are busy
    /// without sharing, also in the last wave of query tiles, the others stay idle.
    Shares(const Shape& s, int resident)
        : Br(s.d == 64 ? Tile<64>::Br : Tile<128>::Br),
          Tr(ceil_div(PackedRow::count(s), Br)),
          Tc(ceil_div(s.Nk, Tile<128>::Bc)) {
        tiles = s.B * s.Hkv * Tr;
        const auto most = [resident](int busy) { return 8 * busy >= 7 * resident; };
        const int even_blocks = tiles > resident ? resident : tiles * min(Tc, resident / tiles);
        const bool worth_sharing = tiles * Tc >= 16 * resident;  // 16 key tiles for each block
        blocks = worth_sharing && !most(even_blocks) ? resident : even_blocks;
        rest = tiles % blocks;
        if (rest * Tc < blocks || most(rest)) rest = 0;         // too few, or so many that most are busy
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

/// The parts of query tile r < rest: a block's second is of a query tile that begins in its share. Workspace:
/// O (2 blocks, Br, d), not divided by l, and m and l (2 blocks, Br, 2).
struct Parts {
    float *O, *m_l;
    int block, splits;  // the first of the blocks, and their number

    __device__ Parts(const Problem& p, const Shares& shares, int r) : O(static_cast<float*>(p.workspace)) {
        m_l = O + std::int64_t{2} * shares.blocks * shares.Br * p.d;
        const std::int64_t first = std::int64_t{r} * shares.Tc, all = max(1, shares.rest * shares.Tc);
        block = ((first + 1) * shares.blocks - 1) / all;
        splits = ((first + shares.Tc) * shares.blocks - 1) / all - block + 1;
    }
    /// Row k of part s, counted through all parts
    __device__ int row(const Shares& shares, int s, int k) const {
        return (2 * (block + s) + (s == 0)) * shares.Br + k;
    }
};

/// Copies packed rows first .. first + 63 of Q into the tile of this warpgroup. Rows past the last become 0.
template <class T, int d>
__device__ void load_queries(T (&tile)[d / 64][64][64], const Problem& p, int b, int h_kv, int first) {
    for (int n = threadIdx.x % 128; n < 64 * d / 8; n += 128) {
        const int row = n / (d / 8), column = n % (d / 8) * 8;
        const bool valid = first + row < PackedRow::count(p);
        const auto [h, i] = PackedRow(p, h_kv, valid ? first + row : 0);
        copy_async(&tile[column / 64][row][column % 64 ^ row % 8 * 8],
                   matrix<T>(p.Q, b, h) + i * p.Q.row + column, valid);
    }
    copy_wait();
    fence_proxy_async();
    // The tile is complete, whichever thread wrote it. And all warpgroups have finished the last query tile:
    // one that skipped key tiles must know that their phases are over, since a wait only names a parity.
    named_barrier_sync(8, 128 * Tile<d>::groups);
}

/// Turns the scores S (64, Bc) of a warpgroup with key tile j into exponents S scale - m, with -inf where
/// masked. Lanes hold rows g and g + 8 of their warp's 16.
template <int d, int Bc = Tile<d>::Bc>
__device__ void shift(const Problem& p, int first_row, int j, bool masked, float (&S)[Bc / 2],
                      const float (&m)[2]) {
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c] = S[c] * scale - m[row_of(c)];
    if (masked) {
        const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        int end[2];  // the first of this lane's columns that the row does not see
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = (first_row + 16 * warp + g + 8 * r) / (p.H / p.Hkv);
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

/// Raises m to the maximum of its row, and rescales S and l to it; the caller multiplies O by alpha. The
/// first tile sets m, even to less than 0.
template <int n>
__device__ void rescale(bool first, float (&S)[n], float (&alpha)[2], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
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

/// S = Q K^T, (64, Bc) for this warpgroup (algorithm 1, line 8). Starts it: S is complete after a wait.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void score(const T (&Q)[d / 64][64][64], const T (&K)[d / 64][Bc][64], float (&S)[Bc / 2]) {
    const Descriptor q = matrix_descriptor(Q), k = matrix_descriptor(K);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < d; c += 16) {
        wgmma<T, Bc, false>(S, q.column<64>(c), k.column<Bc>(c), c > 0);
    }
    wgmma_commit();
}

/// Starts O += P V.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 4], const T (&V)[d / 64][Bc][64],
                            float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V, Bc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc; k += 16) wgmma<T, d, true>(O, &P[k / 4], v.row(k), true);
    wgmma_commit();
}

/// S becomes P = exp(S - m), l += rowsum(P) over this lane's columns.
template <int n>
__device__ void exponentiate(float (&S)[n], float (&l)[2]) {
#pragma unroll
    for (int c = 0; c < n; ++c) {
        S[c] = fast_exp2(S[c]);
        l[row_of(c)] += S[c];
    }
}

/// P as the A operand of P V: a lane's accumulators of S are its elements of that operand.
template <class T, int n>
__device__ void convert(const float (&S)[n], std::uint32_t (&P)[n / 2]) {
#pragma unroll
    for (int c = 0; c < n / 2; ++c) P[c] = pack<T>(S[2 * c], S[2 * c + 1]);
}

/// The sum of l over the four lanes of a row.
__device__ float row_sum(float l) {
    l += __shfl_xor_sync(~0u, l, 1);
    return l + __shfl_xor_sync(~0u, l, 2);
}

/// Writes O / l of the warp's 16 rows, and L = m + log(l).
template <class T, int d>
__device__ void write_rows(const Problem& p, int b, int h_kv, int first_row, const float (&O)[d / 2],
                           const float (&m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float l = row_sum(lane_l[r]);
        const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);
        const int row = first_row + 16 * warp + g + 8 * r;
        if (row >= PackedRow::count(p)) continue;
        const auto [h, i] = PackedRow(p, h_kv, row);
        T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * t;
#pragma unroll
        for (int c = 2 * r; c < d / 2; c += 4)
            store_pair(O_row + 2 * (c - 2 * r), O[c] * inverse_l, O[c + 1] * inverse_l);
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + i;
        if (t == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
}

/// Writes O, m and l of the warp's 16 rows to a part, in fp32.
template <int d>
__device__ void write_part(const Problem& p, const Parts& parts, int part_row, int first_row,
                           const float (&O)[d / 2], const float (&m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float l = row_sum(lane_l[r]);
        const int row = 16 * warp + g + 8 * r;
        if (first_row + row >= PackedRow::count(p)) continue;
        float* O_row = parts.O + std::int64_t{part_row + row} * d + 2 * t;
#pragma unroll
        for (int c = 2 * r; c < d / 2; c += 4) store_pair(O_row + 2 * (c - 2 * r), O[c], O[c + 1]);
        if (t == 0) store_pair(parts.m_l + 2 * (part_row + row), l == 0.0f ? -inf : m[r], l);
    }
}

/// A block computes parts of query tiles. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: copies K and V of each key tile of the block's share. Consumers copy Q.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L, or a part for merge().
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does.
template <class T, int d>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps maps, const Shares shares) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], groups);
            mbarrier_init(&shared.V_empty[slot], groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    // Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows
    const int count = PackedRow::count(p), group_size = p.H / p.Hkv;
    const auto key_tiles = [&](int first_row, int rows) {
        const int end = p.causal ? ceil_div(min(count, first_row + rows), group_size) + p.Nk - p.Nq : p.Nk;
        return first_row >= count ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
    };
    const int begin = shares.begin(blockIdx.x), end = shares.begin(blockIdx.x + 1), Tr = shares.Tr;
    // Calls take() for each query tile that this block works on, with its number among all; batch entry, head
    // and number there; and key tiles first .. last - 1.
    const auto for_each_tile = [&](auto take) {
        for (int r = begin < end ? begin / shares.Tc : shares.rest + blockIdx.x; r < shares.tiles;
             r = shares.next_tile(blockIdx.x, r)) {
            const int first = r < shares.rest ? max(begin - r * shares.Tc, 0) : 0;
            const int last = r < shares.rest ? min(end - r * shares.Tc, shares.Tc) : shares.Tc;
            take(r, r / Tr / p.Hkv, r / Tr % p.Hkv, r % Tr, first, last);
        }
    };
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
        if (threadIdx.x > 0) return;
        int k = 0;  // key tiles so far
        for_each_tile([&](int, int b, int h_kv, int i, int first, int last) {
            const int Tc = min(last, key_tiles(i * Br, Br));
            int own_Tc[groups];
            for (int g = 0; g < groups; ++g) own_Tc[g] = key_tiles(i * Br + 64 * g, 64);
            const auto copy = [&](auto& ring, const TensorMap& map, int j, Mbarrier* full, Mbarrier* empty) {
                const int slot = (k + j) % depth;
                mbarrier_try_wait(&empty[slot], (k + j) / depth - 1);  // tile k + j - depth has been read
                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&empty[slot]);
                }
            };
            k -= first;
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = first; j < Tc; ++j) {
                copy(shared.K, maps.K, j, shared.K_full, shared.K_empty);
                copy(shared.V, maps.V, j, shared.V_full, shared.V_empty);
            }
            k += max(first, Tc);
        });
        return;
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1;
    const auto wait_turn = [&] { named_barrier_sync(1 + g, 256); };
    const auto pass_turn = [&] { named_barrier_arrive(1 + (g + 1) % groups, 256); };  // the next warpgroup's
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    int k = 0;
    for_each_tile([&](int tile, int b, int h_kv, int i, int first, int last) {
        const int first_row = i * Br + 64 * g, Tc = min(last, key_tiles(first_row, 64)),
                  block_Tc = min(last, key_tiles(i * Br, Br));
        k -= first;
        const int unmasked =  // keys that all rows see
            min(p.Nk, p.causal ? first_row / group_size + p.Nk - p.Nq + 1 : p.Nk);
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h_kv, first_row, j, masked, group_size);
            shift<d>(p, first_row, j, masked, S, m);
            const bool above = (j == first) | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == first, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<T, d>(shared.Q[g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<T, d>(P, shared.V[(k + j) % depth], O);
        };
        load_queries<T, d>(shared.Q[g], p, b, h_kv, first_row);
        if (first < Tc) {
            start_scores(first);
            wgmma_wait<0>(S);
            release(first, shared.K_empty);
            softmax(first);
            convert<T>(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
            for (int j = first + 1; j < Tc; ++j) {
                wait_turn();
                start_scores(j);
                start_product(j - 1);
                pass_turn();
                wgmma_wait<1>(S);
                release(j, shared.K_empty);
                const bool rises = softmax(j);  // P V of the previous tile may still run
                wgmma_wait<0>(O);
                fence_operand(P);
                release(j - 1, shared.V_empty);
                convert<T>(S, P);
                if (rises) {
#pragma unroll
                    for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
                }
            }
            start_product(Tc - 1);
            wgmma_wait<0>(O);
            fence_operand(P);
            release(Tc - 1, shared.V_empty);
        }
        for (int j = max(first + 1, Tc); j < block_Tc; ++j) wait_turn(), pass_turn();  // that others see
        if (last - first == shares.Tc) {
            write_rows<T, d>(p, b, h_kv, first_row, O, m, l);
        } else {
            const Parts parts(p, shares, tile);
            write_part<d>(p, parts, parts.row(shares, blockIdx.x - parts.block, 64 * g), first_row, O, m, l);
        }
        k += max(first, block_Tc);
    });
}

/// Merges the parts of the query tiles that are shared, as if each were a key tile: m is the largest m_s, l
/// the sum of exp(m_s - m) l_s, and O likewise. A warp per row, a lane for d / 32 columns. Parts come 16 at a
/// time: none of their loads waits for another.
template <class T, int d>
__global__ void __launch_bounds__(merge_threads) merge(const Problem p, const Shares shares) {
    const int warp = (blockIdx.x * merge_threads + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int r = warp / shares.Br, k = warp % shares.Br, row = r % shares.Tr * shares.Br + k;
    if (r >= shares.rest || row >= PackedRow::count(p)) return;
    const Parts parts(p, shares, r);
    if (parts.splits == 1) return;  // it is no part
    const int b = r / shares.Tr / p.Hkv;
    const auto [h, i] = PackedRow(p, r / shares.Tr % p.Hkv, row);
    float m = -inf, l = 0.0f;
    float2 O[d / 64] = {};  // columns 2 lane and 2 lane + 1 of each 64
    for (int first = 0; first < parts.splits; first += 16) {
        float2 m_l[16], O_s[16][d / 64];
        const float m_old = m;
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const bool valid = first + s < parts.splits;
            const int part = parts.row(shares, first + s, k);
            m_l[s] = valid ? load_pair(parts.m_l + 2 * part) : float2{-inf, 0.0f};
            m = fmaxf(m, m_l[s].x);
#pragma unroll
            for (int n = 0; n < d / 64; ++n) {
                O_s[s][n] =
                    valid ? load_pair(parts.O + std::int64_t{part} * d + 64 * n + 2 * lane) : float2{};
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

template <class T, int d>
void forward(const Problem& p) {
    const Maps maps = {
        tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
    };
    const Shares shares(p, p.sm_count);
    launch(attention<T, d>, dim3(shares.blocks), Tile<d>::threads, sizeof(Shared<T, d>), p, maps, shares);
    const int rows = shares.rest * shares.Br;
    if (rows > 0) launch(merge<T, d>, dim3(ceil_div(rows, merge_threads / 32)), merge_threads, 0, p, shares);
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    const Shares shares(s, sm_count);
    return shares.rest > 0 ? std::size_t(2) * shares.blocks * shares.Br * (s.d + 2) * sizeof(float) : 0;
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(
    forward, Dims, .number = 38, .name = "split_keys", .parent = 37,
    .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 6}, {128, 128, 3}),
    .change = "even shares of the keys for all blocks; a second kernel merges the parts of a query tile",
    .shows_in = "draft", .diff_budget = 185, .most_lines = 500,  // merges in a second kernel
    .batch_invariant = false, .rounds_large_scores = true, .workspace_bytes = workspace_bytes);

}  // namespace
