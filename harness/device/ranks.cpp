#include "harness/device/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#ifdef LADDER_HAS_CPU
#    include "simt/fence.h"
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

/// Ends a rank because another one failed.
struct Abandoned {};

}  // namespace

void Turns::run(const std::function<void(int rank)>& f) {
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < ranks(); ++rank) {
            threads.emplace_back([&, rank] {
                std::unique_lock lock(mutex_);
                turn_changed_.wait(lock, [&] { return turn_ == rank; });
                try {
                    if (!failure_) f(rank);
                } catch (const Abandoned&) {
                } catch (...) {
                    if (!failure_) failure_ = std::current_exception(), failed_rank_ = rank;
                }
                seats_[rank].has_ended = true;
                next_turn();
            });
        }
        const std::lock_guard lock(mutex_);
        next_turn();
    }
    if (failure_) rethrow();
}

void Turns::wait_until(int rank, const std::function<bool()>& met) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    seats_[rank].ready = met;
    next_turn();
    turn_changed_.wait(lock, [&] { return turn_ == rank; });
    seats_[rank].ready = nullptr;
    lock.release();  // the turn goes on
    if (failure_) throw Abandoned();
    if (!met()) throw CheckFailed("it waits for a message that no rank sends or takes");
}

/// Of the ranks that can go on, a drawn one; if none can, or one failed, one that has not ended, so that it
/// does.
void Turns::next_turn() {
    std::vector<int> able, left;
    for (int r = 0; r < ranks(); ++r) {
        if (seats_[r].has_ended) continue;
        left.push_back(r);
        if (!seats_[r].ready || seats_[r].ready()) able.push_back(r);
    }
    const std::vector<int>& from = able.empty() || failure_ ? left : able;
    turn_ = from.empty() ? -1 : from[random_() % from.size()];
    turn_changed_.notify_all();
}

void Turns::rethrow() const {
    const std::string rank = fmt::format("rank {} of {}: ", failed_rank_, ranks());
    try {
        std::rethrow_exception(failure_);
    } catch (const BadUsage& error) {
        throw BadUsage(rank + error.what());
    } catch (const CannotRun& error) {
        throw CannotRun(rank + error.what());
    } catch (const std::exception& error) {
        throw CheckFailed(rank + error.what());
    }
}

void require_same_parts(const std::vector<std::size_t>& bytes) {
    for (std::size_t rank = 1; rank < bytes.size(); ++rank) {
        if (bytes[rank] == bytes[0]) continue;
        throw CheckFailed(
            fmt::format("rank {} gives {} bytes to all, and rank 0 gives {}", rank, bytes[rank], bytes[0]));
    }
}

void require_same_sizes(const std::vector<Message>& sent, const std::vector<Message>& expected, int rank,
                        int ranks) {
    const auto require = [&](std::size_t sends, std::size_t expects, const char* what) {
        if (sends == expects) return;
        throw CheckFailed(fmt::format("rank {} sends {} {}, and rank {} expects {}",
                                      (rank + ranks - 1) % ranks, sends, what, rank, expects));
    };
    require(sent.size(), expected.size(), "messages");
    for (std::size_t k = 0; k < sent.size(); ++k)
        require(sent[k].send_bytes, expected[k].receive_bytes, "bytes");
}

#ifdef LADDER_HAS_CPU
namespace {

/// A rank, as its neighbours see it
struct Seat {
    std::optional<std::vector<Message>> sent = {};  ///< since start(), until the next rank took it
    const std::byte* part = nullptr;                ///< what it gives to all others, of so many bytes
    std::size_t part_bytes = 0;
    int given = 0, gathered = 0;  ///< all_gather() calls that it has started, and that have all parts
    Traffic traffic = {};
};

class MemoryRing final : public Ring {
  public:
    MemoryRing(Turns& turns, std::vector<Seat>& seats, const Shape& whole, int rank)
        : turns_(turns),
          whole_(whole),
          rank_(rank),
          seats_(seats),
          own_(seats[rank]),
          previous_(seats[(rank + turns.ranks() - 1) % turns.ranks()]) {}

    int rank() const override { return rank_; }
    int ranks() const override { return turns_.ranks(); }
    int Nq() const override { return whole_.Nq; }
    int Nk() const override { return whole_.Nk; }

    void start(std::initializer_list<Message> messages) override {
        if (pending_) throw CheckFailed("it starts a message before it has waited for the last one");
        pending_ = own_.sent = messages;
        const simt::DuringLaunch memory_is_accessible;
        for (const Message& m : messages) {
            if (m.receive_bytes > 0) std::memset(m.receive, 0xff, m.receive_bytes);
            own_.traffic.bytes += m.send_bytes;
        }
        own_.traffic.messages += 1;
        launches_at_start_ = work().launches;
    }

    void wait() override {
        if (!pending_) throw CheckFailed("it waits for a message that it has not started");
        if (work().launches == launches_at_start_) {
            for (const Message& m : *pending_) own_.traffic.exposed_bytes += m.send_bytes;
        }
        end_step();
        wait_until([this] { return previous_.sent.has_value(); });
        {
            const simt::DuringLaunch memory_is_accessible;
            require_same_sizes(*previous_.sent, *pending_, rank_, ranks());
            for (std::size_t k = 0; k < pending_->size(); ++k) {
                const Message &to = (*pending_)[k], &from = (*previous_.sent)[k];
                if (from.send_bytes > 0) std::memcpy(to.receive, from.send, from.send_bytes);
            }
        }
        previous_.sent.reset();
        wait_until([this] { return !own_.sent.has_value(); });
        pending_.reset();
    }

    void all_gather(void* parts, std::size_t bytes) override {
        if (pending_) throw CheckFailed("it gathers parts before it has waited for its last message");
        const std::uint64_t sent = bytes * (seats_.size() - 1);
        own_.traffic.messages += 1, own_.traffic.bytes += sent, own_.traffic.exposed_bytes += sent;
        own_.part = static_cast<std::byte*>(parts) + rank_ * bytes, own_.part_bytes = bytes;
        own_.given += 1;
        end_step();
        const auto all = [this](int Seat::*calls) {
            return std::all_of(seats_.begin(), seats_.end(),
                               [&](const Seat& seat) { return seat.*calls >= own_.given; });
        };
        wait_until([&] { return all(&Seat::given); });
        {
            const simt::DuringLaunch memory_is_accessible;
            std::vector<std::size_t> of_ranks;
            for (const Seat& seat : seats_) of_ranks.push_back(seat.part_bytes);
            require_same_parts(of_ranks);
            for (std::size_t r = 0; r < seats_.size(); ++r)
                if (&seats_[r] != &own_)
                    std::memcpy(static_cast<std::byte*>(parts) + r * bytes, seats_[r].part, bytes);
        }
        own_.gathered += 1;
        wait_until([&] { return all(&Seat::gathered); });  // until then the others read this rank's part
    }

    void end() {
        end_step();
        if (pending_) throw CheckFailed("it ends before it has waited for its last message");
    }

  private:
    void end_step() {
        own_.traffic.products.push_back(work().wgmma_columns - products_before_);
        products_before_ = work().wgmma_columns;
    }
    /// That of this rank: while others have their turns, the counters are theirs.
    simt::Counters work() const { return simt::counters() - of_others_; }
    void wait_until(const std::function<bool()>& met) {
        const simt::Counters own = work();
        turns_.wait_until(rank_, met);
        of_others_ = simt::counters() - own;
    }

    Turns& turns_;
    const Shape& whole_;
    const int rank_;
    const std::vector<Seat>& seats_;
    Seat &own_, &previous_;
    std::optional<std::vector<Message>> pending_;
    simt::Counters of_others_ = simt::counters();
    std::uint64_t launches_at_start_ = 0, products_before_ = 0;
};

}  // namespace

std::vector<Traffic> run_in_memory(const std::function<void(const Problem&)>& run_stage,
                                   const std::vector<Problem>& problems, const Shape& whole,
                                   std::uint64_t seed) {
    Turns turns(static_cast<int>(problems.size()), seed);
    std::vector<Seat> seats(problems.size());
    turns.run([&](int rank) {
        MemoryRing own(turns, seats, whole, rank);
        ring() = &own;
        run_stage(problems[rank]);
        own.end();
    });
    std::vector<Traffic> traffic;
    for (const Seat& seat : seats) traffic.push_back(seat.traffic);
    return traffic;
}
#endif

}  // namespace ladder
