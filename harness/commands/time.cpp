#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/base/progress.h"
#include "harness/base/terminal.h"
#include "harness/cases/regimes.h"
#include "harness/cases/verification_cases.h"
#include "harness/commands/commands.h"
#include "harness/commands/cpu_time.h"
#include "harness/commands/options.h"
#include "harness/count/counting.h"
#include "harness/device/device_problem.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/report/timing_tables.h"
#include "harness/time/selection.h"
#include "harness/time/timing.h"
#include "harness/verify/all_cases.h"

namespace ladder {
namespace {

struct TimeOptions {
    explicit TimeOptions(Command& app)
        : command(app), stages(command, "see --all for the default"), problem(command), lengthy(command) {
        command.flag(
            "--peers", peers,
            "Also time PyTorch's FlashAttention-2, cuDNN and unfused attention, and FlashAttention-3 "
            "and -4 if installed, interleaved with the stages; --peers=all adds PyTorch's "
            "memory-efficient and flex attention and FlashInfer; or a list: --peers=cuDNN,flex");
        command.flag("--all", all,
                     "All stages, unless some are named, in all regimes. Without it: the algorithm's and the "
                     "fastest of other parts, or a named stage and its parent, where the change should show");
        add_ranks(command, ranks, "1");
        command.option("--like", like, "Estimate times on another GPU, such as A100").type_name("GPU");
    }

    Command command;
    StageOptions stages;
    RegimeOptions problem;
    LongOption lengthy;
    // Of those that are timed unless others are named. Throws BadUsage.
    std::vector<std::string> named_peers(const std::vector<std::string>& usual) const {
        return peers.empty() || peers == without_value ? usual : Peers::named(peers, usual);
    }

    static constexpr const char* without_value = "true";
    std::string peers, like;  // empty for none
    bool all = false;
    int ranks = 0;

    // The problem of --shape, for a pass.
    Case custom_case(Pass pass) const {
        Case c = problem.custom_case(pass);
        c.features.ranks = std::max(1, ranks);
        return c;
    }
};

/// `runs`: which stages of other parts than the algorithm's run here; null for none of them.
Selection selection_of(const TimeOptions& options, const std::function<bool(const Stage&)>& runs) {
    const auto& words = options.stages.words;
    const bool whole = options.all || std::find(words.begin(), words.end(), "all") != words.end();
    return select_timed(words.empty() ? std::vector<const Stage*>() : select_stages(words), whole,
                        options.problem.shape ? "custom" : options.problem.regime, runs);
}

// "2 of 7 stages gave wrong answers: ..."
std::string failure_of(const Results& results) {
    std::set<std::string> wrong;
    for (const Row& row : results.rows) {
        if (row.timing && !row.verified) wrong.insert(row.folder);
    }
    return wrong.empty() ? "" : fmt::format("wrong answers from {}", fmt::join(wrong, ", "));
}

// How to see the rest, if there is one.
std::string more_than(const Selection& selection, const TimeOptions& options) {
    if (selection.whole || options.problem.shape || !options.problem.regime.empty()) return "";
    if (selection.first_table)
        return "Masks, serving, heads of 64 and 256 and 8 bits have regimes and stages of their own: " +
               fmt::format("{}, {}, {}. --all times all of them.", lab_command({"list"}),
                           lab_command({"time", "--regime", "window"}), lab_command({"time", "65"}));
    return "The table holds the regimes where these stages' changes should show; --all adds the others.";
}

Printout time_on_gpu(Device& gpu, const TimeOptions& options) {
    if (options.ranks > 1) gpu.of_rank(options.ranks - 1, options.ranks);  // or CannotRun
    const Selection selection =
        selection_of(options, [&](const Stage& stage) { return gpu.why_not(stage).empty(); });
    TimingOptions timing;
    if (options.problem.shape) {
        for (const Pass pass : {Pass::forward, Pass::backward}) {
            const auto of_pass = [&](const Stage* stage) { return stage->pass == pass; };
            if (std::none_of(selection.stages.begin(), selection.stages.end(), of_pass)) continue;
            require_memory(*options.problem.shape, gpu, pass);
            timing.cases.push_back({"custom", options.custom_case(pass)});
            for (const Stage* stage : selection.shown)
                if (of_pass(stage)) require_taken(*stage, timing.cases.back().problem);
        }
    } else {
        timing = selection.timing(options.problem.dtype_or_default(), options.problem.regime);
        if (timing.cases.empty()) {
            const Regime& regime = *regime_named(options.problem.regime);
            std::vector<std::string> with;
            for (const Feature feature : features_of(regime.problems[0].features))
                with.emplace_back(name(feature));
            throw BadUsage(
                fmt::format("none of these stages computes what '{}' times: {}{}{}", options.problem.regime,
                            regime.pass == Pass::backward ? "the gradients of attention" : "attention",
                            with.empty() ? "" : " with ", fmt::join(with, " and ")));
        }
    }
    timing.takes_part = [&](const Stage& stage, const ProblemLabel& problem) {
        return selection.takes_part(stage, problem);
    };
    for (const TimedCase& timed : timing.cases) {
        if (!options.peers.empty() && timed.problem.input != "normal")
            throw BadUsage(
                fmt::format("--peers: libraries get N(0, 1) inputs, and '{}' has others", timed.regime));
    }
    const ProgressLine progress;
    std::set<const Stage*> timed_somewhere, compiled;
    for (const TimedCase& timed : timing.cases) {
        timed_somewhere.merge(selection.timed_on(timed));
        // What gradients start from
        if (timed.problem.pass == Pass::backward) compiled.insert(last_forward(gpu, timed.problem));
    }
    std::vector<Stage> stages;
    for (const Stage* stage : selection.stages) {
        if (!timed_somewhere.contains(stage)) continue;
        stages.push_back(*stage);
        if (gpu.why_not(*stage).empty()) compiled.insert(stage);
    }
    compiled.erase(nullptr);
    compile_stages({compiled.begin(), compiled.end()}, gpu.backend(), std::cref(progress));
    std::optional<Peers> peers;
    std::vector<std::string> without;  // what is not timed, and why
    if (!options.peers.empty() || (selection.beside_peers && options.ranks <= 1)) {
        const bool asked = !options.peers.empty();
        progress("start PyTorch", 0, 1);
        try {
            peers.emplace();
        } catch (const CannotRun& reason) {
            if (asked) throw;
            without.push_back(fmt::format("The libraries of --peers are left out: {}", reason.what()));
        }
        const std::string here = dynamic_cast<Stopwatch&>(gpu).hardware().gpu;
        if (!asked && peers && peers->device() != here) {
            without.push_back(
                fmt::format("The libraries of --peers are left out: the stages run on {}, but PyTorch on {}",
                            here, peers->device()));
            peers.reset();
        }
        if (peers) {
            timing.peers = options.named_peers(timing.peers);
            for (const auto& [name, why] : peers->missing()) {
                if (std::erase(timing.peers, name) == 0) continue;
                if (asked && options.peers != "all" && options.peers != TimeOptions::without_value)
                    throw CannotRun(fmt::format("{} cannot be timed: {}", name, why));
                without.push_back(fmt::format("{} was not timed, since {}.", name, why));
            }
        }
    }
    const std::string json = options.command.value("--json");
    if (!json.empty() && foreign_architecture(dynamic_cast<Stopwatch&>(gpu).hardware()).empty())
        timing.keep = [file = OutputFile(json)](const Results& so_far) { save_results(so_far, file); };
    const Results results = time_stages(gpu, stages, timing, std::cref(progress), peers ? &*peers : nullptr);

    Printout printout = selection.first_table ? first_printout(results) : Printout();
    if (!selection.first_table) {
        printout.facts = measurement_facts(results);
        printout.tables =
            is_sweep(options.problem.regime) ? comparison_tables(results) : timing_tables(results);
        printout.notes.push_back("Times are medians. A stage's change should show where it is marked.");
        if (peers)
            printout.notes.push_back("Over a peer: its time / the stage's; above 1 the stage is faster.");
    }
    if (!is_sweep(options.problem.regime)) {
        const auto untimed = untimed_notes(results);
        printout.notes.insert(printout.notes.end(), untimed.begin(), untimed.end());
    }
    printout.notes.insert(printout.notes.end(), without.begin(), without.end());
    if (const std::string foreign = foreign_architecture(results.hardware); !foreign.empty()) {
        printout.notes.push_back("These times are not to be recorded: " + foreign);
    }
    if (const std::string more = more_than(selection, options); !more.empty()) printout.notes.push_back(more);
    printout.failure = failure_of(results);
    printout.save = [results](const OutputFile& file) { save_results(results, file); };
    return printout;
}

// Without a GPU there is no time to measure, but all else that the table says.
Printout count_on_cpu(Device& cpu, const std::string& why_no_gpu, const TimeOptions& options) {
    const auto stages = selection_of(options, nullptr).shown;
    if (options.problem.shape) {
        const Shape& shape = *options.problem.shape;
        CpuTime time;
        std::set<Pass> passes;
        for (const Stage* stage : stages) {
            require_taken(*stage, options.custom_case(stage->pass));
            require_memory(shape, cpu, stage->pass);
            time.add_run(cpu, *stage, shape);
            if (passes.insert(stage->pass).second) time.add_reference(shape, stage->pass);
        }
        for (const Stage* stage : with_parents(stages)) time.add_run(cpu, *stage, shape);
        options.lengthy.require_patience(time);
    }
    const ProgressLine progress;
    compile_stages(with_parents(stages), cpu.backend(), std::cref(progress));
    std::vector<Verification> verifications;
    for (const Stage* stage : stages) {
        verifications.emplace_back(stage, options.problem.shape
                                              ? std::vector{options.custom_case(stage->pass)}
                                              : verification_cases(*stage, Cover::each));
    }
    BlockProgress blocks(progress);
    verify_all(cpu, verifications, std::ref(blocks));
    const auto changes = count_changes(
        cpu, stages,
        [&](const Stage& stage) {
            return options.problem.shape ? options.custom_case(stage.pass) : telling_case(stage);
        },
        std::ref(blocks));

    Printout printout;
    printout.facts = {{"GPU", Cell(Value(), "none: " + why_no_gpu)},
                      {"verified and counted on", cpu.description()}};
    printout.tables.push_back(verification_table(verifications));
    printout.tables.back().set_title(
        "Verified here; standard attention is far off where it rounds scores of 1e7 to 16 bits");
    printout.tables.push_back(change_table(changes));
    printout.tables.back().set_title(
        "Counted here: what each stage changes against its parent, on a problem where it shows");
    if (printout.tables.back().rows().empty()) printout.tables.pop_back();  // 00 alone
    if (auto recorded = shown_results(stages); recorded.empty()) {
        printout.notes.push_back("docs/results holds no recorded GPU time.");
    } else if (!options.problem.shape) {
        const Selection selection = selection_of(options, [](const Stage&) { return true; });
        for (Results& results : recorded) {
            selection.filter(results, options.problem.regime);
            for (Table& table : rate_tables(results)) {
                table.set_title(recorded_label(results) + ": " + table.title());
                printout.tables.push_back(std::move(table));
            }
        }
        printout.notes.push_back("Nothing was timed here. A mark shows where a stage's change should show.");
        if (const std::string more = more_than(selection, options); !more.empty())
            printout.notes.push_back(more);
    }
    printout.listings = failure_reports(verifications);
    printout.failure = failure_of(verifications);
    return printout;
}

Printout run(const TimeOptions& options) {
    options.problem.check();
    options.named_peers({});
    if (!options.like.empty())
        throw BadUsage("run it as " + lab_command({"time", "--like"}) + " in the folder of the sources");
    if (options.ranks != 0 && !options.problem.shape)
        throw BadUsage("--ranks goes with --shape, as in --ranks 2 --shape 1,32,8,65536,65536,128");
    if (options.ranks != 0 && options.stages.words.empty())
        throw BadUsage("--ranks needs stages that take it");
    require_ranks(options.stages.selected(), options.ranks);
    if (options.ranks > 1 && !options.peers.empty())
        throw BadUsage("--peers are for one GPU, not for --ranks");
    std::string why_no_gpu;
    if (has_device(Backend::gpu, &why_no_gpu)) return time_on_gpu(*open_device(Backend::gpu), options);
    if (!options.peers.empty()) throw CannotRun("--peers needs a GPU: " + why_no_gpu);
    return count_on_cpu(*open_first({Backend::cpu}), why_no_gpu, options);
}

}  // namespace

void add_time(CommandLine& lab) {
    add_command<TimeOptions>(
        lab, "time", "Verify and time the stages; without a GPU, verify, count, and show recorded times",
        run);
}

}  // namespace ladder
