/// @file
/// The ranks of a run as threads of this process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "harness/device/device.h"
#include "stages/ring.h"

namespace ladder {

/// Ranks that take turns: each is a thread, and one of them runs at a time. Who goes on when one waits is
/// drawn, so that ranks run skewed.
class Turns {
  public:
    Turns(int ranks, std::uint64_t seed) : seats_(ranks), random_(seed) {}

    /// Runs f(rank) for every rank, and waits for all. Once one has failed the others end at their next
    /// wait_until(). Throws what the first that failed threw, naming its rank.
    void run(const std::function<void(int rank)>& f);
    /// Called by the rank whose turn it is: lets others run until `met`. Throws CheckFailed if it never will
    /// be.
    void wait_until(int rank, const std::function<bool()>& met);

    int ranks() const { return static_cast<int>(seats_.size()); }

  private:
    struct Seat {
        std::function<bool()> ready = nullptr;  ///< what it waits for
        bool has_ended = false;
    };
    void next_turn();
    [[noreturn]] void rethrow() const;

    std::vector<Seat> seats_;
    std::mt19937_64 random_;
    std::mutex mutex_;  ///< held by the thread whose turn it is
    std::condition_variable turn_changed_;
    int turn_ = -1;
    std::exception_ptr failure_;
    int failed_rank_ = -1;
};

/// The ring that a stage sees until the end of this scope, while it is asked for its workspace: it has ranks,
/// but sends nothing. None for a single rank.
class RingToCome final : public Ring {
  public:
    explicit RingToCome(int ranks) : ranks_(ranks) {
        if (ranks > 1) ring() = this;
    }
    ~RingToCome() override { ring() = nullptr; }
    RingToCome(const RingToCome&) = delete;

    int rank() const override { return 0; }
    int ranks() const override { return ranks_; }
    int Nq() const override { return 0; }
    int Nk() const override { return 0; }
    void start(std::initializer_list<Message>) override { wait(); }
    void wait() override { throw CheckFailed("it sends a message before it runs"); }
    void all_gather(void*, std::size_t) override { wait(); }

  private:
    const int ranks_;
};

/// A ring of ranks that share this process's memory. A message lands as late as it may: when it is waited
/// for, and what is received is NaN until then. Throws as Turns::run().
std::vector<Traffic> run_in_memory(const std::function<void(const Problem&)>& run_stage,
                                   const std::vector<Problem>& problems, const Shape& whole,
                                   std::uint64_t seed);

/// Throws CheckFailed unless each rank gives as many bytes as rank 0.
void require_same_parts(const std::vector<std::size_t>& bytes);

/// Throws CheckFailed unless rank - 1 sends as many messages as this rank expects of it, each as long.
void require_same_sizes(const std::vector<Message>& sent, const std::vector<Message>& expected, int rank,
                        int ranks);

}  // namespace ladder
