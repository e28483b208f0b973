#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/verify/one_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "harness/base/progress.h"
#include "harness/cases/random.h"
#include "harness/commands/commands.h"
#include "harness/commands/cpu_time.h"
#include "harness/commands/options.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/time/results.h"
#include "harness/verify/all_cases.h"
#include "harness/verify/kept.h"

namespace ladder {
namespace {

struct VerifyOptions {
    explicit VerifyOptions(Command& command)
        : stages(command, "all by default"), problem(command), backend(command), lengthy(command) {
        command.flag("--quick", quick, "One case for each idea instead of all cases");
        command.flag("--pairs", pairs, "Every two of what a problem can be together, as lab check does");
        command.flag("--kept", kept,
                     "Leave out stages that passed before, if nothing that their verdict was made of has "
                     "changed since");
        command.flag("--orders", orders, "CPU: run each case in every --order, and compare bit by bit");
        command.option("--sms", multiprocessors, "CPU: SMs of the simulated GPU [each case's own]")
            .within(1, most_multiprocessors);
        command.option("--scale", scale, "Softmax scale, with --shape [1 / sqrt(D)]");
        add_ranks(command, ranks, "each case's own");
        command
            .option("--random", random,
                    "Verify N problems, drawn by --seed from all valid ones, and if one fails, find the "
                    "smallest that does")
            .within(1, 1000000);
    }

    StageOptions stages;
    CaseOptions problem;
    BackendOptions backend;
    LongOption lengthy;
    bool quick = false;
    bool pairs = false;
    bool kept = false;
    bool orders = false;
    int multiprocessors = 0;  ///< 0 for each case's own
    int ranks = 0;            ///< 0 for each case's own
    std::optional<float> scale;
    int random = 0;
};

// The one case that --shape describes, for a pass.
Case described_case(const VerifyOptions& options, Pass pass) {
    Case c = options.problem.with_default(*options.problem.shape);
    c.pass = pass;
    c.multiprocessors = options.multiprocessors;
    c.features.ranks = std::max(1, options.ranks);
    c.scale = options.scale;
    return c;
}

bool is_of_the_ladder(const Stage& stage) {
    return find_stage(stage.number) == &stage;
}

std::uint64_t seed_of(const VerifyOptions& options) {
    return options.problem.seed.value_or(1);
}

// For every stage those of the problems that it has the head dimension for.
std::vector<Verification> drawn(const std::vector<const Stage*>& stages, const VerifyOptions& options,
                                bool on_gpu) {
    std::set<int> dims;
    std::vector<Verification> verifications;
    for (const Stage* stage : stages) {
        dims.insert(stage->head_dims.begin(), stage->head_dims.end());
        verifications.emplace_back(stage, std::vector<Case>());
    }
    std::mt19937_64 random(seed_of(options));
    for (int k = 0; k < options.random; ++k) {
        Case c = random_case(random, {dims.begin(), dims.end()}, k);
        if (on_gpu && c.layout == Layout::far)
            c.layout = Layout::mixed;  // all that lies between rows is memory
        const std::uint64_t seed = random();
        for (Verification& v : verifications) {
            if (!v.stage->has_head_dim(c.shape.d)) continue;
            v.cases.push_back(c);
            v.cases.back().pass = v.stage->pass;
            draw_features(seed, *v.stage, v.cases.back());
        }
    }
    return verifications;
}

// For each stage that failed, its smallest failure and the command that shows it.
std::vector<Listing> smallest_failures(Device& device, const std::vector<Verification>& verifications,
                                       Runs runs, const OnStep& on_step) {
    std::vector<Listing> listings;
    for (const Verification& v : verifications) {
        if (!v.first_failed) continue;
        int tries = 0;
        const auto check = [&](const Case& c) {
            on_step(fmt::format("shrink {}, {}", v.stage->folder(), description_of(c)), tries, tries + 1);
            tries += 1;
            Reference reference(c);
            return verify(device, *v.stage, reference, runs);
        };
        const std::string named = is_of_the_ladder(*v.stage)
                                      ? std::to_string(v.stage->number)
                                      : std::filesystem::path(v.stage->source).parent_path().string();
        const Case smallest = shrink(*v.first_failed, [&](const Case& c) { return !check(c).passed; });
        listings.push_back(
            {"smallest_" + v.stage->folder(),
             fmt::format("the smallest problem that fails like it: {}\n{}\n\n{} --backend {} {}\n",
                         description_of(smallest), check(smallest).report, lab_command({"verify", named}),
                         name(device.backend()), options_of(smallest)),
             "", nullptr, Lines::wrapped});
    }
    return listings;
}

// That case; else the stage's own, of which the other options keep those that agree.
std::vector<Case> cases_of(const Stage& stage, const VerifyOptions& options) {
    const CaseOptions& wanted = options.problem;
    if (wanted.shape) {
        const Case c = described_case(options, stage.pass);
        require_taken(stage, c);
        return {c};
    }
    require_shape_for(wanted.features);
    std::vector<Case> cases = verification_cases(stage, options.quick   ? Cover::each
                                                        : options.pairs ? Cover::pairs
                                                                        : Cover::all);
    std::erase_if(cases, [&](const Case& c) {
        return (wanted.causal && !c.causal) || c.dtype != wanted.dtype.value_or(c.dtype) ||
               c.layout != wanted.layout.value_or(c.layout) || c.input != wanted.input.value_or(c.input) ||
               (options.ranks != 0 && c.features.ranks != options.ranks);
    });
    std::uint64_t half = 0;  // what one of the orders finds, those of other inputs find
    for (Case& c : cases) {
        c.seed = wanted.seed.value_or(options.orders ? c.seed + half++ % 2 : c.seed);
        if (options.multiprocessors != 0) c.multiprocessors = options.multiprocessors;
    }
    return cases;
}

// What is kept of a stage's verdict on its cases. They say all of a problem; and a run, how threads take
// turns.
KeptVerdict kept_verdict(const Verification& v, const VerifyOptions& options, const Device& device) {
    const BackendOptions& backend = options.backend;
    std::string what =
        fmt::format("verify on {}, order {} {}, {} workers{}", name(device.backend()), backend.order,
                    backend.order_seed, backend.workers, options.orders ? ", all orders" : "");
    for (const Case& c : v.cases) what += "\n" + description_of(c);
    return {*v.stage, what};
}

// What a recording needs to say of the run.
void add_record(Printout& printout, const std::vector<Verification>& verifications) {
    printout.data = {{"kind", "verification"}, {"date", utc_now()}, {"commit", current_commit()}};
    Table kernels("kernels", "", {{"stage", "stage"}, {"fingerprint", "fingerprint"}});
    for (const Verification& v : verifications) {
        const std::string folder = v.stage->folder();
        if (is_of_the_ladder(*v.stage)) kernels.add_row({folder, kernel_fingerprint(folder)});
    }
    printout.data_tables.push_back(kernels);
}

// The ladder's own cases take minutes and say how far they are; what a user names or draws has no bound.
void require_patience(const VerifyOptions& options, const std::vector<Verification>& verifications,
                      const Device& device) {
    CpuTime time;
    std::set<std::string> with_reference;
    for (const Verification& v : verifications) {
        for (const Case& c : v.cases) {
            time.add_run(device, *v.stage, c.shape, options.orders ? 4 : 1);
            if (with_reference.insert(description_of(c)).second) time.add_reference(c.shape, c.pass);
        }
    }
    options.lengthy.require_patience(time);
}

Printout run(const VerifyOptions& options) {
    const ProgressLine progress;
    std::vector<Verification> verifications;
    require_ranks(options.stages.selected(), options.ranks);
    if (options.scale && !options.problem.shape) throw BadUsage("--scale needs --shape");
    if (options.scale && !std::isfinite(*options.scale)) throw BadUsage("--scale must be a finite number");
    if (options.orders && options.backend.order != "forward") throw BadUsage("--orders runs every --order");
    if (options.quick && options.pairs) throw BadUsage("--quick and --pairs are two choices of cases");
    if (options.kept && (options.problem.shape || options.random > 0))
        throw BadUsage("--kept is for the stages' own cases: it goes with neither --shape nor --random");
    if (options.random > 0) {
        const CaseOptions& wanted = options.problem;
        if (wanted.shape || wanted.causal || wanted.features != Features() || wanted.dtype || wanted.layout ||
            wanted.input || options.ranks != 0 || options.quick || options.pairs)
            throw BadUsage("--random draws all of a problem: it goes with --seed alone");
    } else {
        for (const Stage* stage : options.stages.selected()) {
            if (options.kept && !is_of_the_ladder(*stage))
                throw BadUsage("--kept is for the ladder's own stages");
            Verification& v = verifications.emplace_back(stage, cases_of(*stage, options));
            if (v.cases.empty()) v.why_not = "no verification case of it fits these options";
        }
        if (std::ranges::all_of(verifications, [](const Verification& v) { return v.cases.empty(); }))
            throw BadUsage("no verification case fits these options; give one with --shape");
    }
    const auto device = options.backend.open(options.orders || options.multiprocessors != 0);
    if (options.random > 0) {
        verifications = drawn(options.stages.selected(), options, device->backend() == Backend::gpu);
    }
    if (options.problem.shape) {
        for (const Verification& v : verifications)
            require_memory(*options.problem.shape, *device, v.stage->pass);
    }
    if (options.problem.shape || options.random > 0) require_patience(options, verifications, *device);

    std::map<const Stage*, KeptVerdict> to_keep;
    std::vector<const Stage*> to_run;
    for (Verification& v : verifications) {
        if (options.kept && !v.cases.empty()) {
            const auto& [stage, verdict] = *to_keep.emplace(v.stage, kept_verdict(v, options, *device)).first;
            if (v.passed_before = verdict.holds(); v.passed_before) v.cases.clear();
        }
        if (!v.cases.empty()) to_run.push_back(v.stage);
    }
    compile_stages(runnable(to_run, *device), device->backend(), std::cref(progress));
    const Runs runs = options.orders ? Runs::in_all_orders : Runs::usual;
    BlockProgress blocks(progress);
    verify_all(*device, verifications, std::ref(blocks), runs);
    for (const Verification& v : verifications) {
        if (options.kept && v.passed > 0 && v.failed == 0 && v.why_not.empty()) to_keep.at(v.stage).keep();
    }

    Printout printout;
    printout.facts = {{"backend", name(device->backend())}, {"device", device->description()}};
    if (options.random > 0) {
        printout.facts.emplace_back("problems",
                                    fmt::format("{}, drawn by seed {}", options.random, seed_of(options)));
    }
    if (options.problem.shape) {
        printout.facts.emplace_back("case",
                                    description_of(described_case(options, verifications[0].stage->pass)));
    }
    printout.tables = {verification_table(verifications)};
    printout.data_tables = {error_table(verifications)};
    if (device->backend() == Backend::gpu) add_record(printout, verifications);
    printout.listings = failure_reports(verifications);
    if (options.random > 0) {
        for (Listing& listing : smallest_failures(*device, verifications, runs, std::cref(progress)))
            printout.listings.push_back(std::move(listing));
    }
    printout.failure = failure_of(verifications);
    return printout;
}

}  // namespace

void add_verify(CommandLine& lab) {
    add_command<VerifyOptions>(lab, "verify",
                               "Compare stages with attention, or its gradients, in double precision", run);
}

}  // namespace ladder
