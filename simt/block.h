/// @file
/// One thread block on the CPU: fibers, their turns, barriers and the meetings of warps. Internal to simt/.
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "simt/checker.h"
#include "simt/cuda.h"

namespace simt {

/// Memory for the stacks of a block's fibers, each above a page that faults.
class Stacks {
  public:
    ~Stacks();
    void reserve(int count);
    boost::context::stack_context at(int index) const;
    bool contains(const void* address) const {
        return static_cast<std::size_t>(static_cast<const char*>(address) - base_) < bytes_;
    }

  private:
    char* base_ = nullptr;
    std::size_t bytes_ = 0;
};

/// A warp instruction that lanes execute together.
enum class Op : std::uint8_t { ldmatrix, ldmatrix_transposed, mma, shuffle, vote, sync_warp };

/// What a warp instruction does once all lanes of `mask` have brought their operands.
using MeetingBody = void (*)(void* const (&operands)[32], std::uint32_t mask);

/// Runs blocks, one at a time, on the thread that owns it.
class Block {
  public:
    Block();

    /// Prepares for the blocks of a launch.
    void begin_launch(const Launch& config, void (*call)(const void*), const void* parameters,
                      std::size_t bytes, std::uint32_t first_serial);
    /// Runs one block to its end, recording what it does if `trace` is not null. Throws the Report of
    /// whatever went wrong.
    void run(std::uint64_t number, BlockTrace* trace);

    /// Called by the running thread: waits until all lanes of `mask` are here. The last one computes `body`.
    void meet(Op op, std::uint32_t mask, void* operands, MeetingBody body, Site site);
    /// Called by the running thread: waits for every thread that has not left the kernel.
    void sync(Site site);
    /// Called by the running thread: gives up on the block. The thread never resumes.
    [[noreturn]] void fail(Report::Kind kind, const std::string& message);

    void start_copy(void* shared, const void* global, bool valid, bool evict_first, std::uintptr_t caller);
    void commit_copies();
    void wait_for_groups(int pending, std::uintptr_t caller);
    void wait_for_copies(std::uintptr_t caller);
    /// Has a lane of the running warp started copies that it has not waited for?
    bool warp_has_copies_in_flight() const;

    void init_mbarrier(void* address, int arrivals, std::uintptr_t caller);
    /// Called by the running thread: one arrival, at once or when its copies have landed.
    void arrive(void* address, bool behind_copies, std::uintptr_t caller);
    /// Called by the running thread: waits until phase `number` is complete.
    void wait_for_phase(void* address, int number, Site site, std::uintptr_t caller);
    /// What the running thread knows by mbarriers: before which moment all that a warp has done is ordered
    /// before now, and whether a phase is complete.
    std::uint32_t known_time(int warp) const { return threads_[current_].known_time[warp]; }
    bool knows_of_phase(int mbarrier, std::uint32_t phase) const {
        return threads_[current_].complete_phases[mbarrier] > phase;
    }
    int warps() const { return static_cast<int>(warps_.size()); }
    /// Called by the running thread: __threadfence.
    void fence();

    void note_tile(const Tile& tile);
    void note_row(int row, float m, float l);

    void* shared_memory() { return shared_.get(); }
    bool in_shared_memory(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared_.get()) <
               shared_bytes_;
    }
    bool on_a_stack(const void* address) const { return stacks_.contains(address); }
    /// The running thread and moment, for the race checker.
    Moment now() const;
    Checker* checker() { return config_->checked ? &checker_ : nullptr; }

    Counters tally;

  private:
    struct Copy {
        void* shared;
        const void* global;  ///< null for zeros
        bool landed = false;
        int mbarrier = -1;        ///< whose phase takes note of it, if one does
        std::uint32_t phase = 0;  ///< that phase
    };
    struct Thread {
        boost::context::fiber fiber;      ///< the thread, while it waits
        boost::context::fiber scheduler;  ///< who runs it, while it runs
        dim3 index;
        const char* waits_for = nullptr;  ///< null: ready, or finished
        Site waits_at{};
        bool finished = false;
        std::uint16_t fences = 0;                    ///< passed
        std::size_t phase = 0;                       ///< of the trace
        bool has_tile = false;                       ///< noted in this phase
        std::vector<Copy> copies;                    ///< started and not waited for, oldest first
        std::vector<std::size_t> groups;             ///< how many of them had been started at each commit
        std::vector<std::uint32_t> known_time;       ///< of each warp
        std::vector<std::uint32_t> complete_phases;  ///< of each mbarrier
    };
    struct Mbarrier {
        const void* address;
        int arrivals;             ///< that a phase takes
        int missing;              ///< of them, in the present phase
        std::uint32_t phase = 0;  ///< the present one
        /// Of each warp: before which moment all that it has done is ordered before an arrival, at all so
        /// far and at those of complete phases.
        std::vector<std::uint32_t> arrived_time, released_time;
        std::vector<std::uint32_t> arrived_phases,
            released_phases;       ///< of each mbarrier, known in the same way
        std::vector<int> waiting;  ///< threads
    };
    struct Meeting {
        std::uint32_t mask = 0;
        std::uint32_t arrived = 0;
        Op op{};
        Site site{};
        void* operands[32];
    };
    struct Warp {
        std::uint32_t ready = 0;  ///< a bit per turn, not per lane
        std::uint32_t syncs = 0;  ///< __syncwarp since the last barrier
        std::vector<Meeting> meetings;
    };

    void begin(std::uint64_t number, dim3 index);
    BlockTrace::Phase& phase();
    void record_work();
    void finish_copies(std::size_t count, std::uintptr_t caller);
    [[noreturn]] void fail_on_two_waits(std::uintptr_t caller);
    void land(Copy& copy, std::uintptr_t caller);
    std::vector<Mbarrier>::iterator mbarrier_at(const void* address);
    int find_mbarrier(void* address, std::uintptr_t caller);
    static void write(const Copy& copy);
    void complete_phase(int index);
    void acquire(Thread& thread, int index);
    void share_knowledge(std::uint32_t mask);
    void resume(int id);
    boost::context::fiber start(int id);
    void wait(const char* what, Site site);
    void make_ready(int warp, std::uint32_t lanes);
    void release_barrier_if_complete();
    int next_turn();
    std::string describe_waiting() const;

    Stacks stacks_;
    std::unique_ptr<std::byte, decltype(&std::free)> shared_;
    std::size_t shared_bytes_ = 0;
    Checker checker_;

    const Launch* config_ = nullptr;
    void (*call_)(const void*) = nullptr;
    const void* parameters_ = nullptr;
    std::uint32_t first_serial_ = 0;  ///< of the launch's blocks
    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    std::vector<Mbarrier> mbarriers_;
    std::array<std::uint8_t, 32> lane_of_turn_{};
    std::array<std::uint8_t, 32> turn_of_lane_{};
    std::minstd_rand random_;
    int current_ = 0;  ///< the running thread
    int current_warp_ = 0;
    int live_ = 0;
    int at_barrier_ = 0;
    std::uint32_t barriers_ = 0;  ///< passed by this block
    std::uint32_t serial_ = 0;    ///< of the block, unique in the process
    /// Pairs of lines that copies since the last barrier connect, and which 16 bytes of them each has had.
    std::unordered_map<std::uintptr_t, std::uint8_t> copied_lines_;
    std::exception_ptr failure_;
    BlockTrace* trace_ = nullptr;  ///< of the running block, or null
    Counters recorded_;            ///< what the tally was when the trace took it over
};

/// The block that runs on this thread, or null between blocks and on other threads.
extern thread_local constinit Block* running_block;

/// "mma", "__syncwarp"
const char* name(Op op);

/// "kernel.cu:12"
std::string to_string(Site site);

}  // namespace simt
