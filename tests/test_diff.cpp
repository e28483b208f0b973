// The size of a lesson: kernels fit on a few screens, and each changes little of its parent.

#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"

#include <fstream>
#include <map>

#include "tests/catch.h"
#include "tests/folder.h"

using namespace ladder;

namespace {

int count_lines(const std::filesystem::path& path) {
    std::ifstream file(path);
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
}

}  // namespace

TEST_CASE("diff: added and changed lines are counted once, and headers not at all", "[diff]") {
    CHECK(count_changed_lines("") == 0);
    CHECK(count_changed_lines("--- a\n+++ b\n@@ -1,3 +1,4 @@\n same\n-old\n+new\n+++ counts too\n") == 2);
    CHECK(count_changed_lines("--- a\n+++ b\n@@ -1 +0,0 @@\n-gone\n") == 0);
}

TEST_CASE("diff: colour marks added, removed and position lines", "[diff]") {
    const std::string diff = "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n";
    const std::string coloured = colour_diff(diff);
    CHECK(coloured.find("\x1b[31m-old\x1b[0m\n") != std::string::npos);
    CHECK(coloured.find("\x1b[32m+new\x1b[0m\n") != std::string::npos);
    CHECK(coloured.find("\n same\n") != std::string::npos);
}

TEST_CASE(
    "every kernel is there and fits in 300 lines, those of the 10s, 30s and 40s in 400, Hopper's gradients "
    "and those of the 60s and 80s in 500, those of the 70s, which quantize first, in 600",
    "[diff]") {
    REQUIRE(!stages().empty());
    for (const Stage& stage : stages()) {
        CAPTURE(stage.folder());
        REQUIRE(std::filesystem::exists(kernel_path(stage)));
        const int part = part_of(stage.number);
        // 16 and 17 share out key tiles and merge parts, in one kernel.
        const int most = part == 0 || part == 20                    ? 300
                         : part == 50 || part == 60 || part == 80   ? 500
                         : part == 70                               ? 600
                         : stage.number == 16 || stage.number == 17 ? 420
                                                                    : 400;
        CHECK(count_lines(kernel_path(stage)) <= most);
    }
}

TEST_CASE("diff: a line that moves to the right is no change", "[diff]") {
    const test::Folder folder;
    folder.write("a", "for (;;)\n  f();\n");
    folder.write("b", "if (x)\n  for (;;)\n    f();\n");
    CHECK(count_changed_lines(diff_files(folder / "a", "a", folder / "b", "b")) == 3);
    CHECK(count_changed_lines(diff_files(folder / "a", "a", folder / "b", "b", "-uw")) == 1);
}

TEST_CASE("every stage keeps its diff budget against its parent", "[diff]") {
    int bounded = 0;
    for (const Stage& stage : stages()) {
        if (stage.parent < 0) continue;
        CAPTURE(stage.folder());
        const Stage* parent = find_stage(stage.parent);
        REQUIRE(parent != nullptr);
        const int changed = count_changed_lines(*parent, stage);
        CHECK(changed > 0);
        if (stage.diff_budget == 0) continue;
        ++bounded;
        CHECK(changed <= stage.diff_budget);
    }
    CHECK(bounded > 0);
}

TEST_CASE("the budgets are the design's", "[diff]") {
    // FlashAttention-1, the first rungs for long queries, of Hopper, of its gradients and of FP8, and 41 are
    // kernels of their own; 80 has another schedule; 06 and 62 bring a second one; 57 is a fork for d = 256;
    // 91 brings back what a change removed.
    const std::map<int, int> budgets{{1, 0},  {20, 0}, {30, 0}, {41, 0},  {50, 0},   {57, 0},
                                     {70, 0}, {80, 0}, {6, 120}, {62, 110}, {91, 100}};
    for (const Stage& stage : stages()) {
        CAPTURE(stage.folder());
        if (stage.parent < 0) continue;
        CHECK(stage.diff_budget == (budgets.contains(stage.number) ? budgets.at(stage.number) : 80));
    }
}
