// Launches one kernel, in which each block of a split row counts itself.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count query_tiles = visits(p, 16, 64, p.group()).size();
    const Count splits = splits_for_full_waves(p, query_tiles), split = splits > 1;  // 1 or 0
    const Count atomics = split * query_tiles * splits;
    c.parent_is("launches", 1 + split);
    c.is("launches", 1);
    c.is("blocks", query_tiles * splits);
    c.is("atomics", atomics);
    c.is("fences", 2 * atomics);
    const simt::Counters& parent = c.parent.counters;
    // Before a block counts, and before its threads know, by one byte, whether it was the last
    c.is("barriers", parent.barriers + 2 * atomics);
    c.is("shared_exchange_bytes", parent.shared_exchange_bytes + atomics * (1 + warps * 32));
    // A row is merged by one warp, where it was one for every 64 columns: what each warp did for itself is
    // done once.
    const Count warps_less = split * p.rows() * (p.d() / 64 - 1), rounds = (splits + 31) / 32;
    c.is("global_load_bytes", parent.global_load_bytes - warps_less * splits * 2 * 4);
    c.is("shuffles", parent.shuffles - warps_less * (5 + 5 + 32 * rounds));
    c.is("exponentials", parent.exponentials - warps_less * 32 * rounds);
    const Count with_keys = p.rows() - p.rows_without_keys();
    c.is("divides", parent.divides - split * with_keys * (p.d() / 2 - 32));
    c.is("workspace_bytes", part_bytes(splits, p) + split * query_tiles * 4);
    if (splits == 1) c.only_moves({});
    c.only_moves({"launches", "blocks", "atomics", "fences", "barriers", "shared_exchange_bytes",
                  "global_load_bytes", "shuffles", "exponentials", "divides"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
