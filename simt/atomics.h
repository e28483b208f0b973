/// @file
/// What a block has to do with the others of its launch: atomics, fences, counts. Internal to simt/.
#pragma once

#include <atomic>

#include "simt/context.h"
#include "simt/workers.h"

namespace simt {

/// A block's atomics, and its threads that wait for counts that other blocks raise.
class Atomics : Part {
  public:
    /// The block cannot go on, since one that has failed was to raise a count.
    struct GivenUp {};

    using Part::Part;

    void begin_block(std::uint64_t number, Workers& workers) {
        number_ = number;
        workers_ = &workers;
        waiting_.clear();
    }
    /// No thread can go on: waits until those that wait for counts can. False if none will. Throws GivenUp.
    bool wait_for_others() {
        if (waiting_.empty()) return false;
        const auto waited = workers_->wait([&] { return std::ranges::any_of(waiting_, &Wait::is_over); });
        if (waited == Workers::Waited::in_vain) return false;
        if (waited == Workers::Waited::given_up_on) throw GivenUp();
        std::erase_if(waiting_, [&](const Wait& wait) {
            if (!wait.is_over()) return false;
            context_.wake(wait.thread);
            return true;
        });
        return true;
    }
    /// "; thread 0 waits for a count of 2, and it stays 1"
    std::string describe_waiting() const {
        std::string text;
        for (const auto& [count, value, thread] : waiting_)
            text +=
                fmt::format("; thread {} waits for a count of {}, and it stays {}", thread, value, *count);
        return text;
    }

    // What the running thread does.

    unsigned increment(unsigned* counter, unsigned most, Caller caller) {
        context_.tally.atomics += 1;
        // Blocks of other workers do it too: one at a time, and in the order in which the checker sees them.
        static std::mutex mutex;
        workers_->begin_atomic(number_);
        unsigned count = 0;
        {
            const auto checked = context_.check(counter, sizeof *counter, true, Via::atomic, caller);
            const std::lock_guard lock(mutex);
            count = *counter;
            *counter = count >= most ? 0 : count + 1;
        }
        workers_->end_atomic(number_);
        return count;
    }
    void add_to(float* sums, const float* x, int count, Caller caller) {
        context_.tally.atomics += 1;
        // In no turn: floats that atomics add up give one of many sums, on a GPU, too.
        context_.check(sums, count * sizeof *sums, true, Via::addition, caller);
        for (int n = 0; n < count; ++n) add(sums[n], x[n]);
    }
    void raise(unsigned* count, Caller caller) {
        context_.tally.atomics += 1;
        fence();
        {
            const auto checked = context_.check(count, sizeof *count, true, Via::release, caller);
            std::atomic_ref(*count).fetch_add(1);
        }
        workers_->raised();
    }
    void wait_for(const unsigned* count, unsigned value, Site site, Caller caller) {
        context_.tally.global_load_bytes += sizeof *count;
        const Wait wait{count, value, thread()};
        for (;;) {
            {
                const auto checked = context_.check(count, sizeof *count, false, Via::acquire, caller);
                if (wait.is_over()) break;
            }
            waiting_.push_back(wait);
            context_.scheduler.wait("a count of other blocks", site);
        }
        fence();
    }
    void fence() {
        context_.tally.fences += 1;
        if (context_.is_checked) context_.clocks.fence(thread());
    }

  private:
    /// A thread that waits for a count.
    struct Wait {
        const unsigned* count;
        unsigned value;
        int thread;
        bool is_over() const { return std::atomic_ref(const_cast<unsigned&>(*count)).load() == value; }
    };

    std::uint64_t number_ = 0;
    Workers* workers_ = nullptr;
    std::vector<Wait> waiting_;
};

}  // namespace simt
