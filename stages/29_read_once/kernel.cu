// Stage 29: read once. Q, K and V come in 16 bits, and one kernel rounds them to e4m3, with one scale per
// head. Its blocks all run at once: they hold their rows in shared memory until their head's scale is known.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float largest_e4m3 = 448.0f;
constexpr float top = 5.0f;    // exponent of a row's largest P when m is set: e4m3 has few numbers below 1
constexpr float limit = 8.0f;  // O is rescaled only when P would exceed 2^8: e4m3 ends at 448

using e4m3x2 = std::uint16_t;  // two elements: what tensor maps and descriptors count

// Sizes of the kernel that quantizes: six blocks of an SM hold 192 KB in shared memory.
constexpr int quantizing_threads = 256, quantizing_blocks = 6, part_elements = 16384;

constexpr int transposing_warps = 3;  // the producer's warps 1 to 3

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d <= 128 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 24;
    static constexpr int consumer_registers = groups == 3 ? 160 : 240;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d == 128 ? 64 : 128;  // O, S and P of 128 keys at d = 128: 144 registers of 160
    static constexpr bool turns = d <= 128;         // at d = 256 exponentials take a small part of the time
    static constexpr int depth = d <= 128 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int V_slots = 2;               // of panels of V as they arrive
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
    static constexpr int part_rows = part_elements / d;
};

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    using Sizes = Tile<d>;
    static constexpr int panels = ceil_div(d, 128);  // at d = 64, half of a row is padding
    alignas(1024) e4m3x2 Q[Sizes::Q_slots][Sizes::groups][panels][64][64];
    alignas(1024) e4m3x2 K[Sizes::depth][panels][Sizes::Bc][64];    // tile k is in slot k % depth
    alignas(1024) e4m3x2 V[Sizes::depth][d][64];                    // transposed: rows of Bc keys
    alignas(1024) e4m3x2 V_rows[Sizes::V_slots][Sizes::Bc][64];     // a panel as it arrives
    alignas(1024) T O[4 * Sizes::groups][Sizes::O_panels][16][64];  // rows that a warp is about to store
    TileIndex tile[Sizes::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Sizes::Q_slots], Q_empty[Sizes::Q_slots];
    Mbarrier K_full[Sizes::depth], V_full[Sizes::depth];             // phase k / depth: tile k has arrived
    Mbarrier K_empty[Sizes::depth], V_empty[Sizes::depth];           // phase k / depth: all have read tile k
    Mbarrier rows_full[Sizes::V_slots], rows_empty[Sizes::V_slots];  // of V_rows
};

#include "stages/70_fp8_products/tile_order.cuh"

/// Tensor maps of Q, K, the panels of V and O.
template <int d>
struct PanelMaps {
    TensorMap Q, K, V[ceil_div(d, 128)], O;
};

/// What the workspace holds. `scales`, `largest` and `ready` are of the heads of Q, then of K, then of V.
struct Quantized {
    std::uint8_t *Q, *K, *V;  // (B, H, Nq, d), (B, Hkv, Nk, d)
    float* scales;            // (heads): an element is its 8-bit number times its scale
    float* largest;           // (heads, parts): |element| of each part
    unsigned* taken;          // of TileOrder
    unsigned* ready;          // (heads): the parts whose largest element is known; 0 before and after a call
    int Q_parts, KV_parts;    // of a head

    Quantized(const Shape& s, void* workspace, int sm_count) {
        const std::int64_t Q_heads = s.B * s.H, KV_heads = s.B * s.Hkv, heads = Q_heads + 2 * KV_heads;
        Q = static_cast<std::uint8_t*>(workspace);
        K = Q + Q_heads * s.Nq * s.d;
        V = K + KV_heads * s.Nk * s.d;
        scales = reinterpret_cast<float*>(V + KV_heads * s.Nk * s.d);
        largest = scales + heads;
        Q_parts = std::min(sm_count * quantizing_blocks, ceil_div(s.Nq, part_elements / s.d));
        KV_parts = std::min(sm_count * quantizing_blocks, ceil_div(s.Nk, part_elements / s.d));
        taken = reinterpret_cast<unsigned*>(largest + Q_heads * Q_parts + 2 * KV_heads * KV_parts);
        ready = taken + 1;
    }
    /// Of all heads
    __host__ __device__ int parts(const Shape& s) const {
        return s.B * (s.H * Q_parts + 2 * s.Hkv * KV_parts);
    }

    /// The same problem with Q, K and V in e4m3.
    Problem of(Problem p) const {
        const auto rows = [&](std::uint8_t* X, int heads, std::int64_t N) {
            return View{X, heads * N * p.d, N * p.d, p.d};
        };
        p.Q = rows(Q, p.H, p.Nq), p.K = rows(K, p.Hkv, p.Nk), p.V = rows(V, p.Hkv, p.Nk);
        p.Q_scales = scales, p.K_scales = scales + p.B * p.H, p.V_scales = p.K_scales + p.B * p.Hkv;
        return p;
    }
};

/// A head of Q, K or V in 16 bits, and where its 8-bit copy goes.
template <class T>
struct Head {
    const T* rows;
    std::int64_t stride;
    int N;
    std::uint8_t* to;

    /// The n-th head, counting those of Q, then of K, then of V.
    __device__ static Head at(const Problem& p, const Quantized& to, int n) {
        const int Q_heads = p.B * p.H, KV_heads = p.B * p.Hkv;
        const bool is_Q = n < Q_heads, is_V = n >= Q_heads + KV_heads;
        const View& X = is_Q ? p.Q : is_V ? p.V : p.K;
        const int N = is_Q ? p.Nq : p.Nk, heads = is_Q ? p.H : p.Hkv;
        if (!is_Q) n -= is_V ? Q_heads + KV_heads : Q_heads;
        return {matrix<T>(X, n / heads, n % heads), X.row, N,
                (is_Q   ? to.Q
                 : is_V ? to.V
                        : to.K) +
                    std::int64_t{n} * N * p.d};
    }
};

/// What a block that quantizes holds.
template <class T>
struct Part {
    alignas(16) T elements[part_elements];
    float largest[quantizing_threads / 32];  // of each warp
};

/// Brings rows of a head to shared memory, those past the end as zeros; returns the largest absolute value of
/// a thread's share. Each thread reads what it has copied itself.
template <class T, int d>
__device__ float load_part(Part<T>& part, const Head<T>& head, int first) {
    constexpr int step = 8 * quantizing_threads;
#pragma unroll 2  // more addresses would not fit in 40 registers
    for (int i = 8 * threadIdx.x; i < part_elements; i += step) {
        const int row = first + i / d;
        copy_async<Reads::once>(&part.elements[i], head.rows + row * head.stride + i % d, row < head.N);
    }
    copy_wait();
    float largest = 0.0f;
    for (int i = 8 * threadIdx.x; i < part_elements; i += step) {
        const auto four = load(reinterpret_cast<const uint4*>(&part.elements[i]));
        for (const std::uint32_t pair : {four.x, four.y, four.z, four.w}) {
            const float2 both = unpack<T>(pair);
            largest = fmaxf(largest, fmaxf(fabsf(both.x), fabsf(both.y)));
        }
    }
    return largest;
}

/// Rounds these rows, times a number, to e4m3.
template <class T, int d>
__device__ void store_part(const Part<T>& part, const Head<T>& head, int first, float inverse) {
    for (int i = 8 * threadIdx.x; i < part_elements; i += 8 * quantizing_threads) {
        const int row = first + i / d;
        if (row >= head.N) break;
        const auto four = load(reinterpret_cast<const uint4*>(&part.elements[i]));
        const float2 a = unpack<T>(four.x), b = unpack<T>(four.y), c = unpack<T>(four.z),
                     e = unpack<T>(four.w);
        store(reinterpret_cast<uint2*>(head.to + std::int64_t{row} * d + i % d),
              uint2{pack_e4m3(a.x * inverse, a.y * inverse, b.x * inverse, b.y * inverse),
                    pack_e4m3(c.x * inverse, c.y * inverse, e.x * inverse, e.y * inverse)});
    }
}

/// The largest x of a warp.
__device__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

/// Rounds Q, K and V to e4m3, in units of their head's scale: its largest element becomes 448. Blocks take
/// the parts of all heads in order, and hold a part in shared memory while they wait for the head's other
/// parts. These are no more than the blocks, which all run at once, so a block never waits for a part that it
/// takes later. If a head has more rows than that, its parts are larger, and all rows but the first of each
/// are read again. A NaN is no largest element; rounding keeps it.
template <class T, int d>
__global__ void __launch_bounds__(quantizing_threads, quantizing_blocks)
    quantize(const Problem p, const Quantized to) {
    auto& shared = shared_memory<Part<T>>();
    const int Q_heads = p.B * p.H, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    let_next_kernel_start();  // as these blocks end, it finds room
    for (int n = blockIdx.x; n < to.parts(p); n += gridDim.x) {
        const int k = n - Q_heads * to.Q_parts, parts = k < 0 ? to.Q_parts : to.KV_parts;
        const int number = k < 0 ? n / parts : Q_heads + k / parts, part = (k < 0 ? n : k) % parts;
        const auto head = Head<T>::at(p, to, number);
        const int first = part * Tile<d>::part_rows, step = parts * Tile<d>::part_rows;
        float largest = 0x1p-100f;  // its reciprocal is finite in fp32
#pragma unroll 1
        for (int row = first + (head.N - 1) / step * step; row >= 0; row -= step) {
            largest =
                fmaxf(largest, load_part<T, d>(shared, head, row));  // at last the first rows, which stay
        }
        largest = warp_max(largest);
        if (lane == 0) store(&shared.largest[warp], largest);
        __syncthreads();  // all warps' largest elements are known
        if (threadIdx.x == 0) {
            for (const float& of_warp : shared.largest) largest = fmaxf(largest, load(&of_warp));
            store(&to.largest[n], largest);
            raise_count(&to.ready[number]);
            wait_for_count(&to.ready[number], parts);
        }
        __syncthreads();  // all parts' largest elements are known
#pragma unroll 1
        for (int i = lane; i < parts; i += 32) largest = fmaxf(largest, load(&to.largest[n - part + i]));
        largest = warp_max(largest);
        if (part == 0 && threadIdx.x == 0) store(&to.scales[number], divide(largest, largest_e4m3));
        const float inverse = divide(largest_e4m3, largest);
#pragma unroll 1
        for (int row = first; row < head.N; row += step) {
            if (row > first) load_part<T, d>(shared, head, row);
            store_part<T, d>(shared, head, row, inverse);
        }
    }
}

#include "stages/70_fp8_products/softmax.cuh"

#include "stages/70_fp8_products/score.cuh"

/// Transposes a warp's share of a panel of V: 16 columns at a time become 16 rows. To ldmatrix, two adjacent
/// columns are one 16-bit element: lane 4 g + t gets columns 2 g and 2 g + 1 of keys 2 t and 2 t + 1, and in
/// the next register those of keys 2 t + 8 and 2 t + 9. A column's bytes of both are four keys in the order
/// of key_at. Lanes with g < 4 take column 2 g first, others 2 g + 1: any 8 rows that stmatrix writes
/// together differ modulo 8, so that their pieces lie in different banks.
template <int columns, int Bc>
__device__ void transpose(int warp, const e4m3x2 (&rows)[Bc][64], e4m3x2 (*V)[64]) {
    const int lane = threadIdx.x % 32;
    const unsigned first = lane < 16 ? 0x6420 : 0x7531, second = first ^ 0x1111;  // a column's bytes
    const int row = lane % 8 * 2 + (lane / 4 % 2 ^ lane / 16);  // of 16, the one that stmatrix writes
#pragma unroll 1                                                // few registers are left to these warps
    for (int c = 8 * (warp - 1); c < columns / 2; c += 8 * transposing_warps) {
#pragma unroll 1
        for (int key = 0; key < Bc; key += 64) {
            std::uint32_t r[2][4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                ldmatrix_transposed(r[n], &rows[key + 32 * n + lane][c ^ lane % 8 * 8]);
            }
            __syncwarp();  // to ptxas: the second read starts before the first result is written
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                stmatrix(&V[2 * c + row][(key / 16 + 2 * n + lane / 8 % 2) * 8 ^ row % 8 * 8],
                         {__byte_perm(r[n][0], r[n][1], first), __byte_perm(r[n][2], r[n][3], first),
                          __byte_perm(r[n][0], r[n][1], second), __byte_perm(r[n][2], r[n][3], second)});
            }
        }
    }
}

/// Starts O += P V.
template <int d, int Bc = Tile<d>::Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 8], const e4m3x2 (&V)[d][64], float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc; k += 32) wgmma_e4m3<d>(O, &P[k / 8], v.column<d>(k / 2), true);
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

#include "stages/70_fp8_products/write_rows.cuh"

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies Q, then K and V of each key tile, into three rings.
/// - Transposing warps: rewrite V from a slot of `V_rows` into a slot of V, with its keys along the rows.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does,
/// or for V a transposing warp.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ PanelMaps<d> maps, const TileOrder order,
              unsigned* ready) {
    using Sizes = Tile<d>;
    constexpr int groups = Sizes::groups, Br = Sizes::Br, Bc = Sizes::Bc, depth = Sizes::depth;
    constexpr int Q_slots = Sizes::Q_slots, V_slots = Sizes::V_slots, panels = ceil_div(d, 128);
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], Sizes::threads - 32);  // all that read `tile` arrive
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], transposing_warps);
            mbarrier_init(&shared.K_empty[slot], groups);
            mbarrier_init(&shared.V_empty[slot], groups);
        }
        for (int slot = 0; slot < V_slots; ++slot) {
            mbarrier_init(&shared.rows_full[slot], 1);
            mbarrier_init(&shared.rows_empty[slot], transposing_warps);
        }
        mbarrier_fence_init();
    }
    __syncthreads();             // the mbarriers are set up
    wait_for_previous_kernel();  // Q, K and V are in e4m3
    for (int n = threadIdx.x; blockIdx.x == 0 && n < p.B * (p.H + 2 * p.Hkv); n += Sizes::threads) {
        store(&ready[n], 0u);
    }
    // Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows
    const auto key_tiles = [&](int first_row, int rows) {
        const int end = p.causal ? min(p.Nq, first_row + rows) + p.Nk - p.Nq : p.Nk;
        return first_row >= p.Nq ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
    };
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Sizes::producer_registers>();
        const int warp = uniform(threadIdx.x / 32);
        for (int k = 0, q = 0; warp > 0; ++q) {  // transposes the tiles that the producer's thread copies
            mbarrier_try_wait(&shared.Q_full[q % Q_slots], q / Q_slots);
            const TileIndex tile = load(&shared.tile[q % Q_slots]);
            if (tile.batch < 0) return;
            mbarrier_arrive(&shared.Q_empty[q % Q_slots]);
            const int first_row = tile.tile * Br, end = uniform(k + key_tiles(first_row, Br));
            // Warp 1 + g releases the tiles that warpgroup g does not see.
            const int seen = warp > groups ? end : k + key_tiles(first_row + 64 * (warp - 1), 64);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (; k < end; ++k) {
                const int slot = k % depth;
                mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);  // tile k - depth has been read
                for (int panel = 0; panel < panels; ++panel) {
                    const int n = panels * k + panel, rows_slot = n % V_slots;
                    mbarrier_try_wait(&shared.rows_full[rows_slot], n / V_slots);
                    transpose<d / panels>(warp, shared.V_rows[rows_slot], shared.V[slot] + 128 * panel);
                    fence_proxy_async();  // for wgmma, what stmatrix has written
                    __syncwarp();         // all lanes have read and written
                    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.rows_empty[rows_slot]);
                }
                if (threadIdx.x % 32 > 0) continue;
                mbarrier_arrive(&shared.V_full[slot]);
                if (k >= seen) mbarrier_arrive(&shared.V_empty[slot]);
            }
        }
        if (threadIdx.x > 0) return;
        // Query tile q of this block is number n of all, and k key tiles come before its own.
        for (int k = 0, q = 0, n = blockIdx.x;; ++q) {
            const int Q_slot = q % Q_slots;
            mbarrier_try_wait(&shared.Q_empty[Q_slot], q / Q_slots - 1);
            if (n >= order.total) {
                store(&shared.tile[Q_slot], TileIndex{-1, 0, 0});
                mbarrier_arrive(&shared.Q_full[Q_slot]);
                return;
            }
            const TileIndex tile = order.at<causal>(p, n);
            store(&shared.tile[Q_slot], tile);
            const int b = tile.batch, h = tile.head, i = tile.tile, h_kv = h / (p.H / p.Hkv),
                      Tc = key_tiles(i * Br, Br);
            int own_Tc[groups];
            for (int g = 0; g < groups; ++g) own_Tc[g] = key_tiles(i * Br + 64 * g, 64);
            const auto copy = [&](auto& ring, const TensorMap& map, int slots, int number, int j,
                                  Mbarrier* full, Mbarrier* empty) {
                const int slot = number % slots;  // of this copy, by its number in the ring
                mbarrier_try_wait(&empty[slot], number / slots - 1);  // number - slots has been read
                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
            };
            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
            }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = 0; j < Tc; ++j) {
                copy(shared.K, maps.K, depth, k + j, j, shared.K_full, shared.K_empty);
                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&shared.K_empty[(k + j) % depth]);
                }
                for (int panel = 0; panel < panels; ++panel) {
                    copy(shared.V_rows, maps.V[panel], V_slots, panels * (k + j) + panel, j, shared.rows_full,
                         shared.rows_empty);
                }
            }
            k += Tc;
            n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
        }
    }

    claim_registers<Sizes::consumer_registers>();
    const int g = group - 1, lane = threadIdx.x % 32;
    const auto wait_turn = [&] {
        if (Sizes::turns) named_barrier_sync(1 + g, 256);
    };
    const auto pass_turn = [&] {  // the next warpgroup's
        if (Sizes::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const int h_kv = b * p.Hkv + h / (p.H / p.Hkv);  // of all
        const float scale_S = load(p.Q_scales + b * p.H + h) * load(p.K_scales + h_kv);
        const int first_row = i * Br + 64 * g, Tc = key_tiles(first_row, 64),
                  block_Tc = key_tiles(i * Br, Br);
        const int unmasked = min(p.Nk, p.causal ? first_row + p.Nk - p.Nq + 1 : p.Nk);  // keys all rows see
        const auto release = [&](Mbarrier& empty) {  // after the wait for the product that read the slot
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 8];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h, first_row, j, masked);
            shift<d, Bc>(p, p.scale * log2_e * scale_S, first_row, j, masked, S, m);  // in base 2
            const bool above = (j == 0) | (positive_max(S) > limit);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == 0, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<d>(P, shared.V[(k + j) % depth], O);
        };
        if (Tc == 0) {  // no rows
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            k += block_Tc;
            continue;
        }
        start_scores(0);
        wgmma_wait<0>(S);
        release(shared.K_empty[k % depth]);
        softmax(0);
        convert(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int j = 1; j < Tc; ++j) {
            wait_turn();
            start_scores(j);
            start_product(j - 1);
            pass_turn();
            wgmma_wait<1>(S);
            release(shared.K_empty[(k + j) % depth]);
            const bool rises = softmax(j);  // P V of the previous tile may still run
            wgmma_wait<0>(O);
            fence_operand(P);
            release(shared.V_empty[(k + j - 1) % depth]);
            convert(S, P);
            if (rises) {
#pragma unroll
                for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
            }
        }
        start_product(Tc - 1);
        // After the last V has arrived: a warpgroup that leaves tiles out waits for none of their phases
        // itself. With its next Q it must know that all of them are complete, since it waits by parity.
        mbarrier_arrive(&shared.Q_empty[Q_slot]);
        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn();  // for tiles that only others see
        wgmma_wait<0>(O);
        fence_operand(P);
        release(shared.V_empty[(k + Tc - 1) % depth]);
        write_rows<T, d>(p, maps.O, b, h, first_row, shared.O[threadIdx.x / 32 - 4], O, m, l,
                         load(p.V_scales + h_kv));
        k += block_Tc;
    }
    if (lane == 0) bulk_wait_read<0>();
}

/// X, in which two bytes are one element.
View pairs_of(const View& X) {
    return {X.data, X.batch / 2, X.head / 2, X.row / 2};
}

template <class T, int d>
void forward(const Problem& of_16_bits) {
    using Sizes = Tile<d>;
    constexpr int Bc = Sizes::Bc;
    const Quantized to(of_16_bits, of_16_bits.workspace, of_16_bits.sm_count);
    const Problem p = to.of(of_16_bits);
    launch<Start::together>(quantize<T, d>, dim3(std::min(p.sm_count * quantizing_blocks, to.parts(p))),
                            quantizing_threads, sizeof(Part<T>), of_16_bits, to);
    PanelMaps<d> maps = {
        tensor_map<e4m3x2, d / 2>(pairs_of(p.Q), p.B, p.H, p.Nq, 64),
        tensor_map<e4m3x2, d / 2>(pairs_of(p.K), p.B, p.Hkv, p.Nk, Bc),
        {},
        tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Sizes::O_panels),
    };
    View V = pairs_of(p.V);
    for (TensorMap& map : maps.V) {
        map = tensor_map<e4m3x2, std::min(d, 128) / 2>(V, p.B, p.Hkv, p.Nk, Bc);
        V.data = static_cast<std::byte*>(V.data) + 128;
    }
    const int Tr = ceil_div(p.Nq, Sizes::Br), heads = p.B * p.H;
    const double KV_bytes = 2.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    const TileOrder order = {Tr, heads, section, Tr * heads, to.taken};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch<Start::early>(kernel, grid, Sizes::threads, sizeof(Shared<T, d>), p, maps, order, to.ready);
}

std::size_t counter_bytes(const Shape& s, int) {
    return sizeof(unsigned) * (1 + s.B * (s.H + 2 * s.Hkv));  // taken, ready
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    return reinterpret_cast<std::uintptr_t>(Quantized(s, nullptr, sm_count).taken) +
           counter_bytes(s, sm_count);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 29, .name = "read_once", .parent = 28, .part = 70, .place = 78,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "16-bit Q, K and V are rounded by one launch, which reads them once",
             .shows_in = "train", .products = Products::of_8_bits, .diff_budget = 200,
             .most_lines = 540,  // brings back what quantizes
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
