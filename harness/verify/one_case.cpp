#include "harness/verify/one_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
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

/// How many runs on a GPU are judged. Sums in any order are others each time; of a large problem, whose
/// judging takes seconds, one run has many.
int judged_runs(const Stage& stage, const Shape& s) {
    if (stage.repeats_exactly) return 2;
    const std::int64_t sums = std::int64_t{s.B} * s.H * s.Nq * s.d;
    return static_cast<int>(std::clamp<std::int64_t>((1 << 24) / sums, 2, 10));
}

std::vector<OtherRun> other_runs(Runs runs, const Device& device, const Stage& stage, const Shape& shape) {
    std::vector<OtherRun> others;
    if (runs == Runs::usual) {
        if (device.backend() != Backend::gpu) return others;
        others.push_back({"a second run", [] {}});
        for (int run = 3; run <= judged_runs(stage, shape); ++run)
            others.push_back({fmt::format("run {}", run), [] {}});
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

/// The last request of a batch as a problem of its own; none if some feature of it would be another.
std::optional<Case> last_request(const Case& c) {
    const auto is_kept = [&](const FeatureInfo& info) {
        return info.is_kept_alone || !info.is_in(c.features);
    };
    if (c.shape.B == 1 || !c.sampled.empty() || !std::ranges::all_of(all_features(), is_kept))
        return std::nullopt;
    Case alone = c;
    alone.sampled = {{c.shape.B - 1, 0}};
    alone.shape.B = 1;
    return alone;
}

/// What the last of `batch` entries has of a tensor.
template <class T>
std::vector<T> last_entry(const std::vector<T>& all, int batch) {
    return {all.end() - static_cast<std::ptrdiff_t>(all.size() / batch), all.end()};
}

/// How the last request's results differ where it is alone; empty if they are the same bits.
std::string report_alone(Device& device, const Stage& stage, const Case& c, const Inputs& inputs,
                         const Outputs& in_batch) {
    const std::optional<Case> alone = last_request(c);
    if (!alone) return "";
    const auto last = [&](const auto& all) { return last_entry(all, c.shape.B); };
    const Inputs its{last(inputs.Q),  last(inputs.K), last(inputs.V),
                     last(inputs.dO), last(inputs.O), last(inputs.L)};
    const Outputs outputs = run_guarded(device, stage, *alone, inputs_of_ranks(device, stage, *alone, its));
    const Outputs before{last(in_batch.O), last(in_batch.L), last(in_batch.dQ), last(in_batch.dK),
                         last(in_batch.dV)};
    return report_difference(*alone, before, outputs, "being alone and not last of its batch");
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
        for (const OtherRun& other : other_runs(runs, device, stage, c.shape)) {
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
        if (verdict.passed && runs == Runs::usual && is_batch_invariant(stage)) {
            run = "a batch of the last request alone";
            verdict.report = report_alone(device, stage, c, reference.inputs(), first);
            verdict.passed = verdict.report.empty();
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
