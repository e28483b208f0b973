// Copies whole lines of 128 bytes, and still without a bank conflict.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Bc = wide_Bc(p), lines_of_a_row = p.d() * 2 / 128;
    const auto blocks = visits(p, wide_Br(p), wide_Bc(p));
    // Padded by 16 bytes, only every eighth row of a tile begins where a line of shared memory does; in the
    // others each line lies across two.
    const auto padded = [&](Count rows) { return (2 * rows - (rows + 7) / 8) * lines_of_a_row; };
    c.parent_is("copied_lines", sum(blocks, [&](auto& v) {
                    const Count full = v.keys / Bc;
                    return padded(v.queries) + 2 * (full * padded(Bc) + padded(v.keys - full * Bc));
                }));
    c.is("copied_lines", sum(blocks, [&](auto& v) { return v.queries + 2 * v.keys; }) * lines_of_a_row);
    c.is("bank_conflicts", 0);
    c.only_moves({"copied_lines"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .resident_blocks = 2);

}  // namespace
