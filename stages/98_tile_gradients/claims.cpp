// Multiplies the keys of a block by the query tiles that list one of its two key tiles, each once, and by no
// other; what fills the last slot adds at most one. Tests elements where a list does not say that a tile is
// full, and reads each word of a partial tile once. One launch more finds these tiles.
#include <algorithm>

#include "../50_wgmma_gradients/claims.h"
#include "harness/features/tiles.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

constexpr int hidden = reference::Tiles::hidden, full = reference::Tiles::full;

/// The tiles of a head, by its lists or by the mask alone
reference::Tiles tiles_of_head(const Counted& p, int head) {
    const Case problem{.shape = p.shape, .features = p.features, .seed = p.seed};
    if (!p.features.tiles.empty()) return tiles_of(problem, head / p.shape.H, head % p.shape.H);
    reference::Tiles tiles;
    for (int first = 0; first < p.shape.Nq; first += 64) {
        for (int key = 0; key < p.shape.Nk; key += 64) {
            const bool is_full = key + 64 <= seen_by(p, 1, first);
            tiles.kinds.push_back(is_full ? full : key < seen_by(p, 1, first + 63) ? 0 : hidden);
        }
    }
    return tiles;
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const bool listed = !p.features.tiles.empty();
    const GradientTiles of{p};
    const int Tr = (p.shape.Nq + 63) / 64, Tc = (p.shape.Nk + 63) / 64, pairs = (Tc + 1) / 2;
    const Count Br = of.Br(), Bc = of.Bc, d = p.d(), in_slot = Br / 64;
    Count slots = 0, unmasked = 0, partial = 0, visits = 0, hidden_from_both = 0;
    std::vector<Count> of_list(std::size_t(p.shape.B) * p.shape.Hkv * pairs);
    for (int head = 0; head < p.shape.B * p.shape.H; ++head) {
        const reference::Tiles tiles = tiles_of_head(p, head);
        const int kv_head = head / (p.shape.H / p.shape.Hkv);
        for (int i = 0; i < Tr; ++i) {
            for (int j = 0; j < pairs; ++j) {
                bool is_seen = false;
                for (int n = 2 * j; n < std::min(Tc, 2 * j + 2); ++n) {
                    const int kind = tiles.kinds[i * Tc + n];
                    is_seen = is_seen || kind != hidden;
                    unmasked += kind == full;
                    partial += kind >= 0;
                }
                of_list[std::size_t(kv_head) * pairs + j] += is_seen;
            }
        }
    }
    for (const Count count : of_list) {
        visits += count;
        slots += (count + in_slot - 1) / in_slot;
        hidden_from_both += count % in_slot;
    }
    const Count lists = of_list.size(), parts = KeyTileOrder(of, p.causal).parts, blocks = lists * parts;
    const Count group = p.H() / Count(p.shape.Hkv);
    c.is("tiles", (visits + hidden_from_both) * of.groups);  // each warpgroup's 64 keys
    c.is("masked_tiles", (visits + hidden_from_both) * of.groups - unmasked);
    c.is("exponentials", slots * Br * Bc);
    c.is("wgmma_columns", slots * 5 * Br * Bc * d / 1024);
    c.is("bulk_adds", slots * of.groups);
    // K and V once for each block, and Q, dO, L and D of each query tile
    c.is("bulk_loads", blocks * 2 * of.groups + (visits + hidden_from_both) * 4);
    // A vote for each 32 query tiles of a group; 8 shuffles for each tile that is tested, in four warps
    c.is("votes", lists * ((group * Tr + 31) / 32));
    const Count tested = (visits + hidden_from_both) * of.groups - unmasked;
    const Count prepare_blocks = p.heads() * ((of.query_tiles() * Br * d / 8 + 255) / 256);
    c.is("shuffles", prepare_blocks * 8 * (d == 64 ? 3 : 4) + blocks * 12 + slots * 8 + tested * 4 * 8);
    if (listed) return;  // the parent does not take them
    c.is("launches", c.parent.counters.launches + 1);
    c.is("workspace_bytes", c.parent.workspace_bytes + lists * (group * Tr + 1) * 16 + (lists + 3) / 4 * 16);
}

/// The same problems with every pattern in turn, half of them the last.
std::vector<Case> with_tiles(std::vector<Case> cases) {
    const auto& patterns = tile_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        cases[k].causal = false;
        cases[k].features.tiles = (k % 2 == 1 ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
    }
    return cases;
}

constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 64}, {1, 4, 2, 900, 260, 128}};

// Without lists. None has the parent test all tiles, of which a tile of 64 keys may be full.
constexpr Shape dense_shapes[] = {{1, 2, 2, 256, 256, 64}, {2, 2, 2, 400, 384, 128},
                                  {1, 4, 2, 300, 640, 64}, {1, 1, 1, 200, 256, 128},
                                  {1, 3, 1, 192, 300, 64}, {1, 2, 1, 500, 512, 64}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(joined(cases_of({dense_shapes}),
                                       with_tiles(cases_of({long_shapes, usual_shapes, long_shapes})))),
              .resident_blocks = 1);

}  // namespace
