// Exercises, puzzles and hand-outs, as students meet them. Kernels are compiled here, so a test that needs
// several is slow.
#ifdef LADDER_HAS_CPU

#    include <fmt/ranges.h>
#    include <algorithm>

#    include <filesystem>
#    include <functional>
#    include <nlohmann/json.hpp>
#    include <regex>
#    include <set>
#    include <sstream>

#    include "course/check.h"
#    include "course/exercise.h"
#    include "course/fence/screen.h"
#    include "course/mutants.h"
#    include "course/problems.h"
#    include "course/zoo.h"
#    include "harness/base/terminal.h"
#    include "harness/ladder/ladder.h"
#    include "harness/report/diff.h"
#    include "stages/errors.h"
#    include "tests/any_stage.h"
#    include "tests/course.h"
#    include "tests/terminal.h"

using namespace ladder;
using namespace ladder::test;
namespace fs = std::filesystem;

namespace {

/// What Git would tell of in a checkout with these files.
std::string untracked_in(const Folder& folder) {
    return run_process(
               {"sh", "-c", "cd '" + (folder / "") + "' && git init -q && git status --porcelain -uall"})
        .out;
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

}  // namespace

TEST_CASE("course: every rung with a parent is an exercise, with a task and three hints", "[course]") {
    for (const Stage& stage : stages()) {
        if (stage.parent < 0) continue;
        INFO(stage.folder());
        if (is_experiment(stage)) {
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
        CHECK(screen_source(start) == std::vector<std::string>{});
        CHECK(contains(start, ".number = " + std::to_string(stage.number) + ","));
        CHECK(screen_source(kernel_of(stage.number)) == std::vector<std::string>{});
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
    CHECK_THROWS_AS(load_exercise(std::to_string(free_number())), BadUsage);
    CHECK(load_exercise("causal_skip").number == 5);
}

TEST_CASE("course: start, check, hint and reset, as a student meets them", "[course]") {
    const Folder folder;
    const std::string my = folder / "my";
    REQUIRE(lab_in(folder / "", "start 5").status == 0);
    REQUIRE(lab_in(my, "trace 4 --shape 1,1,1,1,1,64").status == 0);
    REQUIRE(fs::exists(my + "/trace_04.html"));
    CHECK(untracked_in(folder).empty());
    REQUIRE(lab_in(folder / "", "trace 4 my --shape 1,1,1,1,1,64").status == 0);
    CHECK(fs::remove(folder / "trace_04_my.html"));
    const std::string task = folder.read("my/TASK.md");
    CHECK(contains(task,
                   "**Effort:** easy, about 3 hours; the ladder's own solution adds or changes 8 lines."));
    CHECK(contains(task, "| tiles | 32 |\n"));  // and not what it is to become
    std::string prediction = folder.read("my/prediction.md");
    const std::string row = "| tiles | 32 | |";
    REQUIRE(contains(prediction, row));
    const ProcessResult again = lab({"start", "5", "--dir", my});
    CHECK(again.status == 2);
    CHECK(contains(again.err, "exists already and holds an exercise: go on with ./lab check "));

    // Unsolved: right, and nothing moved.
    const ProcessResult unsolved = lab({"check", my, "--json", folder / "unsolved.json"});
    CHECK(unsolved.status == 1);
    const std::regex progress("lab: [0-9]+%[^\n]*\n");  // is shown if it takes long
    CHECK(std::regex_replace(unsolved.err, progress, "") == "lab: not yet: the work moved as claimed\n");
    CHECK(
        contains(unsolved.out, "tiles: 32 counted, as of the parent; what it must become is told once you"));
    CHECK(!contains(unsolved.out, "must become 20"));
    CHECK(contains(unsolved.out, "prediction.md has no number yet"));
    CHECK(!contains(unsolved.out, "next:"));
    const auto json = nlohmann::json::parse(folder.read("unsolved.json"));
    CHECK(json["passed"] == false);
    for (const auto& criterion : json["criteria"])
        CHECK(criterion["passed"] == (criterion["criterion"] != "moved"));

    for (const char* which : {"1 of 3", "2 of 3", "3 of 3"}) CHECK(contains(lab({"hint", my}).out, which));
    CHECK(contains(lab({"hint", my}).out, "the last hint"));

    // Predicted, and not solved: now it is told, and what no counter answers is named.
    const std::string stays = "| a counter that stays | | | |";
    prediction = with(with(prediction, row, "| tiles | 32 | 18 |"), stays, "| launches | 1 | 1 | |");
    folder.write("my/prediction.md", prediction);
    const ProcessResult predicted = lab({"check", my});
    CHECK(contains(predicted.out, "tiles: 32 counted, must become 20 (the parent has 32)"));
    CHECK(contains(predicted.out,
                   "prediction.md also predicts \"launches\": no counter that the change moves"));
    CHECK(contains(lab_in(folder / "", "start").out, "begun in my"));

    // Solved: everything opens up, what was predicted stands beside what is counted, and the next one is
    // named.
    folder.write("my/kernel.cu", kernel_of(5));
    const ProcessResult solved = lab({"check", my, "--json", folder / "solved.json"});
    INFO(solved.out << solved.err);
    CHECK(solved.status == 0);
    CHECK(contains(solved.out, folder_of("causal_skip") + "/README.md"));
    std::string no_gpu;
    CHECK(contains(solved.out, has_device(Backend::gpu, &no_gpu) ? "_yours" : "not timed: " + no_gpu));
    CHECK(fs::exists(my + "/solution.diff"));
    const auto told = nlohmann::json::parse(folder.read("solved.json"));
    REQUIRE(told["predictions"].size() == 1);
    CHECK(told["predictions"][0]["of_parent"] == 32);
    CHECK(told["predictions"][0]["predicted"] == "18");
    CHECK(told["predictions"][0]["counted"] == 20);
    CHECK(told["predictions"][0]["is_right"] == false);
    CHECK(contains(solved.out, "next: ./lab start 6 (06_flash_decoding: "));
    CHECK(contains(solved.out, "05 is also where these start: 20_wide_warps, 60_sliding_window, "));
    const std::string list = lab_in(folder / "", "start").out;
    CHECK(contains(list, "solved in my"));
    CHECK(contains(list, "next: ./lab start 6"));
    // The next one has a folder of its own, which is now the one that is meant where none is named.
    const ProcessResult next = lab_in(folder / "", "start 2");
    CHECK(contains(next.out, "then: ./lab check my-2    stuck: ./lab hint my-2"));
    CHECK(contains(lab_in(folder / "", "hint").out, "of 3 for 02_deferred_normalization"));

    CHECK(lab({"reset", my}).status == 0);
    CHECK(folder.read("my/kernel.cu") == starting_kernel(load_exercise("5")));
    CHECK(folder.read("my/kernel.1.cu") == kernel_of(5));
    CHECK(contains(lab({"hint", my}).out, "1 of 3"));

    // Wrong results are told where they are judged, and not once more for each counter.
    folder.write("my/kernel.cu", with(kernel_of(5), "key <= row + p.Nk - p.Nq", "key <= row"));
    const std::string wrong = lab({"check", my}).out;
    const std::size_t moved = wrong.find("the work moved as claimed: not yet");
    REQUIRE(moved != wrong.npos);
    CHECK(contains(wrong.substr(0, moved), "worst at"));
    CHECK(contains(wrong.substr(moved), "normal: see \"correct on seeded problems"));
    CHECK(!contains(wrong.substr(moved), "worst at"));

    // A race comes with the lines that it is between: they name the arrays.
    folder.write("my/kernel.cu", with(kernel_of(5), "        copy_wait();\n", ""));
    const ProcessResult raced = lab({"check", my});
    CHECK(raced.status == 1);
    CHECK(contains(raced.out, "  copy_async(&tile[row + n][column], source"));
    CHECK(contains(raced.out, "  ldmatrix(q, &shared.Q[16 * warp + a_row(lane)]"));
    // Before all else, once, and as wide as the terminal.
    CHECK(raced.out.starts_with("Mend this first:"));
    const std::string access = "copy_async(&tile";
    CHECK(raced.out.find(access) == raced.out.rfind(access));
    CHECK(std::count(raced.out.begin(), raced.out.end(), '\n') < 60);
    Terminal terminal(80);
    run_process({"sh", "-c",
                 "NO_COLOR=1 '" LADDER_LAB "' check '" + my + "' > " + terminal.path() + " 2> /dev/null"});
    std::istringstream lines(terminal.said());
    for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 80);

    // What does not compile is named by file and line.
    folder.write("my/kernel.cu", with(kernel_of(5), "const int reach", "const in reach"));
    const ProcessResult broken = lab({"check", my});
    CHECK(broken.status == 1);
    CHECK(contains(broken.out, place_of(kernel_of(5), "const int reach") + ":"));
    CHECK(lab({"check", folder / "nowhere"}).status == 2);

    // Commands are printed as they can be typed.
    setenv("LADDER_COMMAND", "../a ladder/lab", 1);
    const ProcessResult quoted = lab_in(folder / "", "start 2 --dir 'my own'");
    unsetenv("LADDER_COMMAND");
    CHECK(contains(quoted.out, "then: '../a ladder/lab' check 'my own'    stuck: "));
    CHECK(contains(folder.read("my own/TASK.md"), "`'../a ladder/lab' check 'my own'` says what is wrong"));
    CHECK(lab({"start", "0", "--dir", folder / "zero"}).status == 2);
}

TEST_CASE("course: solutions pass their own checks", "[course][slow]") {
    // A second kernel with a workspace, a new head dimension, counters, an order of blocks, mbarriers that
    // copies arrive at, boxes and tiles that are no longer masked, gradients.
    for (const char* name : {"flash_decoding", "packed_gqa", "one_launch", "longest_first", "mbarriers",
                             "tma_wgmma", "recompute"}) {
        const Exercise e = load_exercise(name);
        INFO(e.folder());
        const Folder folder;
        const StudentFolder student = start_exercise(e, folder / "my");
        folder.write("my/kernel.cu", kernel_of(e.number));
        const CheckResult solved = check_kernel(e, student.kernel(), student.products(), {}, quietly);
        for (const Criterion& c : solved.criteria) {
            INFO(c.title << (c.reports.empty() ? "" : "\n" + c.reports.front()));
            CHECK(c.all());
        }
        CHECK(solved.notes.empty());
    }
}

TEST_CASE("course: the problems of each seed hold what free draws may miss", "[course]") {
    for (const char* name :
         {"deferred_normalization", "flash_decoding", "lazy_rescale", "own_diagonal", "deterministic"}) {
        const Exercise e = load_exercise(name);
        INFO(e.folder());
        std::set<std::string> values;
        for (const std::uint64_t seed : {1, 2, 7}) {
            const std::vector<Case> seeded = seeded_problems(e, seed), raced = race_problems(e, seed);
            CHECK(seeded == seeded_problems(e, seed));
            for (const Case& c : seeded) values.insert(options_of(c));
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
                Case same = parse_case(options_of(c));
                same.pass = c.pass;
                CHECK(same == c);
            }
        }
        CHECK(values.size() > 2 * seeded_problems(e, 1).size());
    }
    CHECK_THROWS_AS(parse_case("--causal"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,1,1,64 --window 3"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,1,1,64 --columns every"), BadUsage);
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
    CHECK(untracked_in(folder).empty());
    CHECK(contains(first.out, description_of(problem)));
    CHECK(says(first.out, report));
    CHECK(!contains(first.out, bug));
    CHECK(lab({"zoo", number, "--dir", dir, "--check"}).status == 1);
    CHECK(lab({"zoo", "1", "--dir", dir, "--check"}).status == 2);  // another puzzle's folder
    for (const std::string& hint : hints)
        CHECK(contains(lab({"zoo", number, "--dir", dir, "--hint"}).out, hint));
    CHECK(contains(lab({"zoo", number, "--dir", dir, "--hint"}).out, "the last hint"));
    // Which puzzles are solved is what their folders say.
    CHECK(solved_puzzles(folder / "").empty());
    std::string kernel = read_file(dir + "/kernel.cu");
    for (const auto& [from, to] : replacements) {
        REQUIRE(kernel.find(to) != kernel.npos);
        kernel.replace(kernel.find(to), to.size(), from);
    }
    folder.write("zoo-" + number + "/kernel.cu", kernel);
    CHECK(contains(lab({"zoo", number, "--dir", dir, "--check"}).out, "fixed"));
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
        if (puzzle.stage->number < 10) CHECK(contains(few.out, mutant.symptom));
        CHECK(!mutant.hints.empty());
        for (const std::string& hint : mutant.hints) CHECK(hint.size() <= 80);
    }
    CHECK(order.size() >= 20);
    CHECK(std::count(few.out.begin(), few.out.end(), '\n') < 40);  // fits a screen
    CHECK(std::is_sorted(order.begin(), order.end(), [](const auto& a, const auto& b) {
        const auto& names = difficulties();
        return std::find(names.begin(), names.end(), a) < std::find(names.begin(), names.end(), b);
    }));
    std::istringstream lines(few.out);
    for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 80);
    // One edit mends it unless the puzzle says otherwise: more where its lines are apart, or move. A comment
    // may be gone.
    const auto sorted_lines = [](const std::string& text) {
        std::istringstream words(text);
        std::multiset<std::string> sorted;
        for (std::string line; std::getline(words, line);) {
            if (line.find_first_not_of(' ') != line.find("//")) sorted.insert(line);
        }
        return sorted;
    };
    for (const Puzzle& puzzle : zoo()) {
        const auto& [from, to] = puzzle.mutant.replacements.front();
        const std::size_t replacements = puzzle.mutant.replacements.size();
        if (replacements == 1 && (puzzle.number % 40 != 2 || sorted_lines(from) == sorted_lines(to)))
            continue;
        INFO(puzzle.id);
        CHECK((places_of(puzzle) > 1) == (replacements > 1 || sorted_lines(from) == sorted_lines(to)));
    }
    const std::vector<Puzzle> puzzles = zoo();
    for (const auto& [places, said] :
         {std::pair{1, "1 place in the kernel"}, {2, "2 places in the kernel"}}) {
        const auto puzzle =
            std::ranges::find_if(puzzles, [&](const Puzzle& each) { return places_of(each) == places; });
        CHECK(contains(lab({"zoo", std::to_string(puzzle->number), "--give-up"}).out, said));
    }
}

TEST_CASE("course: a hand-out holds no solution", "[course]") {
    const Folder folder;
    folder.write("results.md", "");  // beside it, where the guide's page of results would be
    const auto handout = json_of(folder, {"handout", "5", "--out", folder / "out"});
    std::vector<std::string> hidden, kept;  // 05 and all that were made from it, and the others
    std::set<int> numbers{5};
    for (const Stage& stage : stages()) {
        if (numbers.contains(stage.parent) || stage.pass == Pass::backward) numbers.insert(stage.number);
        (numbers.contains(stage.number) ? hidden : kept).push_back(stage.folder());
    }
    CHECK(handout.at("left out") == fmt::format("{}", fmt::join(hidden, ", ")));
    CHECK(handout.at("included") == fmt::format("{}", fmt::join(kept, ", ")));
    CHECK(kept.back() == folder_of("paper_tiles"));  // whose parent is 01
    // Whatever 05 adds to 04 is nowhere, in no file, however it is spaced.
    const std::set<std::string> lines = secrets(named("causal_skip"));
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
    CHECK(handout.at("files") == files);
    // Links lead somewhere, or are words; what looks like one in code stays.
    const std::regex link(R"~(\[[^\]]*\]\((?!https?:|#|[^)]*[ &])([^)#]+)|(?:src|srcset)="([^"]+)")~");
    const auto markdown = [](const fs::path& file) {
        if (file.extension() == ".md") return read_file(file);
        std::string text;
        if (file.extension() != ".ipynb") return text;
        const auto notebook = nlohmann::json::parse(read_file(file));
        for (const auto& cell : notebook.at("cells"))
            if (cell.at("cell_type") == "markdown") text += cell.at("source").get<std::string>() + "\n";
        return text;
    };
    int links = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder / "out")) {
        const std::string text = markdown(entry.path());
        for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found) {
            const std::string target = (*found)[1].str() + (*found)[2].str();
            INFO(entry.path().string() << ": " << target);
            CHECK(fs::exists(entry.path().parent_path() / target));
            CHECK(target != "../results.md");
            links += 1;
        }
    }
    CHECK(links > 100);
    const std::string hidden_stage = "out/stages/" + folder_of("causal_skip") + "/",
                      kept_stage = "out/stages/" + child().folder() + "/";
    CHECK(contains(folder.read("out/STUDENTS.md"), "the ladder's notebook for Colab |"));
    CHECK(contains(folder.read(kept_stage + "README.md"), "(../" + parent().folder() + "/README.md)"));
    CHECK(fs::exists(folder / "out/.devcontainer/Dockerfile"));
    for (const char* name : {"kernel.cu", "README.md", "mutants"})
        CHECK(!fs::exists(folder / (hidden_stage + name)));
    for (const std::string& name : hidden) {
        if (name != folder_of("causal_skip")) CHECK(!fs::exists(folder / ("out/stages/" + name)));
    }
    for (const char* file : {"docs/worked_example.md", "docs/one_mma.md", "docs/one_descriptor.md",
                             "docs/course/labs/05_causal_skip.md", "notebooks/ladder.py"})
        CHECK(fs::exists(fs::path(folder / "out") / file));
    CHECK(!fs::exists(folder / "out/docs/course/labs/06_flash_decoding.md"));
    CHECK(!fs::exists(folder / "out/docs/course/quiz"));  // its answers
    const std::string notebook = markdown(folder / "out/notebooks/01_online_softmax.ipynb");
    CHECK(contains(notebook, "(../docs/worked_example.md)"));
    CHECK(!contains(notebook, "05_decoding.ipynb"));
    const auto known = nlohmann::json::parse(folder.read(hidden_stage + "stage.json"));
    CHECK(known.at("problems").size() == load_exercise("5").problems.size());  // these, not the bugs
    CHECK(fs::exists(folder / "out/docs/figures/04-split-q.svg"));
    CHECK(!fs::exists(folder / "out/docs/figures/05-causal.svg"));
    CHECK(fs::exists(folder / kept_stage + "mutants/missing_wait.txt"));
    CHECK(contains(folder.read(hidden_stage + "exercise.md"), "## The complaint"));
    CHECK(fs::exists(folder / hidden_stage + "claims.cpp"));  // what a check holds them to

    // The two branches are independent; a chain is not.
    const auto two = json_of(folder, {"handout", "packed_gqa", "lazy_rescale", "--out", folder / "two"});
    for (const char* name : {"packed_gqa", "lazy_rescale"}) {
        const Stage& stage = named(name);
        CHECK(contains(two.at("included"), find_stage(stage.parent)->folder()));
        CHECK(!contains(two.at("included"), stage.folder()));
    }
    // Windows on Hopper have another parent and the same answers; what takes no window stays.
    const auto windows = json_of(folder, {"handout", "60", "--out", folder / "windows"});
    CHECK(contains(windows.at("left out"), "65_hopper_windows, "));
    CHECK(contains(windows.at("included"), "63_tile_lists, "));
    // Its answers are files of the parent's folder, one of which a stage of another part includes, too.
    const auto scores = json_of(folder, {"handout", "any_mask", "--out", folder / "scores"});
    CHECK(contains(scores.at("left out"), folder_of("any_cache")));
    CHECK(contains(scores.at("included"), folder_of("hopper_columns")));
    const std::string types = "scores/stages/" + folder_of("hopper_windows") + "/";
    CHECK(fs::exists(folder / (types + "columns.cuh")));
    CHECK(!fs::exists(folder / (types + "softcap.cuh")));
    expect_failure({"handout", "4", "5", "--out", folder / "chain"}, 2, "which would be hidden");
    expect_failure({"handout", "5", "--out", folder / "out"}, 2, "exists already");
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
    CHECK(found == 7);
}

#endif
