#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/device/device_problem.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/report/timing_tables.h"
#include "harness/time/fastest.h"
#include "harness/time/record_json.h"
#include "harness/time/timing.h"
#include "harness/verify/all_cases.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"
#include "tests/folder.h"
#include "tests/sample_results.h"
#include "tests/skip.h"

using namespace ladder;
using namespace ladder::test;
namespace fs = std::filesystem;

namespace {

bool near(double a, double b) {
    return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
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
    // Bottom-right: the last row sees all keys, and the rows before the first key see none.
    const Shape chunk{.B = 1, .H = 1, .Hkv = 1, .Nq = 100, .Nk = 1000, .d = 64};
    CHECK(flops(chunk, true) == 4.0 * (100 * 1000 - 100 * 100 / 2) * 64);
    CHECK(flops({.B = 1, .H = 1, .Hkv = 1, .Nq = 1000, .Nk = 100, .d = 64}, true) ==
          4.0 * 100 * 100 / 2 * 64);
    const Shape decode{.B = 1, .H = 32, .Hkv = 8, .Nq = 1, .Nk = 1000, .d = 128};
    CHECK(unavoidable_bytes(decode) == 2.0 * (2 * 32 + 2 * 8 * 1000) * 128);
    CHECK(unavoidable_bytes(decode, Pass::backward) == 2 * unavoidable_bytes(decode));
    CHECK(counts_bytes(decode));
    CHECK_FALSE(counts_bytes(shape));
    // 16 rows of a group of 4 fill a tile of 64; a short sequence is no draft.
    Shape rows{.B = 1, .H = 32, .Hkv = 8, .Nq = 16, .Nk = 8192, .d = 128};
    CHECK(counts_bytes(rows));
    rows.Nq = 17;
    CHECK_FALSE(counts_bytes(rows));
    CHECK_FALSE(counts_bytes({.B = 16, .H = 8, .Hkv = 8, .Nq = 64, .Nk = 64, .d = 64}));
}

TEST_CASE("regimes are those of the design", "[timing]") {
    std::string names;
    for (const Regime& regime : regimes()) {
        if (regime.sweep) continue;
        const std::string name = regime.name;
        names += name + " ";
        for (const auto& [shape, causal, input, features] : regime.problems) {
            INFO(regime.name);
            CHECK(shape.d == (name.ends_with("narrow") ? 64 : name.ends_with("wide") ? 256 : 128));
            const std::set<std::string> caches{"ragged", "paged", "prefix", "cache-window"};
            CHECK(features.has_cache() == caches.contains(name));
            CHECK((caches.contains(name) || (features.window != Window()) == name.ends_with("window")));
            CHECK(features.columns.empty() == !name.ends_with("column-bounds"));
            CHECK(features.documents.empty() != name.ends_with("packed"));
            CHECK(features.tiles.empty() != name.ends_with("tiles"));
            CHECK((features.dropout == Dropout()) != name.ends_with("dropout"));
            CHECK((features.prefix == 0 || name == "prefix"));
            if (features == Features() || features.has_cache())
                CHECK(causal == (name == "causal" || shape.Nq == 512 || shape.Nq == 8192));
            CHECK((regime.pass == Pass::backward) == name.starts_with("backward"));
            CHECK(input == std::string("normal"));
            CHECK((shape.Nq == 1) == is_decoding(name));
            CHECK((shape.Nq == 1 || shape.B * shape.Nq == 16384));
        }
    }
    CHECK(names ==
          "train long causal decode batch narrow wide backward backward-narrow backward-wide window "
          "backward-window column-bounds backward-column-bounds packed backward-packed ragged paged tiles "
          "backward-tiles dropout backward-dropout prefix cache-window ");
    CHECK(timing_options(DType::bf16, "decode").cases.size() == 6);
    CHECK(timing_options(DType::bf16).cases.size() == 57);
    CHECK(timing_options(DType::bf16, "backward").cases[1].problem.pass == Pass::backward);
    const Case causal = timing_options(DType::fp16, "causal").cases.front().problem;
    CHECK((causal.causal && causal.dtype == DType::fp16));
    CHECK_THROWS_AS(timing_options(DType::bf16, "nonsense"), BadUsage);
}

TEST_CASE("sweeps are many problems, timed briefly and only by name", "[timing]") {
    const TimingOptions prefill = timing_options(DType::fp16, "prefill");
    CHECK(prefill.cases.size() == 36 + 8);
    for (const TimedCase& timed : prefill.cases) {
        const Shape& s = timed.problem.shape;
        const bool of_16k_tokens = s.B * s.Nq == 16384 && s.H * s.d == 2048 && s.H == s.Hkv;
        const bool of_groups = s.B == 1 && s.H == 64 && s.Hkv == 8 && s.d == 128;
        CHECK(((of_16k_tokens || of_groups) && s.Nq == s.Nk));
    }
    CHECK(prefill.peers ==
          std::vector<std::string>{"FlashAttention-2", "cuDNN", "FlashAttention-3", "FlashAttention-4"});
    CHECK(prefill.max_seconds < TimingOptions().max_seconds);
    CHECK(timing_options(DType::bf16).peers == Peers::usual());

    const TimingOptions serving = timing_options(DType::bf16, "serving");
    CHECK(serving.cases.size() == 36);
    for (const TimedCase& timed : serving.cases)
        CHECK((counts_bytes(timed.problem.shape) && unavoidable_bytes(timed.problem.shape) <= 40e9));
    // Nothing divides: neither keys into tiles, nor the group into a tile's rows.
    for (const TimedCase& timed : timing_options(DType::bf16, "serving-odd").cases) {
        const Shape& s = timed.problem.shape;
        CHECK(s.Nk % 64 != 0);
        CHECK(s.H / s.Hkv == 3);
    }
    const TimingOptions draft = timing_options(DType::bf16, "draft");
    CHECK(draft.cases.size() == (4 * 3 - 1) * (4 + 2 + 2));  // without 64 requests of 64k keys
    for (const TimedCase& timed : draft.cases) {
        const Shape& s = timed.problem.shape;
        CHECK((s.Nq >= 2 && s.Nq <= 16 && s.Hkv == 8 && s.H <= 64));
        CHECK(unavoidable_bytes(s) <= 10e9);
    }
    CHECK(is_decoding("draft"));
    const TimingOptions odd = timing_options(DType::bf16, "prefill-odd");
    CHECK(odd.cases.size() == 16);
    for (const TimedCase& timed : odd.cases) {
        const auto& [shape, causal] = std::pair(timed.problem.shape, timed.problem.causal);
        CHECK((shape.Nq % 16 != 0 && shape.Nk % 16 != 0 && shape.Nq <= shape.Nk));
        CHECK((shape.B * shape.Nk >= 8192 && shape.B * shape.Nk <= 32768));
        CHECK((flops(shape, causal) >= 4e10 && flops(shape, causal) <= 1e12));  // 0.1 to 3 ms
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
    CHECK(gradients.cases.size() == 24 + 20);
    for (const TimedCase& timed : gradients.cases) {
        const Shape& s = timed.problem.shape;
        CHECK(timed.problem.pass == Pass::backward);
        CHECK(s.B * s.Nq == 16384);
        CHECK((s.H * s.d == 2048 || s.H > s.Hkv));
    }
    const TimingOptions odd_gradients = timing_options(DType::bf16, "gradients-odd");
    CHECK(odd_gradients.cases.size() == 14);
    for (const TimedCase& timed : odd_gradients.cases) {
        const Shape& s = timed.problem.shape;
        CHECK((timed.problem.pass == Pass::backward && s.Nq % 64 != 0 && s.Nk % 64 != 0));
    }
    for (const char* name : {"gradients", "gradients-odd", "prefill", "prefill-odd", "serving", "serving-odd",
                             "draft", "few-rows", "papers", "standard", "rising", "causal-small"})
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
        CHECK(near(*results.rows[2].over_parent, 0.8));
        CHECK(near(*results.rows[2].over_baseline, 1.6));
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

TEST_CASE("stages are timed in turn and verified", "[timing]") {
    FakeGpu gpu;
    gpu.milliseconds = {{parent().number, 2.0}, {child().number, 1.0}};
    const std::vector<Stage> stages{parent(), child()};
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
        for (std::size_t i = 0; i < gpu.timed.size(); ++i) CHECK(gpu.timed[i] == stages[i % 2].number);
        REQUIRE(results.rows.size() == 2);
        for (const Row& row : results.rows) {
            INFO(row.why_not);
            CHECK(row.verified);
            CHECK(row.max_error);
            CHECK(row.timing->repeats == 10);
        }
        CHECK(results.rows[1].timing->median_ms == 1);
        CHECK(near(*results.rows[1].over_parent, 2));
        CHECK(results.rows[1].shows_here == (child().shows_in == std::string("train")));
        CHECK(results.kernels.at(child().folder()) == kernel_fingerprint(child().folder()));
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
    SECTION("what was measured before a case is kept while it runs") {
        options.cases.push_back(options.cases.front());
        std::vector<Results> kept;
        options.keep = [&](const Results& so_far) { kept.push_back(so_far); };
        const Results results = time_stages(gpu, stages, options);
        REQUIRE(kept.size() == 1);
        CHECK(kept[0].rows.size() == 2);
        CHECK(kept[0].rows[1].over_parent);
        CHECK(results.rows.size() == 4);
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
    const Stage &gradients = stage_that({.pass = Pass::backward}),
                &changed = first_stage([&](const Stage&stage) { return stage.parent == gradients.number; });
    Stage exact = child(), atomic = exact;
    exact.pass = atomic.pass = Pass::backward;
    exact.number = gradients.number;
    exact.name = "exact";
    atomic.number = changed.number;
    atomic.parent = exact.number;
    gpu.milliseconds = {{child().number, 2.0}, {exact.number, 4.0}, {atomic.number, 5.0}};
    atomic.name = "atomic";
    atomic.repeats_exactly = false;
    TimingOptions options = small_options();
    options.cases.push_back({"backward", options.cases[0].problem});
    options.cases[1].problem.pass = Pass::backward;

    const Results results = time_stages(gpu, {child(), exact, atomic}, options);
    REQUIRE(results.rows.size() == 3);
    CHECK((results.rows[0].stage == child().number && results.rows[1].stage == exact.number));
    CHECK(results.rows[2].stage == atomic.number);
    for (const Row& row : results.rows) {
        INFO(row.why_not);
        CHECK(row.verified);
    }
    CHECK(results.rows[1].pass == Pass::backward);
    CHECK(near(results.rows[1].rate, flops(results.rows[1].shape, false, Pass::backward) / 4e-3 * 1e-12));
    CHECK((near(*results.rows[2].over_parent, 0.8) && !same_problem(results.rows[0], results.rows[1])));
    CHECK(long_name(results.rows[1]).ends_with("bf16 backward"));
    const Stage* forward = last_forward(gpu, {.shape = {.d = 64}});
    REQUIRE((forward != nullptr && forward->pass == Pass::forward && !is_experiment(*forward)));
    CHECK((forward->takes.empty() && forward->products == Products::of_16_bits));
    const Stage* packed = last_forward(gpu, {.shape = {.d = 64}, .features = {.documents = "32,32"}});
    CHECK((packed != nullptr && takes(*packed, Feature::documents)));  // of stages that take windows, too
    CHECK(std::count(gpu.ran.begin(), gpu.ran.end(), forward->number) == 1);

    const Folder folder;
    save_results(results, OutputFile(folder / "out.json"));
    const Results read = load_results(folder / "out.json");
    CHECK(record_text(read) == record_text(results));
    CHECK(read.rows[1].pass == Pass::backward);
    CHECK_FALSE(nlohmann::json(results)["rows"][0].contains("pass"));

    // Sampled, too; and a wrong gradient is seen in the heads that are compared.
    options.sampled_rows = 3;
    options.max_compared = 0;
    CHECK(time_stages(gpu, {exact}, options).rows.at(0).verified);
    gpu.wrong_stage = exact.number;
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
    const Stage& first = named("naive");
    gpu.milliseconds = {{first.number, 3.0}, {child().number, 1.0}};
    const TimingOptions options = small_options(4096);
    const Shape& shape = options.cases[0].problem.shape;
    const Stage naive = load_stage(first, Backend::cpu);
    gpu.memory = naive.workspace_bytes(shape, gpu.sm_count()) - 1;
    const Results results = time_stages(gpu, {naive, child()}, options);
    CHECK_FALSE(results.rows[0].timing);
    CHECK(results.rows[0].why_not == "workspace needs more");
    CHECK(results.rows[1].verified);

    gpu.capability = 80;
    Stage hopper = first;
    hopper.compute_capability = 90;
    const std::string why =
        "needs exactly compute capability 9.0 (Hopper); this GPU has 8.0. --backend cpu runs it anywhere";
    const Results elsewhere = time_stages(gpu, {hopper, child()}, small_options());
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
    CHECK(runnable({&hopper, &child()}, gpu) == std::vector{&child()});
    CHECK(open_device(Backend::cpu)->why_not(hopper).empty());

    TimingOptions other_dimension = small_options();
    other_dimension.cases[0].problem.shape.d = 72;
    CHECK(time_stages(gpu, {naive}, other_dimension).rows[0].why_not == "has no kernel for d = 72");
}

TEST_CASE("heads of requests with lengths of their own, and in pages, are compared where they lie",
          "[timing]") {
    FakeGpu gpu;
    const Stage& stage = test::stage_that({.takes = {Feature::lengths, Feature::pages}});
    gpu.milliseconds = {{stage.number, 1.0}};
    TimingOptions options = small_options(2);
    Case& c = options.cases[0].problem;
    c.shape.B = 4, c.shape.H = 4, c.shape.Hkv = 2;  // eight key/value heads
    c.causal = true;
    for (const int page_size : {0, 1, 8, 64}) {
        for (const char* lengths : {"", "40,0,17,8"}) {
            c.features = {.lengths = lengths, .page_size = page_size};
            for (const int heads : {2, 3, 8}) {
                CAPTURE(description_of(c), heads);
                options.max_compared = std::size_t(heads) * c.shape.Nk * c.shape.d;
                const Row row = time_stages(gpu, {stage}, options).rows[0];
                CAPTURE(row.why_not);
                CHECK(row.verified);
                CHECK(row.features == c.features);
                CHECK(row.unit == "GB/s");
                CHECK(near(row.rate, unavoidable_bytes(c.shape, Pass::forward, c.features) / 1e-3 * 1e-9));
            }
        }
    }
    options.max_compared = 0;
    gpu.spoil = [](const Problem& p) { static_cast<Eigen::bfloat16*>(p.O.data)[5] += Eigen::bfloat16(1); };
    CHECK_FALSE(time_stages(gpu, {stage}, options).rows[0].verified);
}

TEST_CASE("of a large problem some heads are compared, and all looked at", "[timing]") {
    FakeGpu gpu;
    gpu.milliseconds = {{child().number, 1.0}};
    TimingOptions options = small_options();
    Shape& shape = options.cases[0].problem.shape;
    shape.B = 2, shape.H = 6, shape.Hkv = 3;  // six key/value heads
    for (const int heads : {0, 2, 3, 5, 6, 7}) {
        CAPTURE(heads);
        options.max_compared = std::size_t(heads) * shape.Nk * shape.d;
        CHECK(time_stages(gpu, {child()}, options).rows[0].verified);
    }
    options.max_compared = 0;  // first and last
    SECTION("a wrong value in a head that is compared") {
        gpu.spoil = [](const Problem& p) {
            static_cast<Eigen::bfloat16*>(p.O.data)[5] += Eigen::bfloat16(1);
        };
        const Row row = time_stages(gpu, {child()}, options).rows[0];
        CHECK_FALSE(row.verified);
        CHECK(row.why_not.find("O is wrong in 1 of") == 0);
    }
    SECTION("a value that is not finite elsewhere") {
        gpu.spoil = [](const Problem& p) { p.L[3 * p.Nq] = NAN; };
        const Row row = time_stages(gpu, {child()}, options).rows[0];
        CHECK_FALSE(row.verified);
        CHECK(row.why_not.find("L is not finite") == 0);
    }
}

TEST_CASE("a GPU times a stage and verifies it", "[timing][gpu]") {
    if (!ladder::test::available(Backend::gpu)) return;
    const auto gpu = open_device(Backend::gpu);
    TimingOptions options = small_options(300);
    options.cases[0].problem.dtype = DType::fp16;
    const Results results = time_stages(*gpu, {parent(), child()}, options);
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
