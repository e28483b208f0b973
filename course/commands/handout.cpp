/// @file
/// lab handout: what an instructor gives to students. handout.py writes it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "course/commands/commands.h"
#include "course/effort.h"
#include "harness/base/json.h"
#include "harness/base/process.h"
#include "harness/features/features.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace ladder {
namespace {

struct HandoutOptions {
    explicit HandoutOptions(Command& command) {
        command.option("STAGES", stages, "The stages to solve: numbers or names").required();
        command.option("--out", folder, "The folder to write").required().type_name("DIR");
    }
    std::vector<std::string> stages;
    std::string folder;
};

/// What an exercise starts from if that is not its parent's kernel; empty if it is. With what it includes,
/// which may be of stages that are left out.
std::string own_start(const Exercise& e) {
    const auto start = start_of(e);
    return start == parent_of(e).source ? "" : kernel_text(start);
}

/// What a stage takes, in words; if `but` is given, only what that one does not take.
std::vector<std::string> taken(const Stage& stage, const Stage* but = nullptr) {
    std::vector<std::string> words;
    for (const FeatureInfo& info : all_features())
        if (takes(stage, info.feature) && (but == nullptr || !takes(*but, info.feature)))
            words.emplace_back(info.word());
    return words;
}

Printout run(const HandoutOptions& options) {
    nlohmann::json request{{"root", source_folder()}, {"folder", options.folder}};
    std::vector<std::string> exercises;
    for (const std::string& word : options.stages) {
        const Exercise e = load_exercise(word);
        if (!e.solved_here)
            throw CannotRun(fmt::format("this is a hand-out itself: {} is not in it", e.folder()));
        if (e.parent < 0) throw BadUsage(fmt::format("{} has no parent to start from", e.folder()));
        request["exercises"].push_back({{"number", e.number},
                                        {"folder", e.folder()},
                                        {"core", is_core(stage_of(e))},
                                        {"parent", e.parent},
                                        {"takes_new", taken(e, &parent_of(e))},
                                        {"change", e.change},
                                        {"complaint", e.complaint},
                                        {"effort", effort_section(effort_of(e))},
                                        {"start", own_start(e)},
                                        {"declaration", stage_json(e)}});
        exercises.push_back(e.folder());
    }
    require_new_folder(options.folder);
    for (const Stage& stage : stages())
        request["stages"].push_back({{"number", stage.number},
                                     {"folder", stage.folder()},
                                     {"parent", stage.parent},
                                     {"part", part_of(stage).page},
                                     {"takes", taken(stage)},
                                     {"backward", stage.pass == Pass::backward}});
    for (const Part& part : parts()) request["pages"].push_back(part.page);
    const auto handout = nlohmann::json::parse(ask_python("course/handout.py", request.dump()));
    if (handout.contains("refused")) throw BadUsage(handout.at("refused"));
    const auto joined = [&](const char* key) {
        return fmt::format("{}", fmt::join(handout.at(key).get<std::vector<std::string>>(), ", "));
    };
    Printout printout;
    printout.facts = {{"exercises", fmt::format("{}", fmt::join(exercises, ", "))},
                      {"left out", joined("hidden")},
                      {"included", joined("kept")},
                      {"files", Cell::count(handout.at("files").get<std::uint64_t>())},
                      {"folder", options.folder}};
    printout.notes = {"it builds and checks on its own: cd there, then ./lab doctor"};
    return printout;
}

}  // namespace

void add_handout(CommandLine& lab) {
    add_course_command<HandoutOptions>(lab, "handout", run);
}

}  // namespace ladder
