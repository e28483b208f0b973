/// @file
/// The CPU back-end: runs a CUDA kernel thread by thread, counts its work and finds its races.
///
/// Every CUDA thread is a fiber. A block runs on one worker thread, its fibers one at a time, each until it
/// waits for others: at a barrier, or at a warp instruction, where the last lane to arrive computes for all.
/// In a kernel that is compiled with -fsanitize=thread, every access to memory also calls the race checker.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "simt/block_trace.h"
#include "simt/counters.h"
#include "simt/launch.h"

namespace simt {

/// The order in which ready threads get their turn, and blocks too. A correct kernel does not notice.
/// Delayed, blocks and threads go forward, but one warpgroup (of a block that has no more, one warp) gets a
/// turn only when no other thread can go on; which one changes now and then, by the seed.
enum class Order : std::uint8_t { forward, reversed, shuffled, delayed };

/// Shared memory that a block of a Hopper GPU can have: as much as the back-end holds ready.
inline constexpr std::size_t hopper_shared_bytes = 227 * 1024;

/// The machine that the back-end pretends to be, and the turns that it takes: whatever another process must
/// be told to run a kernel in the same way. Plain bytes.
struct Machine {
    Order order = Order::forward;
    std::uint64_t seed = 1;  ///< of Order::shuffled and delayed
    int workers = 0;         ///< threads that run blocks; 0 for one per core
    /// Asynchronous copies land as late as the waits allow (Order::shuffled: now and then before, and in any
    /// order), or at once. Late finds the missing wait.
    bool late_copies = true;
    /// 75 runs the instructions that sm_75 has instead of those that it lacks, and refuses bf16.
    int compute_capability = 80;
    /// What the device reports. Of a small GPU, and fixed, so that counts do not depend on the machine.
    int multiprocessors = 8;
    /// What a launch may ask for, per block; no more than the default.
    std::size_t most_shared_bytes = hopper_shared_bytes;
    /// The blocks of a launch that has no more run at once and do their atomics in turns, so that none is
    /// quicker to take work from a counter.
    int blocks_in_turns = 0;
    /// Most blocks of a launch. More than the default would take a CPU hours, and end no run that is waited
    /// for.
    std::uint64_t most_blocks = std::uint64_t{1} << 30;
};
static_assert(std::is_trivially_copyable_v<Machine>);

/// How kernels run, and who is told. Set between launches.
struct Options : Machine {
    /// Additions to one float need an order, since the kernel is to give the same bits each time.
    bool additions_in_order = false;
    /// If set, launches end with Stopped soon after this has become true.
    const std::atomic<bool>* stop = nullptr;
    /// Called after each block with its number, x fastest, and its work; by the worker that ran it.
    std::function<void(std::uint64_t number, const Counters& work)> on_block = {};
    /// If set, blocks record what they do, and it is called after each; by the worker that ran it.
    std::function<void(const Launch& launch, BlockTrace&& trace)> on_trace = {};

    /// Another machine; who is told stays.
    Options& operator=(const Machine& machine) {
        static_cast<Machine&>(*this) = machine;
        return *this;
    }
};
Options& options();

/// Puts the options back as they were, at the end of its scope.
struct KeptOptions {
    ~KeptOptions() { options() = saved; }
    const Options saved = options();
};

/// A kernel did something that CUDA leaves undefined, or that would hang. what() names it with file and line.
struct Report : std::runtime_error {
    enum class Kind : std::uint8_t {
        divergence,      ///< threads that must execute one instruction together executed different ones
        deadlock,        ///< threads wait for others that will never come
        race,            ///< two threads touch the same bytes, one writes, nothing orders them
        copy_in_flight,  ///< memory touched while an asynchronous copy may still write or read it
        uninitialized,   ///< shared memory read before anything wrote it
        out_of_bounds,   ///< access outside shared memory and every allocation
        read_only,       ///< a write to an input
        misaligned,      ///< an address that the instruction does not accept
        wrong_phase,  ///< a wait for a phase that its mbarrier cannot tell from the present one; or it is set
                      ///< up twice; or a thread arrives twice in one phase of a named barrier
        missing_fence,        ///< nothing makes memory or registers fit for an asynchronous operation
        registers_in_flight,  ///< a register touched while a product may still read or write it
        host_access,          ///< the host side of a stage touches device memory
        division_by_zero,     ///< of integers
        wrong_bytes,          ///< bulk loads bring more bytes than their mbarrier expects
        unsupported  ///< the device lacks the instruction or memory; or a copy is waited for in two ways
    };
    Report(Kind k, const std::string& message) : std::runtime_error(message), kind(k) {}
    Kind kind;
};

/// A launch has ended because Options::stop said so.
struct Stopped : std::exception {
    const char* what() const noexcept override { return "stopped"; }
};

/// Work counted since the last reset.
Counters counters();
void reset_counters();

/// Tells the race checker of global memory. Accesses elsewhere are out of bounds. `name` must outlive it.
void register_allocation(void* data, std::size_t bytes, const char* name, bool writable);
void forget_allocation(void* data);

}  // namespace simt
