/// @file
/// Runs code that nobody vouches for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ladder {

/// What a process in the sandbox may call of the system.
enum class Calls : std::uint8_t {
    kernel,  ///< a closed list: memory, files that it may read; no process, no thread, nothing that is
             ///< written
    tools,   ///< a closed list: what compilers, linkers and binutils need, processes and files among it
    cuda     ///< what a CUDA driver needs: all but a list
};

/// What a process may use. All but the sandbox are the kernel's resource limits.
struct Limits {
    unsigned cpu_s = 120;             ///< seconds of processor time
    std::size_t memory = 3ull << 30;  ///< bytes of address space, of each process
    std::size_t file_bytes = 0;       ///< largest file that it may write
    bool sandbox = false;             ///< see SandboxedProcess
    bool as_nobody = false;           ///< in the sandbox, where this program is root: run as another user
    Calls calls = Calls::tools;       ///< in the sandbox
    std::vector<std::filesystem::path> readable;  ///< in the sandbox, beside the system's own folders
    std::vector<std::filesystem::path> writable;  ///< in the sandbox
    std::filesystem::path temporary = "/tmp";     ///< TMPDIR
    /// By the clock, when whoever waits for it ends it. For several processes that share their time.
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

/// Lets the sandbox's other user go through a folder, and nobody else: they can use what they know to be
/// there.
void let_sandbox_through(const std::filesystem::path& folder);

/// What of the sandbox this machine has, in words: "resource limits, seccomp, Landlock 7, another user
/// (nobody)".
std::string describe_sandbox();

/// What the sandbox needs and this machine has not, in words; empty if it has all.
std::string missing_in_sandbox();

/// Whether this thread is about to start a program by fork(): what others have pthread_atfork() do is for
/// children that go on with this program's memory.
inline thread_local bool forks_to_start_a_program = false;

/// A process with limits, in a session of its own, which ends with its owner. Standard input is empty,
/// output and errors are kept up to a size.
///
/// In the sandbox no privileges can be gained (no_new_privs), Landlock closes all files but those named, and
/// what else the running version knows (network, devices, signals), and seccomp all system calls but a list.
/// Where one of the two is missing the other has to do: ask missing_in_sandbox() first.
class SandboxedProcess {
  public:
    /// `socket`: a descriptor that it gets as number 3; -1 for none. Throws CannotRun if it cannot be
    /// started, or if seccomp does not work.
    SandboxedProcess(const std::vector<std::string>& command, const Limits& limits, int socket = -1);
    SandboxedProcess(const SandboxedProcess&) = delete;
    SandboxedProcess& operator=(const SandboxedProcess&) = delete;
    ~SandboxedProcess();

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

/// What a program of binutils says of a file that nobody vouches for, in the sandbox; the file's name comes
/// behind the words of the command. Throws CannotRun if the program is not there, and CheckFailed if the file
/// makes it fail, take long or say more than it may.
std::string inspect(std::vector<std::string> command, const std::filesystem::path& file);

}  // namespace ladder
