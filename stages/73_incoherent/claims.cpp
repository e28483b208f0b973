// A block that rounds rows of Q or K exchanges their elements between the lanes of a row, log2 of these
// times: no other count changes.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = [](Count N) { return (N + fp8_rows - 1) / fp8_rows; };
    const Count rotating = p.heads() * blocks(p.Nq()) + p.B() * p.shape.Hkv * blocks(p.Nk());
    const Count exchanges = p.d() == 64 ? 2 : 3;  // of 8 elements with lanes 1, 2, (4) away
    c.is("shuffles", c.parent.counters.shuffles + rotating * fp8_rows * p.d() / 64 * exchanges);
    c.only_moves({"shuffles"});
}

constexpr Shape crowds[] = {{3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}};

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, crowds}, {"falling"}), .resident_blocks = 1);

}  // namespace
