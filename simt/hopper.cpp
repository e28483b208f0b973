/// @file
/// What each instruction of Hopper (simt/hopper.h) does, and to which object of the block.

#include "simt/hopper.h"

#include "simt/block.h"

namespace simt {

TensorMap tensor_map(void* data, const TensorMap::Index& extent,
                     const std::array<std::int64_t, TensorMap::dims>& stride, const TensorMap::Index& box) {
    const auto refuse = [](const char* why) {
        throw report(Report::Kind::misaligned, "tensor_map: {}", why);
    };
    if (!is_aligned(data, 16)) refuse("the tensor is not 16-byte aligned");
    for (int n = 0; n < TensorMap::dims; ++n) {
        if (n > 0 && stride[n] % 16 != 0) refuse("a stride is no multiple of 16 bytes");
        if (box[n] < 1 || box[n] > 256 || extent[n] < 1)
            refuse("a box has 1 to 256 elements in each dimension");
    }
    if (box[0] != 64 || extent[0] % 8 != 0)
        refuse("a row of a box with 128-byte swizzle has 64 elements here");
    return {static_cast<std::byte*>(data), extent, stride, box};
}

void bulk_load(void* shared, const TensorMap& map, const TensorMap::Index& first, void* mbarrier) {
    BulkCopies& copies = running_block->bulk_copies;
    copies.load(copies.box(map, shared, first), map.data, mbarrier, SIMT_CALLER);
}

void bulk_load(void* shared, const void* global, int bytes, void* mbarrier) {
    BulkCopies& copies = running_block->bulk_copies;
    const auto caller = SIMT_CALLER;
    copies.load(copies.line(global, shared, bytes, caller), global, mbarrier, caller);
}

void bulk_store(const TensorMap& map, const void* shared, const TensorMap::Index& first) {
    BulkCopies& copies = running_block->bulk_copies;
    copies.store(copies.box(map, shared, first), false, SIMT_CALLER);
}

void bulk_add(float* global, const float* shared, int bytes) {
    BulkCopies& copies = running_block->bulk_copies;
    const auto caller = SIMT_CALLER;
    copies.store(copies.line(global, shared, bytes, caller), true, caller);
}

void fence_proxy_async() {
    Context& context = running_block->context;
    if (context.is_checked) context.clocks.fence_proxy(context.thread());
}

void wait_for_previous_kernel() {
    Context& context = running_block->context;
    if (context.is_checked) context.clocks.wait_for_previous_kernel(context.thread());
}

unsigned describe_tile(const void* tile, std::size_t bytes) {
    running_block->products.describe_tile(tile, bytes);
    return shared_offset(tile);
}

namespace {

constexpr WarpInstruction fence_instruction{
    "wgmma_fence", [](void* const (&)[32], std::uint32_t) { running_block->products.fence(); }};
constexpr WarpInstruction commit_instruction{
    "wgmma_commit", [](void* const (&)[32], std::uint32_t) { running_block->products.commit(); }};
constexpr WarpInstruction wait_instruction{
    "wgmma_wait", [](void* const (&pending)[32], std::uint32_t) {
        running_block->products.wait(*static_cast<const int*>(pending[0]));
    }};
}  // namespace

// Which object each of the others comes to.
// clang-format off
void bulk_commit() { running_block->bulk_copies.commit(); }
void bulk_wait(int pending, bool reads_alone) { running_block->bulk_copies.wait(pending, reads_alone); }
void fence_mbarrier_init() { running_block->mbarriers.fence_init(); }
void mbarrier_expect(void* barrier, int bytes) { running_block->mbarriers.expect(barrier, bytes, SIMT_CALLER); }
void named_sync(int id, int threads, Site site) { running_block->named_barriers.arrive(id, threads, true, site); }
void named_arrive(int id, int threads, Site site) { running_block->named_barriers.arrive(id, threads, false, site); }
void set_registers(int count, bool more, Site site) { running_block->registers.set(count, more, site); }
void wgmma_fence(Site site) { running_block->meetings.meet(fence_instruction, full_warp, nullptr, site); }
void wgmma_commit(Site site) { running_block->meetings.meet(commit_instruction, full_warp, nullptr, site); }
unsigned shared_offset(const void* address) { return static_cast<unsigned>(running_block->context.shared.place_of(address)); }
// clang-format on

void wgmma_wait(int pending, Site site) {
    running_block->products.wait_for_starts(pending, site);
    running_block->meetings.meet(wait_instruction, full_warp, &pending, site);
}

void wgmma(const Wgmma& product, Site site) {
    struct Operands {
        Wgmma product;
        Site site;
        Caller caller;
    } operands{product, site, SIMT_CALLER};
    static constexpr WarpInstruction instruction{
        "wgmma", [](void* const(&all)[32], std::uint32_t) {
            const Wgmma* lanes[32];
            for (int lane = 0; lane < 32; ++lane)
                lanes[lane] = &static_cast<const Operands*>(all[lane])->product;
            const auto& first = *static_cast<const Operands*>(all[0]);
            running_block->products.start(lanes, first.site, first.caller);
        }};
    running_block->meetings.meet(instruction, full_warp, &operands, site);
}

}  // namespace simt
