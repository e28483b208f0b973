/// @file
/// The race checker: who last wrote and read each byte that threads share, and when. Internal to simt/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "simt/clocks.h"
#include "simt/image.h"
#include "simt/simt.h"

namespace simt {

/// An access that a shadow remembers. To write fields of bits and then read all of them stalls a processor.
struct Access {
    std::uint32_t block = 0;
    Epoch epoch = 0;
    std::uint64_t packed = 0;  ///< 48 bits of its caller's address, 1 whether it is atomic, 15 of its agent

    Agent agent() const { return packed & 0x7fff; }
    bool is_atomic() const { return (packed & 0x8000) != 0; }
    Moment at() const { return {block, epoch, agent()}; }
    Caller caller() const { return {packed >> 16}; }
};

/// A byte of an allocation, or of none (null).
struct Place {
    const char* allocation = nullptr;  ///< its name
    std::size_t byte = 0;
};
Place place_in_global_memory(const void* address);

/// A piece of memory, and its history.
struct Shadow : Range {
    static constexpr std::size_t unit = 2;   ///< bytes of a cell: the smallest element that kernels share
    static constexpr std::size_t line = 16;  ///< bytes that most accesses take together

    /// The last write, and the reads since then that come before no later one.
    struct Cell {
        Access write;
        std::vector<Access> reads;
    };
    /// As long as nobody touches less than all of them, its bytes share one cell.
    struct Line {
        Cell whole;
        std::unique_ptr<Cell[]> parts;
        bool split = false;
    };

    const char* name;
    bool writable, global;
    static constexpr std::size_t chunk_lines = 1024;
    /// By their number, a chunk at a time. Memory that no thread writes or reads has none.
    std::vector<std::unique_ptr<Line[]>> chunks;
    /// By the place of an atomic: what the atomics there have told, since something else wrote there.
    std::map<std::size_t, KnownBlocks> told;
    std::mutex mutex;  ///< of global memory, which blocks on other workers share

    Shadow(const void* memory, std::size_t size, const char* label, bool can_write, bool is_global)
        : Range{static_cast<const std::byte*>(memory), size},
          name(label),
          writable(can_write),
          global(is_global),
          chunks(size / (chunk_lines * line) + 1) {}
    /// The line of this byte.
    Line& line_at(std::size_t byte) {
        std::unique_ptr<Line[]>& chunk = chunks[byte / (chunk_lines * line)];
        if (!chunk) chunk = std::make_unique<Line[]>(chunk_lines);
        return chunk[byte / line % chunk_lines];
    }
};

/// How an access reached the checker.
enum class Via : std::uint8_t {
    wrapper,  ///< the CUDA layer, which counts it
    plain,    ///< an ordinary C++ access, which nothing counts
    copy,     ///< an asynchronous copy, when it starts
    bulk,     ///< a bulk copy, when it starts
    product,  ///< a product of a warpgroup (wgmma), when a warp starts its part
    atomic,   ///< an atomic of the CUDA layer, which orders what fences surround it
    release,  ///< one that others wait for: it tells, and is told nothing
    acquire,  ///< an atomic read that waits for these
    addition  ///< an atomic that orders nothing
};

/// Checks the accesses of one worker's blocks.
class Checker {
  public:
    /// Adds the bytes of plain accesses to `bypassed_bytes`. Each block's dynamic shared memory is `shared`.
    Checker(Clocks& clocks, std::uint64_t& bypassed_bytes, const void* shared)
        : clocks_(clocks),
          bypassed_bytes_(bypassed_bytes),
          dynamic_shared_(shared, hopper_shared_bytes, "shared memory", true, false) {}

    void begin_launch(const void* parameters, std::size_t parameter_bytes, std::size_t shared_bytes);
    /// A block begins.
    void begin_block(int threads) {
        copies_.assign(threads, {});
        named_agents_.clear();
    }

    /// A new agent, which does something asynchronous for the thread: "bulk load".
    Agent add_agent(const char* what, int thread) {
        named_agents_.push_back({clocks_.add_agent(), what, thread});
        return named_agents_.back().agent;
    }

    /// One access by a thread of the block, or by what it has started, at that moment. Throws a Report if it
    /// is a fault. While the lock that it returns is held no other block accesses that allocation.
    std::unique_lock<std::mutex> access(int thread, const Moment& at, const void* address, std::size_t bytes,
                                        bool write, Via via, Caller caller);

    /// The last write to a line of dynamic shared memory, if one access wrote all of it.
    std::optional<Moment> last_write(const std::byte* line) {
        const Shadow::Line& there = dynamic_shared_.line_at(line - dynamic_shared_.begin);
        return there.split ? std::nullopt : std::optional(there.whole.write.at());
    }

    /// The thread's first n copies are over: it has waited for them, or for an mbarrier that they arrived at.
    void copies_are_over(int thread, Epoch n, bool by_mbarrier) {
        copies_[thread] = {std::max(n, copies_[thread].over), by_mbarrier};
    }

  private:
    /// What is known of a thread's copies.
    struct Copies {
        Epoch over = 0;
        bool by_mbarrier = false;  ///< the last of them
    };
    /// An access that is being checked.
    struct Attempt {
        Access access;
        int thread;
        bool write;
        Via via;
    };

    Shadow* find(const std::byte* first, std::size_t bytes);
    bool is_builtin(const std::byte* address, std::size_t bytes) const;
    bool is_private(const std::byte* address, std::size_t bytes, bool write);
    void atomic(Shadow& shadow, std::size_t place, int thread, Via via);
    void check(Shadow& shadow, const std::byte* address, std::size_t bytes, const Attempt& now);
    void check(const Shadow& shadow, Shadow::Cell& cell, const std::byte* address, const Attempt& now);
    /// Does the earlier access come before this one? What other blocks did to shared memory does.
    bool knows(const Shadow& shadow, const Attempt& now, const Access& before) const {
        const bool before_it = now.via == Via::product ? clocks_.has_told(now.thread, before.at())
                                                       : clocks_.knows(now.thread, before.at());
        return before_it || (!shadow.global && !clocks_.of_this_block(before.at()));
    }
    [[noreturn]] void conflict(const Shadow& shadow, const Access& before, const char* before_kind,
                               const char* others, const std::byte* address, const Attempt& now) const;

    /// What a thread wrote is not fit for bulk copies and products unless it has said so.
    void check_proxy(const Shadow& shadow, const Access& before, const std::byte* address,
                     const Attempt& now) const;

    struct NamedAgent {
        Agent agent;
        const char* what;
        int thread;
    };
    Clocks& clocks_;
    std::uint64_t& bypassed_bytes_;
    std::vector<NamedAgent> named_agents_;
    Shadow dynamic_shared_;
    std::vector<std::unique_ptr<Shadow>> static_shared_;  ///< of each program or library that has some
    Shadow* last_found_ = nullptr;                        ///< global memory, or null
    Range parameters_;
    Range constants_;             ///< those that were read last
    std::vector<Copies> copies_;  ///< of each thread
};

}  // namespace simt
