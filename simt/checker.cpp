#include "simt/checker.h"

#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <list>
#include <string_view>

#include "simt/block.h"

namespace simt {
namespace {

/// Where the executable and this thread's share of its thread_local variables (static __shared__ among them)
/// lie.
struct Image {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    const std::byte* tls = nullptr;
    std::size_t tls_bytes = 0;
};

Image find_image() {
    Image image;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            auto& found = *static_cast<Image*>(result);
            found.begin = info->dlpi_addr;
            found.tls = static_cast<const std::byte*>(info->dlpi_tls_data);
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& segment = info->dlpi_phdr[i];
                if (segment.p_type == PT_LOAD)
                    found.bytes = std::max<std::size_t>(found.bytes, segment.p_vaddr + segment.p_memsz);
                if (segment.p_type == PT_TLS) found.tls_bytes = segment.p_memsz;
            }
            return 1;  // the first object is the executable
        },
        &image);
    return image;
}

const Image& image() {
    static const Image executable = find_image();
    return executable;
}

bool within(const std::byte* p, const void* begin, std::size_t bytes) {
    return static_cast<std::size_t>(p - static_cast<const std::byte*>(begin)) < bytes;
}

/// Global memory. Changes only between launches, so launches read it without a lock.
std::list<Shadow>& allocations() {
    static std::list<Shadow> list;
    return list;
}

int warp(const Moment& m) {
    return m.thread / 32;
}
std::uint32_t interval(const Moment& m) {
    return m.time >> 16;
}

std::string describe(const Shadow& shadow, const std::byte* address) {
    return fmt::format("{} (byte {})", shadow.name, address - shadow.data);
}

}  // namespace

void register_allocation(void* data, std::size_t bytes, const char* name, bool writable) {
    allocations().emplace_back(data, bytes, name, writable, true);
}

void forget_allocation(void* data) {
    allocations().remove_if([data](const Shadow& shadow) { return shadow.data == data; });
}

Shadow::Shadow(const void* memory, std::size_t size, const char* label, bool can_write, bool is_global)
    : data(static_cast<const std::byte*>(memory)),
      bytes(size),
      name(label),
      writable(can_write),
      global(is_global) {}

void Checker::begin_launch(std::uint32_t first_block, const void* parameters, std::size_t parameter_bytes,
                           const void* shared, std::size_t shared_bytes) {
    first_block_ = first_block;
    parameters_ = static_cast<const std::byte*>(parameters);
    parameter_bytes_ = parameter_bytes;
    if (!dynamic_shared_) {
        dynamic_shared_ = std::make_unique<Shadow>(shared, shared_bytes, "shared memory", true, false);
    }
    if (dynamic_shared_->bytes < shared_bytes) dynamic_shared_->cells.reset();
    dynamic_shared_->bytes = shared_bytes;
    dynamic_shared_->readers.clear();
}

void Checker::remember_readers() {
    const std::size_t cells = dynamic_shared_->bytes / Shadow::unit + 1;
    dynamic_shared_->readers.assign(cells * block_.warps(), 0);
}

void Checker::land_with_phase(const void* shared, std::size_t bytes, int mbarrier, std::uint32_t phase) {
    const std::size_t first = static_cast<const std::byte*>(shared) - dynamic_shared_->data;
    for (std::size_t i = first / Shadow::unit; i < (first + bytes) / Shadow::unit; ++i) {
        Access& copy = dynamic_shared_->cells[i].write;
        copy.in_flight = false;
        copy.mbarrier = mbarrier;
        copy.phase = phase;
    }
}

void Checker::begin_block() {
    handovers_.clear();
    last_fence_.clear();
}

std::unique_lock<std::mutex> Checker::access(const void* address, std::size_t bytes, bool write, Via via,
                                             std::uintptr_t caller) {
    const auto* first = static_cast<const std::byte*>(address);
    if (bytes == 0 || block_.on_a_stack(first)) return {};
    const auto relative = relative_address(caller);
    Shadow* shadow = find(first, bytes);
    if (shadow == nullptr) {
        if (is_private(first, write)) return {};
        block_.fail(Report::Kind::out_of_bounds,
                    fmt::format("{} of {} bytes outside shared memory and every allocation, at {}",
                                write ? "write" : "read", bytes, source_of(relative)));
    }
    if (via == Via::plain) block_.tally.bypassed_bytes += bytes;
    if (!shadow->writable) {
        if (!write) return {};
        block_.fail(Report::Kind::read_only,
                    fmt::format("write to {}, which is an input, at {}", shadow->name, source_of(relative)));
    }
    if (via == Via::atomic && !shadow->global) {
        block_.fail(Report::Kind::unsupported,
                    fmt::format("atomic on {} at {}: only global memory has them here", shadow->name,
                                source_of(relative)));
    }
    std::unique_lock lock(shadow->mutex, std::defer_lock);
    if (shadow->global) lock.lock();
    check(*shadow, first, bytes, write, via, relative);
    if (fault_) {
        if (lock) lock.unlock();  // a thread that fails never returns
        block_.fail(fault_->kind, fault_->what());
    }
    return lock;
}

Shadow* Checker::find(const std::byte* first, std::size_t bytes) {
    const auto holds = [&](const Shadow& s) { return s.contains(first) && s.contains(first + bytes - 1); };
    if (holds(*dynamic_shared_)) return dynamic_shared_.get();
    for (Shadow& allocation : allocations()) {
        if (holds(allocation)) return &allocation;
    }
    static thread_local const Image own = find_image();
    if (!static_shared_) {
        static_shared_ =
            std::make_unique<Shadow>(own.tls, own.tls_bytes, "static shared memory", true, false);
    }
    return holds(*static_shared_) && !within(first, &builtins, sizeof builtins) ? static_shared_.get()
                                                                                : nullptr;
}

/// Memory that is nobody's to race on: the kernel's parameters, CUDA's built-in variables, constants.
bool Checker::is_private(const std::byte* address, bool write) const {
    return within(address, parameters_, parameter_bytes_) || within(address, &builtins, sizeof builtins) ||
           (!write && within(address, reinterpret_cast<const void*>(image().begin), image().bytes));
}

void Checker::check(Shadow& shadow, const std::byte* address, std::size_t bytes, bool write_access, Via via,
                    std::uint32_t caller) {
    if (!shadow.cells) shadow.cells = std::make_unique<Shadow::Cell[]>(shadow.bytes / Shadow::unit + 1);
    Access now;
    now.at = block_.now();
    now.in_flight = via == Via::copy_start;
    now.atomic = via == Via::atomic;
    now.caller = caller;
    const std::size_t begin = static_cast<std::size_t>(address - shadow.data);
    const std::size_t end = (begin + bytes - 1) / Shadow::unit + 1;
    fault_.reset();
    if (now.atomic) synchronize(shadow, now, begin);
    for (std::size_t i = begin / Shadow::unit; i < end && !fault_; ++i) {
        if (write_access) {
            write(shadow, shadow.cells[i], now, shadow.data + i * Shadow::unit);
        } else {
            read(shadow, shadow.cells[i], now, shadow.data + i * Shadow::unit);
        }
    }
}

bool Checker::unordered(const Shadow& shadow, const Access& access, const Moment& now) const {
    const Moment& before = access.at;
    if (before.block != now.block)
        return shadow.global && before.block >= first_block_ && !handed_over(before, now);
    if (access.mbarrier >= 0) return !block_.knows_of_phase(access.mbarrier, access.phase);
    if (before.thread == now.thread) return false;
    if (warp(before) == warp(now)) return before.time == now.time;
    return interval(before) == interval(now) && before.time >= block_.known_time(warp(before));
}

/// Has a warp read the cell, in this interval, that no mbarrier orders before now?
bool Checker::read_by_unordered_warp(const Shadow& shadow, const Shadow::Cell& cell,
                                     const Moment& now) const {
    const std::size_t first = (&cell - shadow.cells.get()) * block_.warps();
    for (int w = 0; w < block_.warps(); ++w) {
        const std::uint32_t after = shadow.readers[first + w];
        const bool this_interval = after != 0 && (after - 1) >> 16 == interval(now);
        if (w != warp(now) && this_interval && after > block_.known_time(w)) return true;
    }
    return false;
}

/// Is there a fence in the one block behind `before`, and one in the other before `now`, that an atomic ties?
bool Checker::handed_over(const Moment& before, const Moment& now) const {
    // Within a block; one of the two is a fence.
    const auto precedes = [](const Moment& a, const Moment& b) {
        if (a.thread == b.thread) return a.fences < b.fences;
        return warp(a) == warp(b) ? a.time < b.time : interval(a) < interval(b);
    };
    return std::any_of(handovers_.begin(), handovers_.end(), [&](const Handover& h) {
        return h.fenced && h.released.block == before.block && precedes(before, h.released) &&
               precedes(h.acquired, now);
    });
}

void Checker::fence(const Moment& before, const Moment& after) {
    last_fence_[after.thread] = after;
    for (Handover& h : handovers_) {
        if (h.fenced || h.acquired.thread != before.thread) continue;
        h.fenced = true;
        h.acquired = before;
    }
}

/// An atomic learns from those on the same address before it, and tells those behind it.
void Checker::synchronize(Shadow& shadow, const Access& now, std::size_t place) {
    std::vector<Moment>& released = shadow.released[place];
    const Access& last = shadow.cells[place / Shadow::unit].write;
    if (!last.atomic || last.at.block < first_block_) released.clear();
    for (const Moment& other : released) {
        if (other.block != now.at.block) handovers_.push_back({.released = other, .acquired = now.at});
    }
    const auto fence = last_fence_.find(now.at.thread);
    if (fence != last_fence_.end()) released.push_back(fence->second);
}

void Checker::read(Shadow& shadow, Shadow::Cell& cell, const Access& now, const std::byte* address) {
    const Access& last = cell.write;
    if (last.in_flight && last.at.block == now.at.block)
        return touches_copy(shadow, last, "read", now, address);
    if (!shadow.global && last.at.block != now.at.block) {
        fault_.emplace(Report::Kind::uninitialized,
                       fmt::format("read of {} at {} by thread {} before anything wrote it",
                                   describe(shadow, address), source_of(now.caller), now.at.thread));
        return;
    }
    if (unordered(shadow, last, now.at)) return race(shadow, "write", last, "read", now, address);

    if (!shadow.readers.empty()) {
        shadow.readers[(&cell - shadow.cells.get()) * block_.warps() + warp(now.at)] = now.at.time + 1;
    }
    Access& seen = cell.read;
    if (seen.at.block == now.at.block && interval(seen.at) == interval(now.at)) {
        const bool same_warp = warp(seen.at) == warp(now.at);
        const bool same_time = same_warp && seen.at.time == now.at.time;
        seen.several_warps |= !same_warp;
        seen.several_lanes = same_time && (seen.several_lanes || seen.at.thread != now.at.thread);
        seen.at = now.at;
        seen.caller = now.caller;
    } else {
        seen = now;
    }
}

void Checker::write(const Shadow& shadow, Shadow::Cell& cell, const Access& now, const std::byte* address) {
    const Access& last = cell.write;
    const Access& seen = cell.read;
    if (last.in_flight && last.at.block == now.at.block && last.at.thread != now.at.thread) {
        return touches_copy(shadow, last, "write", now, address);
    }
    const bool both_atomic = last.atomic && now.atomic;
    if (!both_atomic && unordered(shadow, last, now.at))
        return race(shadow, "write", last, "write", now, address);
    const bool same_interval = seen.at.block == now.at.block && interval(seen.at) == interval(now.at);
    const bool other_lane = seen.several_lanes && same_interval && seen.at.time == now.at.time;
    const bool other_warp = shadow.readers.empty() ? same_interval && seen.several_warps
                                                   : read_by_unordered_warp(shadow, cell, now.at);
    if (unordered(shadow, seen, now.at) || other_lane || other_warp) {
        return race(shadow, "read", seen, "write", now, address);
    }
    cell.write = now;
}

void Checker::race(const Shadow& shadow, const char* before_kind, const Access& before, const char* now_kind,
                   const Access& now, const std::byte* address) {
    const bool same_block = before.at.block == now.at.block;
    const bool same_warp = same_block && warp(before.at) == warp(now.at);
    const char* others = before.several_warps || before.several_lanes ? " and others" : "";
    const char* missing = !same_block ? "blocks of one launch have no order but by fences around an atomic"
                          : before.mbarrier >= 0 ? "the mbarrier of that copy was not waited for"
                          : same_warp            ? "no __syncwarp or barrier between them"
                                                 : "no barrier between them";
    fault_.emplace(Report::Kind::race,
                   fmt::format("race on {}: {} at {} by thread {}{}{}, {} at {} by thread {}, and {}",
                               describe(shadow, address), before_kind, source_of(before.caller),
                               before.at.thread, others, same_block ? "" : " of another block", now_kind,
                               source_of(now.caller), now.at.thread, missing));
}

void Checker::touches_copy(const Shadow& shadow, const Access& copy, const char* now_kind, const Access& now,
                           const std::byte* address) {
    fault_.emplace(
        Report::Kind::copy_in_flight,
        fmt::format("{} of {} at {} by thread {} before the asynchronous copy at {} was waited for", now_kind,
                    describe(shadow, address), source_of(now.caller), now.at.thread, source_of(copy.caller)));
}

std::uint32_t relative_address(std::uintptr_t caller) {
    return static_cast<std::uint32_t>(caller - image().begin);
}

std::string source_of(std::uint32_t caller) {
    // The return address is behind the call; one byte before it is inside.
    const std::string command =
        fmt::format("addr2line -i -e /proc/{}/exe {:#x} 2>/dev/null", getpid(), caller - 1);

    std::string source;
    if (FILE* frames = popen(command.c_str(), "r")) {
        std::array<char, 1024> line;
        while (std::fgets(line.data(), line.size(), frames) != nullptr) {
            std::string_view frame = line.data();
            frame = frame.substr(frame.find_last_of('/') + 1);
            frame = frame.substr(0, frame.find_first_of(" \n"));
            // The wrappers are inlined, so the kernel is the first frame outside the CUDA layer.
            if (source.empty() || source.starts_with("device.cuh") || source.starts_with("cuda.h"))
                source = frame;
        }
        pclose(frames);
    }
    if (!source.empty() && source.find('?') == std::string::npos) return source;

    return fmt::format("code address {:#x}", caller);
}

}  // namespace simt

// ---------------------------------------------------------------------------------------------------------------
// What -fsanitize=thread makes the kernels call. The sanitizer's own runtime is not linked.

namespace {

__attribute__((always_inline)) inline void plain_access(const void* address, std::size_t bytes, bool write) {
    if (simt::Block* block = simt::running_block; block != nullptr && block->checker() != nullptr) {
        block->checker()->access(address, bytes, write, simt::Via::plain,
                                 reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
    }
}

}  // namespace

#define SIMT_HOOKS(bytes)                               \
    void __tsan_read##bytes(void* address) {            \
        plain_access(address, bytes, false);            \
    }                                                   \
    void __tsan_write##bytes(void* address) {           \
        plain_access(address, bytes, true);             \
    }                                                   \
    void __tsan_unaligned_read##bytes(void* address) {  \
        plain_access(address, bytes, false);            \
    }                                                   \
    void __tsan_unaligned_write##bytes(void* address) { \
        plain_access(address, bytes, true);             \
    }

extern "C" {
SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)

void __tsan_read_range(void* address, std::size_t bytes) {
    plain_access(address, bytes, false);
}
void __tsan_write_range(void* address, std::size_t bytes) {
    plain_access(address, bytes, true);
}
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
    plain_access(from, bytes, false);
    plain_access(to, bytes, true);
    return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
    plain_access(from, bytes, false);
    plain_access(to, bytes, true);
    return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
    plain_access(to, bytes, true);
    return std::memset(to, value, bytes);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
