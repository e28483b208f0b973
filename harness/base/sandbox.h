/// @file
/// Runs code that nobody vouches for.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ladder {

/// What a process may use. All but the sandbox are the kernel's resource limits.
struct Limits {
    unsigned cpu_s = 120;             ///< seconds of processor time
    std::size_t memory = 3ull << 30;  ///< bytes of address space
    std::size_t file_bytes = 0;       ///< largest file that it may write
    bool sandbox = false;             ///< see SandboxedProcess
    bool as_nobody = false;           ///< in the sandbox, where this program is root: run as another user
    bool gpu = false;                 ///< in the sandbox: CUDA works
    std::vector<std::filesystem::path> readable;  ///< in the sandbox, beside the system's own folders
    std::vector<std::filesystem::path> writable;  ///< in the sandbox
    std::filesystem::path temporary = "/tmp";     ///< TMPDIR
};

/// What of the sandbox this machine has, in words: "seccomp, Landlock, another user".
std::string describe_sandbox();

/// A process with limits, in a process group of its own, which ends with its owner. Standard input is empty,
/// output and errors are kept up to a size.
///
/// In the sandbox it also cannot reach the network, other processes or any file but those named: no
/// privileges can be gained (no_new_privs), Landlock closes the file system, seccomp the system calls that
/// kernels have no use for.
class SandboxedProcess {
  public:
    /// `socket`: a descriptor that it gets as number 3; -1 for none. Throws CannotRun if it cannot be
    /// started, or if the sandbox is asked for and not to be had.
    SandboxedProcess(const std::vector<std::string>& command, const Limits& limits, int socket = -1);
    SandboxedProcess(const SandboxedProcess&) = delete;
    SandboxedProcess& operator=(const SandboxedProcess&) = delete;
    ~SandboxedProcess();

    /// Waits at most so many seconds, then ends it and all that it started. Returns how it ended, in words:
    /// "" for exit code 0, "exit code 3", "a segmentation fault", "it did not end within 20 s".
    std::string wait(double limit_s);

    /// Whether it has not ended by itself yet.
    bool running() const;

    /// What it wrote so far.
    std::string output() const;

  private:
    pid_t child_ = 0;
    int output_ = -1;
};

}  // namespace ladder
