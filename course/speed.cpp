#include "course/speed.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "course/fence/sandbox.h"
#include "course/fence/screen.h"
#include "harness/base/built.h"
#include "harness/device/device_problem.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/time/timing.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

constexpr double time_limit_s = 300;

bool is_yours(const Row& row) {
    return row.folder.ends_with("_yours");
}

/// The line that says most: the first one with an error, or else the last.
std::string telling_line(const std::string& text) {
    std::istringstream lines(text);
    std::string last;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("error") != line.npos) return line;
        if (!line.empty()) last = line;
    }
    return last.starts_with("lab: ") ? last.substr(5) : last;
}

/// Where the change should show. A T4 has no bf16, and shared memory for d = 64 alone: there it is fp16, and
/// two heads of 64 in the place of each of 128.
std::vector<std::string> problems(const Exercise& exercise, int compute_capability) {
    if (compute_capability >= 80) return {"--regime", exercise.shows_in};
    const Case problem = timing_options(DType::fp16, exercise.shows_in).cases.front().problem;
    const Shape& s = problem.shape;
    const int heads = s.d / 64;
    std::vector<std::string> words{
        "--dtype", "fp16", "--shape",
        fmt::format("{},{},{},{},{},64", s.B, s.H * heads, s.Hkv * heads, s.Nq, s.Nk)};
    if (problem.causal) words.emplace_back("--causal");
    return words;
}

/// The library of the kernel. Throws CannotRun if there cannot be one.
fs::path build_library(const fs::path& kernel, const fs::path& products, bool untrusted) {
    const Compilation c{kernel, name(Backend::gpu), products};
    Limits limits = compiler_limits();
    if (untrusted) {
        const std::size_t memory = limits.memory;  // of which nvcc takes more than a CPU's compiler
        limits = sandboxed_compiler_limits(kernel, products);
        limits.memory = memory;
    }
    const std::string errors = compile({c}, limits).front();
    if (!errors.empty()) throw CannotRun("nvcc does not compile it: " + telling_line(errors));
    // The CPU's objects do not show what the source calls on a GPU alone.
    if (const auto foreign = screen_compiled({c}, Backend::gpu); untrusted && !foreign.empty())
        throw CannotRun(foreign.front());
    return c.library();
}

Results measure(const Exercise& exercise, const fs::path& kernel, const fs::path& products, bool untrusted,
                const OnStep& on_step) {
    const auto gpu = open_device(Backend::gpu);
    if (const std::string why = gpu->why_not(read_declaration(kernel)); !why.empty()) throw CannotRun(why);
    on_step("compile for the GPU", 0, 2);
    // The libraries of the other stages: the sandbox, in which lab times an untrusted kernel, cannot write
    // them.
    gpu->ready(parent_of(exercise));
    if (exercise.solved_here) gpu->ready(*find_stage(exercise.number));
    if (exercise.pass == Pass::backward) {  // which starts from the O and L of another stage
        for (const int d : exercise.head_dims) {
            Case problem{.shape = {.d = d}};
            if (const Regime* regime = regime_named(exercise.shows_in))
                problem.features = regime->problems[0].features;
            if (const Stage* forward = last_forward(*gpu, problem)) gpu->ready(*forward);
        }
    }
    const fs::path library = build_library(kernel, products, untrusted), folder = products / "timed",
                   file = folder / "time.json", lab = built_in + std::string("/lab");
    fs::remove_all(folder);
    fs::create_directory(folder);
    if (untrusted) fs::permissions(folder, fs::perms::all);  // for the other user that it runs as

    Limits limits;
    limits.cpu_s = 2 * static_cast<unsigned>(time_limit_s);
    limits.memory = std::numeric_limits<std::size_t>::max();  // CUDA reserves addresses for all there is
    limits.file_bytes = std::size_t{1} << 28;
    if (untrusted) {
        Sandbox sandbox{.calls = Calls::cuda,
                        .as_nobody = true,
                        .readable = read_by_compilers(),  // by which lab knows a library as up to date
                        .writable = {folder}};
        for (const fs::path& path : {source_folder(), lab.parent_path(), products})
            sandbox.readable.push_back(path);
        limits.confine = sandbox;
    }
    limits.temporary = folder;
    std::vector<std::string> command{lab.string(),     "time",   std::to_string(exercise.parent),
                                     library.string(), "--json", file.string()};
    if (exercise.solved_here) command.push_back(std::to_string(exercise.number));
    for (const std::string& word : problems(exercise, gpu->compute_capability())) command.push_back(word);
    on_step("time next to " + parent_of(exercise).folder(), 1, 2);
    LimitedProcess process(command, limits);
    const std::string how_it_ended = process.wait(time_limit_s);
    if (fs::is_regular_file(fs::symlink_status(file))) return load_results(file);
    if (how_it_ended == "exit code 127" || how_it_ended == "exit code 126")
        throw CannotRun(fmt::format("{} does not start{}", lab.string(), untrusted ? " as nobody" : ""));
    const std::string said = how_it_ended.starts_with("exit code") ? telling_line(process.output()) : "";
    throw CannotRun(!said.empty() ? said : how_it_ended.empty() ? "it ended without a result" : how_it_ended);
}

}  // namespace

bool Speed::wrong() const {
    if (!results) return false;
    return std::any_of(results->rows.begin(), results->rows.end(),
                       [](const Row& row) { return is_yours(row) && row.timing && !row.verified; });
}

std::optional<double> Speed::over_parent() const {
    if (!results) return std::nullopt;
    double logarithms = 0;
    int count = 0;
    for (const Row& row : results->rows) {
        if (!is_yours(row)) continue;
        if (!row.over_parent) return std::nullopt;
        logarithms += std::log(*row.over_parent);
        count += 1;
    }
    return count == 0 ? std::nullopt : std::optional(std::exp(logarithms / count));
}

Speed time_student(const Exercise& exercise, const fs::path& kernel, const fs::path& products, bool untrusted,
                   const OnStep& on_step) {
    try {
        return {measure(exercise, kernel, products, untrusted, on_step), ""};
    } catch (const std::runtime_error& reason) {
        return {std::nullopt, telling_line(reason.what())};
    }
}

}  // namespace ladder
