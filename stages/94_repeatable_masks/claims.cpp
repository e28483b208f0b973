// The same work as without an order, and each part of dQ is added in its turn.
#include "../50_wgmma_gradients/claims.h"
#include "harness/features/documents.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// The problem's documents, or one of all rows and keys
std::vector<reference::Document> documents_in(const Counted& p) {
    const auto documents = documents_of({.shape = p.shape, .features = p.features});
    if (!documents.empty()) return documents;
    return {{0, p.shape.Nq, 0, p.shape.Nk}};
}

/// Whether a row sees a key of the same document, by the definition of a window
bool sees(const Counted& p, const reference::Document& own, int row, int key) {
    const int distance = (key - own.end_key) - (row - own.end_row),
              right = p.causal ? 0 : p.features.window.right;
    return (p.features.window.left < 0 || -distance <= p.features.window.left) &&
           (right < 0 || distance <= right);
}

/// Whether some row of a query tile sees some key of a document's key tile
bool meets(const Counted& p, const reference::Document& own, int first_row, int end_row, int first_key,
           int end_key) {
    for (int row = std::max(first_row, own.first_row); row < std::min(end_row, own.end_row); ++row) {
        for (int key = first_key; key < std::min(end_key, own.end_key); ++key)
            if (sees(p, own, row, key)) return true;
    }
    return false;
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    Count visited = 0;
    for (const reference::Document& own : documents_in(p)) {
        for (int key = own.first_key; key < own.end_key; key += Bc) {
            for (int row = 0; row < p.shape.Nq; row += Br)
                visited += meets(p, own, row, row + Br, key, key + Bc);
        }
    }
    visited *= p.heads();
    const bool packed = !p.features.documents.empty();
    const Count parts = packed ? 1 : KeyTileOrder(of, p.causal).parts, Hkv = p.shape.Hkv,
                key_tiles = packed ? p.Nk() / of.Bc + documents_in(p).size() : (p.Nk() + of.Bc - 1) / of.Bc,
                blocks = p.B() * Hkv * key_tiles * parts;  // with those that a document does not need
    c.is("tiles", visited * of.groups);
    c.is("wgmma_columns", visited * 5 * of.Br() * of.Bc * p.d() / 1024);
    // A block's number, and each turn once it is over
    c.is("atomics", blocks + visited);
    c.is("fences", 2 * visited);
    if (!c.has_parent()) return;
    const simt::Counters& before = c.parent.counters;
    const Count counters = p.heads() * of.query_tiles();
    c.parent_is("atomics", 0);
    c.parent_is("fences", 0);
    c.is("workspace_bytes", c.parent.workspace_bytes + (counters + 4) / 4 * 16);
    c.is("global_store_bytes", before.global_store_bytes + (counters + 1) * 4);
    c.is("global_load_bytes", before.global_load_bytes + visited * 4);  // each turn is waited for
    // The number, which all threads of a block read
    c.is("shared_exchange_bytes", before.shared_exchange_bytes + blocks * 4 * (1 + 384));
    c.is("shuffles", before.shuffles + blocks * 12);
    c.is("barriers", before.barriers + blocks);
    c.only_moves({"atomics", "fences", "workspace_bytes", "global_store_bytes", "global_load_bytes",
                  "shared_exchange_bytes", "shuffles", "barriers",
                  // By the model of time:
                  "exponentials_beside_products", "exponentials_beside_own_products", "mbarrier_stalls",
                  "named_stalls"});
}

std::vector<Case> in_windows(std::vector<Case> cases) {
    const Window windows[] = {{63, 0}, {127, 0}, {100, 20}, {-1, 5}, {0, 0}, {65, -1}};
    for (std::size_t k = 0; k < cases.size(); ++k) cases[k].features.window = windows[k % std::size(windows)];
    return cases;
}

/// Documents that begin within a query tile, several in one, without rows or keys, with windows or without,
/// and with all that changes a score
std::vector<Case> packed_cases() {
    const struct {
        Shape shape;
        const char* documents;
    } problems[] = {{{1, 2, 2, 512, 512, 64}, "200,40,272"},
                    {{1, 1, 1, 600, 600, 128}, "64,128,0,1,263,65,79"},
                    {{1, 2, 1, 430, 330, 64}, "0x30,300x5,30x0,100x295"},
                    {{1, 2, 1, 60, 60, 128}, "10,10,16,4,10,10"}};
    std::vector<Case> cases;
    for (const Window& window : {Window{}, {63, 0}, {30, 170}}) {
        for (const bool causal : {false, true}) {
            for (const auto& [shape, documents] : problems) {
                Features f = {.window = window, .documents = documents};
                if (causal) f.softcap = 30, f.alibi = "drawn", f.sinks = "drawn";
                cases.push_back({.shape = shape, .causal = causal, .features = f});
            }
        }
    }
    return cases;
}

constexpr Shape long_shapes[] = {{1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {1, 1, 1, 400, 300, 128}};
constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = backward(joined(joined(cases_of({usual_shapes, few_blocks}), packed_cases()),
                                       in_windows(cases_of({long_shapes, few_blocks, usual_shapes})))),
              .resident_blocks = 1);

}  // namespace
