/// @file
/// Registers that warpgroups give back and claim (setmaxnreg, Hopper). Internal to simt/.
#pragma once

#include <cstdlib>

#include "simt/context.h"

namespace simt {

/// The registers of a block's threads, and those that are free.
class RegisterPool : Part {
  public:
    using Part::Part;

    void begin_block() {
        constexpr int register_file = 64 * 1024;
        // What the compiler gives a thread if a block is to have the multiprocessor.
        const int each = std::min(248, register_file / context_.threads / 8 * 8);
        threads_.assign(context_.threads, {each});
        changes_.assign(threads_.size() / (32 * warps_of_group) + 1, {});
        claims_.clear();
        free_ = 0;
    }
    /// "; 24 registers of the block are free, and a thread asks for 128 more"
    std::string describe_waiting() const {
        if (claims_.empty()) return "";
        return fmt::format("; {} registers of the block are free, and a thread asks for {} more", free_,
                           claims_.front().count);
    }

    /// The running thread is to have `count` registers, more or fewer than now. Waits until they are free.
    void set(int count, bool more, Site site) {
        context_.time.start();
        Thread& own = threads_[thread()];
        const auto refuse = [&](const std::string& why) {
            fail(Kind::unsupported, "setmaxnreg of {} registers at {}: {}", count, site, why);
        };
        if (count % 8 != 0 || count < 24 || count > 256) refuse("a multiple of 8 from 24 to 256");
        if (more != (count > own.registers) && count != own.registers)
            refuse(fmt::format("thread {} has {} already", thread(), own.registers));
        std::vector<int>& changes = changes_[thread() / (32 * warps_of_group)];
        if (own.changes == changes.size()) changes.push_back(count);
        const int others = changes[own.changes++];
        if (others != count) {
            fail(Kind::divergence,
                 "divergence: thread {} asks for {} registers at {}, and another of its warpgroup for {}",
                 thread(), count, site, others);
        }
        const int change = count - std::exchange(own.registers, count);
        context_.tally.registers_moved += std::abs(change);
        if (change > free_ || (change > 0 && !claims_.empty())) {
            claims_.push_back({thread(), change});
            return context_.scheduler.wait("setmaxnreg", site);
        }
        free_ -= change;
        while (!claims_.empty() && claims_.front().count <= free_) {
            const Claim claim = claims_.front();
            claims_.erase(claims_.begin());
            free_ -= claim.count;
            context_.wake(claim.thread);
        }
    }

  private:
    struct Thread {
        int registers;
        std::size_t changes = 0;
    };
    struct Claim {  ///< of registers that are not free yet
        int thread;
        int count;
    };

    std::vector<Thread> threads_;
    /// Of each warpgroup, what its threads must ask for alike, in this order.
    std::vector<std::vector<int>> changes_;
    std::vector<Claim> claims_;
    int free_ = 0;
};

}  // namespace simt
