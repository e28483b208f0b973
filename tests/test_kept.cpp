// Verdicts that are kept: a change of anything that they were made of must be seen.

#include "harness/verify/kept.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "harness/base/built.h"
#include "harness/base/file.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "tests/catch.h"
#include "tests/folder.h"

using namespace ladder;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> of_mutants{"course", "tests/check_mutants.cpp"};

/// A copy of the sources, in which a line can be changed.
class Tree {
  public:
    Tree() {
        fs::create_directories(root());
        for (const char* name : {"CMakeLists.txt", "simt", "reference", "harness", "course", "stages"})
            fs::copy(source_folder() / name, root() / name, fs::copy_options::recursive);
        for (const char* name :
             {"tests/check_mutants.cpp", "docs/results.md", "python/README.md", "README.md"}) {
            fs::create_directories((root() / name).parent_path());
            std::ofstream(root() / name) << "a line\n";
        }
    }
    fs::path root() const { return folder_ / "tree"; }

    /// Whether another line in this file makes another key, which the line's removal takes back.
    bool sees(const std::string& file, const Stage& stage) const {
        const fs::path path = root() / file;
        REQUIRE(fs::exists(path));
        const std::string before = verdict_key(root(), stage, of_mutants), text = read_file(path);
        std::ofstream(path, std::ios::app) << "another\n";
        const bool seen = verdict_key(root(), stage, of_mutants) != before;
        std::ofstream(path) << text;
        CHECK(verdict_key(root(), stage, of_mutants) == before);
        return seen;
    }

  private:
    test::Folder folder_;
};

}  // namespace

TEST_CASE("kept: a line changed in any kind of source takes a verdict away, and in a page it does not",
          "[kept]") {
    const Tree tree;
    const Stage &stage = *find_stage(5), &other = *find_stage(3);
    const std::string own = "stages/" + stage.folder() + "/";
    for (const std::string& file : {own + "kernel.cu",
                                    own + "claims.cpp",
                                    own + "exercise.md",
                                    "stages/" + find_stage(stage.parent)->folder() + "/kernel.cu",
                                    std::string("stages/device.cuh"),
                                    std::string("stages/hopper.cuh"),
                                    std::string("stages/stage.h"),
                                    std::string("simt/instructions.cpp"),
                                    std::string("simt/half.h"),
                                    std::string("simt/CMakeLists.txt"),
                                    std::string("reference/attention.cpp"),
                                    std::string("harness/base/parallel.h"),
                                    std::string("harness/ladder/library.cpp"),
                                    std::string("harness/problem/inputs.cpp"),
                                    std::string("harness/problem/verification_cases.cpp"),
                                    std::string("harness/device/device_problem.cpp"),
                                    std::string("harness/verify/verdict.cpp"),
                                    std::string("harness/count/claims.cpp"),
                                    std::string("harness/commands/verify.cpp"),
                                    std::string("harness/CMakeLists.txt"),
                                    std::string("course/problems.cpp"),
                                    std::string("course/fence/remote_device.cpp"),
                                    std::string("tests/check_mutants.cpp")}) {
        INFO(file);
        CHECK(tree.sees(file, stage));
    }
    for (const std::string& file :
         {own + "README.md", std::string("docs/results.md"), std::string("python/README.md"),
          "stages/" + other.folder() + "/kernel.cu", std::string("harness/report/diff.cpp"),
          std::string("harness/time/timing.cpp")}) {
        INFO(file);
        CHECK_FALSE(tree.sees(file, stage));
    }
}

#ifdef LADDER_HAS_CPU
TEST_CASE("kept: whatever the compiler read for a kernel is a part of its key", "[kept]") {
    const Tree tree;
    const fs::path root = fs::weakly_canonical(source_folder());
    for (const Stage* stage : {find_stage(5), find_stage(stages().back().number)}) {
        const Compilation compilation = compilation_of(*stage, Backend::cpu);
        REQUIRE(compile({compilation}, compiler_limits()).front().empty());
        std::set<std::string> read{"stages/" + stage->folder() + "/kernel.cu"};
        for (const fs::path& file : included_files(compilation)) {
            const fs::path inside = fs::weakly_canonical(file).lexically_relative(root);
            if (fs::exists(tree.root() / inside)) read.insert(inside.string());
        }
        for (const std::string& file : read) {
            INFO(stage->folder() << " reads " << file);
            CHECK(tree.sees(file, *stage));
        }
    }
}

TEST_CASE("kept: a verdict holds once it was kept, for what it says alone", "[kept]") {
    const Stage& stage = *find_stage(0);
    const std::string what = "a test of what is kept";
    const KeptVerdict verdict(stage, what);
    fs::remove(verdict.file());
    CHECK_FALSE(verdict.holds());
    verdict.keep();
    CHECK(verdict.holds());
    // Of a program that was built of other sources than stand there now, too.
    CHECK(read_file(verdict.file()).find(built_of) != std::string::npos);
    CHECK(KeptVerdict(stage, what).holds());
    CHECK_FALSE(KeptVerdict(stage, what + ", in another order").holds());
    CHECK_FALSE(KeptVerdict(*find_stage(1), what).holds());
    CHECK_FALSE(KeptVerdict(stage, what, of_mutants).holds());
    fs::remove(verdict.file());
}
#endif
