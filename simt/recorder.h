/// @file
/// What a block does, for its trace. Internal to simt/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "simt/block_trace.h"
#include "simt/checker.h"
#include "simt/shared_memory.h"

namespace simt {

/// Fills the trace of the running block, if there is one; without one, its functions do nothing.
class Recorder {
  public:
    /// Takes a warp's work from what is added to `tally` while it runs.
    Recorder(const SharedMemory& shared, const Counters& tally) : shared_(shared), tally_(tally) {}

    void begin_block(BlockTrace* trace, int threads) {
        trace_ = trace;
        taken_ = tally_;
        if (!is_on()) return;
        threads_.assign(threads, {});
        origins_.begin_block();
    }
    void end_block(Timeline timeline) {
        if (!is_on()) return;
        trace_->timeline = std::move(timeline);
        for (BlockTrace::Phase& phase : trace_->phases) {  // warpgroups came to theirs in any order
            std::sort(phase.tiles.begin(), phase.tiles.end(), [](const Tile& a, const Tile& b) {
                return std::tie(a.batch, a.head, a.query_tile, a.key_tile) <
                       std::tie(b.batch, b.head, b.query_tile, b.key_tile);
            });
        }
    }
    bool is_on() const { return trace_ != nullptr; }

    /// What was counted since the last call is the work of this thread's warp.
    void end_turn(int thread) {
        if (!is_on()) return;
        record_of(thread).work += tally_ - taken_;
        taken_ = tally_;
    }
    /// All threads have come to a barrier, and what has been counted since the last turn is no warp's own.
    void begin_phase() {
        if (!is_on()) return;
        taken_ = tally_;
        std::size_t last = 0;
        for (const Thread& thread : threads_) last = std::max(last, thread.phase);
        threads_.assign(threads_.size(), {.phase = last + 1});
        phase(last + 1).behind_barrier = true;
    }
    void note_tile(int thread, const Tile& tile, bool is_first) {
        if (!is_on()) return;
        end_turn(thread);
        Thread& own = threads_[thread];
        if (std::exchange(own.has_tile, true)) own.phase += 1;
        if (is_first) phase(own.phase).tiles.push_back(tile);
    }
    void note_row(int thread, int row, float m, float l) {
        if (!is_on()) return;
        RowState& state = record_of(thread).rows[row];
        state.m = m;
        state.l_of_lanes[thread % 4] = l;
    }

    /// A copy of 16 bytes to shared memory starts; `source` is null where it writes zeros.
    void copy(const void* to, const void* source) {
        if (is_on() && shared_.contains(to)) origins_.copy(shared_.place_of(to), source);
    }
    /// The thread's warp reads 16 bytes, a row of an operand of ldmatrix or a product.
    void read_row(int thread, const void* row, bool transposed) {
        if (!is_on() || !shared_.contains(row)) return;
        const Place source = place_in_global_memory(origins_.source(shared_.place_of(row)));
        if (source.allocation == nullptr) return access(thread, row, Origins::copied, false);
        BlockTrace::Warp& warp = record_of(thread);
        (transposed ? warp.read_transposed : warp.read)[source.allocation].add(source.byte, Origins::copied);
    }
    /// What load() and store() move.
    void access(int thread, const void* address, std::size_t bytes, bool write) {
        if (!is_on() || !shared_.contains(address)) return;
        const std::size_t place = shared_.place_of(address);
        if (write) return origins_.store(place, bytes, thread / 32);
        for (std::size_t n = 0; n < bytes; ++n) {
            const int warp = origins_.warp(place + n);
            if (warp != Origins::nobody) record_of(thread).received[warp] += 1;
        }
    }

  private:
    /// Of the trace.
    struct Thread {
        std::size_t phase = 0;  ///< that it is in
        bool has_tile = false;  ///< noted in that one
    };

    BlockTrace::Phase& phase(std::size_t number) {
        const std::size_t warps = (threads_.size() + 31) / 32;
        while (trace_->phases.size() <= number) trace_->phases.emplace_back().warps.resize(warps);
        return trace_->phases[number];
    }
    BlockTrace::Warp& record_of(int thread) { return phase(threads_[thread].phase).warps[thread / 32]; }

    const SharedMemory& shared_;
    const Counters& tally_;
    Counters taken_;  ///< what the tally was when the trace took it over
    BlockTrace* trace_ = nullptr;
    std::vector<Thread> threads_;
    Origins origins_;
};

}  // namespace simt
