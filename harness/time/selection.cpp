#include "harness/time/selection.h"

#include <algorithm>
#include <set>

#include "harness/cases/regimes.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"

namespace ladder {
namespace {

bool shows_in(const Stage& stage, const std::string& regime) {
    return stage.shows_in == regime;
}

/// Whether the change of a stage of the algorithm, or of the next one, should show in the regime.
bool is_seen_in(const Stage& stage, const std::string& regime) {
    return std::any_of(stages().begin(), stages().end(), [&](const Stage& other) {
        return is_core(other) && shows_in(other, regime) &&
               (other.number == stage.number || other.parent == stage.number);
    });
}

/// Of more than three problems of a regime the first, the middle and the last, else the last: as many as
/// columns fit in 80.
bool is_in_first_table(const ProblemLabel& problem) {
    const Regime* regime = regime_named(problem.regime);
    if (regime == nullptr) return false;
    const std::size_t n = regime->problems.size();
    const auto few = n > 3 ? std::vector{std::size_t(0), n / 2, n - 1} : std::vector{n - 1};
    return std::any_of(few.begin(), few.end(), [&](std::size_t i) {
        return regime->problems[i].shape == problem.shape && regime->problems[i].causal == problem.causal;
    });
}

}  // namespace

bool Selection::takes_part(const Stage& stage, const ProblemLabel& problem) const {
    if (whole) return true;
    const auto is_it = [&](const Stage* other) { return other->folder() == stage.folder(); };
    if (named) return stage.has_head_dim(problem.shape.d) || std::any_of(shown.begin(), shown.end(), is_it);
    if (!stage.has_head_dim(problem.shape.d)) return false;
    if (is_core(stage)) return !first_table || is_seen_in(stage, problem.regime);
    const auto part = parts.find({part_of(stage).first, counts_bytes(problem.shape)});
    if (part == parts.end()) return false;
    const Stage* its_default = part->second.find(problem);
    return its_default != nullptr && is_it(its_default);
}

bool Selection::matters(const ProblemLabel& problem) const {
    if (whole) return true;
    const auto any_shows = [&](const std::vector<const Stage*>& of) {
        return std::any_of(of.begin(), of.end(),
                           [&](const Stage* s) { return shows_in(*s, problem.regime); });
    };
    if (!first_table) return any_shows(shown);
    return (any_shows(shown) || (problem.regime == name(Pass::backward) && !parts.empty())) &&
           is_in_first_table(problem);
}

std::set<const Stage*> Selection::timed_on(const TimedCase& timed) const {
    std::set<const Stage*> found;
    for (const Stage* stage : stages) {
        if (stage->pass == timed.problem.pass && why_not_taken(*stage, timed.problem).empty() &&
            takes_part(*stage, label_of(timed)))
            found.insert(stage);
    }
    return found;
}

TimingOptions Selection::timing(DType dtype, const std::string& regime) const {
    TimingOptions options = timing_options(dtype, regime);
    if (first_table) options.be_brief(0.25);
    std::erase_if(options.cases, [&](const TimedCase& timed) {
        return (regime.empty() && !matters(label_of(timed))) || timed_on(timed).empty();
    });
    return options;
}

void Selection::filter(Results& results, const std::string& regime) const {
    const auto elsewhere = [&](const ProblemLabel& row) {
        return regime.empty() ? !matters(row) : row.regime != regime;
    };
    std::erase_if(results.rows, [&](const Row& row) {
        const auto is_its_stage = [&](const Stage* stage) {
            return stage->number == row.stage && takes_part(*stage, row);
        };
        return elsewhere(row) || std::none_of(stages.begin(), stages.end(), is_its_stage);
    });
    std::erase_if(results.peers, elsewhere);
}

Selection select_timed(const std::vector<const Stage*>& named, bool whole, const std::string& regime,
                       const std::function<bool(const Stage&)>& runs) {
    Selection selection;
    selection.whole = whole;
    selection.named = !named.empty();
    selection.first_table = named.empty() && !whole && regime.empty();
    selection.stages = selection.shown = named;
    if (named.empty()) {
        // A stage whose change shows in a sweep alone is for that one, but gradients are wanted everywhere.
        const auto is_of_part = [&](const Stage& stage) {
            const Regime* known = regime_named(stage.shows_in);
            return !is_core(stage) && !is_experiment(stage) && known != nullptr &&
                   (!known->sweep || stage.pass == Pass::backward || shows_in(stage, regime)) &&
                   stage.products == Products::of_16_bits && runs && runs(stage);
        };
        std::set<int> parts;
        for (const Stage& stage : stages()) {
            if (whole || is_core(stage)) selection.shown.push_back(&stage);
            if (whole || is_core(stage) || is_of_part(stage)) selection.stages.push_back(&stage);
            if (!whole && is_of_part(stage)) parts.insert(part_of(stage).first);
        }
        for (const int part : parts) {
            for (const bool bytes : {false, true}) {
                selection.parts.try_emplace({part, bytes}, recorded_times(), [&](const Stage& stage) {
                    return part_of(stage).first == part && is_of_part(stage) &&
                           (stage.pass == Pass::backward || is_decoding(stage.shows_in) == bytes);
                });
            }
        }
    }
    const bool one = named.size() == 1, sweep = is_sweep(regime);
    selection.beside_peers = !sweep && (one || (named.empty() && !whole));
    if (one && !sweep) {
        selection.stages = with_parents(named);
        std::rotate(selection.stages.begin(), selection.stages.begin() + 1, selection.stages.end());
    }
    // Of one's own, a stage may show in none of them.
    const auto in_default_run = [&](const Regime& r) {
        return !r.sweep && std::any_of(selection.shown.begin(), selection.shown.end(),
                                       [&](const Stage* stage) { return shows_in(*stage, r.name); });
    };
    if (std::none_of(regimes().begin(), regimes().end(), in_default_run)) selection.whole = true;
    return selection;
}

}  // namespace ladder
