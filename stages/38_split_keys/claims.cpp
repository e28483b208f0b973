// Gives all blocks even shares of the key tiles of all query tiles, and merges parts in a second kernel.
#include "../37_packed_rows/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// What a block takes of a query tile: key tiles begin .. end - 1, of which it copies and computes those that
/// its rows see.
struct Piece {
    Count block, tile, begin, end;
};

/// The blocks of the first launch, the query tiles that they share, and all that they take.
struct Shares {
    Count blocks, rest, Tc;
    std::vector<Piece> pieces;

    explicit Shares(const Counted& p) : Tc((p.Nk() + hopper_Bc(p) - 1) / hopper_Bc(p)) {
        const Count tiles = packed_tiles(p).size(), places = p.sm_count;
        const Count even = tiles > places ? places : tiles * std::min(Tc, places / tiles);
        const auto most = [places](Count busy) { return 8 * busy >= 7 * places; };
        blocks = tiles * Tc >= 16 * places && !most(even) ? places : even;
        rest = tiles % blocks * Tc < blocks || most(tiles % blocks) ? 0 : tiles % blocks;
        for (Count block = 0; block < blocks; ++block) {
            for (Count t = rest * Tc * block / blocks, last = rest * Tc * (block + 1) / blocks; t < last;) {
                const Count end = std::min(t / Tc * Tc + Tc, last);
                pieces.push_back({block, t / Tc, t % Tc, t % Tc + end - t});
                t = end;
            }
        }
        for (Count r = rest; r < tiles; ++r) pieces.push_back({(r - rest) % blocks, r, 0, Tc});
    }
};

/// Of key tiles 0 .. seen - 1, those in the piece
Count of_piece(const Piece& piece, Count seen) {
    return std::max(piece.begin, std::min(piece.end, seen)) - piece.begin;
}

/// Packed rows of a query tile that exist, and those of them that see a key
struct Rows {
    Count all = 0, with_keys = 0;

    Rows(const Counted& p, Count tile) {
        const int Br = 64 * static_cast<int>(warpgroups(p)), count = p.group() * p.shape.Nq;
        const int first = static_cast<int>(tile) % ((count + Br - 1) / Br) * Br;
        for (int row = first; row < std::min(first + Br, count); ++row) {
            ++all;
            with_keys += seen_by(p, p.group(), row) > 0;
        }
    }
};

void claim(Claims& c) {
    const Counted& p = c.p;
    const auto tiles = packed_tiles(p);
    const Shares shares(p);
    const Count Bc = hopper_Bc(p), groups = warpgroups(p), Br = 64 * groups;
    Count computed = 0, copied = 0, KV_bytes = 0, first_tiles = 0, Q_rows = 0, part_rows = 0, divides = 0;
    std::vector<Count> parts(shares.rest);
    for (const Piece& piece : shares.pieces) {
        const QueryTile& of_block = tiles[piece.tile];
        const Count own = of_piece(piece, of_block.tiles), rows = Rows(p, piece.tile).all;
        const bool whole = piece.end - piece.begin == shares.Tc;
        copied += own;
        KV_bytes += KV_bytes_of_tiles(p, piece.begin, piece.begin + own);
        Q_rows += rows;
        for (const GroupVisit& group : of_block.groups) {
            computed += of_piece(piece, group.tiles);
            first_tiles += of_piece(piece, group.tiles) > 0;
            if (whole) divides += group.rows * in_a_quad;
        }
        if (whole) continue;
        part_rows += rows;
        ++parts[piece.tile];
    }
    // A warp merges a row: its lanes read m and l of each part, and each part's O is read once. Parts are
    // weighed 16 at a time, against what came before.
    Count merge_bytes = 0, merge_exponentials = 0;
    for (Count r = 0; r < shares.rest; ++r) {
        if (parts[r] == 0) continue;
        const Rows rows(p, r);
        merge_bytes += rows.all * parts[r] * (32 * 8 + p.d() * 4);
        merge_exponentials += rows.all * ((parts[r] + 15) / 16) * 17 * 32;
        divides += rows.with_keys * 32;
    }
    c.parent_is("launches", 1);
    c.is("launches", shares.rest > 0 ? 2 : 1);
    c.is("blocks", shares.blocks + shares.rest * Br / 4);
    c.parent_is("atomics", tiles.size());
    c.is("atomics", 0);
    c.stays("tiles");
    c.is("tiles", computed);
    c.stays("masked_tiles");
    c.stays("wgmma");
    c.stays("wgmma_columns");
    c.stays("votes");
    c.stays("bulk_loads");
    c.is("bulk_loads", 2 * copied);
    c.stays("bulk_bytes");
    c.is("exponentials", computed * 64 * Bc + merge_exponentials);
    // A block asks for its warpgroup; first maxima, and sums of l of every piece, also where no rows are
    c.is("shuffles",
         4 * ((1 + groups) * shares.blocks + first_tiles * 2 * 2 + shares.pieces.size() * groups * 2 * 2));
    c.is("divides", divides);
    c.is("async_copies", shares.pieces.size() * groups * 64 * p.d() / 8);
    c.is("global_load_bytes", KV_bytes + Q_rows * p.d() * 2 + merge_bytes);
    c.is("global_store_bytes", output_bytes(p) + part_rows * (p.d() + 2) * 4);
    c.is("workspace_bytes", shares.rest > 0 ? 2 * shares.blocks * Br * (p.d() + 2) * 4 : 0);
}

// Key tiles of all warpgroups. The merge's blocks have none. Where the parent has a block for each query tile
// it is known which one takes which. Where each holds all rows of a group, and no share spans two, they are
// alike.
BlockOrder order(const Counted& p) {
    const auto tiles = packed_tiles(p);
    const Shares shares(p);
    const bool alike = tiles.size() == p.heads() / p.group() && shares.blocks % tiles.size() == 0;
    if (p.causal || tiles.size() > static_cast<Count>(p.sm_count) || !alike) return {};
    BlockOrder order;
    order.stage.resize(std::max(shares.blocks, shares.rest * 64 * warpgroups(p) / 4));
    const auto all_of = [&](const Piece& piece) {
        Count sum = 0;
        for (const GroupVisit& group : tiles[piece.tile].groups) sum += of_piece(piece, group.tiles);
        return sum;
    };
    for (const Piece& piece : shares.pieces) order.stage[piece.block] += all_of(piece);
    for (Count r = 0; r < tiles.size(); ++r) order.parent.push_back(all_of({r, r, 0, shares.Tc}));
    return order;
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, draft_shapes}), .order = order,
              .resident_blocks = 1);

}  // namespace
