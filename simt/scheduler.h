/// @file
/// Fibers and their turns. Internal to simt/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "simt/cuda.h"
#include "simt/simt.h"

namespace simt {

/// Memory for the stacks of fibers, each above a page that faults.
class Stacks {
  public:
    struct Stack {
        std::byte* begin;
        std::size_t bytes;
    };

    Stacks() = default;
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;
    ~Stacks();
    void reserve(int count);
    Stack at(int index) const;
    bool contains(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_) < bytes_;
    }

  private:
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Runs fibers on the thread that owns it, one at a time, each until it waits for others. Fibers have
/// numbers, and 32 in a row are a warp; what they run, and what they wait for, is not known here.
class Scheduler {
  public:
    /// What a fiber waits for, and where.
    struct Waiting {
        const char* what = nullptr;  ///< null: it is ready, or has ended
        Site at{};
    };

    Scheduler();
    ~Scheduler();

    /// Forgets the fibers that there were, and starts `count`, all of them ready, each of which calls
    /// main(context, its number). An exception that main throws is a failure.
    void begin(int count, Order order, std::uint64_t seed, void (*main)(void* context, int fiber),
               void* context);

    /// Picks a ready fiber: of the warp that ran last if it can, so that a warp runs as far as it gets.
    /// Shuffled, of any warp. -1 if none is ready, or one has failed.
    int next();
    /// Runs a fiber until it waits or ends.
    void resume(int fiber);

    /// The fiber that runs, or ran last.
    int current() const { return current_; }
    /// Called by the running fiber: its turn is over. Returns when it has been made ready and has another.
    void wait(const char* what, Site at);
    /// Called by the running fiber: it has failed, and never resumes. Nor does any other.
    [[noreturn]] void fail(std::exception_ptr failure);

    /// Fibers 32 warp + lane for each lane of a mask.
    void make_ready(int warp, std::uint32_t lanes);
    const std::vector<Waiting>& waiting() const { return waiting_; }
    /// "threads 0-31 wait at kernel.cu:12 (__syncthreads); threads 32-63 have left the kernel"
    std::string describe_waiting() const;
    std::exception_ptr failure() const { return failure_; }

    bool on_a_stack(const void* address) const { return stacks_.contains(address); }
    /// Of Order::shuffled: a number below `count`.
    int draw(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  private:
    struct Fiber;
    void abandon();

    Stacks stacks_;
    std::vector<Fiber> fibers_;
    std::vector<Waiting> waiting_;      ///< of each fiber
    std::vector<std::uint32_t> ready_;  ///< of each warp, a bit per turn, not per lane
    std::array<std::uint8_t, 32> lane_of_turn_{};
    std::array<std::uint8_t, 32> turn_of_lane_{};
    Order order_{};
    std::minstd_rand random_;
    int current_ = 0;
    int current_warp_ = 0;
    std::exception_ptr failure_;
};

/// "kernel.cu:12"
std::string to_string(Site site);

}  // namespace simt
