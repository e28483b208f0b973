/// @file
/// What a kernel may contain: only what kernels need. Not for style: code that can reach past the CUDA layer
/// could tell the counters and the race checker what to say.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/ladder/library.h"
#include "stages/stage.h"

namespace ladder {

/// What the source has that no kernel needs, one line each ("line 12: #include <cstdio>: ..."); empty if
/// nothing.
///
/// It is read token by token. What could make a compiler read other tokens than these is refused by itself:
/// lines that are joined, digraphs and trigraphs, raw strings, control characters, letters beyond ASCII. So
/// it does not matter how a kernel spells an include, an asm or an attribute. All code is in one namespace
/// without a name, from where nothing of the layer's can be defined, specialized or replaced.
std::vector<std::string> screen_source(const std::string& source);

/// The same of what the compiler made of it, which cannot hide what it includes, calls and defines: files
/// other than the CUDA layer's, functions from outside it, names that the program which loads it has, and
/// divisions that are not counted. Of Backend::gpu it is the host's side of what nvcc made, and only what it
/// uses: the rest is as the CPU's. What cannot be looked into is refused, too. Throws CannotRun if binutils
/// are missing.
std::vector<std::string> screen_compiled(const std::vector<Compilation>& compilations, Backend backend);

}  // namespace ladder
