/// @file
/// The CUDA layer of Hopper (compute capability 9.0a), in addition to stages/device.cuh: bulk copies by
/// tensor map (TMA), mbarriers that count their bytes, matrix products of a warpgroup (wgmma), named
/// barriers, registers that move between warpgroups.
///
/// Each function is one instruction. Under nvcc it is PTX, for sm_90a alone: elsewhere a kernel that calls
/// one traps. Under a host compiler it calls simt/, whose C++ body says the same thing element by element.
#pragma once

#include "stages/device.cuh"

#ifdef __CUDACC__
#    include <cuda.h>
#    ifdef __CUDA_ARCH_FEAT_SM90_ALL
#        define LADDER_PTX(...) asm volatile(__VA_ARGS__)
#    else
#        define LADDER_PTX(...) __trap()
#    endif
#    define LADDER_ONLY_SITE
#else
#    include "simt/hopper.h"
#    define LADDER_ONLY_SITE simt::Site site = simt::Site::here()
#endif

namespace ladder {
inline namespace LADDER_BACKEND {

/// Tells the compiler that all lanes have the same value, which it may then keep once for the warp.
__device__ __forceinline__ int uniform(int x LADDER_SITE) {
#ifdef __CUDACC__
    return __shfl_sync(~0u, x, 0);
#else
    return __shfl_sync(~0u, x, 0, 32, site);
#endif
}

/// shared_memory() of device.cuh, at a multiple of 1024 bytes, as tiles with 128-byte swizzle need it.
template <class S>
__device__ __forceinline__ S& aligned_shared_memory() {
#ifdef __CUDACC__
    extern __shared__ __align__(1024) unsigned char aligned_bytes[];
    return *reinterpret_cast<S*>(aligned_bytes);
#else
    return *static_cast<S*>(simt::shared_memory());
#endif
}

#ifdef __CUDACC__
__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
#endif

// ---------------------------------------------------------------------------------------------------------------
// Tensor maps and bulk copies (TMA).

/// What a bulk copy knows of a (B, heads, N, d) tensor: its address, extents and strides, and the box that
/// one copy moves: `rows` rows of 64 columns, for one panel of columns or several. In shared memory a panel
/// is rows of 128 bytes, one after the other, with their 16-byte pieces exchanged (128-byte swizzle): piece
/// c of the row at an address whose bits 7 to 9 are r lies at c ^ r. A tile starts at a multiple of 1024
/// bytes, so r is the row's number modulo 8. A kernel takes it as a `const __grid_constant__` parameter.
#ifdef __CUDACC__
using TensorMap = CUtensorMap;
#else
using TensorMap = simt::TensorMap;
#endif

/// cuTensorMapEncodeTiled: the map of X, whose boxes have `rows` rows (1 to 256) and `panels` panels of 64
/// columns; if X has 32, the others are 0. On the host. Throws CannotRun if the driver has none, CheckFailed
/// if it refuses, for instance an address or a stride that is no multiple of 16 bytes.
template <class T, int d>
TensorMap tensor_map(const View& X, int B, int heads, int N, int rows, int panels = ceil_div(d, 64)) {
    static_assert((d % 64 == 0 || d == 32) && sizeof(T) == 2);
    constexpr int width = d < 64 ? d : 64, all_panels = ceil_div(d, 64);
#ifdef __CUDACC__
    using Encode = decltype(&cuTensorMapEncodeTiled);
    static const Encode encode = [] {
        void* f = nullptr;
        cudaDriverEntryPointQueryResult found;
#    if CUDART_VERSION >= 12050
        const auto error =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
#    else
        const auto error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found);
#    endif
        if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
            throw CannotRun("the driver has no tensor maps");
        return reinterpret_cast<Encode>(f);
    }();
    // Of the driver, and in a thread that has asked nothing of the runtime yet it finds no context.
    thread_local const cudaError_t has_context = [] {
        int device = 0;
        const cudaError_t error = cudaGetDevice(&device);
        return error == cudaSuccess ? cudaSetDevice(device) : error;
    }();
    if (has_context != cudaSuccess)
        throw CheckFailed(std::string("tensor map: ") + cudaGetErrorString(has_context));
    TensorMap map;
    const cuuint64_t extents[] = {width, cuuint64_t(N), all_panels, cuuint64_t(heads), cuuint64_t(B)};
    const cuuint64_t strides[] = {cuuint64_t(X.row) * 2, 128, cuuint64_t(X.head) * 2,
                                  cuuint64_t(X.batch) * 2};
    const cuuint32_t box[] = {64, cuuint32_t(rows), cuuint32_t(panels), 1, 1}, steps[] = {1, 1, 1, 1, 1};
    // The two panels of a row of 256 bytes are neighbors: a miss of the one must not fetch the other as well.
    const CUresult result = encode(
        &map, std::is_same_v<T, fp16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
        X.data, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) throw CheckFailed("tensor map: error " + std::to_string(int(result)));
    return map;
#else
    return simt::tensor_map(X.data, {width, N, all_panels, heads, B},
                            {2, X.row * 2, 128, X.head * 2, X.batch * 2}, {64, rows, panels, 1, 1});
#endif
}

/// cp.async.bulk.tensor, from global to shared memory: starts the copy of the box whose first row is `row`
/// of that head and batch entry. Rows outside of the tensor become zeros. Executed by one thread. When it
/// has landed, it takes the bytes of the whole box, including those outside, off what `full` expects in its
/// present phase (mbarrier_expect). A thread that has waited for that phase may read the tile. All reads
/// and writes of the slot's previous contents must have been waited for; writes by threads also need
/// fence_proxy_async.
__device__ __forceinline__ void bulk_load(void* shared, const TensorMap* map, int row, int head, int batch,
                                          Mbarrier* full) {
#ifdef __CUDACC__
    LADDER_PTX(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %2, %4, %5}], [%6];\n" ::"r"(shared_address(shared)),
        "l"(map), "r"(0), "r"(row), "r"(head), "r"(batch), "r"(shared_address(full))
        : "memory");
#else
    simt::bulk_load(shared, *map, {0, row, 0, head, batch}, full);
#endif
}

/// cp.async.bulk.tensor, from shared to global memory: starts the copy of a box, whose first column is that
/// of `panel`. Rows outside of the tensor are not written. Executed by one thread, after a barrier or
/// __syncwarp with the threads that wrote the tile, each of which has executed fence_proxy_async.
__device__ __forceinline__ void bulk_store(const TensorMap* map, const void* shared, int panel, int row,
                                           int head, int batch) {
#ifdef __CUDACC__
    LADDER_PTX(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %6, %4, %5}], [%1];\n" ::
            "l"(map),
        "r"(shared_address(shared)), "r"(0), "r"(row), "r"(head), "r"(batch), "r"(panel)
        : "memory");
#else
    simt::bulk_store(*map, shared, {0, row, panel, head, batch});
#endif
}

/// cp.async.bulk, from global to shared memory: `bytes` bytes that lie together, a multiple of 16 at
/// multiples of 16, in the same order. All else is as for a box.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, int bytes, Mbarrier* full) {
#ifdef __CUDACC__
    LADDER_PTX(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
            shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(full))
        : "memory");
#else
    simt::bulk_load(shared, global, bytes, full);
#endif
}

/// cp.reduce.async.bulk: adds `bytes` bytes of floats in shared memory, a multiple of 16 at multiples of
/// 16, to those at `global`, whichever other threads add to them, in no particular order. All else is as
/// for bulk_store.
__device__ __forceinline__ void bulk_add(float* global, const float* shared, int bytes) {
#ifdef __CUDACC__
    LADDER_PTX("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#else
    simt::bulk_add(global, shared, bytes);
#endif
}

/// cp.async.bulk.commit_group: this thread's bulk stores since the last commit are a group.
__device__ __forceinline__ void bulk_commit() {
#ifdef __CUDACC__
    LADDER_PTX("cp.async.bulk.commit_group;\n" ::: "memory");
#else
    simt::bulk_commit();
#endif
}

/// cp.async.bulk.wait_group.read: waits until this thread's groups, except the last `pending` ones, have read
/// shared memory, which may then be written again. A thread waits for all of them before it leaves the
/// kernel.
template <int pending>
__device__ __forceinline__ void bulk_wait_read() {
#ifdef __CUDACC__
    LADDER_PTX("cp.async.bulk.wait_group.read %0;\n" ::"n"(pending) : "memory");
#else
    simt::bulk_wait(pending, true);
#endif
}

/// cp.async.bulk.wait_group: the same, and until this thread sees what they have written.
template <int pending>
__device__ __forceinline__ void bulk_wait() {
#ifdef __CUDACC__
    LADDER_PTX("cp.async.bulk.wait_group %0;\n" ::"n"(pending) : "memory");
#else
    simt::bulk_wait(pending, false);
#endif
}

/// fence.proxy.async: what this thread has written to shared memory is fit for bulk copies and wgmma, once
/// they come after a barrier that comes after this. Executed by each thread that wrote; or, after the
/// barrier, by each one that reads.
__device__ __forceinline__ void fence_proxy_async() {
#ifdef __CUDACC__
    LADDER_PTX("fence.proxy.async.shared::cta;\n" ::: "memory");
#else
    simt::fence_proxy_async();
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// mbarriers that count bytes. A phase is over when all have arrived and the bytes that they expect have come.

/// fence.mbarrier_init: bulk loads may signal the mbarriers that this thread has set up.
__device__ __forceinline__ void mbarrier_fence_init() {
#ifdef __CUDACC__
    LADDER_PTX("fence.mbarrier_init.release.cluster;\n" ::: "memory");
#else
    simt::fence_mbarrier_init();
#endif
}

/// mbarrier.arrive.expect_tx: the present phase expects so many bytes more of bulk loads; and one arrival.
__device__ __forceinline__ void mbarrier_expect(Mbarrier* barrier, int bytes) {
#ifdef __CUDACC__
    LADDER_PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
#else
    simt::mbarrier_expect(barrier, bytes);
#endif
}

/// mbarrier.try_wait.parity: mbarrier_wait() of device.cuh by an instruction that lets the thread sleep for a
/// while, again and again until this phase is complete.
__device__ __forceinline__ void mbarrier_try_wait(Mbarrier* barrier, int phase LADDER_SITE) {
#ifdef __CUDACC__
    LADDER_PTX(
        "{\n.reg .pred complete;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 complete, [%0], "
        "%1;\n@!complete bra again;\n}\n" ::"r"(shared_address(barrier)),
        "r"(phase & 1)
        : "memory");
#else
    simt::mbarrier_wait(barrier, phase, site);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// Named barriers: 1 to 15, for some of a block's warps (0 is that of __syncthreads). A barrier is complete
// when `threads` threads, in whole warps, have arrived, and then begins anew; all threads that use it give
// the same number.

/// bar.sync: arrives and waits.
__device__ __forceinline__ void named_barrier_sync(int id, int threads LADDER_SITE) {
#ifdef __CUDACC__
    LADDER_PTX("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#else
    simt::named_sync(id, threads, site);
#endif
}

/// bar.arrive: arrives and goes on. Threads that wait see what this thread has done.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads LADDER_SITE) {
#ifdef __CUDACC__
    LADDER_PTX("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#else
    simt::named_arrive(id, threads, site);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// Two kernels, of which the second is launched early (programmatic dependent launch).

/// griddepcontrol.launch_dependents: as far as this block is concerned, the blocks of a kernel that is
/// launched early after this one may start. It says nothing of what this block has written.
__device__ __forceinline__ void let_next_kernel_start() {
#ifdef __CUDACC__
    LADDER_PTX("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

/// griddepcontrol.wait: waits until the kernel before has ended, and all that it wrote is visible. Each
/// thread of a kernel that is launched early executes it before it reads what that one writes, or writes what
/// that one uses. In a kernel that was launched in order it returns at once. On the CPU, where kernels run
/// one after the other, the race checker finds a thread that has not waited.
__device__ __forceinline__ void wait_for_previous_kernel() {
#ifdef __CUDACC__
    LADDER_PTX("griddepcontrol.wait;\n" ::: "memory");
#else
    simt::wait_for_previous_kernel();
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// Registers. A block has those that it was launched with, 65536 / threads each (a multiple of 8) after
// __launch_bounds__(threads, 1). A warpgroup executes both of these as one.

/// setmaxnreg.dec: from here on n registers (24 to 256, a multiple of 8) are enough for each thread; the
/// others are free.
template <int n>
__device__ __forceinline__ void release_registers(LADDER_ONLY_SITE) {
    static_assert(n >= 24 && n <= 256 && n % 8 == 0);
#ifdef __CUDACC__
    LADDER_PTX("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(n));
#else
    simt::set_registers(n, false, site);
#endif
}

/// setmaxnreg.inc: waits until so many are free that each thread has n.
template <int n>
__device__ __forceinline__ void claim_registers(LADDER_ONLY_SITE) {
    static_assert(n >= 24 && n <= 256 && n % 8 == 0);
#ifdef __CUDACC__
    LADDER_PTX("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(n));
#else
    simt::set_registers(n, true, site);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// wgmma: D (64 x N, fp32) = A B or D + A B, with A 64 x 16 and B 16 x N, by the four warps of a warpgroup.
// All of their threads execute the same ones in the same order. The order of things:
//   wgmma_fence, one or more wgmma, wgmma_commit, (other work), wgmma_wait.
// In lane 4 * g + t of warp w (of the four), accumulator D[c] is row 16 w + g + 8 row_of(c), column
// 2 t + column_of(c).

/// A matrix in shared memory as wgmma takes it: bits 0-13 its address / 16, 16-29 `leading` / 16, 32-45
/// `stride` / 16 (bytes); 62 says 128-byte swizzle. It lies in panels of 64 columns, whose rows are 128
/// bytes.
struct Descriptor {
    std::uint64_t bits;

    /// The matrix from row n on.
    __device__ Descriptor row(int n) const { return {bits + n * (128 / 16)}; }
    /// The matrix from column n on; a panel has so many rows.
    template <int rows>
    __device__ Descriptor column(int n) const {
        return {bits + n / 64 * (rows * 128 / 16) + n % 64 * 2 / 16};
    }
};

/// The descriptor of a tile that bulk_load brought, or of one written in the same layout. Rows that lie
/// together (K-major: A, and B not transposed): row r of 16 elements starts at r / 8 * stride + r % 8 *
/// 128; `leading` is not used. Columns that lie together (B transposed): column c of row k lies at c / 64 *
/// leading + c % 64 * 2 + k / 8 * stride + k % 8 * 128, and `panel_rows` says how many rows a panel has.
template <class Tile>
__device__ __forceinline__ Descriptor matrix_descriptor(const Tile& tile, int panel_rows = 0) {
    const int leading = panel_rows * 128, stride = 8 * 128;
#ifdef __CUDACC__
    const unsigned start = shared_address(&tile);
#else
    const unsigned start = simt::describe_tile(&tile, sizeof tile);
#endif
    return {std::uint64_t((start & 0x3ffff) >> 4) | std::uint64_t(leading >> 4) << 16 |
            std::uint64_t(stride >> 4) << 32 | std::uint64_t{1} << 62};
}

/// wgmma.fence: before the first wgmma, and again after each change of registers that one uses, but for
/// accumulators that several in a row add to.
__device__ __forceinline__ void wgmma_fence(LADDER_ONLY_SITE) {
#ifdef __CUDACC__
    LADDER_PTX("wgmma.fence.sync.aligned;\n" ::: "memory");
#else
    simt::wgmma_fence(site);
#endif
}

/// wgmma.commit_group: the products since the last commit are a group.
__device__ __forceinline__ void wgmma_commit(LADDER_ONLY_SITE) {
#ifdef __CUDACC__
    LADDER_PTX("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#else
    simt::wgmma_commit(site);
#endif
}

/// max(a, b, c) for an a that is not negative: floats then compare as the integers of their bits, of which
/// Hopper takes three at once (VIMNMX3).
__device__ __forceinline__ float max3(float a, float b, float c) {
#ifdef __CUDACC__
    return __int_as_float(__vimax3_s32(__float_as_int(a), __float_as_int(b), __float_as_int(c)));
#else
    return fmaxf(a, fmaxf(b, c));
#endif
}

/// max.NaN: the larger of two numbers, NaN if one of them is (fmaxf returns the other).
__device__ __forceinline__ float max_nan(float a, float b) {
#ifdef __CUDACC__
    float c;
    asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(c) : "f"(a), "f"(b));
    return c;
#else
    return a != a || a > b ? a : b;
#endif
}

/// prmt, in its mode that repeats signs: bits 0 to 15 are the top bit of byte 2 n of x, bits 16 to 31 that of
/// byte 2 n + 1. n is 0 or 1.
__device__ __forceinline__ std::uint32_t mask_of_signs(std::uint32_t x, int n) {
#ifdef __CUDACC__
    std::uint32_t mask;
    asm("prmt.b32 %0, %1, 0, %2;\n" : "=r"(mask) : "r"(x), "r"(0x9988 + n * 0x2222));
    return mask;
#else
    const std::uint32_t pair = x >> 16 * n;
    return (pair >> 7 & 1) * 0xffff | (pair >> 15 & 1) * 0xffff0000;
#endif
}

/// 2^n, where the last 8 bits of a number x are n + 127: they become its exponent. 0 for n = -127.
__device__ __forceinline__ float power_of_two(float x) {
    std::uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits <<= 23;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/// After a wait for a product: tells the compiler that the registers of its operands were in use until
/// here, so that it neither reuses nor changes them before (warpgroup_fence_operand in CUTLASS).
template <class Register, int n>
__device__ __forceinline__ void fence_operand([[maybe_unused]] Register (&r)[n]) {
#ifdef __CUDACC__
#    pragma unroll
    for (int i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<Register, float>) {
            asm volatile("" : "+f"(r[i])::"memory");
        } else {
            asm volatile("" : "+r"(r[i])::"memory");
        }
    }
#endif
}

/// wgmma.wait_group: waits for all groups but the last `pending` ones. Before that, no thread may touch the
/// accumulators of a product, or the registers of its A (for those: fence_operand()), or write the shared
/// memory that it reads. D is what its products add to.
template <int pending, int n>
__device__ __forceinline__ void wgmma_wait([[maybe_unused]] float (&D)[n] LADDER_SITE) {
#ifdef __CUDACC__
    LADDER_PTX("wgmma.wait_group.sync.aligned %0;\n" ::"n"(pending) : "memory");
    fence_operand(D);
#else
    simt::wgmma_wait(pending, site);
#endif
}

#ifdef __CUDACC__
// clang-format off
// The operands of an asm, by their number: names of eight registers, and the registers.
#    define LADDER_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#    define LADDER_NAMES_16 LADDER_NAMES_8 ", " "%8, %9, %10, %11, %12, %13, %14, %15"
#    define LADDER_NAMES_24 LADDER_NAMES_16 ", " "%16, %17, %18, %19, %20, %21, %22, %23"
#    define LADDER_NAMES_32 LADDER_NAMES_24 ", " "%24, %25, %26, %27, %28, %29, %30, %31"
#    define LADDER_NAMES_40 LADDER_NAMES_32 ", " "%32, %33, %34, %35, %36, %37, %38, %39"
#    define LADDER_NAMES_48 LADDER_NAMES_40 ", " "%40, %41, %42, %43, %44, %45, %46, %47"
#    define LADDER_NAMES_56 LADDER_NAMES_48 ", " "%48, %49, %50, %51, %52, %53, %54, %55"
#    define LADDER_NAMES_64 LADDER_NAMES_56 ", " "%56, %57, %58, %59, %60, %61, %62, %63"
#    define LADDER_NAMES_72 LADDER_NAMES_64 ", " "%64, %65, %66, %67, %68, %69, %70, %71"
#    define LADDER_NAMES_80 LADDER_NAMES_72 ", " "%72, %73, %74, %75, %76, %77, %78, %79"
#    define LADDER_NAMES_88 LADDER_NAMES_80 ", " "%80, %81, %82, %83, %84, %85, %86, %87"
#    define LADDER_NAMES_96 LADDER_NAMES_88 ", " "%88, %89, %90, %91, %92, %93, %94, %95"
#    define LADDER_NAMES_104 LADDER_NAMES_96 ", " "%96, %97, %98, %99, %100, %101, %102, %103"
#    define LADDER_NAMES_112 LADDER_NAMES_104 ", " "%104, %105, %106, %107, %108, %109, %110, %111"
#    define LADDER_NAMES_120 LADDER_NAMES_112 ", " "%112, %113, %114, %115, %116, %117, %118, %119"
#    define LADDER_NAMES_128 LADDER_NAMES_120 ", " "%120, %121, %122, %123, %124, %125, %126, %127"
#    define LADDER_EIGHT(i)                                                                         \
        "+f"(D[i]), "+f"(D[i + 1]), "+f"(D[i + 2]), "+f"(D[i + 3]), "+f"(D[i + 4]), "+f"(D[i + 5]), \
            "+f"(D[i + 6]), "+f"(D[i + 7])
#    define LADDER_OPERANDS_8 LADDER_EIGHT(0)
#    define LADDER_OPERANDS_16 LADDER_OPERANDS_8, LADDER_EIGHT(8)
#    define LADDER_OPERANDS_24 LADDER_OPERANDS_16, LADDER_EIGHT(16)
#    define LADDER_OPERANDS_32 LADDER_OPERANDS_24, LADDER_EIGHT(24)
#    define LADDER_OPERANDS_40 LADDER_OPERANDS_32, LADDER_EIGHT(32)
#    define LADDER_OPERANDS_48 LADDER_OPERANDS_40, LADDER_EIGHT(40)
#    define LADDER_OPERANDS_56 LADDER_OPERANDS_48, LADDER_EIGHT(48)
#    define LADDER_OPERANDS_64 LADDER_OPERANDS_56, LADDER_EIGHT(56)
#    define LADDER_OPERANDS_72 LADDER_OPERANDS_64, LADDER_EIGHT(64)
#    define LADDER_OPERANDS_80 LADDER_OPERANDS_72, LADDER_EIGHT(72)
#    define LADDER_OPERANDS_88 LADDER_OPERANDS_80, LADDER_EIGHT(80)
#    define LADDER_OPERANDS_96 LADDER_OPERANDS_88, LADDER_EIGHT(88)
#    define LADDER_OPERANDS_104 LADDER_OPERANDS_96, LADDER_EIGHT(96)
#    define LADDER_OPERANDS_112 LADDER_OPERANDS_104, LADDER_EIGHT(104)
#    define LADDER_OPERANDS_120 LADDER_OPERANDS_112, LADDER_EIGHT(112)
#    define LADDER_OPERANDS_128 LADDER_OPERANDS_120, LADDER_EIGHT(120)
// clang-format on
// N, N / 2, then the numbers of the operands after the accumulators
#    define LADDER_WGMMA_SS(N, half, type, a, b, s, t)                                                       \
        LADDER_PTX("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N      \
                   "k16.f32." type "." type " {" LADDER_NAMES_##half "}, %" #a ", %" #b ", p, 1, 1, 0, %" #t \
                                                                     ";\n}\n"                                \
                   : LADDER_OPERANDS_##half                                                                  \
                   : "l"(A.bits), "l"(B.bits), "r"(int(add)), "n"(B_transposed))
#    define LADDER_WGMMA_RS(N, half, type, a0, a1, a2, a3, b, s, t)                                     \
        LADDER_PTX("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." type "." type " {" LADDER_NAMES_##half                                    \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, %" #t ";\n}\n"       \
                   : LADDER_OPERANDS_##half                                                             \
                   : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B.bits), "r"(int(add)),            \
                     "n"(B_transposed))
#    define LADDER_WGMMA(form, N, half, ...)                       \
        if constexpr (columns == N) {                              \
            if constexpr (std::is_same_v<T, fp16>)                 \
                LADDER_WGMMA_##form(N, half, "f16", __VA_ARGS__);  \
            else                                                   \
                LADDER_WGMMA_##form(N, half, "bf16", __VA_ARGS__); \
        }
#endif

/// The widths N of a product that stages use; and 80, whose last columns fill no panel, for tests.
template <int N>
constexpr bool is_wgmma_width = N == 64 || N == 80 || N == 128 || N == 256;

/// wgmma.mma_async.m64nNk16 with A and B in shared memory, by their descriptors: D = A B, and if `add` D +
/// A B. A has rows that lie together; B is N rows of 16 that lie together (K), or transposed 16 rows of N
/// (V). The memory was brought by bulk loads, or written by threads and fenced (fence_proxy_async).
template <class T, int columns, bool B_transposed>
__device__ __forceinline__ void wgmma(float (&D)[columns / 2], Descriptor A, Descriptor B,
                                      bool add LADDER_SITE) {
    static_assert(is_wgmma_width<columns>);
#ifdef __CUDACC__
    LADDER_WGMMA(SS, 64, 32, 32, 33, 34, 35)
    LADDER_WGMMA(SS, 80, 40, 40, 41, 42, 43)
    LADDER_WGMMA(SS, 128, 64, 64, 65, 66, 67)
    LADDER_WGMMA(SS, 256, 128, 128, 129, 130, 131)
#else
    simt::wgmma({D, columns, nullptr, A.bits, B.bits, B_transposed, add, simt::element_type<T>}, site);
#endif
}

/// The same with A in registers: in warp w and lane 4 * g + t, A[0] is row 16 w + g, columns 2 t and 2 t + 1;
/// A[1] row g + 8; A[2] and A[3] the same rows, columns 8 further.
template <class T, int columns, bool B_transposed>
__device__ __forceinline__ void wgmma(float (&D)[columns / 2], const std::uint32_t* A, Descriptor B,
                                      bool add LADDER_SITE) {
    static_assert(is_wgmma_width<columns>);
#ifdef __CUDACC__
    LADDER_WGMMA(RS, 64, 32, 32, 33, 34, 35, 36, 37, 38)
    LADDER_WGMMA(RS, 80, 40, 40, 41, 42, 43, 44, 45, 46)
    LADDER_WGMMA(RS, 128, 64, 64, 65, 66, 67, 68, 69, 70)
    LADDER_WGMMA(RS, 256, 128, 128, 129, 130, 131, 132, 133, 134)
#else
    simt::wgmma({D, columns, A, 0, B.bits, B_transposed, add, simt::element_type<T>}, site);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// Products of 8-bit elements (e4m3), at twice the rate.

/// cvt.rn.satfinite.e4m3x2, twice: four fp32 values rounded to e4m3, x in the lowest byte. Beyond 448 they
/// become 448; NaN stays NaN.
__device__ __forceinline__ std::uint32_t pack_e4m3(float x, float y, float z, float w) {
#ifdef __CUDACC__
    std::uint32_t bits = 0;
    LADDER_PTX(
        "{\n.reg .b16 low, high;\ncvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\nmov.b32 %0, {low, high};\n}\n"
        : "=r"(bits)
        : "f"(x), "f"(y), "f"(z), "f"(w));
    return bits;
#else
    const auto byte = [](float value) { return std::uint32_t{simt::round_to<simt::e4m3>(value).bits}; };
    return byte(x) | byte(y) << 8 | byte(z) << 16 | byte(w) << 24;
#endif
}

#ifdef __CUDACC__
// N, N / 2, then the numbers of the operands after the accumulators. 8-bit operands have no transposed form.
#    define LADDER_WGMMA_E4M3_SS(N, half, a, b, s)                                                      \
        if constexpr (columns == N)                                                                     \
        LADDER_PTX("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
                   "k32.f32.e4m3.e4m3 {" LADDER_NAMES_##half "}, %" #a ", %" #b ", p, 1, 1;\n}\n"       \
                   : LADDER_OPERANDS_##half                                                             \
                   : "l"(A.bits), "l"(B.bits), "r"(int(add)))
#    define LADDER_WGMMA_E4M3_RS(N, half, a0, a1, a2, a3, b, s)                                         \
        if constexpr (columns == N)                                                                     \
        LADDER_PTX("{\n.reg .pred p;\nsetp.ne.b32 p, %" #s ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
                   "k32.f32.e4m3.e4m3 {" LADDER_NAMES_##half "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3  \
                                                             "}, %" #b ", p, 1, 1;\n}\n"                \
                   : LADDER_OPERANDS_##half                                                             \
                   : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B.bits), "r"(int(add)))
#endif

/// wgmma.mma_async.m64nNk32 of e4m3: D = A B, and if `add` D + A B. The elements of a row of A, and of a
/// column of B, lie together, 32 bytes of them: descriptors count as if each two were one of 16 bits. Of D's
/// sums it keeps 13 bits of fraction, and cuts off the others.
template <int columns>
__device__ __forceinline__ void wgmma_e4m3(float (&D)[columns / 2], Descriptor A, Descriptor B,
                                           bool add LADDER_SITE) {
    static_assert(is_wgmma_width<columns>);
#ifdef __CUDACC__
    LADDER_WGMMA_E4M3_SS(64, 32, 32, 33, 34);
    LADDER_WGMMA_E4M3_SS(80, 40, 40, 41, 42);
    LADDER_WGMMA_E4M3_SS(128, 64, 64, 65, 66);
    LADDER_WGMMA_E4M3_SS(256, 128, 128, 129, 130);
#else
    simt::wgmma({D, columns, nullptr, A.bits, B.bits, false, add, simt::ElementType::e4m3}, site);
#endif
}

/// The same with A in registers: in warp w and lane 4 * g + t, A[0] is row 16 w + g, columns 4 t to 4 t + 3;
/// A[1] row g + 8; A[2] and A[3] the same rows, columns 16 further.
template <int columns>
__device__ __forceinline__ void wgmma_e4m3(float (&D)[columns / 2], const std::uint32_t* A, Descriptor B,
                                           bool add LADDER_SITE) {
    static_assert(is_wgmma_width<columns>);
#ifdef __CUDACC__
    LADDER_WGMMA_E4M3_RS(64, 32, 32, 33, 34, 35, 36, 37);
    LADDER_WGMMA_E4M3_RS(80, 40, 40, 41, 42, 43, 44, 45);
    LADDER_WGMMA_E4M3_RS(128, 64, 64, 65, 66, 67, 68, 69);
    LADDER_WGMMA_E4M3_RS(256, 128, 128, 129, 130, 131, 132, 133);
#else
    simt::wgmma({D, columns, A, 0, B.bits, false, add, simt::ElementType::e4m3}, site);
#endif
}

/// mma.m16n8k32 of e4m3, by a warp: D += A B. A (16 x 32): a[0] (g, 4t..), a[1] (g + 8, 4t..), a[2] (g, 4t +
/// 16..), a[3] (g + 8, 4t + 16..); B (32 x 8): b0 (4t.., g), b1 (4t + 16.., g); D: as of mma() of device.cuh.
/// Hopper has no unit for it. The compiler makes it of conversions to fp16, two m16n8k16 with a sum of their
/// own, and an addition of this sum to D in fp32. nvcc knows it from CUDA 12.4 on; an older one makes a trap.
__device__ __forceinline__ void mma_e4m3(float* D, const std::uint32_t* a, std::uint32_t b0,
                                         std::uint32_t b1 LADDER_SITE) {
#ifdef __CUDACC__
#    if __CUDA_ARCH__ >= 890 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1204
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#    else
    __trap();
#    endif
#else
    simt::mma_e4m3(D, a, b0, b1, site);
#endif
}

/// Which key of each 16 lies at a position, 0 to 15, of the keys of V^T, if P is to be the next product's A
/// as it is: lane 4 g + t holds columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of S, and gives columns 4 t to 4 t + 3
/// of A.
__host__ __device__ constexpr int key_at(int position) {
    return position / 4 * 2 + position % 2 + position / 2 % 2 * 8;
}

/// Of 32 columns of S, 16 accumulators, the registers of A. No lane needs what another has: columns are
/// permuted (key_at).
__device__ __forceinline__ void pack_operand_e4m3(std::uint32_t* A, const float* S) {
#ifdef __CUDACC__
#    pragma unroll
#endif
    for (int r = 0; r < 4; ++r) {
        const float* s = S + r / 2 * 8 + r % 2 * 2;
        A[r] = pack_e4m3(s[0], s[1], s[4], s[5]);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// From fragments to shared memory.

/// stmatrix.x4: the opposite of ldmatrix. Lane i names the start of row i % 8 of matrix i / 8 (16 bytes,
/// aligned); r[k] is matrix k's elements (g, 2t) and (g, 2t + 1).
template <class T>
__device__ __forceinline__ void stmatrix(T* row, const std::uint32_t (&r)[4] LADDER_SITE) {
#ifdef __CUDACC__
    LADDER_PTX(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
#else
    simt::stmatrix(row, r, false, site);
#endif
}

/// stmatrix.x4.trans: the same with each matrix transposed; r[k] is matrix k's elements (2t, g) and (2t + 1,
/// g).
template <class T>
__device__ __forceinline__ void stmatrix_transposed(T* row, const std::uint32_t (&r)[4] LADDER_SITE) {
#ifdef __CUDACC__
    LADDER_PTX(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
#else
    simt::stmatrix(row, r, true, site);
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// What the CPU counts, and `lab trace` shows.

/// note_tile() of device.cuh by one warpgroup of several: it folds key tile j, of so many keys, into `rows`
/// query rows from first_row on, in which those of `group` heads may alternate. All of its threads execute
/// it.
template <int keys, int rows = 64>
__device__ __forceinline__ void note_tile([[maybe_unused]] int b, [[maybe_unused]] int h,
                                          [[maybe_unused]] int first_row, [[maybe_unused]] int j,
                                          [[maybe_unused]] bool masked, [[maybe_unused]] int group = 1) {
#ifndef __CUDACC__
    simt::note_tile({.batch = b,
                     .head = h,
                     .group = group,
                     .query_tile = first_row / rows,
                     .key_tile = j,
                     .rows = rows,
                     .keys = keys,
                     .masked = masked,
                     .threads = 128});
#endif
}

}  // namespace LADDER_BACKEND
}  // namespace ladder
