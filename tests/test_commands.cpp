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
#include "harness/report/chart.h"
#include "harness/report/climb.h"
#include "harness/report/errors.h"
#include "harness/report/parts.h"
#include "harness/report/published.h"
#include "harness/report/roofline.h"
#include "harness/report/standard.h"
#include "harness/report/timing_tables.h"
#include "harness/time/selection.h"
#include "harness/time/timing.h"
#include "harness/verify/verification.h"
#include "stages/errors.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"
#include "tests/folder.h"
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
    const Stage& with_functions(const Stage& stage) const override { return cpu_->ready(stage); }

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
    CHECK(cell(table, 1, "passed").text == "1 of 1 case");
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
    verifications[1].reports.resize(4, "another\n");
    CHECK(failure_reports(verifications)[0].text.ends_with("... and 1 more case\n"));
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
        const Stage* parent = find_stage(stage.parent);
        if (parent != nullptr && parent->pass == stage.pass) with_parent.push_back(&stage);
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

    Results both = results;  // gradients stand apart
    both.rows[2].pass = Pass::backward;
    const auto apart = rate_tables(both);
    REQUIRE(apart.size() == 2);
    CHECK(apart[0].rows().size() == 2);
    CHECK(apart[1].title() == "Gradients: TFLOP/s (speedup over the parent)");
    CHECK(apart[1].rows().size() == 1);
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

    Results with_gradients = branched_results();
    Row gradients = with_gradients.rows[3];
    gradients.pass = Pass::backward;
    gradients.regime = "backward";
    gradients.stage = 40;
    gradients.folder = "40_stage";
    gradients.parent = -1;
    with_gradients.rows.push_back(gradients);
    const auto three = climbs(with_gradients);
    REQUIRE(three.size() == 3);
    CHECK(to_line(three[0]) == to_line(both[0]));  // shared steps, too
    REQUIRE(three[2].steps.size() == 1);
    CHECK(three[2].name == "backward");
    CHECK(three[2].steps[0].folder == "40_stage");
    CHECK(!three[2].steps[0].shared);

    Results with_ablation = branched_results();
    Row ablation = with_ablation.rows[3];  // of 18, in train
    ablation.stage = 90;
    ablation.folder = "90_stage";
    with_ablation.rows.push_back(ablation);
    derive(with_ablation);
    CHECK(to_words(climbs(with_ablation)[0]) == to_words(both[0]));
    for (const Stage& stage : stages()) CHECK(!(is_ablation(stage.number) && is_last_of_part(stage)));
    // 45 and 46 have no kernels for d = 256, and nobody above 20 has.
    CHECK((parent_at(*find_stage(47), 128) == find_stage(46) &&
           parent_at(*find_stage(47), 256) == find_stage(44)));
    CHECK((parent_at(*find_stage(20), 256) == nullptr && with_parents({find_stage(47)}).size() == 3));

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

namespace {

// 00, 01 and 05 on 16 x 8 heads of 64, at these N; 01 takes twice the time of 00 at every length but the
// first.
Results standard_results(const std::vector<int>& lengths) {
    Results results;
    results.hardware.gpu = "Test GPU";
    for (const int N : lengths) {
        for (const int number : {0, 1, 5}) {
            Row row;
            row.regime = "standard";
            row.shape = {.B = 16, .H = 8, .Hkv = 8, .Nq = N, .Nk = N, .d = 64};
            row.stage = number;
            row.folder = find_stage(number)->folder();
            row.parent = find_stage(number)->parent;
            row.timing = Timing{number == 1 ? N == lengths[0] ? 0.5 : 2 : 1, 1, 1, 0, 3};
            row.verified = true;
            results.rows.push_back(row);
        }
    }
    derive(results);
    return results;
}

}  // namespace

TEST_CASE("a benchmark's chart has a panel for each head dimension and mask", "[commands]") {
    Results results = standard_results({512, 1024});
    PeerRow peer;
    static_cast<ProblemLabel&>(peer) = results.rows[3];  // N = 1024
    peer.peer = "A & B";
    peer.timing = Timing{1, 1, 1, 0, 3};
    results.peers.push_back(peer);
    peer.timing.reset();
    static_cast<ProblemLabel&>(peer) = results.rows[0];
    peer.why_not = "does not like it";
    results.peers.push_back(peer);
    Row masked = results.rows[3];
    masked.causal = true;
    masked.verified = false;
    results.rows.push_back(masked);
    Row grouped = results.rows[0];
    grouped.shape.Hkv = 1;
    results.rows.push_back(grouped);
    derive(results);

    const Chart chart = benchmark_chart(results);
    CHECK(chart.N == std::vector<int>{512, 1024});
    REQUIRE(chart.lines.size() == 4);
    CHECK(chart.lines[3].name == "A & B");
    REQUIRE(chart.panels.size() == 2);
    CHECK(chart.panels[0].values[0][1] == results.rows[3].rate);
    CHECK_FALSE(chart.panels[0].values[3][0]);
    CHECK(chart.panels[0].values[3][1] == results.peers[0].rate);
    CHECK(chart.panels[1].title == "d = 64, causal mask");
    CHECK_FALSE(chart.panels[1].values[0][1]);  // a wrong answer has no rate

    const Picture picture = picture_of(chart);
    CHECK(nlohmann::json::parse(picture.data)["panels"][0]["values"][3][0].is_null());
    CHECK(picture.words.find("At N = 512 1k. d = 64, no mask: 00 naive 8.6 34, ") != std::string::npos);
    CHECK(picture.words.find("A & B - 34; d = 64, causal mask: ") != std::string::npos);
    CHECK(to_html(picture, "plots").find("A &amp; B - 34;") != std::string::npos);

    const Table rates = rates_by_problem(results);
    CHECK(cell(rates, 0, "A & B").text == "-");
    CHECK(cell(rates, 1, "A & B").text == "34.4");
    CHECK(cell(rates, 2, "00_naive").text == "WRONG");
    CHECK(peer_reasons(results) == "A & B: does not like it");

    results.hardware.sm_count = 512;
    const Table grid = grid_table(results);
    CHECK(cell(grid, 0, "01 SMs with a block").text == "25%");
    CHECK(cell(grid, 1, "05 blocks").text == "2,048");
    CHECK(cell(grid, 1, "05 SMs with a block").text == "100%");
    CHECK(cell(grid, 1, "05 TFLOP/s").text == "34");
}

TEST_CASE("bytes requested are a quadratic in N", "[commands]") {
    if (!test::available(Backend::cpu)) return;
    const auto cpu = open_device(Backend::cpu);
    Case c;
    c.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 320, .Nk = 320, .d = 64};
    for (const int number : {0, 1, 5}) {
        INFO(number);
        const Stage& stage = *find_stage(number);
        const auto counted = count_work(*cpu, stage, c, make_inputs(c)).counters;
        CHECK(RequestedBytes(*cpu, stage, c.dtype, 64).of(320) ==
              double(counted.global_load_bytes + counted.global_store_bytes));
        if (number != 0) CHECK(counted.blocks == (number == 1 ? 1 : 5));  // what grid_table() says
    }
}

TEST_CASE("FlashAttention-1 beside standard attention", "[commands]") {
    CHECK(standard_accesses(2048, 128) == 2048 * 2048 + 2048 * 128);
    CHECK(sram_of(128, 64) == 32768);
    CHECK(flash_attention_accesses(2048, 128, sram_of(128, 64)) == 2048 * 2048 / 2);
    if (!test::available(Backend::cpu)) return;
    const auto cpu = open_device(Backend::cpu);
    Results results = standard_results({64, 128, 256});
    for (Row& row : results.rows) {
        if (row.stage == 0 && row.shape.Nk == 256) row.timing.reset();
    }
    Profile bytes;
    for (const Row& row : results.rows) {
        ProfileRow profiled;
        static_cast<ProblemLabel&>(profiled) = row;
        profiled.stage = row.stage;
        profiled.kernels.resize(row.stage == 0 ? 3 : 1);
        for (KernelProfile& kernel : profiled.kernels)
            kernel.metrics = {{"hbm_read_bytes", 1024}, {"hbm_write_bytes", 2048}};
        if (row.shape.Nk != 128) bytes.rows.push_back(profiled);
    }

    const auto rows = standard_rows(results, bytes, *cpu);
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].stages.at(0).moved == 3 * 3072);
    CHECK_FALSE(rows[1].stages.at(0).moved);
    CHECK(rows[0].stages.at(0).workspace == 16 * 8 * 6 * 64 * 64);
    CHECK(crossovers(rows) == "- d = 64: 01 is faster than 00 at N = 64, and slower at N = 128.\n");

    const Table times = standard_times(rows), table = standard_bytes(rows);
    CHECK(cell(times, 0, "01 over 00").text == "2.00x");
    CHECK(cell(times, 2, "01 over 00").text == "-");
    CHECK(cell(times, 2, "00 workspace").text == "48 MiB");
    CHECK(cell(table, 0, "01 / 00, moved").text == "0.33x");
    CHECK(cell(table, 1, "01 / 00, moved").text == "-");
    CHECK(cell(table, 2, "01 / 00, formulas").text == "0.20x");  // 1/4 of N^2 over N^2 + 64 N

    const Chart chart = standard_chart(rows, "Test GPU");
    CHECK(picture_of(chart).words.find("01, time 0.5x 2x -") != std::string::npos);
    CHECK(standard_rows(results, {}, *cpu)[0].stages.at(1).requested == rows[0].stages.at(1).requested);
}

TEST_CASE("recorded errors: N(0, 1) and all inputs", "[commands]") {
    const test::Folder folder;
    const std::string file = folder.write("verify.json", R"({"kind": "verification", "device": "Test GPU",
        "date": "2026-11-21T07:52:00Z", "commit": "0123456789", "errors": [
        {"stage": "01", "dtype": "fp16", "input": "normal", "max_error": 1e-3, "standard_max_error": 2e-3,
         "relative_l2": 3e-4},
        {"stage": "01", "dtype": "fp16", "input": "huge", "max_error": 8, "standard_max_error": 9,
         "relative_l2": 1e-4}]})");
    const std::string block = errors_block(file);
    CHECK(block.find("Recorded on Test GPU, 2026-11-21, commit 0123456:\n") == 0);
    CHECK(block.find("| 01 | 1.0e-03 | 2.0e-03 | 3.0e-04 | | | |") != std::string::npos);
    CHECK(block.find("| 01 | 8.0e+00 | 9.0e+00 | 3.0e-04 | | | |") != std::string::npos);
    CHECK_THROWS_AS(errors_block(folder.write("other.json", R"({"kind": "timing"})")), BadUsage);
    CHECK_THROWS_AS(errors_block(folder.write("torn.json", R"({"kind": "verification"})")), BadUsage);
}

TEST_CASE("published numbers stand beside what the recordings say", "[commands]") {
    Results all = newest_results(results_folder()).value();
    const Results prefill = load_results(results_folder() / "h200-prefill.json"),
                  few_heads = load_results(results_folder() / "h200-causal-small.json");
    const Profile profile = recorded_profile().value();
    const auto table = [&] { return published_table({all, prefill, few_heads, profile}); };
    // The papers' "1.7 to 1.8x": 05 without a mask over 05 with one.
    const auto masked = [&](double without_mask) {
        for (Row& row : all.rows) {
            if (row.stage == 5 && row.timing) row.timing->median_ms = row.causal ? 1 : without_mask;
        }
        const Table now = table();
        for (std::size_t n = 0; n < now.rows().size(); ++n) {
            if (cell(now, n, "here").text.ends_with("x (05)"))
                return cell(now, n, "here").text + ": " + cell(now, n, "verdict").text;
        }
        return std::string("not there");
    };
    CHECK(masked(1.75) == "1.75x (05): same");
    CHECK(masked(1.6) == "1.60x (05): same");  // within a tenth
    CHECK(masked(1.5) == "1.50x (05): less");
    CHECK(masked(2.0) == "2.00x (05): more");
    all.rows.clear();
    CHECK_THROWS_AS(table(), CannotRun);
}

TEST_CASE("lab time shows what can be seen: some stages, where their changes should show, or all",
          "[commands]") {
    const auto folders = [](const Selection& selection) {
        std::vector<std::string> names;
        for (const Stage* stage : selection.stages) names.push_back(stage->folder());
        return names;
    };
    const Stage &split_q = *find_stage(4), &decoding = *find_stage(17), &long_queries = *find_stage(26);
    const Shape many{.Nq = 64}, one{.Nq = 1};

    const Selection few = select_timed({}, false, "", true);
    REQUIRE(few.stages.size() > 8);
    CHECK(folders(few)[6] == "06_flash_decoding");
    CHECK(few.beside_peers);
    CHECK((few.takes_part(decoding, one) && !few.takes_part(decoding, many)));
    CHECK((!few.takes_part(long_queries, one) && few.takes_part(long_queries, many)));
    CHECK((few.takes_part(split_q, one) && few.takes_part(split_q, many)));
    CHECK((!few.takes_part(split_q, {.d = 256}) && few.takes_part(long_queries, {.Nq = 64, .d = 256})));
    CHECK((few.matters("train") && few.matters("decode") && !few.matters("batch")));
    CHECK(select_timed({}, false, "", false).stages.size() == 7);

    const Selection single = select_timed({&split_q}, false, "", true);
    CHECK(folders(single) == std::vector<std::string>{"03_sequence_parallel", "04_split_q"});
    CHECK(single.beside_peers);
    CHECK((single.matters("train") && !single.matters("long")));  // where its parent's shows
    const Selection sweep = select_timed({&split_q}, false, "prefill", true);
    CHECK((sweep.stages.size() == 1 && !sweep.beside_peers));

    const Selection two = select_timed({&split_q, &decoding}, false, "", true);
    CHECK((two.stages.size() == 2 && !two.beside_peers && two.takes_part(decoding, many)));
    const Selection all = select_timed({}, true, "", true);
    CHECK((all.stages.size() == stages().size() && !all.beside_peers && all.matters("narrow")));
    CHECK(all.takes_part(long_queries, one));
    Stage own = split_q;
    own.shows_in = "nowhere";
    CHECK(select_timed({&own}, false, "", true).matters("train"));

    Results results = branched_results();  // 00, 01, 02 and 18 in train and decode, and peers in train
    const Stage &flash = *find_stage(1), &deferred = *find_stage(2);
    select_timed({&flash, &deferred}, false, "", true).filter(results, "");
    REQUIRE(results.rows.size() == 2);
    CHECK((results.rows[0].regime == "train" && results.rows[0].stage == 1 && results.rows[1].stage == 2));
    CHECK(results.peers.size() == 2);
    results = branched_results();
    select_timed({}, true, "", true).filter(results, "decode");
    CHECK((results.rows.size() == 3 && results.peers.empty()));  // there is no stage 18
}

TEST_CASE("a stage that takes no part in a problem has no row there", "[commands]") {
    test::FakeGpu gpu;
    gpu.milliseconds = {{3, 2.0}, {4, 1.0}};
    TimingOptions options = test::small_options();
    options.cases.push_back(test::small_case(17));
    options.takes_part = [](const Stage& stage, const Case& c) {
        return stage.number == 4 || c.shape.Nq == 17;
    };
    const Results results = time_stages(gpu, {*find_stage(3), *find_stage(4)}, options);
    REQUIRE(results.rows.size() == 3);
    CHECK((results.rows[0].stage == 4 && results.rows[1].stage == 3 && results.rows[2].stage == 4));
    CHECK(!results.rows[0].over_parent);
    CHECK(std::abs(results.rows[2].over_parent->value - 2) < 1e-9);
    for (const Row& row : results.rows) CHECK(row.verified);
}
