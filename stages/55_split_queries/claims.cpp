// Under a mask starts the longest blocks of several heads first. Several blocks divide the query tiles of a
// key tile, and each leaves its part in a slot of its own.
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
    // The parent's dQ, L and D; slots of dK and dV in fp32, as many as a mask or none needs
    c.is("workspace_bytes", p.heads() * of.query_tiles() * of.Br() * (d + 2) * 4 +
                                (most == 1 ? 0 : most * 2 * line.heads * keys * d * 4));
    if (parts == 1) {
        return c.only_moves({"workspace_bytes",
                             // By the model of time:
                             "exponentials_during_products", "exponentials_during_own_products",
                             "mbarrier_stalls", "named_stalls"});
    }
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

// Under a mask section by section, and in a section from the first key tile of all its heads to the last.
// Consecutive blocks are the parts of a key tile.
BlockOrder order(const Counted& p) {
    const GradientTiles of{p};
    const KeyTileOrder line(of, p.causal);
    const Count group = p.H() / Count(p.shape.Hkv);
    const auto visits_of = [&](Count j) {  // of query tiles, over the heads of the group
        const auto first = static_cast<std::int64_t>(j * of.Bc) - (p.shape.Nk - p.shape.Nq);
        const Count unseen = p.causal && first > 0 ? static_cast<Count>(first) / of.Br() : 0;
        return (of.query_tiles() - std::min(of.query_tiles(), unseen)) * group;
    };
    std::vector<Count> parent, tiles;
    for (Count head = 0; head < line.heads; ++head)
        for (Count j = 0; j < line.Tc; ++j) parent.push_back(visits_of(j) * of.groups);
    const Count rest = line.heads % line.section;  // heads of the first section, if it is not whole
    for (Count before = 0, section; before < line.heads; before += section) {
        section = before == 0 && rest > 0 ? rest : line.section;
        for (Count block = 0; block < line.Tc * section * line.parts; ++block) {
            const Count visits = visits_of(block / (section * line.parts)), part = block % line.parts;
            tiles.push_back((visits * (part + 1) / line.parts - visits * part / line.parts) * of.groups);
        }
    }
    // The kernels before and after may have more blocks, which visit no tiles.
    const Count rows = of.query_tiles() * of.Br(), keys = line.Tc * of.Bc;
    const auto blocks_of = [](Count threads) { return (threads + 255) / 256; };
    parent.resize(std::max<Count>(parent.size(), p.heads() * blocks_of(rows * p.d() / 8)));
    const Count after = line.parts > 1 ? line.heads * blocks_of(keys * p.d() / 16) : 0;
    tiles.resize(std::max<Count>({tiles.size(), p.heads() * blocks_of(rows * p.d() / 8), after}));
    return {parent, tiles};
}

// Key tiles that few blocks would compute, so that several blocks divide their query tiles.
constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};
// On 8 multiprocessors three key tiles make sections of two heads, and of five heads one is left for the
// first section; few query tiles see a key.
constexpr Shape sections[] = {{1, 5, 5, 2100, 384, 64}};

LADDER_CLAIMS(.claim = claim, .cases = backward(cases_of({usual_shapes, few_blocks, sections})),
              .order = order, .resident_blocks = 1);

}  // namespace
