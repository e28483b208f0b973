/// @file
/// The form of mutants, how they are applied, and that the program that holds them to their word does so.

#ifdef LADDER_HAS_CPU

#    include <algorithm>
#    include <functional>
#    include <string>

#    include "course/exercise.h"
#    include "course/mutants.h"
#    include "harness/base/file.h"
#    include "harness/base/process.h"
#    include "harness/report/diff.h"
#    include "stages/errors.h"
#    include "tests/catch.h"
#    include "tests/folder.h"

using namespace ladder;
using ladder::test::Folder;
namespace fs = std::filesystem;

namespace {

const std::string head =
    "Bug: adds twice\n"
    "Symptom: too much\n"
    "Difficulty: hard\n"
    "Hint: count\n"
    "Hint: count: twice\n"
    "Case: --shape 2,4,2,65,37,64 --causal --dtype bf16 --layout bnhd --input rising --seed 7 --scale -0.5\n"
    "Report: O is wrong ... every row\n";

const std::string kernel =
    "for (int i = 0; i < n; ++i) {\n"
    "    sum += load(a + i);  // of a\n"
    "    __syncthreads();\n"
    "}\n"
    "\n"
    "for (int i = 0; i < n; ++i) {\n"
    "    sum += load(b + i);\n"
    "    __syncthreads();\n"
    "}\n";

Mutant mutant_of(const std::string& text) {
    const Folder folder;
    return read_mutant(folder.write("some.txt", text));
}

Mutant with_body(const std::string& body) {
    return mutant_of(head + "\n" + body);
}

/// What is thrown; empty if nothing is.
std::string complaint(const std::function<void()>& f) {
    try {
        f();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

std::string without_line(std::string text, const std::string& start) {
    const std::size_t at = text.find(start);
    return text.erase(at, text.find('\n', at) + 1 - at);
}

}  // namespace

TEST_CASE("mutants: what is read is what is written") {
    const Mutant mutant = with_body("-    sum += load(b + i);\n+    sum += load(a + i);\n");
    CHECK(mutant.bug == "adds twice");
    CHECK(mutant.symptom == "too much");
    CHECK(mutant.report == "O is wrong ... every row");
    CHECK(mutant.difficulty == "hard");
    CHECK(mutant.hints == std::vector<std::string>{"count", "count: twice"});
    CHECK(description_of(mutant.problem) ==
          "B=2 H=4 Hkv=2 Nq=65 Nk=37 d=64 bf16 causal bnhd rising scale=-0.5 seed=7");
    REQUIRE(mutant.replacements.size() == 1);
    CHECK(mutant.replacements[0].from == "    sum += load(b + i);\n");
    CHECK(mutant.replacements[0].to == "    sum += load(a + i);\n");
}

TEST_CASE("mutants: a file that is none is refused, with its name and what is wrong") {
    const std::string body = "\n- a;\n+ b;\n";
    for (const std::string field : {"Bug", "Symptom", "Case", "Report"}) {
        CAPTURE(field);
        const std::string said = complaint([&] { mutant_of(without_line(head, field + ": ") + body); });
        CHECK(contains(said, "some.txt: "));
        CHECK(contains(said, field + ": "));
    }
    const auto complaint_about = [](const std::string& text) { return complaint([&] { mutant_of(text); }); };
    CHECK(complaint_about(head + body).empty());
    CHECK(contains(complaint_about(head + "Bug: another\n" + body), "Bug: another"));
    CHECK(contains(complaint_about(head + "Stage: 4\n" + body), "'Stage'"));
    CHECK(complaint_about(without_line(without_line(head, "Difficulty"), "Hint") + body).empty());
    CHECK(contains(complaint_about(without_line(head, "Difficulty") + "Difficulty: 3\n" + body),
                   "Difficulty: 3"));
    CHECK(contains(complaint_about(head + "no field\n" + body), "no field"));
    CHECK(contains(complaint_about(head), "replaces nothing"));
    CHECK(contains(complaint_about(head + "\n+ b;\n"), "where"));
    CHECK(contains(complaint_about(head + "\n- a;\nb;\n"), "b;"));
    for (const std::string options :
         {"--causal", "--shape 1,1,1", "--shape 1,1,1,1,1,64 --dtype fp8", "--shape 1,1,1,1,1,64 --seed",
          "--shape 1,1,1,1,1,64 --seed x", "--shape 1,1,1,1,1,64 --stage 4"}) {
        CAPTURE(options);
        CHECK(!complaint_about(without_line(head, "Case: ") + "Case: " + options + "\n" + body).empty());
    }
}

TEST_CASE("mutants: lines are replaced where they are, several times if need be") {
    const std::string wrong = wrong_kernel(kernel, with_body("-    sum += load(b + i);\n"
                                                             "+    sum += load(b);\n"
                                                             "+    sum += load(b + i);\n"
                                                             "\n"
                                                             "     sum += load(a + i);  // of a\n"
                                                             "-    __syncthreads();\n"));
    CHECK(wrong ==
          "for (int i = 0; i < n; ++i) {\n"
          "    sum += load(a + i);  // of a\n"
          "}\n"
          "\n"
          "for (int i = 0; i < n; ++i) {\n"
          "    sum += load(b);\n"
          "    sum += load(b + i);\n"
          "    __syncthreads();\n"
          "}\n");
}

TEST_CASE("mutants: lines are found however they are indented and broken") {
    const Mutant mutant = with_body("-sum+=load(a+i); // of a\n+sum += 2 * load(a + i);\n");
    CHECK(contains(wrong_kernel(kernel, mutant), "\nsum += 2 * load(a + i);\n    __syncthreads();\n"));
    CHECK(wrong_kernel("x;\nsum +=\n\n  load(a +\n  i);   // of a\ny;\n", mutant) ==
          "x;\nsum += 2 * load(a + i);\ny;\n");
}

TEST_CASE("mutants: lines must be there exactly once, and whole") {
    const auto complaint_about = [](const std::string& body) {
        return complaint([&] { wrong_kernel(kernel, with_body(body)); });
    };
    CHECK(contains(complaint_about("-    __syncthreads();\n"), "2 times, not once:\n    __syncthreads();\n"));
    CHECK(contains(complaint_about("-    sum += load(c + i);\n"), "0 times"));
    CHECK(contains(complaint_about("-    sum += load(a + i);\n"), "0 times"));  // a part of its line
    CHECK(contains(complaint_about("-    += load(b + i);\n"), "0 times"));
    CHECK(contains(
        complaint_about("-    sum += load(b + i);\n\n-    sum += load(b + i);\n-    __syncthreads();\n"),
        "another replacement"));
    // What a replacement brings is not what the next one looks for.
    CHECK(contains(complaint_about("-    sum += load(b + i);\n+ c;\n\n- c;\n"), "0 times"));
}

TEST_CASE("mutants: a report says its parts, in their order") {
    CHECK(says("O is wrong in 3 of 4\n  pattern: only row 7", "O is wrong ... only row 7"));
    CHECK(says("O is wrong", "is wrong"));
    CHECK(!says("only row 7: O is wrong", "O is wrong ... only row 7"));
    CHECK(!says("O is wrong", "O is wrong ... wrong"));
    CHECK(!says("", "O is wrong"));
    CHECK(says("deadlock in block 1", "race ... block | deadlock"));
    CHECK(!says("deadlock in block 1", "race ... block | deadlock ... count"));
}

TEST_CASE("mutants: each fits its kernel") {
    int mutants = 0;
    for (const Stage& stage : stages()) {
        const std::string right = kernel_text(stage);
        for (const fs::path& file : mutant_files(source_folder() / "stages" / stage.folder())) {
            mutants += 1;
            CAPTURE(file);
            CHECK(complaint([&] { CHECK(wrong_kernel(right, read_mutant(file)) != right); }).empty());
        }
    }
    CHECK(mutants > 70);
}

TEST_CASE("mutants: one that is not as it says fails, and no other", "[slow]") {
    const Folder folder;
    const Stage& stage = stages().front();
    const std::string root = stage.folder() + "/";
    fs::create_directories(folder / (root + "mutants"));
    folder.write(root + "kernel.cu", kernel_text(stage));
    const auto write = [&](const std::string& name, const std::string& report, const std::string& body) {
        folder.write(root + "mutants/" + name + ".txt",
                     "Bug: it\nSymptom: this\nCase: --shape 1,1,1,1,1,64\nReport: " + report + "\n\n" + body);
    };
    const std::string line = "    const float inverse_l = l == 0.0f ? 0.0f : divide(1.0f, l);\n";
    write("as_it_says", "O is wrong", "-" + line + "+    const float inverse_l = divide(2.0f, l);\n");
    write("for_another_reason", "race on shared memory",
          "-" + line + "+    const float inverse_l = 0.0f * l;\n");
    write("harmless", "O is wrong", "-" + line + "+    const float inverse_l = divide(1.0f, l);\n");
    write("no_code", "O is wrong", "-" + line + "+    const float inverse_l = nothing;\n");
    write("no_mutant", "O is wrong", "");
    write("stale", "O is wrong", "-    const float inverse_l = as_it_was(l);\n");

    const ProcessResult result = run_process({LADDER_MUTANTS, folder / stage.folder()});
    INFO(result.out);
    CHECK(result.status == 1);
    CHECK(says(result.out,
               "passed ... as_it_says.txt ... "
               "FAILED ... for_another_reason.txt ... not for \"race on shared memory\" ... O is wrong ... "
               "FAILED ... harmless.txt ... the suite does not notice ... "
               "FAILED ... no_code.txt ... nothing ... "
               "FAILED ... no_mutant.txt ... replaces nothing ... "
               "FAILED ... stale.txt ... 0 times, not once ... as_it_was ... "
               "1 of 6 mutants are rejected as they say"));
}

#endif
