// Has a block per multiprocessor, and so fewer parts to merge.
#include "../06_flash_decoding/claims.h"
#include "../11_keys_per_warp/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int group = p.group();
    const Count splits = splits_to_fill(p, visits(p, 16, 64, group).size(), 1);
    const auto blocks = visits(p, 16, 64, group, splits, true);
    const Count split = splits > 1;  // 1 or 0
    const Count tiles = tiles_of(blocks), merged_rows = split * p.rows();
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
    if (splits_of(c.parent, p) == splits) c.only_moves({});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
