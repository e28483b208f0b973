/// @file
/// The instructions of Hopper (compute capability 9.0a), for stages/hopper.cuh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "simt/cuda.h"
#include "simt/e4m3.h"

#define __grid_constant__

namespace simt {

/// What a bulk copy knows of a tensor of 16-bit elements in global memory, and of the box of it that one copy
/// moves. Dimensions are counted from the innermost, whose elements lie side by side.
struct TensorMap {
    static constexpr int dims = 5;
    using Index = std::array<int, dims>;

    std::byte* data;
    Index extent;                           ///< elements
    std::array<std::int64_t, dims> stride;  ///< bytes
    Index box;                              ///< elements
};

/// Throws a Report for what cuTensorMapEncodeTiled does not accept.
TensorMap tensor_map(void* data, const TensorMap::Index& extent,
                     const std::array<std::int64_t, TensorMap::dims>& stride, const TensorMap::Index& box);

// Bulk copies and what they signal. A place that a report names is the caller's, by return address.
void bulk_load(void* shared, const TensorMap& map, const TensorMap::Index& first, void* mbarrier);
void bulk_load(void* shared, const void* global, int bytes, void* mbarrier);
void bulk_store(const TensorMap& map, const void* shared, const TensorMap::Index& first);
void bulk_add(float* global, const float* shared, int bytes);
void bulk_commit();
void bulk_wait(int pending_groups, bool reads_alone);
void fence_proxy_async();
void fence_mbarrier_init();
void mbarrier_expect(void* barrier, int bytes);

/// In a kernel that was launched early.
void wait_for_previous_kernel();

// Barriers with numbers, and registers that move.
void named_sync(int id, int threads, Site site);
void named_arrive(int id, int threads, Site site);
void set_registers(int count, bool more, Site site);

// Products of a warpgroup: every lane of its warps executes them.
void wgmma_fence(Site site);
void wgmma_commit(Site site);
void wgmma_wait(int pending_groups, Site site);
/// Bytes from the start of the block's shared memory.
unsigned shared_offset(const void* address);
/// The tile's shared_offset(). Products whose descriptors start in it must stay in it.
unsigned describe_tile(const void* tile, std::size_t bytes);

/// What a product's operands are made of.
enum class ElementType { fp16, bf16, e4m3 };
template <class T>
constexpr ElementType element_type = std::is_same_v<T, fp16> ? ElementType::fp16 : ElementType::bf16;

/// The operands of one product as a lane gives them.
struct Wgmma {
    float* D;                ///< columns / 2 accumulators
    int columns;             ///< N
    const std::uint32_t* A;  ///< four registers; null: A_descriptor says where
    std::uint64_t A_descriptor, B_descriptor;
    bool B_transposed, add;
    ElementType type;
};
void wgmma(const Wgmma& operands, Site site);
/// A product of a warp, of e4m3 elements.
void mma_e4m3(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, Site site);
void stmatrix(const void* row, const std::uint32_t (&r)[4], bool transposed, Site site);

}  // namespace simt

struct alignas(16) int4 {
    int x, y, z, w;
};
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
