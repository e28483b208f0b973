/// @file
/// Asynchronous operations: what a thread or a warp starts and does not wait for. Internal to simt/.
///
/// They are of one kind, whether an instruction copies 16 bytes (cp.async), moves a box (TMA) or multiplies
/// matrices (wgmma). Each reads, writes and signals: it accesses memory between its start and the wait that
/// learns that it is over, and lands as late as that allows. To the race checker it is under way all that
/// time. A new kind is an Op with land() in an AsyncQueue, or an AsyncOp that an mbarrier holds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "simt/clocks.h"
#include "simt/image.h"

namespace simt {

/// sum += x, whichever other threads of the host add to it.
inline void add(float& sum, float x) {
    std::atomic_ref(sum).fetch_add(x, std::memory_order_relaxed);
}

/// Bytes that lie together on both sides of a copy.
struct Piece {
    const void* reads;  ///< null: zeros are written
    void* writes;       ///< null: nothing is
    std::uint32_t bytes;
    bool adds = false;  ///< adds floats to those in memory, whichever other threads do

    void move() const {
        if (writes == nullptr) return;
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

/// An asynchronous operation on memory: what it reads, what it writes, and what it signals.
template <class Pieces>
struct AsyncOp {
    Pieces pieces;
    Caller caller;  ///< return address of its start
    /// An agent's epoch each. A thread that has learned of it knows that memory has been read, and written.
    Moment has_read{}, has_written{};
    bool landed = false;

    void land() {
        if (std::exchange(landed, true)) return;
        for (const Piece& piece : pieces) piece.move();
    }
};
using AsyncCopy = AsyncOp<std::array<Piece, 1>>;  ///< of one thread (cp.async)
using BulkCopy = AsyncOp<std::vector<Piece>>;     ///< by the copy engine (TMA)

/// Operations of one thread or warp, from their start until it has waited for them, in groups. It waits in
/// the order in which it started them; they may land in any. The n-th is epoch n of an agent of their own.
template <class Op>
class AsyncQueue {
  public:
    void start(Op op) { ops_.push_back(std::move(op)); }
    /// How many operations have started, and how many of them have been waited for.
    Epoch started() const { return over_ + in_flight(); }
    Epoch over() const { return over_; }
    Epoch in_flight() const { return static_cast<Epoch>(ops_.size()); }
    /// Operation n, which has not been waited for. The first one is operation 0.
    Op& operator[](Epoch n) { return ops_[n - over_]; }
    Op& last() { return ops_.back(); }

    /// The operations since the last commit are a group.
    void commit() { groups_.push_back(started()); }
    std::size_t groups() const { return groups_.size(); }
    /// How many operations are over when all groups but the last `pending` are.
    Epoch before_last(std::size_t pending) const {
        return groups() > pending ? groups_[groups() - pending - 1] : over_;
    }
    /// The same; and those groups are no more.
    Epoch forget_groups_before_last(std::size_t pending) {
        const Epoch over = before_last(pending);
        if (groups() > pending) groups_.erase(groups_.begin(), groups_.end() - pending);
        return over;
    }

    /// The first n operations land.
    void land(Epoch n) {
        for (Epoch i = over_; i < n; ++i) (*this)[i].land();
    }
    /// The first n operations have been waited for.
    void forget(Epoch n) {
        if (n <= over_) return;
        ops_.erase(ops_.begin(), ops_.begin() + (n - over_));
        over_ = n;
    }

  private:
    std::vector<Op> ops_;        ///< in flight, oldest first
    std::vector<Epoch> groups_;  ///< how many operations there had been at each commit
    Epoch over_ = 0;
};

}  // namespace simt
