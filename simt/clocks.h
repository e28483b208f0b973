/// @file
/// What each thread of a block knows to have happened: vector clocks. Internal to simt/.
///
/// What does things in an order of its own is an *agent*, and counts *epochs*. What agent a did in epoch e
/// has happened before what a thread does now if the thread's clock has e or more for a; two accesses that no
/// clock orders are a race. Clocks learn from each other where CUDA orders things: at __syncthreads and
/// __syncwarp (not at a shuffle), from an arrival at an mbarrier to a wait for its phase, from a copy to a
/// wait for it, and from fence and atomic of one thread to atomic and fence of another.
#pragma once

#include <algorithm>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace simt {

/// A number within a block. Thread t is agent t, and the asynchronous copies that it has started are agent
/// `threads + t`. After these come the bulk loads that signal one mbarrier, of which those of phase p are
/// epoch p + 1; the bulk stores of a thread; the products of a warp (wgmma).
using Agent = std::uint16_t;

/// A thread's epoch ends where it tells others. Each copy is an epoch of its own. 0 is before all.
using Epoch = std::uint32_t;
using Epochs = std::vector<Epoch>;  ///< by agent; 0 where it ends

/// Who did something, and when.
struct Moment {
    std::uint32_t block = 0;  ///< serial number, unique in the process; 0 is never
    Epoch epoch = 0;
    Agent agent = 0;

    bool operator==(const Moment&) const = default;
};

/// The later of what both know, agent by agent.
inline void join(Epochs& into, const Epochs& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

inline void raise(Epoch& epoch, Epoch to) {
    epoch = std::max(epoch, to);
}

/// What is known of several blocks of a launch. Shared between them, so what it refers to never changes.
class KnownBlocks {
  public:
    bool knows(const Moment& moment) const {
        const auto found = std::ranges::lower_bound(blocks_, moment.block, {}, &Block::first);
        if (found == blocks_.end() || found->first != moment.block) return false;
        const Epochs& epochs = *found->second;
        return moment.agent < epochs.size() && moment.epoch <= epochs[moment.agent];
    }
    void learn(std::uint32_t block, const std::shared_ptr<const Epochs>& epochs) {
        const auto place = std::ranges::lower_bound(blocks_, block, {}, &Block::first);
        if (place == blocks_.end() || place->first != block) {
            blocks_.emplace(place, block, epochs);
        } else if (place->second != epochs) {
            auto both = std::make_shared<Epochs>(*place->second);
            join(*both, *epochs);
            place->second = std::move(both);
        }
    }
    void learn(const KnownBlocks& other) {
        for (const auto& [block, epochs] : other.blocks_) learn(block, epochs);
    }
    void clear() { blocks_.clear(); }
    bool empty() const { return blocks_.empty(); }
    auto begin() const { return blocks_.begin(); }
    auto end() const { return blocks_.end(); }

  private:
    using Block = std::pair<std::uint32_t, std::shared_ptr<const Epochs>>;  ///< its serial number
    std::vector<Block> blocks_;                                             ///< sorted by that
};

/// What several threads know in common, and never changes once they share it.
struct Clock : boost::intrusive_ref_counter<Clock, boost::thread_unsafe_counter> {
    Epochs own;          ///< of this block
    KnownBlocks others;  ///< of the launch
};
using ClockRef = boost::intrusive_ptr<Clock>;

/// A clock that only `holder` holds, with what it knew.
inline Clock& own_copy(ClockRef& holder) {
    if (!holder || holder->use_count() > 1) holder = holder ? new Clock(*holder) : new Clock;
    return *holder;
}

/// The clocks of a block's threads.
class Clocks {
  public:
    /// A block begins, of the launch that begins with that serial number. All that blocks below `ended` did
    /// comes before it; all below `launch` only once a thread has waited for the kernel before.
    void begin(std::uint32_t block, std::uint32_t launch, std::uint32_t ended, int threads) {
        block_ = block;
        launch_ = launch;
        before_ = from_ = after_ = nullptr;
        const ClockRef nothing = new Clock;
        nothing->own.resize(2 * threads);
        next_agent_ = static_cast<Agent>(2 * threads);
        threads_.assign(threads, {1, 0, ended, nothing, nothing, {}, {}, {}, {}});
    }

    Moment now(int thread) const { return {block_, threads_[thread].epoch, static_cast<Agent>(thread)}; }
    /// The moment of a thread's n-th copy, from 1 on.
    Moment copy(int thread, Epoch n) const { return {block_, n, copies_of(thread)}; }
    /// The moment at which an agent's epoch ends.
    Moment moment(Agent agent, Epoch epoch) const { return {block_, epoch, agent}; }
    /// After those of the threads and their copies.
    Agent add_agent() { return next_agent_++; }
    bool is_thread(const Moment& moment) const { return moment.agent < threads_.size(); }
    bool is_copy(const Moment& moment) const {
        return !is_thread(moment) && moment.agent < 2 * threads_.size();
    }
    /// The thread that did it, or whose copy did. Not of other agents.
    int thread_of(const Moment& moment) const {
        return is_thread(moment) || is_copy(moment) ? moment.agent % threads_.size() : 0;
    }
    bool of_this_block(const Moment& moment) const { return moment.block == block_; }
    bool of_this_launch(const Moment& moment) const { return moment.block >= launch_; }

    /// Did it happen before what the thread does now?
    bool knows(int thread, const Moment& moment) const {
        const Thread& self = threads_[thread];
        if (moment.block != block_) return moment.block < self.ended || self.known->others.knows(moment);
        if (moment.agent == thread) return true;
        if (moment.agent == copies_of(thread)) return moment.epoch <= self.copies;
        return moment.epoch <= known_of(self, moment.agent);
    }
    /// The same, though the thread has done it itself: do its others who have met it know it too?
    bool has_told(int thread, const Moment& moment) const {
        if (moment.block != block_ || moment.agent != thread) return knows(thread, moment);
        return moment.epoch <= known_of(threads_[thread], moment.agent);
    }
    /// Two threads for which this is the same know the same of others.
    const Clock* known(int thread) const { return threads_[thread].known.get(); }

    /// A fence.proxy.async: asynchronous copies and products may read what the thread did, its own what it
    /// knew.
    void fence_proxy(int thread) {
        Thread& self = threads_[thread];
        self.known_at_fence = self.known;
        self.proxy_fences.push_back(self.epoch);
        self.fenced_copies.push_back(self.copies);
        self.epoch += 1;
    }
    /// Has `thread` fenced what it knew of the write, or does it know that the writer has, after it?
    bool is_fenced(int thread, const Moment& write) const {
        if (known_by(threads_[thread].known_at_fence, write.agent) >= write.epoch) return true;
        const auto agent = static_cast<Agent>(thread_of(write));
        const Thread& writer = threads_[agent];
        const Epochs& passed = is_copy(write) ? writer.fenced_copies : writer.proxy_fences;
        const auto first = std::lower_bound(passed.begin(), passed.end(), write.epoch) - passed.begin();
        return first < std::ssize(passed) && knows(thread, {block_, writer.proxy_fences[first], agent});
    }

    /// These threads have met: each knows what one of them did or knew.
    void meet(std::span<const int> threads) {
        const ClockRef met = new Clock(*threads_[threads.front()].known);
        const Clock* last = threads_[threads.front()].known.get();
        for (const int thread : threads) {
            const Clock* known = threads_[thread].known.get();
            if (known != last) {
                join(met->own, known->own);
                met->others.learn(known->others);
                last = known;
            }
            add_own(thread, met->own);
        }
        for (const int thread : threads) threads_[thread].known = met;
    }
    void wait_for_previous_kernel(int thread) { threads_[thread].ended = launch_; }
    /// The thread has waited for its first n copies.
    void wait_for_copies(int thread, Epoch n) { raise(threads_[thread].copies, n); }
    /// `into` learns what the thread did and knows; or that its first n copies are over.
    void release(int thread, ClockRef& into) {
        Clock& clock = own_copy(into);
        join(clock.own, threads_[thread].known->own);
        clock.others.learn(threads_[thread].known->others);
        add_own(thread, clock.own);
    }
    void release_copies(int thread, Epoch n, ClockRef& into) { release(copies_of(thread), n, into); }
    /// `into` learns that an agent's epoch is over; or some threads do.
    void release(Agent agent, Epoch epoch, ClockRef& into) {
        Clock& clock = own_copy(into);
        clock.own.resize(
            std::max<std::size_t>({clock.own.size(), 2 * threads_.size(), agent + std::size_t{1}}));
        raise(clock.own[agent], epoch);
    }
    void learn(std::span<const int> threads, Agent agent, Epoch epoch) {
        ClockRef before, after;
        for (const int thread : threads) {
            ClockRef& known = threads_[thread].known;
            if (known_of(threads_[thread], agent) >= epoch) continue;
            if (known != before) {
                before = after = known;
                release(agent, epoch, after);
            }
            known = after;
        }
    }
    /// The thread learns what `from` knows, which may be null.
    void acquire(int thread, const ClockRef& from) {
        if (!from) return;
        Thread& self = threads_[thread];
        raise(self.copies, from->own[copies_of(thread)]);
        if (self.known != before_ || from != from_) {
            before_ = self.known;
            from_ = from;
            after_ = new Clock(*self.known);
            join(after_->own, from->own);
            after_->others.learn(from->others);
        }
        self.known = after_;
    }
    /// A __threadfence: the next atomic may tell what the thread knows, which learns what its last were told.
    void fence(int thread) {
        Thread& self = threads_[thread];
        if (!self.told.empty()) {
            Clock& known = own_copy(self.known);
            for (const auto& [block, epochs] : self.told)
                block == block_ ? join(known.own, *epochs) : known.others.learn(block, epochs);
            self.told.clear();
        }
        const auto own = std::make_shared<Epochs>(self.known->own);
        add_own(thread, *own);
        self.fenced = self.known->others;
        self.fenced.learn(block_, own);
    }
    /// An atomic on an address tells it what the thread knew at its last fence, or is told what others did.
    void tell(int thread, KnownBlocks& told) const { told.learn(threads_[thread].fenced); }
    void be_told(int thread, const KnownBlocks& told) { threads_[thread].told.learn(told); }

  private:
    struct Thread {
        Epoch epoch;                     ///< the present one
        Epoch copies;                    ///< that it has waited for
        std::uint32_t ended;             ///< blocks with lower serial numbers have
        ClockRef known, known_at_fence;  ///< of others; of itself, it knows all
        KnownBlocks fenced, told;
        Epochs proxy_fences;   ///< that ended with one
        Epochs fenced_copies;  ///< that it had waited for at each of them
    };
    static Epoch known_by(const ClockRef& clock, Agent agent) {
        return agent < clock->own.size() ? clock->own[agent] : 0;
    }
    static Epoch known_of(const Thread& thread, Agent agent) { return known_by(thread.known, agent); }
    Agent copies_of(int thread) const { return static_cast<Agent>(threads_.size() + thread); }
    /// What only the thread itself knew; and its next epoch begins.
    void add_own(int thread, Epochs& to) {
        Thread& self = threads_[thread];
        raise(to[thread], self.epoch);
        raise(to[copies_of(thread)], self.copies);
        self.epoch += 1;
    }

    std::uint32_t block_ = 0, launch_ = 0;
    std::vector<Thread> threads_;
    Agent next_agent_ = 0;
    /// The last acquire: mostly, all lanes of a warp learn the same and knew the same.
    ClockRef before_, from_, after_;
};

}  // namespace simt
