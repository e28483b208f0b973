#include "harness/course/build.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/course/exercise.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// For a compiler that sleeps. What bounds one that works is its processor time (Limits), which does not
/// depend on what else the machine does.
constexpr double compile_limit_s = 1800;

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
    for (const std::string& word : more) {
        if (!word.empty()) words.push_back(word);
    }
}

/// The first errors of a compiler, with the file's name alone.
std::string first_errors(const std::string& said, const fs::path& kernel) {
    std::istringstream lines(said);
    std::string text;
    int count = 0;
    for (std::string line; std::getline(lines, line) && count < 24; ++count) {
        const std::string path = kernel.string();
        for (std::size_t at = line.find(path); at != line.npos; at = line.find(path, at + 1))
            line.replace(at, path.size(), kernel.filename().string());
        text += line + "\n";
    }
    return text;
}

bool newer(const fs::path& product, const std::vector<fs::path>& sources) {
    std::error_code error;
    const auto made = fs::last_write_time(product, error);
    if (error) return false;
    for (const fs::path& source : sources) {
        const auto written = fs::last_write_time(source, error);
        if (!error && written >= made) return false;
        error.clear();
    }
    return true;
}

/// How one kernel becomes a product.
struct Recipe {
    fs::path product;
    std::string linker;
    Words libraries;                                  ///< and the linker's options
    std::vector<std::pair<fs::path, Words>> objects;  ///< each with the command that makes it of the kernel
};

StudentBuild build(const fs::path& kernel, const Recipe& recipe, const Limits& limits) {
    StudentBuild build;
    for (const auto& [object, command] : recipe.objects) build.objects.push_back(object);
    const fs::path built = recipe.product.string() + ".cu";
    const std::string source = read_file(kernel);
    if (fs::exists(built) && read_file(built) == source &&
        newer(recipe.product, {recipe.libraries.begin(), recipe.libraries.end()})) {
        build.product = recipe.product;
        return build;
    }
    std::error_code ignored;
    fs::remove(recipe.product, ignored);

    std::vector<std::unique_ptr<SandboxedProcess>> compilers;
    for (const auto& [object, compile] : recipe.objects) {
        Words command = compile;
        append(command, {"-o", object.string(), "-c", kernel.string()});
        compilers.push_back(std::make_unique<SandboxedProcess>(command, limits));
    }
    for (const auto& compiler : compilers) {
        const std::string how_it_ended = compiler->wait(compile_limit_s);
        if (how_it_ended == "exit code 127") throw CannotRun("the compiler that lab was built with is gone");
        if (how_it_ended.empty() || !build.errors.empty()) continue;
        build.errors = first_errors(compiler->output(), kernel);
        if (!how_it_ended.starts_with("exit code")) build.errors += "the compiler: " + how_it_ended + "\n";
    }
    if (!build.errors.empty()) return build;

    Words command{recipe.linker, "-o", recipe.product.string()};
    for (const fs::path& object : build.objects) command.push_back(object.string());
    append(command, recipe.libraries);
    SandboxedProcess linker(command, limits);
    if (const std::string how_it_ended = linker.wait(compile_limit_s); !how_it_ended.empty()) {
        build.errors = first_errors(linker.output(), kernel) + how_it_ended + "\n";
        return build;
    }
    OutputFile(built).write(source);
    build.product = recipe.product;
    return build;
}

}  // namespace

Limits compiler_limits() {
    Limits limits;
    limits.memory = std::size_t{4} << 30;
    limits.file_bytes = std::size_t{1} << 28;
    return limits;
}

Limits sandboxed_compiler_limits(const fs::path& kernel, const fs::path& folder) {
    Limits limits = compiler_limits();
    limits.sandbox = true;
    limits.readable = {source_folder(), fs::path(LADDER_KERNEL_BUILD).parent_path(), kernel.parent_path()};
    // A compiler that is none of the system's has its parts beside it: /opt/gcc for /opt/gcc/bin/g++.
    const fs::path compiler = read_json(LADDER_KERNEL_BUILD).at("compiler").get<std::string>();
    const fs::path home = fs::weakly_canonical(compiler).parent_path().parent_path();
    if (home.has_relative_path()) limits.readable.push_back(home);
    limits.writable = {folder};
    limits.temporary = folder;
    return limits;
}

StudentBuild build_student(const fs::path& kernel, const fs::path& folder, const Limits& limits,
                           const std::vector<Backend>& backends) {
    const auto how = read_json(LADDER_KERNEL_BUILD);
    const auto compiler = how.at("compiler").get<std::string>();
    std::string program = "program";
    for (const Backend backend : backends) program += fmt::format("_{}", name(backend));
    Recipe recipe{folder / program, compiler, how.at("link").get<Words>(), {}};
    for (const Backend backend : backends) {
        Words command{compiler};
        append(command, how.at("compile").get<Words>());
        append(command, {"-pipe", "-fmax-errors=4", "-fdiagnostics-color=never",
                         "-fno-diagnostics-show-caret", fmt::format("-DLADDER_BACKEND={}", name(backend))});
        if (backend == Backend::checked) append(command, how.at("checked").get<Words>());
        // clang has neither option under these names
        if (how.at("compiler_id") != "GNU") {
            for (std::string& word : command) {
                if (word == "-fmax-errors=4") word = "-ferror-limit=4";
                if (word == "-fno-diagnostics-show-caret") word = "-fno-caret-diagnostics";
            }
        }
        recipe.objects.emplace_back(folder / fmt::format("{}.o", name(backend)), command);
    }
    return build(kernel, recipe, limits);
}

StudentBuild build_student_for_gpu(const fs::path& kernel, const fs::path& folder, int architecture,
                                   const Limits& limits) {
    if (!fs::exists(LADDER_GPU_BUILD)) throw CannotRun("this build has no nvcc");
    const auto how = read_json(LADDER_GPU_BUILD);
    Words command{how.at("compiler").get<std::string>()};
    append(command, how.at("compile").get<Words>());
    append(command, {"-DLADDER_BACKEND=gpu", fmt::format("-arch=sm_{}", architecture)});
    const fs::path product = folder / fmt::format("sm_{}.so", architecture);
    return build(kernel,
                 {product,
                  how.at("linker").get<std::string>(),
                  how.at("link").get<Words>(),
                  {{fs::path(product).replace_extension(".o"), command}}},
                 limits);
}

}  // namespace ladder
