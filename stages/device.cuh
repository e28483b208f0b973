/// @file
/// The CUDA layer: the one header that a stage includes.
///
/// Each function here is one instruction, or CUDA's own name for one, and nothing algorithmic. Under nvcc it
/// is PTX; under a host compiler it calls simt/, whose C++ body says the same thing element by element.
/// LADDER_BACKEND names the back-end that the file is compiled for: gpu, cpu or checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stages/errors.h"
#include "stages/stage.h"

#ifdef __CUDACC__
#    include <cuda_bf16.h>
#    include <cuda_fp16.h>
#    include <cuda_fp8.h>

#    include <string>

#    include "stages/launch.h"
#    define LADDER_SITE
#else
#    include "simt/cuda.h"
// Warp instructions carry their line in the source, for reports.
#    define LADDER_SITE , simt::Site site = simt::Site::here()
#endif

// The back-ends share one binary, so what is compiled for each lives in a namespace of its own.
namespace ladder {
inline namespace LADDER_BACKEND {
/// An element of 16 bits
#ifdef __CUDACC__
using fp16 = __half;
using bf16 = __nv_bfloat16;
#else
using fp16 = simt::fp16;
using bf16 = simt::bf16;
#endif

constexpr Backend backend = Backend::LADDER_BACKEND;
constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float log2_e = 1.4426950408889634f;  ///< e^x = 2^(x log2(e))
constexpr float ln_2 = 0.6931471805599453f;

/// Blocks of 128 threads that a multiprocessor should hold, for __launch_bounds__: three, which leaves a
/// thread 168 registers. Before sm_80 one, since shared memory has no room for more at d = 128.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int resident_blocks = 1;
#else
constexpr int resident_blocks = 3;
#endif
/// a / b, rounded up
__host__ __device__ constexpr int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

/// Row 0 of the (N, d) matrix of one batch entry and head. Row i starts view.row * i elements later.
template <class T>
__device__ __forceinline__ T* matrix(const View& view, int batch, int head) {
    return static_cast<T*>(view.data) + batch * view.batch + head * view.head;
}

// ---------------------------------------------------------------------------------------------------------------
// Memory that other threads see. Ordinary traffic goes through load and store so that the CPU can count it.

/// Reads an element or a vector of global memory.
template <class V>
__device__ __forceinline__ V load(const V* address) {
#ifdef __CUDACC__
    return *address;
#else
    V value;
    simt::load(address, &value, sizeof(V));
    return value;
#endif
}
/// Writes it.
template <class V>
__device__ __forceinline__ void store(V* address, V value) {
#ifdef __CUDACC__
    *address = value;
#else
    simt::store(address, &value, sizeof(V));
#endif
}

/// atom.acq_rel.gpu.inc: atomicInc, and a fence on either side of it. What this thread has seen or written
/// comes before it, for a thread that reads the count later. __threadfence() is fence.sc.gpu: it also puts
/// all fences of the GPU in one order, which takes longer.
__device__ __forceinline__ unsigned atomic_inc_acq_rel(unsigned* counter, unsigned most) {
#ifdef __CUDACC__
    unsigned before;
    asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;\n"
                 : "=r"(before)
                 : "l"(counter), "r"(most)
                 : "memory");
    return before;
#else
    simt::fence();
    const unsigned before = simt::atomic_inc(counter, most);
    simt::fence();
    return before;
#endif
}

/// red.release.gpu.add: ++*count. What this thread has seen or written comes before it, for a thread that
/// has waited for the count.
__device__ __forceinline__ void raise_count(unsigned* count) {
#ifdef __CUDACC__
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(count) : "memory");
#else
    simt::raise_count(count);
#endif
}

/// ld.acquire.gpu, again and again until *count is `value`. What follows it comes after all that the
/// threads which raised it had seen or written; bulk copies, too (fence.proxy.async). The blocks that raise
/// it must have begun before this one, since nothing says that a block begins while another waits; or all are
/// launched together.
__device__ __forceinline__ void wait_for_count(const unsigned* count, unsigned value LADDER_SITE) {
#ifdef __CUDACC__
    unsigned now;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(now) : "l"(count) : "memory");
    } while (now != value);
#    if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;\n" ::: "memory");
#    endif
#else
    simt::wait_for_count(count, value, site);
#endif
}

/// red.global.add: *sum += x, whichever other threads add to it, in no particular order, so two runs may
/// round to different sums.
__device__ __forceinline__ void atomic_add(float* sum, float x) {
#ifdef __CUDACC__
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(sum), "f"(x) : "memory");
#else
    simt::atomic_add(sum, &x, 1);
#endif
}

/// The same for four sums side by side, 16-byte aligned, each on its own. red.global.add.v4; before sm_90
/// four instructions.
__device__ __forceinline__ void atomic_add(float4* sums, float4 x) {
#ifndef __CUDACC__
    simt::atomic_add(&sums->x, &x.x, 4);
#elif __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(sums), "f"(x.x),
                 "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    atomic_add(&sums->x, x.x);
    atomic_add(&sums->y, x.y);
    atomic_add(&sums->z, x.z);
    atomic_add(&sums->w, x.w);
#endif
}

/// The block's dynamic shared memory, as one struct. Launch with sizeof(S) bytes. Contents undefined at
/// first.
template <class S>
__device__ __forceinline__ S& shared_memory() {
#ifdef __CUDACC__
    extern __shared__ __align__(16) unsigned char bytes[];
    return *reinterpret_cast<S*>(bytes);
#else
    return *static_cast<S*>(simt::shared_memory());
#endif
}

/// Whether the bytes of a copy are wanted again, by whichever block.
enum class Reads : std::uint8_t { again, once };

/// cp.async: starts a copy of 16 bytes from global to shared memory, or of 16 zero bytes if not `valid`
/// (then the source is not read). The L2 cache fetches the whole 128-byte line; if it is read `once`, it
/// makes room before other lines do (L2::evict_first, a hint). Both addresses are 16-byte aligned. This
/// thread may read the data after copy_wait, and the others after a barrier that follows it (within a warp,
/// __syncwarp). Before sm_80: an ordinary load and store.
template <Reads reads = Reads::again, class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global, bool valid) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    const auto destination = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int bytes = valid ? 16 : 0;
    if constexpr (reads == Reads::again) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(destination),
                     "l"(global), "r"(bytes)
                     : "memory");
    } else {
        std::uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
        asm volatile(
            "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;\n" ::"r"(destination),
            "l"(global), "r"(bytes), "l"(policy)
            : "memory");
    }
#    else
    *reinterpret_cast<uint4*>(shared) = valid ? *reinterpret_cast<const uint4*>(global) : uint4{};
#    endif
#else
    simt::copy_async(shared, global, valid, reads == Reads::once);
#endif
}

/// cp.async: the same of 4 bytes at multiples of 4, through L1, of which no line is fetched.
template <class T>
__device__ __forceinline__ void copy_word_async(T* shared, const T* global, bool valid) {
    static_assert(sizeof(T) == 4);
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(valid ? 4 : 0)
                 : "memory");
#    else
    *shared = valid ? *global : T{};
#    endif
#else
    simt::copy_async(shared, global, valid, false, 4);
#endif
}

/// cp.async.commit_group: the copies that this thread has started since the last commit are a group. It may
/// be empty.
__device__ __forceinline__ void copy_commit() {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#    endif
#else
    simt::copy_commit();
#endif
}

/// cp.async.wait_group: waits for this thread's groups except the last `pending` ones. Copies without a
/// commit are in no group.
template <int pending>
__device__ __forceinline__ void copy_wait() {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
#    endif
#else
    simt::copy_wait(pending);
#endif
}

/// cp.async.wait_all: waits for every copy that this thread has started.
__device__ __forceinline__ void copy_wait() {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;\n" ::: "memory");
#    endif
#else
    simt::copy_wait();
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// mbarriers: barriers as objects in shared memory, for some of the threads, some of the time. Not before
// sm_80.

/// Counts the arrivals of its phase, 0 at first. With the last of them the phase is complete, and the next
/// one begins.
using Mbarrier = std::uint64_t;

/// mbarrier.init: each phase of `barrier` takes so many arrivals. Other threads may use it after a barrier.
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, int arrivals) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(address), "r"(arrivals) : "memory");
#    endif
#else
    simt::mbarrier_init(barrier, arrivals);
#endif
}

/// mbarrier.arrive: one arrival. A thread that waits for the phase sees what this thread has done and,
/// after a __syncwarp, what its warp has done.
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(address)
                 : "memory");
#    endif
#else
    simt::mbarrier_arrive(barrier);
#endif
}

/// cp.async.mbarrier.arrive.noinc: one arrival, as soon as every copy that this thread has started has
/// landed. The thread goes on.
__device__ __forceinline__ void mbarrier_arrive_after_copies(Mbarrier* barrier) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n" ::"r"(address) : "memory");
#    endif
#else
    simt::mbarrier_arrive_after_copies(barrier);
#endif
}

/// mbarrier.test_wait.parity, again and again until this phase is complete. The barrier knows of a phase
/// whether its number is odd, so it must be the present one or the one before. Phase -1 is complete from the
/// start. Instead of its number its parity will do, 0 or 1; a number beyond lets the CPU find a wrong one.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, int phase LADDER_SITE) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile(
        "{\n.reg .pred complete;\nagain:\nmbarrier.test_wait.parity.shared.b64 complete, [%0], %1;\n"
        "@!complete bra again;\n}\n" ::"r"(address),
        "r"(phase & 1)
        : "memory");
#    else
    __trap();  // the host refuses the shared memory that its kernel needs before it launches
#    endif
#else
    simt::mbarrier_wait(barrier, phase, site);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// Tensor cores. In a fragment, lane = 4 * g + t; registers hold pairs of adjacent 16-bit elements, the first
// in the low half.

/// Where value c of a lane's accumulators is, D of mma or of wgmma: in row g + 8 * row_of(c) and column 2 * t
/// + column_of(c). Every four values are 8 columns. (References and | because nvcc then makes the same code
/// as of the expressions in a kernel.)
__device__ __forceinline__ constexpr int row_of(const int& c) {
    return c / 2 % 2;
}
__device__ __forceinline__ constexpr int column_of(const int& c) {
    return c / 4 * 8 | c % 2;
}

/// Where a lane points ldmatrix in a block of 16 x 16 elements, in the order of an A operand: r[0] and r[1]
/// are the block's left half, r[2] and r[3] its right one. With ldmatrix_transposed, from rows of B (16 x
/// 16): r[0] and r[1] are B's left 8 columns, r[2] and r[3] the right ones.
__device__ __forceinline__ constexpr int a_row(const int& lane) {
    return lane % 16;
}
__device__ __forceinline__ constexpr int a_column(const int& lane) {
    return lane / 16 * 8;
}

/// The same in the order of a B operand that lies in memory by columns, as K does for Q K^T: r[0] and r[1]
/// are the block's upper half, r[2] and r[3] its lower one.
__device__ __forceinline__ constexpr int b_row(const int& lane) {
    return lane % 8 + lane / 16 * 8;
}
__device__ __forceinline__ constexpr int b_column(const int& lane) {
    return lane / 8 % 2 * 8;
}

/// ldmatrix.x4: four 8 x 8 matrices of 16-bit elements. Lane i names the start of row i % 8 of matrix i / 8
/// (16 bytes, aligned). r[k] is matrix k's elements (g, 2t) and (g, 2t + 1).
template <class T>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[4], const T* row LADDER_SITE) {
#ifdef __CUDACC__
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
#else
    simt::ldmatrix(r, row, false, site);
#endif
}

/// ldmatrix.x4.trans: the same with each matrix transposed; r[k] is matrix k's elements (2t, g) and (2t + 1,
/// g).
template <class T>
__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[4], const T* row LADDER_SITE) {
#ifdef __CUDACC__
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
#else
    simt::ldmatrix(r, row, true, site);
#endif
}

/// mma.m16n8k16: D += A B with A (16 x 16, row-major), B (16 x 8, column-major), D (16 x 8, fp32).
/// A: a[0] (g, 2t..), a[1] (g + 8, 2t..), a[2] (g, 2t + 8..), a[3] (g + 8, 2t + 8..); B: b0 (2t.., g), b1 (2t
/// + 8.., g); D: d[0], d[1] (g, 2t..), d[2], d[3] (g + 8, 2t..). sm_75 has no m16n8k16 and no bf16: on it,
/// two m16n8k8 take its place, one for each half of k, and fp16 only.
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1 LADDER_SITE) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, fp16>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
#    elif __CUDA_ARCH__ >= 750
    if constexpr (std::is_same_v<T, fp16>) {
        const auto half_k = [&d](std::uint32_t a_low, std::uint32_t a_high, std::uint32_t b) {
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                : "r"(a_low), "r"(a_high), "r"(b));
        };
        half_k(a[0], a[1], b0);
        half_k(a[2], a[3], b1);
    } else {
        __trap();  // the host refuses bf16 before it launches
    }
#    endif
#else
    simt::mma<T>(d, a, b0, b1, site);
#endif
}

/// Two fp32 values rounded to T, the first in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
#ifdef __CUDACC__
    std::uint32_t bits;
    if constexpr (std::is_same_v<T, fp16>) {
        const __half2 pair = __floats2half2_rn(low, high);
        memcpy(&bits, &pair, sizeof bits);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        memcpy(&bits, &pair, sizeof bits);
    }
    return bits;
#else
    return simt::pack<T>(low, high);
#endif
}

/// What pack() packed, as fp32.
template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t bits) {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<T, fp16>) {
        __half2 pair;
        memcpy(&pair, &bits, sizeof bits);
        return __half22float2(pair);
    } else {
        __nv_bfloat162 pair;
        memcpy(&pair, &bits, sizeof bits);
        return __bfloat1622float2(pair);
    }
#else
    float2 values;
    simt::unpack<T>(bits, &values.x, &values.y);
    return values;
#endif
}

/// cvt.rn.f16x2.e4m3x2, twice: four e4m3 numbers as pairs of T, exactly; x from the two lower bytes. As bf16
/// they pass through fp32. Before sm_89 CUDA computes the same in other instructions.
template <class T>
__device__ __forceinline__ uint2 unpack_e4m3(std::uint32_t four) {
    const auto two = [](std::uint32_t bytes) {
#ifdef __CUDACC__
        const __half2_raw pair =
            __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bytes), __NV_E4M3);
        const std::uint32_t halves = pair.x | std::uint32_t{pair.y} << 16;
        if constexpr (std::is_same_v<T, fp16>) return halves;
        const float2 both = unpack<fp16>(halves);
        return pack<T>(both.x, both.y);
#else
        const auto value = [](std::uint32_t byte) {
            return simt::value_of(simt::e4m3{static_cast<std::uint8_t>(byte)});
        };
        return pack<T>(value(bytes), value(bytes >> 8));
#endif
    };
    return {two(four), two(four >> 16)};
}

/// Two adjacent elements of T or float, which one access reads and another writes: the first is at an even
/// index.
template <class V>
__device__ __forceinline__ float2 load_pair(const V* first) {
    if constexpr (std::is_same_v<V, float>) {
        return load(reinterpret_cast<const float2*>(first));
    } else {
        return unpack<V>(load(reinterpret_cast<const std::uint32_t*>(first)));
    }
}
template <class V>
__device__ __forceinline__ void store_pair(V* first, float x, float y) {
    if constexpr (std::is_same_v<V, float>) {
        store(reinterpret_cast<float2*>(first), {x, y});
    } else {
        store(reinterpret_cast<std::uint32_t*>(first), pack<V>(x, y));
    }
}

/// Two accumulators D of mma with 8 columns each, rounded to T: the A operand of an mma over these 16
/// columns. No value changes its lane.
template <class T>
__device__ __forceinline__ void pack_operand(std::uint32_t (&a)[4], const float (&left)[4],
                                             const float (&right)[4]) {
    a[0] = pack<T>(left[0], left[1]);
    a[1] = pack<T>(left[2], left[3]);
    a[2] = pack<T>(right[0], right[1]);
    a[3] = pack<T>(right[2], right[3]);
}

// ---------------------------------------------------------------------------------------------------------------
// Arithmetic that the counters name.

/// ex2.approx: 2^x, two ulp; 2^-inf = 0.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
#else
    return simt::exp2(x);
#endif
}

/// tanh.approx: of the unit of exponentials, as one of which it counts; off by 2^-11 at most. From sm_75 on.
__device__ __forceinline__ float fast_tanh(float x) {
#ifdef __CUDACC__
    float y;
    asm("tanh.approx.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
#else
    return simt::tanh(x);
#endif
}

/// a / b, rounded to nearest.
__device__ __forceinline__ float divide(float a, float b) {
#ifdef __CUDACC__
    return __fdiv_rn(a, b);
#else
    return simt::divide(a, b);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// What the CPU counts, and `lab trace` shows. On a GPU, nothing.

#ifdef __CUDACC__
template <class Shared>
__device__ __forceinline__ void note_tile(const Shared&, int, int, int, int, bool, int = 1) {}
template <class Rows>
__device__ __forceinline__ void note_rows(int, const Rows&, const Rows&) {}
template <class Rows>
__device__ __forceinline__ void note_lane_sums(int, const Rows&, const Rows&) {}
#else

/// Says that the block folds key tile j into query tile i of batch entry b and head h, and whether it masks
/// the scores. A tile has the rows of shared.Q and the keys of shared.K. If the rows of `group` heads
/// alternate in it, h is the number of their group. `masked` is kept, and not compared anew for each score:
/// the compiler believes that it may have changed here.
template <class Shared>
void note_tile(const Shared&, int b, int h, int i, int j, const bool& masked, int group = 1) {
    asm volatile("" ::"r"(&masked) : "memory");
    using Q = decltype(Shared::Q);
    using K = decltype(Shared::K);  // which may be a ring of tiles
    simt::note_tile({.batch = b,
                     .head = h,
                     .group = group,
                     .query_tile = i,
                     .key_tile = j,
                     .rows = std::extent_v<Q, std::rank_v<Q> - 2>,
                     .keys = std::extent_v<K, std::rank_v<K> - 2>,
                     .masked = masked});
}

/// Says what m (in base 2) and l of the warp's rows first_row + g and first_row + g + 8 are now. The four
/// lanes of a row hold the same.
inline void note_rows(int first_row, const float (&m)[2], const float (&l)[2]) {
    const int g = simt::lane() / 4, t = simt::lane() % 4;
    for (int r = 0; r < 2 && t == 0; ++r) simt::note_row(first_row + g + 8 * r, m[r], l[r]);
}

/// The same where each of the four lanes of a row has its own part of l.
inline void note_lane_sums(int first_row, const float (&m)[2], const float (&l)[2]) {
    const int g = simt::lane() / 4;
    for (int r = 0; r < 2; ++r) simt::note_row(first_row + g + 8 * r, m[r], l[r]);
}

/// The same for slices of 16 rows.
template <int slices>
void note_rows(int first_row, const float (&m)[slices][2], const float (&l)[slices][2]) {
    for (int a = 0; a < slices; ++a) note_rows(first_row + 16 * a, m[a], l[a]);
}
template <int slices>
void note_lane_sums(int first_row, const float (&m)[slices][2], const float (&l)[slices][2]) {
    for (int a = 0; a < slices; ++a) note_lane_sums(first_row + 16 * a, m[a], l[a]);
}

#endif

// ---------------------------------------------------------------------------------------------------------------
// The host's side of a stage.

/// When a kernel may start: after the kernel before it has ended; or early, as soon as each block of that one
/// has ended or called let_next_kernel_start() of hopper.cuh (programmatic dependent launch, from 9.0 on); or
/// in order and with all blocks together, so that each may wait for any other (cooperative launch). Then the
/// device must have room for all blocks at once.
enum class Start : std::uint8_t { in_order, early, together };

/// Starts kernel<<<grid, block, shared_bytes>>>(args...). Throws CannotRun if the device has less shared
/// memory, CheckFailed on any other launch error, and on the CPU on what the kernel does wrong.
template <Start start = Start::in_order, class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int block, std::size_t shared_bytes,
            Arguments... arguments) {
#ifdef __CUDACC__
    const auto fail_unless_ok = [](cudaError_t error) {
        if (error != cudaSuccess)
            throw CheckFailed(std::string("kernel launch: ") + cudaGetErrorString(error));
    };
    int device = 0, most = 0;
    fail_unless_ok(cudaGetDevice(&device));
    fail_unless_ok(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (shared_bytes > static_cast<std::size_t>(most)) {
        throw CannotRun("needs " + std::to_string(shared_bytes) +
                        " bytes of shared memory per block; this GPU has " + std::to_string(most));
    }
    fail_unless_ok(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(block);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = static_cast<cudaStream_t>(launch_stream());
    cudaLaunchAttribute attribute{};
    if (start == Start::early) {
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    } else {
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
    }
    config.attrs = &attribute;
    config.numAttrs = start == Start::in_order ? 0 : 1;
    if (on_launch) {
        on_launch({reinterpret_cast<const void*>(kernel), std::int64_t{grid.x} * grid.y * grid.z, block,
                   shared_bytes});
    }
    fail_unless_ok(cudaLaunchKernelEx(&config, kernel, arguments...));
#else
    simt::launch({grid, dim3(block), shared_bytes, backend == Backend::checked, start == Start::early,
                  start == Start::together},
                 kernel, arguments...);
#endif
}

/// The head dimensions that a stage is instantiated for.
template <int... d>
struct HeadDims {
    static std::vector<int> list() { return {d...}; }

    /// Calls f.operator()<T, d>() for the problem's type and head dimension. Throws CannotRun for a dimension
    /// that is not among them.
    template <class F>
    static void dispatch(const Problem& p, F f) {
        if (((p.d != d) && ...)) throw CannotRun("it has no kernel for this head dimension");
        const auto with_type = [&]<class T>() { ((p.d == d ? f.template operator()<T, d>() : void()), ...); };
        p.dtype == DType::fp16 ? with_type.template operator()<fp16>()
                               : with_type.template operator()<bf16>();
    }

    /// Whether a list holds, for each head dimension in order, the tiling that `kernel.operator()<d>()`
    /// returns.
    template <std::size_t n, class Kernel>
    static constexpr bool have(const Tiling (&tilings)[n], Kernel kernel) {
        std::size_t i = 0;
        return n == sizeof...(d) && ((tilings[i++] == kernel.template operator()<d>()) && ...);
    }
};

/// The tiles of a stage at each head dimension of its Dims: the kernel's constants Br, Bc and, where key
/// tiles have more than one slot, depth, then their values as literals:
/// `.tilings = LADDER_TILES((Br, Bc<d>, depth<d>), {16, 128, 6}, {16, 64, 3})`. The compiler compares the
/// two.
#define LADDER_TILES(constants, ...)                                                                    \
    [] {                                                                                                \
        constexpr ladder::Tiling tilings[] = {__VA_ARGS__};                                             \
        constexpr auto kernel = [&]<int d>() { return ladder::make_tiling constants; };                 \
        static_assert(Dims::have(tilings, kernel),                                                      \
                      "the literals of LADDER_TILES must be the kernel's constants, in order of Dims"); \
        return std::vector<ladder::Tiling>(std::begin(tilings), std::end(tilings));                     \
    }()

/// Declares a stage: LADDER_STAGE(forward, Dims, .number = 4, .name = "split_q", ...), where forward<T,
/// d>(const Problem&) is its host side, Dims a HeadDims, and the rest initializes a Stage. Numbers and texts
/// are literals: lists of stages read them from the source, without a compiler.
#define LADDER_STAGE(host_side, dims, ...)                                    \
    [[maybe_unused]] const bool registered = [] {                             \
        ladder::Stage stage{__VA_ARGS__};                                     \
        stage.head_dims = dims::list();                                       \
        stage.run = [](const Problem& p) {                                    \
            dims::dispatch(p, [&]<class T, int d>() { host_side<T, d>(p); }); \
        };                                                                    \
        return ladder::register_stage(stage);                                 \
    }()

}  // namespace LADDER_BACKEND
}  // namespace ladder
