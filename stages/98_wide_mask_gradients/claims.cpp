// What 57 does, of the tiles that a window and documents leave. A softcap takes a tanh for each exponential,
// and hands over as many bytes; the gradient of sinks is a launch more.
#include "../57_two_roles/claims.h"
#include "../66_window_gradients/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Features& f = p.features;
    if (f == Features()) {
        // Lists of tiles have room for all query tiles of a group, and one more.
        const Count lists = p.B() * Count(p.shape.Hkv) * p.Tc(), most = p.group() * p.Tr() + 1;
        return claim_two_roles(c, lists * most * 16 + (lists + 3) / 4 * 16);
    }
    const bool packed = !f.documents.empty(), has_sinks = !f.sinks.empty();
    const auto documents = documents_in(p);
    constexpr int keys = tile, rows = tile;
    const auto [visited, masked] = visited_by_all(p, rows, keys);
    Count key_tiles = 0, boxes = 0, by_threads = 0;
    for (const reference::Document& own : documents) {
        for (int first_key = own.first_key; first_key < own.end_key; first_key += keys) {
            const bool box = first_key + keys <= own.end_key || own.end_key == p.shape.Nk;
            key_tiles += 1, boxes += box, by_threads += box ? 0 : own.end_key - first_key;
        }
    }
    const Count heads_kv = p.B() * Count(p.shape.Hkv), d = p.d(), padded = p.Tr() * tile;
    key_tiles *= heads_kv, boxes *= heads_kv, by_threads *= heads_kv;
    c.is("launches", 3 + has_sinks);
    c.is("blocks", p.heads() * padded * d / 8 / 256 * 3 / 2 + (has_sinks ? p.H() : 0) +
                       heads_kv * (packed ? p.Nk() / tile + documents.size() : p.Tc()));
    c.is("tiles", visited);
    c.is("masked_tiles", masked);
    c.is("exponentials", visited * tile * tile * (f.softcap > 0 ? 2 : 1) + (has_sinks ? p.rows() : 0));
    c.is("wgmma_columns", visited * 5 * tile * d / 16);
    c.is("atomics", visited * tile * d / 4);
    c.is("bulk_loads", key_tiles * 2 + visited * 4);
    c.is("bulk_stores", boxes * 2);
    // L and D, and P or its product with the slope out and in; rows of dK and dV that no box stores. The sum
    // of each warp for a sink.
    if (f.dropout.kept == 256) {
        const Count of_tile = 128 * tile * (1 + 2) + 2 * tile * tile * 2;
        c.is("shared_exchange_bytes",
             visited * of_tile + by_threads * 2 * d * 2 + (has_sinks ? p.H() * (8 + 7) * 4 : 0));
    }
    c.is("named_waits", visited * 384 + key_tiles * 512);
    c.is("registers_moved", key_tiles * (128 * (168 - 24) + 256 * (240 - 168)));
}

/// Each feature alone, some at once, documents whose rows share query tiles with others, shorter and longer
/// than a key tile, without rows and without keys
std::vector<Case> with_features() {
    const Case plain{.shape = {1, 2, 1, 200, 330, 256}},
        causal{.shape = {2, 2, 1, 130, 70, 256}, .causal = true};
    std::vector<Case> cases;
    for (const Case& c : {plain, causal}) {
        for (int k = 0; k < 5; ++k) {
            Features& f = cases.emplace_back(c).features;
            if (k == 0 || k == 4) f.window = {63, 40};
            if (k == 1 || k == 4) f.softcap = 30;
            if (k == 2 || k == 4) f.alibi = "drawn";
            if (k == 3 || k == 4) f.sinks = "drawn";
        }
    }
    for (const auto& [shape, lengths] : {std::pair{Shape{1, 2, 2, 260, 260, 256}, "100,20,140"},
                                         {{1, 1, 1, 199, 187, 256}, "64,65,0,1,0x10,63x47,6x0"},
                                         {{1, 2, 1, 130, 230, 256}, "0x30,130x5,0x195"}}) {
        for (const Window& window : {Window{}, {30, 0}}) {
            Case& c = cases.emplace_back(Case{.shape = shape, .features = {.window = window}});
            c.features.documents = lengths;
        }
    }
    return cases;
}

LADDER_CLAIMS(.claim = claim, .cases = backward(joined(cases_of({wide_shapes}), with_features())),
              .resident_blocks = 1);

}  // namespace
