#include "simt/block.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#    define SIMT_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define SIMT_ASAN 1
#    endif
#endif
#ifdef SIMT_ASAN
#    include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

namespace context = boost::context;

#ifdef SIMT_ASAN
constexpr std::size_t stack_bytes = 512 * 1024;
#else
constexpr std::size_t stack_bytes = 64 * 1024;
#endif

/// The stacks belong to the block, so a fiber that ends gives nothing back.
struct Borrowed {
    void deallocate(context::stack_context&) {}
};

/// Tells AddressSanitizer that the thread is about to run on another stack, and that it has arrived there.
struct StackSwitch {
#ifdef SIMT_ASAN
    void* fake_stack = nullptr;
    StackSwitch(const void* bottom, std::size_t bytes) {
        __sanitizer_start_switch_fiber(&fake_stack, bottom, bytes);
    }
    void back() {
        __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
    }
#else
    StackSwitch(const void*, std::size_t) {}
    void back() {}
#endif
};

#ifdef SIMT_ASAN
thread_local const void* scheduler_stack = nullptr;
thread_local std::size_t scheduler_stack_bytes = 0;
void arrive_on_new_stack() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
}
void leave_stack_for_good() {
    __sanitizer_start_switch_fiber(nullptr, scheduler_stack, scheduler_stack_bytes);
}
#else
constexpr const void* scheduler_stack = nullptr;
constexpr std::size_t scheduler_stack_bytes = 0;
void arrive_on_new_stack() {}
void leave_stack_for_good() {}
#endif

/// "0-31, 64": the set bits of a sorted list.
std::string ranges(const std::vector<int>& sorted) {
    std::string text;
    for (std::size_t i = 0; i < sorted.size();) {
        std::size_t j = i;
        while (j + 1 < sorted.size() && sorted[j + 1] == sorted[j] + 1) ++j;
        text += text.empty() ? "" : ", ";
        text += j > i ? fmt::format("{}-{}", sorted[i], sorted[j]) : fmt::format("{}", sorted[i]);
        i = j + 1;
    }
    return text;
}

/// The later of what both know, item by item.
void join(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& from) {
    into.resize(std::max(into.size(), from.size()));
    for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

thread_local constinit Block* running_block = nullptr;
thread_local constinit Builtins builtins{};

const char* name(Op op) {
    switch (op) {
        case Op::ldmatrix:
            return "ldmatrix";
        case Op::ldmatrix_transposed:
            return "ldmatrix_transposed";
        case Op::mma:
            return "mma";
        case Op::shuffle:
            return "shuffle";
        case Op::vote:
            return "vote";
        default:
            return "__syncwarp";
    }
}

std::string to_string(Site site) {
    const std::string_view path = site.file;
    return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), site.line);
}

Stacks::~Stacks() {
    if (base_ != nullptr) munmap(base_, bytes_);
}

void Stacks::reserve(int count) {
    const std::size_t wanted = count * stack_bytes;
    if (wanted <= bytes_) return;
    if (base_ != nullptr) munmap(base_, bytes_);
    void* memory =
        mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(memory);
    bytes_ = wanted;
    for (int i = 0; i < count; ++i) mprotect(base_ + i * stack_bytes, sysconf(_SC_PAGESIZE), PROT_NONE);
}

context::stack_context Stacks::at(int index) const {
    context::stack_context stack;
    stack.size = stack_bytes - sysconf(_SC_PAGESIZE);
    stack.sp = base_ + (index + 1) * stack_bytes;  // stacks grow downwards
    return stack;
}

Block::Block()
    : shared_(static_cast<std::byte*>(std::aligned_alloc(1024, hopper_shared_bytes)), &std::free),
      checker_(*this) {}

void Block::begin_launch(const Launch& config, void (*call)(const void*), const void* parameters,
                         std::size_t bytes, std::uint32_t first_serial) {
    config_ = &config;
    call_ = call;
    parameters_ = parameters;
    first_serial_ = first_serial;
    shared_bytes_ = config.shared_bytes;
    checker_.begin_launch(first_serial, parameters, bytes, shared_.get(), shared_bytes_);

    const int count = static_cast<int>(config.block.count());
    stacks_.reserve(count);
    threads_.resize(count);
    warps_.resize((count + 31) / 32);
}

void Block::run(std::uint64_t number, BlockTrace* trace) {
    trace_ = trace;
    const dim3 grid = config_->grid;
    const dim3 index(number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
    begin(number, index);
    running_block = this;
    for (int id = next_turn(); id >= 0; id = next_turn()) {
        resume(id);
        record_work();
        if (failure_) break;
    }
    running_block = nullptr;
    tally.blocks += 1;
    if (!failure_ && live_ > 0) {
        failure_ = std::make_exception_ptr(
            Report(Report::Kind::deadlock, fmt::format("deadlock in block ({}, {}, {}): {}", index.x, index.y,
                                                       index.z, describe_waiting())));
    }
    if (failure_) {
        // Threads that will never run again stay as they are. Unwinding them would throw through code that
        // was not compiled to expect it, and their stacks are ours; so their handles go where no destructor
        // finds them.
        static auto& abandoned = *new std::vector<context::fiber>;
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        for (Thread& thread : threads_) abandoned.push_back(std::move(thread.fiber));
        std::rethrow_exception(std::exchange(failure_, nullptr));
    }
}

void Block::begin(std::uint64_t number, dim3 index) {
    const dim3 extent = config_->block;
    const int count = static_cast<int>(threads_.size());
    serial_ = first_serial_ + static_cast<std::uint32_t>(number);
    barriers_ = 0;
    copied_lines_.clear();
    recorded_ = tally;
    live_ = count;
    at_barrier_ = 0;
    checker_.begin_block();
    std::memset(shared_.get(), 0xff, shared_bytes_);  // NaN in every floating-point type

    // The same block of the same launch gets the same turns, whichever worker runs it.
    const Options& o = options();
    current_warp_ = o.order == Order::reversed ? static_cast<int>(warps_.size()) - 1 : 0;
    random_.seed(static_cast<std::uint32_t>(o.seed * 0x9e3779b9u + number + 1));
    std::iota(lane_of_turn_.begin(), lane_of_turn_.end(), std::uint8_t{0});
    if (o.order == Order::reversed) std::reverse(lane_of_turn_.begin(), lane_of_turn_.end());
    if (o.order == Order::shuffled) std::shuffle(lane_of_turn_.begin(), lane_of_turn_.end(), random_);
    for (int turn = 0; turn < 32; ++turn)
        turn_of_lane_[lane_of_turn_[turn]] = static_cast<std::uint8_t>(turn);

    builtins = {.thread = {}, .block = index, .block_extent = extent, .grid_extent = config_->grid};
    for (Warp& warp : warps_) {
        warp.ready = 0;
        warp.syncs = 0;
        warp.meetings.clear();
    }
    mbarriers_.clear();
    for (int id = 0; id < count; ++id) {
        Thread& thread = threads_[id];
        const unsigned u = static_cast<unsigned>(id);
        thread.index = dim3(u % extent.x, u / extent.x % extent.y, u / extent.x / extent.y);
        thread.waits_for = nullptr;
        thread.finished = false;
        thread.fences = 0;
        thread.phase = 0;
        thread.has_tile = false;
        thread.copies.clear();
        thread.groups.clear();
        thread.known_time.assign(warps_.size(), 0);
        thread.complete_phases.clear();
        thread.fiber = start(id);
        make_ready(id / 32, 1u << id % 32);
    }
}

context::fiber Block::start(int id) {
    const context::stack_context stack = stacks_.at(id);
    return context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack), Borrowed{},
                          [this, id](context::fiber&& scheduler) {
                              arrive_on_new_stack();
                              Thread& self = threads_[id];
                              self.scheduler = std::move(scheduler);
                              try {
                                  call_(parameters_);
                              } catch (const std::exception&) {
                                  failure_ = std::current_exception();
                              }
                              self.finished = true;
                              live_ -= 1;
                              release_barrier_if_complete();
                              leave_stack_for_good();
                              return std::move(self.scheduler);
                          });
}

/// Picks a ready thread: of the warp that ran last if it can, so that a warp runs as far as it gets.
/// Shuffled, of any warp.
int Block::next_turn() {
    const int count = static_cast<int>(warps_.size());
    const Order order = options().order;
    if (order == Order::shuffled) current_warp_ = static_cast<int>(random_() % count);
    for (int i = 0; i < count; ++i) {
        const int step = order == Order::reversed ? count - i : i;
        const int w = (current_warp_ + step) % count;
        if (warps_[w].ready != 0) {
            current_warp_ = w;
            return 32 * w + lane_of_turn_[__builtin_ctz(warps_[w].ready)];
        }
    }
    return -1;
}

/// The phase of the trace that the running thread is in.
BlockTrace::Phase& Block::phase() {
    const std::size_t number = threads_[current_].phase;
    while (trace_->phases.size() <= number) trace_->phases.emplace_back().warps.resize(warps_.size());
    return trace_->phases[number];
}

/// What was counted since the last call is the running warp's.
void Block::record_work() {
    if (trace_ == nullptr) return;
    phase().warps[current_ / 32].work += tally - recorded_;
    recorded_ = tally;
}

void Block::note_tile(const Tile& tile) {
    Thread& self = threads_[current_];
    if (current_ == 0) {
        tally.tiles += 1;
        tally.masked_tiles += tile.masked;
    }
    if (trace_ == nullptr) return;
    record_work();
    if (self.has_tile) self.phase += 1;
    self.has_tile = true;
    if (current_ == 0) phase().tiles.push_back(tile);
}

void Block::note_row(int row, float m, float l) {
    if (trace_ == nullptr) return;
    RowState& state = phase().warps[current_ / 32].rows[row];
    state.m = m;
    state.l_of_lanes[current_ % 4] = l;
}

void Block::resume(int id) {
    Thread& thread = threads_[id];
    current_ = id;
    builtins.thread = thread.index;
    warps_[id / 32].ready &= ~(1u << turn_of_lane_[id % 32]);
    const context::stack_context stack = stacks_.at(id);
    StackSwitch to_thread(static_cast<char*>(stack.sp) - stack.size, stack.size);
    thread.fiber = std::move(thread.fiber).resume();
    to_thread.back();
}

void Block::wait(const char* what, Site site) {
    Thread& self = threads_[current_];
    self.waits_for = what;
    self.waits_at = site;
    StackSwitch to_scheduler(scheduler_stack, scheduler_stack_bytes);
    self.scheduler = std::move(self.scheduler).resume();
    to_scheduler.back();
}

void Block::fail(Report::Kind kind, const std::string& message) {
    failure_ = std::make_exception_ptr(Report(kind, message));
    for (;;) wait("nothing", {});
}

void Block::make_ready(int warp, std::uint32_t lanes) {
    for (; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        threads_[32 * warp + lane].waits_for = nullptr;
        warps_[warp].ready |= 1u << turn_of_lane_[lane];
    }
}

void Block::meet(Op op, std::uint32_t mask, void* operands, MeetingBody body, Site site) {
    const int lane = current_ % 32;
    if ((mask >> lane & 1) == 0) {
        fail(Report::Kind::divergence,
             fmt::format("divergence: lane {} executes {} at {} with a mask that leaves it out", lane,
                         name(op), to_string(site)));
    }
    auto& meetings = warps_[current_ / 32].meetings;
    auto meeting =
        std::find_if(meetings.begin(), meetings.end(), [=](const Meeting& m) { return m.mask == mask; });
    if (meeting == meetings.end()) {
        meeting = meetings.emplace(meetings.end());
        meeting->mask = mask;
    }
    if (meeting->arrived == 0) {
        meeting->op = op;
        meeting->site = site;
    } else if (meeting->op != op || meeting->site.line != site.line) {
        fail(Report::Kind::divergence,
             fmt::format("divergence in warp {}: lane {} executes {} at {}, lane {} executes {} at {}",
                         current_ / 32, __builtin_ctz(meeting->arrived), name(meeting->op),
                         to_string(meeting->site), lane, name(op), to_string(site)));
    }
    meeting->operands[lane] = operands;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived != mask) return wait(name(op), site);
    body(meeting->operands, mask);
    if (op == Op::sync_warp) {
        warps_[current_ / 32].syncs += 1;
        share_knowledge(mask);
    }
    meeting->arrived = 0;
    make_ready(current_ / 32, mask & ~(1u << lane));
}

void Block::sync(Site site) {
    at_barrier_ += 1;
    if (at_barrier_ < live_) return wait("__syncthreads", site);
    for (const Thread& other : threads_) {
        const bool elsewhere = other.waits_for != nullptr && other.waits_at.line != site.line;
        if (!elsewhere) continue;
        fail(Report::Kind::divergence,
             fmt::format("divergent __syncthreads: thread {} waits at {}, thread {} at {}",
                         &other - threads_.data(), to_string(other.waits_at), current_, to_string(site)));
    }
    release_barrier_if_complete();
    warps_[current_ / 32].ready &= ~(1u << turn_of_lane_[current_ % 32]);  // it is running already
}

void Block::release_barrier_if_complete() {
    if (at_barrier_ == 0 || at_barrier_ < live_) return;
    at_barrier_ = 0;
    record_work();
    barriers_ += 1;
    tally.barriers += 1;
    copied_lines_.clear();
    recorded_ = tally;  // the barrier is no warp's own
    std::size_t last = 0;
    for (const Thread& thread : threads_) last = std::max(last, thread.phase);
    for (Thread& thread : threads_) {
        thread.phase = last + 1;
        thread.has_tile = false;
    }
    if (trace_ != nullptr) phase().behind_barrier = true;
    for (Warp& warp : warps_) warp.syncs = 0;
    if (!mbarriers_.empty()) {
        std::vector<std::uint32_t> phases;
        for (const Thread& thread : threads_) join(phases, thread.complete_phases);
        for (Thread& thread : threads_) thread.complete_phases = phases;
    }
    for (std::size_t id = 0; id < threads_.size(); ++id) {
        if (!threads_[id].finished) make_ready(static_cast<int>(id / 32), 1u << id % 32);
    }
}

Moment Block::now() const {
    return {serial_, barriers_ << 16 | (warps_[current_ / 32].syncs & 0xffff),
            static_cast<std::uint16_t>(current_), threads_[current_].fences};
}

void Block::fence() {
    tally.fences += 1;
    const Moment before = now();
    threads_[current_].fences += 1;
    if (Checker* c = checker()) c->fence(before, now());
}

std::string Block::describe_waiting() const {
    std::map<std::string, std::vector<int>> groups;
    for (int id = 0; id < static_cast<int>(threads_.size()); ++id) {
        const Thread& thread = threads_[id];
        const std::string where =
            thread.finished ? "have left the kernel"
                            : fmt::format("wait at {} ({})", to_string(thread.waits_at), thread.waits_for);
        groups[where].push_back(id);
    }
    std::string text;
    for (const auto& [where, threads] : groups) {
        text += fmt::format("{}threads {} {}", text.empty() ? "" : "; ", ranges(threads), where);
    }
    return text;
}

void Block::start_copy(void* shared, const void* global, bool valid, bool evict_first,
                       std::uintptr_t caller) {
    if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
        (valid && reinterpret_cast<std::uintptr_t>(global) % 16 != 0)) {
        fail(Report::Kind::misaligned,
             fmt::format("copy_async of an address that is not 16-byte aligned, at {}",
                         source_of(relative_address(caller))));
    }
    tally.async_copies += 1;
    tally.shared_tile_bytes += 16;
    if (valid) {
        tally.global_load_bytes += 16;
        tally.evict_first_bytes += evict_first ? 16 : 0;
        constexpr std::uintptr_t line = 128, shared_lines = hopper_shared_bytes / line;
        const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(global) / line;
        const std::uintptr_t at = static_cast<std::byte*>(shared) - shared_.get();
        std::uint8_t& copied = copied_lines_[from * shared_lines + at / line];
        const auto part = static_cast<std::uint8_t>(1u << at % line / 16);
        const bool anew = copied == 0 || (copied & part) != 0;  // the pair is new, or copied once more
        tally.copied_lines += anew;
        copied = anew ? part : copied | part;
    }
    if (Checker* c = checker()) {
        if (valid) c->access(global, 16, false, Via::wrapper, caller);
        c->access(shared, 16, true, Via::copy_start, caller);
    }
    Copy& copy = threads_[current_].copies.emplace_back(Copy{shared, valid ? global : nullptr});
    // sm_75 has no asynchronous copy: there, it is done when it is started.
    if (!options().late_copies || options().compute_capability < 80) land(copy, caller);
}

void Block::commit_copies() {
    Thread& self = threads_[current_];
    self.groups.push_back(self.copies.size());
}

void Block::wait_for_groups(int pending, std::uintptr_t caller) {
    Thread& self = threads_[current_];
    const int done = static_cast<int>(self.groups.size()) - pending;
    if (done > 0) {
        const std::size_t count = self.groups[done - 1];
        finish_copies(count, caller);
        self.groups.erase(self.groups.begin(), self.groups.begin() + done);
        for (std::size_t& started : self.groups) started -= count;
    }
    tally.copies_left_in_flight += self.copies.size();
}

void Block::wait_for_copies(std::uintptr_t caller) {
    Thread& self = threads_[current_];
    finish_copies(self.copies.size(), caller);
    self.groups.clear();
}

bool Block::warp_has_copies_in_flight() const {
    const auto first = threads_.begin() + current_ / 32 * 32;
    const auto last = first + std::min<std::ptrdiff_t>(32, threads_.end() - first);
    return std::any_of(first, last, [](const Thread& thread) { return !thread.copies.empty(); });
}

/// On hardware a copy may be both waited for by its thread and tell an mbarrier. Here it is one or the other.
void Block::fail_on_two_waits(std::uintptr_t caller) {
    fail(Report::Kind::unsupported,
         fmt::format("a copy of thread {} arrives at an mbarrier, and is of a group or waited for, at {}",
                     current_, source_of(relative_address(caller))));
}

/// The running thread's oldest copies are over.
void Block::finish_copies(std::size_t count, std::uintptr_t caller) {
    auto& copies = threads_[current_].copies;
    for (std::size_t i = 0; i < count; ++i) {
        if (copies[i].mbarrier >= 0) fail_on_two_waits(caller);
        land(copies[i], caller);
    }
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(count));
}

void Block::land(Copy& copy, std::uintptr_t caller) {
    if (copy.landed) return;
    copy.landed = true;
    if (Checker* c = checker()) c->access(copy.shared, 16, true, Via::wrapper, caller);
    write(copy);
}

void Block::write(const Copy& copy) {
    if (copy.global != nullptr) {
        std::memcpy(copy.shared, copy.global, 16);
    } else {
        std::memset(copy.shared, 0, 16);
    }
}

void Block::init_mbarrier(void* address, int arrivals, std::uintptr_t caller) {
    if (options().compute_capability < 80) {
        fail(Report::Kind::unsupported,
             fmt::format("mbarrier at {} needs sm_80", source_of(relative_address(caller))));
    }
    if (mbarrier_at(address) != mbarriers_.end()) {
        fail(Report::Kind::wrong_phase, fmt::format("mbarrier_init at {} by thread {} of one that is set up",
                                                    source_of(relative_address(caller)), current_));
    }
    if (Checker* c = checker()) {
        if (mbarriers_.empty()) c->remember_readers();
        c->access(address, sizeof(std::uint64_t), true, Via::wrapper, caller);
    }
    mbarriers_.push_back({.address = address,
                          .arrivals = arrivals,
                          .missing = arrivals,
                          .arrived_time = std::vector<std::uint32_t>(warps_.size(), 0),
                          .released_time = std::vector<std::uint32_t>(warps_.size(), 0),
                          .arrived_phases = {},
                          .released_phases = {},
                          .waiting = {}});
    for (Thread& thread : threads_) thread.complete_phases.push_back(0);
}

std::vector<Block::Mbarrier>::iterator Block::mbarrier_at(const void* address) {
    return std::find_if(mbarriers_.begin(), mbarriers_.end(),
                        [=](const Mbarrier& m) { return m.address == address; });
}

int Block::find_mbarrier(void* address, std::uintptr_t caller) {
    const auto found = mbarrier_at(address);
    if (found == mbarriers_.end()) {
        fail(Report::Kind::uninitialized, fmt::format("mbarrier used at {} by thread {} before mbarrier_init",
                                                      source_of(relative_address(caller)), current_));
    }
    // Whoever uses it depends on what mbarrier_init wrote.
    if (Checker* c = checker()) c->access(address, sizeof(std::uint64_t), false, Via::wrapper, caller);
    return static_cast<int>(found - mbarriers_.begin());
}

void Block::arrive(void* address, bool behind_copies, std::uintptr_t caller) {
    const int index = find_mbarrier(address, caller);
    Mbarrier& mbarrier = mbarriers_[index];
    Thread& self = threads_[current_];
    tally.mbarrier_arrivals += 1;
    if (behind_copies) {
        if (!self.groups.empty()) fail_on_two_waits(caller);
        for (Copy& copy : self.copies) {
            if (copy.mbarrier < 0) copy.mbarrier = index, copy.phase = mbarrier.phase;
        }
    } else {
        join(mbarrier.arrived_time, self.known_time);
        join(mbarrier.arrived_phases, self.complete_phases);
        std::uint32_t& own = mbarrier.arrived_time[current_ / 32];
        own = std::max(own, now().time);
    }
    mbarrier.missing -= 1;
    if (mbarrier.missing == 0) complete_phase(index);
}

/// All have arrived, so the copies that some of them waited for have landed.
void Block::complete_phase(int index) {
    Mbarrier& mbarrier = mbarriers_[index];
    for (Thread& thread : threads_) {
        for (Copy& copy : thread.copies) {
            if (copy.mbarrier != index || copy.phase != mbarrier.phase) continue;
            if (Checker* c = checker()) c->land_with_phase(copy.shared, 16, index, mbarrier.phase);
            write(copy);
            copy.landed = true;
        }
    }
    mbarrier.phase += 1;
    mbarrier.missing = mbarrier.arrivals;
    mbarrier.released_time = mbarrier.arrived_time;
    mbarrier.released_phases = mbarrier.arrived_phases;
    for (const int id : std::exchange(mbarrier.waiting, {})) {
        acquire(threads_[id], index);
        make_ready(id / 32, 1u << id % 32);
    }
}

void Block::wait_for_phase(void* address, int number, Site site, std::uintptr_t caller) {
    const int index = find_mbarrier(address, caller);
    tally.mbarrier_waits += 1;
    const int present = static_cast<int>(mbarriers_[index].phase);
    if (number != present && number != present - 1) {
        fail(Report::Kind::wrong_phase,
             fmt::format("thread {} asks at {} for phase {} of an mbarrier that is in phase {}", current_,
                         to_string(site), number, present));
    }
    if (number == present) {
        mbarriers_[index].waiting.push_back(current_);
        wait("an mbarrier", site);
    } else {
        acquire(threads_[current_], index);
    }
}

/// The thread learns that the last phase is complete, and what those who arrived knew.
void Block::acquire(Thread& thread, int index) {
    const Mbarrier& mbarrier = mbarriers_[index];
    thread.complete_phases[index] = mbarrier.phase;
    // The thread's own copies are over for it now, and not when the last thread arrived: so what is counted
    // among them does not depend on who ran first.
    std::erase_if(thread.copies,
                  [&](const Copy& copy) { return copy.mbarrier == index && copy.phase < mbarrier.phase; });
    join(thread.known_time, mbarrier.released_time);
    join(thread.complete_phases, mbarrier.released_phases);
}

/// Behind a __syncwarp every lane knows what one of them knew.
void Block::share_knowledge(std::uint32_t mask) {
    if (mbarriers_.empty()) return;
    const auto each_lane = [&](auto f) {
        for (std::uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
            f(threads_[current_ / 32 * 32 + __builtin_ctz(lanes)]);
        }
    };
    auto times = threads_[current_].known_time, phases = threads_[current_].complete_phases;
    each_lane([&](const Thread& t) { join(times, t.known_time), join(phases, t.complete_phases); });
    each_lane([&](Thread& t) { t.known_time = times, t.complete_phases = phases; });
}

}  // namespace simt
