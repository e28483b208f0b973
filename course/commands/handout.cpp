/// @file
/// lab handout: what an instructor gives to students.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "course/commands/commands.h"
#include "course/handout.h"
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

Document run(const HandoutOptions& options) {
    std::vector<Exercise> exercises;
    for (const std::string& word : options.stages) exercises.push_back(load_exercise(word));
    const Handout handout = write_handout(exercises, options.folder);
    Document document;
    document.facts = {{"exercises", fmt::format("{}", fmt::join(handout.exercises, ", "))},
                      {"left out", fmt::format("{}", fmt::join(handout.hidden, ", "))},
                      {"included", fmt::format("{}", fmt::join(handout.kept, ", "))},
                      {"files", Cell::count(static_cast<std::uint64_t>(handout.files))},
                      {"folder", options.folder}};
    document.notes = {"it builds and checks on its own: cd there, then ./lab doctor"};
    return document;
}

}  // namespace

void add_handout(CommandLine& lab) {
    add_course_command<HandoutOptions>(lab, "handout", run);
}

}  // namespace ladder
