// Copies and multiplies what the rows of each document see, and stores whole boxes but at a document's end.
#include "../65_hopper_windows/claims.h"
#include "harness/features/documents.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const Counted& p = c.p;
    const Count Br = 64 * warpgroups(p);
    auto documents = documents_of({.shape = p.shape, .features = p.features});
    const Count numbers =
        p.heads() * (documents.empty() ? (p.Nq() + Br - 1) / Br : p.Nq() / Br + documents.size());
    if (documents.empty()) documents = {{0, p.shape.Nq, 0, p.shape.Nk}};
    std::vector<QueryTile> tiles;
    Count boxes = 0;
    for (const reference::Document& own : documents) {
        Counted alone = p;
        alone.shape.Nq = own.end_row - own.first_row, alone.shape.Nk = own.end_key - own.first_key;
        const auto of_document = tiles_in_window(alone);
        tiles.insert(tiles.end(), of_document.begin(), of_document.end());
        // A warp stores its 16 rows as a box, unless rows of another document follow within it.
        const Count warps_with_rows = 4 * writing_groups(of_document), whole = p.heads() * (alone.Nq() / 16);
        const bool is_last = own.end_row == p.shape.Nq;
        boxes += is_last ? warps_with_rows : whole;
    }
    const Count blocks = std::min<Count>(p.sm_count, numbers);
    c.is("blocks", blocks);
    c.is("atomics", numbers);
    claim_tiles(c, tiles, blocks, boxes);
    c.is("bulk_stores", boxes * stores_of_warp(p));
    c.is("global_store_bytes", output_bytes(p));
    if (p.features.documents.empty()) c.only_moves({"shared_exchange_bytes"});
}

/// Documents shorter and longer than a tile, that end within a warp's 16 rows and at their end, without rows
/// or without keys
std::vector<Case> packed_cases() {
    return packed_in_windows({{{1, 2, 2, 512, 512, 64}, "200,40,272"},
                              {{1, 1, 1, 600, 600, 128}, "64,128,0,1,263,65,79"},
                              {{1, 2, 1, 430, 330, 64}, "0x30,300x5,30x0,100x295"},
                              {{1, 1, 1, 400, 400, 256}, "300,100"},
                              {{1, 2, 1, 60, 60, 128}, "10,10,16,4,10,10"}},
                             {30, 170});
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({usual_shapes, wide_shapes, crowded_shapes}), packed_cases()),
              .resident_blocks = 1);

}  // namespace
