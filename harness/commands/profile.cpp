#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iterator>
#include <sstream>

#include "harness/base/progress.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/features/features.h"
#include "harness/problem/shape.h"
#include "harness/report/profile_tables.h"
#include "harness/report/timing_tables.h"
#include "harness/time/profile.h"

namespace ladder {
namespace {

struct ProfileOptions {
    explicit ProfileOptions(Command& command) : stages(command, "all by default"), problem(command) {
        command.flag("--occupancy", occupancy,
                     "Only what CUDA reports about the kernels: registers, shared memory, blocks per SM");
        command.flag("--bytes", bytes,
                     "Only the bytes that HBM moves, on all problems of the --regime; caches are not cleared "
                     "between kernels");
        command.option("--limit", limit, "Seconds that Nsight Compute may take")
            .within(1, 86400)
            .show_default();
    }

    StageOptions stages;
    RegimeOptions problem;
    bool occupancy = false;
    bool bytes = false;
    unsigned limit = 600;
};

std::vector<ProfileRow> rows_of(const ProfileOptions& options) {
    const RegimeOptions& problem = options.problem;
    const auto stages = options.stages.selected();
    const DType dtype = problem.dtype_or_default();
    if (!problem.shape && problem.regime.empty()) return telling_rows(stages, dtype);
    std::vector<TimedCase> cases;
    if (problem.shape) {
        for (const Pass pass : {Pass::forward, Pass::backward})
            cases.push_back({"custom", problem.custom_case(pass)});
    } else if (options.bytes) {
        cases = timing_options(dtype, problem.regime).cases;
    } else {
        cases = {profiled_case(dtype, problem.regime)};
    }
    std::vector<ProfileRow> rows;
    for (const TimedCase& timed : cases) {
        for (const Stage* stage : stages) {
            if (stage->pass != timed.problem.pass) continue;
            if (problem.shape) require_taken(*stage, timed.problem);
            if (why_not_taken(*stage, timed.problem).empty()) rows.push_back(profile_row(timed, *stage));
        }
    }
    return rows;
}

// This program with the options that name the stages and the problem.
std::vector<std::string> same_command(const ProfileOptions& options) {
    const RegimeOptions& problem = options.problem;
    std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string(), "profile"};
    for (const Stage* stage : options.stages.selected()) command.push_back(stage->folder());
    if (!problem.regime.empty()) command.insert(command.end(), {"--regime", problem.regime});
    if (problem.shape) {
        Case c = problem.custom_case(Pass::forward);
        c.dtype = Case().dtype;  // which follows
        std::istringstream words(options_of(c));
        command.insert(command.end(), std::istream_iterator<std::string>(words), {});
    }
    command.insert(command.end(), {"--dtype", name(problem.dtype_or_default())});
    if (options.bytes) command.emplace_back("--bytes");
    return command;
}

Profile profile_of(const ProfileOptions& options) {
    const ProgressLine progress;
    const auto rows = rows_of(options);
    {
        std::string why_not;
        if (!has_device(Backend::gpu, &why_not)) throw CannotRun("profiling needs a GPU: " + why_not);
        const auto gpu = open_device(Backend::gpu);
        if (options.problem.shape) {
            for (const ProfileRow& row : rows) require_memory(row.shape, *gpu, row.pass);
        }
        if (options.occupancy) return observe_stages(*gpu, rows, std::cref(progress));
    }
    progress(options.bytes ? "Nsight Compute counts bytes" : "Nsight Compute runs each kernel many times", 0,
             1);
    return profile_with_nsight(same_command(options), options.limit, options.bytes);
}

Printout run(const ProfileOptions& options) {
    options.problem.check();
    const Profile profile = profile_of(options);
    Printout printout;
    printout.facts = machine_facts(profile);
    if (!options.occupancy) {
        printout.facts.emplace_back("profiler", profile.profiler);
        printout.tables = options.bytes ? std::vector{bytes_table(profile)} : profile_tables(profile);
        printout.notes.push_back(
            "A stage's change should show where it is marked. n/a: this GPU or ncu does not count it.");
        if (const auto foreign = foreign_architecture(profile.hardware); !foreign.empty())
            printout.notes.push_back("This profile is not to be recorded: " + foreign);
    }
    if (options.occupancy || !options.bytes) printout.tables.push_back(occupancy_table(profile));
    for (const ProfileRow& row : profile.rows) {
        if (!row.why_not.empty() && options.occupancy)
            printout.notes.push_back(fmt::format("{} did not run: {}", row.folder, row.why_not));
    }
    printout.save = [profile](const OutputFile& file) { save_profile(profile, file); };
    return printout;
}

}  // namespace

void add_profile(CommandLine& lab) {
    add_command<ProfileOptions>(
        lab, "profile", "Show Nsight Compute's counters of each kernel, and what limits its blocks per SM",
        run);
}

}  // namespace ladder
