// What commands make of the stages, where a run of the program would not show it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/count/claims.h"
#include "harness/count/counting.h"
#include "harness/ladder/ladder.h"
#include "harness/report/climb.h"
#include "harness/report/parts.h"
#include "harness/report/roofline.h"
#include "harness/report/timing_tables.h"
#include "harness/time/timing.h"
#include "harness/verify/verification.h"
#include "stages/errors.h"
#include "tests/catch.h"
#include "tests/skip.h"

using namespace ladder;

namespace {

// The CPU with little memory.
class SmallDevice final : public Device {
  public:
    explicit SmallDevice(std::size_t bytes) : bytes_(bytes) {}

    Backend backend() const override { return cpu_->backend(); }
    std::string description() const override { return "a small " + cpu_->description(); }
    int sm_count() const override { return cpu_->sm_count(); }
    int compute_capability() const override { return cpu_->compute_capability(); }
    std::size_t free_memory() const override { return bytes_; }
    void* allocate(std::size_t bytes, const char* name, bool writable) override {
        return cpu_->allocate(bytes, name, writable);
    }
    const Stage& ready(const Stage& stage) const override { return cpu_->ready(stage); }
    void release(void* memory) override { cpu_->release(memory); }
    void upload(void* device, const void* host, std::size_t bytes) override {
        cpu_->upload(device, host, bytes);
    }
    void download(void* host, const void* device, std::size_t bytes) override {
        cpu_->download(host, device, bytes);
    }
    void run(const Stage& stage, const Problem& problem) override { cpu_->run(stage, problem); }
    simt::Counters counters() const override { return cpu_->counters(); }

  private:
    std::unique_ptr<Device> cpu_ = open_device(Backend::cpu);
    std::size_t bytes_;
};

// S and P of stage 00 take 2 x 6 x 512 x 512 bytes here, the tensors a twelfth of that.
Case square() {
    Case c;
    c.shape = {.B = 1, .H = 2, .Hkv = 2, .Nq = 512, .Nk = 512, .d = 64};
    return c;
}

const Cell& cell(const Table& table, std::size_t row, const std::string& key) {
    const auto& columns = table.columns();
    const auto column =
        std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.key == key; });
    REQUIRE(column != columns.end());
    REQUIRE(row < table.rows().size());
    return table.rows()[row][static_cast<std::size_t>(column - columns.begin())];
}

/// Is there a problem on which the stage's claims are not met by its parent?
bool claims_something(Device& device, const Stage& stage) {
    const Stage& parent = *find_stage(stage.parent);
    const std::vector<Case> cases = claim_cases(stage.folder());
    return std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
        if (!claimed_tiles_of_blocks(stage.folder(), c, device.sm_count()).empty()) return true;
        const Work work = count_work(device, parent, c, make_inputs(c));
        const std::vector<Claim> list = claims(stage.folder(), c, device.sm_count(), work, work);
        return !std::all_of(list.begin(), list.end(), [](const Claim& claim) { return claim.holds(); });
    });
}

void ignore_steps(const std::string&, int, int) {}

// Three stages timed on one problem: 00 cannot run, 02 is wrong.
Results sample_results() {
    Results results;
    results.date = "2026-11-21T07:52:00Z";
    results.commit = "0123456789abcdef";
    results.hardware.gpu = "Test GPU";
    results.ceilings.bf16_tflops = 100;
    for (int stage = 0; stage < 3; ++stage) {
        Row row;
        row.regime = "train";
        row.shape = {.B = 8, .H = 16, .Hkv = 16, .Nq = 2048, .Nk = 2048, .d = 128};
        row.stage = stage;
        row.parent = stage - 1;
        row.folder = find_stage(stage)->folder();
        row.shows_here = stage == 1;
        if (stage == 0) {
            row.why_not = "it needs 12 GiB";
        } else {
            row.timing = Timing{4.0 / stage, 1, 5, 0.01, 10};
            row.verified = stage == 1;
        }
        results.rows.push_back(row);
    }
    derive(results);
    return results;
}

// A ladder with a branch: 0 <- 1 <- 2 for decoding and 1 <- 18 for long queries. 2 is slower than its parent
// there. Two peers, one of them with a name to escape.
Results branched_results() {
    Results results;
    results.hardware.gpu = "Test GPU";
    results.ceilings.copy_gbs = 4000;
    const auto add = [&](const char* regime, int Nq, const char* shows_in, int stage, int parent, double ms) {
        Row row;
        row.regime = regime;
        row.shape = {.B = 1, .H = 16, .Hkv = 16, .Nq = Nq, .Nk = 2048, .d = 128};
        row.stage = stage;
        row.parent = parent;
        row.folder = fmt::format("{:02}_stage", stage);
        row.shows_here = std::string(regime) == shows_in;
        row.timing = Timing{ms, ms, ms, 0.01, 10};
        row.verified = true;
        results.rows.push_back(row);
    };
    for (const auto& [regime, Nq] : {std::pair("train", 2048), std::pair("decode", 1)}) {
        add(regime, Nq, "train", 0, -1, 0.8);
        add(regime, Nq, "train", 1, 0, 0.4);
        add(regime, Nq, "decode", 2, 1, 0.5);
        add(regime, Nq, "train", 18, 1, 0.1);
    }
    for (const char* name : {"<A & B>", Peers::slow}) {
        PeerRow peer;
        static_cast<ProblemLabel&>(peer) = results.rows[0];
        peer.peer = name;
        peer.timing = Timing{0.2, 0.2, 0.2, 0.01, 10};
        results.peers.push_back(peer);
    }
    derive(results);
    return results;
}

}  // namespace

TEST_CASE("a stage that needs too much memory says so in its row, and the others run", "[commands]") {
    if (!test::available(Backend::cpu)) return;
    SmallDevice device(3 << 20);
    std::vector<Verification> verifications;
    verifications.emplace_back(find_stage(0), std::vector{square()});
    verifications.emplace_back(find_stage(3), std::vector{square()});
    verify_all(device, verifications, ignore_steps);

    const Table table = verification_table(verifications);
    CHECK(cell(table, 0, "passed").text == "cannot run");
    CHECK(cell(table, 0, "why_not").text.find("MiB") != std::string::npos);
    CHECK(cell(table, 1, "passed").text == "1 of 1 cases");
    CHECK(failure_of(verifications).empty());

    const auto changes = count_changes(
        device, {find_stage(0), find_stage(3)}, [](const Stage&) { return square(); }, ignore_steps);
    CHECK(changes[0].after.why_not.find("MiB") != std::string::npos);
    CHECK(changes[1].after.why_not.empty());
    CHECK(cell(work_table(changes), 1, "00_naive").text == "-");
    CHECK(cell(work_table(changes), 1, "03_sequence_parallel").text == "16");
}

TEST_CASE("if no stage can run, the reason is the error", "[commands]") {
    if (!test::available(Backend::cpu)) return;
    SmallDevice device(1 << 20);
    std::vector<Verification> verifications;
    verifications.emplace_back(find_stage(0), std::vector{square()});
    CHECK_THROWS_AS(verify_all(device, verifications, ignore_steps), CannotRun);
}

TEST_CASE("one failed case fails the stage, and its report is shown", "[commands]") {
    std::vector<Verification> verifications;
    verifications.emplace_back(find_stage(1), std::vector{square()});
    verifications.emplace_back(find_stage(2), std::vector{square()});
    verifications[0].passed = 3;
    verifications[1].passed = 2;
    verifications[1].failed = 1;
    verifications[1].reports = {"row 5 is wrong\n"};
    CHECK(failure_of(verifications) == "1 of 2 stages failed: 02_deferred_normalization");
    CHECK(cell(verification_table(verifications), 1, "passed").text == "2 of 3 cases");
    CHECK(cell(verification_table(verifications), 1, "passed").tone == Tone::bad);
    const auto listings = failure_reports(verifications);
    REQUIRE(listings.size() == 1);
    CHECK(listings[0].text == "row 5 is wrong\n");
}

TEST_CASE("errors are kept by type and kind of input", "[commands]") {
    Verification v(find_stage(1), {});
    const auto add = [&](DType dtype, const char* input, Verdict verdict) {
        v.errors[{dtype, input}].add(verdict);
    };
    add(DType::bf16, "normal", {true, 0, 0.5, 0, 0, ""});
    add(DType::bf16, "normal", {true, 2, 3, 1, 4, ""});
    add(DType::bf16, "normal", {true, 1, 9, 2, 3, ""});
    add(DType::fp16, "rising", {false, std::nan(""), 1, 0, 0, ""});
    const auto rows = to_json(error_table({v}));
    REQUIRE(rows.size() == 2);
    const auto& fp16 = rows[rows[0]["dtype"] == "fp16" ? 0 : 1];
    const auto& bf16 = rows[rows[0]["dtype"] == "fp16" ? 1 : 0];
    CHECK(fp16["max_error"].is_null());
    CHECK(bf16["stage"] == "01_flash_attention_1");
    CHECK(bf16["input"] == "normal");
    CHECK(bf16["cases"] == 3);
    CHECK(bf16["max_error"] == 2);
    CHECK(bf16["standard_max_error"] == 3);
    CHECK(bf16["relative_l2"] == 2);
    CHECK(bf16["max_L_error"] == 4);
}

TEST_CASE("claims: each stage changes something on its telling problem", "[claims][ladder]") {
    if (!test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    std::vector<const Stage*> with_parent;
    for (const Stage& stage : stages()) {
        if (stage.parent >= 0) with_parent.push_back(&stage);
    }
    for (const Change& change : count_changes(*device, with_parent, telling_case, ignore_steps)) {
        CAPTURE(change.stage->folder(), change.problem.description());
        CHECK(change.before.why_not.empty());
        // No counter sees the order in which blocks start, nor at this d the place of multiply-adds. Then
        // something else is claimed of the stage, which its parent does not meet.
        if (change_table(change).rows().empty()) CHECK(claims_something(*device, *change.stage));
        CHECK(!unchanged_counters(change).empty());
    }
}

TEST_CASE("timing tables say what was timed, what was wrong and what could not run", "[commands]") {
    const auto tables = timing_tables(sample_results());
    REQUIRE(tables.size() == 1);
    CHECK(tables[0].title().find("train: B=8 H=16") == 0);
    CHECK(cell(tables[0], 0, "verified").text == "cannot run");
    CHECK(cell(tables[0], 0, "why_not").text == "it needs 12 GiB");
    CHECK(cell(tables[0], 1, "verified").text == "yes");
    CHECK(cell(tables[0], 1, "median_ms").text == "4.000");
    CHECK(cell(tables[0], 1, "noise").text == "1.0%");
    CHECK(cell(tables[0], 2, "verified").text == "WRONG");
    CHECK(cell(tables[0], 2, "over_parent").text.empty());  // a wrong answer has no speed
}

TEST_CASE("rate tables hold a column for each problem of a unit", "[commands]") {
    const Results results = sample_results();
    const auto tables = rate_tables(results);
    REQUIRE(tables.size() == 1);
    CHECK(tables[0].title() == "TFLOP/s (speedup over the parent)");
    REQUIRE(tables[0].rows().size() == 3);
    CHECK(cell(tables[0], 0, "train 2k").text == "-");
    CHECK(cell(tables[0], 1, "train 2k").tone == Tone::marked);
    CHECK(rate_tables(results, "decode").empty());
    CHECK(recorded_label(results) == "Recorded on Test GPU, 2026-11-21, commit 0123456");
    CHECK(stage_timing_table(results, *find_stage(1)).rows().size() == 1);
}

TEST_CASE("a climb follows the parents up to the last stage of its branch", "[commands]") {
    const auto both = climbs(branched_results());
    REQUIRE(both.size() == 2);
    CHECK(to_words(both[0]) ==
          "train 2k in TFLOP/s on Test GPU: 00 stage 43, 01 stage 86 (2.00x), 18 stage 344 (4.00x), "
          "<A & B> 172");
    CHECK(to_words(both[1]).find("01 stage 42 (2.00x), 02 stage 34 (0.80x), a copy 4000") !=
          std::string::npos);
    for (const Climb& climb : both) {
        CHECK(climb.steps[0].shared);
        CHECK(climb.steps[1].shared);
        CHECK(!climb.steps[2].shared);
    }
    CHECK(both[0].steps[1].shows_here);
    CHECK(!both[1].steps[1].shows_here);

    Results with_ablation = branched_results();
    Row ablation = with_ablation.rows[3];  // of 18, in train
    ablation.stage = 90;
    ablation.folder = "90_stage";
    with_ablation.rows.push_back(ablation);
    derive(with_ablation);
    CHECK(to_words(climbs(with_ablation)[0]) == to_words(both[0]));
    for (const Stage& stage : stages()) CHECK(!(is_ablation(stage.number) && is_last_of_part(stage)));

    const Climb of_some = climbs(sample_results()).at(0);  // 00 could not run
    CHECK(to_words(of_some).find("00 naive not timed, 01 flash attention 1 ") != std::string::npos);
    CHECK(climbs(Results()).empty());
}

TEST_CASE("a climb ends with a stage whose change shows where 00 cannot run", "[commands]") {
    Results results = branched_results();
    Row last = results.rows[3];  // of 18, in train
    last.stage = 21;
    last.parent = 18;
    last.folder = "21_stage";
    last.shows_here = false;
    results.rows.push_back(last);
    last.shows_here = true;
    Row first = results.rows[0];
    first.timing.reset();
    first.unit.clear();
    for (Row* row : {&first, &last}) {
        row->regime = "wide";
        row->shape.d = 256;
        results.rows.push_back(*row);
    }
    derive(results);
    CHECK(climbs(results).at(0).steps.back().folder == "21_stage");
}

TEST_CASE("gains on the way up stand beside what they are worth at the end", "[commands]") {
    Results results;
    const std::map<int, double> times{{1, 24}, {2, 12}, {3, 4}, {90, 5}, {92, 16}};
    for (const bool causal : {false, true}) {
        for (const auto& [stage, ms] : times) {
            if (causal && stage == 92) continue;  // a problem that not all have is left out
            Row row;
            row.regime = causal ? "causal" : "train";
            row.shape = {.B = 8, .H = 16, .Hkv = 16, .Nq = 2048, .Nk = 2048, .d = 128};
            row.causal = causal;
            row.stage = stage;
            row.timing = Timing{ms, ms, ms, 0.01, 10};
            row.verified = true;
            results.rows.push_back(row);
        }
    }
    const Table table = leave_one_out_table(results, 3, {{2, 90}, {3, 92}});
    REQUIRE(table.rows().size() == 3);
    using Texts = std::vector<std::string>;
    const auto texts = [&](std::size_t row) {
        Texts of_cells;
        for (const Cell& c : table.rows()[row]) of_cells.push_back(c.text);
        return of_cells;
    };
    CHECK(texts(0) == Texts{"train 2k", "02_deferred_normalization", "2.00x", "1.25x", "12.000", "1.000"});
    CHECK(texts(1) == Texts{"train 2k", "03_sequence_parallel", "3.00x", "4.00x", "8.000", "12.000"});
    CHECK(texts(2) == Texts{"train 2k", "all of them", "6.00x", "5.00x", "20.000", "13.000"});
    results.rows.front().verified = false;
    CHECK(leave_one_out_table(results, 3, {{2, 90}, {3, 92}}).rows().empty());
}

TEST_CASE("a roofline has operations per byte, and what was timed and profiled alone", "[commands]") {
    Results results;
    results.ceilings.bf16_tflops = 800;
    results.ceilings.copy_gbs = 4000;
    Row row;
    row.regime = "train";
    row.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 1000, .Nk = 1000, .d = 64};
    for (const char* folder : {"04_split_q", "05_causal_skip", "22_async_copies"}) {
        row.folder = folder;
        row.stage = std::stoi(row.folder);
        row.timing = Timing{.median_ms = 0.001 * (row.stage + 1)};
        results.rows.push_back(row);
    }
    Profile profile;
    for (const char* folder : {"04_split_q", "22_async_copies"}) {
        ProfileRow profiled;
        static_cast<ProblemLabel&>(profiled) = row;
        profiled.folder = folder;
        profiled.kernels.resize(2);
        for (KernelProfile& kernel : profiled.kernels)
            kernel.metrics = {{"hbm_read_bytes", 1e6}, {"hbm_write_bytes", 3e6}};
        profile.rows.push_back(profiled);
    }
    const auto found = roofline(results, profile);
    REQUIRE(found);
    REQUIRE(found->points.size() == 1);  // 05 was not profiled, 22 is not the last of its part
    CHECK(found->points[0].folder == "04_split_q");
    CHECK(found->points[0].intensity == 32);  // 4 x 1000 x 1000 x 64 operations, 8 MB
    CHECK(std::abs(found->points[0].tflops - 51.2) < 1e-9);
    results.ceilings.copy_gbs.reset();
    CHECK(!roofline(results, profile));
}

TEST_CASE("a part's share of a recording: its stages, where it starts, and its kind of problem",
          "[commands]") {
    Results results;
    for (const auto& [stage, regime, unit, shows] : {std::tuple{5, "train", "TFLOP/s", false},
                                                     {5, "decode", "GB/s", false},
                                                     {6, "decode", "GB/s", true},
                                                     {10, "train", "TFLOP/s", false},
                                                     {10, "decode", "GB/s", true},
                                                     {20, "train", "TFLOP/s", true}}) {
        Row row;
        row.stage = stage;
        row.regime = regime;
        row.unit = unit;
        row.shows_here = shows;
        results.rows.push_back(row);
    }
    const auto stages_in = [&](int part) {
        std::vector<int> numbers;
        for (const Row& row : of_part(results, part).rows) numbers.push_back(row.stage);
        return numbers;
    };
    CHECK(stages_in(10) == std::vector<int>{6, 10});
    CHECK(stages_in(20) == std::vector<int>{5, 20});
    CHECK(stages_in(0) == std::vector<int>{5, 6});
}

TEST_CASE("a plot is known by the recording that it shows", "[commands]") {
    const auto both = climbs(branched_results());
    const Climb& train = both[0];
    const auto json = nlohmann::json::parse(to_line(train));
    CHECK(json["unit"] == "TFLOP/s");
    CHECK(json["steps"].size() == train.steps.size());
    CHECK(json["steps"][0]["over_parent"].is_null());
    CHECK(json["steps"][2]["over_parent"].get<double>() == *train.steps[2].over_parent);
    CHECK(json["yardsticks"][0]["name"] == "<A & B>");

    std::string description = to_line(train);
    description.replace(description.find("<A & B>"), 7, "&lt;A &amp; B&gt;");
    const std::string svg = "<svg><dc:description>" + description + "</dc:description></svg>";
    CHECK(is_shown(picture_of(train), svg));
    CHECK(!is_shown(picture_of(both[1]), svg));
    Climb newer = train;
    *newer.steps[1].rate += 0.001;
    CHECK(!is_shown(picture_of(newer), svg));
    CHECK(to_html(picture_of(train), "f").find("srcset=\"f/train-dark.svg\"") != std::string::npos);
}
