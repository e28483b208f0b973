/// @file
/// Which tiles a kernel masks, seen by what it compares. Internal to simt/.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace simt {

/// In a build that shows a kernel's comparisons, the tiles in which a thread compared once for each score.
///
/// Masking compares each score's key with a bound that the run knows; all else compares far less. One in
/// eight may be of a first key with a bound as small, which is not seen, and one may have been taken for a
/// copy's or a store's.
class MaskedTiles {
  public:
    void begin_block(int threads) {
        threads_.assign(static_cast<std::size_t>(threads), {});
        masked_.clear();
        is_shown_ = false;
    }

    /// A comparison of the kernel's own.
    void compare(int thread) {
        threads_[thread].comparisons += 1;
        threads_[thread].has_compared = is_shown_ = true;
    }
    /// A copy or a global store: the comparison before it, if the thread made one, asked for its row.
    void move(int thread) {
        if (std::exchange(threads_[thread].has_compared, false)) threads_[thread].comparisons -= 1;
    }
    /// The thread begins a tile, and has so many of its scores. The first thread that shares it is `first`.
    void note_tile(int thread, int first, int scores) {
        Thread& own = threads_[thread];
        end_tile(own);
        own = {own.tiles + 1, first, scores};
    }

    /// Are comparisons seen? Then the block has masked `count` tiles, whatever it noted.
    bool is_shown() const { return is_shown_; }
    std::uint64_t count() {
        for (Thread& thread : threads_) end_tile(thread);
        return masked_.size();
    }

  private:
    struct Thread {
        int tiles = 0;              ///< noted so far
        int first = 0;              ///< of the threads that share the last of them
        int scores = 0;             ///< its share of that one
        int comparisons = 0;        ///< since then, but for one before each copy or store
        bool has_compared = false;  ///< since the last of them
    };

    void end_tile(Thread& thread) {
        if (thread.tiles > 0 && thread.comparisons + 1 >= thread.scores * 7 / 8)
            masked_.emplace(thread.first, thread.tiles);
        thread.comparisons = 0;
        thread.has_compared = false;
    }

    std::vector<Thread> threads_;
    /// The first of the threads that share a tile, and its number among their notes.
    std::set<std::pair<int, int>> masked_;
    bool is_shown_ = false;
};

}  // namespace simt
