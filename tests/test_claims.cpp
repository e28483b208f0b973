/// @file
/// The claims of each stage, on counted work: what its change must move against its parent, by which formula,
/// and what it must leave alone. Counters, not times: they hold on every machine.
#ifdef LADDER_HAS_CHECKED

#    include <algorithm>
#    include <set>
#    include <string>

#    include "harness/schedule.h"
#    include "harness/verify.h"
#    include "simt/simt.h"
#    include "tests/catch.h"

using namespace ladder;
using Count = std::uint64_t;

namespace {

constexpr Count tile = 64;      // Br and Bc
constexpr Count in_a_quad = 4;  // lanes that hold the same row of a fragment
constexpr Count warps = 4;

/// A problem to count, and the quantities that the formulas are made of.
struct Counted {
    Shape shape;
    bool causal = false;
    std::string input = "normal";

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

/// The same at d = 256, where a warp of stages 11 to 19 owns 16 rows.
std::vector<Counted> wide_problems(bool causal) {
    return {{{1, 2, 1, 256, 256, 256}, causal},
            {{1, 2, 2, 100, 197, 256}, causal},
            {{1, 1, 1, 150, 37, 256}, causal}};
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

/// The blocks of one launch, in the order head, query tile, split. Tiles have Br rows of a query head, or of
/// the `group` query heads that share a key/value head, and Bc keys.
std::vector<Visit> visits(const Counted& p, int Br, int Bc, int group = 1, int splits = 1,
                          bool all_warps = false) {
    const int rows = group * p.shape.Nq, offset = p.shape.Nk - p.shape.Nq, Nk = p.shape.Nk;
    const auto seen = [&](int row) {  // keys that a row sees, which are the first ones
        return p.causal ? std::clamp(row / group + 1 + offset, 0, Nk) : Nk;
    };
    std::vector<Visit> blocks;
    for (Count head = 0; head < p.heads() / group; ++head) {
        for (int first = 0; first < rows; first += Br) {
            const int Tc = (seen(first + Br - 1) + Bc - 1) / Bc;
            const int taking_part = all_warps ? 4 : std::min(4, (rows - first + Br / 4 - 1) / (Br / 4));
            for (int split = 0; split < splits; ++split) {
                const int begin = Tc * split / splits, end = Tc * (split + 1) / splits;
                Visit& block = blocks.emplace_back();
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

struct Work {
    simt::Counters counted;
    Count workspace = 0;
};

Work work_of(int stage_number, const Counted& problem) {
    const auto device = open_device(Backend::checked);
    const Stage& stage = *find_stage(stage_number);
    const Case c = problem.as_case();
    run_stage(*device, stage, c, make_inputs(c));
    return {device->counters(),
            stage.workspace_bytes == nullptr ? 0 : stage.workspace_bytes(problem.shape, device->sm_count())};
}

/// Every counter that is not named must be the same in both.
void check_only_moves(const Work& parent, const Work& child, const std::set<std::string>& may_move) {
    for (const auto& field : simt::counter_fields) {
        if (may_move.count(field.name) != 0) continue;
        INFO(field.name);
        CHECK(child.counted.*field.value == parent.counted.*field.value);
    }
}

/// Every stage writes 16-bit O and fp32 L once.
Count output_bytes(const Counted& p) {
    return p.rows() * (p.d() * 2 + 4);
}

/// What copies write into shared memory and ldmatrix reads from it.
Count tile_bytes(const simt::Counters& counted) {
    return counted.async_copies * 16 + counted.ldmatrix * 32 * 16;
}

/// Parts of the keys, given the workspace for their fp32 O and L.
Count splits_of(const Work& work, const Counted& p) {
    return std::max<Count>(1, work.workspace / (p.rows() * (p.d() + 1) * 4));
}

/// Blocks that share a multiprocessor, as stages 06 to 09 count on.
Count resident_blocks(int stage, const Counted& p) {
    return p.d() <= 128 ? 3 : stage <= 8 ? 2 : 1;
}

/// Stages 06 to 09: as many parts as fill the multiprocessors once.
Count splits_to_fill(int stage, const Counted& p, Count unsplit) {
    const Count resident = resident_blocks(stage, p) * open_device(Backend::checked)->sm_count();
    return std::max<Count>(1, std::min(p.Tc(), resident / unsplit));
}

/// Both kinds of problems that stages 07 to 10 are for.
std::vector<Counted> grouped_problems(bool causal) {
    std::vector<Counted> list = decode_problems(causal);
    for (const Counted& p : problems(causal)) list.push_back(p);
    return list;
}

/// All that stages 11 to 19 are for.
std::vector<Counted> prefill_problems(bool causal) {
    std::vector<Counted> list = problems(causal);
    for (const Counted& p : wide_problems(causal)) list.push_back(p);
    return list;
}

/// Query rows of a tile of stages 11 to 17 (18 and 19: 128), and the slices of 16 of them that a warp of 11
/// to 19 owns.
int wide_Br(const Counted& p) {
    return p.d() <= 128 ? 128 : 64;
}
Count slices(const Counted& p) {
    return wide_Br(p) / 64;
}

/// Does every block have a key tile?
bool all_start(const std::vector<Visit>& blocks) {
    return std::all_of(blocks.begin(), blocks.end(), [](const Visit& v) { return v.tiles > 0; });
}

/// The key tiles that each block visits, by the block's number.
std::vector<Count> tiles_of_blocks(int stage_number, const Counted& p) {
    const simt::Options saved = simt::options();
    std::vector<Count> tiles;
    simt::options().workers = 1;
    simt::options().on_block = [&](Count number, const simt::Counters& work) {
        tiles.resize(std::max<std::size_t>(tiles.size(), number + 1));
        tiles[number] = work.tiles;
    };
    work_of(stage_number, p);
    simt::options() = saved;
    return tiles;
}

}  // namespace

TEST_CASE("claims: no stage has traffic that bypasses the counters, or bank conflicts", "[claims]") {
    for (const Stage& stage : stages()) {
        for (const bool causal : {false, true}) {
            std::vector<Counted> all = problems(causal);
            if (stage.has_head_dim(256)) all = prefill_problems(causal);
            for (const Counted& problem : all) {
                INFO(stage.folder() << " " << problem.as_case().description());
                const Work work = work_of(stage.number, problem);
                CHECK(work.counted.bypassed_bytes == 0);
                CHECK(work.counted.bank_conflicts == 0);
            }
        }
    }
}

TEST_CASE("claims: 00 keeps N x N matrices, and every stage but it does not", "[claims]") {
    for (const Counted& p : problems(false)) {
        INFO(p.as_case().description());
        const Count elements = p.rows() * p.Tc() * tile;  // S in fp32 and P in 16 bits, whole key tiles
        const Work naive = work_of(0, p);
        CHECK(naive.workspace == elements * (4 + 2));
        CHECK(naive.counted.launches == 3);
        // S is written once, P once, and O and L
        CHECK(naive.counted.global_store_bytes == elements * (4 + 2) + p.rows() * (p.d() * 2 + 4));

        // Q and V are read once per tile row and column as in every stage; S three times, by the passes over
        // a row; P once.
        const Count Q_bytes = p.rows() * p.Tc() * p.d() * 2,
                    KV_bytes = 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2;
        CHECK(naive.counted.global_load_bytes == Q_bytes + KV_bytes + elements * (3 * 4 + 2));
        CHECK(naive.counted.exponentials == 2 * elements);  // once for the sum, once for the quotient

        const Work flash = work_of(1, p);
        CHECK(flash.workspace == p.rows() * (p.d() + 2) * 4);  // O, m and l
        CHECK(flash.counted.launches == 1);
        CHECK(flash.counted.blocks == p.heads());
        CHECK(flash.counted.mma == naive.counted.mma);  // the same products
        CHECK(flash.counted.mma == p.slice_tiles() * p.d());
        CHECK(flash.counted.tiles == naive.counted.tiles);
    }
    // Twice the length: four times the workspace of 00, twice that of 01.
    const Counted once{{1, 1, 1, 128, 128, 64}}, twice{{1, 1, 1, 256, 256, 64}};
    CHECK(work_of(0, twice).workspace == 4 * work_of(0, once).workspace);
    CHECK(work_of(1, twice).workspace == 2 * work_of(1, once).workspace);
}

TEST_CASE("claims: 01 passes O, m and l through global memory at every key tile", "[claims]") {
    for (const Counted& p : problems(false)) {
        INFO(p.as_case().description());
        const Work work = work_of(1, p);
        // The first key tile has nothing to read, the last writes the 16-bit output and L instead.
        const Count passes = p.Tc() - 1;
        const Count O_bytes = p.rows() * p.d() * 4, m_and_l_bytes = p.rows() * 2 * 4;
        CHECK(work.counted.global_store_bytes ==
              passes * (O_bytes + m_and_l_bytes) + p.rows() * (p.d() * 2 + 4));
        // Every lane of a row reads its m and l: 4 lanes of each of the 4 warps.
        const Count Q_bytes = p.Tc() * p.rows() * p.d() * 2, KV_bytes = 2 * p.heads() * p.Nk() * p.d() * 2;
        CHECK(work.counted.global_load_bytes ==
              passes * (O_bytes + m_and_l_bytes * in_a_quad * warps) + Q_bytes + KV_bytes);
    }
}

TEST_CASE("claims: 02 divides once per row instead of once per row and key tile", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(1, p), child = work_of(2, p);
            const Count lanes_of_a_row = in_a_quad * warps;
            // A row that has seen no key has l = 0 and is not divided.
            const Count without_keys = causal && p.Nq() > p.Nk() ? p.heads() * (p.Nq() - p.Nk()) : 0;
            CHECK(parent.counted.divides == (p.slice_tiles() * 16 - without_keys * p.Tc()) * lanes_of_a_row);
            CHECK(child.counted.divides == (p.rows() - without_keys) * lanes_of_a_row);
            check_only_moves(parent, child, {"divides"});
            CHECK(child.workspace == parent.workspace);
        }
    }
}

TEST_CASE("claims: 03 has a block per query tile, and writes O once, in 16 bits", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(2, p), child = work_of(3, p);
            CHECK(parent.counted.blocks == p.heads());
            CHECK(child.counted.blocks == p.heads() * p.Tr());
            CHECK(child.counted.global_store_bytes == p.rows() * (p.d() * 2 + 4));
            CHECK(child.workspace == 0);
            // Q is read once; K and V once per query tile.
            CHECK(child.counted.global_load_bytes ==
                  p.rows() * p.d() * 2 + 2 * p.heads() * p.Tr() * p.Nk() * p.d() * 2);
            // A barrier behind the copies of each tile, and two in each slice.
            CHECK(child.counted.barriers == p.tiles() + p.slice_tiles() * 2);
            check_only_moves(
                parent, child,
                {"blocks", "global_load_bytes", "global_store_bytes", "async_copies", "shared_tile_bytes"});
        }
    }
}

TEST_CASE("claims: 04 exchanges nothing between warps", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(3, p), child = work_of(4, p);
            // Per slice, each warp writes P V (16 x d), 16 maxima and 16 sums; P V is read once, each maximum
            // and sum by the 4 lanes of its row in all 4 warps.
            const Count slice = warps * 16 * (p.d() * 4 * 2 + 2 * 4 * (1 + in_a_quad * warps));
            CHECK(parent.counted.shared_exchange_bytes == p.slice_tiles() * slice);
            CHECK(child.counted.shared_exchange_bytes == 0);
            CHECK(child.counted.barriers == p.tiles() * 2);
            // A maximum and a sum by two shuffles each, for the two rows of a lane; by every warp, or by the
            // one.
            CHECK(parent.counted.shuffles == p.slice_tiles() * warps * 2 * 4);
            CHECK(child.counted.shuffles == p.slice_tiles() * 2 * 4);
            // Scores are the same; alpha is computed by 4 lanes of a row instead of 16.
            const Count rows_visited = p.slice_tiles() * 16;
            CHECK(parent.counted.exponentials == rows_visited * (tile + in_a_quad * warps));
            CHECK(child.counted.exponentials == rows_visited * (tile + in_a_quad));
            CHECK(child.counted.divides * warps == parent.counted.divides);
            // Fragments of a slice: Q and a quarter of K and V in each warp, or Q once and all of K and V.
            CHECK(parent.counted.ldmatrix == p.slice_tiles() * warps * 3 * p.d() / 16);
            CHECK(child.counted.ldmatrix == p.slice_tiles() * (1 + 4 + 4) * p.d() / 16);
            check_only_moves(parent, child,
                             {"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles",
                              "exponentials", "divides", "ldmatrix"});
            CHECK(child.workspace == 0);
        }
    }
}

TEST_CASE("claims: 05 visits the tiles under the diagonal and masks those on it", "[claims]") {
    for (const Counted& p : problems(true)) {
        INFO(p.as_case().description());
        Count visited = 0, masked = 0, slices = 0;
        for (int i = 0; i < static_cast<int>(p.Tr()); ++i) {
            for (int j = 0; j < static_cast<int>(p.Tc()); ++j) {
                const int offset = p.shape.Nk - p.shape.Nq;  // row r sees the keys up to r + offset
                const int first_row = i * 64, last_row = first_row + 63, first_key = j * 64,
                          last_key = first_key + 63;
                if (first_key > last_row + offset) continue;
                visited += 1;
                slices += std::min<Count>(4, (p.Nq() - first_row + 15) / 16);
                masked += last_key > first_row + offset || last_key >= p.shape.Nk;
            }
        }
        const Work parent = work_of(4, p), child = work_of(5, p);
        CHECK(parent.counted.tiles == p.tiles());
        CHECK(parent.counted.masked_tiles == p.tiles());
        CHECK(child.counted.tiles == p.heads() * visited);
        CHECK(child.counted.masked_tiles == p.heads() * masked);
        CHECK(child.counted.mma == p.heads() * slices * p.d());
        CHECK(child.counted.barriers == p.heads() * visited * 2);
        CHECK(child.counted.exponentials == p.heads() * slices * 16 * (tile + in_a_quad));
        CHECK(child.counted.blocks == parent.counted.blocks);
        CHECK(child.counted.global_store_bytes == parent.counted.global_store_bytes);
        CHECK(child.counted.divides == parent.counted.divides);
    }
    // The closed form, where tiles divide the lengths: (Tr + 1) / 2 of Tr tiles per query tile.
    const Counted square{{1, 1, 1, 512, 512, 64}, true};
    CHECK(work_of(5, square).counted.tiles == 8 * 9 / 2);
    CHECK(work_of(5, square).counted.masked_tiles == 8);
    // Without a mask nothing moves.
    for (const Counted& p : problems(false)) {
        INFO(p.as_case().description());
        check_only_moves(work_of(4, p), work_of(5, p), {});
    }
}

TEST_CASE("claims: 06 splits the keys across blocks where query tiles do not fill the device", "[claims]") {
    const Count resident = 3 * open_device(Backend::checked)->sm_count();
    for (const Counted& p : problems(false)) {
        INFO(p.as_case().description());
        const Count unsplit = p.heads() * p.Tr();
        const Count splits = std::max<Count>(1, std::min(p.Tc(), resident / unsplit));
        const Work parent = work_of(5, p), child = work_of(6, p);
        if (splits == 1) {
            check_only_moves(parent, child, {});
            CHECK(child.workspace == 0);
            continue;
        }
        const Count merge_blocks = p.heads() * ((p.Nq() + 3) / 4),
                    part_bytes = splits * p.rows() * (p.d() + 1) * 4;
        CHECK(parent.counted.blocks == unsplit);
        CHECK(child.counted.blocks == unsplit * splits + merge_blocks);
        CHECK(child.counted.launches == 2);
        CHECK(child.workspace == part_bytes);
        CHECK(child.counted.global_store_bytes == part_bytes + p.rows() * (p.d() * 2 + 4));
        // The merge reads O of each part once, and L twice by each of 32 lanes; every split reads Q again.
        CHECK(child.counted.global_load_bytes == parent.counted.global_load_bytes +
                                                     (splits - 1) * p.rows() * p.d() * 2 +
                                                     splits * p.rows() * (p.d() * 4 + 2 * 32 * 4));
        for (const auto field :
             {&simt::Counters::mma, &simt::Counters::ldmatrix, &simt::Counters::tiles,
              &simt::Counters::masked_tiles, &simt::Counters::shuffles, &simt::Counters::barriers}) {
            CHECK(child.counted.*field == parent.counted.*field);
        }
    }
    // One query row, many keys: the problem that the stage is for.
    const Counted decode{{1, 1, 1, 1, 1024, 64}};
    CHECK(work_of(5, decode).counted.blocks == 1);
    CHECK(work_of(6, decode).counted.blocks == 16 + 1);
}

TEST_CASE("claims: 07 reads K and V once for all query heads of a group", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : grouped_problems(causal)) {
            INFO(p.as_case().description());
            const Work child = work_of(7, p);
            const int group = static_cast<int>(p.group());
            const Count splits = splits_to_fill(7, p, visits(p, 64, 64, group).size());
            const auto blocks = visits(p, 64, 64, group, static_cast<int>(splits));
            const Count split = splits > 1;  // 1 or 0
            const Count merge_blocks = split ? p.heads() * ((p.Nq() + 3) / 4) : 0;
            CHECK(splits_of(child, p) == splits);
            CHECK(child.counted.launches == 1 + split);
            CHECK(child.counted.blocks == blocks.size() + merge_blocks);
            CHECK(child.counted.tiles == sum(blocks, [](auto& v) { return v.tiles; }));
            CHECK(child.counted.masked_tiles == sum(blocks, [](auto& v) { return v.masked; }));
            CHECK(child.counted.barriers == child.counted.tiles * 2);
            const Count warp_tiles = sum(blocks, [](auto& v) { return v.tiles * v.warps; });
            CHECK(child.counted.mma == warp_tiles * p.d());
            CHECK(child.counted.ldmatrix == warp_tiles * 9 * p.d() / 16);
            CHECK(child.counted.shuffles == warp_tiles * 2 * 4);
            CHECK(child.counted.exponentials ==
                  warp_tiles * 16 * (tile + in_a_quad) + split * p.rows() * splits * 32);
            CHECK(child.counted.divides == sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad +
                                               split * (p.rows() - p.rows_without_keys()) * 32);
            CHECK(child.counted.global_store_bytes == child.workspace + output_bytes(p));
            const Count KV_bytes = sum(blocks, [](auto& v) { return v.keys; }) * 2 * p.d() * 2;
            CHECK(child.counted.global_load_bytes ==
                  KV_bytes + splits * p.rows() * p.d() * 2 +
                      split * splits * p.rows() * (p.d() * 4 + 2 * 32 * 4));
            if (p.d() > 128) continue;  // 06 has no such dimension
            const Work parent = work_of(6, p);
            if (p.group() == 1) check_only_moves(parent, child, {});
            // Heads of one tile each, in one tile together: each byte of K and V once for the group.
            if (causal || p.group() * p.Nq() > tile) continue;
            const Count parents_splits = splits_of(parent, p);
            const Count parents_KV_bytes =
                parent.counted.global_load_bytes - parents_splits * p.rows() * p.d() * 2 -
                (parents_splits > 1) * parents_splits * p.rows() * (p.d() * 4 + 2 * 32 * 4);
            CHECK(parents_KV_bytes == p.group() * KV_bytes);
            CHECK(parent.counted.tiles == p.group() * child.counted.tiles);
        }
    }
}

TEST_CASE("claims: 08 divides the keys of 16 rows among warps that merge once", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : grouped_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(7, p), child = work_of(8, p);
            const int group = static_cast<int>(p.group());
            const Count splits = splits_to_fill(8, p, visits(p, 16, 64, group).size());
            const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits));
            const Count split = splits > 1;  // 1 or 0
            CHECK(splits_of(child, p) == splits);
            CHECK(child.counted.blocks == blocks.size() + split * p.heads() * ((p.Nq() + 3) / 4));
            CHECK(child.counted.tiles == sum(blocks, [](auto& v) { return v.tiles; }));
            CHECK(child.counted.masked_tiles == sum(blocks, [](auto& v) { return v.masked; }));
            CHECK(child.counted.barriers == child.counted.tiles * 2 + blocks.size() * 2);
            // O, m and l of four warps are written, and read of three.
            CHECK(child.counted.shared_exchange_bytes == blocks.size() * (4 + 3) * 32 * (p.d() / 8 + 1) * 16);
            // Each warp reads all of Q and its own quarter of K and V.
            CHECK(child.counted.mma == child.counted.tiles * p.d());
            CHECK(child.counted.ldmatrix == child.counted.tiles * warps * 3 * p.d() / 16);
            CHECK(child.counted.async_copies ==
                  blocks.size() * 16 * p.d() / 8 + child.counted.tiles * 2 * tile * p.d() / 8);
            CHECK(child.counted.shared_tile_bytes == tile_bytes(child.counted));
            // Each warp has a maximum and a sum of its own, and the merge two exponentials per row and warp.
            CHECK(child.counted.shuffles == child.counted.tiles * warps * 2 * 4);
            CHECK(child.counted.exponentials == child.counted.tiles * 16 * (tile + in_a_quad * warps) +
                                                    blocks.size() * 3 * 16 * 2 * in_a_quad +
                                                    split * p.rows() * splits * 32);
            CHECK(child.counted.global_store_bytes == child.workspace + output_bytes(p));
            // Where 16 rows are enough for a group, nothing else moves.
            if (p.group() * p.Nq() > 16) continue;
            check_only_moves(parent, child,
                             {"shared_exchange_bytes", "shared_tile_bytes", "barriers", "shuffles",
                              "ldmatrix", "async_copies", "exponentials"});
            CHECK(child.workspace == parent.workspace);
        }
    }
}

TEST_CASE("claims: 09 waits with later tiles in flight, and computes behind them", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : grouped_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(8, p), child = work_of(9, p);
            CHECK(parent.counted.copies_left_in_flight == 0);
            CHECK(parent.counted.mma_during_copies == 0);
            const int group = static_cast<int>(p.group());
            const Count splits = splits_to_fill(9, p, visits(p, 16, 64, group).size());
            const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits));
            CHECK(splits_of(child, p) == splits);
            // The wait for a tile leaves those that follow, at most the ring less one.
            const Count depth = p.d() > 64 ? 2 : 4, copies_of_a_tile = 2 * tile * p.d() / 8;
            CHECK(child.counted.copies_left_in_flight == sum(blocks, [&](auto& v) {
                      Count tiles = 0;
                      for (Count j = 0; j < v.tiles; ++j) tiles += std::min(v.tiles - 1 - j, depth - 1);
                      return tiles * copies_of_a_tile;
                  }));
            // Only a block's last tile has none behind it.
            CHECK(child.counted.mma_during_copies ==
                  child.counted.mma - sum(blocks, [&](auto& v) { return (v.tiles > 0) * p.d(); }));
            // At d = 256 the ring leaves room for one block instead of two, and so for fewer splits.
            if (p.d() > 128 && splits_of(parent, p) != splits) continue;
            check_only_moves(parent, child, {"copies_left_in_flight", "mma_during_copies"});
            CHECK(child.workspace == parent.workspace);
        }
    }
}

TEST_CASE("claims: 10 has a block per multiprocessor, and merges 32 parts at once", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : grouped_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(9, p), child = work_of(10, p);
            const int group = static_cast<int>(p.group());
            const Count unsplit = visits(p, 16, 64, group).size();
            const Count multiprocessors = open_device(Backend::checked)->sm_count();
            // Where the unsplit blocks do not fit at once, waves of them are 85% full, or as full as 8 parts
            // allow.
            const Count places = multiprocessors * (p.d() > 128 ? 1 : 3), most = std::min<Count>(p.Tc(), 8);
            const auto full = [&](Count n) {
                const Count waves = (unsplit * n + places - 1) / places;
                return waves == 1 || 100 * unsplit * n >= 85 * waves * places;
            };
            Count splits = std::max<Count>(1, std::min(p.Tc(), multiprocessors / unsplit));
            while (splits < most && !full(splits)) ++splits;
            CHECK(splits_of(child, p) == splits);
            const auto blocks = visits(p, 16, 64, group, static_cast<int>(splits));
            const Count split = splits > 1;  // 1 or 0
            // The merge: a block per row, a thread for two columns, so a warp for 64.
            const Count merge_warps = split * p.rows() * p.d() / 64, rounds = (splits + 31) / 32;
            CHECK(child.counted.launches == 1 + split);
            CHECK(child.counted.blocks == blocks.size() + split * p.rows());
            CHECK(child.counted.barriers == child.counted.tiles * 2 + blocks.size() * 2);
            CHECK(child.counted.tiles == sum(blocks, [](auto& v) { return v.tiles; }));
            // Every warp of the merge reads the L of a part twice, once in all; every thread its O.
            CHECK(child.counted.global_load_bytes ==
                  sum(blocks, [](auto& v) { return v.keys; }) * 2 * p.d() * 2 +
                      splits * p.rows() * p.d() * 2 + merge_warps * splits * (2 * 4 + 64 * 4));
            CHECK(child.counted.global_store_bytes == child.workspace + output_bytes(p));
            // A maximum and a sum over 32 lanes, and a weight from each of them.
            CHECK(child.counted.shuffles ==
                  child.counted.tiles * warps * 2 * 4 + merge_warps * (5 + 5 + 32 * rounds));
            CHECK(child.counted.exponentials == child.counted.tiles * 16 * (tile + in_a_quad * warps) +
                                                    blocks.size() * 3 * 16 * 2 * in_a_quad +
                                                    merge_warps * 32 * rounds);
            CHECK(child.counted.divides == sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad +
                                               split * (p.rows() - p.rows_without_keys()) * p.d() / 2);
            // Where the number of splits is the parent's, only the merge is different.
            if (splits_of(parent, p) != splits) continue;
            if (splits == 1) check_only_moves(parent, child, {});
            check_only_moves(parent, child,
                             {"blocks", "global_load_bytes", "shuffles", "exponentials", "divides"});
            CHECK(child.workspace == parent.workspace);
        }
    }
}

TEST_CASE("claims: 20 launches one kernel, in which each block of a split row counts itself", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : grouped_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(10, p), child = work_of(20, p);
            const Count splits = splits_of(parent, p), split = splits > 1;
            const Count tiles = visits(p, 16, 64, static_cast<int>(p.group())).size();
            CHECK(parent.counted.launches == 1 + split);
            CHECK(child.counted.launches == 1);
            CHECK(child.counted.blocks == tiles * splits);
            CHECK(child.counted.atomics == split * tiles * splits);
            CHECK(child.counted.fences == 2 * child.counted.atomics);
            // Before a block counts, and before its threads know, by one byte, whether it was the last
            CHECK(child.counted.barriers == parent.counted.barriers + 2 * child.counted.atomics);
            CHECK(child.counted.shared_exchange_bytes ==
                  parent.counted.shared_exchange_bytes + child.counted.atomics * (1 + warps * 32));
            // A row is merged by one warp, where it was one for every 64 columns: what each warp did for
            // itself is done once.
            const Count warps_less = split * p.rows() * (p.d() / 64 - 1), rounds = (splits + 31) / 32;
            CHECK(child.counted.global_load_bytes ==
                  parent.counted.global_load_bytes - warps_less * splits * 2 * 4);
            CHECK(child.counted.shuffles == parent.counted.shuffles - warps_less * (5 + 5 + 32 * rounds));
            CHECK(child.counted.exponentials == parent.counted.exponentials - warps_less * 32 * rounds);
            const Count with_keys = p.rows() - p.rows_without_keys();
            CHECK(child.counted.divides == parent.counted.divides - split * with_keys * (p.d() / 2 - 32));
            CHECK(child.workspace == parent.workspace + split * tiles * 4);
            check_only_moves(parent, child,
                             {"launches", "blocks", "atomics", "fences", "barriers", "shared_exchange_bytes",
                              "global_load_bytes", "shuffles", "exponentials", "divides"});
            if (splits == 1) check_only_moves(parent, child, {});

            // The same sums in the same order: not a bit of the result moves, whoever comes last.
            const auto device = open_device(Backend::cpu);
            const Inputs inputs = make_inputs(p.as_case());
            const Outputs expected = run_stage(*device, *find_stage(10), p.as_case(), inputs);
            const Outputs got = run_stage(*device, *find_stage(20), p.as_case(), inputs);
            CHECK(got.O == expected.O);
            CHECK(got.L == expected.L);
        }
    }
}

TEST_CASE("claims: 11 reads a fragment of K or V once for 32 rows", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work child = work_of(11, p);
            const auto blocks = visits(p, wide_Br(p), 64);
            CHECK(child.counted.blocks == blocks.size());
            CHECK(child.counted.tiles == sum(blocks, [](auto& v) { return v.tiles; }));
            CHECK(child.counted.masked_tiles == sum(blocks, [](auto& v) { return v.masked; }));
            CHECK(child.counted.barriers == child.counted.tiles * 2);
            // d = 256: one slice of 16 rows per warp, as in the parent, and so the parent's formulas.
            const Count warp_tiles = sum(blocks, [](auto& v) { return v.tiles * v.warps; });
            CHECK(child.counted.mma == warp_tiles * slices(p) * p.d());
            CHECK(child.counted.ldmatrix == warp_tiles * (slices(p) + 4 + 4) * p.d() / 16);
            CHECK(child.counted.shuffles == warp_tiles * slices(p) * 2 * 4);
            CHECK(child.counted.exponentials == warp_tiles * slices(p) * 16 * (tile + in_a_quad));
            CHECK(child.counted.divides == (p.rows() - p.rows_without_keys()) * in_a_quad);
            CHECK(child.counted.global_store_bytes == output_bytes(p));
            CHECK(child.counted.global_load_bytes ==
                  p.rows() * p.d() * 2 + sum(blocks, [](auto& v) { return v.keys; }) * 2 * p.d() * 2);
            CHECK(child.counted.async_copies ==
                  blocks.size() * wide_Br(p) * p.d() / 8 + child.counted.tiles * 2 * tile * p.d() / 8);
            CHECK(child.counted.shared_tile_bytes == tile_bytes(child.counted));
            if (p.d() > 128) continue;  // 05 has no such dimension
            const Work parent = work_of(5, p);
            CHECK(child.counted.divides == parent.counted.divides);
            CHECK(child.counted.global_store_bytes == parent.counted.global_store_bytes);
            // Rows that fill the tiles, and no mask: the same products.
            if (causal || p.Nq() % 128 != 0) continue;
            CHECK(child.counted.blocks * 2 == parent.counted.blocks);
            const Count Q_bytes = p.rows() * p.d() * 2;
            CHECK((child.counted.global_load_bytes - Q_bytes) * 2 ==
                  parent.counted.global_load_bytes - Q_bytes);
            check_only_moves(parent, child,
                             {"blocks", "tiles", "masked_tiles", "barriers", "ldmatrix", "global_load_bytes",
                              "async_copies", "shared_tile_bytes"});
        }
    }
    // The ratio that the stage is for: at d = 128, 72 ldmatrix for 128 mma become 80 for 256.
    const Counted square{{1, 1, 1, 256, 256, 128}};
    const Work parent = work_of(5, square), child = work_of(11, square);
    CHECK(parent.counted.ldmatrix * 128 == parent.counted.mma * 72);
    CHECK(child.counted.ldmatrix * 256 == child.counted.mma * 80);
    // Under a mask, whole tiles of 128 rows reach further beyond the diagonal: Tr (Tr + 1) of 128 x 64.
    const Counted masked{{1, 1, 1, 512, 512, 64}, true};
    CHECK(work_of(5, masked).counted.mma == 8 * 9 / 2 * 4 * 64);
    CHECK(work_of(11, masked).counted.mma == 4 * 5 * 2 * 4 * 64);
}

TEST_CASE("claims: 12 computes all but the last P V with copies in flight", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(11, p), child = work_of(12, p);
            const auto blocks = visits(p, wide_Br(p), 64);
            CHECK(parent.counted.mma_during_copies == 0);
            // S of a tile with its V in flight, P V with the next K, which the last tile does not have.
            CHECK(child.counted.mma_during_copies == sum(blocks, [&](auto& v) {
                      return v.tiles == 0 ? 0 : (2 * v.tiles - 1) * v.warps * slices(p) * p.d() / 2;
                  }));
            // Nothing is copied twice, and no barrier is added. A block without a key tile leaves Q alone
            // too.
            std::set<std::string> may_move{"mma_during_copies"};
            if (!all_start(blocks))
                may_move.merge(
                    std::set<std::string>{"global_load_bytes", "async_copies", "shared_tile_bytes"});
            check_only_moves(parent, child, may_move);
            CHECK(child.counted.global_load_bytes ==
                  sum(blocks, [&](auto& v) { return ((v.tiles > 0) * v.queries + 2 * v.keys) * p.d() * 2; }));
            CHECK(child.counted.async_copies == sum(blocks, [&](auto& v) {
                      return ((v.tiles > 0) * wide_Br(p) + 2 * v.tiles * tile) * p.d() / 8;
                  }));
            CHECK(child.counted.shared_tile_bytes == tile_bytes(child.counted));
        }
    }
}

TEST_CASE("claims: 13 adds up l once, by four shuffles per slice at the end", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(12, p), child = work_of(13, p);
            const auto blocks = visits(p, wide_Br(p), 64);
            const Count warp_tiles = sum(blocks, [](auto& v) { return v.tiles * v.warps; });
            CHECK(parent.counted.shuffles == warp_tiles * slices(p) * 2 * 4);
            CHECK(child.counted.shuffles ==
                  warp_tiles * slices(p) * 2 * 2 + blocks.size() * warps * slices(p) * 2 * 2);
            check_only_moves(parent, child, {"shuffles"});
        }
    }
}

TEST_CASE("claims: 14 shuffles and rescales where the maximum rises by much, and else votes", "[claims]") {
    const auto counts = [](const Counted& p, const std::vector<Visit>& blocks, Count rescales) {
        const Work parent = work_of(13, p), child = work_of(14, p);
        const Count warp_tiles = sum(blocks, [](auto& v) { return v.tiles * v.warps; });
        const Count first_tiles = sum(blocks, [](auto& v) { return (v.tiles > 0) * v.warps; });
        CHECK(child.counted.votes == warp_tiles);
        // A rescale needs the maximum of two rows per lane; l is added up at the end, as before.
        CHECK(child.counted.shuffles == (rescales + blocks.size() * warps) * slices(p) * 2 * 2);
        // P alone; a rescale's alpha but that of the first tile, which has nothing to rescale.
        CHECK(child.counted.exponentials ==
              warp_tiles * slices(p) * 16 * tile + (rescales - first_tiles) * slices(p) * 16 * in_a_quad);
        check_only_moves(parent, child, {"votes", "shuffles", "exponentials"});
    };
    for (const bool causal : {false, true}) {
        for (Counted p : prefill_problems(causal)) {
            const auto blocks = visits(p, wide_Br(p), 64);
            const Count first_tiles = sum(blocks, [](auto& v) { return (v.tiles > 0) * v.warps; });
            // Normal scores stay below 2^8 times the first tile's. So do falling ones.
            for (const char* input : {"normal", "falling"}) {
                p.input = input;
                INFO(p.as_case().description());
                counts(p, blocks, first_tiles);
            }
        }
    }
    // Scores that climb by 4, and their exponents by 4 log2(e) = 5.8, with each tile: every other one is more
    // than 8 above m.
    for (const Shape& shape :
         {Shape{1, 2, 1, 256, 448, 64}, {1, 1, 1, 65, 256, 128}, {1, 1, 1, 64, 320, 256}}) {
        const Counted p{shape, false, "rising"};
        INFO(p.as_case().description());
        const auto blocks = visits(p, wide_Br(p), 64);
        counts(p, blocks, sum(blocks, [](auto& v) { return (v.tiles + 1) / 2 * v.warps; }));
    }
}

TEST_CASE("claims: 15 passes O through shared memory once, inside a warp", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(14, p), child = work_of(15, p);
            const auto blocks = visits(p, wide_Br(p), 64);
            // Whole tiles are written, the rows that there are are read.
            CHECK(child.counted.shared_exchange_bytes == (blocks.size() * wide_Br(p) + p.rows()) * p.d() * 2);
            CHECK(child.counted.warp_syncs == blocks.size() * warps);
            // Rows past the end of a ragged tile are divided too, though nobody reads them.
            CHECK(parent.counted.divides == sum(blocks, [](auto& v) { return v.rows; }) * in_a_quad);
            CHECK(child.counted.divides == sum(blocks, [](auto& v) { return v.padded; }) * in_a_quad);
            check_only_moves(parent, child, {"shared_exchange_bytes", "warp_syncs", "divides"});
        }
    }
}

TEST_CASE("claims: 16 does the same work, and starts the longest blocks of many heads first", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(15, p), child = work_of(16, p);
            check_only_moves(parent, child, {"blocks"});
            // Under a mask heads start in groups of 2^n. Where they do not fill them, blocks have nothing to
            // do.
            const Count Tr = parent.counted.blocks / p.heads();
            const Count enough = 3 * open_device(Backend::checked)->sm_count();
            Count group = 1;
            while (causal && group < p.H() && Tr * group < enough) group *= 2;
            CHECK(child.counted.blocks == p.B() * Tr * ((p.H() + group - 1) / group * group));
        }
    }
    // Four query tiles, of 2, 4, 6 and 8 key tiles, for each of five heads, which start in a group of eight.
    const Counted p{{2, 5, 5, 512, 512, 64}, true};
    std::vector<Count> head_by_head, longest_first;
    for (int head = 0; head < 10; ++head) {
        for (const Count tiles : {2, 4, 6, 8}) head_by_head.push_back(tiles);
    }
    for (int batch = 0; batch < 2; ++batch) {
        for (const Count tiles : {8, 6, 4, 2}) {
            longest_first.insert(longest_first.end(), 5, tiles);
            longest_first.insert(longest_first.end(), 3, 0);
        }
    }
    CHECK(tiles_of_blocks(15, p) == head_by_head);
    CHECK(tiles_of_blocks(16, p) == longest_first);
    // What that is for: 8 multiprocessors have 16 places. 320 tiles of 16 heads are 20 for each, and none
    // idles at the end. 10 heads would be 12.5.
    const Counted full_groups{{2, 8, 8, 512, 512, 64}, true};
    CHECK(list_schedule(tiles_of_blocks(15, full_groups), 16).end == 24);
    CHECK(list_schedule(tiles_of_blocks(16, full_groups), 16).end == 20);
    CHECK(list_schedule(head_by_head, 16).end == 18);
    CHECK(list_schedule(longest_first, 16).end == 14);
    // Without a mask all blocks are alike, and start as in the parent.
    const Counted unmasked{{2, 5, 5, 512, 512, 64}};
    CHECK(tiles_of_blocks(16, unmasked) == std::vector<Count>(40, 8));
}

TEST_CASE("claims: 17 has half the tiles at d = 64, and neither branch nor vote where they cost more",
          "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(16, p), child = work_of(17, p);
            const int Bc = p.d() == 64 ? 128 : 64;
            // At d = 64 warps without a query row compute like the others.
            const auto blocks = visits(p, wide_Br(p), Bc, 1, 1, p.d() == 64);
            const Count warp_tiles = sum(blocks, [](auto& v) { return v.tiles * v.warps; });
            const Count first_tiles = sum(blocks, [](auto& v) { return (v.tiles > 0) * v.warps; });
            const Count at_the_end = blocks.size() * warps * slices(p) * 2 * 2;
            if (p.d() == 128) check_only_moves(parent, child, {});
            if (p.d() == 256) {
                // The parent shuffles at the first tile, this stage at each; then it also computes alpha.
                CHECK(parent.counted.votes == warp_tiles);
                CHECK(child.counted.votes == 0);
                CHECK(parent.counted.shuffles == first_tiles * 2 * 2 + at_the_end);
                CHECK(child.counted.shuffles == warp_tiles * 2 * 2 + at_the_end);
                CHECK(child.counted.exponentials ==
                      parent.counted.exponentials + (warp_tiles - first_tiles) * 16 * in_a_quad);
                check_only_moves(parent, child, {"votes", "shuffles", "exponentials"});
            }
            if (p.d() != 64) continue;
            CHECK(child.counted.tiles == sum(blocks, [](auto& v) { return v.tiles; }));
            CHECK(child.counted.masked_tiles == sum(blocks, [](auto& v) { return v.masked; }));
            CHECK(child.counted.barriers == child.counted.tiles * 2);
            CHECK(child.counted.votes == warp_tiles);
            CHECK(child.counted.shuffles == first_tiles * slices(p) * 2 * 2 + at_the_end);
            CHECK(child.counted.mma == warp_tiles * slices(p) * 2 * p.d());
            // Q is read once for 128 keys.
            CHECK(child.counted.ldmatrix == warp_tiles * (slices(p) + 8 + 8) * p.d() / 16);
            CHECK(child.counted.exponentials == warp_tiles * slices(p) * 16 * Bc);
            CHECK(child.counted.divides == sum(blocks, [](auto& v) { return v.padded; }) * in_a_quad);
            CHECK(child.counted.shared_tile_bytes == tile_bytes(child.counted));
            // Rows and keys that fill the tiles, and no mask: the same products and bytes in half the tiles.
            if (causal || p.Nq() % 128 != 0 || p.Nk() % 128 != 0) continue;
            CHECK(child.counted.tiles * 2 == parent.counted.tiles);
            check_only_moves(
                parent, child,
                {"tiles", "barriers", "votes", "ldmatrix", "shared_tile_bytes", "mma_during_copies"});
        }
    }
    // Rising scores climb by more than 2^8 with each tile of 128 keys, so each is rescaled.
    const Counted rising{{1, 2, 2, 128, 512, 64}, false, "rising"};
    const Count at_the_end = 2 * warps * slices(rising) * 2 * 2;
    CHECK(work_of(17, rising).counted.shuffles == 2 * 4 * warps * slices(rising) * 2 * 2 + at_the_end);
    CHECK(work_of(16, rising).counted.shuffles == work_of(17, rising).counted.shuffles);  // every other of 64
}

TEST_CASE("claims: 18 has one barrier per block, and otherwise arrivals and waits of its own", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(17, p), child = work_of(18, p);
            const int Bc = p.d() == 64 ? 128 : 64;
            const Count in_block = p.d() == 256 ? 8 : 4, threads = 32 * in_block;  // warps
            // d = 256 has tiles of 128 rows, too. A warp without a query row computes like the others.
            const auto blocks = visits(p, 128, Bc, 1, 1, true);
            const Count tiles = sum(blocks, [](auto&v) { return v.tiles; }), warp_tiles = tiles * in_block;
            const Count slice_tiles = tiles * 128 / 16;
            // Once the mbarriers are set up, whatever N is.
            CHECK(child.counted.barriers == blocks.size());
            CHECK(parent.counted.barriers == parent.counted.tiles * 2);
            // Each thread says that its copies of K and of V are there and that it has read them, and waits
            // for all four.
            CHECK(child.counted.mbarrier_arrivals == tiles * 2 * (threads + threads));
            CHECK(child.counted.mbarrier_waits == tiles * 2 * (threads + threads));
            CHECK(child.counted.warp_syncs == warp_tiles * 2 + blocks.size() * in_block);
            CHECK(child.counted.tiles == tiles);
            CHECK(child.counted.masked_tiles == sum(blocks, [](auto& v) { return v.masked; }));
            CHECK(child.counted.mma == slice_tiles * Bc * p.d() / 64);
            // All but the last P V of a block have copies of a later tile in flight, as in 12.
            CHECK(child.counted.mma_during_copies == sum(blocks, [&](auto& v) {
                      return v.tiles == 0 ? 0 : (2 * v.tiles - 1) * 8 * Bc * p.d() / 128;
                  }));
            CHECK(child.counted.ldmatrix == warp_tiles * (slices(p) + Bc / 16 + Bc / 16) * p.d() / 16);
            CHECK(child.counted.async_copies ==
                  sum(blocks, [&](auto& v) { return ((v.tiles > 0) * 128 + 2 * v.tiles * Bc) * p.d() / 8; }));
            CHECK(child.counted.global_load_bytes ==
                  sum(blocks, [&](auto& v) { return ((v.tiles > 0) * v.queries + 2 * v.keys) * p.d() * 2; }));
            CHECK(child.counted.shared_tile_bytes == tile_bytes(child.counted));
            // Query rows that fill the tiles: the same work for each row.
            if (p.Nq() % 128 != 0) continue;
            std::set<std::string> may_move{"barriers", "mbarrier_arrivals", "mbarrier_waits", "warp_syncs"};
            if (p.d() == 256) {  // and K and V are copied for twice the rows, half as often
                may_move.merge(std::set<std::string>{"blocks", "tiles", "masked_tiles", "async_copies",
                                                     "global_load_bytes", "shared_tile_bytes",
                                                     "mma_during_copies"});
                const Count Q_bytes = p.rows() * p.d() * 2;
                if (!causal) {
                    CHECK((child.counted.global_load_bytes - Q_bytes) * 2 ==
                          parent.counted.global_load_bytes - Q_bytes);
                    CHECK(child.counted.tiles * 2 == parent.counted.tiles);
                } else {  // under a mask a tile of twice the rows reaches further beyond the diagonal
                    may_move.merge(std::set<std::string>{"mma", "ldmatrix", "exponentials", "shuffles"});
                }
            }
            check_only_moves(parent, child, may_move);
        }
    }
}

TEST_CASE("claims: 19 rescales at d = 256 where the maximum rises by much, and else votes", "[claims]") {
    for (const bool causal : {false, true}) {
        for (const Counted& p : prefill_problems(causal)) {
            INFO(p.as_case().description());
            const Work parent = work_of(18, p), child = work_of(19, p);
            if (p.d() != 256) {
                check_only_moves(parent, child, {});
                continue;
            }
            const Count in_block = 8;  // warps
            const auto blocks = visits(p, 128, 64, 1, 1, true);
            const Count warp_tiles = sum(blocks, [](auto& v) { return v.tiles; }) * in_block;
            const Count first_tiles = sum(blocks, [](auto& v) { return Count{v.tiles > 0}; }) * in_block;
            const Count at_the_end = blocks.size() * in_block * 2 * 2;
            CHECK(parent.counted.votes == 0);
            CHECK(child.counted.votes == warp_tiles);
            CHECK(parent.counted.shuffles == warp_tiles * 2 * 2 + at_the_end);
            CHECK(child.counted.shuffles == first_tiles * 2 * 2 + at_the_end);
            // P; the parent's alpha in all tiles but the first.
            CHECK(child.counted.exponentials == warp_tiles * 16 * 64);
            CHECK(parent.counted.exponentials ==
                  child.counted.exponentials + (warp_tiles - first_tiles) * 16 * in_a_quad);
            check_only_moves(parent, child, {"votes", "shuffles", "exponentials"});
        }
    }
    // Scores that climb by 4 log2(e) = 5.8 with each tile of 64 keys: every other tile is rescaled.
    const Counted rising{{1, 1, 1, 128, 320, 256}, false, "rising"};
    CHECK(work_of(19, rising).counted.shuffles == (3 + 1) * 8 * 2 * 2);
    CHECK(work_of(18, rising).counted.shuffles == (5 + 1) * 8 * 2 * 2);
}

TEST_CASE("claims: counts do not depend on the order of threads or on the number of workers", "[claims]") {
    // That the numbers are exact is what makes them claims.
    const Counted p{{1, 2, 1, 100, 197, 64}, true};
    const simt::Options saved = simt::options();
    for (const Stage& stage : stages()) {
        const simt::Counters expected = work_of(stage.number, p).counted;
        for (const auto order : {simt::Order::reversed, simt::Order::shuffled}) {
            simt::options() = {.order = order, .seed = 3, .workers = 3};
            CHECK(work_of(stage.number, p).counted == expected);
        }
        simt::options() = saved;
    }
}

TEST_CASE("claims: sm_75's instructions give the same results and counts", "[claims]") {
    const simt::Options saved = simt::options();
    for (const Stage& stage : stages()) {
        const Case c{.shape = {1, 2, 1, 100, 197, 64}, .causal = true};
        const auto device = open_device(Backend::checked);
        simt::options() = saved;
        const Outputs on_80 = run_stage(*device, stage, c, make_inputs(c));
        const simt::Counters counted = device->counters();
        simt::options().compute_capability = 75;
        if (stage.number == 18 || stage.number == 19) {  // no mbarriers there
            CHECK_THROWS_AS(run_stage(*device, stage, c, make_inputs(c)), CannotRun);
            continue;
        }
        const Outputs on_75 = run_stage(*device, stage, c, make_inputs(c));
        CHECK(on_75.O == on_80.O);  // two m16n8k8 in sequence add up in the order of one m16n8k16
        CHECK(device->counters() == counted);
        const Case bf16{.shape = c.shape, .dtype = DType::bf16};
        CHECK_THROWS_AS(run_stage(*device, stage, bf16, make_inputs(bf16)), CannotRun);
    }
    simt::options() = saved;
}

#endif
