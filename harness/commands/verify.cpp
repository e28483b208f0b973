#include "harness/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/base/progress.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/verify/verification.h"

namespace ladder {
namespace {

struct VerifyOptions {
    explicit VerifyOptions(Command& command) : stages(command), problem(command), backend(command) {
        command.flag("--quick", quick, "One case for each idea instead of all");
        command.flag("--orders", orders,
                     "CPU: each case with threads forward, reversed and shuffled, compared bit by bit");
        command
            .option("--sms", multiprocessors,
                    "CPU: multiprocessors of the machine that it plays [each case's own]")
            .within(1, 132);
    }

    StageOptions stages;
    CaseOptions problem;
    BackendOptions backend;
    bool quick = false;
    bool orders = false;
    int multiprocessors = 0;  ///< 0 for each case's own
};

// The one case that --shape describes.
Case described_case(const VerifyOptions& options) {
    Case c = options.problem.with_default(*options.problem.shape);
    c.multiprocessors = options.multiprocessors;
    return c;
}

// That case; else the stage's own, of which the other options keep those that agree.
std::vector<Case> cases_of(const Stage& stage, const VerifyOptions& options) {
    const CaseOptions& wanted = options.problem;
    if (wanted.shape) return {described_case(options)};
    std::vector<Case> cases = verification_cases(stage, options.quick);
    std::erase_if(cases, [&](const Case& c) {
        return (wanted.causal && !c.causal) || c.dtype != wanted.dtype.value_or(c.dtype) ||
               c.layout != wanted.layout.value_or(c.layout) || c.input != wanted.input.value_or(c.input);
    });
    for (Case& c : cases) {
        c.seed = wanted.seed.value_or(c.seed);
        if (options.multiprocessors != 0) c.multiprocessors = options.multiprocessors;
    }
    if (cases.empty()) throw BadUsage("no verification case is like that; give one with --shape");
    return cases;
}

Document run(const VerifyOptions& options) {
    const ProgressLine progress;
    std::vector<Verification> verifications;
    for (const Stage* stage : options.stages.selected())
        verifications.emplace_back(stage, cases_of(*stage, options));
    if (options.orders && options.backend.order != "forward") throw BadUsage("--orders runs every --order");
    const auto device = options.backend.open(options.orders || options.multiprocessors != 0);
    if (options.problem.shape) require_memory(*options.problem.shape, *device);

    if (device->backend() == Backend::gpu) {  // its multiprocessors are what they are
        for (Verification& v : verifications) {
            for (Case& c : v.cases) c.multiprocessors = 0;
        }
    }

    compile_stages(options.stages.selected(), device->backend(), std::cref(progress));
    verify_all(*device, verifications, std::cref(progress),
               options.orders ? Runs::in_all_orders : Runs::twice);

    Document document;
    document.facts = {{"backend", name(device->backend())}, {"device", device->description()}};
    if (options.problem.shape) document.facts.emplace_back("case", described_case(options).description());
    document.tables = {verification_table(verifications)};
    document.listings = failure_reports(verifications);
    document.failure = failure_of(verifications);
    return document;
}

}  // namespace

void add_verify(CommandLine& lab) {
    add_command<VerifyOptions>(lab, "verify", "Compare stages with standard attention in double precision",
                               run);
}

}  // namespace ladder
