// Reads K and V once for all query heads of a group.
#include "../06_flash_decoding/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int group = p.group();
    const Count splits = splits_to_fill(p, visits(p, 64, 64, group).size(), p.d() > 128 ? 2 : 3);
    const auto blocks = visits(p, 64, 64, group, splits);
    const Count split = splits > 1;  // 1 or 0
    const Count merge_blocks = split ? p.heads() * ((p.Nq() + 3) / 4) : 0;
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    c.is("workspace_bytes", part_bytes(splits, p));
    c.is("launches", 1 + split);
    c.is("blocks", blocks.size() + merge_blocks);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2);
    c.is("mma", warp_tiles * p.d());
    c.is("ldmatrix", warp_tiles * 9 * p.d() / 16);
    c.is("shuffles", warp_tiles * 2 * 4);
    c.is("exponentials",
         warp_tiles * 16 * (tile + in_a_quad) + exponentials_of_merge(split * p.rows(), splits));
    c.is("divides", split ? (p.rows() - p.rows_without_keys()) * 32
                          : sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad);
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    const Count KV_bytes = KV_bytes_of(blocks, p);
    c.is("global_load_bytes",
         KV_bytes + splits * p.rows() * p.d() * 2 + load_bytes_of_merge(p, split * p.rows(), splits));
    if (!c.has_parent()) return;  // it has no d = 256
    if (p.group() == 1) c.only_moves({});
    // Heads of one tile each, in one tile together: each byte of K and V once for the group.
    if (p.causal || p.group() * p.Nq() > tile) return;
    const Count parents_splits = splits_of(c.parent, p);
    c.parent_is("global_load_bytes",
                p.group() * KV_bytes + parents_splits * p.rows() * p.d() * 2 +
                    load_bytes_of_merge(p, (parents_splits > 1) * p.rows(), parents_splits));
    c.parent_is("tiles", p.group() * tiles);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
