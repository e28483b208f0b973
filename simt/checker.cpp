#include "simt/checker.h"

#include <fmt/core.h>

#include <algorithm>

#include "simt/cuda.h"

namespace simt {
namespace {

/// Global memory, by address. Changes only between launches, so launches read it without a lock.
std::vector<std::unique_ptr<Shadow>> allocations;

/// The first that begins after this address.
auto first_after(const std::byte* address) {
    return std::ranges::upper_bound(allocations, address, {}, [](const auto& a) { return a->begin; });
}

std::string describe(const Shadow& shadow, const std::byte* address) {
    return fmt::format("{} (byte {})", shadow.name, shadow.place_of(address));
}

/// From now on each part of the line has a history of its own.
void split(Shadow::Line& line) {
    constexpr std::size_t parts = Shadow::line / Shadow::unit;
    if (!line.parts) line.parts = std::make_unique<Shadow::Cell[]>(parts);
    for (std::size_t i = 0; i < parts; ++i) line.parts[i] = line.whole;
    line.split = true;
}

}  // namespace

void register_allocation(void* data, std::size_t bytes, const char* name, bool writable) {
    allocations.insert(first_after(static_cast<std::byte*>(data)),
                       std::make_unique<Shadow>(data, bytes, name, writable, true));
}

void forget_allocation(void* data) {
    std::erase_if(allocations, [data](const auto& shadow) { return shadow->begin == data; });
}

Place place_in_global_memory(const void* address) {
    for (const auto& shadow : allocations) {
        if (shadow->contains(address)) return {shadow->name, shadow->place_of(address)};
    }
    return {};
}

void Checker::begin_launch(const void* parameters, std::size_t parameter_bytes, std::size_t shared_bytes) {
    parameters_ = {static_cast<const std::byte*>(parameters), parameter_bytes};
    constants_ = {};
    last_found_ = nullptr;
    static_shared_.clear();  // of libraries that may be gone
    dynamic_shared_.bytes = shared_bytes;
}

std::unique_lock<std::mutex> Checker::access(int thread, const Moment& at, const void* address,
                                             std::size_t bytes, bool write, Via via, Caller caller) {
    const auto* first = static_cast<const std::byte*>(address);
    Shadow* shadow = find(first, bytes);
    if (shadow == nullptr) {
        if (is_private(first, bytes, write)) return {};
        const char* where = segment_of(first).contains(first, bytes)
                                ? "of a variable of the host, which no GPU has"
                                : "outside shared memory and every allocation";
        throw report(Report::Kind::out_of_bounds, "{} of {} bytes {}, at {}", write ? "write" : "read", bytes,
                     where, caller);
    }
    if (via == Via::plain) bypassed_bytes_ += bytes;
    if (!shadow->writable) {
        if (!write) return {};
        throw report(Report::Kind::read_only, "write to {}, which is an input, at {}", shadow->name, caller);
    }
    const bool orders = via == Via::atomic || via == Via::release || via == Via::acquire;
    const bool is_atomic = orders || via == Via::addition;
    if (is_atomic && !shadow->global) {
        throw report(Report::Kind::unsupported, "atomic on {} at {}: only global memory has them here",
                     shadow->name, caller);
    }
    const std::uint64_t atomic_bit = orders || (via == Via::addition && !options().additions_in_order);
    const std::uint64_t packed = caller.address << 16 | atomic_bit << 15 | (at.agent & 0x7fff);
    const Attempt now{{at.block, at.epoch, packed}, thread, write, via};

    std::unique_lock lock(shadow->mutex, std::defer_lock);
    if (shadow->global) lock.lock();
    if (orders) atomic(*shadow, shadow->place_of(first), thread, via);
    check(*shadow, first, bytes, now);
    return lock;
}

Shadow* Checker::find(const std::byte* first, std::size_t bytes) {
    if (dynamic_shared_.contains(first, bytes)) return &dynamic_shared_;
    if (last_found_ != nullptr && last_found_->contains(first, bytes)) return last_found_;
    if (is_builtin(first, bytes) || constants_.contains(first, bytes)) return nullptr;
    for (auto at = first_after(first); at != allocations.begin();) {  // tensors may lie in one another
        if ((*--at)->contains(first, bytes)) return last_found_ = at->get();
    }
    for (const auto& shadow : static_shared_) {
        if (shadow->contains(first, bytes)) return shadow.get();
    }
    // A library's come into being when the thread first uses one.
    for (const Range& memory : thread_local_memory()) {
        if (!memory.contains(first, bytes)) continue;
        static_shared_.push_back(
            std::make_unique<Shadow>(memory.begin, memory.bytes, "static shared memory", true, false));
        return static_shared_.back().get();
    }
    return nullptr;
}

/// The kernel's parameters, and CUDA's built-in variables.
bool Checker::is_builtin(const std::byte* address, std::size_t bytes) const {
    const Range variables{reinterpret_cast<const std::byte*>(&builtins), sizeof builtins};
    return variables.contains(address, bytes) || parameters_.contains(address, bytes);
}

/// Memory on which no race exists: these, and constants.
bool Checker::is_private(const std::byte* address, std::size_t bytes, bool write) {
    if (is_builtin(address, bytes)) return true;
    if (write) return false;
    if (!constants_.contains(address, bytes)) constants_ = constants_at(address);
    return constants_.contains(address, bytes);
}

/// An atomic learns from those on the same address before it, and tells those after it.
void Checker::atomic(Shadow& shadow, std::size_t place, int thread, Via via) {
    const Shadow::Line& line = shadow.line_at(place);
    const Access& last =
        line.split ? line.parts[place % Shadow::line / Shadow::unit].write : line.whole.write;
    KnownBlocks& told = shadow.told[place];
    if (!last.is_atomic() || !clocks_.of_this_launch(last.at())) told.clear();
    if (via != Via::release) clocks_.be_told(thread, told);
    if (via != Via::acquire) clocks_.tell(thread, told);
}

void Checker::check(Shadow& shadow, const std::byte* address, std::size_t bytes, const Attempt& now) {
    const std::size_t begin = shadow.place_of(address), end = begin + bytes;
    for (std::size_t base = begin / Shadow::line * Shadow::line; base < end; base += Shadow::line) {
        Shadow::Line& line = shadow.line_at(base);
        const std::size_t first = std::max(begin, base), last = std::min(end, base + Shadow::line);
        const bool whole = last - first == Shadow::line;
        if (whole && !line.split) {
            check(shadow, line.whole, shadow.begin + first, now);
            continue;
        }
        if (!line.split) split(line);
        for (std::size_t i = first / Shadow::unit * Shadow::unit; i < last; i += Shadow::unit)
            check(shadow, line.parts[(i - base) / Shadow::unit], shadow.begin + std::max(i, first), now);
        if (!whole || !now.write) continue;
        line.whole = {now.access, {}};  // which comes after all that its parts remember
        line.split = false;
    }
}

void Checker::check(const Shadow& shadow, Shadow::Cell& cell, const std::byte* address, const Attempt& now) {
    auto& [last_write, reads] = cell;
    if (!now.write && !shadow.global && !clocks_.of_this_block(last_write.at())) {
        throw report(Report::Kind::uninitialized, "read of {} at {} by thread {} before anything wrote it",
                     describe(shadow, address), now.access.caller(), now.thread);
    }
    const auto unknown = [&](const Access& before) {
        return (!before.is_atomic() || !now.access.is_atomic()) && !knows(shadow, now, before);
    };
    if (unknown(last_write)) conflict(shadow, last_write, "write", "", address, now);
    check_proxy(shadow, last_write, address, now);
    if (now.write) {
        const auto found = std::find_if(reads.begin(), reads.end(), unknown);
        if (found != reads.end()) {
            const bool more = std::any_of(found + 1, reads.end(), unknown);
            conflict(shadow, *found, "read", more ? " and others" : "", address, now);
        }
        last_write = now.access;
        reads.clear();
        return;
    }
    for (Access& before : reads) {
        if (before.agent() != now.access.agent() || before.block != now.access.block) continue;
        before = now.access;
        return;
    }
    // Reads that come before this one need not be remembered: what comes after this one comes after them.
    if (!reads.empty() && knows(shadow, now, reads.front()))
        std::erase_if(reads, [&](const Access& before) { return knows(shadow, now, before); });
    reads.push_back(now.access);
}

void Checker::check_proxy(const Shadow& shadow, const Access& before, const std::byte* address,
                          const Attempt& now) const {
    if ((now.via != Via::bulk && now.via != Via::product) || shadow.global) return;
    const Moment at = before.at();
    if (!clocks_.of_this_block(at) || (!clocks_.is_thread(at) && !clocks_.is_copy(at))) return;
    if (clocks_.is_fenced(now.thread, at)) return;
    throw report(
        Report::Kind::missing_fence,
        "{} of {} at {} by thread {} after the write at {} by thread {}, with no fence_proxy_async by "
        "either between them",
        now.via == Via::product ? "wgmma" : "bulk copy", describe(shadow, address), now.access.caller(),
        now.thread, before.caller(), clocks_.thread_of(at));
}

void Checker::conflict(const Shadow& shadow, const Access& before, const char* before_kind,
                       const char* others, const std::byte* address, const Attempt& now) const {
    const Moment at = before.at();
    if (!clocks_.of_this_launch(at)) {
        throw report(
            Report::Kind::race,
            "race on {}: {} at {} by the kernel before, and access at {} by thread {}, which has not "
            "called wait_for_previous_kernel in a kernel that is launched early",
            describe(shadow, address), before_kind, before.caller(), now.access.caller(), now.thread);
    }
    const bool same_block = clocks_.of_this_block(at), by_copy = same_block && clocks_.is_copy(at);
    const char* kind = now.via == Via::product ? "wgmma"
                       : now.via == Via::bulk  ? "bulk copy"
                       : now.write             ? "write"
                                               : "read";
    const auto agent = std::ranges::find(named_agents_, at.agent, &NamedAgent::agent);
    if (same_block && agent != named_agents_.end()) {
        throw report(Report::Kind::copy_in_flight,
                     "{} of {} at {} by thread {} before the {} at {} by thread {} was waited for", kind,
                     describe(shadow, address), now.access.caller(), now.thread, agent->what, before.caller(),
                     agent->thread);
    }
    const int thread = clocks_.thread_of(at);
    const Copies& copies = copies_[thread];
    if (by_copy && copies.over < at.epoch) {
        const char* what = now.via != Via::copy ? (now.write ? "write of" : "read of")
                                                : (now.write ? "copy to" : "copy from");
        throw report(Report::Kind::copy_in_flight,
                     "{} {} at {} by thread {} before the asynchronous copy at {} was waited for", what,
                     describe(shadow, address), now.access.caller(), now.thread, before.caller());
    }
    const char* missing = !same_block ? "blocks of one launch have no order without fences around an atomic"
                          : by_copy && copies.by_mbarrier  ? "the mbarrier of that copy was not waited for"
                          : thread / 32 == now.thread / 32 ? "no __syncwarp or barrier between them"
                                                           : "no barrier between them";
    throw report(Report::Kind::race, "race on {}: {} at {} by thread {}{}{}, {} at {} by thread {}, and {}",
                 describe(shadow, address), before_kind, before.caller(), thread, others,
                 same_block ? "" : " of another block", kind, now.access.caller(), now.thread, missing);
}

}  // namespace simt
