// Multiplies a document's key tiles by the query tiles of the sequence that have rows which see a key, and
// stores boxes but at a document's end.
#include "../66_window_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.features.documents.empty()) return c.only_moves({});
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    const auto documents = documents_in(p);
    const auto [visited, masked] = visited_by_all(p, Br, Bc);
    Count key_tiles = 0, boxes = 0;
    for (const reference::Document& own : documents) {
        for (int first_key = own.first_key; first_key < own.end_key; first_key += Bc) {
            key_tiles += 1;
            for (int key = first_key; key < first_key + Bc; key += 64)
                boxes += key + 64 <= own.end_key || own.end_key == p.shape.Nk;
        }
    }
    const Count heads_kv = p.shape.Hkv, padded = of.query_tiles() * of.Br(), d = p.d();
    key_tiles *= heads_kv, boxes *= heads_kv;
    c.is("launches", 3);
    c.is("blocks", p.heads() * ((padded * d / 8 + 255) / 256 + (padded * d / 16 + 255) / 256) +
                       heads_kv * (p.Nk() / of.Bc + documents.size()));
    c.is("barriers", key_tiles);  // numbers without keys end before it
    c.is("tiles", visited * of.groups);
    c.is("masked_tiles", masked * of.groups);
    c.is("exponentials", visited * of.Br() * of.Bc);
    c.is("wgmma_columns", visited * 5 * of.Br() * of.Bc * d / 1024);
    // K and V of both warpgroups, and Q, dO, L and D of each tile; dK and dV of a warpgroup in boxes, or not
    c.is("bulk_loads", key_tiles * 2 * of.groups + visited * 4);
    c.is("bulk_stores", boxes * 2);
    c.is("bulk_adds", visited * of.groups);
    c.is("global_store_bytes",
         p.heads() * padded * (d + 2) * 4 + visited * of.Br() * d * 4 + output_bytes(p));
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}};

LADDER_CLAIMS(.claim = claim, .cases = backward(joined(cases_of({usual_shapes, few_blocks}), packed_cases())),
              .resident_blocks = 1);

}  // namespace
