// Several blocks divide the query tiles of a key tile, and each leaves its part in a slot of its own.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const simt::Counters& before = c.parent.counters;
    const GradientTiles of{p};
    const KeyTileOrder line(of, p.causal);
    const Count parts = line.parts, blocks = of.blocks(), keys = line.Tc * of.Bc, d = p.d();
    const Count most = std::max(KeyTileOrder(of, false).parts, KeyTileOrder(of, true).parts);
    // Slots of dK and dV in fp32, as many as a mask or none needs
    c.is("workspace_bytes",
         c.parent.workspace_bytes + (most == 1 ? 0 : most * 2 * line.heads * keys * d * 4));
    if (parts == 1) return c.only_moves({"workspace_bytes"});
    const Count slots = parts * 2 * line.heads,
                convert_blocks = 2 * line.heads * ((keys * d / 16 + 255) / 256);
    c.parent_is("launches", 3);
    c.is("launches", 5);
    c.parent_is("blocks", before.blocks);
    c.is("blocks", before.blocks + (parts - 1) * blocks + convert_blocks);
    // Each block reads K and V, and writes its slots, which the last kernel reads by 16 rows.
    c.is("bulk_loads", before.bulk_loads + (parts - 1) * blocks * 2 * of.groups);
    c.is("global_store_bytes", before.global_store_bytes + slots * keys * d * 4);
    c.is("global_load_bytes", before.global_load_bytes + (parts - 1) * 2 * line.heads * p.Nk() * d * 2 +
                                  slots * ((p.Nk() + 15) / 16) * 16 * d * 4);
    // No block stores dK and dV by bulk copies, nor waits until it may.
    c.is("bulk_stores", 0);
    c.is("stmatrix", before.stmatrix - blocks * of.threads / 32 * 2 * d / 16);
    c.is("named_barriers", before.named_barriers - blocks * 2 * of.threads);
    c.is("named_waits", before.named_waits - blocks * 2 * of.threads);
    c.is("barriers", parts * before.barriers);
    c.is("registers_moved", parts * before.registers_moved);
    c.only_moves({"workspace_bytes", "launches", "blocks", "bulk_loads", "global_store_bytes",
                  "global_load_bytes", "bulk_stores", "stmatrix", "named_barriers", "named_waits", "barriers",
                  "registers_moved", "bulk_bytes", "shared_tile_bytes", "mbarrier_arrivals", "mbarrier_waits",
                  "shuffles",
                  // By the model of time:
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

// Key tiles that few blocks would compute, so that several blocks divide their query tiles.
constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, few_blocks})), .resident_blocks = 1);

}  // namespace
