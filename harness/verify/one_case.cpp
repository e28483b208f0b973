#include "harness/verify/one_case.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/verify/guarded_run.h"
#include "harness/verify/parts.h"
#include "harness/verify/report.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

/// Another run of a stage: what differs from the first, and how reports call it.
struct OtherRun {
    std::string name;
    std::function<void()> prepare;
};

std::vector<OtherRun> other_runs(Runs runs, const Device& device, const Stage& stage) {
    std::vector<OtherRun> others;
    if (runs == Runs::usual) {
        if (device.backend() != Backend::gpu) return others;
        others.push_back({"a second run", [] {}});
        const int judged = stage.repeats_exactly ? 2 : 10;  // the order of sums is another each time
        for (int run = 3; run <= judged; ++run) others.push_back({fmt::format("run {}", run), [] {}});
        return others;
    }
#ifdef LADDER_HAS_CPU
    using simt::Order;
    for (const auto& [name, order, seed] : {std::tuple{"--order reversed", Order::reversed, 1},
                                            {"--order shuffled --order-seed 1", Order::shuffled, 1},
                                            {"--order shuffled --order-seed 2", Order::shuffled, 2},
                                            {"--order delayed --order-seed 1", Order::delayed, 1}}) {
        others.push_back({name, [order = order, seed = seed] {
                              simt::options().order = order;
                              simt::options().seed = static_cast<std::uint64_t>(seed);
                          }});
    }
#endif
    return others;
}

}  // namespace

Verdict verify(Device& device, const Stage& stage, Reference& reference, Runs runs) {
    const Case& c = reference.problem;
#ifdef LADDER_HAS_CPU
    const simt::KeptOptions kept;
    if (runs == Runs::in_all_orders) simt::options().order = simt::Order::forward;
#endif
    Verdict verdict;
    std::string run;  // that is not the first
    try {
        require_room(device, stage, c);
        const std::list<DeviceInputs> inputs = inputs_of_ranks(device, stage, c, reference.inputs());
        const Outputs first = run_guarded(device, stage, c, inputs);
        const Expected& expected = reference.expected(stage.products);
        verdict = judge(c, expected, first, stage.rounds_large_scores);
        for (const OtherRun& other : other_runs(runs, device, stage)) {
            if (!verdict.passed) break;
            run = other.name;
            other.prepare();
            const Outputs outputs = run_guarded(device, stage, c, inputs);
            if (stage.repeats_exactly) {
                verdict.report = report_difference(c, first, outputs, run);
                verdict.passed = verdict.report.empty();
                continue;
            }
            const Verdict again = judge(c, expected, outputs, stage.rounds_large_scores);
            if (!again.passed || again.max_error > verdict.max_error) verdict = again;
            if (!again.passed) verdict.report += fmt::format("\n  in {}: the first passed", run);
        }
    } catch (const CheckFailed& failure) {
        verdict.passed = false;
        verdict.report = failure.what();
        if (!run.empty()) verdict.report += fmt::format("\n  in {}: the first passed", run);
    }
    return verdict;
}

Verdict verify(Device& device, const Stage& stage, const Case& c) {
    Case of_its_pass = c;
    of_its_pass.pass = stage.pass;
    Reference reference(of_its_pass);
    return verify(device, stage, reference);
}

}  // namespace ladder
