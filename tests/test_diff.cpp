// The size of a lesson: kernels fit on a few screens, and each changes little of its parent.

#include "harness/base/file.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"
#include "harness/time/results.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/catch.h"
#include "tests/folder.h"

using namespace ladder;

namespace {

int count_lines(const std::string& text) {
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
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
    "every kernel is there and fits in 300 lines, those of the 10s, 30s and 40s in 400, 38, 39, Hopper's "
    "gradients and those of the 60s and from 85 on in 500, 68, 69, 97 and 98 and the 80s in 560, 83, which "
    "has 39's kernels and the line of 80, in 640, those of the 70s, which quantize first, in 680",
    "[diff]") {
    REQUIRE(!stages().empty());
    for (const Stage& stage : stages()) {
        CAPTURE(stage.folder());
        REQUIRE(std::filesystem::exists(stage.source));
        const int part = part_of(stage.number);
        // 16 and 17 share out key tiles and merge parts, in one kernel, 38 and 39 in two; 68, 69, 97 and 98
        // have 55's parts, and windows, documents, column bounds, dropout or lists of tiles.
        const bool merges_in_two = stage.number == 38 || stage.number == 39;
        const bool has_parts =
            stage.number == 68 || stage.number == 69 || stage.number == 97 || stage.number == 98;
        const int most = has_parts                                                               ? 560
                         : part == 0 || part == 20                                               ? 300
                         : part == 50 || part == 60 || part == 85 || part == 95 || merges_in_two ? 500
                         : stage.number == 83                                                    ? 640
                         : part == 80                                                            ? 560
                         : part == 70                                                            ? 680
                         : stage.number == 16 || stage.number == 17                              ? 420
                                                                                                 : 400;
        const std::string own = read_file(stage.source);  // what another stage's folder has counts there
        const bool has_all = own.find("#include \"stages/" + stage.folder()) != own.npos;
        CHECK(count_lines(has_all ? kernel_text(stage) : own) <= most);
    }
}

TEST_CASE("diff: a kernel is one text with what it includes of a stage's folder", "[diff]") {
    const std::string line = "#include \"stages/85_ring/partial_attention.cuh\"\n";
    const Stage& ring = *find_stage(85);
    const std::string own = read_file(ring.source);
    const std::string included = read_file(source_folder() / "stages/85_ring/partial_attention.cuh");
    const std::string code = included.substr(included.find("\n\n") + 2);  // without its first comment
    std::string whole = own;
    REQUIRE(own.find(line) != own.npos);
    CHECK(kernel_text(ring) == whole.replace(own.find(line), line.size(), code));
    // Those that share it differ in what is theirs; each fingerprint is of all of it.
    CHECK(diff_kernels(ring, *find_stage(86)).find("merge_rows") == std::string::npos);
    CHECK(kernel_fingerprint("85_ring") == code_fingerprint(whole.substr(0, whole.rfind("LADDER_STAGE("))));
    const test::Folder folder;  // and what is no such file stays a line, for the compiler to refuse
    const std::string strange =
        "#include \"stages/85_ring/../../README.md\"\n#include \"stages/85_ring/none.cuh\"\n";
    folder.write("kernel.cu", strange);
    CHECK(kernel_text(folder / "kernel.cu") == strange);
}

TEST_CASE("diff: a line that moves to the right is no change", "[diff]") {
    const std::string before = "for (;;)\n  f();\n", after = "if (x)\n  for (;;)\n    f();\n";
    CHECK(count_changed_lines(diff_texts(before, "a", after, "b")) == 3);
    CHECK(count_changed_lines(diff_texts(before, "a", after, "b", "-uw")) == 1);
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
    // FlashAttention-1, the first rungs for long queries, of Hopper, of its gradients, of FP8, for several
    // GPUs and of gradients there, of lists of tiles on Hopper, and 41 are kernels of their own; 80 has
    // another schedule; 83 brings it to Hopper; 06, 38, 62, 96 and 98 bring a second one; 37 copies rows of a
    // group without a tensor map; 57 is a fork for d = 256; 91 brings back what a change removed.
    const std::map<int, int> budgets{
        {1, 0},  {20, 0}, {30, 0},  {41, 0},   {50, 0},   {57, 0},   {70, 0},   {80, 0},   {83, 0},  {85, 0},
        {88, 0}, {95, 0}, {6, 120}, {37, 100}, {38, 180}, {62, 110}, {96, 180}, {98, 140}, {91, 100}};
    for (const Stage& stage : stages()) {
        CAPTURE(stage.folder());
        if (stage.parent < 0) continue;
        CHECK(stage.diff_budget == (budgets.contains(stage.number) ? budgets.at(stage.number) : 80));
    }
}
