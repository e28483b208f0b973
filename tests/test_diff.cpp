// The size of a lesson: kernels fit on a few screens, and each changes little of its parent.

#include "harness/base/file.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"
#include "harness/time/results.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/cli.h"
#include "tests/folder.h"

using namespace ladder;
using namespace ladder::test;

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

TEST_CASE("every kernel is there and fits in the lines that its part allows, or in what it declares",
          "[diff]") {
    REQUIRE(!stages().empty());
    for (const Stage& stage : stages()) {
        CAPTURE(stage.folder());
        REQUIRE(std::filesystem::exists(stage.source));
        const std::string own = read_file(stage.source);  // what another stage's folder has counts there
        const bool has_all = own.find("#include \"stages/" + stage.folder()) != own.npos;
        const int allowed = part_of(stage).most_lines,
                  lines = count_lines(has_all ? kernel_text(stage) : own);
        CAPTURE(lines, allowed);
        if (stage.most_lines == 0) {
            CHECK(lines <= allowed);
            continue;
        }
        CHECK(lines > allowed);  // a limit of its own that it needs no more is to go
        CHECK(lines <= stage.most_lines);
        CHECK(std::regex_search(own, std::regex("[.]most_lines = [0-9]+,  // \\w+")));  // and says why
    }
}

TEST_CASE("the kernel that is read first has at most 60 lines of code", "[diff]") {
    const std::string source = read_file(test::named("scalar").source);
    std::istringstream kernel(source.substr(source.find("__global__")));
    int lines = 1;  // the template parameters before it
    for (std::string line; std::getline(kernel, line) && line != "}";)
        lines += !std::regex_match(line, std::regex(" *(//.*)?"));
    CHECK(lines > 40);
    CHECK(lines <= 60);
}

TEST_CASE("a part and a place in it follow from the pages and the number, or are declared", "[diff]") {
    const auto of = [](int number, int part = -1, int place = -1) {
        return Stage{.number = number, .part = part, .place = place};
    };
    REQUIRE(parts().size() > 2);
    for (std::size_t i = 0; i < parts().size(); ++i) {
        const Part &part = parts()[i], &before = parts()[i > 0 ? i - 1 : i];
        INFO(part.title);
        CHECK(part_of(of(part.first)).page == part.page);
        CHECK(part_of(of(part.first + 1)).page == part.page);
        if (i > 0) CHECK(part_of(of(part.first - 1)).page == before.page);
        CHECK(part_of(of(0, part.first)).page == part.page);
    }
    CHECK(reading_order(of(22)) < reading_order(of(23)));
    CHECK(reading_order(of(23, -1, 21)) < reading_order(of(22)));
    CHECK(reading_order(of(23, -1, 21)) < reading_order(of(21)));
    CHECK(reading_order(of(20)) < reading_order(of(23, -1, 21)));
    CHECK(stages().front().name == "scalar");  // a reader of the papers needs no other stage for it
    CHECK(reading_order(of(10)) < reading_order(of(2, 20)));
    CHECK((is_experiment(of(parts().front().first)) == false && is_core(of(parts().front().first))));
    for (std::size_t i = 1; i < stages().size(); ++i)
        CHECK(reading_order(stages()[i - 1]) < reading_order(stages()[i]));
    for (const Stage& stage : stages()) {
        INFO(stage.folder());
        if (const Stage* before = find_stage(stage.parent); before != nullptr) {
            CHECK(before < &stage);  // a reader knows it
            CHECK(!is_experiment(*before));
        }
    }
}

TEST_CASE("diff: a kernel is one text with what it includes of a stage's folder", "[diff]") {
    const Stage &ring = test::named("ring"), &zigzag = test::named("zigzag_ring");
    const std::string header = "stages/" + ring.folder() + "/partial_attention.cuh",
                      line = "#include \"" + header + "\"\n";
    const std::string own = read_file(ring.source), included = read_file(source_folder() / header);
    const std::string code = included.substr(included.find("\n\n") + 2);  // without its first comment
    std::string whole = own;
    REQUIRE(own.find(line) != own.npos);
    CHECK(kernel_text(ring) == whole.replace(own.find(line), line.size(), code));
    // Those that share it differ in what is theirs; each fingerprint is of all of it.
    CHECK(diff_kernels(ring, zigzag).find("merge_rows") == std::string::npos);
    CHECK(kernel_fingerprint(ring.folder()) ==
          code_fingerprint(whole.substr(0, whole.rfind("LADDER_STAGE("))));
    const test::Folder folder;  // and what is no such file stays a line, for the compiler to refuse
    const std::string none = "#include \"stages/" + ring.folder() + "/",
                      strange = none + "../../README.md\"\n" + none + "none.cuh\"\n";
    folder.write("kernel.cu", strange);
    CHECK(kernel_text(folder / "kernel.cu") == strange);
}

TEST_CASE("diff: a line that moves to the right is no change", "[diff]") {
    const std::string before = "for (;;)\n  f();\n", after = "if (x)\n  for (;;)\n    f();\n";
    CHECK(count_changed_lines(diff_texts(before, "a", after, "b")) == 3);
    CHECK(count_changed_lines(diff_texts(before, "a", after, "b", "-uw")) == 1);
}

TEST_CASE("every stage changes at most 80 lines of its parent, or what it declares", "[diff]") {
    int bounded = 0;
    for (const Stage& stage : stages()) {
        if (stage.parent < 0) continue;
        CAPTURE(stage.folder());
        const Stage* parent = find_stage(stage.parent);
        REQUIRE(parent != nullptr);
        const int changed = count_changed_lines(*parent, stage);
        CHECK(changed > 0);
        if (stage.diff_budget != Stage{}.diff_budget)
            CHECK(changed > 80);  // or it needs no budget of its own
        if (stage.diff_budget == 0) continue;
        ++bounded;
        CHECK(changed <= stage.diff_budget);
    }
    CHECK(bounded > 0);
    CHECK(Stage{}.diff_budget == 80);
}

TEST_CASE("lab diff: the lesson and its length", "[cli]") {
    const Folder folder;
    const ProcessResult own = lab({"diff", "4"});
    CHECK(own.status == 0);
    const std::string from = parent().folder(), to = child().folder();
    CHECK(own.out.find("--- " + from + "/kernel.cu\n+++ " + to + "/kernel.cu\n") == 0);
    CHECK(own.out.find(from + " -> " + to + ": ") != std::string::npos);
    CHECK(own.out.find(" lines added or changed, budget 80\n") != std::string::npos);
    CHECK(own.out.find('\x1b') == std::string::npos);
    CHECK(lab({"diff", "1", "5"}).out.find("--- " + folder_of("flash_attention_1")) == 0);
    const auto json = json_of(folder, {"diff", "3", "split_q"});
    CHECK(json["budget"] == 80);
    CHECK(json["changed_lines"] > 0);
}
