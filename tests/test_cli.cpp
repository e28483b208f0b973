// The lab program as a user meets it: what it says, and with which exit code.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "harness/base/npy.h"
#include "harness/base/process.h"
#include "harness/base/terminal.h"
#include "harness/cases/regimes.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/words.h"
#include "harness/time/fastest.h"
#include "harness/verify/one_case.h"
#include "stages/stage.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/cli.h"
#include "tests/folder.h"
#include "tests/skip.h"
#include "tests/terminal.h"

using namespace ladder;
using namespace ladder::test;

namespace {

std::size_t widest_line(const std::string& text) {
    std::istringstream lines(text);
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, display_width(line));
    return widest;
}

// What a terminal of so many columns shows of a command, in black and white.
std::string shown(unsigned short columns, const std::string& arguments) {
    test::Terminal terminal(columns);
    const ProcessResult result =
        run_process({"env", "-u", "COLUMNS", "NO_COLOR=1", "sh", "-c",
                     "'" LADDER_LAB "' " + arguments + " > " + terminal.path() + " 2>&1"});
    CHECK(result.status == 0);
    return terminal.said();
}

const char* const gradients = "recompute";  // a stage of the backward pass

}  // namespace

TEST_CASE("lab: without a command it shows what there is", "[cli]") {
    const ProcessResult help = lab({"--help"});
    CHECK(help.status == 0);
    for (const char* command :
         {"doctor", "list", "time",      "count",   "verify", "run",     "diff",  "profile",
          "trace",  "docs", "notebooks", "install", "test",   "start",   "check", "hint",
          "reset",  "zoo",  "handout",   "grade",   "tables", "compare", "quiz"}) {
        CAPTURE(command);
        CHECK(help.out.find(std::string("\n  ") + command) != std::string::npos);
        const ProcessResult own = lab({command, "--help"});
#ifndef LADDER_HAS_CPU
        if (own.err.ends_with("needs the race-checked CPU back-end, which this build does not have\n"))
            continue;
#endif
        CHECK(own.status == 0);
        CHECK(own.out.find(std::string("Usage: ./lab ") + command) != std::string::npos);
        CHECK(own.out.find_first_of("{}") == std::string::npos);  // CLI11's words for types
        CHECK(widest_line(own.out) <= 80);
        if (!std::set<std::string>{"docs", "notebooks", "install", "test"}.contains(command)) {
            CHECK(own.out.find("--json") != std::string::npos);
            CHECK(own.out.find("--markdown") != std::string::npos);
        }
    }
    CHECK(widest_line(help.out) <= 80);
    CHECK(lab({"help"}).out == help.out);
    CHECK(lab({}).out == help.out);
    expect_failure({"list", "--json", "-"}, 2,
                   "cannot write -: not a file name; standard output is /dev/stdout");
    expect_failure({"list", "--caussal"}, 2,
                   "not expected: --caussal (did you mean '--causal'?); see ./lab list");
    expect_failure({"help", "foo"}, 2, "there is no command 'foo'; see ./lab --help");
    CHECK(lab({"help", "time"}).out == lab({"time", "--help"}).out);
}

TEST_CASE("lab list: every stage, in three forms", "[cli]") {
    const Folder folder;
    const auto json = json_of(folder, {"list"});
    REQUIRE(json["stages"].size() == stages().size());
    CHECK(json["stages"][0]["stage"] == stages().front().folder());
    CHECK(json["stages"][0]["parent"].is_null());
    REQUIRE(json["properties"].size() == stages().size());
    auto first = json["properties"][0];
    for (const char* kind : {"timed", "profiled"}) {
        CHECK(std::set<std::string>{"as it is", "changed since", "never"}.contains(first[kind]));
        first.erase(kind);
    }
    CHECK(first == nlohmann::json{{"stage", stages().front().folder()},
                                  {"part", 0},
                                  {"place", 0},
                                  {"formerly", nullptr},
                                  {"fingerprint", kernel_fingerprint(stages().front().folder())},
                                  {"pass", "forward"},
                                  {"compute_capability", nullptr},
                                  {"experiment", false},
                                  {"for_order", false},
                                  {"last_of_part", false},
                                  {"eight_bits", false},
                                  {"in_e4m3", ""},
                                  {"takes", ""},
                                  {"at_once", ""},
                                  {"counted_on", "--shape 1,2,2,512,512,64"},
                                  {"counted_parent", nullptr},
                                  {"parent_counted_on", nullptr}});
    const auto properties_of = [&](const Stage& stage) {
        return *std::find_if(json["properties"].begin(), json["properties"].end(),
                             [&](const auto& properties) { return properties["stage"] == stage.folder(); });
    };
    const Stage &skips = named("causal_skip"),
                &bounded = stage_that({.takes = {Feature::window, Feature::columns}}),
                &paged = stage_that({.takes = {Feature::pages}, .lacks = {Feature::prefix}});
    const auto causal = properties_of(skips), pages = properties_of(paged);
    CHECK(causal["counted_on"] == "--shape 1,2,2,512,512,64 --causal");
    CHECK(causal["counted_parent"] == find_stage(skips.parent)->folder());
    CHECK(causal["parent_counted_on"] == causal["counted_on"]);
    // Its parent takes no pages, and is counted without.
    REQUIRE(!takes(*find_stage(paged.parent), Feature::pages));
    CHECK(pages["counted_parent"] == find_stage(paged.parent)->folder());
    CHECK(pages["counted_on"] == pages["parent_counted_on"].get<std::string>() + " --page-size 16");
    CHECK(properties_of(bounded)["takes"] == "window columns");
    CHECK(properties_of(named("fp8_cache"))["in_e4m3"] == "KV");
    CHECK(properties_of(named("e4m3_inputs"))["in_e4m3"] == "QKV");
    REQUIRE(json["regimes"].size() == regimes().size());
    CHECK(json["regimes"][0] == nlohmann::json{{"regime", "train"},
                                               {"pass", "forward"},
                                               {"sweep", false},
                                               {"decoding", false},
                                               {"features", ""}});
    CHECK(json["features"].size() == all_features().size());
    const auto& documents = *std::find_if(json["features"].begin(), json["features"].end(),
                                          [](const auto& row) { return row["feature"] == "documents"; });
    CHECK(documents == nlohmann::json{{"feature", "documents"},
                                      {"option", "--documents"},
                                      {"arguments", "cu_seqlens_q cu_seqlens_k"}});
    CHECK(properties_of(bounded)["at_once"] == "window columns");
    CHECK(properties_of(*find_stage(96))["at_once"] ==
          "window columns softcap alibi sinks dropout; window documents softcap alibi sinks dropout; "
          "tiles softcap alibi sinks dropout");
    for (const Stage& stage : stages()) CHECK(properties_of(stage)["experiment"] == is_experiment(stage));
    const ProcessResult markdown = lab({"list", "--markdown"});
    CHECK(markdown.status == 0);
    const std::string its_parent = fmt::format("{:02}", parent().number);
    CHECK(markdown.out.find("| **" + child().folder() + "** | " + its_parent + " |") != std::string::npos);
    const std::string piped = lab({"list"}).out;
    CHECK(piped.find('\x1b') == std::string::npos);  // no colour into a pipe, nor a bound to its lines
    CHECK(widest_line(piped) > 120);
    for (const unsigned short columns : {80, 120}) {
        const std::string list = shown(columns, "list");
        CHECK(widest_line(list) <= columns);
        CHECK(std::regex_search(list, std::regex(child().folder() + " +" + its_parent + " +a warp owns 16")));
        CHECK(list.find("\nDecoding: 10 to 17\n") < list.find("\n10_packed_gqa"));
        CHECK(list.find("A terminal of " + std::to_string(columns) + " columns has no room") !=
              std::string::npos);
    }
}

TEST_CASE("lab list --for: the recorded times nearest to a problem, and the default", "[cli]") {
    const Folder folder;
    const auto json = json_of(folder, {"list", "--for", "1,32,8,1,65537,128"});
    REQUIRE(json["nearest_1"].size() >= 2);
    CHECK(json["nearest_1"][0]["speed"] == 1.0);
    CHECK(json["nearest_1"][1]["us"] >= json["nearest_1"][0]["us"]);
    std::string last;  // of those that are equally fast on the nearest recorded problem
    for (const auto& row : json["nearest_1"]) {
        CHECK(row["speed"].get<double>() * row["us"].get<double>() <
              1.001 * json["nearest_1"][0]["us"].get<double>());
        if (row["speed"] >= DefaultStages::equally_fast)
            last = std::max(last, row["stage"].get<std::string>());
    }
    CHECK(json["default on Hopper"] == last);
    for (const char* where : {"default on Hopper", "default elsewhere"})
        CHECK(is_decoding(select_stage(json[where].get<std::string>()).shows_in));
    const auto backward =
        json_of(folder, {"list", "--for", "2,32,8,8000,8000,128", "--backward", "--causal"});
    CHECK(select_stage(backward["default on Hopper"].get<std::string>()).pass == Pass::backward);
    if (backward.contains("nearest_1")) {  // once gradients are recorded
        CHECK(select_stage(backward["nearest_1"][0]["stage"].get<std::string>()).pass == Pass::backward);
    }
    const std::string said = shown(80, "list --for 1,32,8,1,65537,128");
    CHECK(widest_line(said) <= 80);
    CHECK(said.find("No recording covers this problem") != std::string::npos);
    CHECK(lab({"list", "--for", "1,32,8,1,65536,128"}).out.find("No recording covers") == std::string::npos);
    // A regime: each of its problems in a row.
    const auto decode = json_of(folder, {"list", "--for", "decode"});
    REQUIRE(decode["fastest"].size() == regime_named("decode")->problems.size());
    int recorded = 0;
    for (const auto& row : decode["fastest"]) {
        CHECK(is_decoding(select_stage(row["default_on_hopper"].get<std::string>()).shows_in));
        if (row["fastest"].is_null()) continue;  // not of this problem
        CHECK(is_decoding(select_stage(row["fastest"].get<std::string>()).shows_in));
        CHECK(row["us"] > 0);
        recorded += 1;
    }
    CHECK(recorded > 0);
    CHECK(widest_line(shown(80, "list --for decode")) <= 80);
    expect_failure({"list", "--for", "trian"}, 2, "neither a regime (did you mean 'train'?) nor a shape");
    expect_failure({"list", "--for", "train", "--causal"}, 2,
                   "--causal and --backward go with --for and a shape");
    expect_failure({"list", "--like", "A100"}, 2, "--like goes with --for");
}

TEST_CASE("lab: tensors that no memory holds", "[cli]") {
    if (!test::available(Backend::cpu)) return;
    expect_failure({"verify", "4", "--backend", "cpu", "--shape", "64,1024,1024,1048576,1048576,128"}, 2,
                   "Q, K, V, O and L take");
    // Tensors that fit, and what makes and checks them does not.
    const double fits = 0.9 * static_cast<double>(open_device(Backend::cpu)->free_memory());
    const auto keys = std::to_string(std::min(1 << 30, static_cast<int>(fits / (16 * 2 * 64 * 2))));
    expect_failure({"count", "6", "--shape", "16,1,1,1," + keys + ",64"}, 2, "and running on them");
    expect_failure({"count", "5", "--shape", "16,1,1," + keys + ",1,64"}, 2, "and running on them");
}

TEST_CASE("lab: what takes a CPU more than two minutes is refused unless it is asked for twice", "[cli]") {
    if (!test::available(Backend::cpu)) return;
    const std::vector<std::string> endless{"--shape", "1,1,1,1048576,1048576,64"};
    std::vector<std::vector<std::string>> commands{
        {"verify", "4", "--backend", "cpu"}, {"verify", gradients, "--backend", "cpu"}, {"count", "4"}};
    if (!has_device(Backend::gpu)) commands.push_back({"time", "4"});
    for (auto command : commands) {
        command.insert(command.end(), endless.begin(), endless.end());
        expect_failure(command, 2, " of the CPU; name a smaller problem, or --long to wait");
    }
    expect_failure({"trace", "4", endless[0], endless[1]}, 2, "lab trace shows at most");  // its own bound
    const Folder folder;
    const auto all_zero = [](std::int64_t rows) {
        return NpyArray{NpyArray::Type::float16, {1, 1, rows, 64}, std::string(rows * 64 * 2, '\0')};
    };
    const std::string file = folder.write("long.npy", format_npy(all_zero(1 << 18)));
    const std::vector<std::string> run{"run", "4",  "--backend", "cpu", "--q",   file,
                                       "--k", file, "--v",       file,  "--out", folder / "o.npy"};
    expect_failure(run, 2, "--long to wait");
    CHECK(folder.files() == 1);
    // The estimate knows how many threads work.
    expect_failure({"verify", "4", "--backend", "cpu", "--workers", "1", "--shape", "1,1,1,24576,24576,64"},
                   2, "about 4 minutes on 1 core of the CPU");
    CHECK(lab({"count", "4", "--long", "--shape", "1,1,1,64,64,64"}).err.empty());
}

TEST_CASE("lab: a reader who has seen enough ends it without a word", "[cli]") {
    const ProcessResult result = run_process({"sh", "-c", "'" LADDER_LAB "' list | head -n 1"});
    CHECK(result.status == 0);
    CHECK(result.out.starts_with("stage "));
    CHECK(std::count(result.out.begin(), result.out.end(), '\n') == 1);
    CHECK(result.err.empty());
}

TEST_CASE("lab time: peers that do not start", "[cli][gpu]") {
    if (!test::available(Backend::gpu)) return;
    const Folder folder;
    const std::string lab = LADDER_LAB, file = folder / "out.json";
    const ProcessResult result =
        run_process({"env", "LADDER_PYTHON=/no/python", lab, "time", "4", "--peers", "--json", file});
    CHECK(result.status == 3);
    CHECK(result.err == "lab: cannot start /no/python: No such file or directory\n");
    CHECK(folder.files() == 0);
}

TEST_CASE("lab trace: one page of one or two stages, or their JSON", "[cli]") {
    if (!test::available(Backend::cpu)) return;
    const Folder folder;
    const std::vector<std::string> small{"--shape", "1,1,1,64,100,64", "--causal", "--sms", "3"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), small.begin(), small.end());
        return words;
    };
    const std::string page = folder / "page.html";
    const auto json = json_of(folder, with({"trace", "4", "causal_skip", "--html", page}));
    CHECK(json["kind"] == "trace");
    CHECK(json["multiprocessors"] == 3);
    CHECK(json["causal"] == true);
    CHECK(json["shape"]["Nk"] == 100);
    REQUIRE(json["traces"].size() == 2);
    CHECK(json["traces"][0]["stage"] == child().folder());
    CHECK(json["traces"][1]["stage"] == folder_of("causal_skip"));
    // The page holds the same.
    const std::string html = folder.read("page.html");
    const std::size_t data = html.find("{\"kind\":\"trace\"");
    REQUIRE(data != html.npos);
    CHECK(nlohmann::json::parse(html.substr(data, html.find("</script>", data) - data)) == json);
    CHECK(html.ends_with("</html>\n"));
    CHECK(folder.files() == 2);

    // Without names for them: the page is in the current folder, unless only the JSON was asked for.
    const std::string in_folder =
        "cd '" + (folder / "") + "' && '" LADDER_LAB "' trace 6 --shape 1,1,1,1,64,64";
    CHECK(run_process({"sh", "-c", in_folder + " --json only.json"}).status == 0);
    CHECK(folder.files() == 3);
    const ProcessResult result = run_process({"sh", "-c", in_folder});
    CHECK(result.status == 0);
    CHECK(result.out.find("trace_06.html") != std::string::npos);
    CHECK(folder.read("trace_06.html").find(folder_of("flash_decoding")) != std::string::npos);
    CHECK(folder.files() == 4);
}

TEST_CASE("lab: results that cannot be written", "[cli]") {
    const Folder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(run_process({"mkfifo", pipe}).status == 0);
    expect_failure({"trace", "4", "--shape", "1,1,1,1,1,64", "--html", pipe}, 2,
                   "it is a pipe that no program reads");
    expect_failure({"trace", "4", "--shape", "1,1,1,1,1,64", "--html", "/dev/full"}, 2, "No space left");
    expect_failure({"trace", "4", "--shape", "1,1,1,1,1,64", "--html", "-"}, 2,
                   "cannot write -: not a file name");
    // One that a program reads, by its name or as what /dev/stdout is.
    const std::string list = "'" LADDER_LAB "' list --json ";
    for (const std::string& way :
         std::vector<std::string>{"/dev/stdout | cat", "'" + pipe + "' & cat '" + pipe + "'"}) {
        const ProcessResult result = run_process({"sh", "-c", list + way});
        INFO(way << ": " << result.err);
        CHECK(result.status == 0);
        CHECK(result.out.find("\"stage\": \"" + stages().front().folder() + "\"") != std::string::npos);
    }
    std::filesystem::remove(pipe);
    CHECK(folder.files() == 0);
}

TEST_CASE("lab verify: passes, and says how well", "[cli]") {
    if (!test::available(Backend::cpu)) return;
    const Folder folder;
    const auto json =
        json_of(folder, {"verify", "split_q,1-2", "--backend", "cpu", "--shape", "1,4,2,37,65,64", "--causal",
                         "--dtype", "bf16", "--layout", "bnhd", "--input", "rising", "--seed", "3"});
    REQUIRE(json["stages"].size() == 3);
    CHECK(json["stages"][0]["stage"] == folder_of("flash_attention_1"));
    CHECK(json["stages"][2]["stage"] == child().folder());
    for (const auto& row : json["stages"]) CHECK(row["passed"] == true);
    REQUIRE(json["errors"].size() == 3);
    CHECK(json["errors"][2]["max_error"] == json["stages"][2]["max_error"]);
    CHECK(json["case"] == "B=1 H=4 Hkv=2 Nq=37 Nk=65 d=64 bf16 causal bnhd rising seed=3");
}

TEST_CASE("lab verify: the order of threads is the user's", "[cli]") {
    if (!test::available(Backend::checked)) return;
    for (const char* order : {"reversed", "shuffled", "delayed"}) {
        CHECK(lab({"verify", "4", "--order", order, "--order-seed", "5", "--workers", "1", "--shape",
                   "1,1,1,65,65,64"})
                  .status == 0);
    }
    CHECK(lab({"verify", "one_launch", "--orders", "--shape", "1,2,1,65,65,64", "--causal"}).status == 0);
}

TEST_CASE("lab verify: the number of multiprocessors is the user's", "[cli]") {
    if (!test::available(Backend::cpu)) return;
    const Folder folder;
    for (const char* sms : {"1", "132", "148", "4000"}) {
        const auto json = json_of(folder, {"verify", "6", "--backend", "cpu", "--shape", "1,2,1,1,300,64",
                                           "--sms", sms, "--dtype", "bf16"});
        CHECK(json["stages"][0]["passed"] == true);
        CHECK(json["case"] == std::string("B=1 H=2 Hkv=1 Nq=1 Nk=300 d=64 bf16 bhnd normal sms=") + sms);
    }
    for (const char* sms : {"-1", "0", "16385", "1e3"}) {
        CHECK(lab({"verify", "6", "--sms", sms}).status == 2);
        CHECK_THROWS_AS(parse_case(std::string("--shape 1,1,1,1,1,64 --sms ") + sms), BadUsage);
    }
}

TEST_CASE("lab count: counters, and what they are against the parent's", "[cli]") {
    if (!test::available(Backend::cpu)) return;
    const Folder folder;
    const auto json = json_of(folder, {"count", "4", "--shape", "1,1,1,128,128,64"});
    bool barriers = false;
    for (const auto& row : json["changes"]) {
        CHECK(row["stage"] == child().folder());
        CHECK(row["parent"] == parent().folder());
        barriers = barriers || (row["counter"] == "barriers" && row["after"] < row["before"]);
    }
    CHECK(barriers);
    CHECK(json["work"][0]["counter"] == "launches");
    CHECK(json["work"][0][child().folder()] == 1);
}

TEST_CASE("lab: a stage of the backward pass goes through every command", "[cli]") {
    if (!ladder::test::available(Backend::checked)) return;
    const std::vector<std::string> problem{"--shape", "1,2,1,20,37,64", "--causal"};
    const auto said = [&](std::vector<std::string> words) {
        words.insert(words.end(), problem.begin(), problem.end());
        const ProcessResult result = lab(words);
        INFO(words[0] << ": " << result.err);
        CHECK(result.status == 0);
        return result.out;
    };
    const std::string verified = said({"verify", gradients, "--orders"});
    CHECK(verified.find("d=64 fp16 backward causal bhnd") != std::string::npos);
    CHECK(verified.find("1 of 1 case") != std::string::npos);
    CHECK(verified.find("largest error of O") == std::string::npos);
    const std::string both = said({"verify", gradients, "4"});
    CHECK(both.find(child().folder() + "    1 of 1 case") != std::string::npos);
    const std::string counted = said({"count", gradients});
    CHECK(counted.find(folder_of(gradients)) != std::string::npos);
    const Folder folder;
    CHECK(said({"trace", gradients, "5", "--html", folder / "page.html"}).find(folder_of(gradients)) !=
          std::string::npos);
    const ProcessResult compared = lab({"diff", "5", gradients});
    INFO(compared.err);
    CHECK(compared.status == 0);
}

TEST_CASE("a stage is its folder: a new one is listed, compared, verified, counted and held to its claims",
          "[cli]") {
    if (!ladder::test::available(Backend::checked)) return;
    namespace fs = std::filesystem;
    const Folder folder;
    for (const Stage& stage : stages()) {
        if (is_core(stage))
            fs::create_directory_symlink(fs::path(stage.source).parent_path(), folder / stage.folder());
    }
    const Stage& skips = named("causal_skip");
    const std::string number = std::to_string(free_number()), another = number + "_another";
    std::string kernel = read_file(skips.source);
    const auto replace = [&](const std::string& from, const std::string& to) {
        REQUIRE(kernel.find(from) != kernel.npos);
        kernel.replace(kernel.find(from), from.size(), to);
    };
    replace(".number = 5, .name = \"causal_skip\", .parent = 4",
            ".number = " + number + ", .name = \"another\", .parent = 5");
    replace("#include \"stages/device.cuh\"", "#include \"stages/hopper.cuh\"");
    fs::create_directory(folder / another);
    folder.write(another + "/kernel.cu", kernel);
    const auto with_it = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"env", "LADDER_STAGES=" + folder / "", LADDER_LAB});
        const ProcessResult result = run_process(arguments);
        INFO(result.err);
        CHECK(result.status == 0);
        return result.out;
    };
    const auto contains = [](const std::string& text, const std::string& part) {
        return text.find(part) != text.npos;
    };
    const std::string list = with_it({"list"});
    CHECK(contains(list, another));
    CHECK(contains(list, "These need a GPU of compute capability 9.0, or the CPU: " + number + "."));
    CHECK(!contains(list, folder_of("packed_gqa")));
    CHECK(contains(with_it({"diff", number}), "+LADDER_STAGE(forward, Dims, .number = " + number));
    CHECK(contains(with_it({"verify", "another", "--shape", "1,2,1,65,130,64", "--causal"}), "1 of 1 case"));
    CHECK(contains(with_it({"count", number, "--shape", "1,1,1,64,64,64"}), another + " changes nothing"));
}

TEST_CASE("a folder of one's own goes the same way as a stage", "[cli]") {
    if (!ladder::test::available(Backend::checked)) return;
    const Folder folder;
    const std::string own = folder / "", kernel = read_file(child().source);
    const std::vector<std::string> problem{"--shape", "1,1,1,65,70,64"};
    const auto said = [&](std::vector<std::string> words) {
        words.insert(words.end(), problem.begin(), problem.end());
        return lab(words);
    };
    CHECK(said({"verify", own}).status == 2);  // there is no kernel.cu
    folder.write("kernel.cu", kernel);
    const std::string name = "04_" + std::filesystem::path(own).parent_path().filename().string();
    const std::vector<std::vector<std::string>> commands{
        {"verify", own}, {"count", own}, {"trace", own, "--html", folder / "page.html"}};
    for (const std::vector<std::string>& command : commands) {
        const ProcessResult result = said(command);
        INFO(command[0] << ": " << result.err);
        CHECK(result.status == 0);
        CHECK(result.out.find(name) != std::string::npos);
    }
    // The ladder's own folder is the stage, once and under its name.
    const std::string folder_of_4 = std::filesystem::path(child().source).parent_path().string();
    CHECK(select_stages({folder_of_4, "4"}) == std::vector<const Stage*>{find_stage(4)});
    // A bug is found, what does not compile is said with its line, and what does not declare a stage too.
    std::string wrong = kernel;
    const std::string barrier = "        copy_wait();\n";
    REQUIRE(wrong.find(barrier) != wrong.npos);
    folder.write("kernel.cu", wrong.replace(wrong.find(barrier), barrier.size(), ""));
    CHECK(said({"verify", own}).status == 1);
    // So is a tile that is declared otherwise than the kernel has it.
    std::string declared = "#error not yet\n" + kernel;
    const std::string tile = "LADDER_TILES((Br, Bc), {64, 64}";
    REQUIRE(declared.find(tile) != declared.npos);
    folder.write("kernel.cu",
                 declared.replace(declared.find(tile), tile.size(), "LADDER_TILES((Br, Bc), {64, 32}"));
    const ProcessResult broken = said({"verify", own});
    CHECK(broken.status == 1);
    CHECK(broken.err.find("kernel.cu:1:2: error: ") != std::string::npos);
    CHECK(broken.err.find("not yet") != std::string::npos);
    CHECK(broken.err.find("the literals of LADDER_TILES must be the kernel's constants") !=
          std::string::npos);
    folder.write("kernel.cu", "int x;\n");
    expect_failure({"verify", own}, 1, "LADDER_STAGE at the end is missing");
}
