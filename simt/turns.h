/// @file
/// Atomics in an order that does not depend on which block is quicker. Internal to simt/.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

namespace simt {

/// Blocks of a launch that all run at once, each on a thread of its own, and do their atomics in turns: the
/// n-th of each, in the order of their numbers, before anyone's next.
class Turns {
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
        const std::lock_guard lock(mutex_);
        done_[block] += 1;
        changed_.notify_all();
    }
    /// The block has ended: nobody waits for it.
    void leave(std::size_t block) {
        const std::lock_guard lock(mutex_);
        done_[block] = has_left;
        changed_.notify_all();
    }
    /// Nobody waits for anybody.
    void give_up() {
        const std::lock_guard lock(mutex_);
        done_.assign(done_.size(), has_left);
        changed_.notify_all();
    }

  private:
    static constexpr std::uint64_t has_left = std::numeric_limits<std::uint64_t>::max() / 2;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::uint64_t> done_;  ///< atomics of each block
};

}  // namespace simt
