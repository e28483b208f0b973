/// @file
/// What a kernel may contain: only what kernels need. Not for style: code that can reach past the CUDA layer
/// could tell the counters and the race checker what to say.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// What the source has that no kernel needs, one line each ("line 12: #include of cstdio: ..."); empty if
/// nothing.
std::vector<std::string> screen_source(const std::string& source);

/// The same for compiled objects, which cannot hide what they call: functions from outside the CUDA layer
/// that they use, and names that they define for others. Of Backend::gpu it is the host's side of what nvcc
/// made, and only what it uses: it defines what the CPU's objects do. Throws CannotRun if there is no nm.
std::vector<std::string> screen_objects(const std::vector<std::filesystem::path>& objects, Backend backend);

}  // namespace ladder
