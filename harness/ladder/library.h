/// @file
/// From a stage's kernel.cu to a stage that runs: each kernel is compiled by itself, into a shared library
/// for one back-end, when it is first needed. The ladder's stages and anybody's own go the same way.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/base/limited_process.h"
#include "harness/base/progress.h"
#include "stages/stage.h"

namespace ladder {

/// What of a source file becomes which library.
struct Compilation {
    std::filesystem::path source;
    std::string recipe;            ///< a back-end's name, or another entry of BUILD/kernels.json
    std::filesystem::path folder;  ///< of the products: RECIPE.so and what belongs to it

    std::filesystem::path library() const { return folder / (recipe + ".so"); }
    std::filesystem::path object() const { return folder / (recipe + ".o"); }
};

/// The compilation of a source in a stage's or a user's own folder, with its products in the build folder.
Compilation compilation_of(const std::filesystem::path& source, const std::string& recipe);
/// The same of a stage's kernel for a back-end.
Compilation compilation_of(const Stage& stage, Backend backend);

/// Compiles as many at once as this machine has cores. A library that is newer than its command and
/// everything that its source includes is kept. Returns for each what the compiler said if it failed, or else
/// nothing. Throws CannotRun if this build has not the recipe, or its compiler or a place for the library is
/// missing.
std::vector<std::string> compile(const std::vector<Compilation>& compilations, const Limits& limits,
                                 const OnStep& on_step = {});

/// Limits of a compiler: enough for any kernel.
Limits compiler_limits();

/// What a compiler of a kernel reads in addition to the kernel and the system's own folders: the CUDA layer,
/// precompiled headers, and where the compiler is none of the system's, its folder: /opt/gcc for
/// /opt/gcc/bin/g++.
std::vector<std::filesystem::path> read_by_compilers();

/// The files that a compilation has read, but for the system's: by the compiler's own list.
std::vector<std::filesystem::path> included_files(const Compilation& compilation);

/// A report, and below it the lines of the kernel that it names as "kernel.cu:12": in them stand the names of
/// the arrays, of which the back-end knows the bytes alone.
std::string with_named_lines(const std::string& report, const std::filesystem::path& kernel);

/// Whether this build compiles for the back-end; not whether the machine has it.
bool has_recipe(const std::string& recipe);

/// Compiles what is not up to date of these stages' libraries, all at once, and shows how far it is. Throws
/// CheckFailed with what the compiler said.
void compile_stages(const std::vector<const Stage*>& stages, Backend backend, const OnStep& on_step);

/// The stage with its functions, from its library for this back-end, compiled first if need be. Itself if it
/// has them already. A library that was damaged since it was made is made again. Throws CheckFailed if it
/// does not compile, or is not what its declaration says.
const Stage& load_stage(const Stage& stage, Backend backend);

/// The stage that a library holds. The library stays loaded, since the stage's functions are in it. Throws
/// CheckFailed if it holds not exactly one, or cannot be loaded.
Stage load_library(const std::filesystem::path& library);

}  // namespace ladder
