#include "harness/commands/program.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <new>
#include <string>

#include "harness/base/built.h"
#include "harness/base/file.h"
#include "harness/base/terminal.h"
#include "harness/time/results.h"
#include "stages/errors.h"

namespace ladder {
namespace {

// "Flash Ladder 1.0.0, commit 0123456": the newest entry of the changelog, and what is known of the
// sources. A hand-out has neither.
std::string version() {
    std::string text = "Flash Ladder";
    std::ifstream changelog(built_from + std::string("/CHANGELOG.md"));
    const std::string heading = "## ";
    for (std::string line; std::getline(changelog, line);) {
        if (!line.starts_with(heading)) continue;
        text += " " + line.substr(heading.size());
        break;
    }
    const std::string commit = current_commit();
    if (commit == "unknown") return text;
    const std::size_t dash = commit.find('-');
    return text + ", commit " + commit.substr(0, 7) +
           (dash == commit.npos ? "" : ", with changes that are not committed");
}

int fail(int exit_code, const std::string& message) {
    const std::string text = continued("lab: " + message + "\n", terminal_width(STDERR_FILENO));
    std::fputs(text.c_str(), stderr);
    return exit_code;
}

}  // namespace

std::string course_command(const std::string& name) {
    static const std::map<std::string, std::string> commands{
        {"start", "Begin a stage as an exercise: its parent's kernel and the task"},
        {"check", "Check an exercise: results, races, and the work that must change"},
        {"hint", "Print the next hint for an exercise"},
        {"reset", "Start an exercise over; your kernel is kept as a copy"},
        {"zoo", "Bugs as puzzles: see the symptom, find the bug in the kernel, check the fix"},
        {"grade", "Grade a submission, or a class of them"},
        {"handout", "Write a folder for students: everything but the solutions of these stages"}};
    return commands.at(name);
}

int run_program(int argc, char** argv, const std::function<void(CommandLine& lab)>& add_commands) {
    TemporaryFolder::remove_on_signals();
    CommandLine lab("Flash Ladder: FlashAttention-2, derived one change at a time.",
                    "Exit codes: 0 ok, 1 a check failed, 2 bad usage, 3 cannot run here.", version);
    add_commands(lab);
    try {
        lab.run(argc, argv);
    } catch (const CheckFailed& error) {
        return fail(1, error.what());
    } catch (const BadUsage& error) {
        return fail(2, error.what());
    } catch (const CannotRun& error) {
        return fail(3, error.what());
    } catch (const std::bad_alloc&) {
        return fail(3, "out of memory");
    } catch (const std::exception& error) {
        return fail(1, error.what());
    }
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0
                                                                : fail(2, "cannot write to standard output");
}

}  // namespace ladder
