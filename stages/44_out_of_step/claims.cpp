// Does the same work with one barrier per block, and arrivals and waits of its own.
#include "../43_one_gradient/claims.h"

#include <algorithm>

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// The query tiles that each key tile's block visits, of one key/value head, all query heads of its group.
std::vector<Count> tiles_of_key_blocks(const Counted& p, int Bc) {
    std::vector<Count> tiles;
    for (int first_key = 0; first_key < p.shape.Nk; first_key += Bc) {
        const int first_row = p.causal ? std::max(0, first_key - (p.shape.Nk - p.shape.Nq)) : 0;
        tiles.push_back(p.group() * (p.Tr() - first_row / tile));
    }
    return tiles;
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const KeyTiles of = pairs_of_warps(p);
    const auto blocks = tiles_of_key_blocks(p, static_cast<int>(of.Bc()));
    const Count times = p.B() * p.shape.Hkv;
    Count tiles = 0, with_next = 0, between = 0;  // tiles with one behind them, and with one before as well
    for (const Count n : blocks) {
        tiles += times * n;
        with_next += times * (n - 1);
        between += times * (n > 1 ? n - 2 : 0);
    }
    claim_pairs(c);
    c.parent_is("barriers", tiles * (3 + of.steps));
    c.is("barriers", key_blocks(p, of));  // once the mbarriers are set up
    // All threads say that their copies are there, and that they have read the tile; those of dV that P of a
    // step is there, those of dK that dS is. All wait for the tile and, before they copy, for the one before;
    // those of dK for each P, and all of them for dS of the tile before, those of dV, too, and once more
    // behind the last.
    c.is("mbarrier_arrivals", tiles * of.warps * (32 + 32 + 16 * (of.steps + 1)));
    c.is("mbarrier_waits",
         tiles * of.warps * (32 + 32 + 32 + 16 * of.steps) + key_blocks(p, of) * of.warps * 32);
    // Copies of the next tile are in flight from the first product of a tile to its end: while dV and dK are
    // summed up, and S and dP of further steps. The warps of dV then compute their half of dQ, of the tile
    // before.
    const Count product = tile * of.Bc() * p.d() / (16 * 8 * 16);
    c.parent_is("mma_during_copies", 0);
    c.is("mma_during_copies",
         with_next * 2 * (product + product * (of.steps - 1) / of.steps) + between * product / 2);
    if (p.Nk() % of.Bc() == 0 && p.Nq() % tile == 0)
        c.only_moves({"barriers", "mbarrier_arrivals", "mbarrier_waits", "mma_during_copies"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
