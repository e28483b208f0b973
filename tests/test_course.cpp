// Exercises, hand-outs and grades. Kernels are compiled here, so a test that needs several is slow.
#ifdef LADDER_HAS_CPU

#    include <fcntl.h>
#    include <sys/stat.h>
#    include <unistd.h>

#    include <algorithm>
#    include <chrono>
#    include <cmath>
#    include <filesystem>
#    include <functional>
#    include <map>
#    include <nlohmann/json.hpp>
#    include <regex>
#    include <set>
#    include <sstream>

#    include "course/check.h"
#    include "course/exercise.h"
#    include "course/fence/remote_device.h"
#    include "course/fence/sandbox.h"
#    include "course/fence/screen.h"
#    include "course/grade.h"
#    include "course/handout.h"
#    include "course/mutants.h"
#    include "course/problems.h"
#    include "course/similarity.h"
#    include "course/speed.h"
#    include "course/zoo.h"
#    include "harness/base/process.h"
#    include "harness/ladder/ladder.h"
#    include "harness/ladder/library.h"
#    include "harness/report/diff.h"
#    include "harness/report/timing_tables.h"
#    include "harness/time/timing.h"
#    include "stages/errors.h"
#    include "tests/catch.h"
#    include "tests/fake_gpu.h"
#    include "tests/folder.h"

using namespace ladder;
using ladder::test::Folder;
namespace fs = std::filesystem;

namespace {

const OnStep quietly = [](const std::string&, int, int) {};

std::string kernel_of(int stage) {
    return read_file(kernel_path(*find_stage(stage)));
}

/// The text with one part replaced, which must be there.
std::string with(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
}

ProcessResult lab(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), LADDER_LAB);
    return run_process(arguments);
}

/// The same in a folder, as a user who names none for the results.
ProcessResult lab_in(const std::string& folder, const std::string& arguments) {
    return run_process({"sh", "-c", "cd '" + folder + "' && '" LADDER_LAB "' " + arguments});
}

/// What Git would tell of in a checkout with these files.
std::string untracked_in(const Folder& folder) {
    folder.write(".gitignore", read_file(source_folder() / ".gitignore"));
    return run_process({"sh", "-c",
                        "cd '" + (folder / "") +
                            "' && git init -q && git add .gitignore && git status --porcelain -uall"})
        .out;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

/// Grades a kernel, for stage 05 if no other is named.
Grade graded(const std::string& kernel, int stage = 5) {
    const Folder folder;
    folder.write("kernel.cu", kernel);
    Rubric rubric;
    rubric.run_limit_s = 2;  // those that hang are some
    return grade_submission(load_exercise(std::to_string(stage)), folder / "", rubric, quietly);
}

double score(const Grade& grade, const std::string& key) {
    for (const Score& s : grade.scores) {
        if (s.key == key) return s.score / s.most;
    }
    return -1;
}

std::string output(const Grade& grade, const std::string& key) {
    for (const Score& s : grade.scores) {
        if (s.key == key) return s.output;
    }
    return "";
}

/// Lines of code that a stage adds to its parent, without white space; short ones are nobody's secret.
std::set<std::string> secrets(const Stage& stage) {
    std::set<std::string> lines;
    std::istringstream diff(diff_kernels(*find_stage(stage.parent), stage));
    for (std::string line; std::getline(diff, line);) {
        if (!line.starts_with("+") || line.starts_with("+++")) continue;
        line.erase(0, 1);
        std::erase_if(line, [](char c) { return c == ' ' || c == '\t'; });
        // A comment, the declaration with its one-line change, which is the task, and the closing brackets.
        if (line.size() >= 24 && !line.starts_with("//") && !contains(line, ".change=") &&
            !contains(line, ".number=") && !contains(line, ".shows_in="))
            lines.insert(line);
    }
    return lines;
}

/// What is wrong with a results.json by Gradescope's documentation (specs/#output-format): keys, types and
/// values.
std::vector<std::string> gradescope_errors(const nlohmann::json& json) {
    using Json = nlohmann::json;
    std::vector<std::string> errors;
    using Kind = std::function<bool(const Json&)>;
    const Kind number = [](const Json& j) { return j.is_number(); };
    const Kind text = [](const Json& j) { return j.is_string(); };
    const Kind object = [](const Json& j) { return j.is_object(); };
    const Kind list = [](const Json& j) { return j.is_array(); };
    const Kind texts = [&](const Json& j) { return j.is_array() && std::all_of(j.begin(), j.end(), text); };
    const auto one_of = [](std::set<std::string> values) -> Kind {
        return [values](const Json& j) { return j.is_string() && values.contains(j.get<std::string>()); };
    };
    const Kind visibility = one_of({"hidden", "after_due_date", "after_published", "visible"});
    const Kind format = one_of({"text", "html", "simple_format", "md", "ansi"});
    const auto look = [&](const Json& part, const std::map<std::string, Kind>& known, std::string where) {
        for (const auto& [key, value] : part.items()) {
            if (!known.contains(key)) {
                errors.push_back(where + ": there is no key " + key);
            } else if (!known.at(key)(value)) {
                errors.push_back(where + ": " + key + " cannot be " + value.dump());
            }
        }
    };
    look(json,
         {{"score", number},
          {"execution_time", number},
          {"output", text},
          {"output_format", format},
          {"test_output_format", format},
          {"test_name_format", format},
          {"visibility", visibility},
          {"stdout_visibility", visibility},
          {"extra_data", object},
          {"tests", list},
          {"leaderboard", list}},
         "results");
    bool all_scored = json.contains("tests") && !json.at("tests").empty();
    for (const Json& test : json.value("tests", Json::array())) {
        look(test,
             {{"score", number},
              {"max_score", number},
              {"status", one_of({"passed", "failed"})},
              {"name", text},
              {"name_format", format},
              {"number", text},
              {"output", text},
              {"output_format", format},
              {"tags", texts},
              {"visibility", visibility},
              {"extra_data", object}},
             "a test");
        all_scored = all_scored && test.contains("score");
    }
    if (!json.contains("score") && !all_scored) errors.push_back("there is neither a score nor all of them");
    return errors;
}

/// The file is as documented, and its numbers belong together.
void check_gradescope(const std::string& text) {
    INFO(text);
    const auto json = nlohmann::json::parse(text);
    CHECK(gradescope_errors(json).empty());
    double sum = 0;
    for (const auto& test : json.at("tests")) {
        const double score = test.at("score"), most = test.at("max_score");
        CHECK((score >= 0 && score <= most));
        CHECK(test.contains("status") == (most > 0));
        if (most > 0) CHECK(test.at("status") == (score == most ? "passed" : "failed"));
        sum += score;
    }
    CHECK(std::abs(json.at("score").get<double>() - sum) < 0.005);
}

}  // namespace

TEST_CASE("course: every rung with a parent is an exercise, with a task and three hints", "[course]") {
    for (const Stage& stage : stages()) {
        if (stage.parent < 0) continue;
        INFO(stage.folder());
        if (is_ablation(stage.number)) {
            CHECK_THROWS_AS(load_exercise(std::to_string(stage.number)), BadUsage);
            continue;
        }
        const Exercise e = load_exercise(std::to_string(stage.number));
        CHECK(e.folder() == stage.folder());
        CHECK(e.complaint.size() > 200);
        CHECK(e.task.size() > 100);
        CHECK(e.hints.size() == 3);
        for (const std::string& hint : e.hints) CHECK(hint.size() > 100);
        // The start is the parent's kernel in another stage's name.
        const std::string start = starting_kernel(e);
        CHECK(screen_source(start).empty());
        CHECK(contains(start, ".number = " + std::to_string(stage.number) + ","));
        CHECK(screen_source(kernel_of(stage.number)).empty());
        // Hints come close to the code, and are not the code.
        std::string hints = e.task;
        for (const std::string& hint : e.hints) hints += hint;
        std::erase_if(hints, [](char c) { return c == ' ' || c == '\n'; });
        for (const std::string& line : secrets(stage)) {
            INFO(line);
            CHECK(!contains(hints, line));
        }
    }
    CHECK_THROWS_AS(load_exercise("0"), BadUsage);
    CHECK_THROWS_AS(load_exercise("99"), BadUsage);
    CHECK(load_exercise("causal_skip").number == 5);
}

TEST_CASE("course: start, check, hint and reset, as a student meets them", "[course]") {
    const Folder folder;
    const std::string my = folder / "my";
    REQUIRE(lab_in(folder / "", "start 5").status == 0);
    REQUIRE(lab_in(my, "trace 4 --shape 1,1,1,1,1,64").status == 0);
    REQUIRE(fs::exists(my + "/trace_04.html"));
    fs::rename(my + "/trace_04.html", folder / "trace_04.html");
    CHECK(untracked_in(folder) == "A  .gitignore\n");
    const std::string task = folder.read("my/TASK.md");
    CHECK(contains(task, "| tiles | 32 | 20 |"));
    CHECK(contains(folder.read("my/prediction.md"), "my prediction"));
    const ProcessResult again = lab({"start", "5", "--dir", my});
    CHECK(again.status == 2);
    CHECK(contains(again.err, "is there already"));

    // Unsolved: right, and nothing moved.
    const ProcessResult unsolved = lab({"check", my, "--json", folder / "unsolved.json"});
    CHECK(unsolved.status == 1);
    const std::regex progress("lab: [0-9]+%[^\n]*\n");  // is shown if it takes long
    CHECK(std::regex_replace(unsolved.err, progress, "") == "lab: not yet: the work moved as claimed\n");
    CHECK(contains(unsolved.out, "tiles: 32 counted, must become 20 (the parent has 32)"));
    const auto json = nlohmann::json::parse(folder.read("unsolved.json"));
    CHECK(json["passed"] == false);
    for (const auto& criterion : json["criteria"])
        CHECK(criterion["passed"] == (criterion["criterion"] != "moved"));

    for (const char* which : {"1 of 3", "2 of 3", "3 of 3"}) CHECK(contains(lab({"hint", my}).out, which));
    CHECK(contains(lab({"hint", my}).out, "the last one already"));

    // Solved: everything opens up.
    folder.write("my/kernel.cu", kernel_of(5));
    const ProcessResult solved = lab({"check", my});
    INFO(solved.out << solved.err);
    CHECK(solved.status == 0);
    CHECK(contains(solved.out, "05_causal_skip/README.md"));
    std::string no_gpu;
    CHECK(contains(solved.out, has_device(Backend::gpu, &no_gpu) ? "05_yours" : "not timed: " + no_gpu));
    CHECK(fs::exists(my + "/solution.diff"));

    CHECK(lab({"reset", my}).status == 0);
    CHECK(folder.read("my/kernel.cu") == starting_kernel(load_exercise("5")));
    CHECK(folder.read("my/kernel.1.cu") == kernel_of(5));
    CHECK(contains(lab({"hint", my}).out, "1 of 3"));

    // A race comes with the lines that it is between: they name the arrays.
    folder.write("my/kernel.cu", with(kernel_of(5), "        copy_wait();\n", ""));
    const ProcessResult raced = lab({"check", my});
    CHECK(raced.status == 1);
    CHECK(contains(raced.out, "  copy_async(&tile[row + n][column], source"));
    CHECK(contains(raced.out, "  ldmatrix(q, &shared.Q[16 * warp + lane % 16]"));

    // What does not compile is named by file and line.
    folder.write("my/kernel.cu", with(kernel_of(5), "const int diagonal", "const in diagonal"));
    const ProcessResult broken = lab({"check", my});
    CHECK(broken.status == 1);
    CHECK(contains(broken.out, "kernel.cu:139:"));
    CHECK(lab({"check", folder / "nowhere"}).status == 2);
    CHECK(lab({"start", "0", "--dir", folder / "zero"}).status == 2);
}

TEST_CASE("course: solutions pass their own checks", "[course][slow]") {
    // A workspace, a new head dimension, counters, an order of blocks, mbarriers that copies arrive at,
    // boxes and tiles that are no longer masked, gradients.
    for (const int number : {6, 10, 14, 25, 26, 30, 41}) {
        const Exercise e = load_exercise(std::to_string(number));
        INFO(e.folder());
        const Folder folder;
        const StudentFolder student = start_exercise(e, folder / "my");
        folder.write("my/kernel.cu", kernel_of(number));
        const CheckResult solved = check_kernel(e, student.kernel(), student.products(), {}, quietly);
        for (const Criterion& c : solved.criteria) {
            INFO(c.title << (c.reports.empty() ? "" : "\n" + c.reports.front()));
            CHECK(c.all());
        }
        CHECK(solved.notes.empty());
    }
}

TEST_CASE("course: the zoo shows a symptom, gives hints, and knows a fix", "[course]") {
    const auto puzzles = zoo();
    REQUIRE(puzzles.size() > 40);
    const auto puzzle = std::find_if(puzzles.begin(), puzzles.end(), [](const Puzzle& p) {
        return contains(p.mutant.bug, "aligned to the first key");
    });
    REQUIRE(puzzle != puzzles.end());
    const auto& [bug, symptom, problem, report, difficulty, hints, replacements] = puzzle->mutant;
    const Folder folder;
    const std::string number = std::to_string(puzzle->number), dir = folder / ("zoo-" + number);
    CHECK(lab({"zoo", number, "--dir", dir, "--hint"}).status == 2);
    const ProcessResult first = lab_in(folder / "", "zoo " + number);
    CHECK(first.status == 0);
    CHECK(untracked_in(folder) == "A  .gitignore\n");
    CHECK(contains(first.out, problem.description()));
    CHECK(says(first.out, report));
    CHECK(!contains(first.out, bug));
    CHECK(lab({"zoo", number, "--dir", dir, "--check"}).status == 1);
    CHECK(lab({"zoo", "1", "--dir", dir, "--check"}).status == 2);  // another puzzle's folder
    for (const std::string& hint : hints)
        CHECK(contains(lab({"zoo", number, "--dir", dir, "--hint"}).out, hint));
    CHECK(contains(lab({"zoo", number, "--dir", dir, "--hint"}).out, "the last one already"));
    // Which puzzles are solved is what their folders say.
    CHECK(solved_puzzles(folder / "").empty());
    PuzzleFolder mine = open_puzzle_folder(*puzzle, dir);
    mine.solved = true;
    save(mine);
    CHECK(solved_puzzles(folder / "") == std::set<std::string>{puzzle->id});
    const ProcessResult given_up = lab({"zoo", number, "--give-up"});
    CHECK(contains(given_up.out, bug));
    CHECK(says(given_up.out, "\n-" + replacements.front().to + " ... +" + replacements.front().from));
    CHECK(lab({"zoo", "0"}).status == 2);
    CHECK(lab({"zoo", "999"}).status == 2);
}

TEST_CASE("course: the zoo begins with puzzles that have hints, in the order of their difficulty",
          "[course]") {
    // What a user sees is in a symptom, not what is wrong with the code.
    const std::regex gives_away(
        "barrier|wait|fence|commit|mask(ed)? by|not rescaled|overwrit|read before|twice");
    std::vector<std::string> order;
    const ProcessResult few = lab({"zoo"}), all = lab({"zoo", "--all"});
    for (const Puzzle& puzzle : zoo()) {
        INFO(puzzle.id);
        const Mutant& mutant = puzzle.mutant;
        CHECK(!std::regex_search(mutant.symptom, gives_away));
        CHECK(!contains(few.out, mutant.bug));
        CHECK(contains(all.out, mutant.symptom));
        if (mutant.difficulty.empty()) continue;
        order.push_back(mutant.difficulty);
        CHECK(puzzle.number == static_cast<int>(order.size()));
        CHECK(contains(few.out, mutant.symptom));
        CHECK(!mutant.hints.empty());
        for (const std::string& hint : mutant.hints) CHECK(hint.size() <= 80);
    }
    CHECK(order.size() >= 20);
    CHECK(std::is_sorted(order.begin(), order.end(), [](const auto& a, const auto& b) {
        const auto& names = difficulties();
        return std::find(names.begin(), names.end(), a) < std::find(names.begin(), names.end(), b);
    }));
    std::istringstream lines(few.out);
    for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 80);
    // One edit mends it unless the puzzle says otherwise: more where its lines are apart.
    for (const Puzzle& puzzle : zoo()) {
        const std::size_t replacements = puzzle.mutant.replacements.size();
        if (replacements == 1 && puzzle.number % 40 != 2) continue;
        INFO(puzzle.id);
        CHECK((places_of(puzzle) > 1) == (replacements > 1));
    }
    CHECK(contains(lab({"zoo", "1", "--give-up"}).out, "2 places of the kernel"));
    CHECK(contains(lab({"zoo", "2", "--give-up"}).out, "1 place of the kernel"));
}

TEST_CASE("course: a hand-out holds no solution", "[course]") {
    const Folder folder;
    folder.write("results.md", "");  // beside it, where the guide's page of results would be
    const Handout handout = write_handout({load_exercise("5")}, folder / "out");
    std::vector<std::string> hidden;  // 05 and all that were made from it
    std::set<int> numbers{5};
    for (const Stage& stage : stages()) {
        if (numbers.contains(stage.parent) || stage.pass == Pass::backward) numbers.insert(stage.number);
        if (numbers.contains(stage.number)) hidden.push_back(stage.folder());
    }
    CHECK(handout.hidden == hidden);
    CHECK(handout.kept.back() == "04_split_q");
    // Whatever 05 adds to 04 is nowhere, in no file, however it is spaced.
    const std::set<std::string> lines = secrets(*find_stage(5));
    REQUIRE(lines.size() >= 3);
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "out")) {
        if (!entry.is_regular_file()) continue;
        files += 1;
        std::string text = read_file(entry.path());
        std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });
        for (const std::string& line : lines) {
            INFO(entry.path().string() << " " << line);
            CHECK(!contains(text, line));
        }
    }
    CHECK(files == handout.files);
    // Links lead somewhere, or are words; what looks like one in code stays.
    const std::regex link(R"~(\[[^\]]*\]\((?!https?:|#|[^)]*[ &])([^)#]+)|(?:src|srcset)="([^"]+)")~");
    int links = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "out")) {
        if (entry.path().extension() != ".md") continue;
        const std::string text = read_file(entry.path());
        for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found) {
            const std::string target = (*found)[1].str() + (*found)[2].str();
            INFO(entry.path().string() << ": " << target);
            CHECK(fs::exists(entry.path().parent_path() / target));
            CHECK(target != "../results.md");
            links += 1;
        }
    }
    CHECK(links > 100);
    CHECK(contains(folder.read("out/STUDENTS.md"), "the ladder's notebook for Colab |"));
    CHECK(contains(folder.read("out/stages/04_split_q/README.md"), "(../03_sequence_parallel/README.md)"));
    CHECK(fs::exists(folder / "out/.devcontainer/Dockerfile"));
    for (const char* name :
         {"05_causal_skip/kernel.cu", "05_causal_skip/README.md", "06_flash_decoding", "26_mbarriers"})
        CHECK(!fs::exists(folder / (std::string("out/stages/") + name)));
    CHECK(!fs::exists(folder / "out/stages/05_causal_skip/mutants"));
    const auto known = nlohmann::json::parse(folder.read("out/stages/05_causal_skip/stage.json"));
    CHECK(known.at("problems").size() == load_exercise("5").problems.size());  // these, not the bugs
    CHECK(fs::exists(folder / "out/docs/figures/04-split-q-light.svg"));
    CHECK(!fs::exists(folder / "out/docs/figures/05-causal-light.svg"));
    CHECK(fs::exists(folder / "out/stages/04_split_q/mutants/missing_wait.txt"));
    CHECK(contains(folder.read("out/stages/05_causal_skip/exercise.md"), "## The complaint"));
    CHECK(fs::exists(folder / "out/stages/05_causal_skip/claims.cpp"));  // what a check holds them to

    // The two branches are independent; a chain is not.
    const std::vector<std::string> kept =
        write_handout({load_exercise("10"), load_exercise("23")}, folder / "two").kept;
    for (const auto& [stage, is_kept] : {std::pair{"06_flash_decoding", 1},
                                         {"10_packed_gqa", 0},
                                         {"22_async_copies", 1},
                                         {"23_lazy_rescale", 0}})
        CHECK(std::count(kept.begin(), kept.end(), stage) == is_kept);
    CHECK_THROWS_AS(write_handout({load_exercise("4"), load_exercise("5")}, folder / "chain"), BadUsage);
    CHECK_THROWS_AS(write_handout({load_exercise("5")}, folder / "out"), BadUsage);
}

TEST_CASE("course: the source of a kernel is screened", "[course]") {
    const std::string good = kernel_of(5);
    const auto refused = [&](const std::string& line) {
        return !screen_source(with(good, "namespace {\n", "namespace {\n" + line + "\n")).empty();
    };
    for (const char* line :
         {"#include <cstdio>", "#include \"/etc/passwd\"", "#define X", "#pragma GCC optimize(\"O0\")",
          "asm(\"\");", "__asm__(\"\");", "extern \"C\" int system(const char*);",
          "void f() { simt::reset_counters(); }", "[[gnu::no_sanitize(\"thread\")]] void f();",
          "__attribute__((no_sanitize_thread)) void f();", "namespace simt { }", "namespace other { }",
          "int a = 1; \\", "_Pragma(\"x\")", "%:include <cstdio>", "auto s = R\"(x)\";", "int main();",
          "bool b = ladder::register_stage;", "  #  include <vector>"}) {
        INFO(line);
        CHECK(refused(line));
    }
    // Lengths that compilers take, and what reads them need not.
    CHECK(refused(std::string(900'000, ' ') + "#include <cstdio>"));
    CHECK(refused("int " + std::string(300'000, 'x') + ";"));
    CHECK(refused("/*" + std::string(900'000, '\n')));
    CHECK(refused(std::string(500'000, '[')));
    for (const char* line :
         {"// #include <cstdio> asm simt", "/* extern */ int a;", "#pragma unroll 4",
          "[[maybe_unused]] int a = 1'000;", "const char* s = \"asm\";", "// caf\u00e9 ?\?= %: \\u0041",
          "constexpr char c = '\\'', d = '\"';", "#pragma unroll(4) // four"}) {
        INFO(line);
        CHECK(!refused(line));
    }
}

TEST_CASE("course: what nvcc refuses in a kernel is refused; what a host side divides is its own",
          "[course]") {
    const std::string good = kernel_of(5), kernel = "    const int first_row = i * Br";
    const auto said = [&](const std::string& before, const std::string& inside) {
        const auto found = screen_source(with(with(good, "template <class T, int d>\n__global__",
                                                   before + "template <class T, int d>\n__global__"),
                                              kernel, inside + kernel));
        return found.empty() ? "" : found.front();
    };
    CHECK(said("int twice(int n) { return 2 * n; }\n", "") == "");
    CHECK(contains(said("int twice(int n) { return 2 * n; }\n", "    const int n = i > 1 ? 0 : twice(i);\n"),
                   "twice() in attention(): it has no __device__"));
    CHECK(contains(
        said("template <class N>\nN twice(N n) { return 2 * n; }\n", "    const int n = ::twice<int>(i);\n"),
        "twice() in attention()"));
    CHECK(said("__device__ int twice(int n) { return 2 * n; }\n", "    const int n = twice(i);\n") == "");
    CHECK(said("constexpr int twice(int n) { return 2 * n; }\n", "    const int n = twice(3);\n") == "");
    CHECK(contains(said("", "    const std::string text(i, 'x');\n"),
                   "'string' in attention(): no GPU has it"));
    CHECK(contains(said("", "    if (i < 0) throw 1;\n"), "'throw' in attention()"));
    // Stage 36 divides in its host side, to choose the heads of a section.
    const Folder folder;
    const auto divides = [&](const std::string& source) {
        const Compilation c{folder.write("kernel.cu", source), name(Backend::cpu), folder / ""};
        REQUIRE(compile({c}, compiler_limits()).front() == "");
        return screen_compiled({c}, Backend::cpu);
    };
    CHECK(divides(kernel_of(36)).empty());
    // A lambda in it may be the kernel's.
    const auto found =
        divides(with(kernel_of(36), "    const int section =",
                     "    const auto half = [](double x) { return 1 / x; };\n"
                     "    const double none = half(KV_bytes);\n    const int section = none < 0 ? 1 :"));
    CHECK(!found.empty());
}

TEST_CASE("course: a program that sleeps ends with its run, or with the time for all", "[course]") {
    const Folder folder;
    const std::string kernel = folder.write(
        "kernel.cu", "#include <unistd.h>\n" +
                         with(kernel_of(5), "namespace {\n", "namespace {\nconst int slept = pause();\n"));
    const Compilation c{kernel, name(Backend::cpu), folder / ""};
    REQUIRE(compile({c}, compiler_limits()).front() == "");
    const auto said = [&](const Limits& limits, double run_limit_s) -> std::string {
        RemoteDevice device(c.library(), Backend::cpu, limits, run_limit_s);
        try {
            device.stage();
        } catch (const CheckFailed& failure) {
            CHECK(device.hangs() == 1);
            return failure.what();
        }
        return "";
    };
    CHECK(contains(said({}, 0.1), "did not end within 0.1 s"));
    Limits limits;
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    CHECK(contains(said(limits, 60), "the time for all checks is over"));
}

// Tries what reaches files, processes and the grader, and prints what it could do.
const char* const raw_calls = R"(
#include <cstdio>
#include <cstdlib>
#include <string>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int, char** words) {
    const char* file = words[1];
    const int grader = std::atoi(words[2]), own = open("/dev/null", O_RDONLY);
    bool none = true;
    const auto tell = [&](const char* what, long result) {
        if (result < 0) return;
        none = false;
        std::puts(what);
    };
    const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    tell("fork", child);
    tell("truncate", truncate(file, 3));
    tell("open to write", open(file, O_WRONLY));
    tell("open to truncate", open(file, O_RDONLY | O_TRUNC));
    tell("read", open(file, O_RDONLY));
    tell("chmod", chmod(file, 0600));
    tell("chown", chown(file, getuid(), getgid()));
    tell("utime", utimensat(AT_FDCWD, file, nullptr, 0));
    tell("unlink", grader == 0 ? -1 : unlink(file));
    tell("owner of signals", own < 0 ? 0 : fcntl(own, F_SETOWN, grader));
    tell("another signal", own < 0 ? 0 : fcntl(own, F_SETSIG, SIGKILL));
    tell("kill", grader == 0 ? -1 : kill(grader, 0));
    tell("socket", socket(AF_INET, SOCK_STREAM, 0));
    tell("memory that is not counted", memfd_create("x", 0));
    tell("others' words", open("/proc/self/../1/cmdline", O_RDONLY));
    if (grader != 0) tell("the grader's words", open((std::string("/proc/") + words[2] + "/cmdline").c_str(), O_RDONLY));
    if (none) std::puts("none");
}
)";

TEST_CASE("course: the sandbox holds", "[course]") {
    const Folder folder;
    Limits limits;
    limits.confine = Sandbox();
    const std::string secret = folder.write("secret", "the answer\n");
    const auto run = [&](const std::string& script, double seconds = 10) {
        LimitedProcess process({"/bin/sh", "-c", script}, limits);
        const std::string how = process.wait(seconds);
        return how + "|" + process.output();
    };
    CHECK(run("echo hello") == "|hello\n");
    CHECK(run("exit 3") == "exit code 3|");
    CHECK(!contains(run("echo $HOME$SECRET"), "/"));
    CHECK(contains(run("kill -9 $PPID; echo alive"), "alive"));
    CHECK(contains(run("sleep 60", 0.2), "did not end"));
    if (contains(describe_sandbox(), "Landlock")) {
        CHECK(!contains(run("cat " + secret), "answer"));
        CHECK(!contains(run("echo x > /tmp/ladder-escape && echo written"), "written"));
        CHECK(!fs::exists("/tmp/ladder-escape"));
    }
    // What a kernel's process may call is a closed list: raw calls, as no kernel can write them.
    if (missing_in_sandbox().empty()) {
        const std::string mine = folder.write("mine", "my work\n"),
                          source = folder.write("calls.cpp", raw_calls);
        REQUIRE(run_process({LADDER_CXX, "-static-libstdc++", "-o", folder / "calls", source}).status == 0);
        fs::permissions(folder / "",
                        fs::perms(0777));  // the file system's own permissions are not what is asked
        fs::permissions(mine, fs::perms(0666));
        Limits strict = limits;
        strict.confine = Sandbox{.calls = Calls::kernel};
        LimitedProcess process({folder / "calls", mine, std::to_string(getpid())}, strict);
        CHECK(process.wait(10) == "");
        CHECK(process.output() == "none\n");
        CHECK(folder.read("mine") == "my work\n");
        const ProcessResult free = run_process({folder / "calls", mine, "0"});
        CHECK(contains(free.out, "fork\n"));  // it would have told
        CHECK(contains(free.out, "truncate\n"));
    }
    // A deadline is over, however long each may take.
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    CHECK(contains(run("sleep 60", 60), "the time for all is over"));
    limits.deadline = Limits().deadline;
    // Memory and processor time end.
    limits.memory = std::size_t{256} << 20;
    limits.cpu_s = 1;
    CHECK(!run("x=x; while :; do x=$x$x; done", 20).starts_with("|"));
    CHECK(!run("while :; do :; done", 20).starts_with("|"));
}

TEST_CASE("course: known-bad submissions get what they deserve", "[course][slow]") {
    const std::string good = kernel_of(5), launch = "    launch(attention<T, d>";

    const Grade solution = graded(good);
    CHECK(solution.total() == 100);
    CHECK(gradescope_json(graded(good)) == gradescope_json(solution));  // no time in it

    // The parent as it was handed out: what is right about it is not the student's.
    const Grade unsolved = graded(starting_kernel(load_exercise("5")));
    CHECK(unsolved.total() == 5);

    // Wrong results under a mask where Nq and Nk differ: nothing else counts, and what is right is said.
    const Grade wrong =
        graded(with(good, "p.causal ? i * Br + p.Nk - p.Nq : p.Nk", "p.causal ? i * Br : p.Nk"));
    CHECK(wrong.total() == 5);
    CHECK(contains(output(wrong, "races"), "64 of 64"));
    CHECK(contains(output(wrong, "races"), "Counts once the results are right"));
    CHECK(contains(output(wrong, "edges"), "query tile "));

    // A bug of the zoo in the stage before, at the default seed.
    const std::string zoo_bug =
        wrong_kernel(kernel_of(4), read_mutant(stages_folder() / "04_split_q/mutants/missing_rescale.txt"));
    CHECK(graded(zoo_bug, 4).total() == 5);
    // Right, and some of the parent's work is left.
    const Grade too_much = graded(wrong_kernel(
        good, read_mutant(stages_folder() / "05_causal_skip/mutants/tile_above_the_diagonal.txt")));
    CHECK(too_much.total() > 5);
    CHECK(too_much.total() <= 20);
    for (const char* results : {"correct", "edges", "races"}) CHECK(score(too_much, results) == 0);
    CHECK(contains(output(too_much, "edges"), "Counts once each counter that the change moves is exact"));

    // Hard-coded outputs: a kernel that stores zeros, as many as there should be.
    const Grade zeros =
        graded(with(good, "pack<T>(O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l)", "0u"));
    CHECK(score(zeros, "builds") == 1);
    CHECK(score(zeros, "correct") == 0);
    CHECK(score(zeros, "edges") == 0);

    // Calling the reference, printing, reading files, leaving early: a kernel can name none of it.
    for (const char* code :
         {"ladder::reference::attention({}, {}, {}, {}, 1, {});", "std::printf(\"{\\\"score\\\": 100}\");",
          "std::fopen(\"/autograder/results/results.json\", \"w\");", "std::exit(0);", "system(\"true\");"}) {
        INFO(code);
        const Grade cheat = graded(with(good, launch, std::string("    ") + code + "\n" + launch));
        CHECK(cheat.total() == 0);
        CHECK(score(cheat, "builds") == 0);
    }
    // Nor if it declares the functions itself, in the one language or the other.
    const Grade declared = graded(with(with(good, "namespace {\n", "int puts(const char*);\nnamespace {\n"),
                                       launch, "    puts(\"100 of 100\");\n" + launch));
    CHECK(declared.total() == 0);
    CHECK(contains(output(declared, "builds"), "outside of the namespace without a name"));

    // No kernel at all: the host computes, or claims to.
    const Grade no_launch = graded(with(good, launch, "    if (p.Nq < 0) launch(attention<T, d>"));
    CHECK(score(no_launch, "correct") == 0);
    CHECK(contains(output(no_launch, "correct"), "no kernel was launched"));

    // A crash, an endless loop, a deadlock and an allocation bomb, only where queries outnumber keys.
    const std::string there = "    if (p.Nq > p.Nk) {\n        ";
    for (const auto& [code, words] : std::initializer_list<std::pair<std::string, std::string>>{
             {"*reinterpret_cast<volatile int*>(std::size_t(p.d)) = 1;", "a segmentation fault"},
             {"for (volatile int x = 0; x < 1;) {}", "did not end within"},
             {"for (;;) *new volatile char[1 << 26] = 1;", "std::bad_alloc"}}) {
        INFO(code);
        const Grade grade = graded(with(good, launch, there + code + "\n    }\n" + launch));
        CHECK(score(grade, "builds") == 1);
        CHECK(grade.total() == 5);
        INFO(output(grade, "edges"));
        CHECK(contains(output(grade, "edges"), words));
    }
    const Grade deadlock =
        graded(with(good, "        __syncthreads();  // Q, K and V are there",
                    "        if (threadIdx.x < 100) __syncthreads();  // Q, K and V are there"));
    CHECK(score(deadlock, "races") == 0);
    CHECK(contains(output(deadlock, "races"), "kernel.cu:"));

    // All four lanes of a row write the same L: right, and a race all the same.
    const Grade race = graded(with(good, "if (t == 0) store(L, ", "store(L, "));
    CHECK(race.total() == 5);
    const std::string edges = std::to_string(edge_problems(load_exercise("5"), true).size());
    CHECK(contains(output(race, "edges"), edges + " of " + edges));
    CHECK(contains(output(race, "races"), "kernel.cu:"));
}

TEST_CASE("course: what a check's outcome is worth", "[course]") {
    CheckResult result;
    for (const char* key : {"builds", "correct", "edges", "races", "moved", "unmoved"})
        result.criteria.push_back({key, key, 10, 10, {}, ""});
    const auto points = [&](const std::function<void(CheckResult&)>& change) {
        CheckResult changed = result;
        change(changed);
        return Grade{scores(changed, {}), "", {}, ""}.total();
    };
    const auto criterion = [](CheckResult& of, const char* key) -> Criterion& {
        return *std::find_if(of.criteria.begin(), of.criteria.end(),
                             [&](const Criterion& c) { return c.key == key; });
    };
    result.exact = true;
    CHECK(points([](CheckResult&) {}) == 100);
    CHECK(points([&](CheckResult& r) { criterion(r, "unmoved").passed = 5; }) == 95);
    for (const char* key : {"correct", "edges", "races"})
        CHECK(points([&](CheckResult& r) { criterion(r, key).passed = 9; }) == 5);
    result.exact = false;
    CHECK(points([&](CheckResult& r) { criterion(r, "moved").passed = 0; }) == 5);
    CHECK(points([&](CheckResult& r) { criterion(r, "moved").passed = 2; }) == 12);
    CHECK(points([&](CheckResult& r) { criterion(r, "moved").passed = 9; }) == 20);
    CHECK(points([](CheckResult&) {}) == 20);  // a counter that moves, where it must stay
}

TEST_CASE("course: the problems of each seed hold what free draws may miss", "[course]") {
    for (const int number : {2, 6, 23, 36, 48}) {
        const Exercise e = load_exercise(std::to_string(number));
        INFO(e.folder());
        std::set<std::string> values;
        for (const std::uint64_t seed : {1, 2, 7}) {
            const std::vector<Case> seeded = seeded_problems(e, seed), raced = race_problems(e, seed);
            CHECK(seeded == seeded_problems(e, seed));
            for (const Case& c : seeded) values.insert(c.options());
            const auto any = [&](int d, const std::function<bool(const Case&)>& is) {
                return std::any_of(seeded.begin(), seeded.end(),
                                   [&](const Case& c) { return c.shape.d == d && is(c); });
            };
            for (const int d : e.head_dims) {
                for (const bool causal : {false, true}) {
                    CHECK(any(d, [&](const Case& c) {
                        return c.input == "rising" && c.causal == causal && c.shape.Nk > 2 * 64;
                    }));
                }
                CHECK(any(d, [](const Case& c) { return c.causal && c.shape.Nq > c.shape.Nk; }));
            }
            // The mutants' own, with and without the race checker.
            for (const fs::path& file : mutant_files(stages_folder() / e.folder())) {
                INFO(file.string());
                Case own = read_mutant(file).problem;
                own.pass = e.pass;
                const auto is_own = [&](Case c) {
                    if (own.seed == 1) c.seed = 1;
                    return c == own;
                };
                CHECK(std::any_of(seeded.begin(), seeded.end(), is_own));
                CHECK(std::any_of(raced.begin(), raced.end(), is_own));
            }
            for (const Case& c : seeded) {
                Case same = parse_case(c.options());
                same.pass = c.pass;
                CHECK(same == c);
            }
        }
        CHECK(values.size() > 2 * seeded_problems(e, 1).size());
    }
    CHECK_THROWS_AS(parse_case("--causal"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,1,1,64 --window 3"), BadUsage);
}

/// A submission that is kept as what it changes in a solution, with bytes as \x0c where it adds lines.
struct Submission {
    std::string kernel, says;
    int stage = 0;
    double least = 0, most = 0;  ///< points
};

Submission read_submission(const fs::path& file) {
    Submission read;
    std::istringstream lines(read_file(file));
    std::map<std::string, std::string> head;
    std::string line, from, to;
    while (std::getline(lines, line) && !line.empty())
        head[line.substr(0, line.find(": "))] = line.substr(line.find(": ") + 2);
    read.stage = std::stoi(head.at("Stage"));
    const std::string score = head.at("Score");
    read.least = std::stod(score);
    read.most = contains(score, " to ") ? std::stod(score.substr(score.find(" to ") + 4)) : read.least;
    read.says = head.at("Says");
    read.kernel = kernel_of(read.stage);
    while (std::getline(lines, line)) (line.starts_with('-') ? from : to) += line.substr(1) + "\n";
    for (std::size_t at = to.find("\\x"); at != to.npos; at = to.find("\\x", at + 1))
        to.replace(at, 4, 1, static_cast<char>(std::stoi(to.substr(at + 2, 2), nullptr, 16)));
    read.kernel = with(read.kernel, from, to);
    return read;
}

TEST_CASE("course: hostile submissions get what they deserve", "[course][slow]") {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(LADDER_SOURCE_DIR "/tests/submissions")) {
        INFO(entry.path().filename().string());
        const Submission submission = read_submission(entry.path());
        const Grade grade = graded(submission.kernel, submission.stage);
        CHECK(grade.total() >= submission.least);
        CHECK(grade.total() <= submission.most);
        std::string said;
        for (const Score& s : grade.scores) said += s.output;
        INFO(said);
        CHECK(contains(said, submission.says));
        count += 1;
    }
    CHECK(count > 30);
}

TEST_CASE("course: a folder for submissions is closed to others, and ends with its owner", "[course]") {
    const Folder folder;
    let_sandbox_through(folder / "");
    struct stat info {};
    REQUIRE(stat((folder / "").c_str(), &info) == 0);
    const bool root = geteuid() == 0;
    CHECK((info.st_mode & 0777) == (root ? 0710 : 0700));
    if (root) {
        Limits limits;
        limits.confine = Sandbox{.as_nobody = true, .readable = {folder / ""}};
        const std::string kernel = folder.write("kernel.cu", "the kernel");
        LimitedProcess process({"/bin/sh", "-c", "cat " + kernel + "; ls " + (folder / "")}, limits);
        process.wait(10);
        CHECK(process.output().starts_with("the kernel"));
        CHECK(!contains(process.output(), "kernel.cu\n"));
    }
    // One that was killed is gone with the next that is made, when it has been quiet for a minute.
    const auto is_left = [&](const std::string& name, int minutes) {
        const fs::path left = fs::temp_directory_path() / name;
        fs::create_directories(left / "inside");
        const timespec times[2] = {{time(nullptr) - 60 * minutes, 0}, {time(nullptr) - 60 * minutes, 0}};
        utimensat(AT_FDCWD, left.c_str(), times, 0);
        const TemporaryFolder next("ladder-left-");
        const bool is_there = fs::exists(left);
        fs::remove_all(left);
        return is_there;
    };
    CHECK(!is_left("ladder-left-abcdef", 2));
    CHECK(is_left("ladder-left-abcdef", 0));
    CHECK(is_left("ladder-left-abcdefg", 2));  // of another kind
    const TemporaryFolder mine("ladder-left-");
    const timespec old[2] = {{0, 0}, {0, 0}};
    utimensat(AT_FDCWD, mine.path().c_str(), old, 0);
    { const TemporaryFolder next("ladder-left-"); }
    CHECK(fs::exists(mine.path()));  // somebody's
    // A signal takes them along.
    const std::string temporary = folder / "tmp";
    fs::create_directories(temporary);
    folder.write("kernel.cu", kernel_of(5));
    const std::string script = "TMPDIR=" + temporary + " " + LADDER_LAB + " grade " + (folder / "") +
                               " --stage 5 & while [ -z \"$(ls " + temporary +
                               ")\" ]; do sleep 0.1; done; kill $!; wait $!; sleep 1; ls " + temporary;
    const ProcessResult killed = run_process({"/bin/sh", "-c", script});
    CHECK(killed.out == "");
}

TEST_CASE("course: a copy is similar whatever its names, and the parent's code is nobody's", "[course]") {
    const std::string parent = starting_kernel(load_exercise("5")), solution = kernel_of(5);
    std::string renamed = solution;  // other names, comments, blanks, and a function moved
    for (const auto& [from, to] : {std::pair{"diagonal", "last"}, {"masked", "cut"}, {"first_row", "top"}})
        renamed = std::regex_replace(renamed, std::regex(std::string("\\b") + from + "\\b"), to);
    renamed = std::regex_replace(renamed, std::regex("    const"), "    /* mine */  const");
    // The same change in other words.
    const std::string own = with(
        with(solution, "min(p.Nk, diagonal + Br)", "p.causal && p.Nk > diagonal + Br ? diagonal + Br : p.Nk"),
        "const bool masked = (j + 1) * Bc > min(p.Nk, diagonal + 1);",
        "bool masked = j * Bc + Bc > p.Nk;\n        if (p.causal && j * Bc + Bc - 1 > diagonal) masked = "
        "true;");
    const auto code = [&](const std::string& name, const std::string& source) {
        return own_code(name, source, parent);
    };
    CHECK(code("parent", parent).sequences.empty());
    CHECK(code("stages/04", kernel_of(4)).sequences.size() < 20);  // its declaration
    CHECK(code("unreadable", "namespace { \\").sequences.empty());
    const auto found = similarities({code("ada", solution), code("bob", renamed), code("eve", own)},
                                    {code("stages/05", solution), code("stages/04", kernel_of(4))}, 0);
    const auto share = [&](const std::string& submission, const std::string& other) {
        for (const Similarity& one : found) {
            if (one.submission == submission && one.other == other) return one.share();
        }
        return -1.0;
    };
    CHECK(share("bob", "ada") == 1);
    CHECK(share("bob", "stages/05") == 1);
    CHECK(share("ada", "stages/04") == -1);  // the nearest of the ladder's alone
    CHECK(share("eve", "ada") < 0.8);
    CHECK(found.front().share() == 1);
}

TEST_CASE("course: a grade is written as Gradescope documents it", "[course]") {
    Grade grade;
    grade.fingerprint = "0123456789abcdef";
    grade.scores = {{"builds", "builds", 5, 5, "yes\n"},
                    {"correct", "correct", 17.5, 20, "7 of 8\n\n\"quoted\"\ttabbed\n"},
                    {"edges", "edges", 3.33, 10, ""},
                    {"races", "races", 0, 15, "not looked at: it needs a kernel that builds"},
                    {"unmoved", "unmoved", 0, 0, "no\n"}};
    const std::string text = gradescope_json(grade);
    check_gradescope(text);
    const auto json = nlohmann::json::parse(text);
    CHECK(json.at("score") == 25.83);
    CHECK(json.at("tests").size() == 5);
    CHECK(json.at("tests")[1].at("output") == grade.scores[1].output);
    CHECK(json.at("stdout_visibility") == "hidden");  // students see what is in the file
    // It says all of the grade: what is read back is written the same.
    const Folder folder;
    const auto read = read_gradescope(folder.write("results.json", text));
    REQUIRE(read);
    CHECK(gradescope_json(*read) == text);

    // What the documentation does not allow is found.
    CHECK(gradescope_errors(nlohmann::json::parse(R"({"tests": [{"score": 1}]})")).empty());
    for (const char* wrong :
         {R"({})", R"({"tests": []})", R"({"tests": [{"name": "a"}]})", R"({"score": "5"})",
          R"({"score": 5, "visible": true})", R"({"score": 5, "visibility": "never"})",
          R"({"score": 5, "tests": [{"status": "ok"}]})", R"({"score": 5, "tests": [{"number": 1}]})",
          R"({"score": 5, "tests": [{"max": 1}]})", R"({"score": 5, "tests": {}})",
          R"({"score": 5, "tests": [{"tags": [1]}]})", R"({"score": 5, "output": null})"}) {
        INFO(wrong);
        CHECK(gradescope_errors(nlohmann::json::parse(wrong)).size() == 1);
    }
}

TEST_CASE("course: the guide for instructors knows the size of each change", "[course]") {
    const std::string guide = read_file(std::string(LADDER_SOURCE_DIR) + "/docs/course/instructors.md");
    const auto check = [](const std::string& stage, const std::string& lines) {
        INFO(stage << ": " << lines);
        const Stage& s = *find_stage(std::stoi(stage));
        CHECK(count_changed_lines(*find_stage(s.parent), s) == std::stoi(lines));
    };
    int found = 0;
    // | 3 | 22 name, or 12 name | what students learn | 16, 27 |
    const std::regex row("\n\\| [0-9]+ \\| ([0-9]{2}) [^|]*\\|[^|]*\\| ([0-9]+)[ ,]");
    for (std::sregex_iterator m(guide.begin(), guide.end(), row), end; m != end; ++m, ++found)
        check((*m)[1], (*m)[2]);
    const std::regex or_row(", or ([0-9]{2}) [^|]*\\|[^|]*\\| [0-9]+, ([0-9]+) \\|");
    for (std::sregex_iterator m(guide.begin(), guide.end(), or_row), end; m != end; ++m, ++found)
        check((*m)[1], (*m)[2]);
    // 04 name (52 lines, 8 h)
    const std::regex prose("([0-9]{2}) [A-Za-z-]+ \\(([0-9]+) lines");
    for (std::sregex_iterator m(guide.begin(), guide.end(), prose), end; m != end; ++m, ++found)
        check((*m)[1], (*m)[2]);
    CHECK(found == 6);
}

TEST_CASE("course: a class is graded once, and goes on where it stopped", "[course][slow]") {
    const Folder folder;
    fs::create_directories(folder / "class/ada");
    fs::create_directories(folder / "class/empty");
    // Names and files that no one should have.
    const std::vector<std::string> odd{"\u202excod.a", "zero\u200bwidth",    "\u0085next",      "\xff\xfe",
                                       "esc\x1b[2J",   "tab\tname",          "=cmd|' calc'!A0", "\t=1+1",
                                       " +1",          std::string(250, 'n')};
    for (const std::string& name : odd) fs::create_directories(folder / ("class/" + name));
    fs::create_symlink("loop", folder / "class/loop");
    fs::create_symlink("nowhere", folder / "class/dangling");
    fs::create_directories(folder / "class/unreadable");
    fs::permissions(folder.write("class/unreadable/kernel.cu", "no kernel\n"), fs::perms::none);
    fs::create_directories(folder / "class/pipe");
    REQUIRE(mkfifo((folder / "class/pipe/kernel.cu").c_str(), 0666) == 0);
    fs::create_directories(folder / "class/link");
    fs::create_symlink(LADDER_SOURCE_DIR "/stages/05_causal_skip/kernel.cu", folder / "class/link/kernel.cu");
    fs::create_symlink("ada", folder / "class/friend");
    fs::create_symlink(LADDER_SOURCE_DIR "/stages/05_causal_skip", folder / "class/solution");
    folder.write("class/ada/kernel.cu", kernel_of(5));
    folder.write("rubric.json", R"({"stage": 5, "seed": 3, "points": {"moved": 40}})");
    const std::vector<std::string> command{"grade",        folder / "class",     "--out",
                                           folder / "out", "--rubric",           folder / "rubric.json",
                                           "--json",       folder / "class.json"};
    const ProcessResult first = lab(command);
    INFO(first.out << first.err);
    CHECK(first.status == 0);
    CHECK(contains(first.out, "graded now   19"));
    CHECK(first.out.find('\x1b') == std::string::npos);
    const auto all = nlohmann::json::parse(folder.read("class.json"));
    CHECK(all.at("grades").size() == 19);
    const std::string csv = folder.read("out/grades.csv");
    check_gradescope(folder.read("out/ada.json"));
    check_gradescope(folder.read("out/empty.json"));
    CHECK(contains(csv, "\"ada\",5,20,15,40,15,10,105,105"));
    CHECK(contains(csv, "\"empty\",0,0,0,0,0,0,0,105"));
    for (const char* name : {"\\xff\\xfe", "esc\\x1b[2J", "tab\\x09name", "'=cmd|' calc'!A0", "\\x09=1+1",
                             "' +1", "loop", "dangling", "unreadable", "pipe", "link", "friend", "solution",
                             "\\xe2\\x80\\xaexcod.a", "zero\\xe2\\x80\\x8bwidth", "\\xc2\\x85next"}) {
        INFO(name);
        CHECK(contains(csv, "\n\"" + std::string(name) + "\",0,0,0,0,0,0,0,105"));
    }
    CHECK(contains(folder.read("out/loop.json"), "it is a link to a folder"));
    CHECK(contains(folder.read("out/friend.json"), "it is a link to a folder"));
    CHECK(contains(folder.read("out/similarity.csv"), "\"ada\",\"stages/05_causal_skip\","));
    CHECK(all.at("similar").size() == 1);
    CHECK(contains(folder.read("out/pipe.json"), "no ordinary file"));
    // What is written where submissions are would be one.
    for (const char* inside : {"class/out", "class", "class/ada/out"}) {
        auto wrong = command;
        wrong[3] = folder / inside;
        const ProcessResult refused = lab(wrong);
        CHECK(refused.status == 2);
        CHECK(contains(refused.err, "is in the class's folder"));
    }
    CHECK(!fs::exists(folder / "class/out"));
    // Again: nothing to do. One result lost: one to do, and the same table.
    CHECK(contains(lab(command).out, "graded now   0"));
    fs::remove(folder / "out/empty.json");
    CHECK(contains(lab(command).out, "graded now   1"));
    CHECK(folder.read("out/grades.csv") == csv);
}

TEST_CASE("course: a library is as new as all that its source includes", "[course]") {
    const Folder folder;
    folder.write("mine.h", "inline int mine() { return 1; }\n");
    const std::string kernel =
        folder.write("kernel.cu", "#include \"stages/device.cuh\"\n#include \"mine.h\"\n");
    const Compilation c{kernel, name(Backend::cpu), folder / ""};
    const auto made = [&] {
        REQUIRE(compile({c}, compiler_limits()).front() == "");
        return fs::last_write_time(c.library());
    };
    const auto first = made();
    CHECK(made() == first);
    // The layer too, also where the compiler had it from a precompiled header and does not list it.
    CHECK(contains(folder.read("cpu.so.made"), (fs::path(LADDER_SOURCE_DIR) / "simt/half.h").string()));
    CHECK(screen_compiled({c}, Backend::cpu) == std::vector<std::string>{"it includes mine.h"});
    folder.write("mine.h", "inline int mine() { return 2; }\n");
    CHECK(made() != first);
}

TEST_CASE("course: nvcc makes a library of a kernel, beside the solution of the same number", "[course]") {
    const Folder folder;
    const std::string kernel = folder.write("kernel.cu", kernel_of(5));
    const Compilation c{kernel, name(Backend::gpu), folder / ""};
    const auto build = [&] { return compile({c}, sandboxed_compiler_limits(kernel, folder / "")).front(); };
#    ifndef LADDER_HAS_GPU
    CHECK_THROWS_AS(build(), CannotRun);
    std::puts("SKIPPED: this build has no nvcc");
#    else
    REQUIRE(build() == "");
    CHECK(screen_compiled({c}, Backend::gpu) == std::vector<std::string>{});
    const auto made = fs::last_write_time(c.library());
    CHECK(build() == "");
    CHECK(fs::last_write_time(c.library()) == made);  // kept

    const std::size_t before = stages().size();
    const Stage yours = own_stage(c.library()), solution = *find_stage(5);
    CHECK(stages().size() == before);
    CHECK(yours.folder() == "05_yours");
    CHECK(yours.parent == 4);
    CHECK(yours.head_dims == solution.head_dims);
    REQUIRE(yours.run != nullptr);
    CHECK(yours.run != load_stage(solution, Backend::gpu).run);
    // What a library throws is caught here as what it is.
    Problem problem;
    problem.d = 64;
    if (!has_device(Backend::gpu)) CHECK_THROWS_AS(yours.run(problem), CheckFailed);

    folder.write("kernel.cu", with(kernel_of(5), "const int diagonal", "const in diagonal"));
    CHECK(contains(build(), "kernel.cu(139): error"));
    CHECK(!fs::exists(c.library()));
    // What only nvcc's host code calls, the CPU's objects do not show.
    folder.write("kernel.cu", with(kernel_of(5), "    launch(attention<T, d>",
                                   "    if constexpr (backend == Backend::gpu) cudaDeviceReset();\n"
                                   "    launch(attention<T, d>"));
    REQUIRE(build() == "");
    const auto foreign = screen_compiled({c}, Backend::gpu);
    REQUIRE(foreign.size() == 1);
    CHECK(contains(foreign.front(), "it uses cudaDeviceReset"));
#    endif
    CHECK_THROWS_AS(load_library(folder / "nothing.so"), CheckFailed);
    CHECK_THROWS_AS(load_library(kernel), CheckFailed);
}

TEST_CASE("course: a kernel is timed beside its parent and the solution", "[course]") {
    Stage yours = *find_stage(5);
    yours.name = "yours";
    test::FakeGpu gpu;
    gpu.milliseconds = {{4, 3.0}, {5, 1.5}};
    const std::vector<Stage> racers{*find_stage(4), *find_stage(5), yours};
    Speed speed{time_stages(gpu, racers, test::small_options()), ""};
    CHECK(!speed.wrong());
    CHECK(std::abs(speed.over_parent().value_or(0) - 2) < 1e-9);
    CHECK(!speed.results->kernels.contains("05_yours"));
    const std::string table = to_markdown(regime_table(*speed.results));
    INFO(table);
    CHECK(contains(table, "| train 40 | 04_split_q | yes | 3.000 |"));
    CHECK(contains(table, "| train 40 | 05_yours | yes | 1.500 |"));
    CHECK(contains(table, "| 2.00x |"));

    gpu.wrong_stage = 5;
    speed.results = time_stages(gpu, racers, test::small_options());
    CHECK(speed.wrong());
    CHECK(!speed.over_parent());
    CHECK(contains(to_markdown(regime_table(*speed.results)), "| train 40 | 05_yours | WRONG | 1.500 |"));
    CHECK(!Speed{}.wrong());
    CHECK(!Speed{}.over_parent());
}

TEST_CASE("course: the leaderboard is no part of the score", "[course]") {
    Grade grade{{{"correct", "correct", 20, 20, "yes"}}, "0", {}, ""};
    const auto without = nlohmann::json::parse(gradescope_json(grade));
    CHECK(!without.contains("leaderboard"));
    grade.over_parent = 1.957;
    auto with_time = nlohmann::json::parse(gradescope_json(grade));
    CHECK(with_time["leaderboard"] ==
          nlohmann::json::parse(R"([{"name": "times the parent's speed", "value": 1.96, "order": "desc"}])"));
    with_time.erase("leaderboard");
    CHECK(with_time == without);

    const Folder folder;
    const std::vector<std::string> grading{"grade", folder / "", "--stage", "5", "--leaderboard"};
    CHECK(lab(grading).status == 2);
    if (has_device(Backend::gpu)) return;
    auto into_file = grading;
    into_file.insert(into_file.end(), {"--gradescope", folder / "result.json"});
    const ProcessResult no_gpu = lab(into_file);
    CHECK(no_gpu.status == 3);
    CHECK(no_gpu.err.starts_with("lab: --leaderboard needs a GPU: "));
    CHECK(std::count(no_gpu.err.begin(), no_gpu.err.end(), '\n') == 1);
    CHECK(!fs::exists(folder / "result.json"));
    CHECK(lab({"time", "4", folder / "x.so"}).status == 2);
}

TEST_CASE("course: rubrics and grades that make no sense", "[course]") {
    const Folder folder;
    const auto refused = [&](const std::string& text) {
        folder.write("rubric.json", text);
        const ProcessResult result = lab({"grade", folder / "", "--rubric", folder / "rubric.json"});
        INFO(result.err);
        CHECK(result.status == 2);
        CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    };
    refused("{");
    refused(R"({"stage": 5, "points": {"style": 3}})");
    refused(R"({"stage": 5, "points": {"moved": -1}})");
    refused(R"({"stage": 99})");
    refused(R"({"stage": "five"})");
    refused(R"({"points": {}})");
    refused(R"({"stage": 5, "all_or_nothing": ["races"]})");
    refused(R"({"stage": 0})");
    CHECK(lab({"grade", folder / "nowhere", "--stage", "5"}).status == 2);
}

#endif
