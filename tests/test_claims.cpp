/// @file
/// Every stage is held to its claims on counted work (harness/count/claims.h), and what they say of a few
/// problems is worked out by hand.
#ifdef LADDER_HAS_CPU

#    include <algorithm>
#    include <string>
#    include <utility>

#    include "harness/count/claims.h"
#    include "harness/count/schedule.h"
#include "harness/ladder/ladder.h"
#    include "simt/simt.h"
#    include "tests/catch.h"

using namespace ladder;
using Count = std::uint64_t;

namespace {

Work work_of(int stage_number, const Case& c) {
    const auto device = open_device(Backend::checked);
    return count_work(*device, *find_stage(stage_number), c, make_inputs(c));
}

simt::Counters counted(int stage_number, const Case& c) {
    return work_of(stage_number, c).counters;
}

int multiprocessors() {
    return open_device(Backend::checked)->sm_count();
}

/// The key tiles that each block visits, by the block's number.
std::vector<Count> tiles_of_blocks(int stage_number, const Case& c) {
    const simt::KeptOptions kept;
    std::vector<Count> tiles;
    simt::options().workers = 1;
    simt::options().on_block = [&](Count number, const simt::Counters& work) {
        tiles.resize(std::max<std::size_t>(tiles.size(), number + 1));
        tiles[number] = work.tiles;
    };
    work_of(stage_number, c);
    return tiles;
}

/// Holds a stage to its claims on all their problems. They would be worth nothing if its parent met them too.
void check_claims(int stage_number) {
    const Stage& stage = *find_stage(stage_number);
    bool parent_meets_them = true;
    for (const Case& c : claim_cases(stage_number)) {
        INFO(stage.folder() << " " << c.description());
        const Work child = work_of(stage_number, c);
        CHECK(child.why_not.empty());
        Work parent;
        if (stage.parent >= 0) parent = work_of(stage.parent, c);
        const bool new_dimension = stage.parent >= 0 && !find_stage(stage.parent)->has_head_dim(c.shape.d);
        CHECK(parent.why_not.empty() != new_dimension);
        for (const Claim& claim : claims(stage_number, c, multiprocessors(), parent, child)) {
            INFO((claim.of_parent ? "the parent's " : "") << claim.counter << (claim.stays ? " stays" : ""));
            CHECK(claim.got == claim.expected);
        }
        const auto order = claimed_tiles_of_blocks(stage_number, c, multiprocessors());
        if (!order.empty()) {
            CHECK(tiles_of_blocks(stage_number, c) == order);
            CHECK(tiles_of_blocks(stage.parent, c) != order);
            parent_meets_them = false;
        }
        if (new_dimension || stage.parent < 0) continue;
        for (const Claim& claim : claims(stage_number, c, multiprocessors(), parent, parent))
            parent_meets_them = parent_meets_them && claim.holds();
    }
    CHECK((stage.parent < 0 || !parent_meets_them));
}

/// Heads and query tiles in the order in which a device with one multiprocessor takes them in line.
std::vector<std::pair<int, int>> line(int stage_number, const Case& c) {
    const simt::KeptOptions kept;
    std::vector<std::pair<int, int>> order;
    simt::options().multiprocessors = 1;
    simt::options().on_trace = [&](const simt::Launch&, const simt::BlockTrace& block) {
        for (const auto& phase : block.phases) {
            for (const simt::Tile& tile : phase.tiles) order.emplace_back(tile.head, tile.query_tile);
        }
    };
    work_of(stage_number, c);
    order.erase(std::unique(order.begin(), order.end()), order.end());
    return order;
}

/// Verifies stages on devices of few and of many multiprocessors, with and without a mask.
void check_on_any_device(const std::vector<int>& stages, const std::vector<Shape>& shapes) {
    const simt::KeptOptions kept;
    for (const int multiprocessors : {1, 2, 3, 5, 7, 40}) {
        simt::options().multiprocessors = multiprocessors;
        const auto device = open_device(Backend::checked);
        for (const int stage : stages) {
            for (const Shape& shape : shapes) {
                for (const bool causal : {false, true}) {
                    const Case c{.shape = shape, .causal = causal, .input = "rising"};
                    INFO(stage << " on " << multiprocessors << ": " << c.description());
                    const Verdict verdict = verify(*device, *find_stage(stage), c);
                    INFO(verdict.report);
                    CHECK(verdict.passed);
                }
            }
        }
    }
}

/// Two query tiles, of tiles of Bc keys, are even shares for two of three multiprocessors. The third helps
/// when they are long.
void check_long_shares(int stage, int Bc) {
    const simt::KeptOptions kept;
    simt::options().multiprocessors = 3;
    const int keys = Bc * 256 * 3 / 2;
    CHECK(tiles_of_blocks(stage, {.shape = {1, 2, 2, 1, keys - Bc, 64}}) == std::vector<Count>(2, 383));
    CHECK(tiles_of_blocks(stage, {.shape = {1, 2, 2, 1, keys, 64}}) == std::vector<Count>(3, 256));
}

}  // namespace

TEST_CASE("claims: 00 keeps N x N matrices", "[claims]") {
    check_claims(0);
    // Twice the length: four times the workspace of 00, twice that of 01.
    const Case once{.shape = {1, 1, 1, 128, 128, 64}}, twice{.shape = {1, 1, 1, 256, 256, 64}};
    CHECK(work_of(0, twice).workspace_bytes == 4 * work_of(0, once).workspace_bytes);
    CHECK(work_of(1, twice).workspace_bytes == 2 * work_of(1, once).workspace_bytes);
}

TEST_CASE("claims: 01 passes O, m and l through global memory at every key tile", "[claims]") {
    check_claims(1);
}

TEST_CASE("claims: 02 divides once per row instead of once per row and key tile", "[claims]") {
    check_claims(2);
}

TEST_CASE("claims: 03 has a block per query tile, and writes O once, in 16 bits", "[claims]") {
    check_claims(3);
}

TEST_CASE("claims: 04 exchanges nothing between warps", "[claims]") {
    check_claims(4);
}

TEST_CASE("claims: 05 visits the tiles under the diagonal and masks those on it", "[claims]") {
    check_claims(5);
    // The closed form, where tiles divide the lengths: (Tr + 1) / 2 of Tr tiles per query tile.
    const Case square{.shape = {1, 1, 1, 512, 512, 64}, .causal = true};
    CHECK(counted(5, square).tiles == 8 * 9 / 2);
    CHECK(counted(5, square).masked_tiles == 8);
}

TEST_CASE("claims: 06 splits the keys across blocks where query tiles do not fill the device", "[claims]") {
    check_claims(6);
    // One query row, many keys: the problem that the stage is for.
    const Case decode{.shape = {1, 1, 1, 1, 1024, 64}};
    CHECK(counted(5, decode).blocks == 1);
    CHECK(counted(6, decode).blocks == 16 + 1);
}

TEST_CASE("claims: 07 reads K and V once for all query heads of a group", "[claims]") {
    check_claims(7);
}

TEST_CASE("claims: 08 divides the keys of 16 rows among warps that merge once", "[claims]") {
    check_claims(8);
}

TEST_CASE("claims: 09 waits with later tiles in flight, and computes behind them", "[claims]") {
    check_claims(9);
}

TEST_CASE("claims: 10 has a block per multiprocessor, and merges 32 parts at once", "[claims]") {
    check_claims(10);
}

TEST_CASE("claims: 20 launches one kernel, in which each block of a split row counts itself", "[claims]") {
    check_claims(20);
    // The same sums in the same order: not a bit of the result moves, whoever comes last.
    const auto device = open_device(Backend::cpu);
    for (const Case& c : claim_cases(20)) {
        INFO(c.description());
        const Inputs inputs = make_inputs(c);
        const Outputs expected = run_stage(*device, *find_stage(10), c, inputs);
        const Outputs got = run_stage(*device, *find_stage(20), c, inputs);
        CHECK(got.O == expected.O);
        CHECK(got.L == expected.L);
    }
}

TEST_CASE("claims: 23 copies each line of 128 bytes as one", "[claims]") {
    check_claims(23);
    // Q has one row, K and V 64 each, a row is one line; 7 rows of 8 of K and V lay in two.
    const Case decode{.shape = {1, 1, 1, 1, 64, 64}};
    CHECK(counted(20, decode).copied_lines == 1 + 2 * (64 + 56));
    CHECK(counted(23, decode).copied_lines == 1 + 2 * 64);
}

TEST_CASE("claims: 24 has all warps merge, and asks for O of the parts together with L", "[claims]") {
    check_claims(24);
}

TEST_CASE("claims: 25 gives each block an even share of the key tiles", "[claims]") {
    check_claims(25);
    // 27 query tiles of 16 key tiles on 24 places: a whole one for each, and 3 * 16 / 24 = 2 key tiles more.
    const Case crowd{.shape = {27, 1, 1, 1, 1024, 64}};
    CHECK(tiles_of_blocks(25, crowd) == std::vector<Count>(24, 18));
    // Parts of the same query tile on 8 places, as before
    const Case decode{.shape = {1, 2, 2, 1, 1024, 64}};
    CHECK(tiles_of_blocks(25, decode) == tiles_of_blocks(24, decode));
    check_long_shares(25, 64);
}

TEST_CASE("claims: 26 has one block per multiprocessor, and tiles of 128 keys", "[claims]") {
    check_claims(26);
    const Case crowd{.shape = {27, 1, 1, 1, 1024, 64}};
    CHECK(tiles_of_blocks(26, crowd) == std::vector<Count>(8, 27));
    check_long_shares(26, 128);
}

TEST_CASE("claims: 27 says of K and V that they are read once", "[claims]") {
    check_claims(27);
    const Case decode{.shape = {1, 4, 2, 1, 64, 64}};
    CHECK(counted(26, decode).evict_first_bytes == 0);
    CHECK(counted(27, decode).evict_first_bytes == 2 * 2 * 64 * 64 * 2);
    check_long_shares(27, 128);
}

TEST_CASE("the ends of 24 to 27 are right for any number of parts and whatever is left over", "[claims]") {
    check_on_any_device(
        {24, 25, 26, 27},
        {{11, 1, 1, 1, 70, 64}, {17, 2, 1, 1, 500, 64}, {1, 2, 1, 1, 5000, 64}, {1, 4, 2, 40, 333, 64}});
}

TEST_CASE("claims: 11 reads a fragment of K or V once for 32 rows", "[claims]") {
    check_claims(11);
    // The ratio that the stage is for: at d = 128, 72 ldmatrix for 128 mma become 80 for 256.
    const Case square{.shape = {1, 1, 1, 256, 256, 128}};
    const simt::Counters parent = counted(5, square), child = counted(11, square);
    CHECK(parent.ldmatrix * 128 == parent.mma * 72);
    CHECK(child.ldmatrix * 256 == child.mma * 80);
    // Under a mask, whole tiles of 128 rows reach further beyond the diagonal: Tr (Tr + 1) of 128 x 64.
    const Case masked{.shape = {1, 1, 1, 512, 512, 64}, .causal = true};
    CHECK(counted(5, masked).mma == 8 * 9 / 2 * 4 * 64);
    CHECK(counted(11, masked).mma == 4 * 5 * 2 * 4 * 64);
}

TEST_CASE("claims: 12 computes all but the last P V with copies in flight", "[claims]") {
    check_claims(12);
}

TEST_CASE("claims: 13 adds up l once, by four shuffles per slice at the end", "[claims]") {
    check_claims(13);
}

TEST_CASE("claims: 14 shuffles and rescales where the maximum rises by much, and else votes", "[claims]") {
    check_claims(14);
}

TEST_CASE("claims: 15 passes O through shared memory once, inside a warp", "[claims]") {
    check_claims(15);
}

TEST_CASE("claims: 16 does the same work, and starts the longest blocks of many heads first", "[claims]") {
    check_claims(16);
    // Four query tiles, of 2, 4, 6 and 8 key tiles, for each of five heads, which start in a group of eight.
    const Case c{.shape = {2, 5, 5, 512, 512, 64}, .causal = true};
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
    CHECK(tiles_of_blocks(15, c) == head_by_head);
    CHECK(tiles_of_blocks(16, c) == longest_first);
    CHECK(claimed_tiles_of_blocks(16, c, multiprocessors()) == longest_first);
    // What that is for: 8 multiprocessors have 16 places. 320 tiles of 16 heads are 20 for each, and none
    // idles at the end. 10 heads would be 12.5.
    const Case full_groups{.shape = {2, 8, 8, 512, 512, 64}, .causal = true};
    CHECK(list_schedule(tiles_of_blocks(15, full_groups), 16).end == 24);
    CHECK(list_schedule(tiles_of_blocks(16, full_groups), 16).end == 20);
    CHECK(list_schedule(head_by_head, 16).end == 18);
    CHECK(list_schedule(longest_first, 16).end == 14);
    // Without a mask all blocks are alike, and start as in the parent.
    const Case unmasked{.shape = {2, 5, 5, 512, 512, 64}};
    CHECK(tiles_of_blocks(16, unmasked) == std::vector<Count>(40, 8));
    CHECK(claimed_tiles_of_blocks(16, unmasked, multiprocessors()).empty());
}

TEST_CASE("claims: 17 has half the tiles at d = 64, and neither branch nor vote where they cost more",
          "[claims]") {
    check_claims(17);
}

TEST_CASE("claims: 18 has one barrier per block, and otherwise arrivals and waits of its own", "[claims]") {
    check_claims(18);
}

TEST_CASE("claims: 19 rescales at d = 256 where the maximum rises by much, and else votes", "[claims]") {
    check_claims(19);
    // Five tiles of keys: all of them rescaled in 18, the first, third and fifth in 19.
    const Case rising{.shape = {1, 1, 1, 128, 320, 256}, .input = "rising"};
    CHECK(counted(18, rising).shuffles == (5 + 1) * 8 * 2 * 2);
    CHECK(counted(19, rising).shuffles == (3 + 1) * 8 * 2 * 2);
}

TEST_CASE("claims: 21 has warps that skip the tiles of which none of their rows sees a key", "[claims]") {
    check_claims(21);
    // 512 rows and keys: of the 2, 4, 6 and 8 tiles of a block, half of its eight warps skip the last. That
    // is a tenth.
    const Case square{.shape = {1, 1, 1, 512, 512, 256}, .causal = true};
    CHECK(counted(19, square).mma == 20 * 8 * 256);
    CHECK(counted(21, square).mma == 18 * 8 * 256);
}

TEST_CASE("claims: 22 has tiles of 64 keys", "[claims]") {
    check_claims(22);
    // Where 64 keys divide the length and 128 do not, that is also fewer products: 9 tiles of 64, 5 of 128.
    const Case square{.shape = {1, 1, 1, 512, 512, 64}}, ragged{.shape = {1, 1, 1, 512, 576, 64}};
    CHECK(counted(17, square).mma == counted(22, square).mma);
    CHECK(counted(17, ragged).mma * 9 == counted(22, ragged).mma * 10);
}

TEST_CASE("claims: 28 has no more blocks than fit that each take the next query tile in line", "[claims]") {
    check_claims(28);
    const Case crowd{.shape = {1, 4, 4, 256, 256, 256}}, masked{.shape = crowd.shape, .causal = true};
    using Line = std::vector<std::pair<int, int>>;
    CHECK(line(28, crowd) == Line{{0, 1}, {0, 0}, {1, 1}, {1, 0}, {2, 1}, {2, 0}, {3, 1}, {3, 0}});
    // Two groups of two heads, each of which has at least three query tiles for one multiprocessor.
    CHECK(line(28, masked) == Line{{0, 1}, {1, 1}, {0, 0}, {1, 0}, {2, 1}, {3, 1}, {2, 0}, {3, 0}});
    CHECK(line(29, masked) == line(28, masked));
}

TEST_CASE("claims: 29 waits for nobody between query tiles", "[claims]") {
    check_claims(29);
}

TEST_CASE("28 and 29 are right for any number of blocks and whatever is in line", "[claims]") {
    check_on_any_device(
        {28, 29},
        {{3, 2, 1, 1, 40, 256}, {1, 5, 5, 150, 200, 256}, {2, 2, 1, 129, 129, 256}, {1, 3, 3, 300, 64, 256}});
}

TEST_CASE("claims: every stage has some", "[claims]") {
    for (const Stage& stage : stages()) {
        INFO(stage.folder());
        REQUIRE(!claim_cases(stage.number).empty());
        const Case c = claim_cases(stage.number).front();
        CHECK(claims(stage.number, c, multiprocessors(), {}, {}).size() > 2);
    }
}

TEST_CASE("claims: counts do not depend on the order of threads or on the number of workers", "[claims]") {
    // That the numbers are exact is what makes them claims.
    const Case c{.shape = {1, 2, 1, 100, 197, 64}, .causal = true};
    for (const Stage& stage : stages()) {
        const simt::Counters expected = counted(stage.number, c);
        for (const auto order : {simt::Order::reversed, simt::Order::shuffled}) {
            const simt::KeptOptions kept;
            simt::options() = {.order = order, .seed = 3, .workers = 3};
            CHECK(counted(stage.number, c) == expected);
        }
    }
}

TEST_CASE("claims: sm_75's instructions give the same results and counts", "[claims]") {
    for (const Stage& stage : stages()) {
        const Case c{.shape = {1, 2, 1, 100, 197, 64}, .causal = true};
        const auto device = open_device(Backend::checked);
        const simt::KeptOptions kept;
        const Outputs on_80 = run_stage(*device, stage, c, make_inputs(c));
        const simt::Counters counted = device->counters();
        simt::options().compute_capability = 75;
        if (counted.mbarrier_waits > 0) {  // there are none there
            CHECK_THROWS_AS(run_stage(*device, stage, c, make_inputs(c)), CannotRun);
            continue;
        }
        const Outputs on_75 = run_stage(*device, stage, c, make_inputs(c));
        CHECK(on_75.O == on_80.O);  // two m16n8k8 in sequence add up in the order of one m16n8k16
        CHECK(device->counters() == counted);
        const Case bf16{.shape = c.shape, .dtype = DType::bf16};
        CHECK_THROWS_AS(run_stage(*device, stage, bf16, make_inputs(bf16)), CannotRun);
    }
}

#endif
