#include <atomic>
#include <deque>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "simt/block.h"
#include "simt/fence.h"

namespace simt {
namespace {

constexpr std::uint64_t resident_threads = 2048, resident_blocks = 32;  // of a multiprocessor

std::mutex total_mutex;
Counters total;
std::uint32_t next_serial = 1;
std::uint32_t ended_serial = 1;  // blocks below it end before a kernel starts, whether it is early or not

/// Blocks that no launch runs, kept because stacks and shared memory are worth keeping. No destructor runs
/// when a process ends, since a child of fork() has fibers that it cannot unwind.
auto& idle_blocks = *new std::vector<std::unique_ptr<Block>>;

std::unique_ptr<Block> take_block() {
    const std::lock_guard lock(total_mutex);
    if (idle_blocks.empty()) return std::make_unique<Block>();
    std::unique_ptr<Block> block = std::move(idle_blocks.back());
    idle_blocks.pop_back();
    return block;
}

}  // namespace

Options& options() {
    static Options instance;
    return instance;
}

Counters counters() {
    const std::lock_guard lock(total_mutex);
    return total;
}

void reset_counters() {
    const std::lock_guard lock(total_mutex);
    total = {};
}

void launch(const Launch& config, void (*call)(const void* parameters), const void* parameters,
            std::size_t bytes) {
    const Options& o = options();
    if (config.shared_bytes > std::min(o.most_shared_bytes, hopper_shared_bytes)) {
        throw report(Report::Kind::unsupported,
                     "needs {} bytes of shared memory per block; this device has {}", config.shared_bytes,
                     o.most_shared_bytes);
    }
    if (config.block.count() == 0 || config.block.count() > 1024 || config.grid.count() == 0) {
        throw report(Report::Kind::unsupported, "a launch of {} blocks of {} threads", config.grid.count(),
                     config.block.count());
    }
    if (config.grid.count() > o.most_blocks) {
        throw report(Report::Kind::unsupported, "a launch of {} blocks; here are at most {}",
                     config.grid.count(), o.most_blocks);
    }
    if (config.together) {
        const std::uint64_t most =
            o.multiprocessors * std::min(resident_blocks, resident_threads / config.block.count());
        if (config.grid.count() > most) {
            throw report(Report::Kind::unsupported,
                         "a launch of {} blocks together; this device has room for {} of {} threads",
                         config.grid.count(), most, config.block.count());
        }
    }
    report_divisions();
    const DuringLaunch memory_is_accessible;
    const std::uint64_t blocks = config.grid.count();
    const std::uint32_t first_serial = next_serial;
    next_serial += static_cast<std::uint32_t>(blocks);
    if (!config.early) ended_serial = first_serial;

    const std::uint64_t launched = counters().launches;
    std::atomic<std::uint64_t> next{0};
    // Of several blocks that fail, the first in the order in which they begin, whichever thread is quicker.
    std::exception_ptr failure;
    std::uint64_t failed = blocks;
    // A shuffled order without a table: multiplication by a number that is coprime to `blocks`. Of blocks
    // that all run at once it says nothing which begins first.
    std::uint64_t stride = 1;
    if (o.order == Order::shuffled && !config.together) {
        for (stride = 1 + (o.seed * 0x9e3779b97f4a7c15u) % blocks; std::gcd(stride, blocks) != 1;) ++stride;
    }
    const bool in_turns = blocks <= static_cast<std::uint64_t>(o.blocks_in_turns);
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const unsigned wanted = in_turns ? o.blocks_in_turns : o.workers > 0 ? o.workers : cores;
    const int count = static_cast<int>(std::min<std::uint64_t>(wanted, blocks));
    std::function<void()> work;
    std::deque<std::jthread> others;
    const auto add_thread = [&] {
        try {
            others.emplace_back(work);
        } catch (const std::system_error&) {
            throw std::runtime_error("the host has no memory or threads left for " +
                                     std::to_string(std::max<std::size_t>(count, others.size() + 2)) +
                                     " blocks at once");
        }
    };
    // Of blocks that run together, those that wait need a thread each, however few cores run them.
    Workers workers(count, in_turns ? blocks : 0, [&] {
        const bool is_left = config.together && next < blocks;
        if (is_left) add_thread();
        return is_left;
    });
    const auto fail = [&](std::uint64_t i) {
        next = blocks;
        const std::lock_guard lock(total_mutex);
        if (i < failed) failure = std::current_exception(), failed = i;
    };
    work = [&] {
        std::unique_ptr<Block> block;
        std::uint64_t i = 0;
        bool has_failed = false;
        try {
            block = take_block();
            const Counters& tally = block->context.tally;
            block->begin_launch(config, call, parameters, bytes, first_serial, ended_serial);
            for (i = next++; i < blocks; i = next++) {
                const std::uint64_t number =
                    o.order == Order::reversed ? blocks - 1 - i : i * stride % blocks;
                const Counters before = tally;
                BlockTrace trace{.launch = launched, .number = number, .phases = {}, .timeline = {}};
                block->run(number, o.on_trace ? &trace : nullptr, workers);
                workers.end_block(number);
                if (o.on_block) o.on_block(number, tally - before);
                if (o.on_trace) o.on_trace(config, std::move(trace));
            }
        } catch (const Atomics::GivenUp&) {  // the block that failed says why
        } catch (...) {
            has_failed = true;
            fail(i);
        }
        workers.leave(has_failed);
        const std::lock_guard lock(total_mutex);
        if (block) total += block->context.tally;
        if (block && idle_blocks.size() < cores) idle_blocks.push_back(std::move(block));
    };
    try {
        for (int i = 1; i < count; ++i) add_thread();
        work();
    } catch (const std::runtime_error&) {  // blocks in turns would wait for those that have no thread
        for (int left = count - static_cast<int>(others.size()); left > 0; --left) workers.leave(true);
        fail(0);
    }
    workers.wait_for_all();
    others.clear();
    total.launches += 1;
    total.early_launches += config.early;
    total.cooperative_launches += config.together;
    if (failure) std::rethrow_exception(failure);
}

}  // namespace simt
