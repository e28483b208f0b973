/// @file
/// Fibers and their turns. Internal to simt/.
#pragma once

#include <array>
#include <atomic>
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "simt/cuda.h"
#include "simt/simt.h"

namespace simt {

/// Calls f(lane) for the lanes of a mask, from lane 0 on.
template <class F>
void for_each_lane(std::uint32_t mask, F f) {
    for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
}

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
    /// So many, of at least so many bytes.
    void reserve(int count, std::size_t each);
    Stack at(int index) const;
    bool contains(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_) < bytes_;
    }

  private:
    std::byte* base_ = nullptr;
    std::size_t bytes_ = 0, each_ = 0;
};

/// Runs fibers on the thread that owns it, one at a time, each until it waits for others and switches to the
/// next one itself. 32 in a row are a warp; what they run, and what they wait for, is not known here.
class Scheduler {
  public:
    /// What a fiber waits for, and where.
    struct Waiting {
        const char* what = nullptr;  ///< null: it is ready, or has ended
        Site at{};
    };

    ~Scheduler() { abandon(); }

    /// What fibers are: main(), whose exceptions are failures, and what happens as their turns begin and end.
    class Program {
      public:
        virtual void main(int fiber) = 0;
        virtual void begin_turn(int fiber) = 0;
        virtual void end_turn() = 0;

      protected:
        ~Program() = default;
    };

    /// Runs `count` fibers, all of them ready, until none can go on or one has failed. Among many schedulers
    /// at the same time, stacks are half as large.
    void run(int count, bool among_many, Order order, std::uint64_t seed, Program& program);
    /// Goes on when run() has returned, and fibers have been made ready.
    void go_on();

    /// The fiber that runs, or ran last.
    int current() const { return current_; }
    /// The running fiber's turn is over. Returns when it has been made ready and has a turn again.
    void wait(const char* what, Site at);
    /// The running fiber has failed, and never resumes. Nor does any other.
    [[noreturn]] void fail(std::exception_ptr failure);

    /// Fibers 32 warp + lane for each lane of a mask.
    void make_ready(int warp, std::uint32_t lanes);
    const std::vector<Waiting>& waiting() const { return waiting_; }
    /// "threads 0-31 wait at kernel.cu:12 (__syncthreads); threads 32-63 have left the kernel"
    std::string describe_waiting() const;
    std::exception_ptr failure() const { return failure_; }

    bool on_a_stack(const void* address) const { return stacks_.contains(address); }
    /// Of Order::shuffled and delayed: a number below `count`.
    int draw(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  private:
    struct Fiber {
        boost::context::fiber waiting;  ///< where it goes on, while it does not run
        bool ended = true;              ///< or there is none
    };
    static constexpr int nobody = -1;

    void start(int fiber);
    void abandon();
    /// Picks a ready fiber: of the warp that ran last if it can, shuffled of any warp, delayed of those held
    /// back only if no other can go on. `nobody` if none is ready, or one has failed.
    int next();
    /// Makes a warp that has a ready fiber the current one, if there is one outside of a group.
    bool move_on(int left_out);
    /// Of Order::delayed: another group of warps is held back, for some turns.
    void hold_another();
    int begin_next_turn();
    void switch_to(int from, int to);
    Fiber& fiber(int id) { return fibers_[id + 1]; }

    Stacks stacks_;
    std::vector<Fiber> fibers_;         ///< the first is the caller of run(), `nobody`
    std::vector<Waiting> waiting_;      ///< of each fiber
    std::vector<std::uint32_t> ready_;  ///< of each warp, a bit per turn, not per lane
    std::array<std::uint8_t, 32> lane_of_turn_{};
    std::array<std::uint8_t, 32> turn_of_lane_{};
    Program* program_ = nullptr;
    Order order_{};
    std::minstd_rand random_;
    int current_ = 0;
    int current_warp_ = 0;
    int group_shift_ = 0;    ///< warps are held back in groups of 2 to this power
    int held_ = nobody;      ///< the group that is
    int turns_held_ = 0;     ///< that are left
    int previous_ = nobody;  ///< who ran before the last switch
    const std::atomic<bool>* stop_ = nullptr;
    std::exception_ptr failure_;
};

}  // namespace simt
