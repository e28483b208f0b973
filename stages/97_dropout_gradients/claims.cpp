// Four warps write a bit for each element of a tile, and each thread that multiplies reads its own; no byte
// of a mask is in memory, and with dropout the work is that of problems without it.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

constexpr Count drawing = 128;  // threads

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Count visited = of.visited(), Br = of.Br(), Bc = of.Bc, d = p.d();
    const Count blocks = of.blocks() * KeyTileOrder(of, p.causal).parts;
    c.is("tiles", visited * of.groups);
    c.is("exponentials", visited * Br * Bc);
    c.is("wgmma_columns", visited * 5 * Br * Bc * d / 1024);
    // L and D of two columns in eight, and dQ, as before; a bit for each element, which is written once and
    // read twice: for P and for dP
    c.is("shared_exchange_bytes", visited * (of.threads * 2 * Br + Br * d * 4 + 3 * Br * Bc / 8));
    // The producer expects K and V and each tile; all threads that multiply give it back; those that draw say
    // that its bits are written, and wait until they may write.
    c.is("mbarrier_arrivals", blocks + visited * (1 + of.threads + drawing));
    c.is("mbarrier_waits", blocks * of.threads + visited * (of.threads + 1 + drawing));
    if (p.features.dropout != Dropout()) return;  // the parent does not take it
    // uniform() in four warps: both halves of the seed, and the first key in each of four calls for 64
    // queries
    c.is("shuffles", c.parent.counters.shuffles + 4 * (2 * blocks + 4 * visited * Br / 64));
    c.only_moves({"shared_exchange_bytes", "mbarrier_arrivals", "mbarrier_waits", "shuffles",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};

std::vector<Case> with_dropout(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k)
        cases[k].features.dropout = {k % 3 == 0 ? 230 : static_cast<int>(k * 37 % 255) + 1, k + 1};
    return cases;
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(backward(cases_of({usual_shapes, few_blocks})),
                              with_dropout(backward(cases_of({usual_shapes, few_blocks})))),
              .resident_blocks = 1);

}  // namespace
