/// @file
/// `lab`: all commands but those of course/, which it passes on.

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/built.h"
#include "harness/base/terminal.h"
#include "harness/commands/commands.h"
#include "harness/commands/program.h"
#include "stages/errors.h"

namespace {

[[noreturn]] void refuse(const std::string& command) {
    throw ladder::BadUsage("run it as " + ladder::lab_command({command}) + " in the folder of the sources");
}

// `lab` the shell script answers these, since it runs more than this program. Here they have their help.
ladder::Command add_scripted(ladder::CommandLine& lab, const std::string& name,
                             const std::string& description,
                             const std::vector<std::pair<std::string, std::string>>& flags = {}) {
    ladder::Command command = lab.add(name, description);
    for (const auto& [flag, meaning] : flags) command.flag(flag, meaning);
    command.on_call([name] { refuse(name); });
    return command;
}

// What the program of course/ answers. The shell script builds it when it is first needed.
void add_of_course(ladder::CommandLine& lab, const std::string& name) {
    lab.add_elsewhere(name, ladder::course_command(name),
                      [name]([[maybe_unused]] std::vector<const char*> words) {
#ifdef LADDER_HAS_CPU
                          words.push_back(nullptr);
                          execv((ladder::built_in + std::string("/lab-course")).c_str(),
                                const_cast<char* const*>(words.data()));
                          refuse(name);
#else
        throw ladder::CannotRun("lab " + name + " needs the race-checked CPU back-end, which this build does not have");
#endif
                      });
}

// What a hand-out has neither the files nor the need for.
void add_of_whole_ladder(ladder::CommandLine& lab) {
    add_of_course(lab, "handout");
    add_scripted(lab, "notebooks", "Open the notebooks in Jupyter",
                 {{"--check", "Instead, execute all and compare with the committed outputs"},
                  {"--update", "Instead, execute all and rewrite their outputs"}});
    add_scripted(
        lab, "docs", "Build the site: lessons, diffs side by side, kernels, the reference",
        {{"--out", "DIR: write the site there [build/docs/html]"}, {"--open", "Show it in the browser"}});
    add_scripted(
        lab, "quiz",
        "Ask questions on a part, as in " + ladder::lab_command({"quiz", "10s"}) + "; without one, on 00s",
        {{"--list", "Print the questions and ask nothing"},
         {"--key", "Print them with answers and reasons, for instructors"},
         {"--json", "FILE: write the questions, and what was answered, as JSON to FILE"},
         {"--markdown", "Print Markdown, and ask nothing"}});
    add_scripted(
        lab, "test", "Build and run the test suite",
        {{"--quick", "Only tests that take about a minute in all, once built"},
         {"--all", "Every case of every stage, also what passed before with the same sources"},
         {"--only", "GROUP,...: of tests, mutants, python, sanitizers, stages, guides, pages, nvcc"},
         {"--mutate", "[STAGES]: instead, find small mistakes in a kernel that lab check misses [0-6]"},
         {"--coverage", "[STAGES]: instead, find branches of a kernel that these cases never take"}});
    add_scripted(
        lab, "compare",
        "Compare two recordings of lab time --json: " + ladder::lab_command({"compare", "A.json", "B.json"}),
        {{"--json", "FILE: write the result as JSON to FILE"}, {"--markdown", "Print Markdown"}});
    add_scripted(
        lab, "tables", "Rewrite the generated tables and plots of the README files",
        {{"--check", "Change nothing; fail if a file is out of date, or a lesson must be read again"},
         {"--stale", "Instead, list the kernels that were changed since they were timed or profiled"},
         {"--lesson", "STAGE: only the lesson of this stage"},
         {"--reread", "With --lesson: note that its prose was read against the numbers as they are"},
         {"--json", "FILE: write the result as JSON to FILE"},
         {"--markdown", "Print Markdown"}})
        .group("For maintainers");
}

void add_commands(ladder::CommandLine& lab) {
    for (const auto add :
         {ladder::add_doctor, ladder::add_list, ladder::add_time, ladder::add_count, ladder::add_verify,
          ladder::add_run, ladder::add_diff, ladder::add_profile, ladder::add_trace})
        add(lab);
    for (const char* name : {"start", "check", "hint", "reset", "zoo", "grade"}) add_of_course(lab, name);
    add_scripted(lab, "install", "Install what any command needs, and the named packages; build nothing");
    if (std::filesystem::exists(ladder::built_from + std::string("/tests/all.sh"))) add_of_whole_ladder(lab);
}

}  // namespace

int main(int argc, char** argv) {
    return ladder::run_program(argc, argv, add_commands);
}
