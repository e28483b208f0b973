// Passes O, m and l through global memory at every key tile.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.causal) return;
    c.is("workspace_bytes", p.rows() * (p.d() + 2) * 4);  // O, m and l
    c.is("launches", 1);
    c.is("blocks", p.heads());
    c.is("mma", p.slice_tiles() * p.d());
    c.stays("mma");  // the same products
    c.stays("tiles");
    c.stays("masked_tiles");
    // The first key tile has nothing to read, the last writes the 16-bit output and L instead.
    const Count passes = p.Tc() - 1;
    const Count O_bytes = p.rows() * p.d() * 4, m_and_l_bytes = p.rows() * 2 * 4;
    c.is("global_store_bytes", passes * (O_bytes + m_and_l_bytes) + output_bytes(p));
    // Every lane of a row reads its m and l: 4 lanes of each of the 4 warps.
    const Count Q_bytes = p.Tc() * p.rows() * p.d() * 2, KV_bytes = 2 * p.heads() * p.Nk() * p.d() * 2;
    c.is("global_load_bytes", passes * (O_bytes + m_and_l_bytes * in_a_quad * warps) + Q_bytes + KV_bytes);
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes}), .resident_blocks = 4);

}  // namespace
