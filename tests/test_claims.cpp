/// @file
/// The claims of each stage, on counted work: what its change must move against its parent, by which formula,
/// and what it must leave alone. Counters, not times: they hold on every machine.
#ifdef LADDER_HAS_CHECKED

#    include <algorithm>
#    include <set>
#    include <string>

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

    Case as_case() const { return {.shape = shape, .causal = causal}; }
};

/// Long and short, ragged and not, grouped heads, both head dimensions, Nq != Nk.
std::vector<Counted> problems(bool causal) {
    return {{{1, 2, 2, 256, 256, 64}, causal}, {{1, 1, 1, 128, 320, 128}, causal},
            {{2, 4, 1, 100, 197, 64}, causal}, {{1, 2, 1, 65, 63, 128}, causal},
            {{1, 1, 1, 200, 70, 64}, causal},  {{1, 3, 3, 1, 130, 64}, causal}};
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

}  // namespace

TEST_CASE("claims: no stage has traffic that bypasses the counters, or bank conflicts", "[claims]") {
    for (const Stage& stage : stages()) {
        for (const bool causal : {false, true}) {
            for (const Counted& problem : problems(causal)) {
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
        const Outputs on_75 = run_stage(*device, stage, c, make_inputs(c));
        CHECK(on_75.O == on_80.O);  // two m16n8k8 in sequence add up in the order of one m16n8k16
        CHECK(device->counters() == counted);
        const Case bf16{.shape = c.shape, .dtype = DType::bf16};
        CHECK_THROWS_AS(run_stage(*device, stage, bf16, make_inputs(bf16)), CannotRun);
    }
    simt::options() = saved;
}

#endif
