/// @file
/// The threads that run a launch's blocks, and what these wait for. Internal to simt/.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

namespace simt {

/// The threads of the host that run a launch's blocks, each to its end. A block may wait for its turn to do
/// an atomic, or for a count that others raise; its thread then runs no other, as a multiprocessor does not.
class Workers {
  public:
    /// @param threads How many there are.
    /// @param blocks_in_turns If so many blocks do their atomics in turns (0: they need not), each has a
    /// thread: the n-th atomic of each, in the order of their numbers, comes before anyone's next.
    /// @param start_another Called when all wait; starts a thread for a block that has not begun. False if
    /// all have, or those that have not are not to run at the same time.
    Workers(int threads, std::size_t blocks_in_turns, std::function<bool()> start_another)
        : running_(threads), atomics_(blocks_in_turns), start_another_(std::move(start_another)) {}

    /// Waits until it is this block's turn to do an atomic.
    void begin_atomic(std::size_t block) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
            for (std::size_t other = 0; other < atomics_.size(); ++other) {
                if (atomics_[other] < atomics_[block] + (other < block)) return false;
            }
            return true;
        });
    }
    /// The block has done it.
    void end_atomic(std::size_t block) {
        if (!atomics_.empty()) change([&] { atomics_[block] += 1; });
    }
    /// The block has ended: no thread waits for it.
    void end_block(std::size_t block) {
        if (!atomics_.empty()) change([&] { atomics_[block] = all; });
    }

    enum class Waited : std::uint8_t {
        reached,
        in_vain,     ///< all wait, and none is left to raise a count
        given_up_on  ///< another block has failed
    };
    /// Until `reached()`, which a count that is raised may change.
    template <class F>
    Waited wait(F reached) {
        std::unique_lock lock(mutex_);
        while (!reached()) {
            if (has_failed_) return Waited::given_up_on;
            const bool last = !in_vain_ && ++asleep_ == running_;
            if (last && start_another_()) {
                running_ += 1;
            } else if (in_vain_ || last) {
                in_vain_ = true;
                changed_.notify_all();
                return Waited::in_vain;
            }
            changed_.wait(lock,
                          [&, raised = raised_] { return raised_ != raised || in_vain_ || has_failed_; });
        }
        return Waited::reached;
    }
    /// A count has been raised: each waiting thread looks again.
    void raised() {
        change([&] { raised_ += 1, asleep_ = 0; });
    }
    /// Until all threads have left.
    void wait_for_all() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return running_ == 0; });
    }
    /// A thread has no more blocks to run; or its block has failed, so that none waits for another.
    void leave(bool failed) {
        change([&] {
            running_ -= 1;
            has_failed_ = has_failed_ || failed;
            in_vain_ = in_vain_ || (asleep_ > 0 && asleep_ == running_);
            if (failed) atomics_.assign(atomics_.size(), all);
        });
    }

  private:
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max() / 2;

    template <class Change>
    void change(Change make) {
        const std::lock_guard lock(mutex_);
        make();
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    int running_;     ///< threads that have not left
    int asleep_ = 0;  ///< of them, those that wait and have looked since the last count was raised
    std::uint64_t raised_ = 0;
    bool in_vain_ = false, has_failed_ = false;
    std::vector<std::uint64_t> atomics_;  ///< that each block has done, if they take turns; or all
    std::function<bool()> start_another_;
};

}  // namespace simt
