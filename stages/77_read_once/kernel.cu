// Stage 77: read once. Q, K and V come in 16 bits, and one kernel rounds them to e4m3, with one scale per
// head. Its blocks all run at once: they hold their rows in shared memory until their head's scale is known.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float largest_e4m3 = 448.0f;
// Sizes of the kernel that quantizes: six blocks of an SM hold 192 KB in shared memory.
constexpr int quantizing_threads = 256, quantizing_blocks = 6, part_elements = 16384;

#include "stages/76_e4m3_inputs/tile.cuh"

#include "stages/76_e4m3_inputs/shared.cuh"

#include "stages/70_fp8_products/tile_order.cuh"

#include "stages/76_e4m3_inputs/maps.cuh"

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

#include "stages/75_in_kernel_transpose/head.cuh"

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
    constexpr int part_rows = part_elements / d;
    const int Q_heads = p.B * p.H, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    let_next_kernel_start();  // as these blocks end, it finds room
    for (int n = blockIdx.x; n < to.parts(p); n += gridDim.x) {
        const int k = n - Q_heads * to.Q_parts, parts = k < 0 ? to.Q_parts : to.KV_parts;
        const int number = k < 0 ? n / parts : Q_heads + k / parts, part = (k < 0 ? n : k) % parts;
        const auto head = Head<T>::at(p, to, number);
        const int first = part * part_rows, step = parts * part_rows;
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

#include "stages/76_e4m3_inputs/transpose.cuh"

#include "stages/75_in_kernel_transpose/product.cuh"

#include "stages/70_fp8_products/write_rows.cuh"

#include "stages/76_e4m3_inputs/producer.cuh"

#include "stages/76_e4m3_inputs/consumer.cuh"

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
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    begin(shared);
    wait_for_previous_kernel();  // Q, K and V are in e4m3
    for (int n = threadIdx.x; blockIdx.x == 0 && n < p.B * (p.H + 2 * p.Hkv); n += Tile<d>::threads) {
        store(&ready[n], 0u);
    }
    const int group = uniform(threadIdx.x / 128);
    group == 0 ? produce<causal>(p, maps, order, shared) : consume(p, maps, shared, group - 1);
}

#include "stages/76_e4m3_inputs/launch.cuh"

template <class T, int d>
void forward(const Problem& of_16_bits) {
    using Sizes = Tile<d>;
    const Quantized to(of_16_bits, of_16_bits.workspace, of_16_bits.sm_count);
    const Problem p = to.of(of_16_bits);
    launch<Start::together>(quantize<T, d>, dim3(std::min(p.sm_count * quantizing_blocks, to.parts(p))),
                            quantizing_threads, sizeof(Part<T>), of_16_bits, to);
    const TileOrder order = tile_order(p, Sizes::Br, to.taken);
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch<Start::early>(kernel, dim3(std::min(p.sm_count, order.total)), Sizes::threads,
                         sizeof(Shared<T, d>), p, panel_maps<T, d>(p), order, to.ready);
}

std::size_t counter_bytes(const Shape& s, int) {
    return sizeof(unsigned) * (1 + s.B * (s.H + 2 * s.Hkv));  // taken, ready
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {
    return reinterpret_cast<std::uintptr_t>(Quantized(s, nullptr, sm_count).taken) +
           counter_bytes(s, sm_count);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 77, .name = "read_once", .parent = 76, .formerly = "29_read_once",
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, Tile<d>::depth), {192, 128, 4}, {192, 64, 4},
                                     {128, 128, 2}),
             .change = "16-bit Q, K and V are rounded by one launch, which reads them once",
             .shows_in = "train", .products = Products::of_8_bits,
             .diff_budget = 190,  // brings back what quantizes
             .rounds_large_scores = true, .workspace_bytes = workspace_bytes, .counter_bytes = counter_bytes);

}  // namespace
