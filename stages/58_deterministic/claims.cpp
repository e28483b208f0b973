// The same work as the parent's, and each part of dQ is added in its turn.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const simt::Counters& before = c.parent.counters;
    const GradientTiles of{p};
    const Count turns = of.visited(), blocks = of.blocks() * KeyTileOrder(of, p.causal, true).parts;
    const Count counters = p.heads() * of.query_tiles() * of.Br() * 4;  // one of each row is used
    c.is("workspace_bytes", c.parent.workspace_bytes + counters + 4);
    c.is("global_store_bytes", before.global_store_bytes + counters);
    // Each turn is waited for, and then said to be over.
    c.is("global_load_bytes", before.global_load_bytes + turns * 4);
    c.parent_is("atomics", 0);
    c.is("atomics", blocks + turns);
    c.parent_is("fences", 0);
    c.is("fences", 2 * turns);
    // A block's number, which all of its threads read, and which query tile is in a slot, which those read
    // that multiply
    c.is("shared_exchange_bytes",
         before.shared_exchange_bytes + blocks * 4 * (1 + 384) + turns * 8 * (1 + of.threads));
    c.is("shuffles", before.shuffles + blocks * 12);
    // Without a mask, if each has a multiprocessor, blocks begin apart and wait for later ones.
    c.is("cooperative_launches", !p.causal && blocks <= Count(p.sm_count));
    c.only_moves({"workspace_bytes", "global_store_bytes", "global_load_bytes", "atomics", "fences",
                  "shared_exchange_bytes", "shuffles", "cooperative_launches",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

// Key tiles that few blocks would compute, so that several blocks divide their query tiles. All of these see
// each key tile, with a mask, too, so that the parts are the parent's.
constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 130, 200, 128}};

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, few_blocks})), .resident_blocks = 1);

}  // namespace
