// Launches one kernel, in which each block of a split row counts itself.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count query_tiles = visits(p, 16, 64, p.group()).size();
    const Count splits = splits_to_fill(p, query_tiles, 1), split = splits > 1;  // 1 or 0
    const Count atomics = split * query_tiles * splits;
    c.parent_is("launches", 1 + split);
    c.is("launches", 1);
    c.is("blocks", query_tiles * splits);
    c.is("atomics", atomics);
    c.is("fences", 2 * atomics);  // the atomic is one before itself, and one after
    const simt::Counters& parent = c.parent.counters;
    // Before a block counts, and before its threads know, by one byte, whether it was the last
    c.is("barriers", parent.barriers + 2 * atomics);
    c.is("shared_exchange_bytes", parent.shared_exchange_bytes + atomics * (1 + warps * 32));
    c.is("workspace_bytes", part_bytes(splits, p) + split * query_tiles * 4);
    if (splits == 1) c.only_moves({});
    // The parts are merged as before: what is loaded, weighed and divided stays.
    c.only_moves({"launches", "blocks", "atomics", "fences", "barriers", "shared_exchange_bytes"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
