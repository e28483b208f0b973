// Tiles begin at the first key that a window leaves: blocks copy and multiply what the parent would in a
// cache of these keys alone. A softcap doubles the exponentials, a sink takes two a row, and a tree of drafts
// moves none of them.
#include "../84_hopper_prefix/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Features& f = c.p.features;
    const CacheWork work = claim_cache(c);
    // With ALiBi, in a window or in a tree, later tiles raise m, which takes more.
    if (f.window == Window() && f.alibi.empty() && f.tree.empty()) {
        const Count of_tiles = work.computed * 64 * cache_Bc(c.p) * (f.softcap > 0 ? 2 : 1),
                    of_sinks = f.sinks.empty() ? 0 : 2 * (4 * work.complete + 32 * work.merged);
        c.is("exponentials", of_tiles + work.rounds * 17 * 32 + of_sinks);
    }
}

/// Windows of less and more than a tile, of one key and of both sides, and scores, each alone and all at once
std::vector<Case> with_masks_and_scores(const std::vector<Case>& plain) {
    constexpr Window windows[] = {{99, 0}, {-1, 5}, {0, 0}, {130, 20}, {300, -1}};
    std::vector<Case> cases;
    for (std::size_t k = 0; k < plain.size(); ++k) {
        Case& c = cases.emplace_back(plain[k]);
        const bool all = k % 5 == 4;
        if (k % 5 == 0 || all) c.features.softcap = 30;
        if (k % 5 == 1 || all) c.features.alibi = "drawn";
        if (k % 5 == 2 || all) c.features.sinks = "drawn";
        if ((k % 5 == 3 || all) && c.features.prefix == 0) c.features.window = windows[k / 5 % 5];
    }
    return cases;
}

/// Drafts that are trees, with and without a window, of heads of 64 to 256, and with a prefix in pages
std::vector<Case> with_trees() {
    std::vector<Case> cases;
    for (const Shape& shape : draft_shapes) {
        for (const int left : {-1, 40}) {
            Case& c = cases.emplace_back();
            c.shape = shape;
            c.causal = true;
            c.features.window.left = left;
            c.features.tree = cases.size() % 4 < 2 ? "drawn" : "binary";
        }
    }
    cases.push_back({.shape = {3, 6, 2, 9, 500, 256},
                     .causal = true,
                     .features = {.lengths = "500,75,300", .page_size = 64, .tree = "drawn", .prefix = 64}});
    return cases;
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(joined(cache_cases(256), with_masks_and_scores(cache_cases(256))),
                              with_trees()),
              .resident_blocks = 1);

}  // namespace
