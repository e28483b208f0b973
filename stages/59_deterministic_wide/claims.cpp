// The same work as the parent's, and each half of a part of dQ is added in its turn.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const simt::Counters& before = c.parent.counters;
    const Count turns = 2 * tiles_of(visits(p, tile, tile)), blocks = p.B() * Count(p.shape.Hkv) * p.Tc();
    const Count counters = p.heads() * p.Tr() * tile * 4;  // two of each query tile's rows are used
    c.is("workspace_bytes", c.parent.workspace_bytes + counters + 4);
    c.is("global_store_bytes", before.global_store_bytes + counters);
    // Each turn is waited for, and then said to be over.
    c.is("global_load_bytes", before.global_load_bytes + turns * 4);
    c.is("atomics", before.atomics + blocks + turns);
    c.parent_is("fences", 0);
    c.is("fences", 2 * turns);
    // A block's number, which all of its threads read
    c.is("shared_exchange_bytes", before.shared_exchange_bytes + blocks * 4 * (1 + 384));
    c.is("shuffles", before.shuffles + blocks * 12);
    // A warpgroup and the thread that waits for it tell each other: that it may add, and that it has.
    c.is("mbarrier_arrivals", before.mbarrier_arrivals + turns * (128 + 1));
    c.is("mbarrier_waits", before.mbarrier_waits + turns * (128 + 1));
    c.only_moves({"workspace_bytes", "global_store_bytes", "global_load_bytes", "atomics", "fences",
                  "shared_exchange_bytes", "shuffles", "mbarrier_arrivals", "mbarrier_waits",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({wide_shapes})), .resident_blocks = 1);

}  // namespace
