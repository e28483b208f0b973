// Waits for nobody between query tiles: what the next one begins with is asked for before.
#include <algorithm>

#include "../28_next_in_line/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count in_line = tiles_in_line(p), blocks = std::min<Count>(in_line, p.sm_count);
    const Count query_tiles = visits(p, 128, 64).size(), in_block = p.d() == 256 ? 8 : 4;  // warps
    c.is("barriers", in_line > 0 ? blocks : c.parent.counters.barriers);
    // O leaves by 64 columns of a slice at a time, with a __syncwarp before and behind; all at once before.
    // And one by the warp that says what comes next, at an mbarrier at which it arrives, and for which all
    // wait.
    const Count more = slices(p) * (p.d() / 64) * 2 - 1;
    c.is("warp_syncs", c.parent.counters.warp_syncs + query_tiles * in_block * more + in_line);
    c.is("mbarrier_arrivals", c.parent.counters.mbarrier_arrivals + in_line * 32);
    c.is("mbarrier_waits", c.parent.counters.mbarrier_waits + in_line * 256);
    // The last P V of a query tile has copies in flight if the block takes another. Of whole tiles under a
    // mask, half the warps see the last keys.
    const bool whole = p.Nq() % 128 == 0 && (p.Nk() - p.Nq()) % 64 == 0;
    if (!p.causal || whole) {
        const Count see_the_last = p.causal ? in_block / 2 : in_block;
        c.is("mma_during_copies",
             c.parent.counters.mma_during_copies + (in_line - blocks) * see_the_last * p.d() / 2);
    }
    c.only_moves({"barriers", "warp_syncs", "mbarrier_arrivals", "mbarrier_waits", "mma_during_copies"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}),
              .resident_blocks = 2);

}  // namespace
