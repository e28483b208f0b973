// Under a window, and in documents, multiplies what the parent's mask leaves; under column bounds the query
// tiles that no interval hides from all keys of a block; and under lists of tiles those that list one of its
// two key tiles, each once. A softcap takes a tanh for each exponential, and dropout a bit for each element.
// The gradient of sinks is a launch more, which reads L and D of each row once.
#include <algorithm>

#include "../66_window_gradients/claims.h"
#include "harness/features/columns.h"
#include "harness/features/tiles.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// What a mask leaves of the query tiles, in all blocks; in halves of a slot under lists at d = 64
struct Work {
    Count visited, masked;  // by both warpgroups
    Count slots;            // that blocks fill
};

/// Under a window, in documents or without
Work of_documents(Claims& c, const GradientTiles& of) {
    const Counted& p = c.p;
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc);
    const auto [visited, masked] = visited_by_all(p, Br, Bc);
    if (!p.features.documents.empty()) {
        const auto documents = documents_in(p);
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
        c.is("blocks", p.heads() * ((padded * d / 8 + 255) / 256 + (padded * d / 16 + 255) / 256) +
                           heads_kv * (p.Nk() / of.Bc + documents.size()));
        c.is("barriers", key_tiles);  // numbers without keys end before it
        // K and V of both warpgroups, and Q, dO, L and D of each tile; dK and dV of a warpgroup in boxes, or
        // not
        c.is("bulk_loads", key_tiles * 2 * of.groups + visited * 4);
        c.is("bulk_stores", boxes * 2);
        c.is("global_store_bytes",
             p.heads() * padded * (d + 2) * 4 + visited * of.Br() * d * 4 + output_bytes(p));
    }
    return {visited * of.groups, masked * of.groups, visited};
}

/// Whether a row sees a key, by the definition of a window, whatever hides from it
bool sees(const Counted& p, int row, int key) {
    const int distance = key - (row + p.shape.Nk - p.shape.Nq),
              right = p.causal ? 0 : p.features.window.right;
    return (p.features.window.left < 0 || -distance <= p.features.window.left) &&
           (right < 0 || distance <= right);
}

/// What a query tile, the rows first .. end - 1, is for the keys first_key .. end_key - 1.
struct TileClass {
    bool visited, masked;
};

TileClass classify(const Counted& p, const std::vector<reference::HiddenRows>& hidden, int first_key,
                   int end_key, int first, int end) {
    bool some = false, all = true;
    for (int row = first; row < end; ++row) {
        for (int key = first_key; key < end_key; ++key) {
            const bool seen = sees(p, row, key);
            some = some || seen;
            all = all && seen;
        }
    }
    for (int k = 0; k < 2; ++k) {
        bool holds_all = true;
        int least_begin = p.shape.Nq, largest_end = 0;  // of intervals with rows
        for (int key = first_key; key < end_key; ++key) {
            const int from = hidden[key].begin[k], to = hidden[key].end[k];
            holds_all = holds_all && from <= first && to >= end;
            if (from >= to) continue;
            least_begin = std::min(least_begin, from);
            largest_end = std::max(largest_end, to);
        }
        some = some && !holds_all;
        all = all && !(first < largest_end && end > least_begin);
    }
    return {some, !all};
}

/// The heads of a group share their gaps: a tile is left out where none of them sees it, and unmasked where
/// each sees all of it.
Work of_columns(const Counted& p, const GradientTiles& of) {
    const Case problem{.shape = p.shape, .causal = p.causal, .features = p.features, .seed = p.seed};
    const int Br = static_cast<int>(of.Br()), Bc = static_cast<int>(of.Bc), heads = p.shape.H / p.shape.Hkv;
    Count visited = 0, masked = 0;
    for (int kv_head = 0; kv_head < p.shape.B * p.shape.Hkv; ++kv_head) {
        std::vector<std::vector<reference::HiddenRows>> hidden;
        for (int h = 0; h < heads; ++h)
            hidden.push_back(hidden_rows(problem, kv_head / p.shape.Hkv, kv_head % p.shape.Hkv * heads + h));
        for (int first_key = 0; first_key < p.shape.Nk; first_key += Bc) {
            const int end_key = std::min(first_key + Bc, p.shape.Nk);
            for (int first = 0; first < p.shape.Nq; first += Br) {
                TileClass group{false, end_key < first_key + Bc};
                for (const auto& of_head : hidden) {
                    const TileClass tile =
                        classify(p, of_head, first_key, end_key, first, std::min(first + Br, p.shape.Nq));
                    group = {group.visited || tile.visited, group.masked || tile.masked};
                }
                visited += group.visited ? heads : 0;
                masked += group.visited && group.masked ? heads : 0;
            }
        }
    }
    return {visited * of.groups, masked * of.groups, visited};
}

/// What fills the last slot adds at most one visit of a block. Elements are tested where a list does not say
/// that a tile is full, and each word of a partial tile is read once.
Work of_lists(Claims& c, const GradientTiles& of) {
    const Counted& p = c.p;
    const Case problem{.shape = p.shape, .features = p.features, .seed = p.seed};
    const int Tr = (p.shape.Nq + 63) / 64, Tc = (p.shape.Nk + 63) / 64, pairs = (Tc + 1) / 2;
    const Count Br = of.Br(), d = p.d(), in_slot = Br / 64;
    Count slots = 0, full = 0, visits = 0;
    std::vector<Count> of_list(std::size_t(p.shape.B) * p.shape.Hkv * pairs);
    for (int head = 0; head < p.shape.B * p.shape.H; ++head) {
        const reference::Tiles tiles = tiles_of(problem, head / p.shape.H, head % p.shape.H);
        const int kv_head = head / (p.shape.H / p.shape.Hkv);
        for (int i = 0; i < Tr; ++i) {
            for (int j = 0; j < pairs; ++j) {
                bool is_seen = false;
                for (int n = 2 * j; n < std::min(Tc, 2 * j + 2); ++n) {
                    const int kind = tiles.kinds[i * Tc + n];
                    is_seen = is_seen || kind != reference::Tiles::hidden;
                    full += kind == reference::Tiles::full;
                }
                of_list[std::size_t(kv_head) * pairs + j] += is_seen;
            }
        }
    }
    for (const Count count : of_list) {
        slots += (count + in_slot - 1) / in_slot;
        visits += (count + in_slot - 1) / in_slot * in_slot;
    }
    const Count lists = of_list.size(), blocks = lists * KeyTileOrder(of, p.causal).parts;
    const Count group = p.H() / Count(p.shape.Hkv), tested = visits * of.groups - full;
    // K and V once for each block, and Q, dO, L and D of each query tile
    c.is("bulk_loads", blocks * 2 * of.groups + visits * 4);
    // A vote for each 32 query tiles of a group; 8 shuffles for each tile that is tested, in four warps
    c.is("votes", lists * ((group * Tr + 31) / 32));
    const Count prepare_blocks = p.heads() * ((of.query_tiles() * Br * d / 8 + 255) / 256);
    if (p.features.dropout == Dropout() && p.features.sinks.empty())
        c.is("shuffles", prepare_blocks * 8 * (d == 64 ? 3 : 4) + blocks * 12 + slots * 8 + tested * 4 * 8);
    return {visits * of.groups, tested, slots};
}

/// Four warps write a bit for each element of a tile, and each thread that multiplies reads its own, for P
/// and for dP; no byte of a mask is in global memory.
void claim_dropout(Claims& c, const GradientTiles& of, Count slots) {
    constexpr Count drawing = 128;  // threads
    const Count blocks = of.blocks() * KeyTileOrder(of, c.p.causal).parts, Br = of.Br();
    // L and D of two columns in eight, and dQ, as before
    c.is("shared_exchange_bytes", slots * (of.threads * 2 * Br + Br * c.p.d() * 4 + 3 * Br * of.Bc / 8));
    // The producer expects K and V and each tile; all threads that multiply give it back; those that draw say
    // that its bits are written, and wait until they may write.
    c.is("mbarrier_arrivals", blocks + slots * (1 + of.threads + drawing));
    c.is("mbarrier_waits", blocks * of.threads + slots * (of.threads + 1 + drawing));
}

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientTiles of{p};
    const Features& f = p.features;
    const bool has_sinks = !f.sinks.empty(), has_lists = !f.tiles.empty(), packed = !f.documents.empty();
    const Work work = has_lists            ? of_lists(c, of)
                      : !f.columns.empty() ? of_columns(p, of)
                                           : of_documents(c, of);
    const Count scores = work.slots * of.Br() * of.Bc;
    const bool in_parts = !packed && KeyTileOrder(of, p.causal).parts > 1;
    c.is("launches", 3 + has_sinks + has_lists + (in_parts ? 2 : 0));
    c.is("tiles", work.visited);
    c.is("masked_tiles", work.masked);
    c.is("exponentials", scores * (f.softcap > 0 ? 2 : 1) + (has_sinks ? p.rows() : 0));
    c.is("wgmma_columns", scores * 5 * p.d() / 1024);
    c.is("bulk_adds", work.slots * of.groups);
    if (f.dropout != Dropout() && f.columns.empty() && !has_sinks) claim_dropout(c, of, work.slots);
    Features rest = f;
    rest.window = Window();
    if (rest != Features()) return;
    // Lists of tiles have room for all query tiles of 64 rows of a group, and one more.
    const Count lists = of.blocks(), visits = p.H() / Count(p.shape.Hkv) * ((p.shape.Nq + 63) / 64) + 1;
    c.is("workspace_bytes", c.parent.workspace_bytes + lists * visits * 16 + (lists + 3) / 4 * 16);
    c.only_moves({"workspace_bytes"});
}

/// Each change of scores alone, and all at once
std::vector<Case> with_scores(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k) {
        Features& f = cases[k].features;
        const bool all = k % 4 == 3;
        if (k % 4 == 0 || all) f.softcap = 30;
        if (k % 4 == 1 || all) f.alibi = "drawn";
        if (k % 4 == 2 || all) f.sinks = "drawn";
    }
    return cases;
}

std::vector<Case> with_dropout(std::vector<Case> cases) {
    for (std::size_t k = 0; k < cases.size(); ++k)
        cases[k].features.dropout = {k % 3 == 0 ? 230 : static_cast<int>(k * 37 % 255) + 1, k + 1};
    return cases;
}

/// Every pattern of column bounds in turn, half of them the last, some of them in a window, too
std::vector<Case> with_columns(std::vector<Case> cases) {
    const auto& patterns = column_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        const bool any = k % 2 == 1;  // bounds, of intervals without rows, too
        cases[k].features.columns = (any ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
        if (k % 5 == 4) cases[k].features.window = {100, 20};
    }
    return cases;
}

/// Every pattern of lists in turn, half of them the last
std::vector<Case> with_tiles(std::vector<Case> cases) {
    const auto& patterns = tile_patterns();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        cases[k].causal = false;
        cases[k].features.tiles = (k % 2 == 1 ? patterns.back() : patterns[k / 2 % patterns.size()]).name;
        cases[k].seed = k + 1;
    }
    return cases;
}

constexpr Shape few_blocks[] = {{1, 12, 1, 130, 200, 64}, {2, 8, 1, 200, 64, 128}};
constexpr Shape masked_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 64}, {1, 4, 2, 900, 260, 128}};

LADDER_CLAIMS(.claim = claim,
              .cases = joined(
                  joined(joined(backward(joined(cases_of({usual_shapes, few_blocks}), packed_cases())),
                                backward(in_windows(cases_of({long_shapes, usual_shapes})))),
                         joined(with_scores(backward(cases_of({usual_shapes, few_blocks}))),
                                with_dropout(backward(cases_of({usual_shapes, few_blocks}))))),
                  joined(
                      joined(backward(with_columns(cases_of({masked_shapes, usual_shapes, masked_shapes}))),
                             backward(with_tiles(cases_of({masked_shapes, usual_shapes, masked_shapes})))),
                      joined(with_scores(backward(with_columns(cases_of({masked_shapes})))),
                             with_dropout(backward(with_tiles(cases_of({masked_shapes}))))))),
              .resident_blocks = 1);

}  // namespace
