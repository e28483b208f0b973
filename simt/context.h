/// @file
/// What the objects of a block have in common, what they need of the library included. Internal to simt/.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "simt/async.h"
#include "simt/checker.h"
#include "simt/clocks.h"
#include "simt/cuda.h"
#include "simt/recorder.h"
#include "simt/scheduler.h"
#include "simt/shared_memory.h"
#include "simt/simt.h"
#include "simt/time_model.h"

/// Where an instruction was called, for reports. In the function that kernels call.
#define SIMT_CALLER simt::Caller::of(__builtin_return_address(0))

namespace simt {

constexpr std::uint32_t full_warp = 0xffffffffu;

/// Does the address suit an instruction that moves so many bytes?
inline bool is_aligned(const void* address, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// What each object of a block knows of the block: who runs, memory, what comes before what, and the records.
class Context {
  public:
    Scheduler scheduler;
    SharedMemory shared;
    Counters tally;
    Clocks clocks;  ///< of checked blocks
    Checker checker{clocks, tally.bypassed_bytes, shared.data()};
    TimeModel time;
    Recorder recorder{shared, tally};
    bool is_checked = false;
    int threads = 0;

    void begin_launch(const Launch& config, const void* parameters, std::size_t bytes) {
        tally = {};
        is_checked = config.checked;
        threads = static_cast<int>(config.block.count());
        numbers_.resize(threads);
        std::iota(numbers_.begin(), numbers_.end(), 0);
        shared.begin_launch(config.shared_bytes);
        checker.begin_launch(parameters, bytes, config.shared_bytes);
    }
    void begin_block(std::uint32_t serial, std::uint32_t first_serial, std::uint32_t ended_serial,
                     BlockTrace* trace) {
        shared.begin_block();
        recorder.begin_block(trace, threads);
        time.begin(threads);
        if (!is_checked) return;
        clocks.begin(serial, first_serial, ended_serial, threads);
        checker.begin_block(threads);
    }

    /// The numbers of a block's threads, or of so many from `first` on.
    std::span<const int> all_threads() const { return numbers_; }
    std::span<const int> threads_from(int first, int count) const {
        return all_threads().subspan(first, count);
    }
    /// The running thread, and its warp.
    int thread() const { return scheduler.current(); }
    int warp() const { return thread() / 32; }
    /// A thread that waits may go on.
    void wake(int thread) { scheduler.make_ready(thread / 32, 1u << thread % 32); }

    /// Gives up on the block, with a report. The thread never resumes.
    template <class... Arguments>
    [[noreturn, gnu::noinline]] void fail(Report::Kind kind, fmt::format_string<const Arguments&...> text,
                                          const Arguments&... arguments) {
        scheduler.fail(std::make_exception_ptr(report(kind, text, arguments...)));
    }

    /// On the checked back-end: one access by the running thread, to memory but stacks. Does not return if
    /// it is a fault. What the checker locks stays locked while the caller holds what this returns.
    std::unique_lock<std::mutex> check(const void* address, std::size_t bytes, bool write, Via via,
                                       Caller caller) {
        if (!is_checked || scheduler.on_a_stack(address)) return {};
        return access(clocks.now(thread()), address, bytes, write, via, caller, thread());
    }
    /// The same at another moment, on a stack or not.
    [[gnu::noinline]] std::unique_lock<std::mutex> access(const Moment& at, const void* address,
                                                          std::size_t bytes, bool write, Via via,
                                                          Caller caller, int thread) {
        std::exception_ptr fault;
        try {
            return checker.access(thread, at, address, bytes, write, via, caller);
        } catch (const Report&) {
            fault = std::current_exception();  // a thread that fails never goes on, and must not stay in here
        }
        scheduler.fail(fault);
    }

    /// A new agent, which does something asynchronous for the thread: "bulk load". 0 if nothing is checked.
    Agent add_agent(const char* what, int thread) { return is_checked ? checker.add_agent(what, thread) : 0; }
    /// An operation begins: until its moments are known, all that it reads and writes is in flight.
    template <class Pieces>
    void start(AsyncOp<Pieces>& op, Via via) {
        if (is_checked) {
            for (const Piece& p : op.pieces) {
                if (p.reads != nullptr)
                    access(op.has_read, p.reads, p.bytes, false, via, op.caller, thread());
                if (p.writes != nullptr)
                    access(op.has_written, p.writes, p.bytes, true, p.adds ? Via::addition : via, op.caller,
                           thread());
            }
        }
        if (!options().late_copies) op.land();
    }

  private:
    std::vector<int> numbers_;
};

/// An object of a block.
class Part {
  public:
    explicit Part(Context& context) : context_(context) {}

  protected:
    using Kind = Report::Kind;
    template <class... Arguments>
    [[noreturn]] void fail(Kind kind, fmt::format_string<const Arguments&...> text,
                           const Arguments&... arguments) const {
        context_.fail(kind, text, arguments...);
    }
    int thread() const { return context_.thread(); }
    int warp() const { return context_.warp(); }

    Context& context_;
};

}  // namespace simt
