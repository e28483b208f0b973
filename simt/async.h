/// @file
/// What a thread starts and does not wait for. Internal to simt/.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "simt/clocks.h"

namespace simt {

/// sum += x, whichever other threads of the host add to it.
inline void add(float& sum, float x) {
    std::atomic_ref(sum).fetch_add(x, std::memory_order_relaxed);
}

/// An asynchronous operation: it reads and writes memory at some moment between its start and the moment at
/// which somebody who waits learns that it is over. The race checker takes it to be under way all that time,
/// whenever its bytes land.
struct AsyncOp {
    const void* reads;  ///< null: it writes zeros
    void* writes;
    std::uint32_t bytes;
    bool adds = false;  ///< adds floats to those that are there, whichever others do
    bool landed = false;

    void land() {
        if (landed) return;
        landed = true;
        if (adds) {
            for (std::uint32_t i = 0; i < bytes / sizeof(float); ++i)
                add(static_cast<float*>(writes)[i], static_cast<const float*>(reads)[i]);
        } else if (reads != nullptr) {
            std::memcpy(writes, reads, bytes);
        } else {
            std::memset(writes, 0, bytes);
        }
    }
};

/// The copies of one thread (cp.async), from their start until the thread has waited for them. They are
/// waited for in the order in which they were started, and may land in any. The n-th is epoch n of an agent
/// of their own.
class CopyQueue {
  public:
    void clear() { *this = {}; }

    Epoch start(const AsyncOp& op) {
        ops_.push_back(op);
        return started();
    }
    /// How many copies there have been.
    Epoch started() const { return waited_ + in_flight(); }
    /// How many the thread has started and not waited for.
    Epoch in_flight() const { return static_cast<Epoch>(ops_.size()); }
    AsyncOp& operator[](Epoch place) { return ops_[place]; }  ///< the oldest in flight is at place 0

    /// The copies since the last commit are a group.
    void commit() { groups_.push_back(started()); }
    bool has_groups() const { return !groups_.empty(); }
    /// Forgets all groups but the last `pending`. Returns how many copies those and the ones before them
    /// were.
    Epoch close_groups(std::size_t pending) {
        if (groups_.size() <= pending) return waited_;
        const auto open = groups_.end() - static_cast<std::ptrdiff_t>(pending);
        const Epoch closed = open[-1];
        groups_.erase(groups_.begin(), open);
        return closed;
    }

    /// All copies so far arrive at an mbarrier.
    void tell_mbarrier() { told_ = started(); }
    bool has_told_mbarrier() const { return told_ > waited_; }

    /// The first n copies land.
    void land(Epoch n) {
        for (Epoch i = 0; i + waited_ < n; ++i) ops_[i].land();
    }
    /// The thread has waited for the first n copies.
    void forget(Epoch n) {
        if (n <= waited_) return;
        ops_.erase(ops_.begin(), ops_.begin() + static_cast<std::ptrdiff_t>(n - waited_));
        waited_ = n;
    }

  private:
    std::vector<AsyncOp> ops_;   ///< in flight, oldest first
    std::vector<Epoch> groups_;  ///< how many copies there had been at each commit
    Epoch waited_ = 0;           ///< copies that the thread has waited for
    Epoch told_ = 0;             ///< copies that arrive at an mbarrier
};

}  // namespace simt
