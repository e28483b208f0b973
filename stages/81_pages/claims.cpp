// Reads an entry of the block table for each key, and a shuffle for each key that a thread copies tells it.
#include "../80_own_lengths/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = c.p.d() > 128 ? 64 : 128;
    const auto lookups = [&](const Counted& own, const Visit& piece, int begin) {
        ShareExtras extras;
        const Count copied_at_a_time = 128 * 8 / own.d();
        extras.shuffles = piece.tiles * warps * (Bc / copied_at_a_time);
        for (int j = begin; j < begin + static_cast<int>(piece.tiles); ++j) {
            // 128 lanes look at a key each; at d = 256 half of these keys are of the next tile
            if (c.p.features.page_size != 0)
                extras.load_bytes += Count(std::min(128, own.shape.Nk - j * Bc)) * 4;
        }
        return extras;
    };
    claim_line(c, Bc, lookups);
    if (c.p.features.page_size == 0) c.only_moves({"shuffles"});
}

/// Pages of one key, below, at and above the size of a tile; without pages; pages that requests share.
std::vector<Case> paged_cases() {
    constexpr int page_sizes[] = {16, 0, 1, 256, 128, 32};
    std::vector<Case> cases = cases_with_lengths();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        cases[k].features.page_size = page_sizes[k % std::size(page_sizes)];
        cases[k].seed = k + 1;
    }
    return cases;
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({decode_shapes}), paged_cases()));

}  // namespace
