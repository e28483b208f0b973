// Stage 79: FP8 products by mma.sync, a control for 70. Tiles, copies, scales and rounded numbers are 70's;
// both products are a warp's own, m16n8k32 of e4m3, and their sums are fp32.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float largest_e4m3 = 448.0f;
constexpr float top = 5.0f;    // exponent of a row's largest P when m is set: e4m3 has few numbers below 1
constexpr float limit = 8.0f;  // O is rescaled only when P would exceed 2^8: e4m3 ends at 448

using e4m3x2 = std::uint16_t;  // two elements: what tensor maps and descriptors count

// Sizes of the kernels that quantize.
constexpr int rows_per_block = 128, threads_per_block = 256;

/// The keys of a head of V in the workspace: whole blocks.
__host__ __device__ constexpr int padded_keys(int Nk) {
    return ceil_div(Nk, rows_per_block) * rows_per_block;
}

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d <= 128 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 24;
    static constexpr int consumer_registers = groups == 3 ? 160 : 240;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d == 128 ? 64 : 128;  // O, S and P of 128 keys at d = 128: 144 registers of 160
    static constexpr int depth = d <= 128 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int Q_slots = 1;  // with its next Q, a warpgroup knows that all have read the last tiles
    static constexpr int O_panels = d == 64 ? 1 : 2;  // panels that a warp stores at a time
};

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    static constexpr int panels = ceil_div(d, 128);  // at d = 64, half of a row is padding
    alignas(1024) e4m3x2 Q[Tile<d>::Q_slots][Tile<d>::groups][panels][64][64];
    alignas(1024) e4m3x2 K[Tile<d>::depth][panels][Tile<d>::Bc][64];    // tile k is in slot k % depth
    alignas(1024) e4m3x2 V[Tile<d>::depth][d][64];                      // transposed: rows of Bc keys
    alignas(1024) T O[4 * Tile<d>::groups][Tile<d>::O_panels][16][64];  // rows that a warp is about to store
    TileIndex tile[Tile<d>::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Tile<d>::Q_slots], Q_empty[Tile<d>::Q_slots];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read tile k
};

#include "stages/70_fp8_products/tile_order.cuh"

#include "stages/70_fp8_products/quantized.cuh"

#include "stages/70_fp8_products/heads.cuh"

#include "stages/70_fp8_products/quantize.cuh"

/// Finds the largest element of a block's rows. A NaN is ignored here; rounding keeps it.
template <class T, int d>
__global__ void __launch_bounds__(threads_per_block) find_largest(const Problem p, const Quantized to) {
    std::uint32_t pairs[d / 4];
    load_rows<T, d>(Head<T>::at(p, to, blockIdx.x), blockIdx.y * rows_per_block, pairs);
    const float x = block_max(largest_of<T>(pairs));
    if (threadIdx.x == 0) store(&to.largest[blockIdx.x * gridDim.y + blockIdx.y], x);
}

#include "stages/70_fp8_products/patches.cuh"

/// Rounds a block's rows to e4m3, in units of the head's scale: its largest element becomes 448. Blocks take
/// the last rows first, those that find_largest has left in the L2 cache.
template <class T, int d>
__global__ void __launch_bounds__(threads_per_block) quantize(const Problem p, const Quantized to) {
    const int number = gridDim.x - 1 - blockIdx.x, first = (gridDim.y - 1 - blockIdx.y) * rows_per_block;
    const auto head = Head<T>::at(p, to, number);
    if (first >= head.N) return;
    std::uint32_t pairs[d / 4];
    if (head.is_V) {
        load_patches<T, d>(head, first, pairs);
    } else {
        load_rows<T, d>(head, first, pairs);
    }
    float largest = 0x1p-100f;  // its reciprocal is finite in fp32
    for (int i = threadIdx.x; i < ceil_div(head.N, rows_per_block); i += threads_per_block) {
        largest = fmaxf(largest, load(&to.largest[number * gridDim.y + i]));
    }
    largest = block_max(largest);
    const float inverse = divide(largest_e4m3, largest);
    if (first == 0 && threadIdx.x == 0) store(&to.scales[number], divide(largest, largest_e4m3));
    if (head.is_V) {
        constexpr int Bc = Tile<d>::Bc;
        std::uint8_t* tiles = head.to + std::int64_t{first} * d;  // (rows_per_block / Bc, d, Bc)
#pragma unroll
        for (int n = 0; n < d / 64; ++n) {
            const Patch patch = Patch::at<d>(n);
            const int tile = patch.key / Bc, key = patch.key % Bc;
            std::uint32_t words[2][4];
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                float2 x[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) x[e] = unpack<T>(pairs[16 * n + 4 * w + e]);
                words[0][w] =
                    pack_e4m3(x[0].x * inverse, x[1].x * inverse, x[2].x * inverse, x[3].x * inverse);
                words[1][w] =
                    pack_e4m3(x[0].y * inverse, x[1].y * inverse, x[2].y * inverse, x[3].y * inverse);
            }
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                store(reinterpret_cast<uint4*>(tiles + (tile * d + patch.column + c) * Bc + key),
                      uint4{words[c][0], words[c][1], words[c][2], words[c][3]});
            }
        }
        return;
    }
    constexpr int step = threads_per_block / (d / 16);
#pragma unroll
    for (int k = 0; k < d / 4; k += 8) {
        const int row = first + threadIdx.x / (d / 16) + k / 8 * step;
        if (row >= head.N) break;
        std::uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const float2 a = unpack<T>(pairs[k + 2 * w]), b = unpack<T>(pairs[k + 2 * w + 1]);
            words[w] = pack_e4m3(a.x * inverse, a.y * inverse, b.x * inverse, b.y * inverse);
        }
        store(reinterpret_cast<uint4*>(head.to + std::int64_t{row} * d + threadIdx.x % (d / 16) * 16),
              uint4{words[0], words[1], words[2], words[3]});
    }
}

/// The 16 bytes of a panel at this row and column, swizzled as by the tensor map.
template <int rows>
__device__ const e4m3x2* at(const e4m3x2 (&panel)[rows][64], int row, int column) {
    return &panel[row][column ^ row % 8 * 8];
}

#include "stages/70_fp8_products/softmax.cuh"

/// D (16, n) += A (16, 32) B, where the columns of B are n rows of a panel, 32 bytes of each from a column
/// on.
template <int n>
__device__ void multiply(const std::uint32_t* A, const e4m3x2 (&panel)[n][64], int column,
                         float (&D)[n / 2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < n; i += 16) {
        std::uint32_t b[4];
        ldmatrix(b, at(panel, i + b_row(lane), column + b_column(lane)));
        mma_e4m3(&D[i / 2], A, b[0], b[1]);
        mma_e4m3(&D[i / 2 + 4], A, b[2], b[3]);
    }
}

/// S += Q K^T, (16, Bc) for this warp (algorithm 1, line 8).
template <int d, int panels, int Bc = Tile<d>::Bc>
__device__ void score(const e4m3x2 (&Q)[panels][64][64], const e4m3x2 (&K)[panels][Bc][64],
                      float (&S)[Bc / 2]) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < d / 2; c += 16) {
        std::uint32_t q[4];
        ldmatrix(q, at(Q[c / 64], 16 * warp + a_row(lane), c % 64 + a_column(lane)));
        multiply(q, K[c / 64], c % 64, S);
    }
}

/// O += P V.
template <int d, int Bc = Tile<d>::Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 8], const e4m3x2 (&V)[d][64], float (&O)[d / 2]) {
#pragma unroll
    for (int k = 0; k < Bc; k += 32) {
        multiply(&P[k / 8], V, k / 2, O);
        __syncwarp();  // keeps the compiler from loading fragments of later keys, which need more registers
    }
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
/// - Consumers, a warpgroup for 64 rows: S = Q K^T, softmax, O += P V for each key tile; then write O and L.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a warp that sees the tile multiplies, then arrives at `empty`; for others the producer does.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps maps, const TileOrder order,
              const float* scales) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    constexpr int Q_slots = Tile<d>::Q_slots;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], 128 * groups);  // all threads arrive, since all read `tile`
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], 4 * groups);  // a lane of each warp arrives
            mbarrier_init(&shared.V_empty[slot], 4 * groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    // Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows
    const auto key_tiles = [&](int first_row, int rows) {
        const int end = p.causal ? min(p.Nq, first_row + rows) + p.Nk - p.Nq : p.Nk;
        return first_row >= p.Nq ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
    };
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
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
            const auto copy = [&](auto& ring, const TensorMap& map, int rows, int j, Mbarrier* full,
                                  Mbarrier* empty) {
                const int slot = (k + j) % depth;
                mbarrier_try_wait(&empty[slot], (k + j) / depth - 1);  // tile k + j - depth has been read
                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * rows, h_kv, b, &full[slot]);
                for (int warp = 0; warp < 4 * groups; ++warp) {  // of a group that does not see the tile
                    if (j >= own_Tc[warp / 4]) mbarrier_arrive(&empty[slot]);
                }
            };
            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
            }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = 0; j < Tc; ++j) {
                copy(shared.K, maps.K, Bc, j, shared.K_full, shared.K_empty);
                copy(shared.V, maps.V, d, j, shared.V_full, shared.V_empty);
            }
            k += Tc;
            n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
        }
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1, lane = threadIdx.x % 32;
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const float* of_KV = scales + p.B * p.H + b * p.Hkv + h / (p.H / p.Hkv);
        const float scale_S = load(scales + b * p.H + h) * load(of_KV);
        const int first_row = i * Br + 64 * g, Tc = key_tiles(first_row, 64),
                  block_Tc = key_tiles(i * Br, Br);
        const int unmasked = min(p.Nk, p.causal ? first_row + p.Nk - p.Nq + 1 : p.Nk);  // keys all rows see
        const auto release = [&](int j, Mbarrier* empty) {
            __syncwarp();  // ldmatrix reads for the whole warp: all of it has before a lane says so
            if (lane == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 8];
        const auto softmax = [&](int j, float(&S)[Bc / 2]) {  // returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h, first_row, j, masked);
            shift<d>(p, p.scale * log2_e * scale_S, first_row, j, masked, S, m);  // in base 2
            const bool above = (j == 0) | (positive_max(S) > limit);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == 0, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        if (Tc == 0) {  // no rows
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            k += block_Tc;
            continue;
        }
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int j = 0; j < Tc; ++j) {
            float S[Bc / 2] = {};
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
            release(j, shared.K_empty);
            const bool rises = softmax(j, S);
            convert(S, P);
            if (rises) {
#pragma unroll
                for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
            }
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<d>(P, shared.V[(k + j) % depth], O);
            release(j, shared.V_empty);
        }
        // After the last V has arrived: a warpgroup that leaves tiles out waits for none of their phases
        // itself. With its next Q it must know that all of them are complete, since it waits by parity.
        mbarrier_arrive(&shared.Q_empty[Q_slot]);
        write_rows<T, d>(p, maps.O, b, h, first_row, shared.O[threadIdx.x / 32 - 4], O, m, l,
                         load(of_KV + p.B * p.Hkv));
        k += block_Tc;
    }
    if (lane == 0) bulk_wait_read<0>();
}

/// A tensor map of the dense (heads, N, columns) tensor at X, in which two bytes are one element.
View pairs_view(std::uint8_t* X, int heads, int N, int columns) {
    const std::int64_t row = columns / 2;
    return {X, heads * N * row, N * row, row};
}

template <class T, int d>
void forward(const Problem& p) {
    const Quantized to(p, p.workspace);
    const dim3 blocks(p.B * (p.H + 2 * p.Hkv), Quantized::blocks_of(p));
    constexpr std::size_t shared_bytes = threads_per_block / 32 * sizeof(float);
    launch(find_largest<T, d>, blocks, threads_per_block, shared_bytes, p, to);
    launch(quantize<T, d>, blocks, threads_per_block, shared_bytes, p, to);
    constexpr int Bc = Tile<d>::Bc;
    const int V_rows = padded_keys(p.Nk) / Bc * d;
    const Maps maps = {
        tensor_map<e4m3x2, d / 2>(pairs_view(to.Q, p.H, p.Nq, d), p.B, p.H, p.Nq, 64),
        tensor_map<e4m3x2, d / 2>(pairs_view(to.K, p.Hkv, p.Nk, d), p.B, p.Hkv, p.Nk, Bc),
        tensor_map<e4m3x2, Bc / 2>(pairs_view(to.V, p.Hkv, V_rows, Bc), p.B, p.Hkv, V_rows, d),
        tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Tile<d>::O_panels),
    };
    const int Tr = ceil_div(p.Nq, Tile<d>::Br), heads = p.B * p.H;
    const double KV_bytes = 2.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    const TileOrder order = {Tr, heads, section, Tr * heads, to.taken};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, grid, Tile<d>::threads, sizeof(Shared<T, d>), p, maps, order,
           static_cast<const float*>(to.scales));
}

std::size_t workspace_bytes(const Shape& s, int) {
    return reinterpret_cast<std::uintptr_t>(Quantized(s, nullptr).taken + 1);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 79, .name = "fp8_mma", .parent = 70, .formerly = "76_fp8_mma",
             .part = 90, .place = 95,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "mma.sync instead of wgmma: the same e4m3 numbers, in sums that keep all bits of fp32",
             .shows_in = "long", .products = Products::of_8_promoted, .rounds_large_scores = true,
             .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
