// What commands make of the stages, where a run of the program would not show it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/cases/regimes.h"
#include "harness/count/claims.h"
#include "harness/count/counting.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/report/timing_tables.h"
#include "harness/time/selection.h"
#include "harness/time/timing.h"
#include "harness/verify/all_cases.h"
#include "stages/errors.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"
#include "tests/folder.h"
#include "tests/skip.h"

using namespace ladder;
using test::child;
using test::parent;

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

// A ladder with a branch: 0 <- 1 <- 2 for decoding and from 1 to a number without a stage for long queries. 2
// is slower than its parent there. Two peers, one of them with a name to escape.
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
        add(regime, Nq, "train", test::free_number(), 1, 0.1);
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
    const Stage &naive = test::named("naive"), &fits = test::named("sequence_parallel");
    verifications.emplace_back(&naive, std::vector{square()});
    verifications.emplace_back(&fits, std::vector{square()});
    verify_all(device, verifications, ignore_steps);

    const Table table = verification_table(verifications);
    CHECK(cell(table, 0, "passed").text == "cannot run");
    CHECK(cell(table, 0, "why_not").text.find("MiB") != std::string::npos);
    CHECK(cell(table, 1, "passed").text == "1 of 1 case");
    CHECK(failure_of(verifications).empty());

    const auto changes = count_changes(
        device, {&naive, &fits}, [](const Stage&) { return square(); }, ignore_steps);
    CHECK(changes[0].after.why_not.find("MiB") != std::string::npos);
    CHECK(changes[1].after.why_not.empty());
    CHECK(cell(work_table(changes), 1, naive.folder()).text == "-");
    CHECK(cell(work_table(changes), 1, fits.folder()).text == "16");
}

TEST_CASE("if no stage can run, the reason is the error", "[commands]") {
    if (!test::available(Backend::cpu)) return;
    SmallDevice device(1 << 20);
    std::vector<Verification> verifications;
    verifications.emplace_back(&test::named("naive"), std::vector{square()});
    CHECK_THROWS_AS(verify_all(device, verifications, ignore_steps), CannotRun);
}

TEST_CASE("one failed case fails the stage, and its report is shown", "[commands]") {
    std::vector<Verification> verifications;
    verifications.emplace_back(&parent(), std::vector{square()});
    verifications.emplace_back(&child(), std::vector{square()});
    verifications[0].passed = 3;
    verifications[1].passed = 2;
    verifications[1].failed = 1;
    verifications[1].reports = {"row 5 is wrong\n"};
    CHECK(failure_of(verifications) == "1 of 2 stages failed: " + child().folder());
    CHECK(cell(verification_table(verifications), 1, "passed").text == "2 of 3 cases");
    CHECK(cell(verification_table(verifications), 1, "passed").tone == Tone::bad);
    const auto listings = failure_reports(verifications);
    REQUIRE(listings.size() == 1);
    CHECK(listings[0].text == "row 5 is wrong\n");
    verifications[1].reports.resize(4, "another\n");
    CHECK(failure_reports(verifications)[0].text.ends_with("... and 1 more case\n"));
}

TEST_CASE("errors are kept by type and kind of input", "[commands]") {
    Verification v(&child(), {});
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
    CHECK(bf16["stage"] == child().folder());
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
        CAPTURE(change.stage->folder(), description_of(change.problem));
        CHECK(change.before.why_not.empty());
        if (change.parent == nullptr) {  // which refuses the problem, and so has nothing that could move
            const Stage& parent = *find_stage(change.stage->parent);
            CHECK((!parent.has_head_dim(change.problem.shape.d) ||
                   !why_not_taken(parent, change.problem).empty()));
            continue;
        }
        // No counter sees the order in which blocks start, nor at this d the place of multiply-adds. Then
        // something else is claimed of the stage, which its parent does not meet.
        if (change_table(change).rows().empty()) CHECK(claims_something(*device, *change.stage));
        // It puts three other kernels in the place of four, and alone leaves nothing as it was.
        CHECK(unchanged_counters(change).empty() == (change.stage->name == "recompute"));
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
    CHECK(cell(tables[0], 1, "rate").text == "68.7");
    CHECK(cell(tables[0], 1, "ceiling_share").text == "69%");
    CHECK(cell(tables[0], 2, "verified").text == "WRONG");
    CHECK(cell(tables[0], 2, "over_parent").text.empty());  // a wrong answer has no speed

    const Table sweep = regime_table(sample_results());
    for (const char* column : {"verified", "median_ms", "noise", "rate", "over_parent", "why_not"}) {
        for (std::size_t row = 0; row < 3; ++row)
            CHECK(cell(sweep, row, column).text == cell(tables[0], row, column).text);
    }
    const Table branched = timing_tables(branched_results())[0];
    CHECK(cell(branched, 2, "over_parent").text == "0.80x");
    CHECK(cell(branched, 2, "over_baseline").text == "1.60x");
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
    Results older = results;
    for (std::size_t i = 0; i < 2; ++i) older.rows[i].folder = find_stage(4 + static_cast<int>(i))->folder();
    older.kernels = {{"04_split_q", kernel_fingerprint("04_split_q")},
                     {"05_causal_skip", "of an older one"},
                     {"06_flash_decoding", "of an older one, without a row"}};
    CHECK(recorded_label(older) ==
          "Recorded on Test GPU, 2026-11-21, commit 0123456; since then changed: 05");

    Results both = results;  // gradients stand apart
    both.rows[2].pass = Pass::backward;
    const auto apart = rate_tables(both);
    REQUIRE(apart.size() == 2);
    CHECK(apart[0].rows().size() == 2);
    CHECK(apart[1].title() == "Gradients: TFLOP/s (speedup over the parent)");
    CHECK(apart[1].rows().size() == 1);
}

TEST_CASE("a stage is compared with one that has kernels for its head dimension", "[commands]") {
    int parents = 0, further = 0, none = 0;
    for (const Stage& stage : stages()) {
        CHECK(!(is_experiment(stage) && is_last_of_part(stage)));
        CAPTURE(stage.folder());
        std::set<const Stage*> compared{&stage};
        for (const int d : stage.head_dims) {
            CAPTURE(d);
            const Stage *found = parent_at(stage, d), *at = find_stage(stage.parent);
            if (found != nullptr) compared.insert(found);
            if (stage.parent >= 0) (found == nullptr ? none : found == at ? parents : further) += 1;
            for (; at != found; at = find_stage(at->parent)) REQUIRE((at != nullptr && !at->has_head_dim(d)));
            CHECK((found == nullptr || found->has_head_dim(d)));
        }
        CHECK(with_parents({&stage}).size() == compared.size());
    }
    CHECK((parents > 0 && further > 0 && none > 0));
}

TEST_CASE("lab time shows what can be seen: some stages, where their changes should show, or all",
          "[commands]") {
    const auto folders = [](const Selection& selection) {
        std::vector<std::string> names;
        for (const Stage* stage : selection.stages) names.push_back(stage->folder());
        return names;
    };
    const auto runs = [](const Stage&) { return true; };
    const auto problem = [](const std::string& regime, int Nq, int d = 128) {
        ProblemLabel label;
        label.regime = regime;
        label.shape = {.B = 1, .H = 8, .Hkv = 8, .Nq = Nq, .Nk = 4096, .d = d};
        return label;
    };
    const auto last_rung = [](bool decodes) -> const Stage& {
        return test::first_stage([&](const Stage& stage) {
            return !is_core(stage) && is_last_of_part(stage) && is_decoding(stage.shows_in) == decodes;
        });
    };
    const Stage &split_q = child(), &decoding = last_rung(true), &long_queries = last_rung(false);
    const ProblemLabel many = problem("custom", 4096), one = problem("custom", 1);
    const ProblemLabel wide = problem("custom", 4096, 256);

    const Selection few = select_timed({}, false, "custom", runs);
    REQUIRE(few.stages.size() > 8);
    CHECK(few.stages[6] == &stages()[6]);
    CHECK((few.beside_peers && !few.first_table));
    CHECK((few.takes_part(decoding, one) && !few.takes_part(decoding, many)));
    CHECK((!few.takes_part(long_queries, one) && few.takes_part(long_queries, many)));
    CHECK((few.takes_part(split_q, one) && few.takes_part(split_q, many)));
    CHECK((!few.takes_part(split_q, wide) && few.takes_part(long_queries, wide)));
    const Selection first = select_timed({}, false, "", runs);
    CHECK(first.first_table);
    const auto in_first_table = [&](const std::string& regime) {
        const auto cases = timing_options(DType::bf16, regime).cases;
        return std::count_if(cases.begin(), cases.end(),
                             [&](const TimedCase& timed) { return first.matters(label_of(timed)); });
    };
    CHECK((in_first_table("train") == 1 && in_first_table("causal") == 1 && in_first_table("decode") == 3));
    CHECK((in_first_table("backward") == 1 && in_first_table("batch") == 0 && in_first_table("window") == 0));
    CHECK(select_timed({}, false, "", nullptr).stages.size() == 8);

    const Selection single = select_timed({&split_q}, false, "", runs);
    CHECK(folders(single) == std::vector<std::string>{parent().folder(), child().folder()});
    CHECK((single.beside_peers && !single.first_table));
    CHECK((single.matters(problem("train", 64)) && !single.matters(problem("long", 64))));
    Stage copied = split_q;  // what was named has a row also where it cannot run
    CHECK((single.takes_part(copied, wide) && !single.takes_part(parent(), wide)));
    const Selection sweep = select_timed({&split_q}, false, "prefill", runs);
    CHECK((sweep.stages.size() == 1 && !sweep.beside_peers));

    const Selection two = select_timed({&split_q, &decoding}, false, "", runs);
    CHECK((two.stages.size() == 2 && !two.beside_peers && two.takes_part(decoding, many)));
    const Selection all = select_timed({}, true, "", runs);
    CHECK((all.stages.size() == stages().size() && !all.beside_peers && all.matters(problem("narrow", 64))));
    CHECK(all.takes_part(long_queries, one));
    Stage own = split_q;
    own.shows_in = "nowhere";
    CHECK(select_timed({&own}, false, "", runs).matters(problem("train", 64)));

    Results results = branched_results();  // 00, 01, 02 and one more in train and decode, peers in train
    const Stage &flash = test::named("flash_attention_1"), &deferred = test::named("deferred_normalization");
    select_timed({&flash, &deferred}, false, "", runs).filter(results, "");
    REQUIRE(results.rows.size() == 2);
    CHECK((results.rows[0].regime == "train" && results.rows[0].stage == 1 && results.rows[1].stage == 2));
    CHECK(results.peers.size() == 2);
    results = branched_results();
    select_timed({}, true, "", runs).filter(results, "decode");
    CHECK((results.rows.size() == 3 && results.peers.empty()));  // not the one more, which is no stage
}

TEST_CASE("a stage that takes no part in a problem has no row there", "[commands]") {
    test::FakeGpu gpu;
    gpu.milliseconds = {{parent().number, 2.0}, {child().number, 1.0}};
    TimingOptions options = test::small_options();
    options.cases.push_back(test::small_case(17));
    options.takes_part = [](const Stage& stage, const ProblemLabel& c) {
        return stage.number == child().number || c.shape.Nq == 17;
    };
    const Results results = time_stages(gpu, {parent(), child()}, options);
    REQUIRE(results.rows.size() == 3);
    CHECK((results.rows[0].stage == child().number && results.rows[1].stage == parent().number));
    CHECK(results.rows[2].stage == child().number);
    CHECK(!results.rows[0].over_parent);
    CHECK(std::abs(*results.rows[2].over_parent - 2) < 1e-9);
    for (const Row& row : results.rows) CHECK(row.verified);
}

TEST_CASE("lab list says which kernels were changed since they were timed", "[cli]") {
    const test::Folder folder;
    const std::string kernel = read_file(find_stage(5)->source), file = "05_causal_skip/kernel.cu";
    std::filesystem::create_directory(folder / "05_causal_skip");
    std::filesystem::create_symlink(stages_folder() / "fastest.json", folder / "fastest.json");
    const auto timed = [&](const std::string& text) {
        folder.write(file, text);
        const auto listed = run_process(
            {"env", "LADDER_STAGES=" + folder / "", LADDER_LAB, "list", "--json", folder / "list.json"});
        const auto json = nlohmann::json::parse(std::ifstream(folder / "list.json"));
        const std::string how = json["properties"][0]["timed"];
        CHECK((listed.out.find("Changed since they were timed, so that recorded times are marked: 05.") !=
               std::string::npos) == (how == "changed since"));
        return how;
    };
    const std::string before = timed(kernel), statement = "int unused() { return 0; }\n";
    CHECK(before != "never");
    CHECK(timed("// Another comment.\n" + kernel) == before);
    CHECK(timed(statement + kernel) == "changed since");
}
