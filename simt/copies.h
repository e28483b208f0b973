/// @file
/// Asynchronous copies of 16 or 4 bytes (cp.async). Internal to simt/.
#pragma once

#include <unordered_map>

#include "simt/context.h"

namespace simt {

/// The copies of a block's threads, each from its start until its thread has waited for it: by groups, or at
/// an mbarrier at which it arrives. On hardware a copy may be waited for in both ways. Here it is one.
class Copies : Part {
  public:
    using Part::Part;

    void begin_block() {
        threads_.assign(context_.threads, {});
        copied_lines_.clear();
    }
    /// Of Order::shuffled: now and then a copy lands before it has to, and before older ones.
    void land_some() {
        Queue& queue = threads_[context_.scheduler.draw(context_.threads)].queue;
        const auto in_flight = static_cast<int>(queue.in_flight());
        if (in_flight > 0) queue[queue.over() + context_.scheduler.draw(in_flight)].land();
    }

    // What the running thread does.

    /// From `global`, or of zeros.
    void start(void* shared, const void* global, bool valid, bool evict_first, int bytes, Caller caller) {
        if (valid && global == nullptr)
            context_.check(global, bytes, false, Via::copy, caller);  // reports it
        if (!valid) global = nullptr;
        for (const void* address : {static_cast<const void*>(shared), global}) {
            if (!is_aligned(address, bytes)) {
                fail(Kind::misaligned, "copy_async of an address that is not {}-byte aligned, at {}", bytes,
                     caller);
            }
        }
        context_.tally.async_copies += 1;
        context_.tally.shared_tile_bytes += bytes;
        if (global != nullptr) count(shared, global, evict_first, bytes);
        if (bytes == 16) context_.recorder.copy(shared, global);
        Queue& queue = own().queue;
        queue.start(
            {.pieces = {{{.reads = global, .writes = shared, .bytes = static_cast<std::uint32_t>(bytes)}}},
             .caller = caller});
        AsyncCopy& copy = queue.last();
        // sm_75 has no asynchronous copy: there, it is done when it is started.
        const bool at_once = options().compute_capability < 80;
        if (context_.is_checked)
            copy.has_read = copy.has_written =
                at_once ? context_.clocks.now(thread()) : context_.clocks.copy(thread(), queue.started());
        context_.start(copy, at_once ? Via::wrapper : Via::copy);
        if (at_once) copy.land();
    }
    void commit() { own().queue.commit(); }
    void wait_for_groups(std::size_t pending, Caller caller) {
        Queue& queue = own().queue;
        finish(queue.forget_groups_before_last(pending), caller);
        context_.tally.copies_left_in_flight += queue.in_flight();
    }
    void wait_for_all(Caller caller) {
        own().queue.forget_groups_before_last(0);
        finish(own().queue.started(), caller);
    }
    /// All of its copies so far arrive at an mbarrier. Returns how many.
    Epoch tell_mbarrier(Caller caller) {
        if (own().queue.groups() > 0) fail_on_two_waits(caller);
        return own().told = own().queue.started();
    }

    /// The first n copies of a thread have landed, for the threads that wait at their mbarrier.
    void land(int thread, Epoch n) {
        threads_[thread].queue.land(n);
        if (context_.is_checked) context_.checker.copies_are_over(thread, n, true);
    }
    /// The thread itself has waited there.
    void forget(int thread, Epoch n) { threads_[thread].queue.forget(n); }

    /// Has a lane of the running warp started copies that it has not waited for?
    bool warp_has_some_in_flight() const {
        const auto first = threads_.begin() + warp() * 32;
        const auto last = first + std::min<std::ptrdiff_t>(32, threads_.end() - first);
        return std::any_of(first, last, [](const Thread& thread) { return thread.queue.in_flight() > 0; });
    }

  private:
    using Queue = AsyncQueue<AsyncCopy>;
    struct Thread {
        Queue queue;
        Epoch told = 0;  ///< copies that arrive at an mbarrier
    };

    Thread& own() { return threads_[thread()]; }

    void count(const void* shared, const void* global, bool evict_first, int bytes) {
        context_.tally.global_load_bytes += bytes;
        context_.tally.evict_first_bytes += evict_first ? bytes : 0;
        if (std::exchange(barriers_, context_.tally.barriers) != context_.tally.barriers)
            copied_lines_.clear();
        constexpr std::uintptr_t line = 128, shared_lines = hopper_shared_bytes / line;
        const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(global) / line;
        const std::uintptr_t at = context_.shared.place_of(shared);
        std::uint32_t& copied = copied_lines_[from * shared_lines + at / line];
        const std::uint32_t part = ((1u << bytes / 4) - 1) << at % line / 4;
        const bool anew = copied == 0 || (copied & part) != 0;  // the pair is new, or copied once more
        context_.tally.copied_lines += anew;
        copied = anew ? part : copied | part;
    }

    /// The running thread's first n copies are over.
    void finish(Epoch n, Caller caller) {
        auto& [queue, told] = own();
        if (n <= queue.over()) return;  // it has waited for them before
        if (told > queue.over()) fail_on_two_waits(caller);
        queue.land(n);
        queue.forget(n);
        if (!context_.is_checked) return;
        context_.checker.copies_are_over(thread(), n, false);
        context_.clocks.wait_for_copies(thread(), n);
    }

    [[noreturn]] void fail_on_two_waits(Caller caller) {
        fail(Kind::unsupported,
             "a copy of thread {} arrives at an mbarrier, and is of a group or waited for, at {}", thread(),
             caller);
    }

    std::vector<Thread> threads_;
    /// Pairs of lines that copies connect, and which 4 bytes of them each has had, since this many barriers.
    std::unordered_map<std::uintptr_t, std::uint32_t> copied_lines_;
    std::uint64_t barriers_ = 0;
};

}  // namespace simt
