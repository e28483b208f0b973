// The files that recordings are kept in, and the default stage, which is chosen by them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "harness/base/json.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/report/timing_tables.h"
#include "harness/time/fastest.h"
#include "harness/time/record_json.h"
#include "harness/time/timing.h"
#include "harness/verify/all_cases.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/folder.h"
#include "tests/sample_results.h"
#include "tests/skip.h"

using namespace ladder;
using namespace ladder::test;
namespace fs = std::filesystem;

namespace {

ProblemLabel problem_of(int Nq, int Nk, int B = 1, bool causal = false) {
    ProblemLabel problem;
    problem.regime = "few-rows";
    problem.shape = {.B = B, .H = 32, .Hkv = 8, .Nq = Nq, .Nk = Nk, .d = 128};
    problem.causal = causal;
    return problem;
}

ProblemLabel gradients_of(int N) {
    ProblemLabel problem = problem_of(N, N);
    problem.pass = Pass::backward;
    return problem;
}

bool runs_anywhere(const Stage& stage) {
    return stage.compute_capability == 0;
}

bool anything(const Stage&) {
    return true;
}

/// A ladder of the tests' own: what the rule of the default stage tells apart, and no more.
const std::vector<Stage>& made_ladder() {
    static const std::vector<Stage> ladder = [] {
        const auto backward = Pass::backward;
        std::vector<Stage> made{
            {.number = 5, .shows_in = "train"},
            {.number = 10, .shows_in = "decode"},
            {.number = 17, .shows_in = "decode"},
            {.number = 26, .shows_in = "train"},
            {.number = 36, .shows_in = "train", .compute_capability = 90},
            {.number = 46, .shows_in = "backward", .pass = backward, .repeats_exactly = false},
            {.number = 57,
             .shows_in = "backward",
             .pass = backward,
             .repeats_exactly = false,
             .compute_capability = 90},
            {.number = 58, .parent = 57, .shows_in = "backward", .pass = backward, .compute_capability = 90},
            {.number = 60, .shows_in = "window", .takes = {Feature::window}},
            {.number = 62, .shows_in = "column-bounds", .takes = {Feature::window, Feature::columns}},
            {.number = 65, .shows_in = "window", .takes = {Feature::window}, .compute_capability = 90},
            {.number = 66,
             .shows_in = "backward-window",
             .pass = backward,
             .takes = {Feature::window},
             .compute_capability = 90},
            {.number = 70, .shows_in = "train", .products = Products::of_8_bits, .compute_capability = 90},
            {.number = 80, .shows_in = "ragged", .takes = {Feature::lengths}},
            {.number = 81, .shows_in = "paged", .takes = {Feature::lengths, Feature::pages}},
            {.number = 83,
             .shows_in = "prefix",
             .takes = {Feature::lengths, Feature::pages, Feature::prefix}},
            {.number = 84,
             .shows_in = "prefix",
             .takes = {Feature::lengths, Feature::pages, Feature::prefix}},
            {.number = 90, .shows_in = "train"}};
        for (Stage& stage : made) {
            stage.name = "made";
            stage.head_dims = {64, 128};
        }
        return made;
    }();
    return ladder;
}

/// Adds the times of some stages of it on a problem.
void record(std::vector<RecordedTimes>& recorded, const ProblemLabel& problem,
            const std::map<int, double>& times) {
    static_cast<ProblemLabel&>(recorded.emplace_back()) = problem;
    for (const Stage& stage : made_ladder()) {
        if (times.contains(stage.number)) recorded.back().median_ms[stage.folder()] = times.at(stage.number);
    }
}

std::vector<RecordedTimes> made_recordings() {
    std::vector<RecordedTimes> recorded;
    record(recorded, problem_of(4, 8192), {{17, 1.0}, {26, 2.0}, {36, 1.02}});
    record(recorded, problem_of(16, 8192), {{10, 1.2}, {17, 1.0}, {26, 2.0}, {36, 1.04}});
    record(recorded, problem_of(256, 8192), {{17, 9.0}, {26, 2.0}, {36, 1.0}, {70, 0.6}, {90, 0.1}});
    record(recorded, problem_of(4, 8192), {{17, 3.0}});
    record(recorded, gradients_of(1024), {{46, 2.0}, {57, 1.02}, {58, 1.0}});
    record(recorded, gradients_of(8192), {{46, 4.0}, {57, 1.1}, {58, 1.0}});
    return recorded;
}

int number(const DefaultStages& defaults, const ProblemLabel& problem) {
    const Stage* stage = defaults.find(problem);
    return stage == nullptr ? -1 : stage->number;
}

}  // namespace

TEST_CASE("a measurement survives its file", "[timing]") {
    const Folder folder;
    const Results results = sample_results("2026-01-01T00:00:00Z");
    save_results(results, OutputFile(folder / "out.json"));
    const Results read = load_results(folder / "out.json");
    CHECK(record_text(read) == record_text(results));
    CHECK(read.rows.front().rate == results.rows.front().rate);
    CHECK(read.rows.back().why_not == results.rows.back().why_not);
    CHECK_FALSE(read.rows.back().timing);
    CHECK_FALSE(read.ceilings.fp16_tflops);
    CHECK(read.rows.front().timing->median_ms == 2);
    CHECK(read.rows.front().dtype == DType::bf16);
    CHECK(read.rows.front().shape == results.rows.front().shape);
}

TEST_CASE("a recording is of today's stages: another name becomes today's, and what is no more is left out",
          "[timing]") {
    const Stage &merged = named("pipelined_copies"), &before = *find_stage(merged.parent),
                &after = named("one_launch");
    Results recorded = sample_results("2026-01-01T00:00:00Z");
    recorded.rows.clear();
    recorded.kernels.clear();
    const auto add = [&](int number, int of, const std::string& folder, double ms, bool is_ours = true) {
        Row row = timed_row(0, of, ms);
        row.stage = number;
        row.folder = folder;
        recorded.rows.push_back(row);
        if (is_ours) recorded.kernels[folder] = "of " + folder;
    };
    add(before.number, -1, before.folder(), 8);
    add(merged.number, before.number, "12_copy_ring", 6);
    add(13, merged.number, merged.formerly, 4);
    add(after.number, 13, after.folder(), 2);
    add(after.number, 13, "mine", 1, false);  // a student's
    const Results read = nlohmann::json(recorded).get<Results>();
    REQUIRE(read.rows.size() == 4);
    CHECK(read.rows[1].folder == merged.folder());
    CHECK((read.rows[1].stage == merged.number && read.rows[1].parent == before.number));
    CHECK(read.rows[1].over_parent == 2.0);
    CHECK((read.rows[2].parent == merged.number && read.rows[2].over_parent == 2.0));
    CHECK((read.rows[3].folder == "mine" && read.rows[3].stage == after.number));
    CHECK(read.kernels == std::map<std::string, std::string>{{before.folder(), "of " + before.folder()},
                                                             {merged.folder(), "of " + merged.formerly},
                                                             {after.folder(), "of " + after.folder()}});
}

TEST_CASE("a recording holds what was measured, a line for each row, and nothing that follows from it",
          "[timing]") {
    Results results = sample_results("2026-01-01T00:00:00Z");
    results.rows.front().timing->median_ms = 1.02792001;
    results.rows.front().features.page_size = 16;
    derive(results);
    const std::string text = record_text(results);
    CHECK(text.find("\"rows\": [\n{\"dtype\":\"bf16\",\"features\":{\"pages\":16},\"flops\":40960000,"
                    "\"folder\":\"00_naive\",\"max_error\":0.001,\"parent\":-1,\"regime\":\"train\","
                    "\"shape\":[2,4,2,100,200,64],\"shows_here\":true,\"stage\":0,\"timing\":{\"median_ms\":"
                    "1.02792,\"noise\":0.03,\"p20_ms\":1.8,\"p80_ms\":2.2,\"repeats\":12},\"verified\":true},"
                    "\n{") != text.npos);
    CHECK(text.find("rate") == text.npos);
    CHECK(text.find("over_") == text.npos);
}

TEST_CASE("a broken file is named", "[timing]") {
    const Folder folder;
    const auto message = [&](const std::string& text) -> std::string {
        folder.write("bad.json", text);
        try {
            load_results(folder / "bad.json");
        } catch (const BadUsage& error) {
            return error.what();
        }
        return "no error";
    };
    auto json = nlohmann::json(sample_results("2026-01-01T00:00:00Z"));
    SECTION("no JSON") {
        CHECK(message("{").find("bad.json") != std::string::npos);
    }
    SECTION("another kind") {
        CHECK(message(R"({"kind": "sanitizer"})").find("not a timing") != std::string::npos);
    }
    SECTION("a missing field") {
        json["rows"][0].erase("regime");
        CHECK(message(json.dump()).find("regime") != std::string::npos);
    }
    SECTION("an unknown type") {
        json["rows"][0]["dtype"] = "fp8";
        CHECK(message(json.dump()).find("fp8") != std::string::npos);
    }
    SECTION("an older form") {
        json.erase("version");
        CHECK(message(json.dump()).find("bad.json: its form is that of another version") !=
              std::string::npos);
    }
    SECTION("no file") {
        CHECK_THROWS_AS(load_results(folder / "none.json"), BadUsage);
    }
}

TEST_CASE("shown are the recordings that lab tables chose", "[timing]") {
    const Folder folder;
    for (const char* name : {"a", "b", "c"})
        save_results(sample_results(name), OutputFile(folder / (std::string(name) + ".json")));
    const std::string chosen =
        folder.write("chosen.json", R"({"kind": "fastest", "shown": {"all": "b.json", "04_split_q": "a.json",
                           "05_causal_skip": "b.json", "06_flash_decoding": "gone.json"}})");
    const auto dates = [&](const std::string& path, const std::vector<const Stage*>& stages) {
        std::string found;
        for (const Results& results : shown_results(stages, path, folder / "")) found += results.date;
        return found;
    };
    CHECK(dates(chosen, {}) == "b");
    CHECK(dates(chosen, {find_stage(6), find_stage(5), find_stage(4), find_stage(0)}) == "ba");
    CHECK(dates(folder / "none.json", {find_stage(4)}).empty());
    // Another one has a regime of it anew.
    const std::string regime = sample_results("").rows[0].regime;
    const std::string anew = folder.write(
        "anew.json", R"({"kind": "fastest", "shown": {"all": "b.json", ")" + regime + R"(": "c.json"}})");
    const std::vector<Results> shown = shown_results({}, anew, folder / "");
    CHECK((shown.size() == 2 && shown[0].date == "b" && shown[1].date == "c" && !shown[1].rows.empty()));
    for (const Row& row : shown[0].rows) CHECK(row.regime != regime);
    // Where one of the two is gone, nothing is taken from the other.
    for (const char* gone : {R"("all": "b.json", ")", R"("all": "gone.json", ")"}) {
        const bool has_all = std::string(gone).find("b.json") != std::string::npos;
        const std::string one =
            folder.write("one.json", R"({"kind": "fastest", "shown": {)" + std::string(gone) + regime +
                                         (has_all ? R"(": "gone.json"}})" : R"(": "c.json"}})"));
        const std::vector<Results> left = shown_results({}, one, folder / "");
        CHECK((left.size() == 1 && left[0].rows.size() == sample_results("").rows.size()));
    }
    folder.write("b.json", "{");
    CHECK_THROWS_AS(dates(chosen, {}), BadUsage);
}

TEST_CASE("a fingerprint is of code and not of comments", "[timing]") {
    const std::string code = code_fingerprint("int a = 1;\nint b = a / 2;\n");
    CHECK(code == code_fingerprint("int a = 1;  // one\n// two\n\n    int b =\n        a / 2;"));
    CHECK(code == code_fingerprint("int a = 1;\nint b = a / 2;  // no end of line"));
    CHECK(code != code_fingerprint("int a = 1;\nint b = a / 3;\n"));
    CHECK(kernel_fingerprint("04_split_q") != kernel_fingerprint("05_causal_skip"));
    CHECK_THROWS_AS(kernel_fingerprint("99_none"), BadUsage);
}

TEST_CASE("a kernel that was changed since it was recorded is known", "[timing]") {
    const Folder folder;
    const auto recorded = load_recorded_kernels(folder.write(
        "fastest.json", R"({"kind": "fastest", "timed": {"04_made": ["01", "23"]}, "profiled": {}})"));
    CHECK(recorded.timed.at("04_made") == std::set<std::string>{"01", "23"});
    CHECK(recorded.profiled.empty());
    CHECK(load_recorded_kernels(folder / "none.json").timed.empty());
    const auto changed = changed_since({{"05_causal_skip", "of an older one"},
                                        {"04_split_q", kernel_fingerprint("04_split_q")},
                                        {"99_gone", "of an older one"}});
    CHECK(changed == std::vector<const Stage*>{find_stage(5)});
}

TEST_CASE("recorded measurements are whole", "[timing]") {
    if (!fs::is_directory(results_folder())) return;
    for (const auto& entry : fs::directory_iterator(results_folder())) {
        if (entry.path().extension() != ".json") continue;
        INFO(entry.path().string());
        const auto json = nlohmann::json::parse(std::ifstream(entry.path()));
        if (json.at("kind") == "sanitizer") {
            CHECK(json.at("errors") == 0);
            continue;
        }
        if (json.at("kind") != "timing") continue;
        const Results results = load_results(entry.path());
        CHECK(foreign_architecture(results.hardware).empty());
        CHECK(results.commit != "");
        CHECK(results.date.back() == 'Z');
        for (const Row& row : results.rows) {
            INFO(row.regime << " " << row.folder);
            CHECK(row.timing.has_value() == row.why_not.empty());
            CHECK(row.verified == row.timing.has_value());
        }
    }
}

TEST_CASE("the times that stages are chosen by are read from their file", "[timing]") {
    const Folder folder;
    const auto read = load_fastest(folder.write("fastest.json", R"({"kind": "fastest", "recordings": [
        {"file": "x-few-rows.json", "gpu": "a GPU", "date": "2026-02-03", "kernels": {"17_made": "0123"}}],
        "problems": [
        {"recording": 0, "shape": [1, 32, 8, 4, 8192, 128], "pass": "backward", "dtype": "fp16",
         "causal": true, "features": {"pages": 16, "prefix": 64}, "median_ms": {"17_made": 1.0}}]})"));
    REQUIRE(read.size() == 1);
    CHECK(read[0].file == "x-few-rows.json");
    CHECK(read[0].gpu == "a GPU");
    CHECK(read[0].date == "2026-02-03");
    CHECK(read[0].kernels == std::map<std::string, std::string>{{"17_made", "0123"}});
    CHECK(read[0].shape == Shape{.B = 1, .H = 32, .Hkv = 8, .Nq = 4, .Nk = 8192, .d = 128});
    CHECK((read[0].pass == Pass::backward && read[0].dtype == DType::fp16 && read[0].causal));
    CHECK(read[0].features == Features{.page_size = 16, .prefix = 64});
    CHECK(read[0].median_ms == std::map<std::string, double>{{"17_made", 1.0}});
    CHECK(load_fastest(folder / "none.json").empty());
    CHECK_THROWS_AS(load_fastest(folder.write("other.json", R"({"kind": "timing"})")), BadUsage);
    CHECK(!recorded_times().empty());
}

TEST_CASE("the default is the last rung that is as fast as any on the nearest recorded problem", "[timing]") {
    auto recorded = made_recordings();
    const DefaultStages hopper(recorded, anything, made_ladder());
    CHECK(number(hopper, problem_of(4, 8192)) == 36);    // 2% slower is no difference
    CHECK(number(hopper, problem_of(16, 8192)) == 17);   // and 4% is one
    CHECK(number(hopper, problem_of(256, 8192)) == 36);  // 90 is no rung, and 70 multiplies in 8 bits
    CHECK(number(hopper, gradients_of(1024)) == 57);     // 58 is for the order of its sums,
    CHECK(number(hopper, gradients_of(8192)) == 58);     // but faster here
    const DefaultStages elsewhere(recorded, runs_anywhere, made_ladder());
    CHECK(number(elsewhere, problem_of(4, 8192)) == 17);
    CHECK(number(elsewhere, problem_of(256, 8192)) == 26);
    CHECK(number(elsewhere, gradients_of(1024)) == 46);
    // The nearest by rows, keys, heads and mask, each by its ratio
    CHECK(number(hopper, problem_of(24, 10000)) == 17);
    CHECK(number(hopper, problem_of(65, 8192)) == 36);
    CHECK(number(hopper, problem_of(16, 8192, 100, true)) == 17);
    CHECK(nearest_to(problem_of(65, 8192), recorded, 2).at(1)->shape.Nq == 16);
    // Nothing of that head dimension, and nothing that runs here
    ProblemLabel narrow = problem_of(256, 8192);
    narrow.shape.d = 64;
    CHECK(nearest_to(narrow, recorded, 2).empty());
    CHECK(number(hopper, narrow) == 36);
    narrow.shape.Nq = 1;
    CHECK(number(hopper, narrow) == 17);  // the last one that decodes
    narrow.shape.d = 96;
    CHECK(number(hopper, narrow) == -1);
    const DefaultStages old(
        recorded, [](const Stage& stage) { return stage.number < 17; }, made_ladder());
    CHECK(number(old, problem_of(256, 8192)) == 5);  // the last one for long queries
    // The last rung that takes a window, and no other mask beside it
    ProblemLabel window = problem_of(256, 8192);
    window.features.window = {1023, 0};
    CHECK(number(hopper, window) == 65);
    CHECK(number(elsewhere, window) == 60);
    window.pass = Pass::backward;
    CHECK(number(hopper, window) == 66);
    CHECK(number(elsewhere, window) == -1);
    ProblemLabel columns = problem_of(256, 8192);
    columns.features.columns = "prefix";
    CHECK(number(hopper, columns) == 62);
    ProblemLabel requests = problem_of(1, 8192);
    requests.features.lengths = "100,8192";
    CHECK(number(hopper, requests) == 80);
    requests.features.page_size = 16;
    CHECK(number(hopper, requests) == 81);
    // Of those that take a shared prefix the fastest on the nearest recorded problem that has one
    ProblemLabel prefix = requests;
    prefix.features.prefix = 64;
    CHECK(number(hopper, prefix) == 84);
    record(recorded, requests, {{81, 1.02}, {83, 1.0}});
    ProblemLabel rows = requests;
    rows.shape.Nq = 16;
    record(recorded, rows, {{81, 3.0}, {84, 1.0}});
    record(recorded, prefix, {{83, 1.1}, {84, 1.0}});
    prefix.shape.Nk = 1024;
    record(recorded, prefix, {{83, 1.0}, {84, 1.1}});
    const DefaultStages served(recorded, anything, made_ladder());
    CHECK(number(served, problem_of(4, 8192)) == 36);
    CHECK(number(served, requests) == 81);  // which takes less than 83
    rows.features.lengths.clear();
    CHECK(number(served, rows) == 84);  // pages go with lengths or without
    CHECK(number(served, prefix) == 83);
    prefix.shape.Nk = 5000;
    CHECK(number(served, prefix) == 84);
    CHECK(nearest_to(prefix, recorded, 5).size() == 2);
}

TEST_CASE("the default reaches 95% of the fastest stage on every recorded problem", "[timing]") {
    const auto recorded = made_recordings();
    for (const bool hopper : {true, false}) {
        const std::function<bool(const Stage&)> runs = hopper ? anything : runs_anywhere;
        const DefaultStages defaults(recorded, runs, made_ladder());
        for (const RecordedTimes& times : recorded) {
            if (nearest_to(times, recorded, 1).front() != &times) continue;  // the same is in another
            INFO(long_name(times));
            double fastest = INFINITY;
            for (const Stage& stage : made_ladder()) {
                const bool may_run =
                    runs(stage) && !is_experiment(stage) && stage.products == Products::of_16_bits;
                if (may_run && times.median_ms.contains(stage.folder()))
                    fastest = std::min(fastest, times.median_ms.at(stage.folder()));
            }
            const Stage* stage = defaults.find(times);
            REQUIRE(stage != nullptr);
            REQUIRE(times.median_ms.contains(stage->folder()));
            CHECK(fastest >= 0.95 * times.median_ms.at(stage->folder()));
            ProblemLabel near = times;  // and so it does for problems next to it
            near.shape.Nq += near.shape.Nq / 16;
            near.shape.Nk += near.shape.Nk / 16;
            CHECK(defaults.find(near) == stage);
        }
    }
}
