#include "harness/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/base/progress.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/problem/shape.h"
#include "harness/verify/verification.h"

namespace ladder {
namespace {

struct Options {
    explicit Options(Command& command) : stages(command), problem(command), backend(command) {
        command.flag("--quick", quick, "One case for each idea instead of all");
    }

    StageOptions stages;
    CaseOptions problem;
    BackendOptions backend;
    bool quick = false;
};

// The one case that --shape describes; else the stage's own, of which the other options keep those that
// agree.
std::vector<Case> cases_of(const Stage& stage, const Options& options) {
    const CaseOptions& wanted = options.problem;
    if (wanted.shape) return {wanted.with_default(*wanted.shape)};
    std::vector<Case> cases = verification_cases(stage, options.quick);
    std::erase_if(cases, [&](const Case& c) {
        return (wanted.causal && !c.causal) || c.dtype != wanted.dtype.value_or(c.dtype) ||
               c.layout != wanted.layout.value_or(c.layout) || c.input != wanted.input.value_or(c.input);
    });
    for (Case& c : cases) c.seed = wanted.seed.value_or(c.seed);
    if (cases.empty()) throw BadUsage("no verification case is like that; give one with --shape");
    return cases;
}

Document run(const Options& options) {
    const ProgressLine progress;
    std::vector<Verification> verifications;
    for (const Stage* stage : options.stages.selected())
        verifications.emplace_back(stage, cases_of(*stage, options));
    const auto device = options.backend.open();
    if (options.problem.shape) require_memory(*options.problem.shape, *device);

    verify_all(*device, verifications, std::cref(progress));

    Document document;
    document.facts = {{"backend", name(device->backend())}, {"device", device->description()}};
    if (const auto& shape = options.problem.shape) {
        document.facts.emplace_back("case", options.problem.with_default(*shape).description());
    }
    document.tables = {verification_table(verifications)};
    document.listings = failure_reports(verifications);
    document.failure = failure_of(verifications);
    return document;
}

}  // namespace

void add_verify(CommandLine& lab) {
    add_command(lab, "verify", "Compare stages with standard attention in double precision", run);
}

}  // namespace ladder
