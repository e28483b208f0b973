// The files that recordings are kept in, and the default stage, which is chosen by them.
#include <algorithm>
#include <cmath>
#include <fstream>
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

bool runs_anywhere(const Stage& stage) {
    return stage.compute_capability == 0;
}

}  // namespace

TEST_CASE("a measurement survives its file", "[timing]") {
    const Folder folder;
    const Results results = sample_results("2026-01-01T00:00:00Z");
    save_results(results, OutputFile(folder / "out.json"));
    const Results read = load_results(folder / "out.json");
    CHECK(nlohmann::json(read) == nlohmann::json(results));
    CHECK(read.rows.back().why_not == results.rows.back().why_not);
    CHECK_FALSE(read.rows.back().timing);
    CHECK_FALSE(read.ceilings.fp16_tflops);
    CHECK(read.rows.front().timing->median_ms == 2);
    CHECK(read.rows.front().dtype == DType::bf16);
    CHECK(read.rows.front().shape == results.rows.front().shape);
}

TEST_CASE("a file from before there were peers is read", "[timing]") {
    const Folder folder;
    auto json = nlohmann::json(sample_results("2026-01-01T00:00:00Z"));
    json.erase("peers");
    json.erase("libraries");
    const Results read = load_results(folder.write("old.json", json.dump()));
    CHECK(read.rows.size() == json["rows"].size());
    CHECK(read.peers.empty());
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
    SECTION("no file") {
        CHECK_THROWS_AS(load_results(folder / "none.json"), BadUsage);
    }
}

TEST_CASE("the newest full measurement is found by its date", "[timing]") {
    const Folder folder;
    CHECK(newest_results(folder / "").empty());
    CHECK(newest_results(folder / "none").empty());
    const auto save = [&](const Results& results, const char* name) {
        save_results(results, OutputFile(folder / name));
    };
    save(sample_results("2026-03-01T00:00:00Z"), "a.json");
    save(sample_results("2026-01-01T00:00:00Z"), "b.json");
    Results one_shape = sample_results("2026-09-01T00:00:00Z");
    one_shape.rows.resize(1);
    save(one_shape, "c.json");
    Results few_stages = sample_results("2026-09-01T00:00:00Z");
    few_stages.rows[0].shows_here = false;
    save(few_stages, "d.json");
    folder.write("sanitizer.json", R"({"kind": "sanitizer", "date": "2026-10-01T00:00:00Z"})");
    folder.write("notes.txt", "{");
    const auto dates = [&](const std::vector<const Stage*>& of) {
        std::vector<std::string> found;
        for (const Results& results : newest_results(folder / "", of)) found.push_back(results.date);
        return found;
    };
    CHECK(dates({}) == std::vector<std::string>{"2026-03-01T00:00:00Z"});
    // Then that of a stage which it lacks: of the kernel as it is, and where its change should show.
    const Stage& stage = *find_stage(4);
    for (const auto& [date, shows_here, fingerprint] :
         {std::tuple("2026-02-01T00:00:00Z", true, kernel_fingerprint(stage.folder())),
          {"2026-04-01T00:00:00Z", false, kernel_fingerprint(stage.folder())},
          {"2026-05-01T00:00:00Z", true, "of an older kernel"}}) {
        Results of_stage = sample_results(date);
        of_stage.rows.resize(1);
        of_stage.rows[0].stage = stage.number;
        of_stage.rows[0].shows_here = shows_here;
        of_stage.kernels = {{stage.folder(), fingerprint}};
        save(of_stage, (std::string(date, 7) + ".json").c_str());
    }
    CHECK(dates({&stage}) == std::vector<std::string>{"2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"});
    folder.write("broken.json", "{");
    CHECK_THROWS_AS(newest_results(folder / ""), BadUsage);
}

TEST_CASE("a fingerprint is of code and not of comments", "[timing]") {
    const std::string code = code_fingerprint("int a = 1;\nint b = a / 2;\n");
    CHECK(code == code_fingerprint("int a = 1;  // one\n// two\n\n    int b =\n        a / 2;"));
    CHECK(code == code_fingerprint("int a = 1;\nint b = a / 2;  // no end of line"));
    CHECK(code != code_fingerprint("int a = 1;\nint b = a / 3;\n"));
    CHECK(kernel_fingerprint("04_split_q") != kernel_fingerprint("05_causal_skip"));
    CHECK_THROWS_AS(kernel_fingerprint("99_none"), BadUsage);
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

TEST_CASE("the default is the last rung that is as fast as any on the nearest recorded problem", "[timing]") {
    const Folder folder;
    const auto read = load_fastest(folder.write("fastest.json", R"({"kind": "fastest", "recordings": [
        {"file": "x-few-rows.json", "gpu": "a GPU", "date": "2026-02-03"}], "problems": [
        {"recording": 0, "shape": [1, 32, 8, 4, 8192, 128], "pass": "backward", "dtype": "fp16",
         "causal": true, "pages": 16, "prefix": 64, "median_ms": {"17_full_ring": 1.0}}]})"));
    REQUIRE(read.size() == 1);
    CHECK(read[0].file == "x-few-rows.json");
    CHECK(read[0].gpu == "a GPU");
    CHECK(read[0].date == "2026-02-03");
    CHECK(read[0].shape == Shape{.B = 1, .H = 32, .Hkv = 8, .Nq = 4, .Nk = 8192, .d = 128});
    CHECK((read[0].pass == Pass::backward && read[0].dtype == DType::fp16 && read[0].causal));
    CHECK(read[0].features == Features{.page_size = 16, .prefix = 64});
    CHECK(read[0].median_ms == std::map<std::string, double>{{"17_full_ring", 1.0}});
    CHECK(load_fastest(folder / "none.json").empty());
    CHECK_THROWS_AS(load_fastest(folder.write("other.json", R"({"kind": "timing"})")), BadUsage);

    std::vector<RecordedTimes> recorded;
    const auto record = [&](const ProblemLabel& problem, const std::map<int, double>& times) {
        static_cast<ProblemLabel&>(recorded.emplace_back()) = problem;
        for (const auto& [stage, ms] : times) recorded.back().median_ms[find_stage(stage)->folder()] = ms;
    };
    ProblemLabel gradients = problem_of(1024, 1024);
    gradients.pass = Pass::backward;
    ProblemLabel longer = gradients;
    longer.shape.Nk = longer.shape.Nq = 8192;
    record(problem_of(4, 8192), {{17, 1.0}, {26, 2.0}, {36, 1.02}});
    record(problem_of(16, 8192), {{10, 1.2}, {17, 1.0}, {26, 2.0}, {36, 1.04}});
    record(problem_of(256, 8192), {{17, 9.0}, {26, 2.0}, {36, 1.0}, {90, 0.1}});
    record(problem_of(4, 8192), {{17, 3.0}});
    record(gradients, {{46, 2.0}, {57, 1.02}, {58, 1.0}});
    record(longer, {{57, 1.1}, {58, 1.0}});

    const auto number = [](const DefaultStages& defaults, const ProblemLabel& problem) {
        const Stage* stage = defaults.find(problem);
        return stage == nullptr ? -1 : stage->number;
    };
    const DefaultStages hopper(recorded, [](const Stage&) { return true; });
    CHECK(number(hopper, problem_of(4, 8192)) == 36);    // 2% slower is no difference
    CHECK(number(hopper, problem_of(16, 8192)) == 17);   // and 4% is one
    CHECK(number(hopper, problem_of(256, 8192)) == 36);  // 90 is no rung
    CHECK(number(hopper, gradients) == 57);              // 58 is for the order of its sums,
    CHECK(number(hopper, longer) == 58);                 // but faster here
    const DefaultStages elsewhere(recorded, runs_anywhere);
    CHECK(number(elsewhere, problem_of(4, 8192)) == 17);
    CHECK(number(elsewhere, problem_of(256, 8192)) == 26);
    CHECK(number(elsewhere, gradients) == 46);
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
    CHECK(number(hopper, narrow) == 84);  // the last one that decodes
    narrow.shape.d = 96;
    CHECK(number(hopper, narrow) == -1);
    const DefaultStages old(recorded, [](const Stage& stage) { return stage.number < 17; });
    CHECK(number(old, problem_of(256, 8192)) == 5);  // the last one for long queries
    // The last rung that takes a window, and no other mask beside it
    ProblemLabel window = problem_of(256, 8192);
    window.features.window = {1023, 0};
    CHECK(number(hopper, window) == 65);
    CHECK(number(elsewhere, window) == 60);
    window.pass = Pass::backward;
    CHECK(number(hopper, window) == 66);
    CHECK(number(elsewhere, window) == -1);
    ProblemLabel documents = problem_of(256, 8192);
    documents.features.documents = "100,156";
    CHECK(number(hopper, documents) == 67);
    documents.pass = Pass::backward;
    CHECK(number(hopper, documents) == 68);
    ProblemLabel columns = problem_of(256, 8192);
    columns.features.columns = "prefix";
    CHECK(number(hopper, columns) == 96);
    CHECK(number(elsewhere, columns) == 62);
    columns.pass = Pass::backward;
    CHECK(number(hopper, columns) == 69);
    ProblemLabel tiles = problem_of(256, 8192);
    tiles.features.tiles = "quarter";
    CHECK(number(hopper, tiles) == 95);
    tiles.pass = Pass::backward;
    CHECK(number(hopper, tiles) == 98);
    CHECK(number(elsewhere, tiles) == -1);
    ProblemLabel dropout = problem_of(256, 8192);
    dropout.features.dropout = {230, 1};
    CHECK(number(hopper, dropout) == 99);
    CHECK(number(elsewhere, dropout) == 64);
    dropout.pass = Pass::backward;
    CHECK(number(hopper, dropout) == 97);
    CHECK(number(elsewhere, dropout) == -1);
    ProblemLabel requests = problem_of(1, 8192);
    requests.features.lengths = "100,8192";
    CHECK(number(hopper, requests) == 80);
    requests.features.page_size = 16;
    CHECK(number(hopper, requests) == 81);
    // Of those that take a shared prefix the fastest on the nearest recorded problem that has one
    ProblemLabel prefix = requests;
    prefix.features.prefix = 64;
    CHECK(number(hopper, prefix) == 83);
    record(requests, {{81, 1.02}, {82, 1.0}});
    ProblemLabel rows = requests;
    rows.shape.Nq = 16;
    record(rows, {{81, 3.0}, {83, 1.0}});
    record(prefix, {{82, 1.1}, {83, 1.0}});
    prefix.shape.Nk = 1024;
    record(prefix, {{82, 1.0}, {83, 1.1}});
    const DefaultStages served(recorded, [](const Stage&) { return true; });
    CHECK(number(served, problem_of(4, 8192)) == 36);
    CHECK(number(served, requests) == 81);  // which takes less than 82
    rows.features.lengths.clear();
    CHECK(number(served, rows) == 83);  // pages go with lengths or without
    CHECK(number(served, prefix) == 82);
    prefix.shape.Nk = 5000;
    CHECK(number(served, prefix) == 83);
    CHECK(nearest_to(prefix, recorded, 5).size() == 2);
}

TEST_CASE("the default is that of the nearest recorded problem", "[timing]") {
    const DefaultStages defaults(recorded_times(), [](const Stage&) { return true; });
    for (std::size_t i = 0; i < recorded_times().size(); i += 3) {
        ProblemLabel problem = recorded_times()[i];
        problem.shape.Nq += problem.shape.Nq / 3;
        problem.shape.Nk += problem.shape.Nk / 3;
        const RecordedTimes& nearest = *nearest_to(problem, recorded_times(), 1).front();
        INFO(long_name(problem) << ", nearest: " << nearest.file << " " << long_name(nearest));
        CHECK(defaults.find(problem) == defaults.find(nearest));
    }
}

TEST_CASE("the default reaches 95% of the fastest stage on every recorded problem", "[timing]") {
    CHECK(fs::exists(stages_folder() / "fastest.json"));
    for (const bool hopper : {true, false}) {
        const auto runs = [&](const Stage& stage) { return hopper || runs_anywhere(stage); };
        const DefaultStages defaults(recorded_times(), runs);
        for (const RecordedTimes& times : recorded_times()) {
            if (nearest_to(times, recorded_times(), 1).front() != &times) continue;  // the same is in another
            INFO(times.file << " " << long_name(times));
            double fastest = INFINITY;
            for (const auto& [folder, ms] : times.median_ms) {
                if (runs(stage_in(folder))) fastest = std::min(fastest, ms);
            }
            if (std::isinf(fastest)) continue;
            const Stage* stage = defaults.find(times);
            REQUIRE(stage != nullptr);
            REQUIRE(times.median_ms.contains(stage->folder()));
            CHECK(fastest >= 0.95 * times.median_ms.at(stage->folder()));
        }
    }
}

TEST_CASE("every kernel is measured as it is: in the newest measurement of all, or in a newer one",
          "[timing]") {
    const auto newest = newest_results(results_folder());
    if (newest.empty()) return;
    std::map<std::string, std::set<std::string>> measured;  // fingerprints by stage
    for (const auto& entry : fs::directory_iterator(results_folder())) {
        if (entry.path().extension() != ".json" || !is_record(read_json(entry.path()), "timing")) continue;
        const Results results = load_results(entry.path());
        if (results.date < newest[0].date) continue;
        for (const auto& [folder, fingerprint] : results.kernels) measured[folder].insert(fingerprint);
    }
    for (const Stage& stage : stages()) {
        INFO(stage.folder() << " was changed after it was measured, or never measured: run lab time --json");
        CHECK(measured[stage.folder()].contains(kernel_fingerprint(stage.folder())));
    }
}
