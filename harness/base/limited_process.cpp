#include "harness/base/limited_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "stages/errors.h"

namespace ladder {
namespace {

void limit(int resource, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

}  // namespace

LimitedProcess::LimitedProcess(const std::vector<std::string>& command, const Limits& limits, int socket)
    : deadline_(limits.deadline) {
    // All memory is allocated here: between fork and exec of a program with threads it must not be.
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    // Of the caller's environment, which may hold secrets, only what a driver is found by, and
    // under qemu-user the libraries.
    // The programs' caller keeps what they make, so a compiler in ccache needs no folder of ccache's.
    std::vector<std::string> variables{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "CCACHE_DISABLE=1",
                                       "TMPDIR=" + limits.temporary.string()};
    for (const std::string name : {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "QEMU_LD_PREFIX"}) {
        if (const char* value = std::getenv(name.c_str())) variables.push_back(name + "=" + value);
    }
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    const std::function<void()> confine =
        limits.confine ? limits.confine(command.front()) : std::function<void()>();
    output_ = memfd_create("output", MFD_CLOEXEC);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (output_ < 0 || nothing < 0)
        throw CannotRun(std::string("cannot start a process: ") + std::strerror(errno));

    const pid_t parent = getpid();
    forks_to_start_a_program = true;
    child_ = fork();
    if (child_ == 0) {
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(126);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        dup2(nothing, STDIN_FILENO);
        dup2(output_, STDOUT_FILENO);
        dup2(output_, STDERR_FILENO);
        if (socket >= 0) {
            dup2(socket, 3);
            fcntl(3, F_SETFD, 0);
        }
        syscall(SYS_close_range, socket >= 0 ? 4 : 3, ~0u, 1u << 2);  // CLOSE_RANGE_CLOEXEC
        limit(RLIMIT_CPU, limits.cpu_s);
        limit(RLIMIT_AS, limits.memory);
        limit(RLIMIT_FSIZE, limits.file_bytes > most_output ? limits.file_bytes : most_output);
        limit(RLIMIT_CORE, 0);
        limit(RLIMIT_NOFILE, 256);
        if (confine) confine();
        execvpe(arguments[0], arguments.data(), environment.data());
        _exit(127);
    }
    forks_to_start_a_program = false;
    close(nothing);
    if (child_ < 0) {
        close(output_);
        throw CannotRun(std::string("cannot start a process: ") + std::strerror(errno));
    }
}

LimitedProcess::~LimitedProcess() {
    if (child_ > 0) wait(0);
    close(output_);
}

std::string LimitedProcess::wait(double limit_s) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = std::min<Clock::time_point>(
        deadline_,
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s)));
    if (child_ <= 0) return "it has ended";
    // WNOWAIT: as long as the process is not reaped, no other can have its number.
    siginfo_t info{};
    bool ended = false;
    for (auto pause = std::chrono::microseconds(200);;) {
        info.si_pid = 0;
        ended = waitid(P_PID, child_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
        if (ended || Clock::now() >= deadline) break;
        std::this_thread::sleep_for(pause);
        if (pause < std::chrono::milliseconds(10)) pause *= 2;
    }
    kill(-child_, SIGKILL);  // and all that it started
    kill(child_, SIGKILL);   // before it had a session of its own
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    if (!ended && deadline == deadline_) return "the time for all is over";
    if (!ended) return fmt::format("it did not end within {:g} s", limit_s);
    if (WIFEXITED(status)) {
        const int code = WEXITSTATUS(status);
        return code == 0 ? "" : fmt::format("exit code {}", code);
    }
    switch (WTERMSIG(status)) {
        case SIGSEGV:
        case SIGBUS:
            return "a segmentation fault";
        case SIGILL:  // what -fsanitize=bounds makes of it
            return "an index outside of an array, or another illegal instruction";
        case SIGXFSZ:
            return "it wrote more than it may";
        case SIGXCPU:
            return "it was stopped: too much processor time";
        case SIGKILL:
            return "it was killed: too much memory or processor time";
        default:
            return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
}

bool LimitedProcess::running() const {
    siginfo_t info{};
    return child_ > 0 && std::chrono::steady_clock::now() < deadline_ &&
           waitid(P_PID, child_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

double LimitedProcess::processor_s() const {
    clockid_t clock{};
    timespec used{};
    if (child_ <= 0 || clock_getcpuclockid(child_, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::string LimitedProcess::output() const {
    std::string text(most_output, '\0');
    const ssize_t n = pread(output_, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
}

}  // namespace ladder
