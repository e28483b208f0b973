// Adds as many elements to dQ, four with each atomic. The last kernel has a thread for 16 elements, not
// for 8.
#include "../42_fused_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const KeyTiles of = whole_gradients(c.p);
    c.parent_is("atomics", added_elements(c.p, of));
    claim_fragments(c, of);
    c.only_moves({"atomics", "blocks", "global_load_bytes"});
    if (c.p.Nq() % 16 == 0) c.stays("global_load_bytes");
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, wide_shapes})));

}  // namespace
