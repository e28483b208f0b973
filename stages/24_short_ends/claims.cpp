// Has all warps merge, and the loads of the merge not wait for each other.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int group = p.group();
    const Count query_tiles = visits(p, 16, 64, group).size();
    const Count splits = splits_for_full_waves(p, query_tiles), split = splits > 1;  // 1 or 0
    const auto blocks = visits(p, 16, 64, group, splits, true);
    Ends ends(p);
    for (const Visit& v : blocks) ends.warps_merge(v);
    if (split) ends.parts_merge(p.rows(), p.rows() - p.rows_without_keys(), splits);
    claim_ends(c, ends, blocks, 64, split * query_tiles * splits,
               sum(blocks, [](auto& v) { return v.queries; }));
    c.only_moves({"shared_exchange_bytes", "shuffles", "exponentials", "divides", "global_load_bytes"});
    c.stays("workspace_bytes");
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
