/// @file
/// What the gradients under a window count alike, in documents or without: the query tiles that a key tile
/// visits, by the definition of the mask.
#pragma once

#include <algorithm>

#include "../50_wgmma_gradients/claims.h"
#include "harness/features/documents.h"

namespace ladder::formulas {

/// The problem's documents, or one of all rows and keys
inline std::vector<reference::Document> documents_in(const Counted& p) {
    const auto documents = documents_of({.shape = p.shape, .features = p.features});
    if (!documents.empty()) return documents;
    return {{0, p.shape.Nq, 0, p.shape.Nk}};
}

/// Whether a row sees a key of this document
inline bool sees(const Counted& p, const reference::Document& own, int row, int key) {
    const int distance = (key - own.end_key) - (row - own.end_row),
              right = p.causal ? 0 : p.features.window.right;
    return row >= own.first_row && row < own.end_row &&
           (p.features.window.left < 0 || -distance <= p.features.window.left) &&
           (right < 0 || distance <= right);
}

/// Of all query tiles, on the sequence's grid
struct Visited {
    Count tiles = 0;   // with a row that sees one of the keys
    Count masked = 0;  // those of them in which not all rows see all keys

    Visited& operator+=(const Visited& more) {
        tiles += more.tiles, masked += more.masked;
        return *this;
    }
};

/// What a document's key tile of Bc keys visits of the query tiles of Br rows
inline Visited visited_by(const Counted& p, const reference::Document& own, int first_key, int Br, int Bc) {
    Visited visited;
    for (int first = 0; first < p.shape.Nq; first += Br) {
        bool some = false, all = first_key + Bc <= own.end_key;
        for (int row = first; row < std::min(first + Br, p.shape.Nq); ++row) {
            for (int key = first_key; key < std::min(first_key + Bc, own.end_key); ++key) {
                const bool seen = sees(p, own, row, key);
                some = some || seen;
                all = all && seen;
            }
        }
        visited += {some, some && !all};
    }
    return visited;
}

/// The same of all key tiles of all documents, in all heads
inline Visited visited_by_all(const Counted& p, int Br, int Bc) {
    Visited visited;
    for (const reference::Document& own : documents_in(p)) {
        for (int key = own.first_key; key < own.end_key; key += Bc)
            visited += visited_by(p, own, key, Br, Bc);
    }
    return {visited.tiles * p.heads(), visited.masked * p.heads()};
}

inline std::vector<Case> in_windows(std::vector<Case> cases) {
    const Window windows[] = {{63, 0}, {127, 0}, {100, 20}, {-1, 5}, {0, 0}, {65, -1}};
    for (std::size_t k = 0; k < cases.size(); ++k) cases[k].features.window = windows[k % std::size(windows)];
    return cases;
}

/// More keys than rows, and fewer
inline constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {1, 1, 1, 400, 300, 128}};

/// Documents whose rows share query tiles with others or begin with one, shorter and longer than a key tile,
/// without rows and without keys, more rows than keys and fewer; in windows and without. Enough blocks that
/// nothing is split.
inline std::vector<Case> packed_cases() {
    return packed_in_windows({{{1, 2, 2, 512, 512, 64}, "200,40,272"},
                              {{1, 1, 1, 600, 600, 128}, "64,128,0,1,263,65,79"},
                              {{1, 2, 1, 430, 330, 64}, "0x30,300x5,30x0,100x295"},
                              {{1, 2, 1, 260, 260, 128}, "256,4"},
                              {{1, 2, 1, 60, 60, 128}, "10,10,16,4,10,10"}},
                             {30, 170});
}

}  // namespace ladder::formulas
