// Copies whole lines of 128 bytes.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const int group = p.group();
    const Count query_tiles = visits(p, 16, 64, group).size(), lines_of_a_row = p.d() * 2 / 128;
    const auto blocks = visits(p, 16, 64, group, splits_to_fill(p, query_tiles, 1));
    // Padded by 16 bytes, only every eighth row of a tile begins where a line of shared memory does; in the
    // others each line lies across two.
    const auto padded = [&](Count rows) { return (2 * rows - (rows + 7) / 8) * lines_of_a_row; };
    c.parent_is("copied_lines", sum(blocks, [&](auto& v) {
                    const Count full = v.keys / tile;
                    return padded(v.queries) + 2 * (full * padded(tile) + padded(v.keys - full * tile));
                }));
    c.is("copied_lines", sum(blocks, [&](auto& v) { return v.queries + 2 * v.keys; }) * lines_of_a_row);
    c.only_moves({"copied_lines"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({decode_shapes, usual_shapes, wide_shapes}));

}  // namespace
