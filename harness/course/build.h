/// @file
/// Compiles one kernel that is not of the ladder: into a program that runs it on the CPU, or for a GPU.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/course/sandbox.h"
#include "stages/stage.h"

namespace ladder {

/// What came of it.
struct StudentBuild {
    std::filesystem::path product;  ///< the program or the library; empty if it failed
    std::vector<std::filesystem::path> objects;
    std::string errors;  ///< what the compiler said, without the noise
};

/// Compiles `kernel` for these CPU back-ends and links it with the runner, all in `folder`, which must exist.
/// What was built there from the same source is kept. Throws CannotRun if this machine has no compiler any
/// more.
StudentBuild build_student(const std::filesystem::path& kernel, const std::filesystem::path& folder,
                           const Limits& limits,
                           const std::vector<Backend>& backends = {Backend::cpu, Backend::checked});

/// The same with nvcc, for GPUs of one architecture (90 for sm_90): a library for load_stage(). Throws
/// CannotRun if this build is without nvcc, or nvcc is gone.
StudentBuild build_student_for_gpu(const std::filesystem::path& kernel, const std::filesystem::path& folder,
                                   int architecture, const Limits& limits);

/// Limits of a compiler: enough for any kernel.
Limits compiler_limits();

/// The same for one that compiles `kernel`, which nobody vouches for, in `folder`.
Limits sandboxed_compiler_limits(const std::filesystem::path& kernel, const std::filesystem::path& folder);

}  // namespace ladder
