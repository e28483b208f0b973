// Has one barrier per block, and otherwise arrivals and waits of its own.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Bc = wide_Bc(p), in_block = p.d() == 256 ? 8 : 4, threads = 32 * in_block;  // warps
    // d = 256 has tiles of 128 rows, too. A warp without a query row computes like the others.
    const auto blocks = visits(p, 128, wide_Bc(p), 1, 1, true);
    const Count tiles = tiles_of(blocks), warp_tiles = tiles * in_block, slice_tiles = tiles * 128 / 16;
    const Count ldmatrix = warp_tiles * (slices(p) + Bc / 16 + Bc / 16) * p.d() / 16;
    const Count copies =
        sum(blocks, [&](auto& v) { return ((v.tiles > 0) * 128 + 2 * v.tiles * Bc) * p.d() / 8; });
    // Once the mbarriers are set up, whatever N is.
    c.parent_is("barriers", c.parent.counters.tiles * 2);
    c.is("barriers", blocks.size());
    // Each thread says that its copies of K and of V are there and that it has read them, and waits for all
    // four.
    c.is("mbarrier_arrivals", tiles * 2 * (threads + threads));
    c.is("mbarrier_waits", tiles * 2 * (threads + threads));
    c.is("warp_syncs", warp_tiles * 2 + blocks.size() * in_block);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("mma", slice_tiles * Bc * p.d() / 64);
    // All but the last P V of a block have copies of a later tile in flight.
    c.is("mma_during_copies",
         sum(blocks, [&](auto& v) { return v.tiles == 0 ? 0 : (2 * v.tiles - 1) * 8 * Bc * p.d() / 128; }));
    c.is("ldmatrix", ldmatrix);
    c.is("votes", warp_tiles);
    c.is("async_copies", copies);
    c.is("global_load_bytes",
         sum(blocks, [&](auto& v) { return ((v.tiles > 0) * v.queries + 2 * v.keys) * p.d() * 2; }));
    c.is("global_store_bytes", output_bytes(p));
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    // Query rows that fill the tiles: the same work for each row.
    if (p.Nq() % 128 != 0) return;
    std::vector<std::string_view> may_move{"barriers", "mbarrier_arrivals", "mbarrier_waits", "warp_syncs"};
    if (p.d() == 256) {  // and K and V are copied for twice the rows, half as often
        may_move.insert(may_move.end(), {"blocks", "tiles", "masked_tiles", "async_copies",
                                         "global_load_bytes", "shared_tile_bytes", "mma_during_copies"});
        if (p.causal) {  // under a mask a tile of twice the rows reaches further beyond the diagonal
            may_move.insert(may_move.end(), {"mma", "ldmatrix", "votes", "exponentials", "shuffles"});
        } else {
            c.parent_is("global_load_bytes", p.rows() * p.d() * 2 + 2 * KV_bytes_of(blocks, p));
            c.parent_is("tiles", 2 * tiles);
        }
    }
    c.only_moves(may_move);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
