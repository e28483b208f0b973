#include "harness/verify/kept.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <Eigen/Core>
#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "harness/base/built.h"
#include "harness/base/file.h"
#include "harness/ladder/ladder.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// Files that a compiler or a reader of mutants and exercises takes: no page, no picture.
bool decides(const fs::path& file) {
    static const std::set<std::string> kinds{".cpp", ".h", ".cu", ".cuh", ".txt"};
    return kinds.contains(file.extension().string()) || file.filename() == "exercise.md";
}

/// A file, or those of a folder and its folders.
void add(std::vector<fs::path>& files, const fs::path& path) {
    if (!fs::is_directory(path)) {
        files.push_back(path);
        return;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
        if (entry.is_regular_file() && decides(entry.path())) files.push_back(entry.path());
    }
}

std::string fingerprint_of(const fs::path& root, std::vector<fs::path> files) {
    std::sort(files.begin(), files.end());
    std::string text;
    for (const fs::path& file : files)
        text += fmt::format("{} {}\n", file.lexically_relative(root).string(),
                            fs::exists(file) ? text_fingerprint(read_file(file)) : "none");
    return text_fingerprint(text);
}

/// What all stages have in common.
std::string common_fingerprint(const fs::path& root, const std::vector<std::string>& more) {
    std::vector<fs::path> files;
    for (const char* path : {"CMakeLists.txt", "simt", "reference", "harness/CMakeLists.txt", "harness/base",
                             "harness/ladder", "harness/problem", "harness/device", "harness/verify",
                             "harness/count", "harness/commands/verify.cpp", "harness/commands/options.cpp",
                             "harness/commands/options.h", "harness/commands/arguments.cpp"})
        add(files, root / path);
    for (const std::string& path : more) add(files, root / path);
    for (const auto& entry : fs::directory_iterator(root / "stages")) {
        if (entry.is_regular_file() && decides(entry.path())) files.push_back(entry.path());
        if (!entry.is_directory()) continue;
        for (const auto& own : fs::directory_iterator(entry.path())) {  // kernels that stages share
            if (own.path().extension() == ".cuh") files.push_back(own.path());
        }
    }
    return fingerprint_of(root, files);
}

/// Its own and its parent's, with whose counts its own are compared.
std::string own_fingerprint(const fs::path& root, const Stage& stage) {
    std::vector<fs::path> files;
    add(files, root / "stages" / stage.folder());
    if (const Stage* parent = find_stage(stage.parent)) add(files, root / "stages" / parent->folder());
    return fingerprint_of(root, files);
}

}  // namespace

std::string verdict_key(const fs::path& root, const Stage& stage, const std::vector<std::string>& more) {
    return common_fingerprint(root, more) + own_fingerprint(root, stage);
}

KeptVerdict::KeptVerdict(const Stage& stage, const std::string& what, const std::vector<std::string>& more) {
    static std::map<std::vector<std::string>, std::string> common;  // of the tree, which no run changes
    const auto [place, is_new] = common.try_emplace(more);
    if (is_new) place->second = common_fingerprint(source_folder(), more);
    const std::string recipes = read_file(build_folder() / "kernels.json");
    key_ = fmt::format("{}{} {} {} {} {}.{}.{} {} {}", place->second, own_fingerprint(source_folder(), stage),
                       built_of, text_fingerprint(recipes), gnu_get_libc_version(), EIGEN_WORLD_VERSION,
                       EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION, __VERSION__, what);
    file_ = build_folder() / "kernels" / stage.folder() / (text_fingerprint(what) + ".passed");
}

bool KeptVerdict::holds() const {
    if (!fs::exists(file_) || read_file(file_) != key_) return false;
    std::ofstream(build_folder() / "kernels" / "kept.txt", std::ios::app) << file_.string() + "\n"
                                                                          << std::flush;
    return true;
}

void KeptVerdict::keep() const {
    fs::create_directories(file_.parent_path());
    OutputFile(file_).write(key_);
}

}  // namespace ladder
