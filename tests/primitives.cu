#include "tests/primitives.h"

#include "stages/device.cuh"

namespace {

using namespace ladder;

using Words = std::vector<std::uint32_t>;

/// 16-bit numbers in (-2, 2), as bits of T, that look random and are the same everywhere.
template <class T>
__host__ __device__ std::uint32_t sample(std::uint32_t i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    i ^= i >> 13;
    // A sign, an exponent at or just below that of 1, and any mantissa.
    const std::uint32_t sign = i << 15 & 0x8000u, bits = i >> 8;
    return std::is_same_v<T, fp16> ? sign | (0x3800u + bits % 0x0800u) : sign | (0x3f00u + bits % 0x0100u);
}

template <class T>
__host__ __device__ std::uint32_t sample_pair(std::uint32_t i) {
    return sample<T>(2 * i) | sample<T>(2 * i + 1) << 16;
}

struct Quads {
    std::uint32_t word[32][4];
};

struct Tile {
    std::uint16_t element[32][8];
};

__device__ Tile& numbered_tile() {
    auto& tile = shared_memory<Tile>();
    for (int c = 0; c < 8; ++c) {
        store(&tile.element[threadIdx.x][c], static_cast<std::uint16_t>(100 * threadIdx.x + c));
    }
    __syncthreads();
    return tile;
}

template <bool transposed>
__global__ void ldmatrix_kernel(std::uint32_t* out) {
    auto& tile = numbered_tile();
    std::uint32_t r[4];
    // Rows in another order than the lanes', so that who names a row matters.
    const int row = (threadIdx.x * 5 + 3) % 32;
    if constexpr (transposed) {
        ldmatrix_transposed(r, tile.element[row]);
    } else {
        ldmatrix(r, tile.element[row]);
    }
    for (int k = 0; k < 4; ++k) store(&out[4 * threadIdx.x + k], r[k]);
}

template <class T>
__global__ void mma_kernel(float* out) {
    const int lane = threadIdx.x;
    float d[4];
    std::uint32_t a[4];
    for (int k = 0; k < 4; ++k) {
        d[k] = 0.25f * static_cast<float>(lane) - static_cast<float>(k);
        a[k] = sample_pair<T>(4 * lane + k);
    }
    mma<T>(d, a, sample_pair<T>(1000 + lane), sample_pair<T>(2000 + lane));
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], d[k]);
}

__global__ void shuffle_kernel(std::uint32_t* out) {
    const std::uint32_t value = sample_pair<fp16>(threadIdx.x);
    std::uint32_t* mine = out + 8 * threadIdx.x;
    store(mine + 0, __shfl_sync(~0u, value, 7));
    store(mine + 1, __shfl_sync(~0u, value, (threadIdx.x * 3 + 1) % 32));
    store(mine + 2, __shfl_sync(~0u, value, 5, 8));
    store(mine + 3, __shfl_xor_sync(~0u, value, 1));
    store(mine + 4, __shfl_xor_sync(~0u, value, 18));
    store(mine + 5, __shfl_xor_sync(~0u, value, 12, 8));
    store(mine + 6, __shfl_up_sync(~0u, value, 3));
    store(mine + 7, __shfl_down_sync(~0u, value, 3, 16));
}

__global__ void vote_kernel(std::uint32_t* out) {
    std::uint32_t* mine = out + 4 * threadIdx.x;
    store(mine + 0, std::uint32_t(__any_sync(~0u, threadIdx.x == 17) != 0));
    store(mine + 1, std::uint32_t(__any_sync(~0u, threadIdx.x > 31) != 0));
    const std::uint32_t half = threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    store(mine + 2, std::uint32_t(__any_sync(half, threadIdx.x == 5) != 0));
    store(mine + 3, std::uint32_t(__any_sync(~0u, 2) != 0));
}

/// Values whose rounding to 16 bits is a question: ties, overflow, what is too small, infinities, signed
/// zero.
__device__ float hard_to_round(int i) {
    const float values[16] = {0.0f,
                              -0.0f,
                              1.0f + 0x1p-11f,
                              1.0f + 3 * 0x1p-11f,
                              1.0f + 0x1p-8f,
                              1.0f + 3 * 0x1p-8f,
                              65504.0f,
                              65519.0f,
                              65520.0f,
                              0x1p-24f,
                              0x1p-25f,
                              1.5f * 0x1p-25f,
                              3.3e38f,
                              3.402e38f,
                              inf,
                              -inf};
    float value = 0.0f;
    for (int k = 0; k < 16; ++k) value = k == i % 16 ? values[k] : value;
    return value;
}

template <class T>
__global__ void pack_kernel(std::uint32_t* out) {
    store(&out[threadIdx.x], pack<T>(hard_to_round(threadIdx.x), -hard_to_round(threadIdx.x / 2 + 5)));
}

// The inputs are exact, so that no compiler's fused multiply-add changes them.

__global__ void exp2_kernel(float* out) {
    const int lane = threadIdx.x;
    store(&out[2 * lane], fast_exp2(lane == 0 ? -inf : -static_cast<float>(261 * lane) / 64));
    store(&out[2 * lane + 1], fast_exp2(static_cast<float>(49 * lane - 768) / 64));
}

__global__ void divide_kernel(float* out) {
    const int lane = threadIdx.x;
    store(&out[lane], divide(static_cast<float>(1 + lane), static_cast<float>(237 + 185 * lane) / 64));
}

__global__ void copy_kernel(std::uint32_t* out) {
    auto& shared = shared_memory<Quads>();
    const int lane = threadIdx.x;
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], sample_pair<fp16>(4 * lane + k));
    copy_async(shared.word[lane], out + 4 * lane, lane % 3 != 0);
    copy_wait();
    __syncthreads();
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], load(&shared.word[31 - lane][k]));
}

/// Two groups of copies; what the first brought is read while the second may be in flight.
__global__ void copy_groups_kernel(std::uint32_t* out) {
    auto& shared = shared_memory<Quads[2]>();
    const int lane = threadIdx.x;
    for (int k = 0; k < 4; ++k) store(&out[4 * lane + k], sample_pair<fp16>(3000 + 4 * lane + k));
    for (int group = 0; group < 2; ++group) {
        copy_async(shared[group].word[lane], out + 4 * lane, lane % 5 != group);
        copy_commit();
    }
    copy_wait<1>();
    __syncwarp();
    const std::uint32_t first = load(&shared[0].word[31 - lane][1]);
    copy_wait<0>();
    __syncwarp();
    store(&out[4 * lane], first);
    for (int k = 1; k < 4; ++k) store(&out[4 * lane + k], load(&shared[1].word[31 - lane][k]));
}

/// Runs a kernel by one warp and returns its output, `words` per lane.
template <class V>
Words result_of(Device& device, int words, void (*kernel)(V*)) {
    Words result(32 * words);
    const std::size_t bytes = result.size() * sizeof(std::uint32_t);
    const Buffer out(device, bytes, "the result", true);
    launch(kernel, dim3(1), 32, sizeof(Quads[2]), static_cast<V*>(out.data()));
    device.download(result.data(), out.data(), bytes);
    return result;
}

}  // namespace

namespace primitives {

template <>
Results run<Backend::LADDER_BACKEND>(Device& device) {
    Results results;
    results["ldmatrix"] = result_of(device, 4, ldmatrix_kernel<false>);
    results["ldmatrix_transposed"] = result_of(device, 4, ldmatrix_kernel<true>);
    results["mma_fp16"] = result_of(device, 4, mma_kernel<fp16>);
    if (device.compute_capability() >= 80) results["mma_bf16"] = result_of(device, 4, mma_kernel<bf16>);
    results["pack_fp16"] = result_of(device, 1, pack_kernel<fp16>);
    results["pack_bf16"] = result_of(device, 1, pack_kernel<bf16>);
    results["shuffle"] = result_of(device, 8, shuffle_kernel);
    results["vote"] = result_of(device, 4, vote_kernel);
    results["exp2"] = result_of(device, 2, exp2_kernel);
    results["divide"] = result_of(device, 1, divide_kernel);
    results["copy_async"] = result_of(device, 4, copy_kernel);
    results["copy_groups"] = result_of(device, 4, copy_groups_kernel);
    return results;
}

}  // namespace primitives
