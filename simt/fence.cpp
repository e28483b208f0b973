#include "simt/fence.h"

#include <execinfo.h>
#include <fmt/core.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <vector>

#include "simt/block.h"
#include "simt/image.h"
#include "simt/simt.h"

namespace simt {
namespace {

struct Fenced {
    Range memory;
    const char* name;
};

/// Changes only between launches, as what the race checker knows of global memory.
constinit std::vector<Fenced> all_fenced;

/// The host side that runs, and what it has touched. A signal's handler has nothing but these.
struct HostSide {
    bool closed = false;
    Range code;  ///< of the stage
    struct sigaction before {};
    sigjmp_buf entry;
    const Fenced* touched = nullptr;
    std::size_t byte = 0;
    const char* how = "touches";
    Caller caller;  ///< as a call's return address; of what divides by zero, if nothing was touched
} host;

struct sigaction before_divisions {};  ///< what SIGFPE did

thread_local constinit bool runs_host_side = false;

void set_closed(bool closed) {
    host.closed = closed;
    for (const Fenced& one : all_fenced)
        mprotect(const_cast<std::byte*>(one.memory.begin), one.memory.bytes,
                 closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

std::uintptr_t instruction(const ucontext_t& context) {
#if defined(__x86_64__)
    host.how = (context.uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "writes" : "reads";
    return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return context.uc_mcontext.pc;
#else
    return 0;
#endif
}

void on_fault(int, siginfo_t* info, void* context) {
    if (runs_host_side && host.closed) {
        for (const Fenced& one : all_fenced) {
            if (!one.memory.contains(info->si_addr)) continue;
            host.touched = &one;
            host.byte = one.memory.place_of(info->si_addr);
            const std::uintptr_t at = instruction(*static_cast<ucontext_t*>(context));
            host.caller = {};
            // It may be a function of the C library that the stage has called.
            std::array<void*, 32> frames;
            const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
            for (int i = 0; i < count && host.caller.address == 0; ++i) {
                const auto frame = reinterpret_cast<std::uintptr_t>(frames[i]);
                if (host.code.contains(frames[i])) host.caller = {frame == at ? frame + 1 : frame};
            }
            siglongjmp(host.entry, 1);
        }
    }
    sigaction(SIGSEGV, &host.before, nullptr);  // not ours: it faults again, for its handler
}

/// A division of integers by zero, in a kernel or on its host side. The signal comes from the instruction
/// itself, so its handler may do what a function that is called there may do.
void on_division(int, siginfo_t*, void* context) {
    const Caller at{instruction(*static_cast<ucontext_t*>(context)) + 1};
    if (running_block != nullptr) {
        running_block->context.scheduler.fail(std::make_exception_ptr(
            report(Report::Kind::division_by_zero, "{}: an integer is divided by zero", at)));
    }
    if (runs_host_side) {
        host.caller = at;
        siglongjmp(host.entry, 1);
    }
    sigaction(SIGFPE, &before_divisions, nullptr);  // not ours: it comes again, for its handler
}

/// Closes device memory, and opens it again at the end of its scope.
class Closed {
  public:
    Closed() {
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &host.before);
        set_closed(true);
    }
    ~Closed() {
        set_closed(false);
        sigaction(SIGSEGV, &host.before, nullptr);
    }
};

}  // namespace

std::size_t fence_unit() {
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return page;
}

void fence(void* data, std::size_t bytes, const char* name) {
    all_fenced.push_back({{static_cast<const std::byte*>(data), bytes}, name});
}

void forget_fence(void* data) {
    std::erase_if(all_fenced, [data](const Fenced& one) { return one.memory.begin == data; });
}

void report_divisions() {
    [[maybe_unused]] static const int installed = [] {
        struct sigaction action {};
        action.sa_sigaction = on_division;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;  // the fiber that divides never returns from the handler
        return sigaction(SIGFPE, &action, &before_divisions);
    }();
}

void run_host_side(const void* code, const std::function<void()>& host_side) {
    // The first call of backtrace() allocates, which a handler must not.
    void* frame = nullptr;
    [[maybe_unused]] static const int loaded = backtrace(&frame, 1);
    host.code = all_fenced.empty() ? Range() : segment_of(code);
    host.touched = nullptr;
    report_divisions();
    const struct Running {
        Running() { runs_host_side = true; }
        ~Running() { runs_host_side = false; }
    } running;
    const Closed closed;
    if (sigsetjmp(host.entry, 1) == 0) return host_side();
    if (host.touched == nullptr)
        throw report(Report::Kind::division_by_zero, "{}: host code divides an integer by zero", host.caller);
    const std::string place = host.caller.address == 0 ? "" : " at " + to_string(host.caller);
    throw report(Report::Kind::host_access,
                 "host code {} device memory{}: {} (byte {}), outside of a launch. On a GPU it is out of the "
                 "host's reach",
                 host.how, place, host.touched->name, host.byte);
}

DuringLaunch::DuringLaunch() : was_closed_(host.closed) {
    if (was_closed_) set_closed(false);
}
DuringLaunch::~DuringLaunch() {
    if (was_closed_) set_closed(true);
}

}  // namespace simt
