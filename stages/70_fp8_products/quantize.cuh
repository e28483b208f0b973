// How a block that quantizes reads its rows, and finds the largest of their elements.
// Included by kernels of the part inside of their namespace.

/// The largest x >= 0 of the block's threads.
__device__ float block_max(float x) {
    struct Shared {
        float of_warp[threads_per_block / 32];
    };
    auto& shared = shared_memory<Shared>();
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    if (threadIdx.x % 32 == 0) store(&shared.of_warp[threadIdx.x / 32], x);
    __syncthreads();  // all warps' maxima are written
    for (int warp = 0; warp < threads_per_block / 32; ++warp) x = fmaxf(x, load(&shared.of_warp[warp]));
    return x;
}

/// A thread's share of a block's rows, in pairs of 16-bit elements: 16 columns of every step-th row. All
/// loads are issued before the first result is used. Rows past the end are 0.
template <class T, int d>
__device__ void load_rows(const Head<T>& head, int first, std::uint32_t (&pairs)[d / 4]) {
    constexpr int step = threads_per_block / (d / 16);
#pragma unroll
    for (int k = 0; k < d / 4; k += 4) {
        const int row = first + threadIdx.x / (d / 16) + k / 8 * step;
        const T* eight = head.rows + row * head.stride + threadIdx.x % (d / 16) * 16 + k % 8 * 2;
        const uint4 four = row < head.N ? load(reinterpret_cast<const uint4*>(eight)) : uint4{};
        pairs[k] = four.x, pairs[k + 1] = four.y, pairs[k + 2] = four.z, pairs[k + 3] = four.w;
    }
}

/// The largest absolute value of a thread's share.
template <class T, int n>
__device__ float largest_of(const std::uint32_t (&pairs)[n]) {
    float x = 0.0f;
#pragma unroll
    for (int k = 0; k < n; ++k) {
        const float2 both = unpack<T>(pairs[k]);
        x = fmaxf(x, fmaxf(fabsf(both.x), fabsf(both.y)));
    }
    return x;
}
