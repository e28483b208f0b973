// Has at most a block per multiprocessor, each of which takes parts of key tiles from a counter, one after
// another. Which block takes which part is not known beforehand, and nothing here depends on it. Where each
// takes one, it is that of the parent's block.
#include "../50_wgmma_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const simt::Counters& before = c.parent.counters;
    const GradientTiles of{p};
    const KeyTileOrder line(of, p.causal);
    const Count parts = of.blocks() * line.parts, blocks = std::min(parts, Count(p.sm_count));
    const Count warps = of.threads / 32, readers = 1 + of.threads;  // of a part's number: producer, consumers
    const Count numbers = parts + blocks;  // also that none is left, once for each block
    c.is("workspace_bytes", c.parent.workspace_bytes + 4);
    c.is("blocks", before.blocks - (parts - blocks));
    // Once for each block what was done for each part: mbarriers set up, registers moved
    c.parent_is("barriers", parts);
    c.is("barriers", blocks);
    c.is("registers_moved", before.registers_moved / parts * blocks);
    // After each part, also the last ones, a block asks for the next.
    c.parent_is("atomics", 0);
    c.is("atomics", parts);
    c.is("shared_exchange_bytes", before.shared_exchange_bytes + numbers * 4 * (1 + readers));
    // A number has been written, and has been read.
    c.is("mbarrier_arrivals", before.mbarrier_arrivals + numbers * (1 + readers));
    c.is("mbarrier_waits", before.mbarrier_waits + numbers * (readers + 1));
    // Which warpgroup a warp is in, once for each block; of each number by the sender and the consumers, and
    // of the buffer of K and V
    c.is("shuffles",
         before.shuffles - (warps + 4) * (parts - blocks) + (1 + warps) * numbers + warps * parts);
    c.is("warp_syncs", before.warp_syncs + parts);
    // The sender waits for dK and dV of each warpgroup, and copies them out. Where parts were written to
    // slots, no warp had to wait for any other.
    const Count met = line.parts > 1 ? 0 : of.threads;
    c.is("named_barriers", before.named_barriers + parts * (of.threads + of.groups * 32 - met));
    c.is("named_waits", before.named_waits + parts * of.groups * 32 - parts * met);
    c.only_moves({"workspace_bytes", "blocks", "barriers", "registers_moved", "atomics",
                  "shared_exchange_bytes", "mbarrier_arrivals", "mbarrier_waits", "shuffles", "warp_syncs",
                  "named_barriers", "named_waits",
                  // These depend on which block took which part, one after the other.
                  "exponentials_during_products", "exponentials_during_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

// More key tiles than multiprocessors, so that blocks go on to others
constexpr Shape crowded[] = {{3, 6, 3, 130, 300, 64}, {2, 12, 6, 100, 260, 128}};
// Few key tiles, in parts; under a mask fewer query tiles see the last ones than there are parts.
constexpr Shape in_parts[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}, {1, 1, 1, 520, 700, 128}};
// On 8 multiprocessors three key tiles make sections of two heads, and of five heads one is left for the
// first section.
constexpr Shape sections[] = {{1, 5, 5, 2100, 384, 64}};
constexpr Shape one_part[] = {{1, 1, 1, 1, 1, 64}, {1, 1, 1, 64, 128, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(cases_of({usual_shapes, crowded, in_parts, sections, one_part})),
              .resident_blocks = 1);

}  // namespace
