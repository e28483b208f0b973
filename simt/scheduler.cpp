#include "simt/scheduler.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "simt/image.h"

#if defined(__SANITIZE_ADDRESS__)
#    define SIMT_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define SIMT_ASAN 1
#    endif
#endif
#ifdef SIMT_ASAN
#    include <sanitizer/asan_interface.h>
#    include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

namespace context = boost::context;

/// The stacks belong to the scheduler, so a fiber that ends gives nothing back.
struct Borrowed {
    void deallocate(context::stack_context&) {}
};

// What AddressSanitizer is told of switches from one stack to another.
#ifdef SIMT_ASAN
constexpr std::size_t stack_bytes = 512 * 1024;
thread_local Stacks::Stack thread_stack{};  ///< where no fiber runs

/// About to run on the stack with this number, or on that of the thread; for good if `fake_stack` is null.
void leave(const Stacks& stacks, int to, void** fake_stack) {
    const auto [begin, bytes] = to < 0 ? thread_stack : stacks.at(to);
    __sanitizer_start_switch_fiber(fake_stack, begin, bytes);
}
void come_back(void* fake_stack) {
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}
/// On a new stack, coming from the thread's own or from that of a fiber.
void arrive_first(bool from_thread) {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (from_thread) thread_stack = {static_cast<std::byte*>(const_cast<void*>(bottom)), bytes};
}
/// A fiber that was abandoned has left marks on its stack, where functions had variables.
void clear(const Stacks::Stack& stack) {
    ASAN_UNPOISON_MEMORY_REGION(stack.begin, stack.bytes);
}
#else
constexpr std::size_t stack_bytes = 128 * 1024;
void leave(const Stacks&, int, void**) {}
void come_back(void*) {}
void arrive_first(bool) {}
void clear(const Stacks::Stack&) {}
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

}  // namespace

Stacks::~Stacks() {
    if (base_ != nullptr) munmap(base_, bytes_);
}

void Stacks::reserve(int count, std::size_t each) {
    if (each <= each_ && count * each_ <= bytes_) return;
    const std::size_t wanted = count * each;
    if (base_ != nullptr) munmap(base_, std::exchange(bytes_, 0));
    base_ = nullptr;
    void* memory =
        mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(memory);
    bytes_ = wanted, each_ = each;
    for (int i = 0; i < count; ++i) mprotect(base_ + i * each, sysconf(_SC_PAGESIZE), PROT_NONE);
}

Stacks::Stack Stacks::at(int index) const {
    static const std::size_t page = sysconf(_SC_PAGESIZE);
    return {base_ + index * each_ + page, each_ - page};
}

/// Fibers that will never run again stay as they are. Unwinding them would throw through code that was not
/// compiled to expect it, and their stacks are ours; so their handles go where no destructor finds them.
void Scheduler::abandon() {
    static auto& abandoned = *new std::vector<context::fiber>;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    for (Fiber& fiber : fibers_) {
        if (!fiber.ended) abandoned.push_back(std::move(fiber.waiting));
        fiber.ended = true;
    }
}

void Scheduler::run(int count, bool among_many, Order order, std::uint64_t seed, Program& program) {
    abandon();
    failure_ = nullptr;
    stop_ = options().stop;
    program_ = &program;
    order_ = order;
    stacks_.reserve(count, among_many ? stack_bytes / 2 : stack_bytes);
    fibers_.resize(count + 1);
    waiting_.assign(count, {});
    ready_.assign((count + 31) / 32, 0);

    current_warp_ = order == Order::reversed ? static_cast<int>(ready_.size()) - 1 : 0;
    random_.seed(static_cast<std::uint32_t>(seed));
    std::iota(lane_of_turn_.begin(), lane_of_turn_.end(), std::uint8_t{0});
    if (order == Order::reversed) std::reverse(lane_of_turn_.begin(), lane_of_turn_.end());
    if (order == Order::shuffled) std::shuffle(lane_of_turn_.begin(), lane_of_turn_.end(), random_);
    for (int turn = 0; turn < 32; ++turn)
        turn_of_lane_[lane_of_turn_[turn]] = static_cast<std::uint8_t>(turn);

    const int warps = static_cast<int>(ready_.size());
    group_shift_ = warps > 4 ? 2 : 0;
    held_ = nobody;
    if (order == Order::delayed && warps > 1) hold_another();

    for (int id = 0; id < count; ++id) start(id);
    go_on();
}

void Scheduler::go_on() {
    if (const int first = begin_next_turn(); first != nobody) switch_to(nobody, first);
}

void Scheduler::start(int id) {
    const auto own = stacks_.at(id);
    clear(own);
    // What is used of stacks must not lie at multiples of a power of two, in the same few sets of a cache.
    // Small stacks keep half of their bytes, which a report takes.
    const std::size_t unused = id % (own.bytes > stack_bytes / 2 ? 64 : 32) * std::size_t{13 * 64};
    context::stack_context stack;
    stack.size = own.bytes - unused;
    stack.sp = own.begin + stack.size;  // stacks grow downwards
    const auto main = [this, id](context::fiber&& from) {
        arrive_first(previous_ == nobody);
        fiber(previous_).waiting = std::move(from);
        try {
            program_->main(id);
        } catch (...) {
            failure_ = std::current_exception();
        }
        fiber(id).ended = true;
        program_->end_turn();
        const int to = begin_next_turn();
        leave(stacks_, to, nullptr);
        previous_ = id;
        return std::move(fiber(to).waiting);
    };
    const context::preallocated place(stack.sp, stack.size, stack);
    fiber(id) = {context::fiber(std::allocator_arg, place, Borrowed{}, main), false};
    make_ready(id / 32, 1u << id % 32);
}

int Scheduler::next() {
    if (stop_ != nullptr && !failure_ && stop_->load(std::memory_order_relaxed))
        failure_ = std::make_exception_ptr(Stopped());
    if (failure_) return nobody;
    if (order_ == Order::shuffled) current_warp_ = draw(static_cast<int>(ready_.size()));
    if (held_ != nobody && --turns_held_ < 0) hold_another();
    if (!move_on(held_) && (held_ == nobody || !move_on(nobody))) return nobody;
    return 32 * current_warp_ + lane_of_turn_[__builtin_ctz(ready_[current_warp_])];
}

bool Scheduler::move_on(int left_out) {
    const int count = static_cast<int>(ready_.size());
    for (int left = count; ready_[current_warp_] == 0 || current_warp_ >> group_shift_ == left_out; --left) {
        if (left == 0) return false;
        current_warp_ += order_ == Order::reversed ? -1 : 1;
        if (current_warp_ == count) current_warp_ = 0;
        if (current_warp_ < 0) current_warp_ = count - 1;
    }
    return true;
}

void Scheduler::hold_another() {
    const int groups = static_cast<int>((ready_.size() - 1) >> group_shift_) + 1;
    held_ = held_ == nobody ? draw(groups) : (held_ + 1 + draw(groups - 1)) % groups;
    // Long enough that the others get far ahead, and short enough that each group is held back.
    turns_held_ = draw(64 * 32 * static_cast<int>(ready_.size()));
}

int Scheduler::begin_next_turn() {
    const int id = next();
    if (id == nobody) return nobody;
    current_ = id;
    ready_[id / 32] &= ~(1u << turn_of_lane_[id % 32]);
    program_->begin_turn(id);
    return id;
}

void Scheduler::switch_to(int from, int to) {
    previous_ = from;
    void* fake_stack = nullptr;
    leave(stacks_, to, &fake_stack);
    context::fiber other = std::move(fiber(to).waiting).resume();
    come_back(fake_stack);
    fiber(previous_).waiting = std::move(other);
}

void Scheduler::wait(const char* what, Site at) {
    const int id = current_;
    waiting_[id] = {what, at};
    program_->end_turn();
    switch_to(id, begin_next_turn());
}

void Scheduler::fail(std::exception_ptr failure) {
    failure_ = std::move(failure);
    for (;;) wait("nothing", {});
}

void Scheduler::make_ready(int warp, std::uint32_t lanes) {
    for_each_lane(lanes, [&](int lane) {
        waiting_[32 * warp + lane].what = nullptr;
        ready_[warp] |= 1u << turn_of_lane_[lane];
    });
}

std::string Scheduler::describe_waiting() const {
    std::map<std::string, std::vector<int>> groups;
    for (int id = 0; id < static_cast<int>(waiting_.size()); ++id) {
        const Waiting& waiting = waiting_[id];
        const std::string where = fibers_[id + 1].ended
                                      ? "have left the kernel"
                                      : fmt::format("wait at {} ({})", waiting.at, waiting.what);
        groups[where].push_back(id);
    }
    std::string text;
    for (const auto& [where, threads] : groups) {
        text += fmt::format("{}threads {} {}", text.empty() ? "" : "; ", ranges(threads), where);
    }
    return text;
}

}  // namespace simt
