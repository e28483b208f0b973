#include "harness/count/claims.h"
#include "harness/ladder/ladder.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace ladder {
namespace {

using Count = std::uint64_t;

constexpr Count tile = 64;      // Br and Bc
constexpr Count in_a_quad = 4;  // lanes that hold the same row of a fragment
constexpr Count warps = 4;

/// A problem to count, and the quantities that the formulas are made of.
struct Counted {
    Shape shape;
    bool causal = false;
    std::string input = "normal";
    int sm_count = 1;

    Count B() const { return shape.B; }
    Count H() const { return shape.H; }
    Count Nq() const { return shape.Nq; }
    Count Nk() const { return shape.Nk; }
    Count d() const { return shape.d; }
    Count heads() const { return B() * H(); }
    Count rows() const { return heads() * Nq(); }
    Count Tr() const { return (Nq() + tile - 1) / tile; }
    Count Tc() const { return (Nk() + tile - 1) / tile; }
    /// (query tile, key tile) pairs, all heads
    Count tiles() const { return heads() * Tr() * Tc(); }
    /// (slice of 16 query rows, key tile) pairs, all heads. A slice without rows is not computed.
    Count slice_tiles() const { return heads() * ((Nq() + 15) / 16) * Tc(); }

    /// Query heads that share a key/value head
    Count group() const { return shape.H / shape.Hkv; }
    /// Rows that see no key: only under a mask, and only where queries outnumber keys
    Count rows_without_keys() const { return causal && Nq() > Nk() ? heads() * (Nq() - Nk()) : 0; }

    Case as_case() const { return {.shape = shape, .causal = causal, .input = input}; }
};

/// Long and short, ragged and not, grouped heads, both head dimensions, Nq != Nk.
std::vector<Counted> problems(bool causal) {
    return {{{1, 2, 2, 256, 256, 64}, causal}, {{1, 1, 1, 128, 320, 128}, causal},
            {{2, 4, 1, 100, 197, 64}, causal}, {{1, 2, 1, 65, 63, 128}, causal},
            {{1, 1, 1, 200, 70, 64}, causal},  {{1, 3, 3, 1, 130, 64}, causal}};
}

/// The same at d = 256, where a warp of the stages for long queries owns 16 rows.
std::vector<Counted> wide_problems(bool causal) {
    return {{{1, 2, 1, 256, 256, 256}, causal},
            {{1, 2, 2, 100, 197, 256}, causal},
            {{1, 1, 1, 150, 37, 256}, causal}};
}

/// More query tiles than multiprocessors at d = 256, in groups and in one; and more keys than stages 28 and
/// 29 call few.
std::vector<Counted> crowded_problems(bool causal) {
    return {{{2, 4, 4, 256, 320, 256}, causal},
            {{3, 4, 2, 300, 300, 256}, causal},
            {{1, 5, 1, 130, 1030, 256}, causal}};
}

/// Few queries of grouped heads, and keys that are split; with and without a group, few heads and many.
std::vector<Counted> decode_problems(bool causal) {
    return {{{1, 8, 2, 1, 1024, 64}, causal},  {{1, 8, 2, 1, 1000, 128}, causal},
            {{1, 4, 1, 3, 640, 128}, causal},  {{2, 8, 4, 1, 500, 64}, causal},
            {{1, 2, 2, 1, 700, 64}, causal},   {{1, 16, 1, 20, 130, 64}, causal},
            {{3, 12, 4, 7, 130, 64}, causal},  {{1, 4, 2, 130, 70, 64}, causal},
            {{1, 1, 1, 1, 2600, 64}, causal},  {{1, 1, 1, 1, 64, 64}, causal},
            {{1, 8, 2, 1, 1024, 256}, causal}, {{1, 6, 2, 9, 300, 256}, causal}};
}

/// Scores that climb by 4, and their exponents by 4 log2(e) = 5.8, with each tile of 64 keys: every other one
/// is more than 8 above m.
std::vector<Counted> rising_problems() {
    return {{{1, 2, 1, 256, 448, 64}, false, "rising"},
            {{1, 1, 1, 65, 256, 128}, false, "rising"},
            {{1, 1, 1, 64, 320, 256}, false, "rising"}};
}

/// What one block visits: its loop over key tiles, in numbers.
struct Visit {
    Count tiles = 0;
    Count masked = 0;   ///< of these, crossed by the diagonal or the end of the keys
    Count keys = 0;     ///< that there are, in these tiles
    Count rows = 0;     ///< of the query tile that there are and that see one of these keys
    Count padded = 0;   ///< the same, and those behind the last query that a warp with queries carries along
    Count warps = 0;    ///< that take part, of four that share the tile's rows: those that have a query row
    Count queries = 0;  ///< rows of the query tile that there are
};

/// Keys that a row of the query heads of a group sees, which are the first ones
int seen_by(const Counted& p, int group, int row) {
    return p.causal ? std::clamp(row / group + 1 + p.shape.Nk - p.shape.Nq, 0, p.shape.Nk) : p.shape.Nk;
}

/// A block with key tiles begin to end - 1, of those that it sees, and the query tile whose first row is
/// given.
Visit visit(const Counted& p, int Br, int Bc, int group, int first, int begin, int end, bool all_warps) {
    const int rows = group * p.shape.Nq, Nk = p.shape.Nk;
    const auto seen = [&](int row) { return seen_by(p, group, row); };
    const int taking_part = all_warps ? 4 : std::min(4, (rows - first + Br / 4 - 1) / (Br / 4));
    Visit block;
    block.tiles = end - begin;
    block.warps = taking_part;
    block.queries = std::min(Br, rows - first);
    for (int j = begin; j < end; ++j) {
        block.masked += (j + 1) * Bc > seen(first);
        block.keys += std::min(Bc, Nk - j * Bc);
    }
    for (int row = first; row < first + taking_part * Br / 4; ++row) {
        const bool sees = begin < end && seen(row) > begin * Bc;
        block.padded += sees;
        block.rows += sees && row < rows;
    }
    return block;
}

/// The blocks of one launch, in the order head, query tile, split. Tiles have Br rows of a query head, or of
/// the `group` query heads that share a key/value head, and Bc keys.
std::vector<Visit> visits(const Counted& p, int Br, int Bc, int group = 1, int splits = 1,
                          bool all_warps = false) {
    const int rows = group * p.shape.Nq;
    const auto seen = [&](int row) { return seen_by(p, group, row); };
    std::vector<Visit> blocks;
    for (Count head = 0; head < p.heads() / group; ++head) {
        for (int first = 0; first < rows; first += Br) {
            const int Tc = (seen(first + Br - 1) + Bc - 1) / Bc;
            for (int split = 0; split < splits; ++split) {
                blocks.push_back(visit(p, Br, Bc, group, first, Tc * split / splits,
                                       Tc * (split + 1) / splits, all_warps));
            }
        }
    }
    return blocks;
}

template <class F>
Count sum(const std::vector<Visit>& blocks, F&& f) {
    Count total = 0;
    for (const Visit& block : blocks) total += f(block);
    return total;
}

// Sums that many claims name.
Count tiles_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.tiles; });
}
Count masked_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.masked; });
}
Count warp_tiles_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.tiles * v.warps; });
}
Count first_tiles_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return (v.tiles > 0) * v.warps; });
}
Count KV_bytes_of(const std::vector<Visit>& blocks, const Counted& p) {
    return sum(blocks, [](auto& v) { return v.keys; }) * 2 * p.d() * 2;
}

std::vector<Count> tiles_of_each(const std::vector<Visit>& blocks) {
    std::vector<Count> tiles;
    for (const Visit& block : blocks) tiles.push_back(block.tiles);
    return tiles;
}

/// Every stage writes 16-bit O and fp32 L once.
Count output_bytes(const Counted& p) {
    return p.rows() * (p.d() * 2 + 4);
}

/// What copies write into shared memory and ldmatrix reads from it.
Count tile_bytes(Count async_copies, Count ldmatrix) {
    return async_copies * 16 + ldmatrix * 32 * 16;
}

/// The workspace for `splits` parts of the keys: their fp32 O and L.
Count part_bytes(Count splits, const Counted& p) {
    return splits > 1 ? splits * p.rows() * (p.d() + 1) * 4 : 0;
}
/// Parts of the keys, given that workspace.
Count splits_of(const Work& work, const Counted& p) {
    return std::max<Count>(1, work.workspace_bytes / (p.rows() * (p.d() + 1) * 4));
}

/// Stages 06 to 09: as many parts as fill the multiprocessors once with the blocks that share one.
Count splits_to_fill(int stage, const Counted& p, Count unsplit) {
    const Count resident = (p.d() <= 128 ? 3 : stage <= 8 ? 2 : 1) * p.sm_count;
    return std::max<Count>(1, std::min(p.Tc(), resident / unsplit));
}

/// Stages 10, 20, 23 and 24: one block per multiprocessor. Where the unsplit blocks do not fit at once, waves
/// of them are 85% full, or as full as 8 parts allow.
Count splits_for_full_waves(const Counted& p, Count unsplit) {
    const Count multiprocessors = p.sm_count;
    const Count places = multiprocessors * (p.d() > 128 ? 1 : 3), most = std::min<Count>(p.Tc(), 8);
    const auto full = [&](Count n) {
        const Count waves = (unsplit * n + places - 1) / places;
        return waves == 1 || 100 * unsplit * n >= 85 * waves * places;
    };
    Count splits = std::max<Count>(1, std::min(p.Tc(), multiprocessors / unsplit));
    while (splits < most && !full(splits)) ++splits;
    return splits;
}

/// Query rows of a tile of stages 11 to 17 (from 18 on: 128), and the slices of 16 of them that a warp owns.
int wide_Br(const Counted& p) {
    return p.d() <= 128 ? 128 : 64;
}
Count slices(const Counted& p) {
    return wide_Br(p) / 64;
}

Count value_of(const Work& work, const std::string& counter) {
    if (counter == "workspace_bytes") return work.workspace_bytes;
    for (const auto& field : simt::counter_fields) {
        if (counter == field.name) return work.counters.*field.value;
    }
    throw std::logic_error("there is no counter " + counter);
}

/// Takes down the claims about one stage on one problem.
class Claims {
  public:
    Claims(const Counted& problem, const Work& parent_work, const Work& child_work)
        : p(problem), parent(parent_work), child(child_work) {}

    const Counted& p;
    const Work &parent, &child;
    std::vector<Claim> list;

    bool has_parent() const { return parent.why_not.empty(); }

    void is(const std::string& counter, Count expected) {
        list.push_back({.counter = counter, .expected = expected, .got = value_of(child, counter)});
    }
    void parent_is(const std::string& counter, Count expected) {
        list.push_back(
            {.counter = counter, .expected = expected, .got = value_of(parent, counter), .of_parent = true});
    }
    void stays(const std::string& counter) {
        list.push_back({.counter = counter,
                        .expected = value_of(parent, counter),
                        .got = value_of(child, counter),
                        .stays = true});
    }
    /// Every counter that is not named must be the same in both.
    void only_moves(const std::set<std::string>& may_move) {
        for (const auto& field : simt::counter_fields) {
            // Lines go where the copies go, unless that is the point.
            const bool lines = field.name == std::string_view("copied_lines");
            if (lines && may_move.contains("async_copies")) continue;
            if (!may_move.contains(field.name)) stays(field.name);
        }
    }
};

/// The key tiles of each block, by the block's number.
struct BlockOrder {
    std::vector<Count> parent, stage;
};

// --- The stages, one function each ----------------------------------------------------------------------

// Keeps N x N matrices.
void claim_00(Claims& c) {
    const Counted& p = c.p;
    if (p.causal) return;
    const Count elements = p.rows() * p.Tc() * tile;  // S in fp32 and P in 16 bits, whole key tiles
    c.is("workspace_bytes", elements * (4 + 2));
    c.is("launches", 3);
    // S is written once, P once, and O and L
    c.is("global_store_bytes", elements * (4 + 2) + output_bytes(p));
    // Q and V are read once per tile row and column as in every stage; S three times, by the passes over
    // a row; P once.
    const Count Q_bytes = p.rows() * p.Tc() * p.d() * 2,
                KV_bytes = 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2;
    c.is("global_load_bytes", Q_bytes + KV_bytes + elements * (3 * 4 + 2));
    c.is("exponentials", 2 * elements);  // once for the sum, once for the quotient
}

// Passes O, m and l through global memory at every key tile.
void claim_01(Claims& c) {
    const Counted& p = c.p;
    if (p.causal) return;
    c.is("workspace_bytes", p.rows() * (p.d() + 2) * 4);  // O, m and l
    c.is("launches", 1);
    c.is("blocks", p.heads());
    c.is("mma", p.slice_tiles() * p.d());
    c.stays("mma");  // the same products
    c.stays("tiles");
    // The first key tile has nothing to read, the last writes the 16-bit output and L instead.
    const Count passes = p.Tc() - 1;
    const Count O_bytes = p.rows() * p.d() * 4, m_and_l_bytes = p.rows() * 2 * 4;
    c.is("global_store_bytes", passes * (O_bytes + m_and_l_bytes) + output_bytes(p));
    // Every lane of a row reads its m and l: 4 lanes of each of the 4 warps.
    const Count Q_bytes = p.Tc() * p.rows() * p.d() * 2, KV_bytes = 2 * p.heads() * p.Nk() * p.d() * 2;
    c.is("global_load_bytes", passes * (O_bytes + m_and_l_bytes * in_a_quad * warps) + Q_bytes + KV_bytes);
}

// Divides once per row instead of once per row and key tile.
void claim_02(Claims& c) {
    const Counted& p = c.p;
    const Count lanes_of_a_row = in_a_quad * warps;
    // A row that has seen no key has l = 0 and is not divided.
    c.parent_is("divides", (p.slice_tiles() * 16 - p.rows_without_keys() * p.Tc()) * lanes_of_a_row);
    c.is("divides", (p.rows() - p.rows_without_keys()) * lanes_of_a_row);
    c.only_moves({"divides"});
    c.stays("workspace_bytes");
}

// Has a block per query tile, and writes O once, in 16 bits.
void claim_03(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("blocks", p.heads());
    c.is("blocks", p.heads() * p.Tr());
    c.is("global_store_bytes", output_bytes(p));
    c.is("workspace_bytes", 0);
    // Q is read once; K and V once per query tile.
    c.is("global_load_bytes", p.rows() * p.d() * 2 + 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2);
    // A barrier behind the copies of each tile, and two in each slice.
    c.is("barriers", p.tiles() + p.slice_tiles() * 2);
    c.only_moves({"blocks", "global_load_bytes", "global_store_bytes", "async_copies", "shared_tile_bytes"});
}

// Exchanges nothing between warps.
void claim_04(Claims& c) {
    const Counted& p = c.p;
    // Per slice, each warp writes P V (16 x d), 16 maxima and 16 sums; P V is read once, each maximum
    // and sum by the 4 lanes of its row in all 4 warps.
    const Count slice = warps * 16 * (p.d() * 4 * 2 + 2 * 4 * (1 + in_a_quad * warps));
    c.parent_is("shared_exchange_bytes", p.slice_tiles() * slice);
    c.is("shared_exchange_bytes", 0);
    c.is("barriers", p.tiles() * 2);
    // A maximum and a sum by two shuffles each, for the two rows of a lane; by every warp, or by the
    // one.
    c.parent_is("shuffles", p.slice_tiles() * warps * 2 * 4);
    c.is("shuffles", p.slice_tiles() * 2 * 4);
    // Scores are the same; alpha is computed by 4 lanes of a row instead of 16, and so is the quotient.
    const Count rows_visited = p.slice_tiles() * 16, divided = p.rows() - p.rows_without_keys();
    c.parent_is("exponentials", rows_visited * (tile + in_a_quad * warps));
    c.is("exponentials", rows_visited * (tile + in_a_quad));
    c.parent_is("divides", divided * in_a_quad * warps);
    c.is("divides", divided * in_a_quad);
    // Fragments of a slice: Q and a quarter of K and V in each warp, or Q once and all of K and V.
    c.parent_is("ldmatrix", p.slice_tiles() * warps * 3 * p.d() / 16);
    c.is("ldmatrix", p.slice_tiles() * (1 + 4 + 4) * p.d() / 16);
    c.only_moves({"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles", "exponentials",
                  "divides", "ldmatrix"});
    c.is("workspace_bytes", 0);
}

// Visits the tiles under the diagonal and masks those on it.
void claim_05(Claims& c) {
    const Counted& p = c.p;
    if (!p.causal) {  // nothing moves
        c.only_moves({});
        return;
    }
    Count visited = 0, masked = 0, row_slices = 0;
    for (int i = 0; i < static_cast<int>(p.Tr()); ++i) {
        for (int j = 0; j < static_cast<int>(p.Tc()); ++j) {
            const int offset = p.shape.Nk - p.shape.Nq;  // row r sees the keys up to r + offset
            const int first_row = i * 64, last_row = first_row + 63, first_key = j * 64,
                      last_key = first_key + 63;
            if (first_key > last_row + offset) continue;
            visited += 1;
            row_slices += std::min<Count>(4, (p.Nq() - first_row + 15) / 16);
            masked += last_key > first_row + offset || last_key >= p.shape.Nk;
        }
    }
    c.parent_is("tiles", p.tiles());
    c.parent_is("masked_tiles", p.tiles());
    c.is("tiles", p.heads() * visited);
    c.is("masked_tiles", p.heads() * masked);
    c.is("mma", p.heads() * row_slices * p.d());
    c.is("barriers", p.heads() * visited * 2);
    c.is("exponentials", p.heads() * row_slices * 16 * (tile + in_a_quad));
    c.stays("blocks");
    c.stays("global_store_bytes");
    c.stays("divides");
}

// Splits the keys across blocks where query tiles do not fill the device.
void claim_06(Claims& c) {
    const Counted& p = c.p;
    if (p.causal) return;
    const Count unsplit = p.heads() * p.Tr(), splits = splits_to_fill(6, p, unsplit);
    c.is("workspace_bytes", part_bytes(splits, p));
    if (splits == 1) {
        c.only_moves({});
        return;
    }
    const Count merge_blocks = p.heads() * ((p.Nq() + 3) / 4);
    c.parent_is("blocks", unsplit);
    c.is("blocks", unsplit * splits + merge_blocks);
    c.is("launches", 2);
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    // The merge reads O of each part once, and L twice by each of 32 lanes; every split reads Q again.
    c.is("global_load_bytes", c.parent.counters.global_load_bytes + (splits - 1) * p.rows() * p.d() * 2 +
                                  splits * p.rows() * (p.d() * 4 + 2 * 32 * 4));
    for (const char* counter : {"mma", "ldmatrix", "tiles", "masked_tiles", "shuffles", "barriers"})
        c.stays(counter);
}

// Reads K and V once for all query heads of a group.
void claim_07(Claims& c) {
    const Counted& p = c.p;
    const int group = static_cast<int>(p.group());
    const Count splits = splits_to_fill(7, p, visits(p, 64, 64, group).size());
    const auto blocks = visits(p, 64, 64, group, static_cast<int>(splits));
    const Count split = splits > 1;  // 1 or 0
    const Count merge_blocks = split ? p.heads() * ((p.Nq() + 3) / 4) : 0;
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    c.is("workspace_bytes", part_bytes(splits, p));
    c.is("launches", 1 + split);
    c.is("blocks", blocks.size() + merge_blocks);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2);
    c.is("mma", warp_tiles * p.d());
    c.is("ldmatrix", warp_tiles * 9 * p.d() / 16);
    c.is("shuffles", warp_tiles * 2 * 4);
    c.is("exponentials", warp_tiles * 16 * (tile + in_a_quad) + split * p.rows() * splits * 32);
    c.is("divides", sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad +
                        split * (p.rows() - p.rows_without_keys()) * 32);
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    const Count KV_bytes = KV_bytes_of(blocks, p);
    c.is("global_load_bytes",
         KV_bytes + splits * p.rows() * p.d() * 2 + split * splits * p.rows() * (p.d() * 4 + 2 * 32 * 4));
    if (!c.has_parent()) return;  // 06 has no d = 256
    if (p.group() == 1) c.only_moves({});
    // Heads of one tile each, in one tile together: each byte of K and V once for the group.
    if (p.causal || p.group() * p.Nq() > tile) return;
    const Count parents_splits = splits_of(c.parent, p);
    c.parent_is("global_load_bytes",
                p.group() * KV_bytes + parents_splits * p.rows() * p.d() * 2 +
                    (parents_splits > 1) * parents_splits * p.rows() * (p.d() * 4 + 2 * 32 * 4));
    c.parent_is("tiles", p.group() * tiles);
}

// Divides the keys of 16 rows among warps that merge once.
void claim_08(Claims& c) {
    const Counted& p = c.p;
    const int group = static_cast<int>(p.group());
    const Count splits = splits_to_fill(8, p, visits(p, 16, 64, group).size());
    const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits));
    const Count split = splits > 1;  // 1 or 0
    const Count tiles = tiles_of(blocks);
    c.is("workspace_bytes", part_bytes(splits, p));
    c.is("blocks", blocks.size() + split * p.heads() * ((p.Nq() + 3) / 4));
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2 + blocks.size() * 2);
    // O, m and l of four warps are written, and read of three.
    c.is("shared_exchange_bytes", blocks.size() * (4 + 3) * 32 * (p.d() / 8 + 1) * 16);
    // Each warp reads all of Q and its own quarter of K and V.
    const Count ldmatrix = tiles * warps * 3 * p.d() / 16;
    const Count copies = blocks.size() * 16 * p.d() / 8 + tiles * 2 * tile * p.d() / 8;
    c.is("mma", tiles * p.d());
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    // Each warp has a maximum and a sum of its own, and the merge two exponentials per row and warp.
    c.is("shuffles", tiles * warps * 2 * 4);
    c.is("exponentials", tiles * 16 * (tile + in_a_quad * warps) + blocks.size() * 3 * 16 * 2 * in_a_quad +
                             split * p.rows() * splits * 32);
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    // Where 16 rows are enough for a group, nothing else moves.
    if (p.group() * p.Nq() > 16) return;
    c.only_moves({"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles", "ldmatrix",
                  "async_copies", "exponentials"});
    c.stays("workspace_bytes");
}

// Waits with later tiles in flight, and computes behind them.
void claim_09(Claims& c) {
    const Counted& p = c.p;
    c.parent_is("copies_left_in_flight", 0);
    c.parent_is("mma_during_copies", 0);
    const int group = static_cast<int>(p.group());
    const Count splits = splits_to_fill(9, p, visits(p, 16, 64, group).size());
    const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits));
    c.is("workspace_bytes", part_bytes(splits, p));
    // The wait for a tile leaves those that follow, at most the ring less one.
    const Count depth = p.d() > 64 ? 2 : 4, copies_of_a_tile = 2 * tile * p.d() / 8;
    c.is("copies_left_in_flight", sum(blocks, [&](auto& v) {
             Count tiles = 0;
             for (Count j = 0; j < v.tiles; ++j) tiles += std::min(v.tiles - 1 - j, depth - 1);
             return tiles * copies_of_a_tile;
         }));
    // Only a block's last tile has none behind it.
    c.is("mma", tiles_of(blocks) * p.d());
    c.is("mma_during_copies", sum(blocks, [&](auto& v) { return (v.tiles - (v.tiles > 0)) * p.d(); }));
    // At d = 256 the ring leaves room for one block instead of two, and so for fewer splits.
    if (p.d() > 128 && splits_of(c.parent, p) != splits) return;
    c.only_moves({"copies_left_in_flight", "mma_during_copies"});
    c.stays("workspace_bytes");
}

// Has a block per multiprocessor, and merges 32 parts at once.
void claim_10(Claims& c) {
    const Counted& p = c.p;
    const int group = static_cast<int>(p.group());
    const Count splits = splits_for_full_waves(p, visits(p, 16, 64, group).size());
    c.is("workspace_bytes", part_bytes(splits, p));
    const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits));
    const Count split = splits > 1;  // 1 or 0
    const Count tiles = tiles_of(blocks);
    // The merge: a block per row, a thread for two columns, so a warp for 64.
    const Count merge_warps = split * p.rows() * p.d() / 64, rounds = (splits + 31) / 32;
    c.is("launches", 1 + split);
    c.is("blocks", blocks.size() + split * p.rows());
    c.is("barriers", tiles * 2 + blocks.size() * 2);
    c.is("tiles", tiles);
    // Every warp of the merge reads the L of a part twice, once in all; every thread its O.
    c.is("global_load_bytes",
         KV_bytes_of(blocks, p) + splits * p.rows() * p.d() * 2 + merge_warps * splits * (2 * 4 + 64 * 4));
    c.is("global_store_bytes", part_bytes(splits, p) + output_bytes(p));
    // A maximum and a sum over 32 lanes, and a weight from each of them.
    c.is("shuffles", tiles * warps * 2 * 4 + merge_warps * (5 + 5 + 32 * rounds));
    c.is("exponentials", tiles * 16 * (tile + in_a_quad * warps) + blocks.size() * 3 * 16 * 2 * in_a_quad +
                             merge_warps * 32 * rounds);
    c.is("divides", sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad +
                        split * (p.rows() - p.rows_without_keys()) * p.d() / 2);
    // Where the number of splits is the parent's, only the merge is different.
    if (splits_of(c.parent, p) != splits) return;
    if (splits == 1) c.only_moves({});
    c.only_moves({"blocks", "global_load_bytes", "shuffles", "exponentials", "divides"});
    c.stays("workspace_bytes");
}

// Reads a fragment of K or V once for 32 rows.
void claim_11(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    c.is("blocks", blocks.size());
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2);
    // d = 256: one slice of 16 rows per warp, as in the parent, and so the parent's formulas.
    const Count ldmatrix = warp_tiles * (slices(p) + 4 + 4) * p.d() / 16;
    const Count copies = blocks.size() * wide_Br(p) * p.d() / 8 + tiles * 2 * tile * p.d() / 8;
    c.is("mma", warp_tiles * slices(p) * p.d());
    c.is("ldmatrix", ldmatrix);
    c.is("shuffles", warp_tiles * slices(p) * 2 * 4);
    c.is("exponentials", warp_tiles * slices(p) * 16 * (tile + in_a_quad));
    c.is("divides", (p.rows() - p.rows_without_keys()) * in_a_quad);
    c.is("global_store_bytes", output_bytes(p));
    c.is("global_load_bytes", p.rows() * p.d() * 2 + KV_bytes_of(blocks, p));
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    if (!c.has_parent()) return;  // 05 has no d = 256
    c.stays("divides");
    c.stays("global_store_bytes");
    // Rows that fill the tiles, and no mask: the same products.
    if (p.causal || p.Nq() % 128 != 0) return;
    const Count Q_bytes = p.rows() * p.d() * 2;
    c.parent_is("blocks", 2 * blocks.size());
    c.parent_is("global_load_bytes", Q_bytes + 2 * KV_bytes_of(blocks, p));
    c.only_moves({"blocks", "tiles", "masked_tiles", "barriers", "ldmatrix", "global_load_bytes",
                  "async_copies", "shared_tile_bytes"});
}

// Computes all but the last P V with copies in flight.
void claim_12(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    c.parent_is("mma_during_copies", 0);
    // S of a tile with its V in flight, P V with the next K, which the last tile does not have.
    c.is("mma_during_copies", sum(blocks, [&](auto& v) {
             return v.tiles == 0 ? 0 : (2 * v.tiles - 1) * v.warps * slices(p) * p.d() / 2;
         }));
    // Nothing is copied twice, and no barrier is added. A block without a key tile leaves Q alone too.
    std::set<std::string> may_move{"mma_during_copies"};
    const bool all_start =
        std::all_of(blocks.begin(), blocks.end(), [](const Visit& v) { return v.tiles > 0; });
    if (!all_start) may_move.insert({"global_load_bytes", "async_copies", "shared_tile_bytes"});
    c.only_moves(may_move);
    const Count copies =
        sum(blocks, [&](auto& v) { return ((v.tiles > 0) * wide_Br(p) + 2 * v.tiles * tile) * p.d() / 8; });
    c.is("global_load_bytes",
         sum(blocks, [&](auto& v) { return ((v.tiles > 0) * v.queries + 2 * v.keys) * p.d() * 2; }));
    c.is("async_copies", copies);
    c.is("shared_tile_bytes", tile_bytes(copies, c.parent.counters.ldmatrix));
}

// Adds up l once, by four shuffles per slice at the end.
void claim_13(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    const Count warp_tiles = warp_tiles_of(blocks);
    c.parent_is("shuffles", warp_tiles * slices(p) * 2 * 4);
    c.is("shuffles", warp_tiles * slices(p) * 2 * 2 + blocks.size() * warps * slices(p) * 2 * 2);
    c.only_moves({"shuffles"});
}

// Shuffles and rescales where the maximum rises by much, and else votes.
void claim_14(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    const Count warp_tiles = warp_tiles_of(blocks), first_tiles = first_tiles_of(blocks);
    // Normal scores stay below 2^8 times the first tile's. So do falling ones. Rising ones: every other tile.
    const Count rescales =
        p.input == "rising" ? sum(blocks, [](auto& v) { return (v.tiles + 1) / 2 * v.warps; }) : first_tiles;
    c.is("votes", warp_tiles);
    // A rescale needs the maximum of two rows per lane; l is added up at the end, as before.
    c.is("shuffles", (rescales + blocks.size() * warps) * slices(p) * 2 * 2);
    // P alone; a rescale's alpha but that of the first tile, which has nothing to rescale.
    c.is("exponentials",
         warp_tiles * slices(p) * 16 * tile + (rescales - first_tiles) * slices(p) * 16 * in_a_quad);
    c.only_moves({"votes", "shuffles", "exponentials"});
}

// Passes O through shared memory once, inside a warp.
void claim_15(Claims& c) {
    const Counted& p = c.p;
    const auto blocks = visits(p, wide_Br(p), 64);
    // Whole tiles are written, the rows that there are are read.
    c.is("shared_exchange_bytes", (blocks.size() * wide_Br(p) + p.rows()) * p.d() * 2);
    c.is("warp_syncs", blocks.size() * warps);
    // Rows past the end of a ragged tile are divided too, though nobody reads them.
    c.parent_is("divides", sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad);
    c.is("divides", sum(blocks, [](auto& v) { return v.padded; }) * in_a_quad);
    c.only_moves({"shared_exchange_bytes", "warp_syncs", "divides"});
}

/// Query tiles of a head in stage 16, and the heads that start together: 2^n.
struct LongestFirst {
    Count Tr, group = 1, groups;

    explicit LongestFirst(const Counted& p) : Tr((p.Nq() + wide_Br(p) - 1) / wide_Br(p)) {
        while (p.causal && group < p.H() && Tr * group < 3 * Count(p.sm_count)) group *= 2;
        groups = (p.H() + group - 1) / group;
    }
};

// Does the same work, and starts the longest blocks of many heads first.
void claim_16(Claims& c) {
    const Counted& p = c.p;
    c.only_moves({"blocks"});
    // Under a mask heads start in groups of 2^n. Where they do not fill them, blocks have nothing to do.
    const LongestFirst order(p);
    c.parent_is("blocks", p.heads() * order.Tr);
    c.is("blocks", p.B() * order.Tr * order.groups * order.group);
}

/// Stages 17 and 22 at d = 64: a tile has Bc keys, whatever the parent's has, and nothing but their number
/// follows.
void claim_narrow_tiles(Claims& c, int Bc, Count parents_tiles) {
    const Counted& p = c.p;
    // Warps without a query row compute like the others.
    const auto blocks = visits(p, wide_Br(p), Bc, 1, 1, true);
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks);
    // Q is read once for Bc keys.
    const Count ldmatrix = warp_tiles * (slices(p) + Bc / 16 + Bc / 16) * p.d() / 16;
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("barriers", tiles * 2);
    c.is("votes", warp_tiles);
    c.is("shuffles", (first_tiles_of(blocks) + blocks.size() * warps) * slices(p) * 2 * 2);
    c.is("mma", warp_tiles * slices(p) * p.d() * Bc / 64);
    c.is("ldmatrix", ldmatrix);
    c.is("exponentials", warp_tiles * slices(p) * 16 * Bc);
    c.is("divides", sum(blocks, [](auto& v) { return v.padded; }) * in_a_quad);
    c.is("shared_tile_bytes", tile_bytes(c.child.counters.async_copies, ldmatrix));
    // Rows and keys that fill the tiles, and no mask: the same products and bytes in other tiles.
    if (p.causal || p.Nq() % 128 != 0 || p.Nk() % 128 != 0) return;
    c.parent_is("tiles", parents_tiles);
    c.only_moves({"tiles", "barriers", "votes", "ldmatrix", "shared_tile_bytes", "mma_during_copies"});
}

// Under a mask group by group, and in a group from the last query tile of all its heads to the first.
BlockOrder order_16(const Counted& p) {
    const auto head_by_head = visits(p, wide_Br(p), static_cast<int>(tile));
    const std::vector<Count> parent = tiles_of_each(head_by_head);
    if (!p.causal) return {parent, parent};
    const LongestFirst order(p);
    std::vector<Count> tiles;
    for (Count batch = 0; batch < p.B(); ++batch) {
        for (Count group = 0; group < order.groups; ++group) {
            for (Count i = order.Tr; i-- > 0;) {
                for (Count h = group * order.group; h < (group + 1) * order.group; ++h) {
                    const Count block = (batch * p.H() + h) * order.Tr + i;
                    tiles.push_back(h < p.H() ? parent[block] : 0);
                }
            }
        }
    }
    return {parent, tiles};
}

// Has half the tiles at d = 64, and neither branch nor vote where they cost more.
void claim_17(Claims& c) {
    const Counted& p = c.p;
    const int Bc = p.d() == 64 ? 128 : 64;
    // At d = 64 warps without a query row compute like the others.
    const auto blocks = visits(p, wide_Br(p), Bc, 1, 1, p.d() == 64);
    const Count tiles = tiles_of(blocks), warp_tiles = warp_tiles_of(blocks),
                first_tiles = first_tiles_of(blocks);
    const Count at_the_end = blocks.size() * warps * slices(p) * 2 * 2;
    if (p.input == "rising") {
        // These scores climb by more than 2^8 with each tile of 128 keys, so each is rescaled; in the parent
        // every other one of 64.
        c.is("shuffles", warp_tiles * slices(p) * 2 * 2 + at_the_end);
        c.stays("shuffles");
        return;
    }
    if (p.d() == 128) c.only_moves({});
    if (p.d() == 256) {
        // The parent shuffles at the first tile, this stage at each; then it also computes alpha.
        c.parent_is("votes", warp_tiles);
        c.is("votes", 0);
        c.parent_is("shuffles", first_tiles * 2 * 2 + at_the_end);
        c.is("shuffles", warp_tiles * 2 * 2 + at_the_end);
        c.is("exponentials", c.parent.counters.exponentials + (warp_tiles - first_tiles) * 16 * in_a_quad);
        c.only_moves({"votes", "shuffles", "exponentials"});
    }
    if (p.d() == 64) claim_narrow_tiles(c, 128, 2 * tiles);
}

// Has one barrier per block, and otherwise arrivals and waits of its own.
void claim_18(Claims& c) {
    const Counted& p = c.p;
    const int Bc = p.d() == 64 ? 128 : 64;
    const Count in_block = p.d() == 256 ? 8 : 4, threads = 32 * in_block;  // warps
    // d = 256 has tiles of 128 rows, too. A warp without a query row computes like the others.
    const auto blocks = visits(p, 128, Bc, 1, 1, true);
    const Count tiles = tiles_of(blocks), warp_tiles = tiles * in_block, slice_tiles = tiles * 128 / 16;
    const Count ldmatrix = warp_tiles * (slices(p) + Bc / 16 + Bc / 16) * p.d() / 16;
    const Count copies =
        sum(blocks, [&](auto& v) { return ((v.tiles > 0) * 128 + 2 * v.tiles * Bc) * p.d() / 8; });
    // Once the mbarriers are set up, whatever N is.
    c.parent_is("barriers", c.parent.counters.tiles * 2);
    c.is("barriers", blocks.size());
    // Each thread says that its copies of K and of V are there and that it has read them, and waits for all
    // four.
    c.is("mbarrier_arrivals", tiles * 2 * (threads + threads));
    c.is("mbarrier_waits", tiles * 2 * (threads + threads));
    c.is("warp_syncs", warp_tiles * 2 + blocks.size() * in_block);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(blocks));
    c.is("mma", slice_tiles * Bc * p.d() / 64);
    // All but the last P V of a block have copies of a later tile in flight, as in 12.
    c.is("mma_during_copies",
         sum(blocks, [&](auto& v) { return v.tiles == 0 ? 0 : (2 * v.tiles - 1) * 8 * Bc * p.d() / 128; }));
    c.is("ldmatrix", ldmatrix);
    c.is("async_copies", copies);
    c.is("global_load_bytes",
         sum(blocks, [&](auto& v) { return ((v.tiles > 0) * v.queries + 2 * v.keys) * p.d() * 2; }));
    c.is("global_store_bytes", output_bytes(p));
    c.is("shared_tile_bytes", tile_bytes(copies, ldmatrix));
    // Query rows that fill the tiles: the same work for each row.
    if (p.Nq() % 128 != 0) return;
    std::set<std::string> may_move{"barriers", "mbarrier_arrivals", "mbarrier_waits", "warp_syncs"};
    if (p.d() == 256) {  // and K and V are copied for twice the rows, half as often
        may_move.insert({"blocks", "tiles", "masked_tiles", "async_copies", "global_load_bytes",
                         "shared_tile_bytes", "mma_during_copies"});
        if (p.causal) {  // under a mask a tile of twice the rows reaches further beyond the diagonal
            may_move.insert({"mma", "ldmatrix", "exponentials", "shuffles"});
        } else {
            c.parent_is("global_load_bytes", p.rows() * p.d() * 2 + 2 * KV_bytes_of(blocks, p));
            c.parent_is("tiles", 2 * tiles);
        }
    }
    c.only_moves(may_move);
}

// Rescales at d = 256 where the maximum rises by much, and else votes.
void claim_19(Claims& c) {
    const Counted& p = c.p;
    if (p.d() != 256) {
        c.only_moves({});
        return;
    }
    const Count in_block = 8;  // warps
    const auto blocks = visits(p, 128, 64, 1, 1, true);
    const Count warp_tiles = tiles_of(blocks) * in_block;
    const Count first_tiles = sum(blocks, [](auto& v) { return v.tiles > 0; }) * in_block;
    // Rising scores climb by 4 log2(e) = 5.8 with each tile of 64 keys: every other tile is rescaled.
    const Count rescales =
        p.input == "rising" ? sum(blocks, [](auto& v) { return (v.tiles + 1) / 2; }) * in_block : first_tiles;
    const Count at_the_end = blocks.size() * in_block * 2 * 2;
    c.parent_is("votes", 0);
    c.is("votes", warp_tiles);
    c.parent_is("shuffles", warp_tiles * 2 * 2 + at_the_end);
    c.is("shuffles", rescales * 2 * 2 + at_the_end);
    // P; alpha where O is rescaled, in the parent in all tiles but the first.
    const Count P = warp_tiles * 16 * tile;
    c.parent_is("exponentials", P + (warp_tiles - first_tiles) * 16 * in_a_quad);
    c.is("exponentials", P + (rescales - first_tiles) * 16 * in_a_quad);
    c.only_moves({"votes", "shuffles", "exponentials"});
}

// Launches one kernel, in which each block of a split row counts itself.
void claim_20(Claims& c) {
    const Counted& p = c.p;
    const Count query_tiles = visits(p, 16, 64, static_cast<int>(p.group())).size();
    const Count splits = splits_for_full_waves(p, query_tiles), split = splits > 1;  // 1 or 0
    const Count atomics = split * query_tiles * splits;
    c.parent_is("launches", 1 + split);
    c.is("launches", 1);
    c.is("blocks", query_tiles * splits);
    c.is("atomics", atomics);
    c.is("fences", 2 * atomics);
    const simt::Counters& parent = c.parent.counters;
    // Before a block counts, and before its threads know, by one byte, whether it was the last
    c.is("barriers", parent.barriers + 2 * atomics);
    c.is("shared_exchange_bytes", parent.shared_exchange_bytes + atomics * (1 + warps * 32));
    // A row is merged by one warp, where it was one for every 64 columns: what each warp did for itself is
    // done once.
    const Count warps_less = split * p.rows() * (p.d() / 64 - 1), rounds = (splits + 31) / 32;
    c.is("global_load_bytes", parent.global_load_bytes - warps_less * splits * 2 * 4);
    c.is("shuffles", parent.shuffles - warps_less * (5 + 5 + 32 * rounds));
    c.is("exponentials", parent.exponentials - warps_less * 32 * rounds);
    const Count with_keys = p.rows() - p.rows_without_keys();
    c.is("divides", parent.divides - split * with_keys * (p.d() / 2 - 32));
    c.is("workspace_bytes", part_bytes(splits, p) + split * query_tiles * 4);
    if (splits == 1) c.only_moves({});
    c.only_moves({"launches", "blocks", "atomics", "fences", "barriers", "shared_exchange_bytes",
                  "global_load_bytes", "shuffles", "exponentials", "divides"});
}

// Has warps that skip, at d = 256, the tiles of which none of their rows sees a key.
void claim_21(Claims& c) {
    const Counted& p = c.p;
    if (p.d() != 256 || !p.causal) {
        c.only_moves({});
        return;
    }
    const int in_block = 8;  // warps, of 16 rows
    const auto blocks = visits(p, 128, 64, 1, 1, true);
    Count warp_tiles = 0, first_tiles = 0, mma_during_copies = 0;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
        const int query_tile = static_cast<int>(k % ((p.Nq() + 127) / 128));
        for (int warp = 0; warp < in_block; ++warp) {
            const int last_row = query_tile * 128 + 16 * warp + 15;
            const int seen = std::max(0, last_row + 1 + p.shape.Nk - p.shape.Nq);
            const Count tiles = std::min<Count>((seen + 63) / 64, blocks[k].tiles);
            warp_tiles += tiles;
            first_tiles += tiles > 0;
            // Only the P V of the block's last tile has no copy behind it.
            mma_during_copies += (2 * tiles - (tiles > 0 && tiles == blocks[k].tiles)) * p.d() / 2;
        }
    }
    const Count ldmatrix = warp_tiles * (1 + 4 + 4) * p.d() / 16;
    c.is("mma", warp_tiles * p.d());
    c.is("mma_during_copies", mma_during_copies);
    c.is("ldmatrix", ldmatrix);
    c.is("shared_tile_bytes", tile_bytes(c.parent.counters.async_copies, ldmatrix));
    c.is("votes", warp_tiles);
    c.is("shuffles", (first_tiles + blocks.size() * in_block) * 2 * 2);
    c.is("exponentials", warp_tiles * 16 * tile);
    // Tiles are copied, arrived at and waited for as before.
    c.only_moves(
        {"mma", "mma_during_copies", "ldmatrix", "shared_tile_bytes", "votes", "shuffles", "exponentials"});
}

// Has tiles of 64 keys again, at d = 64.
void claim_22(Claims& c) {
    claim_narrow_tiles(c, 64, tiles_of(visits(c.p, wide_Br(c.p), 128, 1, 1, true)));
}

// Copies whole lines of 128 bytes.
void claim_23(Claims& c) {
    const Counted& p = c.p;
    const int group = static_cast<int>(p.group());
    const Count query_tiles = visits(p, 16, 64, group).size(), lines_of_a_row = p.d() * 2 / 128;
    const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits_for_full_waves(p, query_tiles)));
    // Padded by 16 bytes, only every eighth row of a tile begins where a line of shared memory does; in the
    // others each line lies across two.
    const auto padded = [&](Count rows) { return (2 * rows - (rows + 7) / 8) * lines_of_a_row; };
    c.parent_is("copied_lines", sum(blocks, [&](auto& v) {
                    const Count full = v.keys / tile;
                    return padded(v.queries) + 2 * (full * padded(tile) + padded(v.keys - full * tile));
                }));
    c.is("copied_lines", sum(blocks, [&](auto& v) { return v.queries + 2 * v.keys; }) * lines_of_a_row);
    c.only_moves({"copied_lines"});
}

/// What stages from 24 on do behind the last key tile: once for each query tile that a block has keys of,
/// and, where a query tile has parts, once for each of its rows.
struct Ends {
    const Counted& p;
    Count warp_merges = 0, with_keys_here = 0, divides = 0;
    Count merged_rows = 0, parts_of_rows = 0, rounds_of_rows = 0;

    explicit Ends(const Counted& problem) : p(problem) {}

    void warps_merge(const Visit& v) {
        warp_merges += 1;
        with_keys_here += v.padded;
        divides += v.rows * in_a_quad * warps;
    }
    void parts_merge(Count rows, Count rows_with_keys, Count parts) {
        merged_rows += rows;
        parts_of_rows += rows * parts;
        rounds_of_rows += rows * ((parts + 15) / 16);
        divides += rows_with_keys * 32;
    }
    /// Four warps write O, m and l; each reads m and l of all of them twice, and a quarter of their O.
    Count exchange_bytes() const {
        return warp_merges * warps * 32 * 16 * (p.d() / 8 + 1 + 2 * warps + p.d() / 8);
    }
    /// Each warp weighs the four for each row that has keys. A lane of the merge weighs 16 parts and the sum
    /// so far.
    Count exponentials() const {
        return with_keys_here * in_a_quad * warps * warps + rounds_of_rows * 32 * 17;
    }
    /// Each lane of the merge reads the L of each part, and 32 lanes read its O.
    Count load_bytes() const { return parts_of_rows * (32 * 4 + p.d() * 4); }
};

/// What these pieces of work, of tiles of Bc keys, and their ends come to; with so many atomics.
void claim_ends(Claims& c, const Ends& ends, const std::vector<Visit>& pieces, int Bc, Count atomics) {
    const Counted& p = c.p;
    const Count tiles = tiles_of(pieces);
    const Count queries = sum(pieces, [](auto& v) { return v.queries; });
    c.is("shared_exchange_bytes", ends.exchange_bytes() + atomics * (1 + warps * 32));
    c.is("shuffles", tiles * warps * 2 * 4);
    c.is("exponentials", tiles * 16 * (Bc + in_a_quad * warps) + ends.exponentials());
    c.is("divides", ends.divides);
    c.is("global_load_bytes", KV_bytes_of(pieces, p) + queries * p.d() * 2 + ends.load_bytes());
}

// Has all warps merge, and the loads of the merge not wait for each other.
void claim_24(Claims& c) {
    const Counted& p = c.p;
    const int group = static_cast<int>(p.group());
    const Count query_tiles = visits(p, 16, 64, group).size();
    const Count splits = splits_for_full_waves(p, query_tiles), split = splits > 1;  // 1 or 0
    const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits), true);
    Ends ends(p);
    for (const Visit& v : blocks) ends.warps_merge(v);
    if (split) ends.parts_merge(p.rows(), p.rows() - p.rows_without_keys(), splits);
    claim_ends(c, ends, blocks, 64, split * query_tiles * splits);
    c.only_moves({"shared_exchange_bytes", "shuffles", "exponentials", "divides", "global_load_bytes"});
    c.stays("workspace_bytes");
}

/// Claims of a stage whose blocks, as many as there are places at most, take even shares of tiles of Bc keys.
void claim_shares(Claims& c, int Bc, int places) {
    const Counted& p = c.p;
    const int group = static_cast<int>(p.group()), Tc = (p.shape.Nk + Bc - 1) / Bc;
    const int Tr = (group * p.shape.Nq + 15) / 16, query_tiles = static_cast<int>(p.heads()) / group * Tr;
    const bool uneven = query_tiles > places || query_tiles * Tc / 256 >= places;
    const int blocks = uneven ? places : query_tiles * std::min(Tc, places / query_tiles);
    const int left_over = query_tiles % blocks, rest = left_over * Tc < blocks ? 0 : left_over;

    Ends ends(p);
    std::vector<Visit> pieces;
    std::vector<Count> parts(rest);
    Count rows_of_parts = 0;
    const auto take = [&](int r, int begin, int end) {
        const int first_row = r % Tr * 16;
        const int seen = (seen_by(p, group, first_row + 15) + Bc - 1) / Bc;
        pieces.push_back(
            visit(p, 16, Bc, group, first_row, begin, std::max(begin, std::min(end, seen)), true));
        ends.warps_merge(pieces.back());
        if (end - begin == Tc) return;
        parts[r] += 1;
        rows_of_parts += pieces.back().queries;
    };
    for (int block = 0; block < blocks; ++block) {
        for (int t = rest * Tc * block / blocks; t < rest * Tc * (block + 1) / blocks;) {
            const int end = std::min(t / Tc * Tc + Tc, rest * Tc * (block + 1) / blocks);
            take(t / Tc, t % Tc, t % Tc + end - t);
            t = end;
        }
    }
    for (int r = rest; r < query_tiles; ++r) take(r, 0, Tc);
    Count atomics = 0;
    for (int r = 0; r < rest; ++r) {
        if (parts[r] == 0) continue;  // a block has it as a whole
        const Visit whole = visit(p, 16, Bc, group, r % Tr * 16, 0, Tc, true);
        ends.parts_merge(whole.queries, whole.rows, parts[r]);
        atomics += parts[r];
    }

    const Count tiles = tiles_of(pieces);
    c.is("blocks", blocks);
    c.is("tiles", tiles);
    c.is("masked_tiles", masked_of(pieces));
    c.is("mma", tiles * p.d() * Bc / 64);
    // Two for each key tile, two while the warps merge, one before Q and the ring are written anew, two to
    // count
    c.is("barriers", 2 * tiles + 3 * pieces.size() + 2 * atomics);
    c.is("atomics", atomics);
    c.is("fences", 2 * atomics);
    c.is("workspace_bytes", rest == 0 ? 0 : 2 * blocks * 16 * (p.d() + 1) * 4 + rest * 4);
    claim_ends(c, ends, pieces, Bc, atomics);
    c.is("global_store_bytes", output_bytes(p) + rows_of_parts * (p.d() + 1) * 4);
}

// Gives as many blocks as fit at once even shares.
void claim_25(Claims& c) {
    const Count query_tiles = visits(c.p, 16, 64, static_cast<int>(c.p.group())).size();
    const bool three = c.p.d() <= 128 && query_tiles > static_cast<Count>(c.p.sm_count);
    claim_shares(c, 64, (three ? 3 : 1) * c.p.sm_count);
    for (const char* counter : {"tiles", "masked_tiles", "mma", "ldmatrix", "shuffles"}) c.stays(counter);
}

/// Keys of a tile in stages 26 and 27.
int wide_Bc(const Counted& p) {
    return p.d() > 128 ? 64 : 128;
}

// Has a block per multiprocessor, and tiles of 128 keys.
void claim_26(Claims& c) {
    claim_shares(c, wide_Bc(c.p), c.p.sm_count);
}

// Says of K and V, and of nothing else, that nobody reads them again.
void claim_27(Claims& c) {
    const int group = static_cast<int>(c.p.group());
    c.is("evict_first_bytes", KV_bytes_of(visits(c.p, 16, wide_Bc(c.p), group), c.p));
    c.only_moves({"evict_first_bytes"});
}

/// Keys that stages 28 and 29 call few, at the one head dimension where it matters.
bool few_keys(const Counted& p) {
    return p.d() == 256 && p.Nk() <= 1024;
}

/// Query tiles that the blocks of stages 28 and 29 take in line: none, or all.
Count tiles_in_line(const Counted& p) {
    const bool all_see = !p.causal || p.Nq() <= p.Nk();
    return few_keys(p) && all_see ? visits(p, 128, 64).size() : 0;
}

// Has no more blocks than fit, and the counter tells each what comes next.
void claim_28(Claims& c) {
    const Counted& p = c.p;
    const Count in_line = tiles_in_line(p);
    if (in_line > 0) c.is("blocks", std::min<Count>(in_line, p.sm_count));
    c.is("atomics", in_line);
    c.is("workspace_bytes", few_keys(p) ? 4 : 0);
    // One barrier before a query tile, as before, and one behind it, when the next is known.
    c.is("barriers", c.parent.counters.barriers + in_line);
    // One thread writes which that is, and all 256 read it.
    c.is("shared_exchange_bytes", c.parent.counters.shared_exchange_bytes + in_line * (1 + 256) * 4);
    c.only_moves({"blocks", "atomics", "workspace_bytes", "barriers", "shared_exchange_bytes"});
}

// Waits for nobody between query tiles: what the next one begins with is asked for before.
void claim_29(Claims& c) {
    const Counted& p = c.p;
    const Count in_line = tiles_in_line(p), blocks = std::min<Count>(in_line, p.sm_count);
    const Count query_tiles = visits(p, 128, 64).size(), in_block = p.d() == 256 ? 8 : 4;  // warps
    c.is("barriers", in_line > 0 ? blocks : c.parent.counters.barriers);
    // O leaves by 64 columns of a slice at a time, with a __syncwarp before and behind; all at once before.
    // And one by the warp that says what comes next, at an mbarrier at which it arrives, and for which all
    // wait.
    const Count more = slices(p) * (p.d() / 64) * 2 - 1;
    c.is("warp_syncs", c.parent.counters.warp_syncs + query_tiles * in_block * more + in_line);
    c.is("mbarrier_arrivals", c.parent.counters.mbarrier_arrivals + in_line * 32);
    c.is("mbarrier_waits", c.parent.counters.mbarrier_waits + in_line * 256);
    // The last P V of a query tile has copies in flight if the block takes another. Of whole tiles under a
    // mask, half the warps see the last keys.
    const bool whole = p.Nq() % 128 == 0 && (p.Nk() - p.Nq()) % 64 == 0;
    if (!p.causal || whole) {
        const Count see_the_last = p.causal ? in_block / 2 : in_block;
        c.is("mma_during_copies",
             c.parent.counters.mma_during_copies + (in_line - blocks) * see_the_last * p.d() / 2);
    }
    c.only_moves({"barriers", "warp_syncs", "mbarrier_arrivals", "mbarrier_waits", "mma_during_copies"});
}

void (*const claim_of[])(Claims&) = {
    claim_00, claim_01, claim_02, claim_03, claim_04, claim_05, claim_06, claim_07, claim_08, claim_09,
    claim_10, claim_11, claim_12, claim_13, claim_14, claim_15, claim_16, claim_17, claim_18, claim_19,
    claim_20, claim_21, claim_22, claim_23, claim_24, claim_25, claim_26, claim_27, claim_28, claim_29};

Counted counted(const Case& c, int sm_count) {
    return {c.shape, c.causal, c.input, sm_count};
}

}  // namespace

std::vector<Case> claim_cases(int stage) {
    std::vector<Case> cases;
    const auto add = [&](const std::vector<Counted>& list) {
        for (const Counted& p : list) cases.push_back(p.as_case());
    };
    for (const bool causal : {false, true}) {
        const bool decodes = (stage >= 7 && stage <= 10) || stage == 20 || (stage >= 23 && stage <= 27);
        if (decodes) add(decode_problems(causal));
        add(problems(causal));
        if (stage >= 7) add(wide_problems(causal));
        if (stage >= 28) add(crowded_problems(causal));
        if (stage == 6) add({{{1, 1, 1, 1, 1024, 64}, causal}});
        if (stage != 14) continue;
        for (auto list : {problems(causal), wide_problems(causal)}) {
            for (Counted& p : list) p.input = "falling";
            add(list);
        }
    }
    if (stage == 14) add(rising_problems());
    if (stage == 17) add({{{1, 2, 2, 128, 512, 64}, false, "rising"}});
    if (stage == 19) add({{{1, 1, 1, 128, 320, 256}, false, "rising"}});
    if (stage == 22) std::erase_if(cases, [](const Case& c) { return c.shape.d != 64; });
    return cases;
}

std::vector<Claim> claims(int stage, const Case& c, int sm_count, const Work& parent, const Work& child) {
    const Counted p = counted(c, sm_count);
    Claims of_stage(p, parent, child);
    // Traffic that bypasses the counters would make the others worthless.
    of_stage.is("bypassed_bytes", 0);
    of_stage.is("bank_conflicts", 0);
    if (stage >= 0 && stage < static_cast<int>(std::size(claim_of))) claim_of[stage](of_stage);
    return std::move(of_stage.list);
}

std::vector<std::uint64_t> claimed_tiles_of_blocks(int stage, const Case& c, int sm_count) {
    const Counted p = counted(c, sm_count);
    BlockOrder order;
    if (stage == 16) order = order_16(p);
    // One head, one query tile or no mask may leave nothing to be ordered anew.
    return order.stage == order.parent ? std::vector<Count>() : order.stage;
}

}  // namespace ladder
