// One more launch, which copies each element of Q, K and V once, and writes a byte for each. The attention
// kernel reads these bytes as the parent's reads the caller's.
#include "../70_fp8_products/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto& parent = c.parent.counters;
    const Count part_elements = 16384, resident = 6 * p.sm_count, warps = 8;
    const auto parts_of = [&](Count N) {
        return std::min(resident, (N * p.d() + part_elements - 1) / part_elements);
    };
    const Count KV_heads = p.B() * p.shape.Hkv, heads = fp8_heads(p), Q_parts = parts_of(p.Nq()),
                KV_parts = parts_of(p.Nk()), parts = p.heads() * Q_parts + 2 * KV_heads * KV_parts;
    const Count elements = p.d() * (p.heads() * p.Nq() + 2 * KV_heads * p.Nk());
    // A thread of each part waits for a count; each warp reads the largest elements of the head's parts.
    const Count of_others = p.heads() * Q_parts * Q_parts + 2 * KV_heads * KV_parts * KV_parts;
    c.parent_is("launches", 1);
    c.is("launches", 2);
    c.is("early_launches", 1);
    c.is("cooperative_launches", 1);
    c.is("blocks", parent.blocks + std::min(resident, parts));
    c.is("barriers", parent.barriers + 2 * parts);
    c.is("atomics", parent.atomics + parts);
    c.is("fences", 2 * parts);
    c.is("global_load_bytes", parent.global_load_bytes + 2 * elements + 4 * (parts + warps * of_others));
    c.is("evict_first_bytes", 2 * elements);
    // The largest element of a part; a scale of each head, and the count of its parts, which becomes 0 again
    c.is("global_store_bytes", parent.global_store_bytes + elements + 4 * (parts + 2 * heads));
    c.is("workspace_bytes", elements + 4 * (parts + 2 * heads + 1));
    c.is("async_copies", parts * part_elements * 2 / 16);
    c.is("divides", parent.divides + 32 * warps * parts + heads);
    c.is("shuffles", parent.shuffles + 10 * warps * parts);
    c.only_moves({"launches", "early_launches", "cooperative_launches", "blocks", "barriers", "atomics",
                  "fences", "global_load_bytes", "evict_first_bytes", "global_store_bytes", "workspace_bytes",
                  "async_copies", "copied_lines", "divides", "shuffles", "shared_tile_bytes",
                  "shared_exchange_bytes"});
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes, crowded_shapes}, {"falling"}),
              .resident_blocks = 1);

}  // namespace
