/// @file
/// mbarriers: barriers in shared memory that threads, copies and bytes complete. Internal to simt/.
#pragma once

#include "simt/context.h"
#include "simt/copies.h"

namespace simt {

/// The mbarriers of a block. A phase of one is over when all have arrived, the copies that arrive with them
/// have landed, and bulk loads have brought the bytes that it expects. What lands, lands as late as it may:
/// when a thread waits for the phase, or the next one must begin.
class Mbarriers : Part {
  public:
    Mbarriers(Context& context, Copies& copies) : Part(context), copies_(copies) {}

    void begin_block() { all_.clear(); }
    /// Of Order::shuffled: a bulk load lands before it has to.
    void land_some() {
        if (!context_.time.is_on() || all_.empty()) return;  // no bulk load has started
        auto& loads = all_[context_.scheduler.draw(static_cast<int>(all_.size()))].loads;
        if (!loads.empty()) loads[context_.scheduler.draw(static_cast<int>(loads.size()))].land();
    }
    /// What threads wait for in vain: "; the mbarrier at byte 64 of shared memory lacks 1 of 2 arrivals ...".
    std::string describe_waiting() const {
        std::string text;
        for (const Mbarrier& m : all_) {
            if (m.waiting.empty()) continue;
            text += fmt::format("; the mbarrier at byte {} of shared memory ",
                                context_.shared.place_of(m.address));
            text += m.missing > 0
                        ? fmt::format("lacks {} of {} arrivals in phase {}", m.missing, m.arrivals, m.phase)
                        : fmt::format("expects {} bytes in phase {}, and bulk loads bring {}", m.expected,
                                      m.phase, m.started);
        }
        return text;
    }

    // What the running thread does.

    void init(void* address, int arrivals, Caller caller) {
        if (options().compute_capability < 80) fail(Kind::unsupported, "mbarrier at {} needs sm_80", caller);
        if (at(address) != all_.end()) {
            fail(Kind::wrong_phase, "mbarrier_init at {} by thread {} of one that is set up", caller,
                 thread());
        }
        context_.check(address, sizeof(std::uint64_t), true, Via::wrapper, caller);
        const std::vector<Epoch> none(context_.threads, 0);
        all_.push_back({address, arrivals, arrivals, thread(), none, none});
    }
    /// Bulk loads may signal the mbarriers that it has set up.
    void fence_init() {
        context_.time.start();
        for (Mbarrier& mbarrier : all_)
            mbarrier.is_visible = mbarrier.is_visible || mbarrier.set_up_by == thread();
    }
    /// One arrival, at once or when the thread's copies have landed.
    void arrive(void* address, bool behind_copies, Caller caller) {
        Mbarrier& mbarrier = find(address, caller);
        complete_if_over(mbarrier, true, caller);
        const int id = thread();
        if (mbarrier.missing == 0) {
            fail(Kind::wrong_phase,
                 "thread {} arrives at {} at an mbarrier whose phase {} has all its arrivals, and waits for "
                 "bytes",
                 id, caller, mbarrier.phase);
        }
        context_.tally.mbarrier_arrivals += 1;
        context_.time.signal(id, address, mbarrier.phase);
        if (behind_copies) {
            mbarrier.told[id] = copies_.tell_mbarrier(caller);
            if (context_.is_checked) context_.clocks.release_copies(id, mbarrier.told[id], mbarrier.arrived);
        } else if (context_.is_checked) {
            context_.clocks.release(id, mbarrier.arrived);
        }
        mbarrier.missing -= 1;
        complete_if_over(mbarrier, false, caller);
    }
    /// The same, and the phase expects more bytes.
    void expect(void* address, int bytes, Caller caller) {
        Mbarrier& mbarrier = find(address, caller);
        complete_if_over(mbarrier, true, caller);
        mbarrier.expected += bytes;
        arrive(address, false, caller);
    }
    /// Waits until phase `number` is complete.
    void wait(void* address, int number, Site site, Caller caller) {
        Mbarrier& mbarrier = find(address, caller);
        context_.tally.mbarrier_waits += 1;
        const int id = thread(), present = mbarrier.phase;
        if (number == 0 || number == 1) number = present - ((present ^ number) & 1);  // a parity will do
        if (number != present && number != present - 1) {
            fail(Kind::wrong_phase, "thread {} asks at {} for phase {} of an mbarrier that is in phase {}",
                 id, site, number, present);
        }
        // A GPU compares parities: while phase number - 1 is going on, the thread would not wait at all.
        if (context_.is_checked && mbarrier.agent != 0 && number > mbarrier.first_load &&
            !context_.clocks.knows(id, context_.clocks.moment(mbarrier.agent, number))) {
            fail(Kind::wrong_phase,
                 "thread {} waits at {} for phase {} of an mbarrier and does not know that phase {} is over",
                 id, site, number, number - 1);
        }
        context_.time.await(id, address, number, &Timeline::mbarrier_stalls);
        // The last one to be missing may be a bulk load that no thread has waited for.
        if (number == present) complete_if_over(mbarrier, true, caller);
        if (number == mbarrier.phase) {
            mbarrier.waiting.push_back(id);
            context_.scheduler.wait("an mbarrier", site);
        } else {
            acquire(id, mbarrier);
        }
    }

    /// The phase that a bulk load signals which starts now, and when its loads are over.
    struct Signal {
        int phase;
        Moment over;
    };
    Signal begin_load(void* address, Caller caller) {
        Mbarrier& mbarrier = find(address, caller);
        complete_if_over(mbarrier, true, caller);
        if (!mbarrier.is_visible) {
            fail(Kind::missing_fence,
                 "bulk_load at {} signals an mbarrier without a mbarrier_fence_init after its mbarrier_init",
                 caller);
        }
        if (mbarrier.agent == 0) {
            mbarrier.agent = context_.add_agent("bulk load", thread());
            mbarrier.first_load = mbarrier.phase;
        }
        return {mbarrier.phase, context_.clocks.moment(mbarrier.agent, mbarrier.phase + 1)};
    }
    void add_load(void* address, BulkCopy load, std::size_t bytes) {
        Mbarrier& mbarrier = *at(address);
        const Caller caller = load.caller;
        mbarrier.started += static_cast<std::int64_t>(bytes);
        mbarrier.loads.push_back(std::move(load));
        complete_if_over(mbarrier, false, caller);
    }

  private:
    struct Mbarrier {
        const void* address;
        int arrivals;   ///< that a phase takes
        int missing;    ///< of them, in the present phase
        int set_up_by;  ///< thread
        /// Of each thread: how many of its copies arrive by the present phase, and by the last complete one.
        std::vector<Epoch> told, landed;
        int phase = 0;  ///< the present one
        /// What those knew that have arrived so far, and by the last complete phase. Of checked blocks.
        ClockRef arrived{}, released{};
        std::vector<int> waiting{};  ///< threads

        // Bulk loads signal it.
        std::int64_t expected = 0, started = 0;  ///< bytes, in the present phase
        std::vector<BulkCopy> loads{};           ///< of the present phase
        Agent agent = 0;                         ///< that they are; 0: there have been none
        int first_load = 0;                      ///< the phase of the first
        bool is_visible = false;                 ///< to them, by that thread's fence
    };

    std::vector<Mbarrier>::iterator at(const void* address) {
        return std::ranges::find(all_, address, &Mbarrier::address);
    }

    Mbarrier& find(void* address, Caller caller) {
        const auto found = at(address);
        if (found == all_.end()) {
            fail(Kind::uninitialized, "mbarrier used at {} by thread {} before mbarrier_init", caller,
                 thread());
        }
        // To use it is to depend on what mbarrier_init wrote.
        context_.check(address, sizeof(std::uint64_t), false, Via::wrapper, caller);
        return *found;
    }

    /// Completes the phase if nothing is missing; and nothing is late, or it `must`.
    void complete_if_over(Mbarrier& mbarrier, bool must, Caller caller) {
        if (mbarrier.missing > 0) return;
        if (mbarrier.started > mbarrier.expected) {
            fail(Kind::wrong_bytes,
                 "the mbarrier at byte {} of shared memory expects {} bytes in its phase {}, and bulk loads "
                 "bring {}, seen at {}",
                 context_.shared.place_of(mbarrier.address), mbarrier.expected, mbarrier.phase,
                 mbarrier.started, caller);
        }
        if (mbarrier.started < mbarrier.expected) return;
        const bool late = options().late_copies && !mbarrier.loads.empty();
        if (!late || must || !mbarrier.waiting.empty()) complete(mbarrier);
    }

    /// All have arrived, so the copies that some of them waited for have landed.
    void complete(Mbarrier& mbarrier) {
        for (int id = 0; id < context_.threads; ++id) {
            if (std::exchange(mbarrier.landed[id], mbarrier.told[id]) != mbarrier.told[id])
                copies_.land(id, mbarrier.told[id]);
        }
        for (BulkCopy& load : mbarrier.loads) load.land();
        mbarrier.loads.clear();
        mbarrier.expected = mbarrier.started = 0;
        mbarrier.phase += 1;
        if (mbarrier.agent != 0) context_.clocks.release(mbarrier.agent, mbarrier.phase, mbarrier.arrived);
        mbarrier.missing = mbarrier.arrivals;
        mbarrier.released = mbarrier.arrived;
        for (const int id : std::exchange(mbarrier.waiting, {})) {
            acquire(id, mbarrier);
            context_.wake(id);
        }
    }

    /// The thread learns that the last phase is complete, and what those knew that arrived.
    void acquire(int thread, const Mbarrier& mbarrier) {
        // The thread's own copies are over for it now, and not when the last thread arrived: so what is
        // counted among them does not depend on who ran first.
        copies_.forget(thread, mbarrier.landed[thread]);
        if (context_.is_checked) context_.clocks.acquire(thread, mbarrier.released);
    }

    Copies& copies_;
    std::vector<Mbarrier> all_;
};

}  // namespace simt
