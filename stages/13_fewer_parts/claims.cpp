// Has a block per multiprocessor, and merges 32 parts at once.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int group = p.group();
    const Count splits = splits_for_full_waves(p, visits(p, 16, 64, group).size());
    c.is("workspace_bytes", part_bytes(splits, p));
    const auto blocks = visits(p, 16, 64, group, splits);
    const Count split = splits > 1;  // 1 or 0
    const Count tiles = tiles_of(blocks);
    // The merge: a block per row, a thread for two columns, so a warp for 64.
    const Count merge_warps = split * p.rows() * p.d() / 64, rounds = (splits + 31) / 32;
    c.is("launches", 1 + split);
    c.is("blocks", blocks.size() + split * p.rows());
    c.is("barriers", tiles * 2 + blocks.size() * 2);
    c.is("tiles", tiles);
    // Every warp of the merge reads the L of a part twice, once in all; every thread its O.
    c.is("global_load_bytes",
         KV_bytes_of(blocks, p) + splits * p.rows() * p.d() * 2 + merge_warps * splits * (2 * 4 + 64 * 4));
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    // A maximum and a sum over 32 lanes, and a weight from each of them.
    c.is("shuffles", tiles * warps * 2 * 4 + merge_warps * (5 + 5 + 32 * rounds));
    c.is("exponentials", tiles * 16 * (tile + in_a_quad * warps) + blocks.size() * 3 * 16 * 2 * in_a_quad +
                             merge_warps * 32 * rounds);
    c.is("divides", sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad +
                        split * (p.rows() - p.rows_without_keys()) * p.d() / 2);
    // Where the number of splits is the parent's, only the merge is different.
    if (splits_of(c.parent, p) != splits) return;
    if (splits == 1) c.only_moves({});
    c.only_moves({"blocks", "global_load_bytes", "shuffles", "exponentials", "divides"});
    c.stays("workspace_bytes");
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
