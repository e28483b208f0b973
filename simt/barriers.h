/// @file
/// The barriers of a block that lie in no memory: __syncthreads, and named ones. Internal to simt/.
#pragma once

#include "simt/context.h"

namespace simt {

/// __syncthreads. It waits for the threads that have not left the kernel.
class Barrier : Part {
  public:
    using Part::Part;

    void begin_block() {
        live_ = context_.threads;
        arrived_ = 0;
    }
    /// The running thread leaves the kernel.
    void end_thread() {
        live_ -= 1;
        release_if_complete();
    }
    /// Threads that have not left it.
    int live() const { return live_; }

    void sync(Site site) {
        const auto number = static_cast<int>(context_.tally.barriers);
        context_.time.signal(thread(), this, number);
        context_.time.await(thread(), this, number);
        arrived_ += 1;
        if (arrived_ < live_) return context_.scheduler.wait("__syncthreads", site);
        for (const int other : context_.all_threads()) {
            const auto& [what, at] = context_.scheduler.waiting()[other];
            if (what == nullptr || at.line == site.line) continue;
            fail(Kind::divergence, "divergent __syncthreads: thread {} waits at {}, thread {} at {}", other,
                 at, thread(), site);
        }
        release_if_complete();
    }

  private:
    void release_if_complete() {
        if (arrived_ == 0 || arrived_ < live_) return;
        arrived_ = 0;
        context_.time.meet();
        context_.recorder.end_turn(thread());
        context_.tally.barriers += 1;  // which is no warp's own
        context_.recorder.begin_phase();
        if (context_.is_checked) context_.clocks.meet(context_.all_threads());
        for (const int other : context_.all_threads()) {
            if (context_.scheduler.waiting()[other].what != nullptr) context_.wake(other);
        }
    }

    int live_ = 0;
    int arrived_ = 0;
};

/// Barriers 1 to 15, each for some of the block's warps (Hopper).
class NamedBarriers : Part {
  public:
    using Part::Part;

    void begin_block() { barriers_ = {}; }
    /// "; named barrier 1 has 128 of 256 threads"
    std::string describe_waiting() const {
        std::string text;
        for (std::size_t id = 0; id < barriers_.size(); ++id) {
            const State& b = barriers_[id];
            if (b.arrived > 0)
                text += fmt::format("; named barrier {} has {} of {} threads", id, b.arrived, b.threads);
        }
        return text;
    }

    /// The running thread arrives, and may wait until `threads` threads have.
    void arrive(int id, int threads, bool waits, Site site) {
        context_.time.start();
        if (id < 1 || id > 15 || threads % 32 != 0 || threads < 32 || threads > context_.threads)
            fail(Kind::unsupported, "named barrier {} with {} threads, at {}", id, threads, site);
        context_.tally.named_barriers += 1;
        context_.tally.named_waits += waits;
        State& barrier = barriers_[id];
        barrier.arrivals.resize(context_.threads);
        if (barrier.arrived > 0 && barrier.threads != threads) {
            fail(Kind::divergence, "named barrier {} takes {} threads at {}, and {} at {}", id,
                 barrier.threads, barrier.first, threads, site);
        }
        const Arrival last = std::exchange(barrier.arrivals[thread()], {site, barrier.uses});
        if (last.use == barrier.uses) {
            fail(Kind::wrong_phase,
                 "thread {} arrives twice in one phase of named barrier {}, at {} and at {}, with {} of {} "
                 "arrivals",
                 thread(), id, last.site, site, barrier.arrived, threads);
        }
        if (barrier.arrived == 0) barrier.first = site;
        barrier.threads = threads;
        barrier.arrived += 1;
        context_.time.signal(thread(), &barrier, barrier.uses);
        if (waits) context_.time.await(thread(), &barrier, barrier.uses, &Timeline::named_stalls);
        if (context_.is_checked) context_.clocks.release(thread(), barrier.told);
        if (barrier.arrived == threads) return complete(barrier, waits);
        if (!waits) return;
        barrier.waiting.push_back(thread());
        context_.scheduler.wait("a named barrier", site);
    }

  private:
    /// Of a thread, the last.
    struct Arrival {
        Site site{};
        int use = -1;  ///< that it was part of
    };
    struct State {
        int threads = 0;  ///< that it takes
        int arrived = 0;
        int uses = 0;  ///< that are complete
        Site first{};
        ClockRef told;
        std::vector<int> waiting;
        std::vector<Arrival> arrivals;  ///< of each thread of the block
    };

    /// All have arrived, and the running thread, which came last, may wait.
    void complete(State& barrier, bool waits) {
        const ClockRef told = std::exchange(barrier.told, nullptr);
        barrier.arrived = 0;
        barrier.uses += 1;
        for (const int other : std::exchange(barrier.waiting, {})) {
            if (context_.is_checked) context_.clocks.acquire(other, told);
            context_.wake(other);
        }
        if (context_.is_checked && waits) context_.clocks.acquire(thread(), told);
    }

    std::array<State, 16> barriers_;
};

}  // namespace simt
