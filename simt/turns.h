/// @file
/// Blocks that wait for each other: for their turn to do an atomic, or for a count. Internal to simt/.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

namespace simt {

/// What threads change, and wait for.
class Monitor {
  protected:
    template <class Change>
    void change(Change make) {
        const std::lock_guard lock(mutex_);
        make();
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
};

/// Blocks of a launch that all run at once, each on a thread of its own, and do their atomics in turns: the
/// n-th of each, in the order of their numbers, before anyone's next.
class Turns : Monitor {
  public:
    explicit Turns(std::size_t blocks) : done_(blocks) {}

    /// Waits until it is this block's turn to do an atomic.
    void begin(std::size_t block) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
            for (std::size_t other = 0; other < done_.size(); ++other) {
                if (done_[other] < done_[block] + (other < block)) return false;
            }
            return true;
        });
    }
    /// The block has done it.
    void end(std::size_t block) {
        change([&] { done_[block] += 1; });
    }
    /// The block has ended: nobody waits for it.
    void leave(std::size_t block) {
        change([&] { done_[block] = has_left; });
    }
    /// Nobody waits for anybody.
    void give_up() {
        change([&] { done_.assign(done_.size(), has_left); });
    }

  private:
    static constexpr std::uint64_t has_left = std::numeric_limits<std::uint64_t>::max() / 2;

    std::vector<std::uint64_t> done_;  ///< atomics of each block
};

/// The threads that run a launch's blocks. A block may wait for a count that others raise; its thread then
/// runs no other, as a multiprocessor does not.
class Workers : Monitor {
  public:
    enum class Waited : std::uint8_t {
        reached,
        in_vain,     ///< all wait, and nobody is left who could raise a count
        given_up_on  ///< another block has failed
    };

    explicit Workers(int count) : running_(count) {}

    /// Until `reached()`, which a count that is raised may change.
    template <class F>
    Waited wait(F reached) {
        std::unique_lock lock(mutex_);
        while (!reached()) {
            if (has_failed_) return Waited::given_up_on;
            if (in_vain_ || ++asleep_ == running_) {
                in_vain_ = true;
                changed_.notify_all();
                return Waited::in_vain;
            }
            changed_.wait(lock,
                          [&, raised = raised_] { return raised_ != raised || in_vain_ || has_failed_; });
        }
        return Waited::reached;
    }
    /// A count has been raised: whoever waits looks again.
    void raised() {
        change([&] { raised_ += 1, asleep_ = 0; });
    }
    /// A thread has no more blocks to run; or its block has failed, so that nobody waits for it.
    void leave(bool failed) {
        change([&] {
            running_ -= 1;
            has_failed_ = has_failed_ || failed;
            in_vain_ = in_vain_ || (asleep_ > 0 && asleep_ == running_);
        });
    }

  private:
    int running_;     ///< threads that have not left
    int asleep_ = 0;  ///< of them, those that wait and have looked since the last count was raised
    std::uint64_t raised_ = 0;
    bool in_vain_ = false, has_failed_ = false;
};

}  // namespace simt
