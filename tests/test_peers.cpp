// Other libraries' attention beside the stages: the program that runs it, its part in a measurement, and the
// tables.

#include "harness/time/peers.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/ladder/ladder.h"
#include "harness/report/timing_tables.h"
#include "harness/time/record_json.h"
#include "harness/time/timing.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"
#include "tests/folder.h"

using namespace ladder;
using ladder::test::child;
using ladder::test::FakeGpu;
using ladder::test::Folder;
using ladder::test::parent;
using ladder::test::small_options;

namespace {

using Names = std::vector<std::string>;

// tests/fake_peers.sh, which writes requests to the folder's log and runs `command` instead of telling a
// time.
Peers fake_peers(const Folder& folder, const std::string& command = "", double limit_s = 60) {
    return Peers({"sh", LADDER_SOURCE_DIR "/tests/fake_peers.sh", folder / "log", command}, limit_s);
}

// harness/time/peers.py with tests/fake_torch/torch.py, and with the packages beside it or not.
Peers python_peers(const std::string& mode = "", const std::string& path = "/tests/fake_torch") {
    return Peers({"env", "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" LADDER_SOURCE_DIR + path,
                  "FAKE_TORCH=" + mode, "python3", "-S", LADDER_SOURCE_DIR "/harness/time/peers.py"});
}

// What went wrong, in one line.
template <class F>
std::string failure(F f) {
    try {
        f();
    } catch (const CannotRun& reason) {
        return reason.what();
    }
    return "no failure";
}

const std::string with_packages = "/tests/fake_torch:" LADDER_SOURCE_DIR "/tests/fake_torch/packages";

bool contains(const std::string& text, const std::string& words) {
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    return text.find(words) != std::string::npos;
}

bool has_python() {
    if (run_process({"python3", "-c", ""}).status == 0) return true;
    std::printf("SKIPPED: there is no python3\n");
    return false;
}

// Two stages and the fake peers on one small problem.
Results measured(Peers& peers, FakeGpu& gpu, TimingOptions options = small_options()) {
    gpu.milliseconds = {{parent().number, 2.0}, {child().number, 1.0}};
    return time_stages(gpu, {parent(), child()}, options, {}, &peers);
}

const Table& table_of(const std::vector<Table>& tables, const std::string& key) {
    const auto table =
        std::find_if(tables.begin(), tables.end(), [&](const Table& t) { return t.key() == key; });
    REQUIRE(table != tables.end());
    return *table;
}

std::string cell(const Table& table, std::size_t row, const std::string& column) {
    const auto& columns = table.columns();
    const auto found =
        std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.title == column; });
    INFO(column);
    REQUIRE(found != columns.end());
    return table.rows().at(row).at(static_cast<std::size_t>(found - columns.begin())).text;
}

}  // namespace

TEST_CASE("peers take turns with the stages", "[timing][peers]") {
    const Folder folder;
    Peers peers = fake_peers(folder);
    CHECK(peers.device() == "fake GPU");
    FakeGpu gpu;
    std::vector<std::ptrdiff_t> times_of_peers;  // before each time of a stage
    gpu.on_time = [&] {
        const std::string log = folder.read("log");
        times_of_peers.push_back(std::count(log.begin(), log.end(), '\n') - 1);
    };
    const Results results = measured(peers, gpu);
    REQUIRE(times_of_peers.size() == 20);
    for (std::size_t i = 0; i < 20; ++i) CHECK(times_of_peers[i] == static_cast<std::ptrdiff_t>(i / 2 * 3));

    CHECK(results.libraries.at("cuDNN") == "9.10.2");
    REQUIRE(results.peers.size() == 5);
    const PeerRow &flash = results.peers[0], &cudnn = results.peers[1], &unfused = results.peers[4];
    CHECK(flash.peer == "FlashAttention-2");
    CHECK(flash.timing->median_ms == 1.5);
    CHECK(flash.timing->repeats == 10);
    CHECK(flash.unit == "TFLOP/s");
    CHECK(flash.stage_speedups.at(parent().folder()) == 0.75);
    CHECK(flash.stage_speedups.at(child().folder()) == 1.5);
    CHECK_FALSE(cudnn.timing);
    CHECK(cudnn.why_not == "does not like it");
    CHECK(cudnn.stage_speedups.empty());
    CHECK(results.peers[2].peer == "FlashAttention-3");
    CHECK(results.peers[2].stage_speedups.at(child().folder()) == 1.25);
    CHECK(results.peers[3].why_not == "is for another GPU");
    CHECK(unfused.stage_speedups.at(child().folder()) == 4);
    for (const Row& row : results.rows) CHECK(row.verified);

    const std::string log = folder.read("log");
    CHECK(log.find(R"("Hkv":1)") != std::string::npos);
    CHECK(log.find(R"("dtype":"bf16")") != std::string::npos);
    CHECK(log.find(R"("pass":"forward")") != std::string::npos);
    CHECK(log.rfind(R"("release")") > log.rfind(R"("time")"));
}

TEST_CASE("a peer has no ratio to a wrong answer", "[timing][peers]") {
    const Folder folder;
    Peers peers = fake_peers(folder);
    FakeGpu gpu;
    gpu.wrong_stage = 4;
    CHECK(measured(peers, gpu).peers[0].stage_speedups.size() == 1);
}

TEST_CASE("peers on another GPU are no yardstick", "[timing][peers]") {
    Peers peers({"echo", R"({"device": "another", "libraries": {}})"});
    FakeGpu gpu;
    contains(failure([&] { measured(peers, gpu); }), "the stages run on fake GPU, but PyTorch on another");
    CHECK(gpu.timed.empty());
}

TEST_CASE("peers that fail end the measurement with one line", "[timing][peers]") {
    const Folder folder;
    FakeGpu gpu;
    const auto failure_of = [&](const std::string& command, double limit_s = 60) {
        Peers peers = fake_peers(folder, command, limit_s);
        return failure([&] { measured(peers, gpu); });
    };
    contains(failure_of("echo why >&2; echo because of this >&2; exit 7"),
             "sh ended with exit code 7: because of this");
    contains(failure_of("kill -9 $$"), "sh ended with exit code 137");
    contains(failure_of("echo nonsense"), "no answer but 'nonsense'");
    contains(failure_of("echo '[1]'"), "no answer but '[1]'");
    contains(failure_of("echo '{\"milliseconds\": \"2\"}'"), "no answer but");
    contains(failure_of("echo '{\"milliseconds\": -2}'"), "FlashAttention-2 took -2 ms");
    contains(failure_of("echo '{\"error\": \"the GPU is gone\"}'"), "peers: the GPU is gone");
    contains(failure_of("head -c 3000000 /dev/zero"), "line without end");
    const auto began = std::chrono::steady_clock::now();
    contains(failure_of("exec sleep 100", 0.2), "sh did not answer for 0.2 s");
    contains(failure_of("printf half; exec sleep 100", 0.2), "sh did not answer for 0.2 s");
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
}

TEST_CASE("peers that do not start say what is missing", "[timing][peers]") {
    contains(failure([] { Peers({"/no/such/python"}); }), "cannot start /no/such/python");
    contains(failure([] { Peers({"true"}); }), "true ended with exit code 0");
    contains(failure([] { Peers({"echo", "hello"}); }), "no answer but 'hello'");
    contains(failure([] { Peers({"echo", "{}"}); }), "no answer but '{}'");
}

TEST_CASE("peers.py times PyTorch's back-ends", "[timing][peers]") {
    if (!has_python()) return;
    Peers peers = python_peers();
    CHECK(peers.device() == "fake GPU");
    CHECK(peers.libraries() ==
          std::map<std::string, std::string>{{"PyTorch", "2.11.0"}, {"cuDNN", "9.10.2"}});
    Case c = small_options().cases[0].problem;
    for (int i = 0; i < 2; ++i) {
        CHECK(peers.prepare(c, {"FlashAttention-2", "cuDNN", "unfused"}) ==
              Names{"", "cuDNN does not like it.", "CUDA out of memory. Tried to allocate 32 GiB."});
        CHECK(peers.time("FlashAttention-2") == 1.5);
        CHECK(peers.time("FlashAttention-2") == 1.5);
        peers.release();
    }
    c.pass = Pass::backward;
    CHECK(peers.prepare(c, {"FlashAttention-2", "cuDNN"}) == Names{"", "cuDNN does not like it."});
    CHECK(peers.time("FlashAttention-2") == 3);  // the gradients, without what they are of
    CHECK(peers.time("FlashAttention-2") == 3);
    peers.release();
    c.pass = Pass::forward;
    c.shape.Nq = 2 << 20;
    CHECK(peers.prepare(c, {"cuDNN"}) == Names{"CUDA out of memory. Tried to allocate 9 GiB."});
    peers.release();
    c.shape.Nq = 24;
    c.causal = true;  // and more keys
    CHECK(peers.prepare(c, {"FlashAttention-2"}) == Names{"aligns a causal mask top-left, not bottom-right"});
}

TEST_CASE("peers.py captures each call in a graph, and times the faster of the two", "[timing][peers]") {
    if (!has_python()) return;
    const Case c = small_options().cases[0].problem;
    Peers peers = python_peers("slow graphs");
    CHECK(peers.prepare(c, {"FlashAttention-2"}) == Names{""});
    CHECK(peers.time("FlashAttention-2") == 1.5);
    Peers uncaptured = python_peers("uncaptured");
    CHECK(uncaptured.prepare(c, {"FlashAttention-2"}) ==
          Names{"CUDA error: operation not permitted when stream is capturing"});
}

TEST_CASE("peers.py times the FlashAttention project's packages", "[timing][peers]") {
    if (!has_python()) return;
    const Names flash{"FlashAttention-3", "FlashAttention-4", "FlashAttention-4-deterministic"};
    Peers peers = python_peers("", with_packages);
    CHECK(peers.missing().empty());
    CHECK(peers.libraries().at("fa3-fwd") == "0.0.3");
    CHECK(peers.libraries().at("flash-attn-4") == "4.0.0b36");
    const Names in_8_bits{"FlashAttention-3-FP8", "cuDNN-FP8"};
    Case c = small_options().cases[0].problem;
    for (const bool causal : {false, true}) {  // with as many keys as query rows, and with more: as a cache
        for (const int Nk : {24, 40}) {
            c.causal = causal, c.shape.Nk = Nk;
            CHECK(peers.prepare(c, flash) == Names{"", "", "is for gradients"});
            CHECK(peers.time("FlashAttention-3") == (Nk == 24 ? 1.0 : 0.75));
            CHECK(peers.time("FlashAttention-4") == 1.25);
            peers.release();
            const bool takes = Nk == 24 || !causal;
            CHECK(peers.prepare(c, in_8_bits) ==
                  Names{"", takes ? "" : "is timed with a causal mask of as many keys as rows"});
            CHECK(peers.time("FlashAttention-3-FP8") == 0.625);
            if (takes) CHECK(peers.time("cuDNN-FP8") == 0.875);
            peers.release();
        }
    }
    c.pass = Pass::backward;
    CHECK(peers.prepare(c, in_8_bits) == Names{"has no gradients", "has no gradients"});
    CHECK(peers.prepare(c, flash) == Names{"This flash attention build does not support backward.", "", ""});
    CHECK(peers.time("FlashAttention-4") == 2.5);
    CHECK(peers.time("FlashAttention-4-deterministic") == 2.75);
    peers.release();
    c.pass = Pass::forward;
    c.dtype = DType::fp16;
    CHECK(peers.prepare(c, flash) ==
          Names{"This flash attention build does not support FP16.", "", "is for gradients"});
    c.shape.d = 512;
    CHECK(peers.prepare(c, {"FlashAttention-4"}) == Names{"head_dim=512 is not supported on SM90."});
    c.shape.d = 60;
    CHECK(peers.prepare(c, {"FlashAttention-4"}) == Names{"NotImplementedError"});
}

TEST_CASE("peers.py times further peers where they are asked for", "[timing][peers]") {
    if (!has_python()) return;
    Peers peers = python_peers("", with_packages);
    Case c = small_options().cases[0].problem;
    for (const bool causal : {false, true}) {  // the second compiles flex anew
        c.causal = causal;
        CHECK(peers.prepare(c, {"flex"}) == Names{""});
        CHECK(peers.time("flex") == 1.5);
        peers.release();
    }
    c.causal = false;
    CHECK(peers.prepare(c, {"efficient", "flex"}) == Names{"It has no groups of heads.", ""});
    peers.release();
    c.pass = Pass::backward;
    CHECK(peers.prepare(c, {"flex"}) == Names{""});
    CHECK(peers.time("flex") == 3);
    peers.release();
    c.pass = Pass::forward;
    c.shape.H = c.shape.Hkv;
    CHECK(peers.prepare(c, {"efficient"}) == Names{""});
}

TEST_CASE("peers.py times FlashAttention-4 with documents, forward and backward", "[timing][peers]") {
    if (!has_python()) return;
    Peers peers = python_peers("", with_packages);
    Case c = small_options().cases[0].problem;
    c.shape.B = 1, c.shape.Nk = 29, c.causal = true;
    c.features.documents = "20,0x9,4x0";
    for (const Pass pass : {Pass::forward, Pass::backward}) {
        c.pass = pass;
        CHECK(peers.prepare(c, {"FlashAttention-2", "FlashAttention-4"}) ==
              Names{"is not timed with documents", ""});
        CHECK(peers.time("FlashAttention-4") == (pass == Pass::forward ? 0.75 : 2 * 0.75));
        peers.release();
    }
}

TEST_CASE("peers.py has masks for FlashAttention-4, which it compiles", "[timing][peers]") {
    if (!has_python()) return;  // tests/python/test_peers.py has the masks
    Peers peers = python_peers("", with_packages);
    Case c = small_options().cases[0].problem;
    const Names names{"FlashAttention-3", "FlashAttention-4"};
    const std::string no_compiler = "No module named 'cutlass'";
    c.features.columns = "documents";
    CHECK(peers.prepare(c, names) == Names{"is not timed with columns", no_compiler});
    c.features = {.tiles = "quarter"};
    CHECK(peers.prepare(c, names) == Names{"is not timed with tiles", no_compiler});
}

TEST_CASE("peers.py times softcap, ALiBi and sinks where a library has them", "[timing][peers]") {
    if (!has_python()) return;  // tests/python/test_peers.py has the scores
    Peers peers = python_peers("", with_packages);
    Case c = small_options().cases[0].problem;
    const Names names{"FlashAttention-2", "FlashAttention-3", "FlashAttention-3-FP8", "FlashAttention-4",
                      "flex"};
    c.features.softcap = 30;
    CHECK(peers.prepare(c, names) == Names{"is not timed with softcap", "", "", "", ""});
    CHECK(peers.time("FlashAttention-3") == 2 * 0.75);  // more keys than rows: as a cache
    CHECK(peers.time("FlashAttention-3-FP8") == 2 * 0.625);
    CHECK(peers.time("FlashAttention-4") == 2 * 1.25);
    CHECK(peers.time("flex") == 1.75);
    peers.release();
    c.features.sinks = "drawn";
    const Names of_these{"cuDNN", "FlashAttention-3", "FlashAttention-4"};
    CHECK(peers.prepare(c, of_these) ==
          Names{"is not timed with sinks and softcap", "is not timed with sinks", ""});
    peers.release();
    c.features.alibi = "geometric";
    CHECK(peers.prepare(c, of_these) == Names{"is not timed with alibi and sinks and softcap",
                                              "is not timed with alibi and sinks",
                                              "No module named 'cutlass'"});
    peers.release();
    c.pass = Pass::backward;  // with two heads over one
    CHECK(peers.prepare(c, {"FlashAttention-4"}) == Names{"passes other heads to a score_mod in gradients of "
                                                          "grouped heads, so ALiBi's slopes would be wrong"});
}

TEST_CASE("peers.py times caches: lengths, pages and a shared prefix", "[timing][peers]") {
    if (!has_python()) return;
    Peers peers = python_peers("", with_packages);
    const Names names{"cuDNN", "FlashAttention-3", "FlashAttention-4", "FlashInfer"};
    Case c;
    c.shape = {.B = 3, .H = 2, .Hkv = 1, .Nq = 2, .Nk = 40, .d = 64};
    c.dtype = DType::bf16;
    c.features.lengths = "40,20,30";
    CHECK(peers.prepare(c, names) ==
          Names{"is not timed with lengths", "", "", "is not timed with a rest of 8 keys in pages of 16"});
    CHECK(peers.time("FlashAttention-3") == 0.5);
    CHECK(peers.time("FlashAttention-4") == 0.75);
    peers.release();
    c.features.page_size = 8;
    const std::string no_pages = "This flash attention build does not support paged KV.";
    CHECK(peers.prepare(c, names) == Names{"is not timed with lengths and page size", no_pages, "", ""});
    CHECK(peers.time("FlashAttention-4") == 1.0);
    CHECK(peers.time("FlashInfer") == 1.0);
    peers.release();
    c.features.prefix = 16;
    CHECK(peers.prepare(c, names) ==
          Names{"is not timed with lengths and page size and prefix", no_pages, "", ""});
    CHECK(peers.time("FlashAttention-4") == 0.875);
    CHECK(peers.time("FlashInfer") == 1.0 + 0.125 + 0.25);
    peers.release();
    c.features = {}, c.shape.Nk = 48;
    CHECK(peers.prepare(c, {"FlashInfer"}) == Names{""});  // in pages of 16, one after the other
    c.features.window = {5, 0};
    CHECK(peers.prepare(c, {"FlashInfer"}) == Names{"is not timed with a window"});
    c.features = {.lengths = "48,16,48", .page_size = 8, .prefix = 16};
    CHECK(peers.prepare(c, {"FlashInfer"}) == Names{"is not timed with requests without keys of their own"});
    c.features = {}, c.shape.Nq = 17;
    CHECK(peers.prepare(c, {"FlashInfer"}) == Names{"is timed with 16 query rows at most"});
}

TEST_CASE("peers are asked for by name", "[timing][peers]") {
    const Names sweep{"FlashAttention-2", "cuDNN"};
    CHECK(Peers::named("all", sweep) ==
          Names{"FlashAttention-2", "cuDNN", "efficient", "flex", "FlashInfer"});
    CHECK(Peers::named("flex,FlashAttention-4", sweep) == Names{"flex", "FlashAttention-4"});
    CHECK(Peers::named("FlashAttention-3-FP8,cuDNN-FP8", sweep) ==
          Names{"FlashAttention-3-FP8", "cuDNN-FP8"});
    CHECK_THROWS_AS(Peers::named("flex,", sweep), BadUsage);
    CHECK_THROWS_AS(Peers::named("cudnn", sweep), BadUsage);
}

TEST_CASE("peers.py says what is missing", "[timing][peers]") {
    if (!has_python()) return;
    contains(failure([] { python_peers("", "/tests/no_torch"); }), "peers: PyTorch is not installed for ");
    contains(failure([] { python_peers("blind"); }), "finds no CUDA device");
    contains(failure([] { python_peers("old"); }), "PyTorch 2.11.0 is too old");
    using Missing = std::map<std::string, std::string>;
    CHECK(python_peers().missing() ==
          Missing{{"flex", "the package triton or pytorch-triton is not installed"},
                  {"FlashAttention-3", "the package flash-attn-3 or fa3-fwd is not installed"},
                  {"FlashAttention-3-FP8", "the package flash-attn-3 or fa3-fwd is not installed"},
                  {"cuDNN-FP8", "the package nvidia-cudnn-frontend is not installed"},
                  {"FlashAttention-4", "the package flash-attn-4 is not installed"},
                  {"FlashAttention-4-deterministic", "the package flash-attn-4 is not installed"},
                  {"FlashInfer", "the package flashinfer-python is not installed"}});
    Peers peers = python_peers("crash");
    contains(failure([&] { peers.prepare(small_options().cases[0].problem, {"cuDNN"}); }),
             "an illegal memory access was encountered");
}

TEST_CASE("a measurement with peers survives its file", "[timing][peers]") {
    const Folder folder;
    Peers peers = fake_peers(folder);
    FakeGpu gpu;
    const Results results = measured(peers, gpu);
    save_results(results, OutputFile(folder / "out.json"));
    const Results read = load_results(folder / "out.json");
    CHECK(record_text(read) == record_text(results));
    CHECK(read.peers[0].stage_speedups.at(child().folder()) == 1.5);
    CHECK(read.libraries == results.libraries);
}

TEST_CASE("tables set the peers apart", "[timing][peers]") {
    const Folder folder;
    Peers peers = fake_peers(folder);
    FakeGpu gpu;
    const Results results = measured(peers, gpu);
    CHECK(measurement_facts(results).back().second.text == "PyTorch 2.11.0, cuDNN 9.10.2, fa3-fwd 0.0.3");

    const Table table = timing_tables(results).at(0);
    REQUIRE(table.rows().size() == 5);
    CHECK(cell(table, 1, "stage") == child().folder());
    CHECK(cell(table, 1, "over FlashAttention-2") == "1.50x");
    CHECK(cell(table, 1, "over FlashAttention-3") == "1.25x");
    CHECK(cell(table, 1, "over unfused") == "4.00x");
    CHECK(cell(table, 2, "stage") == "peer: FlashAttention-2");
    CHECK(cell(table, 2, "median ms") == "1.500");
    CHECK(cell(table, 2, "verified") == "");
    CHECK(cell(table, 3, "stage") == "peer: FlashAttention-3");
    // Those without a time have neither row nor column, but a note.
    for (const Column& column : table.columns()) CHECK(column.title != "over cuDNN");
    CHECK(untimed_notes(results) ==
          std::vector<std::string>{"Not timed: cuDNN: does not like it.",
                                   "Not timed: FlashAttention-4: is for another GPU."});

    const Table rates = table_of(rate_tables(results), "flop_rate");
    REQUIRE(rates.rows().size() == 5);
    CHECK(cell(rates, 3, "stage") == "peer: FlashAttention-3");
}

TEST_CASE("a sweep is one row for each problem, and its mean", "[timing][peers]") {
    const Folder folder;
    Peers peers = fake_peers(folder);
    FakeGpu gpu;
    TimingOptions options = small_options();
    options.cases[0].regime = "prefill";
    options.cases.push_back(options.cases[0]);
    options.cases[1].problem.shape.d = 128;
    options.cases.push_back(options.cases[0]);
    options.cases[2].problem.shape.Nk = 80;
    options.cases.push_back(options.cases[0]);
    options.cases[3].problem.shape.d = 72;  // no stage has it
    Results results = measured(peers, gpu, options);

    // The peer is four times as slow on the third problem.
    results.peers[10].timing->median_ms *= 4;
    derive(results);
    const auto tables = comparison_tables(results);
    const Table& table = table_of(tables, "flop_rate");
    REQUIRE(table.rows().size() == 4);
    CHECK(cell(table, 0, "problem") == "d=64 N=40 Nq=24 B=1 H=2 Hkv=1");
    CHECK(cell(table, 0, child().folder()).find(" (2.00x)") != std::string::npos);
    CHECK(cell(table, 0, "04 over FlashAttention-2") == "1.50x");
    CHECK(cell(table, 0, "03 over unfused") == "2.00x");
    CHECK(cell(table, 0, "04 over cuDNN") == "");
    CHECK(cell(table, 0, "") == "cuDNN: does not like it; FlashAttention-4: is for another GPU");
    CHECK(cell(table, 3, child().folder()) == "-");
    CHECK(cell(table, 3, "") ==
          "03: has no kernel for d = 72; 04: has no kernel for d = 72; cuDNN: does not like it; "
          "FlashAttention-4: is for another GPU");
    const Table& summary = table_of(tables, "flop_rate_summary");
    REQUIRE(summary.rows().size() == 4);
    CHECK(cell(summary, 0, "problems") == "d=64");
    CHECK(cell(summary, 0, "04 over FlashAttention-2") == "3.00x, 1.50x");
    CHECK(cell(summary, 1, "04 over FlashAttention-2") == "-");  // d = 72
    CHECK(cell(summary, 3, "04 over FlashAttention-2") == "2.38x, 1.50x");

    SECTION("a peer that lacks problems: a mean over the others") {
        results.peers[0].timing.reset();
        derive(results);
        const Table means = table_of(comparison_tables(results), "flop_rate_summary");
        CHECK(cell(means, 0, "04 over FlashAttention-2") == "6.00x, 6.00x (1 of 2)");
        CHECK(cell(means, 3, "04 over FlashAttention-2") == "3.00x, 1.50x (2 of 3)");
        CHECK(cell(means, 3, "04 over unfused") == "4.00x, 4.00x");
    }
    SECTION("many stages: the fastest") {
        for (const int number : {0, 1}) {
            Row row = results.rows[0];
            row.stage = number;
            results.rows.push_back(row);
        }
        const auto fastest = comparison_tables(results);
        CHECK(cell(fastest[0], 0, "fastest").find(" (04)") != std::string::npos);
        CHECK(cell(fastest[0], 0, "fastest over FlashAttention-2") == "1.50x");
        CHECK(cell(fastest[0], 3, "fastest") == "-");
    }
    SECTION("without peers: no ratios and no mean") {
        results.peers.clear();
        const auto rates = comparison_tables(results);
        REQUIRE(rates.size() == 1);
        CHECK(rates[0].columns().size() == 1 + 2 + 1);
        results.rows.resize(6);  // every one was timed
        CHECK(comparison_tables(results)[0].columns().size() == 1 + 2);
    }
}
