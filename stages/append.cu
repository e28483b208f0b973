// New rows of K and V: one launch writes them to a cache, before a stage decodes. On their way rows of K, and
// of Q, are rotated (rotary embedding), and what goes to an 8-bit cache is divided by its scale and rounded
// to e4m3. No stage, since it computes no attention: the Python package compiles it like one.

#include "stages/append.h"

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int warps = 4;  // of a block; each takes one row of one head

/// An element of T or float, as fp32.
template <class T>
__device__ float read(const void* row, int column) {
    if constexpr (std::is_same_v<T, float>) {
        return load(static_cast<const float*>(row) + column);
    } else {
        return unpack<T>(load(static_cast<const std::uint16_t*>(row) + column)).x;
    }
}

/// cvt.rn.satfinite.e4m3x2: x rounded to e4m3; beyond 448 it becomes 448 of its sign.
__device__ std::uint8_t round_to_e4m3(float x) {
#ifdef __CUDACC__
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
#else
    return simt::round_to<simt::e4m3>(x).bits;
#endif
}

/// Where a row goes: T, or with a scale e4m3.
template <class T>
struct Destination {
    void* data;
    std::int64_t first;    // its first element
    const float* scale;    // null for T, or where the row has
    float* own = nullptr;  // a scale of its own, which is written here

    __device__ void write(int column, float x) const {
        if (scale == nullptr) {
            store(static_cast<std::uint16_t*>(data) + first + column,
                  static_cast<std::uint16_t>(pack<T>(x, 0.0f)));
        } else {
            store(static_cast<std::uint8_t*>(data) + first + column, round_to_e4m3(divide(x, load(scale))));
        }
    }
};

/// Column c of a row (d), whose first 2 pairs columns are turned by the angles of its position.
template <class T>
__device__ float turned(const Append& a, const T* row, int pairs, int position, int c) {
    const float x = read<T>(row, c);
    if (c >= 2 * pairs) return x;
    const bool is_first = a.interleaved ? c % 2 == 0 : c < pairs;  // of its pair
    const int other = a.interleaved ? c ^ 1 : is_first ? c + pairs : c - pairs;
    const int i = position * pairs + (a.interleaved ? c / 2 : min(c, other));
    const float cos = a.fp32_angles ? read<float>(a.cos, i) : read<T>(a.cos, i);
    const float sin = a.fp32_angles ? read<float>(a.sin, i) : read<T>(a.sin, i);
    const float y = read<T>(row, other);
    return is_first ? x * cos - y * sin : x * cos + y * sin;
}

/// A warp copies a row, two columns a lane: no other thread writes to the two bytes that they may be.
template <class T>
__device__ void copy_row(const Append& a, const T* row, int pairs, int position, const Destination<T>& to) {
    if (to.own != nullptr) {
        float largest = 0.0f;
        for (int c = threadIdx.x % 32; c < a.d; c += 32)
            largest = fmaxf(largest, fabsf(turned(a, row, pairs, position, c)));
        for (int n = 16; n > 0; n /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, n));
        if (threadIdx.x % 32 == 0) store(to.own, largest > 0.0f ? divide(largest, 448.0f) : 1.0f);
        __syncwarp();  // its scale is there for all lanes
    }
    for (int c = threadIdx.x % 32 * 2; c < a.d; c += 64) {
        to.write(c, turned(a, row, pairs, position, c));
        if (c + 1 < a.d) to.write(c + 1, turned(a, row, pairs, position, c + 1));
    }
}

/// The rows of request blockIdx.y: first those of Q, if they are rotated, then those of K and of V.
template <class T>
__global__ void __launch_bounds__(32 * warps) append(const Append a) {
    const int b = blockIdx.y, length = load(a.lengths + b), of_Q = a.Nq * a.H, of_K = a.Nk * a.Hkv;
    if (blockIdx.x == 0 && threadIdx.x == 0) store(a.new_lengths + b, length + a.Nk);
    int row = blockIdx.x * warps + threadIdx.x / 32;
    if (row < of_Q) {
        const int i = row / a.H, h = row % a.H;
        const Destination<T> to{a.rotated_Q.data,
                                b * a.rotated_Q.batch + h * a.rotated_Q.head + i * a.rotated_Q.row, nullptr};
        return copy_row(a, matrix<T>(a.Q, b, h) + i * a.Q.row, a.pairs, length + (a.causal ? i : 0), to);
    }
    row -= of_Q;
    const bool is_K = row < of_K;
    if (!is_K) row -= of_K;
    if (row >= of_K) return;
    const int i = row / a.Hkv, h = row % a.Hkv, position = length + i;
    int entry = a.batch_index == nullptr ? b : load(a.batch_index + b), slot = position;
    if (a.block_table != nullptr) {
        entry = load(a.block_table + std::int64_t{b} * a.pages + position / a.slots);
        slot = position % a.slots;
    }
    const View &from = is_K ? a.K : a.V, &cache = is_K ? a.K_cache : a.V_cache;
    const float* scale = is_K ? a.K_scales : a.V_scales;
    if (scale != nullptr) scale += b * a.Hkv + h;
    const View& of_tokens = is_K ? a.K_token_scales : a.V_token_scales;
    float* own = nullptr;
    if (of_tokens.data != nullptr) scale = own = matrix<float>(of_tokens, entry, h) + slot * of_tokens.row;
    const Destination<T> to{cache.data, entry * cache.batch + h * cache.head + slot * cache.row, scale, own};
    copy_row(a, matrix<T>(from, b, h) + i * from.row, is_K ? a.pairs : 0, position, to);
}

}  // namespace

/// Queues the launch on a GPU, in launch_stream(); on the CPU it is over. Throws as launch() does.
extern "C" void ladder_append(const Append& a) {
    const int rows = a.Nq * a.H + 2 * a.Nk * a.Hkv;
    const dim3 grid(max(1, ceil_div(rows, warps)), a.B);
    launch(a.dtype == DType::fp16 ? append<fp16> : append<bf16>, grid, 32 * warps, 0, a);
}
