/// @file
/// CUDA's vocabulary for a host compiler, and the instructions of the CUDA layer. What kernels see of simt/.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "simt/e4m3.h"
#include "simt/half.h"
#include "simt/launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ thread_local  // a worker runs one block at a time

namespace simt {

/// Which thread is running, and where.
struct Builtins {
    dim3 thread, block, block_extent, grid_extent;
};
extern thread_local constinit Builtins builtins __attribute__((tls_model("initial-exec")));

/// A place in a kernel's source. As a default argument it is the caller's.
struct Site {
    const char* file;
    int line;
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

// Memory. The location that a report names is the caller's, by return address.
void load(const void* address, void* value, std::size_t bytes);
void store(void* address, const void* value, std::size_t bytes);
void* shared_memory();
void copy_async(void* shared, const void* global, bool valid, bool evict_first, int bytes = 16);
void copy_commit();
void copy_wait(int pending_groups);
void copy_wait();
void mbarrier_init(void* barrier, int arrivals);
void mbarrier_arrive(void* barrier);
void mbarrier_arrive_after_copies(void* barrier);
void mbarrier_wait(void* barrier, int phase, Site site);
unsigned atomic_inc(unsigned* counter, unsigned most);
void atomic_add(float* sums, const float* x, int count);
void raise_count(unsigned* count);
void wait_for_count(const unsigned* count, unsigned value, Site site);
void fence();

// Warp instructions: every lane of `mask` must execute them together.
void ldmatrix(std::uint32_t (&r)[4], const void* row, bool transposed, Site site);
void shuffle(std::uint32_t mask, void* value, std::size_t bytes, int source_lane, Site site);
std::uint32_t ballot(std::uint32_t mask, bool mine, Site site);
void sync_warp(std::uint32_t mask, Site site);
void sync_block(Site site);
template <class T>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Site site);

// Arithmetic that is counted.
float exp2(float x);
float tanh(float x);  ///< counts as an exponential: it is of the same unit
float divide(float a, float b);
void note_tile(const Tile& tile);
void note_row(int row, float m, float l);

/// Two values rounded to T, the first in the low half.
template <class T>
std::uint32_t pack(float low, float high);

/// The lane of the running thread.
inline int lane() {
    const dim3 t = builtins.thread, n = builtins.block_extent;
    return static_cast<int>((t.x + n.x * (t.y + n.y * t.z)) % 32);
}

}  // namespace simt

using simt::dim3;
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    std::uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    std::uint32_t x, y;
};
inline int min(int a, int b) {
    return a < b ? a : b;
}
inline int max(int a, int b) {
    return a > b ? a : b;
}
#define threadIdx (simt::builtins.thread)
#define blockIdx (simt::builtins.block)
#define blockDim (simt::builtins.block_extent)
#define gridDim (simt::builtins.grid_extent)

__forceinline__ void __syncthreads(simt::Site site = simt::Site::here()) {
    simt::sync_block(site);
}

__forceinline__ void __syncwarp(std::uint32_t mask = 0xffffffffu, simt::Site site = simt::Site::here()) {
    simt::sync_warp(mask, site);
}

__forceinline__ int __any_sync(std::uint32_t mask, int predicate, simt::Site site = simt::Site::here()) {
    return simt::ballot(mask, predicate != 0, site) != 0;
}

__forceinline__ unsigned __ballot_sync(std::uint32_t mask, int predicate,
                                       simt::Site site = simt::Site::here()) {
    return simt::ballot(mask, predicate != 0, site);
}

/// The lowest bit that is set, counted from 1; 0 if none is.
__forceinline__ int __ffs(int bits) {
    return __builtin_ffs(bits);
}

/// How many bits are set.
__forceinline__ int __popcll(unsigned long long bits) {
    return __builtin_popcountll(bits);
}

/// Of the bytes x0 to x3, y0 to y3 those that the digits of `selector` number, the lowest first.
__forceinline__ std::uint32_t __byte_perm(std::uint32_t x, std::uint32_t y, std::uint32_t selector) {
    const std::uint64_t bytes = x | std::uint64_t{y} << 32;
    std::uint32_t chosen = 0;
    for (int k = 0; k < 4; ++k) chosen |= (bytes >> (selector >> 4 * k & 7) * 8 & 0xff) << 8 * k;
    return chosen;
}

__forceinline__ void __threadfence() {
    simt::fence();
}

/// In global memory: counts up, from `most` to 0. Returns what the count was.
__forceinline__ unsigned atomicInc(unsigned* counter, unsigned most) {
    return simt::atomic_inc(counter, most);
}

template <class V>
__forceinline__ V __shfl_sync(std::uint32_t mask, V value, int source, int width = 32,
                              simt::Site site = simt::Site::here()) {
    const int first = simt::lane() / width * width;
    simt::shuffle(mask, &value, sizeof value, first + source % width, site);
    return value;
}

template <class V>
__forceinline__ V __shfl_xor_sync(std::uint32_t mask, V value, int lanes, int width = 32,
                                  simt::Site site = simt::Site::here()) {
    const int self = simt::lane(), other = self ^ lanes;
    simt::shuffle(mask, &value, sizeof value, other / width <= self / width ? other : self, site);
    return value;
}

template <class V>
__forceinline__ V __shfl_up_sync(std::uint32_t mask, V value, int delta, int width = 32,
                                 simt::Site site = simt::Site::here()) {
    const int self = simt::lane();
    simt::shuffle(mask, &value, sizeof value, self % width >= delta ? self - delta : self, site);
    return value;
}

template <class V>
__forceinline__ V __shfl_down_sync(std::uint32_t mask, V value, int delta, int width = 32,
                                   simt::Site site = simt::Site::here()) {
    const int self = simt::lane();
    simt::shuffle(mask, &value, sizeof value, self % width + delta < width ? self + delta : self, site);
    return value;
}
