#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>

#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/base/terminal.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/time/fastest.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/cli.h"
#include "tests/folder.h"
#include "tests/skip.h"

using namespace ladder;
using namespace ladder::test;

namespace {

/// Verifies a kernel, of a folder or by its number, on a problem, race-checked.
void check_on(const std::string& kernel, const std::string& shape, std::vector<std::string> features) {
    features.insert(features.begin(), {"verify", kernel, "--shape", shape});
    const ProcessResult result = lab(features);
    INFO(shape << ": " << result.out << result.err);
    CHECK(result.status == 0);
}

}  // namespace

TEST_CASE("mask types: a rule of two, documents, dropout, a softcap, ALiBi and sinks are one kernel",
          "[cli]") {
    if (!available(Backend::checked)) return;
    // What both of two rules allow: of two windows, the window.
    std::string kernel = read_file(find_stage(96)->source);
    const std::string rule = "Ranges<Window, from_last>";
    REQUIRE(kernel.find(rule) != kernel.npos);
    kernel.replace(kernel.find(rule), rule.size(), "Ranges<Both<Window, Window>, from_last>");
    const Folder folder;
    folder.write("kernel.cu", kernel);
    check_on(folder / "", "1,1,1,150,300,64", {"--window", "90,5"});
    const std::vector<std::string> all{"--window", "90,5",    "--softcap", "20",        "--alibi",
                                       "drawn",    "--sinks", "drawn",     "--dropout", "0.2,5"};
    check_on(folder / "", "2,4,2,150,300,64", all);
    check_on(folder / "", "1,2,1,130,40,256", all);  // rows without keys
    std::vector<std::string> packed = all;
    packed.insert(packed.end(), {"--causal", "--documents", "60,37,0,103"});
    check_on(folder / "", "1,2,1,200,200,128", packed);
}

TEST_CASE(
    "mask types: gradients take a window, dropout or documents, a softcap, ALiBi and sinks in one kernel",
    "[cli]") {
    if (!available(Backend::checked)) return;
    for (const std::string softcap : {"20", "0.5"}) {
        const std::vector<std::string> all{"--window", "90,5",    "--softcap", softcap,     "--alibi",
                                           "drawn",    "--sinks", "drawn",     "--dropout", "0.2,5"};
        check_on("97", "2,4,2,150,300,64", all);
        check_on("97", "1,2,1,130,40,128", all);  // rows without keys
        check_on("98", "2,4,2,150,300,256", all);
    }
    for (const auto& [stage, d] : {std::pair{"97", "64"}, {"97", "128"}, {"98", "256"}}) {
        const std::string square = std::string("1,2,1,200,200,") + d;
        check_on(stage, square,
                 {"--causal", "--documents", "60,37,0,103", "--alibi", "drawn", "--sinks", "drawn",
                  "--softcap", "20"});
        // More rows than keys of a document, and fewer: positions are counted from its ends.
        check_on(stage, square,
                 {"--documents", "60x20,37x100,0x0,103x80", "--alibi", "drawn", "--window", "30,9"});
    }
    // Rows without keys, and L = -inf
    check_on("97", "1,2,1,130,40,64", {"--causal", "--softcap", "20"});
    check_on("98", "1,2,1,130,40,256", {"--causal", "--softcap", "20"});
}

TEST_CASE("mask types: column bounds and lists of tiles take all scores, sinks and dropout, in both passes",
          "[cli]") {
    if (!available(Backend::checked)) return;
    const std::string mask =
        GENERATE(as<std::string>{}, "--columns random --window 90,5", "--tiles query_heads");
    const std::string dropout = GENERATE(as<std::string>{}, "", " --dropout 0.2,5");
    std::vector<std::string> features;
    for (const std::string scores :
         {"--alibi drawn", "--softcap 1e4 --alibi zero", "--softcap 1 --alibi drawn --sinks extreme"}) {
        std::istringstream words(mask + " " + scores + dropout);
        features.assign(std::istream_iterator<std::string>(words), {});
        check_on("96", "2,4,2,150,330,64", features);
        check_on("97", "2,4,2,150,330,64", features);
    }
    check_on("96", "1,2,1,200,70,256", features);  // rows without keys
    check_on("97", "1,2,1,200,70,128", features);
    check_on("98", "1,2,1,200,70,256", features);
}

TEST_CASE("mask types: gradients in a fixed order are right in every order of threads", "[cli]") {
    if (!available(Backend::checked)) return;
    // Documents that share query tiles, one without rows, and parts of a key tile in a band and without;
    // column bounds and lists of tiles
    const std::vector<std::vector<std::string>> problems = {
        {"--shape", "1,2,1,200,300,64", "--documents", "60x20,0x100,37x100,103x80", "--causal"},
        {"--shape", "1,1,1,200,200,128", "--documents", "10,10,60,120", "--window", "30,9", "--sms", "2"},
        {"--shape", "1,6,1,300,400,64", "--window", "90,0", "--dropout", "0.2,5", "--sms", "40"},
        {"--shape", "1,5,1,400,400,128", "--causal", "--softcap", "20", "--alibi", "drawn", "--sms", "9"},
        {"--shape", "1,2,1,200,330,64", "--columns", "random", "--window", "90,5", "--alibi", "drawn"},
        {"--shape", "1,4,2,150,330,128", "--columns", "query_heads", "--dropout", "0.2,5", "--sms", "3"},
        {"--shape", "1,2,1,200,300,64", "--tiles", "random", "--softcap", "20", "--sms", "2"},
        {"--shape", "1,2,1,150,330,128", "--tiles", "query_heads", "--dropout", "0.2,5"},
        {"--shape", "1,2,1,130,200,256", "--tiles", "random", "--dropout", "0.2,5", "--sms", "2"},
        {"--shape", "1,2,1,130,200,256", "--columns", "random", "--softcap", "20"},
        {"--shape", "1,2,1,130,130,256", "--documents", "60,0,17,53", "--window", "30,9"}};
    for (const std::string order : {"forward", "reversed", "shuffled", "delayed"}) {
        for (std::size_t n = 0; n < (order == "shuffled" || order == "delayed" ? problems.size() : 4); ++n) {
            const std::vector<std::string>& problem = problems[n];
            std::vector<std::string> command{"verify", "99", "--order", order};
            command.insert(command.end(), problem.begin(), problem.end());
            const ProcessResult result = lab(command);
            INFO(fmt::format("{}: {}{}", fmt::join(command, " "), result.out, result.err));
            CHECK(result.status == 0);
        }
    }
}

TEST_CASE("mask types: where bits must repeat, the default stage of gradients takes masks", "[timing]") {
    const DefaultStages exact(recorded_times(), [](const Stage& stage) { return stage.repeats_exactly; });
    const DefaultStages any(recorded_times(), [](const Stage&) { return true; });
    ProblemLabel problem;
    problem.shape = {1, 16, 16, 4096, 4096, 128};
    problem.pass = Pass::backward;
    const auto of = [&](const Features& features) {
        problem.features = features;
        const Stage* stage = exact.find(problem);
        const Stage* other = any.find(problem);
        CHECK((other != nullptr && !other->repeats_exactly));
        return stage == nullptr ? -1 : stage->number;
    };
    CHECK(of({}) == 58);
    CHECK(of({.window = {1023, 0}}) == 99);
    CHECK(of({.documents = "1000,3096"}) == 99);
    CHECK(of({.softcap = 30}) == 99);
    CHECK(of({.window = {1023, 0}, .sinks = "drawn", .dropout = {230, 1}}) == 99);
    CHECK(of({.columns = "prefix"}) == 99);
    CHECK(of({.tiles = "quarter"}) == 99);
    problem.shape.d = 256;
    CHECK(of({}) == 59);
    CHECK(of({.window = {1023, 0}}) == 99);
    CHECK(of({.tiles = "quarter"}) == 99);
}

TEST_CASE("mask types: gradients refuse dropout in packed documents by name", "[cli]") {
    expect_failure(
        {"verify", "97", "--shape", "1,2,1,200,200,128", "--documents", "97,103", "--dropout", "0.2,5"}, 2,
        "97_any_mask_gradients does not take dropout in packed documents");
}

TEST_CASE("mask types: a hand-out has every file that its kernels include, and what an exercise starts from",
          "[course]") {
    namespace fs = std::filesystem;
    const Folder folder;
    const Stage& windows = *find_stage(65);
    REQUIRE(lab({"handout", "65", "--out", folder / "out"}).status == 0);
    const std::regex include("#include \"(stages/[^\"]+)\"");
    int kernels = 0;
    for (const Stage& stage : stages()) {
        const std::string name = "out/stages/" + stage.folder() + "/kernel.cu";
        if (!fs::exists(folder / name)) continue;
        kernels += 1;
        const std::string kernel = folder.read(name);
        for (std::sregex_iterator found(kernel.begin(), kernel.end(), include), end; found != end; ++found) {
            INFO(name << " includes " << (*found)[1]);
            CHECK(fs::exists(folder / ("out/" + (*found)[1].str())));
        }
    }
    CHECK(kernels > 50);
    const std::string start = folder.read("out/stages/" + windows.folder() + "/start.cu");
    CHECK(start == kernel_text(fs::path(windows.source).parent_path() / "start.cu"));
    CHECK(start.find("#include \"stages/65") == start.npos);
}
