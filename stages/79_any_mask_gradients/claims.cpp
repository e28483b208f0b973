// Multiplies what the parent does, with a tanh for each exponential under a softcap. The gradient of sinks is
// a launch more, which reads L and D of each row once.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Features& f = p.features;
    const bool has_sinks = !f.sinks.empty();
    const Count scores = of.visited() * of.Br() * of.Bc, rows = p.rows();
    c.is("launches", 3 + has_sinks + (KeyTileOrder(of, p.causal).parts > 1 ? 2 : 0));
    c.is("tiles", of.visited() * of.groups);
    c.is("exponentials", scores * (f.softcap > 0 ? 2 : 1) + (has_sinks ? rows : 0));
    c.is("wgmma_columns", of.visited() * 5 * of.Br() * of.Bc * p.d() / 1024);
    if (f != Features()) return;
    // Lists of tiles have room for all query tiles of 64 rows of a group, and one more.
    const Count lists = p.shape.B * p.shape.Hkv * ((p.shape.Nk + of.Bc - 1) / of.Bc),
                visits = p.H() / Count(p.shape.Hkv) * ((p.shape.Nq + 63) / 64) + 1;
    c.is("workspace_bytes", c.parent.workspace_bytes + lists * visits * 16 + (lists + 3) / 4 * 16);
    c.only_moves({"workspace_bytes"});
}

/// Each alone, and all at once
std::vector<Case> with_scores(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k) {
        Features& f = cases[k].features;
        const bool all = k % 4 == 3;
        if (k % 4 == 0 || all) f.softcap = 30;
        if (k % 4 == 1 || all) f.alibi = "drawn";
        if (k % 4 == 2 || all) f.sinks = "drawn";
    }
    return cases;
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(backward(cases_of({usual_shapes, few_blocks})),
                              with_scores(backward(cases_of({usual_shapes, few_blocks})))),
              .resident_blocks = 1);

}  // namespace
