#include "harness/time/selection.h"

#include <algorithm>

#include "harness/ladder/ladder.h"
#include "harness/problem/regimes.h"
#include "harness/problem/shape.h"

namespace ladder {

bool Selection::takes_part(const Stage& stage, const Shape& shape) const {
    if (whole) return true;
    if (named)
        return stage.has_head_dim(shape.d) || std::find(shown.begin(), shown.end(), &stage) != shown.end();
    const bool for_such =
        is_core(stage) || stage.pass == Pass::backward || is_decoding(stage.shows_in) == counts_bytes(shape);
    return for_such && stage.has_head_dim(shape.d);
}

bool Selection::matters(const std::string& regime) const {
    return whole ||
           std::any_of(shown.begin(), shown.end(), [&](const Stage* s) { return s->shows_in == regime; });
}

void Selection::filter(Results& results, const std::string& regime) const {
    const auto elsewhere = [&](const ProblemLabel& row) {
        return regime.empty() ? !matters(row.regime) : row.regime != regime;
    };
    std::erase_if(results.rows, [&](const Row& row) {
        const auto is_its_stage = [&](const Stage* stage) {
            return stage->number == row.stage && takes_part(*stage, row.shape);
        };
        return elsewhere(row) || std::none_of(stages.begin(), stages.end(), is_its_stage);
    });
    std::erase_if(results.peers, elsewhere);
}

Selection select_timed(const std::vector<const Stage*>& named, bool whole, const std::string& regime,
                       bool last_ones) {
    Selection selection;
    selection.whole = whole;
    selection.named = !named.empty();
    selection.stages = named;
    if (named.empty()) {
        for (const Stage& stage : stages()) {
            if (whole || is_core(stage) || (last_ones && is_last_of_part(stage)))
                selection.stages.push_back(&stage);
        }
    }
    selection.shown = selection.stages;
    const bool one = named.size() == 1, sweep = is_sweep(regime);
    selection.beside_peers = !sweep && (one || (named.empty() && !whole));
    if (one && !sweep) {
        selection.stages = with_parents(named);
        std::rotate(selection.stages.begin(), selection.stages.begin() + 1, selection.stages.end());
    }
    // Of one's own, a stage may show in none of them.
    const auto in_default_run = [&](const Regime& r) { return !r.sweep && selection.matters(r.name); };
    if (std::none_of(regimes().begin(), regimes().end(), in_default_run)) selection.whole = true;
    return selection;
}

}  // namespace ladder
