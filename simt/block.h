/// @file
/// One thread block on the CPU, made of objects. Internal to simt/.
///
/// Each object has a file, and is given the Context: whose turn it is, memory, clocks, counters. It has what
/// the running thread does (start, arrive, wait), begin_block(), and what else of the block's life concerns
/// it. An object of another architecture is a file more, and a member here.
#pragma once

#include "simt/atomics.h"
#include "simt/barriers.h"
#include "simt/bulk_copies.h"
#include "simt/context.h"
#include "simt/copies.h"
#include "simt/masked_tiles.h"
#include "simt/mbarriers.h"
#include "simt/meetings.h"
#include "simt/products.h"
#include "simt/register_pool.h"

namespace simt {

/// Runs blocks, one at a time, on the thread that owns it.
class Block final : Scheduler::Program {
  public:
    Context context;
    Meetings meetings{context};
    Barrier barrier{context};
    Copies copies{context};
    Mbarriers mbarriers{context, copies};
    Atomics atomics{context};
    MaskedTiles masked_tiles;
    // Of Hopper.
    BulkCopies bulk_copies{context, mbarriers};
    NamedBarriers named_barriers{context};
    RegisterPool registers{context};
    Products products{context};

    /// Prepares for the blocks of a launch.
    void begin_launch(const Launch& config, void (*call)(const void*), const void* parameters,
                      std::size_t bytes, std::uint32_t first_serial, std::uint32_t ended_serial);
    /// Runs one block to its end, recording what it does if `trace` is not null. Throws the Report of
    /// whatever went wrong, or Atomics::GivenUp.
    void run(std::uint64_t number, BlockTrace* trace, Workers& workers);

    /// An access by the running thread that no wrapper counts.
    void access_plainly(const void* address, std::size_t bytes, bool write, Caller caller) {
        if (!context.is_checked) return;
        if (!context.scheduler.on_a_stack(address)) {
            context.check(address, bytes, write, Via::plain, caller);
        } else if (products.registers.watches(address)) {
            products.registers.touch(address, bytes, write, caller);
        }
    }

  private:
    void begin(std::uint64_t number, dim3 index, BlockTrace* trace);
    void main(int id) override;
    void begin_turn(int id) override;
    void end_turn() override;
    void fail_on_deadlock(dim3 index) const;

    const Launch* config_ = nullptr;
    void (*call_)(const void*) = nullptr;
    const void* parameters_ = nullptr;
    std::uint32_t first_serial_ = 0;  ///< of the launch's blocks
    std::uint32_t ended_serial_ = 0;  ///< all that are lower: of blocks that have ended before it starts
    std::vector<dim3> threads_;       ///< their indices
    bool lands_shuffled_ = false;
};

/// The block that runs on this thread, or null between blocks and on other threads.
extern thread_local constinit Block* running_block __attribute__((tls_model("initial-exec")));

}  // namespace simt
