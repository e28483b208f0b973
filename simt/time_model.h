/// @file
/// When a block of Hopper does what, in a model of one of its multiprocessors. Internal to simt/.
///
/// Threads tell what they do while they run, what they wait for and what they signal. The times are worked
/// out after the block's end, by going through the steps of its warps again, all at once and in the order of
/// the model's time. So they do not depend on the order in which threads ran.
///
/// The unit is the clock of a multiprocessor of an H100. What takes time:
/// - A product of a warpgroup takes the tensor units for as many clocks as half its columns (m64nNk16:
///   64 N 16 multiply-adds, 2048 a clock). They do one product at a time. Of warpgroups that both have one
///   ready, they take turns. A warpgroup has 8 products waiting for them at most (O += P V of 128 keys is so
///   many), and issues the next when the first of these begins. How many a GPU lets wait, and whom it
///   prefers, is not documented: this is fair to all, so warpgroups that start together stay together.
/// - Exponentials: each quarter of a multiprocessor computes 4 a clock for its warps (n, n + 4 ...), which
///   share them evenly.
/// - Bulk loads: 64 bytes a clock, one load after the other, and 600 clocks until the last byte has come.
/// All else takes none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simt/block_trace.h"
#include "simt/scheduler.h"

namespace simt {

constexpr int warps_of_group = 4;  ///< of a warpgroup

class TimeModel {
  public:
    static constexpr double multiply_adds = 2048, exponentials_of_quarter = 4;  ///< per clock
    static constexpr int most_waiting = 8;                                      ///< products of a warpgroup
    static constexpr double load_bytes = 64;                                    ///< per clock
    static constexpr double load_latency = 600;                                 ///< clocks

    /// A block begins. Nothing is recorded until start().
    void begin(int threads);
    /// The block uses Hopper's instructions: from here on, its steps are recorded.
    void start() { is_on_ = true; }
    bool is_on() const { return is_on_; }

    // What a thread does. `object` and `generation` name what is complete when all who signal it have: phase
    // n of an mbarrier, the n-th use of a barrier. `stalls` counts the waits that are not over at once.
    using Stalls = std::uint64_t Timeline::*;
    void exponential(int thread) {
        if (is_on_) lanes_[thread].exponentials += 1;
    }
    void signal(int thread, const void* object, int generation) {
        if (is_on_) add(thread, {Step::Kind::signal, event_of(object, generation)});
    }
    void await(int thread, const void* object, int generation, Stalls stalls = nullptr) {
        if (is_on_) add(thread, {Step::Kind::await, event_of(object, generation), 1, stalls});
    }
    /// A bulk load to shared memory, from byte `begin` to `end`; it signals that phase of its mbarrier.
    void load(int thread, const void* mbarrier, int phase, std::size_t begin, std::size_t end,
              const char* tensor);
    /// A note_tile, which may come before start().
    void note(int thread, const Tile& tile);

    // What a warp does.
    /// These lanes are at the same instruction.
    void meet(int warp, std::uint32_t lanes);
    /// All threads are. Some may have come to it before start().
    void meet();
    /// The warp's part of its warpgroup's next product. Its operands start at these bytes of shared memory.
    static constexpr std::size_t in_registers = ~std::size_t{0};  ///< A may be
    void product(int warp, int columns, std::size_t A, std::size_t B);
    /// Until so many products of the warpgroup, from its first on, are over.
    void await_products(int warp, int count) {
        if (is_on_) add_together(warp, {Step::Kind::await_products, count});
    }

    /// The block has ended: when what was. Empty if nothing was recorded.
    Timeline times();

  private:
    struct Step {
        enum class Kind : std::uint8_t { exponentials, signal, await, load, note, product, await_products };
        Kind kind;
        int number;     ///< of the event, load, note or product; how many products
        int count = 1;  ///< signals, threads that wait, or exponentials of the lane that has the most
        Stalls stalls = nullptr;

        bool same_as(const Step& other) const { return kind == other.kind && number == other.number; }
    };
    struct Lane {
        int exponentials = 0;    ///< not yet in a step
        std::size_t cursor = 0;  ///< in the steps of its warp
    };
    struct Load {
        int event, place;
        double bytes;
    };
    struct Run;

    int event_of(const void* object, int generation) {
        return events_.try_emplace({object, generation}, static_cast<int>(events_.size())).first->second;
    }
    Timeline::Product::Operand operand_at(std::size_t byte) const;
    /// A step of a thread, after the exponentials that it has computed; or those alone.
    void add(int thread, Step step) {
        flush(thread);
        insert(thread, step);
    }
    void flush(int thread) {
        if (const int count = std::exchange(lanes_[thread].exponentials, 0); count > 0)
            insert(thread, {Step::Kind::exponentials, 0, count});
    }
    void insert(int thread, Step step);
    /// A step that all lanes of a warp come to together.
    void add_together(int warp, Step step) {
        steps_[warp].push_back(step);
        meet(warp, ~0u);
    }

    bool is_on_ = false;
    std::vector<Lane> lanes_;
    std::vector<std::vector<Step>> steps_;  ///< of each warp
    std::map<std::pair<const void*, int>, int> events_;
    std::vector<Load> loads_;
    std::vector<Tile> notes_;
    std::vector<std::vector<Timeline::Product>> products_;  ///< of each warpgroup, without times
    std::vector<int> products_of_warp_;                     ///< how many it has started
    std::vector<Timeline::Place> places_;                   ///< without fills
    std::map<const void*, int> place_of_mbarrier_;
    /// By its first byte, what a load filled, and its end.
    std::map<std::size_t, std::pair<std::size_t, Timeline::Product::Operand>> loaded_;
};

}  // namespace simt
