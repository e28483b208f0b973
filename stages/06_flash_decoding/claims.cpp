// Splits the keys across blocks where query tiles do not fill the device.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

// The problem that the stage is for
constexpr Shape one_row[] = {{1, 1, 1, 1, 1024, 64}};

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.causal) return;
    const Count unsplit = p.heads() * p.Tr(), splits = splits_to_fill(p, unsplit, 3);
    c.is("workspace_bytes", part_bytes(splits, p));
    if (splits == 1) {
        c.only_moves({});
        return;
    }
    const Count merge_blocks = p.heads() * ((p.Nq() + 3) / 4);
    c.parent_is("blocks", unsplit);
    c.is("blocks", unsplit * splits + merge_blocks);
    c.is("launches", 2);
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    // Every split reads Q again.
    c.is("global_load_bytes", c.parent.counters.global_load_bytes + (splits - 1) * p.rows() * p.d() * 2 +
                                  load_bytes_of_merge(p, p.rows(), splits));
    // The parts are not divided by l, and each lane of the merge divides for its columns.
    c.is("divides", p.rows() * 32);
    for (const char* counter : {"mma", "ldmatrix", "tiles", "masked_tiles", "shuffles", "barriers"})
        c.stays(counter);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, one_row}));

}  // namespace
