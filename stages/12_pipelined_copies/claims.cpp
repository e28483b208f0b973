// Waits with later tiles in flight, and computes while they are; so a block per multiprocessor is enough,
// with fewer parts to merge.
#include <algorithm>

#include "../06_flash_decoding/claims.h"
#include "../11_keys_per_warp/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("copies_left_in_flight", 0);
    c.parent_is("mma_during_copies", 0);
    const int group = p.group();
    const Count splits = splits_to_fill(p, visits(p, 16, 64, group).size(), 1);
    const auto blocks = visits(p, 16, 64, group, splits, true);
    const Count split = splits > 1;  // 1 or 0
    const Count tiles = tiles_of(blocks), merged_rows = split * p.rows();
    // The wait for a tile leaves those that follow, at most the ring less one.
    const Count depth = p.d() > 64 ? 2 : 4, copies_of_a_tile = 2 * tile * p.d() / 8;
    c.is("copies_left_in_flight", sum(blocks, [&](auto& v) {
             Count in_flight = 0;
             for (Count j = 0; j < v.tiles; ++j) in_flight += std::min(v.tiles - 1 - j, depth - 1);
             return in_flight * copies_of_a_tile;
         }));
    // All tiles but a block's last have another one on its way.
    c.is("mma", tiles * p.d());
    c.is("mma_during_copies", sum(blocks, [&](auto& v) { return (v.tiles - (v.tiles > 0)) * p.d(); }));
    c.is("workspace_bytes", part_bytes(splits, p));
    c.is("launches", 1 + split);
    c.is("blocks", blocks.size() + split * p.heads() * ((p.Nq() + 3) / 4));
    c.is("barriers", tiles * 2 + blocks.size() * 2);
    c.is("tiles", tiles);
    c.is("shared_exchange_bytes", exchanged_by_warps(blocks, p));
    c.is("global_load_bytes", KV_bytes_of(blocks, p) + splits * p.rows() * p.d() * 2 +
                                  load_bytes_of_merge(p, merged_rows, splits));
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    c.is("shuffles", tiles * warps * 2 * 4);
    c.is("exponentials", exponentials_of_warps(blocks, tile) + exponentials_of_merge(merged_rows, splits));
    c.is("divides", split ? (p.rows() - p.rows_without_keys()) * 32 : divides_of_warps(blocks));
    if (splits_of(c.parent, p) == splits) c.only_moves({"copies_left_in_flight", "mma_during_copies"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
