/// @file
/// Runs a program that may use only so much: a compiler, or a kernel that runs by itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ladder {

/// What a process may use, by the kernel's resource limits.
struct Limits {
    unsigned cpu_s = 120;                      ///< seconds of processor time
    std::size_t memory = 3ull << 30;           ///< bytes of address space, of each process
    std::size_t file_bytes = 0;                ///< largest file that it may write
    std::filesystem::path temporary = "/tmp";  ///< TMPDIR
    /// By the clock: when it is ended. For several processes that share their time.
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    /// What else keeps it in, if anything does. It is called with the program's name before the process is
    /// made, and returns what the process calls last, which must allocate nothing and may _exit(126).
    std::function<std::function<void()>(const std::string& program)> confine;
};

/// The most bytes that a LimitedProcess keeps of what the program writes.
inline constexpr std::size_t most_output = 1 << 20;

/// Whether this thread is about to start a program by fork(): what others have pthread_atfork() do is for
/// children that go on with this program's memory.
inline thread_local bool forks_to_start_a_program = false;

/// A process with limits, in a session of its own, which ends with its owner. Standard input is empty,
/// output and errors are kept up to a size. Of the environment it gets only what it needs to start.
class LimitedProcess {
  public:
    /// `socket`: a descriptor that it gets as number 3; -1 for none. Throws CannotRun if it cannot be
    /// started, and what `limits.confine` throws.
    LimitedProcess(const std::vector<std::string>& command, const Limits& limits, int socket = -1);
    LimitedProcess(const LimitedProcess&) = delete;
    LimitedProcess& operator=(const LimitedProcess&) = delete;
    ~LimitedProcess();

    /// Waits at most so many seconds, then ends it and all that it started. Returns how it ended, in words:
    /// "" for exit code 0, "exit code 3", "a segmentation fault", "it did not end within 20 s".
    std::string wait(double limit_s);

    /// Whether it has not ended by itself yet, and may go on.
    bool running() const;

    /// Seconds of processors that it has used so far, without those of what it started. 0 once it has ended.
    double processor_s() const;

    /// What it wrote so far.
    std::string output() const;

  private:
    pid_t child_ = 0;
    int output_ = -1;
    std::chrono::steady_clock::time_point deadline_;
};

}  // namespace ladder
