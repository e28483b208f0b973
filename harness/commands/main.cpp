/// @file
/// `lab`: reads the command line, runs one command, and turns what went wrong into one line and an exit code.

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/file.h"
#include "harness/commands/commands.h"
#include "harness/time/results.h"
#include "stages/errors.h"

namespace {

// "Flash Ladder 2026-11-23, commit 0123456": the newest entry of the changelog, and what is known of the
// sources. A hand-out has neither.
std::string version() {
    std::string text = "Flash Ladder";
    std::ifstream changelog(LADDER_SOURCE_DIR "/CHANGELOG.md");
    const std::string heading = "## ";
    for (std::string line; std::getline(changelog, line);) {
        if (!line.starts_with(heading)) continue;
        text += " " + line.substr(heading.size());
        break;
    }
    const std::string commit = ladder::current_commit();
    if (commit == "unknown") return text;
    const std::size_t dash = commit.find('-');
    return text + ", commit " + commit.substr(0, 7) +
           (dash == commit.npos ? "" : ", with changes that are not committed");
}

int fail(int exit_code, const std::string& message) {
    std::fprintf(stderr, "lab: %s\n", message.c_str());
    return exit_code;
}

// `lab` the shell script answers these, since it builds and runs more than this program. Here they have their
// help.
ladder::Command add_scripted(ladder::CommandLine& lab, const std::string& name,
                             const std::string& description,
                             const std::vector<std::pair<std::string, std::string>>& flags) {
    ladder::Command command = lab.add(name, description);
    for (const auto& [flag, meaning] : flags) command.flag(flag, meaning);
    command.on_call(
        [name] { throw ladder::BadUsage("run it as ./lab " + name + " in the folder of the sources"); });
    return command;
}

// What a hand-out has neither the files nor the need for.
void add_of_whole_ladder(ladder::CommandLine& lab) {
    ladder::add_handout(lab);
    add_scripted(lab, "notebooks", "Open the notebooks in Jupyter",
                 {{"--check", "Execute all instead, and compare with their committed outputs"},
                  {"--update", "Execute all instead, and rewrite their outputs"}});
    add_scripted(
        lab, "docs", "Build the site: lessons, diffs side by side, kernels, the reference",
        {{"--out", "DIR: the site's folder [build/docs/html]"}, {"--open", "Show it in the browser"}});
    add_scripted(lab, "test", "Build and test everything",
                 {{"--quick", "Only what takes about a minute once it is built"},
                  {"--mutate",
                   "[STAGES]: instead, which of a kernel's small mistakes the cases of lab check miss [0 1 2 "
                   "3 4 5 6]"},
                  {"--coverage", "[STAGES]: instead, which ways of a kernel these cases never go"}});
    add_scripted(lab, "tables", "Rewrite the generated tables and plots of the README files",
                 {{"--check", "Change nothing; fail if a file is out of date"},
                  {"--json", "FILE: write the result as JSON to FILE"},
                  {"--markdown", "Print Markdown"}})
        .group("For maintainers");
}

}  // namespace

int main(int argc, char** argv) {
    ladder::TemporaryFolder::remove_on_signals();
    ladder::CommandLine lab("Flash Ladder: FlashAttention-2, derived one change at a time.",
                            "Exit codes: 0 ok, 1 a check failed, 2 bad usage, 3 cannot run here.", version);
    ladder::add_doctor(lab);
    ladder::add_list(lab);
    ladder::add_time(lab);
    ladder::add_count(lab);
    ladder::add_verify(lab);
    ladder::add_run(lab);
    ladder::add_diff(lab);
    ladder::add_profile(lab);
    ladder::add_trace(lab);
    ladder::add_exercise(lab);
    ladder::add_zoo(lab);
    ladder::add_grade(lab);
    add_scripted(lab, "install", "Install all that any command needs, and the packages named; builds nothing",
                 {});
    if (std::filesystem::exists(LADDER_SOURCE_DIR "/tests/all.sh")) add_of_whole_ladder(lab);

    try {
        lab.run(argc, argv);
    } catch (const ladder::CheckFailed& error) {
        return fail(1, error.what());
    } catch (const ladder::BadUsage& error) {
        return fail(2, error.what());
    } catch (const ladder::CannotRun& error) {
        return fail(3, error.what());
    } catch (const std::bad_alloc&) {
        return fail(3, "out of memory");
    } catch (const std::exception& error) {
        return fail(1, error.what());
    }
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0
                                                                : fail(2, "cannot write to standard output");
}
