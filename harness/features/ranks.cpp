#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "harness/base/numbers.h"
#include "harness/features/feature.h"

namespace ladder {
namespace {

/// Rows or keys that the ranks divide.
int divided_rows(const Stage& stage, const Shape& shape) {
    return stage.divides_rows ? std::min(shape.Nq, shape.Nk) : shape.Nk;
}

std::string why_not_divided(const Stage& stage, const Case& c) {
    if (c.layout != Layout::bhnd)
        return fmt::format("{} takes K and V in one piece on several ranks: --layout bhnd", stage.folder());
    if (c.causal && c.shape.Nq != c.shape.Nk && stage.divides_rows) {
        return fmt::format("{} takes a causal mask on several ranks for as many keys as query rows alone",
                           stage.folder());
    }
    const int chunks = stage.chunks * c.features.ranks, rows = divided_rows(stage, c.shape);
    if (rows >= chunks) return "";
    return fmt::format("{} cuts a sequence for {} ranks into {} chunks: {} {} are too few", stage.folder(),
                       c.features.ranks, chunks, rows, stage.divides_rows ? "rows" : "keys");
}

/// As many as the sequence has chunks for.
void draw_ranks(std::mt19937_64& random, const Stage& stage, Case& c) {
    constexpr int drawn[] = {1, 2, 3, 4, 5, 7, 8, 9, 11};
    const int rows = divided_rows(stage, c.shape);
    c.features.ranks = std::clamp(rows / stage.chunks, 1, drawn[random() % std::size(drawn)]);
    if (c.features.ranks == 1) return;
    c.layout = Layout::bhnd;
    if (c.causal && stage.divides_rows) c.shape.Nq = c.shape.Nk = rows;
}

}  // namespace

FeatureInfo ranks_feature() {
    auto info = feature_of<&Features::ranks>(
        Feature::ranks, "--ranks", "N",
        "GPUs (without one, threads) that share the sequence, for stages that support several");
    info.why_not = why_not_divided;
    info.draw = draw_ranks;
    // Cases of several ranks have sizes of their own: divided_sequences().
    info.vary = [](std::mt19937_64&, const Stage&, std::size_t, Case&) {};
    return info;
}

}  // namespace ladder
