#include "harness/device/ranks.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#ifdef LADDER_HAS_CPU
#    include "simt/fence.h"
#    include "simt/simt.h"
#endif

namespace ladder {
#ifdef LADDER_HAS_CPU
namespace {

/// Ends a rank because another one failed.
struct Abandoned {};

/// The ranks' meeting place. The thread whose turn it is holds `mutex`.
class Meeting {
  public:
    Meeting(const Shape& whole, int ranks, std::uint64_t seed)
        : whole_(whole), seats_(ranks), random_(seed) {}

    /// Waits for the first turn.
    void enter(int rank) {
        std::unique_lock lock(mutex_);
        turn_changed_.wait(lock, [&] { return turn_ == rank; });
        seats_[rank].launches_before = simt::counters().launches;
        lock.release();
    }
    /// With no further turn. The first failure is kept.
    void leave(int rank, std::exception_ptr failure) {
        std::unique_lock lock(mutex_, std::adopt_lock);
        seats_[rank].gone = true;
        if (failure && !failure_) failure_ = failure, failed_rank_ = rank;
        next_turn();
    }
    /// Draws who begins, once all threads exist.
    void begin() {
        const std::lock_guard lock(mutex_);
        next_turn();
    }
    /// Lets others run until `met` holds, which may depend on their seats.
    template <class Condition>
    void wait_until(int rank, const Condition& met) {
        std::unique_lock lock(mutex_, std::adopt_lock);
        Seat& seat = seats_[rank];
        seat.launches += simt::counters().launches - seat.launches_before;
        seat.ready = met;
        next_turn();
        turn_changed_.wait(lock, [&] { return turn_ == rank; });
        seat.ready = nullptr;
        seat.launches_before = simt::counters().launches;
        lock.release();
        if (failure_) throw Abandoned();
        if (!met()) throw CheckFailed("it waits for a message that no rank sends or takes");
    }

    struct Seat {
        std::function<bool()> ready = nullptr;  ///< what it waits for
        bool gone = false;
        std::optional<std::array<Message, 2>> sent = {};  ///< since start(), until the next rank took it
        int received = 0, started = 0;
        std::uint64_t launches = 0, launches_before = 0, launches_at_start = 0;
        Traffic traffic = {};
    };
    Seat& seat(int rank) { return seats_[(rank + ranks()) % ranks()]; }
    std::uint64_t launches(int rank) const {
        return seats_[rank].launches + simt::counters().launches - seats_[rank].launches_before;
    }
    int ranks() const { return static_cast<int>(seats_.size()); }
    const Shape& whole() const { return whole_; }
    const std::exception_ptr& failure() const { return failure_; }
    int failed_rank() const { return failed_rank_; }

  private:
    /// Of the ranks that can go on, a drawn one; if none can, or one failed, one that is still there, to end.
    void next_turn() {
        std::vector<int> able, present;
        for (int r = 0; r < ranks(); ++r) {
            if (seats_[r].gone) continue;
            present.push_back(r);
            if (!seats_[r].ready || seats_[r].ready()) able.push_back(r);
        }
        const std::vector<int>& from = able.empty() || failure_ ? present : able;
        turn_ = from.empty() ? -1 : from[random_() % from.size()];
        turn_changed_.notify_all();
    }

    const Shape whole_;
    std::vector<Seat> seats_;
    std::mt19937_64 random_;
    std::mutex mutex_;
    std::condition_variable turn_changed_;
    int turn_ = -1;
    std::exception_ptr failure_;
    int failed_rank_ = -1;
};

class MemoryRing final : public Ring {
  public:
    MemoryRing(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
    int rank() const override { return rank_; }
    int ranks() const override { return meeting_.ranks(); }
    int Nq() const override { return meeting_.whole().Nq; }
    int Nk() const override { return meeting_.whole().Nk; }

    void start(const std::array<Message, 2>& K_V) override {
        Meeting::Seat& own = meeting_.seat(rank_);
        if (pending_) throw CheckFailed("it starts a message before it has waited for the last one");
        pending_ = K_V;
        const simt::DuringLaunch memory_is_accessible;
        for (const Message& m : K_V) {
            std::memset(m.receive, 0xff, m.receive_bytes);
            own.traffic.bytes += m.send_bytes;
        }
        own.sent = K_V;
        own.traffic.messages += 1;
        own.launches_at_start = meeting_.launches(rank_);
    }

    void wait() override {
        if (!pending_) throw CheckFailed("it waits for a message that it has not started");
        Meeting::Seat &own = meeting_.seat(rank_), &previous = meeting_.seat(rank_ - 1);
        if (meeting_.launches(rank_) == own.launches_at_start) {
            for (const Message& m : *pending_) own.traffic.exposed_bytes += m.send_bytes;
        }
        meeting_.wait_until(rank_, [&previous] { return previous.sent.has_value(); });
        {
            const simt::DuringLaunch memory_is_accessible;
            for (std::size_t k = 0; k < pending_->size(); ++k) {
                const Message &to = (*pending_)[k], &from = (*previous.sent)[k];
                if (from.send_bytes != to.receive_bytes) {
                    throw CheckFailed(fmt::format("it expects {} bytes of rank {}, which sends {}",
                                                  to.receive_bytes, (rank_ + ranks() - 1) % ranks(),
                                                  from.send_bytes));
                }
                std::memcpy(to.receive, from.send, from.send_bytes);
            }
        }
        previous.sent.reset();
        meeting_.wait_until(rank_, [&own] { return !own.sent.has_value(); });
        pending_.reset();
    }

  private:
    Meeting& meeting_;
    const int rank_;
    std::optional<std::array<Message, 2>> pending_;
};

}  // namespace

std::vector<Traffic> run_ranks(Device& device, const Stage& stage, const std::vector<Problem>& problems,
                               const Shape& whole, std::uint64_t seed) {
    if (device.backend() == Backend::gpu) throw CannotRun("several ranks run on the CPU back-ends alone");
    const RunStage run_stage = device.ready(stage).run;
    simt::reset_counters();
    Meeting meeting(whole, static_cast<int>(problems.size()), seed);
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < meeting.ranks(); ++rank) {
            threads.emplace_back([&, rank] {
                MemoryRing own(meeting, rank);
                ring() = &own;
                meeting.enter(rank);
                std::exception_ptr failure;
                try {
                    run_stage(problems[rank]);
                } catch (const Abandoned&) {
                } catch (...) {
                    failure = std::current_exception();
                }
                meeting.leave(rank, failure);
            });
        }
        meeting.begin();
    }
    if (meeting.failure()) {
        const std::string who = fmt::format("rank {} of {}: ", meeting.failed_rank(), meeting.ranks());
        try {
            std::rethrow_exception(meeting.failure());
        } catch (const BadUsage& error) {
            throw BadUsage(who + error.what());
        } catch (const CannotRun& error) {
            throw CannotRun(who + error.what());
        } catch (const std::exception& error) {
            throw CheckFailed(who + error.what());
        }
    }
    std::vector<Traffic> traffic;
    for (int rank = 0; rank < meeting.ranks(); ++rank) traffic.push_back(meeting.seat(rank).traffic);
    return traffic;
}
#else
std::vector<Traffic> run_ranks(Device&, const Stage&, const std::vector<Problem>&, const Shape&,
                               std::uint64_t) {
    throw CannotRun("several ranks need the CPU back-end, which this build has not");
}
#endif

}  // namespace ladder
