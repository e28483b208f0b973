// Grades: of one submission, of a class, and the files that say them.
#ifdef LADDER_HAS_CPU

#    include <fcntl.h>
#    include <sys/stat.h>
#    include <algorithm>
#    include <cmath>
#    include <filesystem>
#    include <functional>
#    include <map>
#    include <nlohmann/json.hpp>
#    include <set>

#    include "course/grade.h"
#    include "course/mutants.h"
#    include "course/problems.h"
#    include "course/speed.h"
#    include "harness/report/timing_tables.h"
#    include "harness/time/timing.h"
#    include "tests/any_stage.h"
#    include "tests/course.h"
#    include "tests/fake_gpu.h"
#    include "tests/skip.h"

using namespace ladder;
using namespace ladder::test;
namespace fs = std::filesystem;

namespace {

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

TEST_CASE("grade: what a kernel does not declare that it takes is rejected by name", "[course]") {
    const std::string declared = ".takes = {Feature::window}";
    const Grade grade = graded(with(kernel_of(60), declared, ".takes = {}"), 60);
    CHECK(score(grade, "builds") == 1);
    CHECK(score(grade, "correct") == 0);
    CHECK(contains(output(grade, "correct"),
                   "it does not declare that it takes a sliding window: add Feature::window to .takes"));
    CHECK(!contains(output(grade, "correct"), "differs"));
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
    const std::string zoo_bug = wrong_kernel(
        kernel_of(4), read_mutant(stages_folder() / child().folder() / "mutants/missing_rescale.txt"));
    CHECK(graded(zoo_bug, 4).total() == 5);
    // Right, and some of the parent's work is left.
    const Grade too_much = graded(wrong_kernel(good, read_mutant(stages_folder() / folder_of("causal_skip") /
                                                                 "mutants/tile_above_the_diagonal.txt")));
    CHECK(too_much.total() > 5);
    CHECK(too_much.total() <= 20);
    for (const char* results : {"correct", "edges", "races"}) CHECK(score(too_much, results) == 0);
    CHECK(contains(output(too_much, "edges"), "Counts once each counter that the change moves is exact"));

    // Hard-coded outputs: a kernel that stores zeros, as many as there should be.
    const Grade zeros =
        graded(with(good, "O[n][2 * r] * inverse_l, O[n][2 * r + 1] * inverse_l)", "0.0f, 0.0f)"));
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
    CHECK(contains(output(declared, "builds"), "outside of the unnamed namespace"));

    // An editor's byte order mark is no one's fault.
    CHECK(graded("\xef\xbb\xbf" + good).total() == 100);

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
    const Grade deadlock = graded(
        with(good, "        __syncthreads();  // all copies of Q, K and V have landed",
             "        if (threadIdx.x < 100) __syncthreads();  // all copies of Q, K and V have landed"));
    CHECK(score(deadlock, "races") == 0);
    CHECK(contains(output(deadlock, "races"), "kernel.cu:"));

    // All four lanes of a row write the same L: right, and a race all the same.
    const Grade race = graded(with(good, "if (t == 0) store(L, ", "store(L, "));
    CHECK(race.total() == 5);
    const std::string edges = std::to_string(edge_problems(load_exercise("5"), true).size());
    CHECK(contains(output(race, "edges"), edges + " of " + edges));
    CHECK(contains(output(race, "races"), "kernel.cu:"));
}

TEST_CASE("course: the checked run is judged where two runs may differ", "[course][slow]") {
    // dV is 0 where threads do not run in order, which only the race checker's runs do. Nothing races.
    const std::string write = "    write_rows(dV_part, p.dV.row, j * Bc + key, p.Nk, 1.0f, dV);\n",
                      room = "64 * (s.d + 2) * sizeof(float);";
    const std::string kernel = with(
        with(kernel_of(43), write,
             "    const int rows = ceil_div(p.Nq, 64) * 64 * p.B * p.H, block = (b * p.Hkv + h_kv) * "
             "gridDim.x + "
             "blockIdx.x;\n"
             "    unsigned* turn = static_cast<unsigned*>(p.workspace) + rows * (d + 2) + block;\n"
             "    __syncthreads();\n"
             "    const unsigned before = atomic_inc_acq_rel(turn, ~0u) + 1;  // the workspace begins as ~0\n"
             "    const float dV_scale = threadIdx.x / 32 == 0 && before >= blockDim.x / 2 ? 0.0f : 1.0f;\n"
             "    write_rows(dV_part, p.dV.row, j * Bc + key, p.Nk, dV_scale, dV);\n"),
        room, "64 * (s.d + 2) * sizeof(float) + 4 * s.B * s.Hkv * ceil_div(s.Nk, 32) * 2;");
    const Grade grade = graded(kernel, 43);
    INFO(output(grade, "correct") << output(grade, "races"));
    CHECK(contains(output(grade, "races"), "dV is wrong"));
    CHECK(grade.total() == 5);
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

TEST_CASE("course: a grade is written as Gradescope documents it", "[course]") {
    Grade grade;
    grade.fingerprint = "0123456789abcdef";
    grade.scores = {{"builds", "builds", 5, 5, "yes\n"},
                    {"correct", "correct", 17.5, 20, "7 of 8\n\n\"quoted\"\ttabbed\n"},
                    {"edges", "edges", 3.33, 10, ""},
                    {"races", "races", 0, 15, "not examined: it needs a kernel that builds"},
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
    refused("{\"stage\": " + std::to_string(free_number()) + "}");
    refused(R"({"stage": "five"})");
    refused(R"({"points": {}})");
    refused(R"({"stage": 5, "all_or_nothing": ["races"]})");
    refused(R"({"stage": 0})");
    CHECK(lab({"grade", folder / "nowhere", "--stage", "5"}).status == 2);
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
    check_gradescope(folder.read("out/ada.json"));
    check_gradescope(folder.read("out/empty.json"));
    CHECK(contains(folder.read("out/ada.md"), "# Stage 05, causal skip: ada\n\n105 of 105 points\n"));
    CHECK(contains(folder.read("out/empty.md"), "\n    there is no kernel.cu\n"));
    CHECK(fs::exists(folder / "out/esc\\x1b[2J.md"));
    // When a file was written says who was late.
    const timespec time{1700000000, 0}, times[2] = {time, time};
    REQUIRE(utimensat(AT_FDCWD, (folder / "class/ada/kernel.cu").c_str(), times, 0) == 0);
    lab(command);
    CHECK(contains(folder.read("out/grades.csv"), ",105,105,2023-11-14T22:13:20Z\n"));
    const std::string csv = folder.read("out/grades.csv");
    CHECK(contains(csv, "\"ada\",5,20,15,40,15,10,105,105,"));
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

TEST_CASE("course: a kernel is timed beside its parent and the solution", "[course]") {
    const Stage& solution = named("causal_skip");
    Stage yours = solution;
    yours.name = "yours";
    test::FakeGpu gpu;
    gpu.milliseconds = {{4, 3.0}, {5, 1.5}};
    const std::vector<Stage> racers{*find_stage(solution.parent), solution, yours};
    Speed speed{time_stages(gpu, racers, test::small_options()), ""};
    CHECK(!speed.wrong());
    CHECK(std::abs(speed.over_parent().value_or(0) - 2) < 1e-9);
    CHECK(!speed.results->kernels.contains(yours.folder()));
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

    if (!test::available(Backend::checked)) return;
    const Folder folder;
    const std::vector<std::string> grading{"grade", folder / "", "--stage", "5", "--leaderboard"};
    CHECK(lab(grading).status == 2);
    auto into_file = grading;
    into_file.insert(into_file.end(), {"--gradescope", folder / "result.json"});
    if (has_device(Backend::gpu)) {
        fs::copy_file(LADDER_SOURCE_DIR "/stages/05_causal_skip/kernel.cu", folder / "kernel.cu");
        CHECK(lab(into_file).status == 0);
        const auto graded = nlohmann::json::parse(folder.read("result.json"));
        CHECK(graded["score"] == 100);
        CHECK(graded["leaderboard"][0]["value"] > 0.0);
        return;
    }
    const ProcessResult no_gpu = lab(into_file);
    CHECK(no_gpu.status == 3);
    CHECK(no_gpu.err.starts_with("lab: --leaderboard needs a GPU: "));
    CHECK(std::count(no_gpu.err.begin(), no_gpu.err.end(), '\n') == 1);
    CHECK(!fs::exists(folder / "result.json"));
    CHECK(lab({"time", "4", folder / "x.so"}).status == 2);
}

#endif
