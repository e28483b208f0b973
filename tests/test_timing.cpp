#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/report/timing_tables.h"
#include "harness/time/fastest.h"
#include "harness/time/timing.h"
#include "harness/verify/verification.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"
#include "tests/folder.h"
#include "tests/skip.h"

using namespace ladder;
using ladder::test::FakeGpu;
using ladder::test::Folder;
using ladder::test::small_options;
namespace fs = std::filesystem;

namespace {

bool near(double a, double b) {
    return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

Row timed_row(int stage, int parent, double median_ms) {
    Row row;
    row.regime = "train";
    row.shape = {.B = 2, .H = 4, .Hkv = 2, .Nq = 100, .Nk = 200, .d = 64};
    row.stage = stage;
    row.parent = parent;
    row.folder = "0" + std::to_string(stage) + "_test";
    row.verified = true;
    row.max_error = 1e-3;
    row.timing = Timing{median_ms, median_ms * 0.9, median_ms * 1.1, 0.03, 12};
    return row;
}

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

/// A measurement that covers the default run.
Results sample_results(const std::string& date) {
    Results results;
    results.date = date;
    results.commit = "abc-dirty";
    results.hardware = {"NVIDIA H200", 132, 90, 90, 90, "580.159.04", "13.0"};
    results.ceilings = {750.0, std::nullopt, 4300.0};
    results.kernels = {{"00_test", "0123456789abcdef"}};
    for (const Regime& regime : regimes()) {
        if (regime.sweep) continue;
        Row row = timed_row(0, -1, 2);
        row.regime = regime.name;
        row.shows_here = true;
        results.rows.push_back(row);
    }
    Row missing = timed_row(1, 0, 1);
    missing.timing.reset();
    missing.max_error.reset();
    missing.verified = false;
    missing.why_not = "workspace needs 24.0 GiB; the GPU has 10.0 GiB free";
    results.rows.push_back(missing);
    derive(results);
    return results;
}

}  // namespace

TEST_CASE("percentiles interpolate between sorted values", "[timing]") {
    const std::vector<double> values{1, 2, 3, 4, 10};
    CHECK(percentile(values, 0) == 1);
    CHECK(percentile(values, 0.5) == 3);
    CHECK(near(percentile(values, 0.2), 1.8));
    CHECK(near(percentile(values, 0.8), 5.2));
    CHECK(percentile(values, 1) == 10);
    CHECK(percentile({7}, 0.8) == 7);
}

TEST_CASE("times are summarized by median, spread and noise", "[timing]") {
    const Timing timing = summarize({10, 3, 1, 4, 2});
    CHECK(timing.median_ms == 3);
    CHECK(near(timing.p20_ms, 1.8));
    CHECK(near(timing.p80_ms, 5.2));
    CHECK(timing.repeats == 5);
    CHECK(near(timing.noise, 1.253 * (5.2 - 1.8) / 1.683 / std::sqrt(5) / 3));
    CHECK(summarize({2, 2, 2}).noise == 0);
    CHECK_THROWS_AS(summarize({}), std::invalid_argument);
}

TEST_CASE("work is counted as the FlashAttention papers count it", "[timing]") {
    const Shape shape{.B = 2, .H = 16, .Hkv = 16, .Nq = 8192, .Nk = 8192, .d = 128};
    CHECK(flops(shape, false) == 4.0 * 2 * 16 * 8192 * 8192 * 128);
    CHECK(flops(shape, true) == 2.0 * 2 * 16 * 8192 * 8192 * 128);
    // Q and O: one row of 32 heads. K and V: 1000 rows of 8 heads. Two bytes each.
    CHECK(flops(shape, true, Pass::backward) == 5.0 * 2 * 16 * 8192 * 8192 * 128);
    const Shape decode{.B = 1, .H = 32, .Hkv = 8, .Nq = 1, .Nk = 1000, .d = 128};
    CHECK(unavoidable_bytes(decode) == 2.0 * (2 * 32 + 2 * 8 * 1000) * 128);
    CHECK(unavoidable_bytes(decode, Pass::backward) == 2 * unavoidable_bytes(decode));
    CHECK(counts_bytes(decode));
    CHECK_FALSE(counts_bytes(shape));
}

TEST_CASE("regimes are those of the design", "[timing]") {
    std::vector<std::string> names;
    for (const Regime& regime : regimes()) {
        if (regime.sweep) continue;
        names.push_back(regime.name);
        for (const auto& [shape, causal, input] : regime.problems) {
            INFO(regime.name);
            const std::string& name = names.back();
            CHECK(shape.d == (name.ends_with("narrow") ? 64 : name.ends_with("wide") ? 256 : 128));
            CHECK(causal == (names.back() == "causal" || shape.Nq == 512 || shape.Nq == 8192));
            CHECK((regime.pass == Pass::backward) == name.starts_with("backward"));
            CHECK(input == std::string("normal"));
            CHECK((shape.Nq == 1) == is_decoding(names.back()));
            CHECK((shape.Nq == 1 || shape.B * shape.Nq == 16384));
        }
    }
    CHECK(names == std::vector<std::string>{"train", "long", "causal", "decode", "batch", "narrow", "wide",
                                            "backward", "backward-narrow", "backward-wide"});
    CHECK(timing_options(DType::bf16, "decode").cases.size() == 6);
    CHECK(timing_options(DType::bf16).cases.size() == 22);
    CHECK(timing_options(DType::bf16, "backward").cases[1].problem.pass == Pass::backward);
    CHECK(timing_options(DType::fp16, "causal").cases.front().problem.causal);
    CHECK(timing_options(DType::fp16, "causal").cases.front().problem.dtype == DType::fp16);
    CHECK_THROWS_AS(timing_options(DType::bf16, "nonsense"), BadUsage);
}

TEST_CASE("sweeps are many problems, timed briefly and only by name", "[timing]") {
    const TimingOptions prefill = timing_options(DType::fp16, "prefill");
    CHECK(prefill.cases.size() == 36 + 8);
    for (const TimedCase& timed : prefill.cases) {
        const Shape& s = timed.problem.shape;
        const bool of_16k_tokens = s.B * s.Nq == 16384 && s.H * s.d == 2048 && s.H == s.Hkv;
        const bool of_groups = s.B == 1 && s.H == 64 && s.Hkv == 8 && s.d == 128;
        CHECK((of_16k_tokens || of_groups));
        CHECK(s.Nq == s.Nk);
    }
    CHECK(prefill.peers == std::vector<std::string>{"FlashAttention-2", "cuDNN"});
    CHECK(prefill.max_seconds < TimingOptions().max_seconds);
    CHECK(timing_options(DType::bf16).peers == Peers::usual());

    const TimingOptions serving = timing_options(DType::bf16, "serving");
    CHECK(serving.cases.size() == 36);
    for (const TimedCase& timed : serving.cases) {
        CHECK(counts_bytes(timed.problem.shape));
        CHECK(unavoidable_bytes(timed.problem.shape) <= 40e9);
    }
    // Nothing divides: neither keys into tiles, nor the group into a tile's rows.
    for (const TimedCase& timed : timing_options(DType::bf16, "serving-odd").cases) {
        const Shape& s = timed.problem.shape;
        CHECK(s.Nk % 64 != 0);
        CHECK(s.H / s.Hkv == 3);
    }
    const TimingOptions few_rows = timing_options(DType::bf16, "few-rows");
    CHECK(few_rows.cases.size() == 6 * 16 + 2 * 3 * 4 + 4 + 4 + 2);
    for (const TimedCase& timed : few_rows.cases) {
        const Shape& s = timed.problem.shape;
        CHECK((s.Nq <= 512 && s.Nk >= s.Nq));
        CHECK(unavoidable_bytes(s) <= 2e9);
    }
    for (const TimedCase& timed : timing_options(DType::bf16, "rising").cases)
        CHECK(timed.problem.input == "rising");
    CHECK(timing_options(DType::bf16, "causal-small").cases.size() == 4);
    for (const TimedCase& timed : timing_options(DType::bf16, "standard").cases)
        CHECK(timed.problem.shape.B * timed.problem.shape.H == 128);  // one block of 01 for each
    const TimingOptions gradients = timing_options(DType::bf16, "gradients");
    CHECK(gradients.cases.size() == 24 + 4);
    for (const TimedCase& timed : gradients.cases) {
        const Shape& s = timed.problem.shape;
        CHECK(timed.problem.pass == Pass::backward);
        CHECK(s.B * s.Nq == 16384);
        CHECK((s.H * s.d == 2048 || (s.H == 32 && s.Hkv == 8 && s.d == 128)));
    }
    for (const char* name : {"gradients", "prefill", "serving", "serving-odd", "few-rows", "papers",
                             "standard", "rising", "causal-small"})
        CHECK(is_sweep(name));
    for (const char* name : {"train", "custom", ""}) CHECK_FALSE(is_sweep(name));
}

TEST_CASE("every stage's change shows in a regime", "[timing]") {
    for (const Stage& stage : stages()) {
        INFO(stage.folder());
        if (stage.parent >= 0) CHECK_NOTHROW(timing_options(DType::bf16, stage.shows_in));
        if (stage.parent >= 0) CHECK(std::string(stage.shows_in) != "");
    }
}

TEST_CASE("rates, shares and speedups follow from the times", "[timing]") {
    Results results;
    results.ceilings = {2.0, 1.0, 100.0};
    results.rows = {timed_row(0, -1, 8), timed_row(1, 0, 4), timed_row(2, 1, 5)};

    SECTION("products") {
        derive(results);
        const double tflops = 4.0 * 2 * 4 * 100 * 200 * 64 / 5e-3 * 1e-12;
        CHECK(results.rows[2].unit == "TFLOP/s");
        CHECK(near(results.rows[2].rate, tflops));
        CHECK(near(*results.rows[2].ceiling_share, tflops / 2));
        CHECK(near(results.rows[2].over_parent->value, 0.8));
        CHECK(near(results.rows[2].over_parent->noise, std::hypot(0.03, 0.03)));
        CHECK(near(results.rows[2].over_baseline->value, 1.6));
        CHECK_FALSE(results.rows[0].over_parent);
        CHECK_FALSE(results.rows[0].over_baseline);
    }
    SECTION("bytes") {
        for (Row& row : results.rows) row.shape.Nq = 1;
        derive(results);
        CHECK(results.rows[1].unit == "GB/s");
        CHECK(near(results.rows[1].rate, unavoidable_bytes(results.rows[1].shape) / 4e-3 * 1e-9));
        CHECK(near(*results.rows[1].ceiling_share, results.rows[1].rate / 100));
    }
    SECTION("a ceiling that was not measured gives no share") {
        results.ceilings.bf16_tflops.reset();
        derive(results);
        CHECK_FALSE(results.rows[1].ceiling_share);
    }
    SECTION("a wrong answer has no speedup, and none over it") {
        results.rows[1].verified = false;
        derive(results);
        CHECK_FALSE(results.rows[1].over_baseline);
        CHECK_FALSE(results.rows[2].over_parent);
        CHECK(results.rows[2].over_baseline);
    }
    SECTION("other problems are not compared") {
        results.rows[1].causal = true;
        derive(results);
        CHECK_FALSE(results.rows[1].over_parent);
        CHECK_FALSE(results.rows[2].over_parent);
    }
}

TEST_CASE("code for another architecture is not recorded", "[timing]") {
    Hardware hardware{"NVIDIA H200", 132, 90, 90, 90, "580", "13.0"};
    CHECK(foreign_architecture(hardware).empty());

    SECTION("PTX that the driver compiled") {
        hardware.ptx_arch = 75;
        CHECK(foreign_architecture(hardware).find("compute_75") != std::string::npos);
    }
    SECTION("machine code of a relative") {
        hardware.device_arch = 86;
        hardware.binary_arch = hardware.ptx_arch = 80;
        CHECK(foreign_architecture(hardware).find("sm_80") != std::string::npos);
        CHECK(foreign_architecture(hardware).find("-DCMAKE_CUDA_ARCHITECTURES=86") != std::string::npos);
    }
    const Folder folder;
    Results results = sample_results("2026-01-01T00:00:00Z");
    results.hardware = hardware;
    if (foreign_architecture(hardware).empty()) {
        save_results(results, OutputFile(folder / "out.json"));
        CHECK(fs::exists(folder / "out.json"));
    } else {
        CHECK_THROWS_AS(save_results(results, OutputFile(folder / "out.json")), CannotRun);
        CHECK(folder.files() == 0);
    }
}

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
    CHECK_FALSE(newest_results(folder / ""));
    CHECK_FALSE(newest_results(folder / "none"));
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
    REQUIRE(newest_results(folder / ""));
    CHECK(newest_results(folder / "")->date == "2026-03-01T00:00:00Z");
    folder.write("broken.json", "{");
    CHECK_THROWS_AS(newest_results(folder / ""), BadUsage);
}

TEST_CASE("stages are timed in turn and verified", "[timing]") {
    FakeGpu gpu;
    gpu.milliseconds = {{3, 2.0}, {4, 1.0}};
    const std::vector<Stage> stages{*find_stage(3), *find_stage(4)};
    TimingOptions options = small_options();

    SECTION("round-robin until the times are quiet") {
        std::vector<std::string> steps;
        const Results results =
            time_stages(gpu, stages, options, [&](const std::string& what, int done, int total) {
                CHECK(done == static_cast<int>(steps.size()));
                CHECK(total == 3);
                steps.push_back(what);
            });
        CHECK(steps.size() == 3);
        REQUIRE(gpu.timed.size() == 20);  // no noise: the fewest repeats
        for (std::size_t i = 0; i < gpu.timed.size(); ++i) CHECK(gpu.timed[i] == (i % 2 == 0 ? 3 : 4));
        REQUIRE(results.rows.size() == 2);
        for (const Row& row : results.rows) {
            INFO(row.why_not);
            CHECK(row.verified);
            CHECK(row.max_error);
            CHECK(row.timing->repeats == 10);
        }
        CHECK(results.rows[1].timing->median_ms == 1);
        CHECK(near(results.rows[1].over_parent->value, 2));
        CHECK(results.rows[1].shows_here == (find_stage(4)->shows_in == std::string("train")));
        CHECK(results.kernels.at("04_split_q") == kernel_fingerprint("04_split_q"));
        CHECK(results.date.size() == std::string("2026-11-21T07:52:00Z").size());
    }
    SECTION("noise takes more repeats, up to a bound") {
        gpu.jitter = 0.5;
        options.max_repeats = 30;
        // Odd and even calls alternate between the stages, so it takes one stage alone to see the jitter.
        const Results results = time_stages(gpu, {stages[1]}, options);
        CHECK(results.rows[0].timing->repeats == 30);
        CHECK(results.rows[0].timing->noise > options.target_noise);
    }
    SECTION("slow stages are repeated thrice") {
        gpu.milliseconds[3] = 5000;
        const Results results = time_stages(gpu, stages, options);
        CHECK(results.rows[0].timing->repeats == 3);
        CHECK(results.rows[1].timing->repeats == 10);
    }
    SECTION("a wrong answer is timed but not verified") {
        gpu.wrong_stage = 4;
        const Results results = time_stages(gpu, stages, options);
        CHECK(results.rows[0].verified);
        CHECK_FALSE(results.rows[1].verified);
        CHECK_FALSE(results.rows[1].why_not.empty());
        CHECK_FALSE(results.rows[1].over_parent);
    }
}

TEST_CASE("stages of the backward pass are timed on gradients, of an O and L computed there", "[timing]") {
    FakeGpu gpu;
    gpu.milliseconds = {{3, 2.0}, {40, 4.0}, {41, 5.0}};
    Stage exact = *find_stage(3), atomic = exact;
    exact.pass = atomic.pass = Pass::backward;
    exact.number = 40;
    exact.name = "exact";
    atomic.number = 41;
    atomic.parent = 40;
    atomic.name = "atomic";
    atomic.repeats_exactly = false;
    TimingOptions options = small_options();
    options.cases.push_back({"backward", options.cases[0].problem});
    options.cases[1].problem.pass = Pass::backward;

    const Results results = time_stages(gpu, {*find_stage(3), exact, atomic}, options);
    REQUIRE(results.rows.size() == 3);
    CHECK((results.rows[0].stage == 3 && results.rows[1].stage == 40 && results.rows[2].stage == 41));
    for (const Row& row : results.rows) {
        INFO(row.why_not);
        CHECK(row.verified);
    }
    CHECK(results.rows[1].pass == Pass::backward);
    CHECK(near(results.rows[1].rate, flops(results.rows[1].shape, false, Pass::backward) / 4e-3 * 1e-12));
    CHECK(near(results.rows[2].over_parent->value, 0.8));
    CHECK_FALSE(same_problem(results.rows[0], results.rows[1]));
    CHECK(long_name(results.rows[1]).ends_with("bf16 backward"));
    const Stage* forward = last_forward(gpu, 64);
    REQUIRE(forward != nullptr);
    CHECK((forward->pass == Pass::forward && !is_ablation(forward->number)));
    CHECK(std::count(gpu.ran.begin(), gpu.ran.end(), forward->number) == 1);

    const Folder folder;
    save_results(results, OutputFile(folder / "out.json"));
    const Results read = load_results(folder / "out.json");
    CHECK(nlohmann::json(read) == nlohmann::json(results));
    CHECK(read.rows[1].pass == Pass::backward);
    CHECK_FALSE(nlohmann::json(results)["rows"][0].contains("pass"));

    // Sampled, too; and a wrong gradient is seen in the heads that are compared.
    options.sampled_rows = 3;
    options.max_compared = 0;
    CHECK(time_stages(gpu, {exact}, options).rows.at(0).verified);
    gpu.wrong_stage = 40;
    const Row wrong = time_stages(gpu, {exact}, options).rows.at(0);
    CHECK_FALSE(wrong.verified);
    CHECK(wrong.why_not.starts_with("dK is wrong in"));
    gpu.wrong_stage = -1;

    // Runs that differ in the last bit.
    gpu.spoil = [&, runs = 0](const Problem& p) mutable {
        if (p.dV.data != nullptr) static_cast<std::uint16_t*>(p.dV.data)[5] ^= ++runs % 2;
    };
    CHECK(time_stages(gpu, {exact}, options).rows.at(0).why_not == "two runs on the same inputs differ");
    CHECK(time_stages(gpu, {atomic}, options).rows.at(0).verified);
}

TEST_CASE("a stage that does not fit says so and the others run", "[timing]") {
    FakeGpu gpu;
    gpu.milliseconds = {{0, 3.0}, {4, 1.0}};
    const TimingOptions options = small_options(4096);
    const Shape& shape = options.cases[0].problem.shape;
    const Stage naive = load_stage(*find_stage(0), Backend::cpu);
    gpu.memory = naive.workspace_bytes(shape, gpu.sm_count()) - 1;
    const Results results = time_stages(gpu, {naive, *find_stage(4)}, options);
    CHECK_FALSE(results.rows[0].timing);
    CHECK(results.rows[0].why_not == "workspace needs more");
    CHECK(results.rows[1].verified);

    gpu.capability = 80;
    Stage hopper = *find_stage(0);
    hopper.compute_capability = 90;
    const std::string why =
        "needs compute capability 9.0 (Hopper); this GPU has 8.0. --backend cpu runs it anywhere";
    const Results elsewhere = time_stages(gpu, {hopper, *find_stage(4)}, small_options());
    CHECK(elsewhere.rows[0].why_not == why);
    CHECK(elsewhere.rows[1].verified);
    CHECK(to_markdown(timing_tables(elsewhere).at(0)).find("| cannot run |") != std::string::npos);
    std::vector<Verification> verifications{{&hopper, {options.cases[0].problem}}};
    try {
        verify_all(gpu, verifications, [](auto...) {});
        FAIL("it ran");
    } catch (const CannotRun& reason) {
        CHECK(reason.what() == hopper.folder() + " cannot run: " + why);
    }
    CHECK(runnable({&hopper, find_stage(4)}, gpu) == std::vector{find_stage(4)});
    CHECK(open_device(Backend::cpu)->why_not(hopper).empty());

    TimingOptions other_dimension = small_options();
    other_dimension.cases[0].problem.shape.d = 72;
    CHECK(time_stages(gpu, {naive}, other_dimension).rows[0].why_not == "has no kernel for d = 72");
}

TEST_CASE("of a large problem some heads are compared, and all looked at", "[timing]") {
    FakeGpu gpu;
    gpu.milliseconds = {{4, 1.0}};
    TimingOptions options = small_options();
    Shape& shape = options.cases[0].problem.shape;
    shape.B = 2, shape.H = 6, shape.Hkv = 3;  // six key/value heads
    for (const int heads : {0, 2, 3, 5, 6, 7}) {
        CAPTURE(heads);
        options.max_compared = std::size_t(heads) * shape.Nk * shape.d;
        CHECK(time_stages(gpu, {*find_stage(4)}, options).rows[0].verified);
    }
    options.max_compared = 0;  // first and last
    SECTION("a wrong value in a head that is compared") {
        gpu.spoil = [](const Problem& p) {
            static_cast<Eigen::bfloat16*>(p.O.data)[5] += Eigen::bfloat16(1);
        };
        const Row row = time_stages(gpu, {*find_stage(4)}, options).rows[0];
        CHECK_FALSE(row.verified);
        CHECK(row.why_not.find("O is wrong in 1 of") == 0);
    }
    SECTION("a value that is not finite elsewhere") {
        gpu.spoil = [](const Problem& p) { p.L[3 * p.Nq] = NAN; };
        const Row row = time_stages(gpu, {*find_stage(4)}, options).rows[0];
        CHECK_FALSE(row.verified);
        CHECK(row.why_not.find("L is not finite") == 0);
    }
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
         "causal": true, "median_ms": {"17_full_ring": 1.0}}]})"));
    REQUIRE(read.size() == 1);
    CHECK(read[0].file == "x-few-rows.json");
    CHECK(read[0].gpu == "a GPU");
    CHECK(read[0].date == "2026-02-03");
    CHECK(read[0].shape == Shape{.B = 1, .H = 32, .Hkv = 8, .Nq = 4, .Nk = 8192, .d = 128});
    CHECK((read[0].pass == Pass::backward && read[0].dtype == DType::fp16 && read[0].causal));
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
    record(gradients, {{44, 2.0}, {47, 1.02}, {48, 1.0}});
    record(longer, {{47, 1.1}, {48, 1.0}});

    const auto number = [](const DefaultStages& defaults, const ProblemLabel& problem) {
        const Stage* stage = defaults.find(problem);
        return stage == nullptr ? -1 : stage->number;
    };
    const DefaultStages hopper(recorded, [](const Stage&) { return true; });
    CHECK(number(hopper, problem_of(4, 8192)) == 36);    // 2% slower is no difference
    CHECK(number(hopper, problem_of(16, 8192)) == 17);   // and 4% is one
    CHECK(number(hopper, problem_of(256, 8192)) == 36);  // 90 is no rung
    CHECK(number(hopper, gradients) == 47);              // 48 is for the order of its sums,
    CHECK(number(hopper, longer) == 48);                 // but faster here
    const DefaultStages elsewhere(recorded, runs_anywhere);
    CHECK(number(elsewhere, problem_of(4, 8192)) == 17);
    CHECK(number(elsewhere, problem_of(256, 8192)) == 26);
    CHECK(number(elsewhere, gradients) == 44);
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
    CHECK(number(hopper, narrow) == 17);
    narrow.shape.d = 96;
    CHECK(number(hopper, narrow) == -1);
    const DefaultStages old(recorded, [](const Stage& stage) { return stage.number < 17; });
    CHECK(number(old, problem_of(256, 8192)) == 5);  // the last one for long queries
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

TEST_CASE("the newest measurement is of these kernels", "[timing]") {
    const auto newest = newest_results(results_folder());
    if (!newest) return;
    const Results ablations = load_results(results_folder() / "h200-leave-one-out.json");
    for (const Stage& stage : stages()) {
        INFO(stage.folder() << " was changed after it was measured, or never measured: run lab time --json");
        const auto& kernels = is_ablation(stage.number) ? ablations.kernels : newest->kernels;
        REQUIRE(kernels.count(stage.folder()) == 1);
        CHECK(kernels.at(stage.folder()) == kernel_fingerprint(stage.folder()));
    }
}

TEST_CASE("a GPU times a stage and verifies it", "[timing][gpu]") {
    if (!ladder::test::available(Backend::gpu)) return;
    const auto gpu = open_device(Backend::gpu);
    TimingOptions options = small_options(300);
    options.cases[0].problem.dtype = DType::fp16;
    const Results results = time_stages(*gpu, {*find_stage(3), *find_stage(4)}, options);
    for (const Row& row : results.rows) {
        INFO(row.why_not);
        CHECK(row.verified);
        REQUIRE(row.timing);
        CHECK(row.timing->median_ms > 0);
        CHECK(row.rate > 0);
    }
    CHECK(results.hardware.device_arch == gpu->compute_capability());
    REQUIRE(results.ceilings.copy_gbs);
    CHECK(*results.ceilings.copy_gbs > 10);
}
