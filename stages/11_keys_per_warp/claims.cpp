// Divides the keys of 16 rows among warps that merge once.
#include "claims.h"

#include "../06_flash_decoding/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int group = p.group();
    const Count splits = splits_to_fill(p, visits(p, 16, 64, group).size(), p.d() > 128 ? 2 : 3);
    const auto blocks = visits(p, 16, 64, group, splits, true);
    const Count split = splits > 1;  // 1 or 0
    const Count tiles = tiles_of(blocks);
    c.is("workspace_bytes", part_bytes(splits, p));
    c.is("blocks", blocks.size() + split * p.heads() * ((p.Nq() + 3) / 4));
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2 + blocks.size() * 2);
    c.is("shared_exchange_bytes", exchanged_by_warps(blocks, p));
    // Each warp reads all of Q and its own quarter of K and V.
    const Count ldmatrix = tiles * warps * 3 * p.d() / 16;
    const Count copies = blocks.size() * 16 * p.d() / 8 + tiles * 2 * tile * p.d() / 8;
    c.is("mma", tiles * p.d());
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    c.is("shuffles", tiles * warps * 2 * 4);  // each warp has a maximum and a sum of its own
    c.is("exponentials",
         exponentials_of_warps(blocks, tile) + exponentials_of_merge(split * p.rows(), splits));
    c.is("divides", split ? (p.rows() - p.rows_without_keys()) * 32 : divides_of_warps(blocks));
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    // Where 16 rows are enough for a group, nothing else moves.
    if (p.group() * p.Nq() > 16) return;
    c.only_moves({"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles", "ldmatrix",
                  "async_copies", "exponentials", "divides"});
    c.stays("workspace_bytes");
}

// Its launch bounds ask for three, and its registers leave room for a fourth.
LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}),
              .resident_blocks = 4);

}  // namespace
