/// @file
/// One thread block on the CPU: its threads, barriers and copies, and the meetings of its warps. Internal to
/// simt/.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simt/async.h"
#include "simt/checker.h"
#include "simt/clocks.h"
#include "simt/cuda.h"
#include "simt/hopper_block.h"
#include "simt/origins.h"
#include "simt/scheduler.h"
#include "simt/time_model.h"
#include "simt/turns.h"

namespace simt {

/// A warp instruction that lanes execute together.
enum class Op : std::uint8_t {
    ldmatrix,
    ldmatrix_transposed,
    stmatrix,
    stmatrix_transposed,
    mma,
    wgmma,
    wgmma_fence,
    wgmma_commit,
    wgmma_wait,
    shuffle,
    vote,
    sync_warp
};

/// What a warp instruction does once all lanes of `mask` have brought their operands.
using MeetingBody = void (*)(void* const (&operands)[32], std::uint32_t mask);

/// Runs blocks, one at a time, on the thread that owns it.
class Block final : Scheduler::Program {
  public:
    Block();

    /// Prepares for the blocks of a launch.
    void begin_launch(const Launch& config, void (*call)(const void*), const void* parameters,
                      std::size_t bytes, std::uint32_t first_serial);
    /// Runs one block to its end, recording what it does if `trace` is not null, and doing its atomics in
    /// turns if `turns` is not. Throws the Report of whatever went wrong.
    void run(std::uint64_t number, BlockTrace* trace, Turns* turns, Workers& workers);
    /// What run() throws if the block waits for a count that another block, which has failed, did not raise.
    struct GivenUp {};

    // All that follows is called by the running thread.

    /// Waits until all lanes of `mask` are here. The last one computes `body`.
    void meet(Op op, std::uint32_t mask, void* operands, MeetingBody body, Site site);
    /// Waits for every thread that has not left the kernel.
    void sync(Site site);
    /// __threadfence.
    void fence();
    /// Gives up on the block. The thread never resumes.
    [[noreturn]] void fail(const Report& report);
    [[noreturn]] void fail(Report::Kind kind, const std::string& message) { fail(Report(kind, message)); }

    /// On the checked back-end: one access to memory. Does not return if it is a fault. What the checker
    /// locks stays locked while the caller holds what this returns.
    std::unique_lock<std::mutex> check(const void* address, std::size_t bytes, bool write, Via via,
                                       std::uintptr_t caller) {
        if (!config_->checked) return {};
        if (scheduler_.on_a_stack(address)) {
            if (via == Via::plain && hopper.watches(address)) hopper.touch(address, bytes, write, caller);
            return {};
        }
        return checked(clocks_.now(scheduler_.current()), address, bytes, write, via, caller);
    }

    void start_copy(void* shared, const void* global, bool valid, bool evict_first, std::uintptr_t caller);
    void commit_copies() { self().copies.commit(); }
    void wait_for_groups(int pending, std::uintptr_t caller);
    void wait_for_copies(std::uintptr_t caller);
    /// Does an atomic, in the block's turn.
    template <class F>
    auto atomic(F f) {
        if (turns_ == nullptr) return f();
        turns_->begin(number_);
        const auto result = f();
        turns_->end(number_);
        return result;
    }
    /// Has a lane of the running warp started copies that it has not waited for?
    bool warp_has_copies_in_flight() const;

    void init_mbarrier(void* address, int arrivals, std::uintptr_t caller);
    /// One arrival, at once or when the thread's copies have landed.
    void arrive(void* address, bool behind_copies, std::uintptr_t caller);
    /// Waits until phase `number` is complete.
    void wait_for_phase(void* address, int number, Site site, std::uintptr_t caller);

    /// Waits until a count has this value.
    void wait_for_count(const unsigned* count, unsigned value, Site site, std::uintptr_t caller);
    /// The running thread has raised a count.
    void raised() { workers_->raised(); }

    void note_exponential() {
        tally.exponentials += 1;
        time_.exponential(scheduler_.current());
    }
    void note_tile(const Tile& tile);
    /// A comparison of the kernel's own, in a build that shows them.
    void note_comparison() {
        self().comparisons += 1;
        self().compared = shows_comparisons_ = true;
    }
    void note_row(int row, float m, float l);
    /// For the trace, if there is one: a row of an operand that ldmatrix or a product reads, and what load()
    /// and store() move.
    void record_matrix_row(const void* row, bool transposed) {
        if (trace_ != nullptr) record_read(row, transposed);
    }
    void record_access(const void* address, std::size_t bytes, bool write) {
        if (trace_ != nullptr) record_exchange(address, bytes, write);
    }

    bool is_checked() const { return config_->checked; }
    void* shared_memory() { return shared_.get(); }
    bool in_shared_memory(const void* address) const { return place_of(address) < shared_bytes_; }

    Counters tally;
    HopperBlock hopper{*this};

  private:
    friend class HopperBlock;
    struct Thread {
        dim3 index;
        bool finished = false;
        bool has_tile = false;  ///< noted in this phase
        std::size_t phase = 0;  ///< of the trace
        int tiles = 0;          ///< noted so far
        int first = 0;          ///< of the threads that share the last of them
        int scores = 0;         ///< its share of that one
        int comparisons = 0;    ///< since then, but for one in front of each copy: whether its row is there
        bool compared = false;  ///< since the last copy
        CopyQueue copies;
    };
    struct Mbarrier {
        const void* address;
        int arrivals;             ///< that a phase takes
        int missing;              ///< of them, in the present phase
        std::uint32_t phase = 0;  ///< the present one
        /// Of each thread: how many of its copies arrive with the present phase or before, and how many have
        /// landed with those that are complete.
        std::vector<Epoch> told, landed;
        /// If the block is checked: what those knew who have arrived so far, and up to the last phase that is
        /// complete.
        ClockRef arrived, released;
        std::vector<int> waiting;  ///< threads

        // Bulk loads signal it.
        std::int64_t expected = 0, started = 0;  ///< bytes, in the present phase
        std::vector<BulkCopy> loads;             ///< of the present phase
        Agent agent = 0;                         ///< they; 0: there have been none
        int set_up_by = 0;                       ///< thread
        bool is_visible = false;                 ///< fence_mbarrier_init by that thread
    };
    struct Meeting {
        std::uint32_t mask = 0;
        std::uint32_t arrived = 0;
        Op op{};
        Site site{};
        void* operands[32];
    };

    /// A thread that waits for a count of other blocks.
    struct CountWait {
        const unsigned* count;
        unsigned value;
        int thread;
        bool is_over() const;
    };

    Thread& self() { return threads_[scheduler_.current()]; }
    [[noreturn, gnu::noinline]] void fail_to_meet(const Meeting& meeting, Op op, Site site);
    [[gnu::noinline]] void hold(Meeting& meeting, MeetingBody body);
    /// Threads that waited for counts go on. False if there are none, or none ever will.
    bool wait_for_others();
    void begin(std::uint64_t number, dim3 index);
    void main(int id) override;
    void begin_turn(int id) override;
    void end_turn() override;
    void land_some();
    std::unique_lock<std::mutex> checked(const Moment& at, const void* address, std::size_t bytes, bool write,
                                         Via via, std::uintptr_t caller, int thread);
    std::unique_lock<std::mutex> checked(const Moment& at, const void* address, std::size_t bytes, bool write,
                                         Via via, std::uintptr_t caller) {
        return checked(at, address, bytes, write, via, caller, scheduler_.current());
    }
    BlockTrace::Phase& phase();
    BlockTrace::Warp& warp_record() { return phase().warps[scheduler_.current() / 32]; }
    void record_work();
    void record_read(const void* row, bool transposed);
    void record_exchange(const void* address, std::size_t bytes, bool write);
    std::size_t place_of(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_.get());
    }
    void end_tile(Thread& thread);
    void finish_copies(Epoch n, std::uintptr_t caller);
    [[noreturn]] void fail_on_two_waits(std::uintptr_t caller);
    std::vector<Mbarrier>::iterator mbarrier_at(const void* address);
    Mbarrier& find_mbarrier(void* address, std::uintptr_t caller);
    /// Completes the phase if nothing is missing. Bulk loads land as late as they may: when somebody waits
    /// for them, or the next phase must begin.
    void complete_if_over(Mbarrier& mbarrier, bool must, std::uintptr_t caller);
    void complete_phase(Mbarrier& mbarrier);
    void acquire(int thread, const Mbarrier& mbarrier);
    void release_barrier_if_complete();

    Scheduler scheduler_;
    Clocks clocks_;  ///< of checked blocks
    Checker checker_{clocks_, tally.bypassed_bytes};
    std::unique_ptr<std::byte, decltype(&std::free)> shared_;
    std::size_t shared_bytes_ = 0;

    const Launch* config_ = nullptr;
    void (*call_)(const void*) = nullptr;
    const void* parameters_ = nullptr;
    std::uint32_t first_serial_ = 0;  ///< of the launch's blocks
    std::vector<Thread> threads_;
    std::vector<int> all_threads_;                ///< 0, 1, ...
    std::vector<std::vector<Meeting>> meetings_;  ///< of each warp
    std::vector<Mbarrier> mbarriers_;
    int live_ = 0;
    int at_barrier_ = 0;
    bool lands_shuffled_ = false;
    /// Pairs of lines that copies since the last barrier connect, and which 16 bytes of them each has had.
    std::unordered_map<std::uintptr_t, std::uint8_t> copied_lines_;
    bool shows_comparisons_ = false;
    /// Tiles in which a thread compared for each score: the first of the threads that share it, and its
    /// number among their notes.
    std::set<std::pair<int, int>> compared_;
    std::uint64_t number_ = 0;
    Turns* turns_ = nullptr;      ///< or null
    Workers* workers_ = nullptr;  ///< of the launch
    std::vector<CountWait> count_waits_;
    BlockTrace* trace_ = nullptr;  ///< of the running block, or null
    Origins origins_;              ///< of its shared memory
    TimeModel time_;               ///< of its steps
    Counters recorded_;            ///< what the tally was when the trace took it over
};

/// The block that runs on this thread, or null between blocks and on other threads.
extern thread_local constinit Block* running_block __attribute__((tls_model("initial-exec")));

/// "mma", "__syncwarp"
const char* name(Op op);

}  // namespace simt
