#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/cases/regimes.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/problem/case.h"
#include "harness/time/fastest.h"

namespace ladder {
namespace {

/// Of all pairs of a query row and a key, those that the mask leaves.
double visible_share(const ProblemLabel& p) {
    if (!p.causal) return 1;
    const double Nq = p.shape.Nq, Nk = p.shape.Nk;
    return Nq <= Nk ? 1 - (Nq - 1) / (2 * Nk) : (Nk + 1) / (2 * Nq);
}

double square_of_distance(const Position& a, const Position& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/// The first of these that is as fast as any of them was; null if none was timed.
const Stage* first_of_the_fastest(const std::vector<const Stage*>& stages, const RecordedTimes& times) {
    const auto time_of = [&](const Stage* stage) {
        const auto found = times.median_ms.find(stage->folder());
        return found == times.median_ms.end() ? std::numeric_limits<double>::infinity() : found->second;
    };
    double best = std::numeric_limits<double>::infinity();
    for (const Stage* stage : stages) best = std::min(best, time_of(stage));
    const auto first = std::find_if(stages.begin(), stages.end(), [&](const Stage* stage) {
        return best >= DefaultStages::equally_fast * time_of(stage);
    });
    return first == stages.end() || std::isinf(best) ? nullptr : *first;
}

}  // namespace

ProblemKind kind_of(const ProblemLabel& problem) {
    Features features = problem.features;
    if (features.page_size != 0) features.lengths.clear();  // pages go with lengths or without
    return {problem.pass, problem.shape.d, features_of(features)};
}

Position position_of(const ProblemLabel& p) {
    const Shape& s = p.shape;
    const double group = double(s.H) / s.Hkv;
    const double rows = s.Nq * group;
    return {std::log2(rows) + (rows > 16 ? 2 : 0),
            std::log2(s.Nk),
            std::log2(group) / 2,
            std::log2(visible_share(p)),
            std::log2(double(s.B) * s.H * s.Nq) / 2,
            std::log2(std::max(1, p.features.page_size)) / 4};
}

std::vector<const RecordedTimes*> nearest_to(const ProblemLabel& problem,
                                             const std::vector<RecordedTimes>& recorded, std::size_t count) {
    std::vector<const RecordedTimes*> near;
    const ProblemKind kind = kind_of(problem);
    for (const RecordedTimes& times : recorded) {
        if (kind_of(times) == kind) near.push_back(&times);
    }
    const Position here = position_of(problem);
    std::stable_sort(near.begin(), near.end(), [&](const RecordedTimes* a, const RecordedTimes* b) {
        return square_of_distance(position_of(*a), here) < square_of_distance(position_of(*b), here);
    });
    near.resize(std::min(near.size(), count));
    return near;
}

DefaultStages::DefaultStages(const std::vector<RecordedTimes>& recorded,
                             const std::function<bool(const Stage&)>& runs,
                             const std::vector<Stage>& ladder) {
    for (const Stage& stage : ladder) {
        if (is_experiment(stage) || stage.products != Products::of_16_bits || !runs(stage)) continue;
        (stage.takes.empty() ? candidates_ : with_features_).push_back(&stage);
    }
    const auto preferred = [&](const Stage* a, const Stage* b) {
        return std::tuple(!is_for_order(*a, ladder), b->takes.size(), reading_order(*a)) >
               std::tuple(!is_for_order(*b, ladder), a->takes.size(), reading_order(*b));
    };
    std::stable_sort(candidates_.begin(), candidates_.end(), preferred);
    std::stable_sort(with_features_.begin(), with_features_.end(), preferred);
    for (const RecordedTimes& times : recorded) {
        const bool plain = features_of(times.features).empty();
        choices_[kind_of(times)].push_back(
            {position_of(times), first_of_the_fastest(plain ? candidates_ : with_features_, times)});
    }
}

const Stage* DefaultStages::find(const ProblemLabel& problem) const {
    const auto first = [](const std::vector<const Stage*>& stages, const auto& will_do) {
        const auto found = std::find_if(stages.begin(), stages.end(), will_do);
        return found == stages.end() ? nullptr : *found;
    };
    const auto computes = [&](const Stage* stage) {
        return stage->pass == problem.pass && stage->has_head_dim(problem.shape.d);
    };
    const Case c{.shape = problem.shape, .features = problem.features};
    const ProblemKind kind = kind_of(problem);
    if (const auto alike = choices_.find(kind); alike != choices_.end()) {
        const Position here = position_of(problem);
        const auto nearest = std::ranges::min_element(alike->second, {}, [&](const Choice& choice) {
            return square_of_distance(choice.position, here);
        });
        if (nearest->stage != nullptr && why_not_taken(*nearest->stage, c).empty()) return nearest->stage;
    }
    if (!std::get<2>(kind).empty()) {
        const auto takes_it = [&](const Stage* stage) {
            return computes(stage) && why_not_taken(*stage, c).empty();
        };
        const bool decodes = problem.features.has_cache() || counts_bytes(problem.shape);
        const Stage* in_its_field = first(with_features_, [&](const Stage* stage) {
            return takes_it(stage) && is_decoding(stage->shows_in) == decodes;
        });
        return in_its_field != nullptr ? in_its_field : first(with_features_, takes_it);
    }
    return first(candidates_, [&](const Stage* stage) {
        const bool in_its_field =
            stage->pass == Pass::backward || is_decoding(stage->shows_in) == (problem.shape.Nq == 1);
        return computes(stage) && in_its_field;
    });
}

}  // namespace ladder
