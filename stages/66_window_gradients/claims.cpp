// Multiplies a key tile by the query tiles whose windows reach it, and masks at the edges.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    const auto [visited, masked] = visited_by_all(p, Br, Bc);
    c.is("tiles", visited * of.groups);  // each warpgroup's 64 keys
    c.is("masked_tiles", masked * of.groups);
    c.is("exponentials", visited * of.Br() * of.Bc);
    c.is("wgmma_columns", visited * 5 * of.Br() * of.Bc * p.d() / 1024);
    if (p.features.window == Window()) c.only_moves({});
}

LADDER_CLAIMS(.claim = claim,
              .cases = backward(joined(cases_of({usual_shapes}),
                                       in_windows(cases_of({long_shapes, usual_shapes})))),
              .resident_blocks = 1);

}  // namespace
