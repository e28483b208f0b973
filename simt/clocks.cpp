#include "simt/clocks.h"

#include <algorithm>

namespace simt {
namespace {

/// The later of what both know, agent by agent.
void join(Epochs& into, const Epochs& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void raise(Epoch& epoch, Epoch to) {
    epoch = std::max(epoch, to);
}

/// A clock that only `holder` holds, with what it knew.
Clock& own_copy(ClockRef& holder) {
    if (!holder) {
        holder = new Clock;
    } else if (holder->use_count() > 1) {
        holder = new Clock(*holder);
    }
    return *holder;
}

}  // namespace

bool KnownBlocks::knows(const Moment& moment) const {
    const auto found = std::lower_bound(blocks_.begin(), blocks_.end(), moment.block,
                                        [](const auto& known, auto block) { return known.first < block; });
    if (found == blocks_.end() || found->first != moment.block) return false;
    const Epochs& epochs = *found->second;
    return moment.agent < epochs.size() && moment.epoch <= epochs[moment.agent];
}

void KnownBlocks::learn(std::uint32_t block, const std::shared_ptr<const Epochs>& epochs) {
    const auto place = std::lower_bound(blocks_.begin(), blocks_.end(), block,
                                        [](const auto& known, auto b) { return known.first < b; });
    if (place == blocks_.end() || place->first != block) {
        blocks_.emplace(place, block, epochs);
    } else if (place->second != epochs) {
        auto both = std::make_shared<Epochs>(*place->second);
        join(*both, *epochs);
        place->second = std::move(both);
    }
}

void KnownBlocks::learn(const KnownBlocks& other) {
    for (const auto& [block, epochs] : other) learn(block, epochs);
}

void Clocks::begin(std::uint32_t block, std::uint32_t launch, int threads) {
    block_ = block;
    launch_ = launch;
    before_ = from_ = after_ = nullptr;
    const ClockRef nothing = new Clock;
    nothing->own.resize(2 * threads);
    next_agent_ = static_cast<Agent>(2 * threads);
    threads_.assign(
        threads, {.epoch = 1, .copies = 0, .known = nothing, .fenced = {}, .told = {}, .proxy_fences = {}});
}

/// What only the thread itself knew; and its next epoch begins.
void Clocks::add_own(int thread, Epochs& to) {
    Thread& self = threads_[thread];
    raise(to[thread], self.epoch);
    raise(to[copies_of(thread)], self.copies);
    self.epoch += 1;
}

void Clocks::meet(std::span<const int> threads) {
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

void Clocks::wait_for_copies(int thread, Epoch n) {
    raise(threads_[thread].copies, n);
}

void Clocks::release(int thread, ClockRef& into) {
    Clock& clock = own_copy(into);
    join(clock.own, threads_[thread].known->own);
    clock.others.learn(threads_[thread].known->others);
    add_own(thread, clock.own);
}

void Clocks::release_copies(int thread, Epoch n, ClockRef& into) {
    Clock& clock = own_copy(into);
    clock.own.resize(2 * threads_.size());
    raise(clock.own[copies_of(thread)], n);
}

void Clocks::release(Agent agent, Epoch epoch, ClockRef& into) {
    Clock& clock = own_copy(into);
    clock.own.resize(std::max<std::size_t>({clock.own.size(), 2 * threads_.size(), agent + std::size_t{1}}));
    raise(clock.own[agent], epoch);
}

void Clocks::learn(std::span<const int> threads, Agent agent, Epoch epoch) {
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

void Clocks::fence_proxy(int thread) {
    Thread& self = threads_[thread];
    self.proxy_fences.push_back(self.epoch);
    self.epoch += 1;
}

bool Clocks::is_fenced(int thread, const Moment& write) const {
    const Epochs& fences = threads_[write.agent].proxy_fences;
    const auto first = std::lower_bound(fences.begin(), fences.end(), write.epoch);
    return first != fences.end() && knows(thread, {block_, *first, write.agent});
}

void Clocks::acquire(int thread, const ClockRef& from) {
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

void Clocks::fence(int thread) {
    Thread& self = threads_[thread];
    if (!self.told.empty()) {
        Clock& known = own_copy(self.known);
        for (const auto& [block, epochs] : self.told) {
            if (block == block_) {
                join(known.own, *epochs);
            } else {
                known.others.learn(block, epochs);
            }
        }
        self.told.clear();
    }
    const auto own = std::make_shared<Epochs>(self.known->own);
    add_own(thread, *own);
    self.fenced = self.known->others;
    self.fenced.learn(block_, own);
}

}  // namespace simt
