// What a newcomer sees first on a GPU, `lab time` without arguments, and the stages that it and the sweep
// over caches choose.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "harness/base/terminal.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/report/timing_tables.h"
#include "harness/time/fastest.h"
#include "harness/time/selection.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"
#include "tests/folder.h"

using namespace ladder;
using ladder::test::FakeGpu;
using ladder::test::Folder;

namespace {

bool runs_here(const Stage&) {
    return true;
}
bool runs_anywhere(const Stage& stage) {
    return stage.compute_capability == 0;
}

Selection first_selection(const std::function<bool(const Stage&)>& runs = runs_here) {
    return select_timed({}, false, "", runs);
}

/// "train 2048: 0 1 2 3 4 7 26 36": the stages by their problem.
std::vector<std::string> stages_by_problem(const Selection& selection) {
    std::vector<std::string> lines;
    for (const TimedCase& timed : selection.timing(DType::bf16, "").cases) {
        std::string& line =
            lines.emplace_back(timed.regime + " " + std::to_string(timed.problem.shape.Nk) + ":");
        std::set<int> numbers;
        for (const Stage* stage : selection.timed_on(timed)) numbers.insert(stage->number);
        for (const int number : numbers) line += " " + std::to_string(number);
    }
    return lines;
}

/// The first table of a GPU with invented times: of small problems, which then get the sizes of those that
/// they stand for. `peers` stand for libraries of which two refuse every problem.
Results first_results(FakeGpu& gpu, Peers* peers) {
    const Selection selection = first_selection();
    TimingOptions options = selection.timing(DType::bf16, "");
    const std::vector<TimedCase> real = options.cases;
    for (std::size_t i = 0; i < real.size(); ++i) {
        Case& small = options.cases[i].problem;
        small.shape = {.B = 1, .H = 2, .Hkv = 1, .Nq = 8, .Nk = 16 + static_cast<int>(i), .d = 64};
    }
    const auto real_of = [&](const ProblemLabel& small) -> const TimedCase& {
        return real.at(static_cast<std::size_t>(small.shape.Nk - 16));
    };
    options.takes_part = [&](const Stage& stage, const ProblemLabel& small) {
        return selection.takes_part(stage, label_of(real_of(small)));
    };
    std::vector<Stage> stages;
    for (const Stage* stage : selection.stages) {
        gpu.milliseconds[stage->number] = stage->number < 3 ? 70.0 : 1.0;
        stages.push_back(*stage);
    }
    Results results = time_stages(gpu, stages, options, {}, peers);
    for (Row& row : results.rows) static_cast<ProblemLabel&>(row) = label_of(real_of(row));
    for (PeerRow& row : results.peers) static_cast<ProblemLabel&>(row) = label_of(real_of(row));
    derive(results);
    return results;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

Peers fake_peers(const Folder& folder) {
    return Peers({"sh", LADDER_SOURCE_DIR "/tests/fake_peers.sh", folder / "log"}, 60);
}

ProblemLabel requests(int B, int H, int Hkv, int Nq, int Nk, int page_size = 0) {
    ProblemLabel problem;
    problem.shape = {.B = B, .H = H, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = 128};
    problem.features = {.lengths = "some", .page_size = page_size};
    return problem;
}

RecordedTimes timed(const ProblemLabel& problem, const std::map<int, double>& times) {
    RecordedTimes recorded;
    static_cast<ProblemLabel&>(recorded) = problem;
    for (const auto& [stage, ms] : times) recorded.median_ms[find_stage(stage)->folder()] = ms;
    return recorded;
}

}  // namespace

TEST_CASE(
    "the first table holds each stage of the algorithm where its change shows, and the fastest of parts",
    "[timing][commands]") {
    CHECK(stages_by_problem(first_selection()) ==
          std::vector<std::string>{"train 2048: 0 1 2 3 4 7 26 36", "long 16384: 2 3 26 36",
                                   "causal 16384: 4 5 26 36", "decode 8192: 5 6 17", "decode 65536: 5 6 17",
                                   "decode 262144: 5 6 17", "backward 8192: 46 56"});
    // Where nothing of Hopper runs
    const auto elsewhere = stages_by_problem(first_selection(runs_anywhere));
    CHECK(elsewhere.front() == "train 2048: 0 1 2 3 4 7 26");
    CHECK(elsewhere.back() == "backward 8192: 46");
    // A regime by its name, and the sweep that 39's change shows in
    const auto of_regime = [](const std::string& regime) {
        const Selection selection = select_timed({}, false, regime, runs_here);
        std::set<int> numbers;
        for (const TimedCase& timed : selection.timing(DType::bf16, regime).cases) {
            for (const Stage* stage : selection.timed_on(timed)) numbers.insert(stage->number);
        }
        return numbers;
    };
    CHECK(of_regime("window") == std::set<int>{65, 95});
    for (const Regime& regime : regimes()) {
        if (regime.sweep) continue;
        INFO(regime.name);
        const std::set<int> numbers = of_regime(regime.name);
        CHECK_FALSE(numbers.empty());
        for (const int number : numbers) {
            INFO(number);
            const Stage& stage = *find_stage(number);
            CHECK((stage.products == Products::of_16_bits && !is_experiment(stage) && stage.chunks == 0));
            // A stage with masks is in no regime without any.
            if (features_of(regime.problems[0].features).empty()) CHECK(stage.takes.empty());
        }
    }
}

TEST_CASE("the first table takes two screens of 80 columns", "[timing][commands]") {
    const Folder folder;
    Peers peers = fake_peers(folder);
    FakeGpu gpu;
    Results results = first_results(gpu, &peers);
    for (const Row& row : results.rows) {
        INFO(row.folder << " " << row.why_not);
        CHECK(row.verified);
    }
    Printout printout = first_printout(results);
    const auto untimed = untimed_notes(results);
    printout.notes.insert(printout.notes.end(), untimed.begin(), untimed.end());
    const auto narrow = lines_of(to_terminal(printout, false, 80)),
               wide = lines_of(to_terminal(printout, false));
    CAPTURE(to_terminal(printout, false, 80));
    CHECK(narrow.size() <= 2 * 40);
    CHECK(wide.size() <= 2 * 36);
    for (const std::string& line : narrow) CHECK(display_width(line) <= 80);
    // No table lacks a column, nor comes in several blocks.
    CHECK(std::none_of(narrow.begin(), narrow.end(),
                       [](const std::string& line) { return line.find("has no room for") != line.npos; }));
    CHECK(std::count_if(narrow.begin(), narrow.end(),
                        [](const std::string& line) { return line.starts_with("stage "); }) == 3);
    REQUIRE(printout.tables.size() == 3);
    // Peers that time nothing are a note.
    const std::string all = to_terminal(printout, false);
    CHECK(all.find("peer: cuDNN") == all.npos);
    CHECK(all.find("peer: FlashAttention-3") != all.npos);
    CHECK(untimed == std::vector<std::string>{"Not timed: cuDNN: does not like it.",
                                              "Not timed: FlashAttention-4: is for another GPU."});
    CHECK(all.find("Every result was verified") != all.npos);

    // A wrong answer says so in its cell and why below.
    gpu.wrong_stage = 36;
    printout = first_printout(first_results(gpu, &peers));
    const std::string wrong = to_terminal(printout, false, 80);
    CHECK(wrong.find("WRONG") != wrong.npos);
    CHECK(wrong.find("36_own_diagonal, train: ") != wrong.npos);
    CHECK(wrong.find("Every result") == wrong.npos);
}

TEST_CASE("without a GPU the recorded times are those of the first table", "[timing][commands]") {
    const Selection selection = first_selection();
    std::vector<const Stage*> algorithm;
    for (const Stage& stage : stages()) {
        if (is_core(stage)) algorithm.push_back(&stage);
    }
    std::set<std::string> problems, folders;
    for (Results& results : shown_results(algorithm)) {
        selection.filter(results, "");
        for (const Table& table : rate_tables(results)) {
            for (const std::string& line : lines_of(to_terminal(table, false, 80)))
                CHECK(display_width(line) <= 80);
            for (const Column& column : table.columns()) problems.insert(column.title);
            for (const auto& row : table.rows()) folders.insert(row[0].text);
        }
    }
    CHECK(problems == std::set<std::string>{"stage", "train 2k", "long 16k", "causal 16k", "decode 8k",
                                            "decode 64k", "decode 256k", "backward 8k"});
    for (const int stage : {0, 1, 2, 3, 4, 5, 6, 17, 26, 36, 46, 56})
        CHECK(folders.contains(find_stage(stage)->folder()));
    for (const int stage : {20, 35, 58, 67, 75, 95})
        CHECK_FALSE(folders.contains(find_stage(stage)->folder()));
}

TEST_CASE("a peer that is not timed in some regimes is a note with these", "[timing][peers]") {
    Results results;
    for (const char* regime : {"train", "window"}) {
        for (const char* name : {"cuDNN", "unfused", "flex"}) {
            PeerRow& row = results.peers.emplace_back();
            row.regime = regime;
            row.peer = name;
            row.timing.emplace();
            if (std::string(name) == "flex" || std::string(regime) == "window") {
                row.why_not = "is not timed with a window";
                row.timing.reset();
            }
        }
    }
    CHECK(untimed_notes(results) ==
          std::vector<std::string>{"Not timed: flex: is not timed with a window.",
                                   "Not timed in window: cuDNN, unfused: is not timed with a window."});
}

TEST_CASE("the sweep over caches has few problems, each with and without pages, that fit the memory of a GPU",
          "[timing]") {
    const TimingOptions options = timing_options(DType::bf16, "caches");
    CHECK(options.cases.size() <= 60);
    CHECK((is_sweep("caches") && is_decoding("caches")));
    std::set<int> rows, groups, batches, keys;
    for (const TimedCase& timed : options.cases) {
        const Case& c = timed.problem;
        INFO(description_of(c));
        const Shape& s = c.shape;
        rows.insert(s.Nq), groups.insert(s.H / s.Hkv), batches.insert(s.B), keys.insert(s.Nk);
        CHECK((c.features.page_size == 0 || c.features.page_size == 64));
        CHECK(unavoidable_bytes(s) <= 10e9);
        CHECK(std::count(c.features.lengths.begin(), c.features.lengths.end(), ',') + 1 == s.B);
        // Half of the keys in the mean, off the ends of tiles; no two alike
        std::set<int> lengths;
        double mean = 0;
        std::istringstream in(c.features.lengths);
        for (std::string length; std::getline(in, length, ',');) {
            lengths.insert(std::stoi(length));
            mean += std::stoi(length) / double(s.B);
            CHECK((std::stoi(length) > 0 && std::stoi(length) < s.Nk));
        }
        CHECK(lengths.size() == static_cast<std::size_t>(s.B));
        CHECK(std::abs(mean / s.Nk - 0.5) < 0.02);
        for (const int stage : {80, 81, 83, 84}) {
            const bool paged = c.features.page_size != 0;
            CHECK(why_not_taken(*find_stage(stage), c).empty() == (stage != 80 || !paged));
        }
    }
    CHECK(rows == std::set{1, 2, 4, 8, 16});
    CHECK(groups == std::set{1, 4, 8});
    CHECK(batches == std::set{1, 4, 8, 16});
    CHECK(keys == std::set{4096, 8192, 16384, 65536});
    // Every problem of that grid has one of these within two and a quarter octaves.
    for (const int page_size : {0, 64}) {
        std::vector<RecordedTimes> recorded;
        for (const TimedCase& c : options.cases) recorded.push_back(timed(label_of(c), {{84, 1.0}}));
        for (const int Nq : rows) {
            for (const int group : groups) {
                for (const int B : batches) {
                    for (const int Nk : keys) {
                        const ProblemLabel problem = requests(B, 8 * group, 8, Nq, Nk, page_size);
                        const Position here = position_of(problem),
                                       there = position_of(*nearest_to(problem, recorded, 1).front());
                        double square = 0;
                        for (std::size_t i = 0; i < here.size(); ++i)
                            square += std::pow(here[i] - there[i], 2);
                        INFO(long_name(problem));
                        CHECK(square <= 2.25 * 2.25);
                    }
                }
            }
        }
    }
}

TEST_CASE("the default for a cache goes by the rows that read the same keys", "[timing]") {
    // One tile of 16 rows is enough, or several are needed: 4 rows of a group of 8 are as 32 of a group of 1.
    const std::vector<RecordedTimes> recorded{
        timed(requests(16, 32, 8, 1, 8192), {{80, 1.0}, {81, 1.01}, {84, 1.0}}),
        timed(requests(16, 32, 8, 8, 8192), {{80, 1.6}, {81, 1.6}, {84, 1.0}}),
        timed(requests(16, 32, 8, 1, 8192, 64), {{81, 1.0}, {83, 1.0}, {84, 1.1}}),
        timed(requests(16, 32, 8, 8, 8192, 64), {{81, 1.6}, {83, 1.6}, {84, 1.0}}),
        timed(requests(16, 32, 8, 1, 8192, 1), {{81, 1.0}, {84, 1.1}})};
    const DefaultStages defaults(recorded, runs_here);
    const auto number = [&](const ProblemLabel& problem) { return defaults.find(problem)->number; };
    CHECK(number(requests(16, 32, 8, 1, 8192)) == 80);  // as fast, and takes less
    CHECK(number(requests(16, 32, 8, 8, 8192)) == 84);
    CHECK(number(requests(16, 64, 8, 4, 8192)) == 84);
    CHECK(number(requests(16, 64, 8, 1, 8192)) == 80);
    CHECK(number(requests(16, 8, 8, 4, 8192)) == 80);
    CHECK(number(requests(16, 8, 8, 16, 8192)) == 80);
    CHECK(number(requests(16, 8, 8, 17, 8192)) == 84);
    CHECK(number(requests(52, 64, 8, 3, 1547, 16)) == 84);
    CHECK(number(requests(1, 64, 8, 16, 65536)) == 84);
    CHECK(number(requests(16, 64, 8, 5, 4096, 64)) == 84);
    CHECK(number(requests(16, 32, 8, 1, 8192, 64)) == 81);
    CHECK(number(requests(16, 32, 8, 8, 8192, 16)) == 84);
    // How many keys a request has is not known where that is on a GPU: it makes no difference.
    ProblemLabel even = requests(16, 32, 8, 8, 8192);
    even.features.lengths = "8192";
    CHECK(position_of(even) == position_of(requests(16, 32, 8, 8, 8192)));
    CHECK(number(even) == 84);
    // The keys of a page weigh least of all.
    CHECK(position_of(requests(1, 8, 8, 1, 8192, 16)) != position_of(requests(1, 8, 8, 1, 8192, 64)));
    CHECK(nearest_to(requests(16, 32, 8, 1, 8192, 2), recorded, 1).front()->features.page_size == 1);
    CHECK(nearest_to(requests(16, 32, 8, 8, 8192, 1), recorded, 1).front()->shape.Nq == 8);
}

TEST_CASE("sweeps over caches fit the memory of a GPU, and a stage takes each of their problems",
          "[timing]") {
    for (const auto& [name, count] : {std::pair{"caches-wide", 70},
                                      {"caches-between", 30},
                                      {"cache-scores", 11},
                                      {"cache-trees", 6},
                                      {"e4m3-scales", 6}}) {
        const TimingOptions options = timing_options(DType::bf16, name);
        CHECK(options.cases.size() == static_cast<std::size_t>(count));
        CHECK((is_sweep(name) && is_decoding(name)));
        for (const TimedCase& timed : options.cases) {
            const Case& c = timed.problem;
            INFO(description_of(c));
            CHECK_NOTHROW(require_possible(c));
            CHECK(unavoidable_bytes(c.shape) <= 13e9);
            CHECK(why_not_taken(
                      ladder::test::named(name == std::string("e4m3-scales") ? "fp8_cache" : "any_cache"), c)
                      .empty());
        }
    }
}

TEST_CASE("a stage for caches is the default for caches and few rows, and not for long queries", "[timing]") {
    const DefaultStages defaults({}, runs_here);
    const auto name_of = [&](ProblemLabel problem, const Features& features) {
        const std::string lengths = problem.features.lengths;
        problem.features = features;
        if (features.page_size > 0) problem.features.lengths = lengths;
        return defaults.find(problem)->name;
    };
    const ProblemLabel few = requests(16, 32, 8, 4, 8192), many = requests(1, 32, 8, 8192, 8192);
    CHECK(name_of(few, {.window = {1023, 0}, .page_size = 64}) == "any_cache");
    CHECK(name_of(few, {.softcap = 50}) == "any_cache");
    CHECK(name_of(many, {.window = {1023, 0}}) == "hopper_windows");
    CHECK(name_of(many, {.softcap = 50}) == "any_mask");
    CHECK(name_of(few, {.page_size = 64, .prefix = 64}) == "hopper_prefix");
}
