/// @file
/// Runs untrusted code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/limited_process.h"

namespace ladder {

/// What a process in the sandbox may call of the system.
enum class Calls : std::uint8_t {
    kernel,  ///< a closed list: memory, files that it may read; no process, no thread, nothing that is
             ///< written
    tools,   ///< a closed list: what compilers, linkers and binutils need, processes and files among it
    cuda     ///< what a CUDA driver needs: all but a list
};

/// What a LimitedProcess may do, where it is its Limits' `confine`. No privileges can be gained
/// (no_new_privs), Landlock closes all files but those named, and what else the running version knows
/// (network, devices, signals), and seccomp all system calls but a list. Where one of the two is missing the
/// other has to do: ask missing_in_sandbox() first.
struct Sandbox {
    Calls calls = Calls::tools;
    bool as_nobody = false;                            ///< where this program is root: run as another user
    std::vector<std::filesystem::path> readable = {};  ///< in addition to the system's own folders
    std::vector<std::filesystem::path> writable = {};

    /// Throws CannotRun if seccomp does not work.
    std::function<void()> operator()(const std::string& program) const;
};

/// Bytes of memory that each of the two processes which compile an untrusted kernel may use.
inline constexpr std::size_t sandboxed_compiler_memory = std::size_t{1} << 30;

/// Limits of a compiler of `kernel`, which is not trusted, in `folder`: tighter, and in the sandbox,
/// where it reads the kernel and the CUDA layer and no other source.
Limits sandboxed_compiler_limits(const std::filesystem::path& kernel, const std::filesystem::path& folder);

/// Lets the sandbox's other user go through a folder, and no further user: they can use what they know to be
/// there.
void let_sandbox_through(const std::filesystem::path& folder);

/// What of the sandbox this machine has, in words: "resource limits, seccomp, Landlock 7, another user
/// (nobody)".
std::string describe_sandbox();

/// What the sandbox needs and this machine has not, in words; empty if it has all.
std::string missing_in_sandbox();

}  // namespace ladder
