/// @file
/// `lab`: reads the command line, runs one command, and turns what went wrong into one line and an exit code.

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "harness/commands/commands.h"
#include "stages/errors.h"

namespace {

int fail(int exit_code, const std::string& message) {
    std::fprintf(stderr, "lab: %s\n", message.c_str());
    return exit_code;
}

// `lab` the shell script answers these, since it builds and runs more than this program. Here they have their
// help.
void add_scripted(CLI::App& lab, const std::string& name, const std::string& description,
                  const std::vector<std::pair<std::string, std::string>>& flags) {
    CLI::App* command = lab.add_subcommand(name, description);
    for (const auto& [flag, meaning] : flags) command->add_flag(flag, meaning);
    command->callback(
        [name] { throw ladder::BadUsage("run it as ./lab " + name + " in the folder of the sources"); });
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App lab("Flash Ladder: FlashAttention-2, derived one change at a time.", "lab");
    lab.footer("Exit codes: 0 ok, 1 a check failed, 2 bad usage, 3 cannot run here.");
    lab.require_subcommand(1);
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
    ladder::add_handout(lab);
    ladder::add_grade(lab);
    add_scripted(lab, "notebooks", "Open the notebooks in Jupyter",
                 {{"--check", "Execute all instead, and compare with their committed outputs"},
                  {"--update", "Execute all instead, and rewrite their outputs"}});
    add_scripted(
        lab, "docs", "Build the site: lessons, diffs side by side, kernels, the reference",
        {{"--out", "DIR: the site's folder [build/docs/html]"}, {"--open", "Show it in the browser"}});
    add_scripted(lab, "test", "Build and test everything",
                 {{"--quick", "Only what takes less than two minutes"}});
    ladder::add_tables(lab);

    try {
        lab.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return lab.exit(error);  // --help
        const std::string first = argc > 1 ? argv[1] : "-";
        const auto named_first = [&](const CLI::App* command) { return command->get_name() == first; };
        const bool unknown = first.rfind('-', 0) != 0 && lab.get_subcommands(named_first).empty();
        return fail(2, (unknown ? "there is no command '" + first + "'" : error.what()) + "; see lab --help");
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
