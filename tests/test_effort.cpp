// What an exercise asks of a student, and which one comes next. No kernel is compiled here.
#ifdef LADDER_HAS_CPU

#    include <filesystem>
#    include <map>
#    include <set>
#    include <sstream>

#    include "course/effort.h"
#    include "tests/course.h"

using namespace ladder;
using namespace ladder::test;
namespace fs = std::filesystem;

TEST_CASE("course: a task names the functions that the solution calls and the parent does not", "[course]") {
    const auto names_of = [](const char* stage) {
        std::set<std::string> names;
        for (const NewFunction& function : effort_of(load_exercise(stage)).functions)
            names.insert(function.header + ": " + function.name);
        return names;
    };
    CHECK(names_of("31") == std::set<std::string>{"stages/hopper.cuh: claim_registers",
                                                  "stages/hopper.cuh: release_registers"});
    // Its variable `ring` is not that of stages/ring.h, and no name in a string is a call.
    CHECK(names_of("12") == std::set<std::string>{"stages/device.cuh: copy_commit"});
    CHECK(names_of("75") == std::set<std::string>{"stages/device.cuh: ldmatrix_transposed"});
    CHECK(names_of("5").empty());
    CHECK(names_of("89") == std::set<std::string>{"stages/ring.h: rank", "stages/ring.h: ranks",
                                                  "stages/ring.h: all_gather", "stages/ring.h: ring",
                                                  "stages/ring.h: chunk_begin"});
    // The parent of 86 has a variable of that name.
    for (const char* function : {"device.cuh: matrix", "ring.h: ring", "ring.h: start", "ring.h: wait"})
        CHECK(names_of("86").contains("stages/" + std::string(function)));
    CHECK(names_of("30").contains("stages/hopper.cuh: tensor_map"));
    for (const Exercise& e : all_exercises()) {
        INFO(e.folder());
        const Effort effort = effort_of(e);
        CHECK(effort.lines > 0);
        for (const NewFunction& function : effort.functions) {
            INFO(function.name);
            CHECK(!function.meaning.empty());
        }
        // What a hand-out keeps of it
        std::istringstream kept(section(effort_section(effort), "Effort"));
        int lines = 0;
        kept >> lines;
        CHECK(lines == effort.lines);
    }
}

TEST_CASE("course: a task says what to predict, also where the parent takes none of its problems",
          "[course]") {
    std::map<std::string, bool> refused;
    for (const MustMove& move : what_must_move(load_exercise("60"))) {
        CHECK(move.problem.features.window != Window());
        CHECK(refused.emplace(move.claim.counter, move.parent_refuses).second);
    }
    CHECK(refused == std::map<std::string, bool>{{"tiles", true},
                                                 {"masked_tiles", true},
                                                 {"mma", true},
                                                 {"barriers", true},
                                                 {"exponentials", true}});
    const Folder folder;
    REQUIRE(lab_in(folder / "", "start 60").status == 0);
    CHECK(contains(folder.read("my/TASK.md"), "Its fields stand in the order of `Stage` in stages/stage.h."));
    CHECK(contains(folder.read("my/TASK.md"),
                   "| counter | 05_causal_skip |\n|---|---:|\n| tiles | refused |\n"));
}

TEST_CASE("course: the next exercise is the next one of the list that is not solved", "[course]") {
    const Folder folder;
    const auto next_of = [&](const std::vector<int>& solved) {
        for (const int stage : solved) {
            const std::string state = fmt::format("my-{}/.lab", stage);
            fs::create_directories(folder / state);
            folder.write(state + "/exercise.json",
                         fmt::format(R"({{"stage": {}, "hints": 0, "solved": true}})", stage));
        }
        const std::string list = lab_in(folder / "", "start").out;
        const std::size_t at = list.find("next: ");
        return at == list.npos ? "" : list.substr(at, list.find('\n', at) - at);
    };
    CHECK(next_of({}) == "next: ./lab start 2");
    CHECK(next_of({5, 60}) == "next: ./lab start 61");
    CHECK(next_of({69}) == "next: ./lab start 70");  // the masks end with it
    CHECK(next_of({99}) == "next: ./lab start 1");
    std::vector<int> all;
    for (const Exercise& e : all_exercises()) all.push_back(e.number);
    CHECK(next_of(all).empty());
}

#endif
