// Multiplies a document's key tiles by the query tiles of the sequence that have rows which see a key, and
// stores boxes but at a document's end.
#include "../50_wgmma_gradients/claims.h"
#include "harness/features/documents.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Whether a row sees a key of the same document, by the definition of a window
bool sees(const Counted& p, const reference::Document& own, int row, int key) {
    const int distance = (key - own.end_key) - (row - own.end_row),
              right = p.causal ? 0 : p.features.window.right;
    return row >= own.first_row && row < own.end_row &&
           (p.features.window.left < 0 || -distance <= p.features.window.left) &&
           (right < 0 || distance <= right);
}

void claim(Claims& c) {
    const Counted& p = c.p;
    if (p.features.documents.empty()) return c.only_moves({});
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    const auto documents = documents_of({.shape = p.shape, .features = p.features});
    Count key_tiles = 0, boxes = 0, visited = 0, masked = 0;
    for (const reference::Document& own : documents) {
        for (int first_key = own.first_key; first_key < own.end_key; first_key += Bc) {
            key_tiles += 1;
            for (int first = 0; first < p.shape.Nq; first += Br) {  // of the sequence
                bool some = false, all = first_key + Bc <= own.end_key;
                for (int row = first; row < std::min(first + Br, p.shape.Nq); ++row) {
                    for (int key = first_key; key < std::min(first_key + Bc, own.end_key); ++key) {
                        const bool seen = sees(p, own, row, key);
                        some = some || seen;
                        all = all && seen;
                    }
                }
                visited += some;
                masked += some && !all;
            }
            for (int key = first_key; key < first_key + Bc; key += 64)
                boxes += key + 64 <= own.end_key || own.end_key == p.shape.Nk;
        }
    }
    const Count heads_kv = p.shape.Hkv, padded = of.query_tiles() * of.Br(), d = p.d();
    key_tiles *= heads_kv, boxes *= heads_kv, visited *= p.heads(), masked *= p.heads();
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

/// Documents whose rows share query tiles with others or begin with one, shorter and longer than a key tile,
/// without rows and without keys, more rows than keys and fewer. Enough blocks that nothing is split.
std::vector<Case> packed_cases() {
    const struct {
        Shape shape;
        const char* documents;
    } problems[] = {{{1, 2, 2, 512, 512, 64}, "200,40,272"},
                    {{1, 1, 1, 600, 600, 128}, "64,128,0,1,263,65,79"},
                    {{1, 2, 1, 430, 330, 64}, "0x30,300x5,30x0,100x295"},
                    {{1, 2, 1, 260, 260, 128}, "256,4"},
                    {{1, 2, 1, 60, 60, 128}, "10,10,16,4,10,10"}};
    std::vector<Case> cases;
    for (const Window& window : {Window{}, {63, 0}, {30, 170}}) {
        for (const bool causal : {false, true}) {
            for (const auto& [shape, documents] : problems) {
                Case& c = cases.emplace_back(
                    Case{.shape = shape, .causal = causal, .features = {.window = window}});
                c.features.documents = documents;
            }
        }
    }
    return cases;
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}};

LADDER_CLAIMS(.claim = claim, .cases = backward(joined(cases_of({usual_shapes, few_blocks}), packed_cases())),
              .resident_blocks = 1);

}  // namespace
