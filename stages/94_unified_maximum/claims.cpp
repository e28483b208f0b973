// Votes instead of looking for a maximum, until a score is far from phi; adds up l once, at the end.
#include "../16_stream_k/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

// Scores in the millions, in the first tile of each share. All of these tiles are full: each warp has some
// keys.
const std::vector<Case> far{{.shape = {1, 2, 1, 1, 512, 64}, .input = "huge"},
                            {.shape = {2, 8, 2, 2, 896, 128}, .input = "huge"},
                            {.shape = {3, 4, 1, 3, 384, 256}, .input = "huge"}};

void claim(Claims& c) {
    const Count Bc = c.p.d() > 128 ? 64 : 128;
    const auto [pieces, merge_exponentials] = claim_taken(c, static_cast<int>(Bc), c.p.sm_count);
    const Count tiles = tiles_of(pieces), begun = sum(pieces, [](auto&v) { return Count(v.tiles > 0); });
    const bool leaves_band = c.p.input == "huge";
    const Count maxima = leaves_band ? tiles : 0;
    c.is("votes", warps * (leaves_band ? begun : tiles));
    // In each warp a lane has two rows. Two shuffles find a row's maximum, and two add up its l.
    c.parent_is("shuffles", tiles * warps * 2 * (2 + 2));
    c.is("shuffles", (maxima + pieces.size()) * warps * 2 * 2);
    // P alone; alpha where there is a maximum; and the merges.
    c.is("exponentials", tiles * 16 * Bc + maxima * 16 * in_a_quad * warps +
                             exponentials_of_merged_warps(pieces) + merge_exponentials);
    c.only_moves({"votes", "shuffles", "exponentials"});
}

LADDER_CLAIMS(.claim = claim, .cases = joined(cases_of({decode_shapes, usual_shapes, wide_shapes}), far));

}  // namespace
