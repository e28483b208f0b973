/// @file
/// Every stage is held to its claims on counted work (harness/count/claims.h), and what they say of a few
/// problems is worked out by hand.
#ifdef LADDER_HAS_CPU

#    include <algorithm>
#    include <map>
#    include <mutex>
#    include <numeric>
#    include <set>
#    include <string>
#    include <utility>

#    include "harness/count/claims.h"
#    include "harness/count/counting.h"
#    include "harness/ladder/ladder.h"
#    include "harness/trace/schedule.h"
#    include "harness/verify/guarded_run.h"
#    include "harness/verify/one_case.h"
#    include "harness/verify/report.h"
#    include "simt/simt.h"
#    include "tests/any_stage.h"
#    include "tests/catch.h"

using namespace ladder;
using ladder::test::named;
using Count = std::uint64_t;

namespace {

/// What a stage did on one problem, and the key tiles that each block visited, by the block's number.
struct Counts {
    Work work;
    std::vector<Count> tiles_of_blocks;
};

/// Those of a problem, which most stages have in common.
const Inputs& inputs_of(const Case& c) {
    static std::map<std::string, Inputs> known;
    const auto [place, is_new] = known.try_emplace(description_of(c));
    if (is_new) place->second = make_inputs(c);
    return place->second;
}

/// Runs a stage as simt::options() say.
Counts count(const Stage& stage, const Case& c, Backend backend = Backend::cpu) {
    const simt::KeptOptions kept;
    Counts counts;
    std::mutex mutex;
    simt::options().on_block = [&](Count number, const simt::Counters& work) {
        const std::lock_guard lock(mutex);
        auto& tiles = counts.tiles_of_blocks;
        tiles.resize(std::max<std::size_t>(tiles.size(), number + 1));
        tiles[number] += work.tiles;
    };
    const auto device = open_device(backend);
    counts.work = count_work(*device, stage, c, inputs_of(c));
    return counts;
}

/// The same with the options as they are by default: each stage once on each problem, since a parent has
/// children.
const Counts& counted(const Stage& stage, const Case& c) {
    static std::map<std::pair<int, std::string>, Counts> known;
    const std::pair key(stage.number, description_of(c));
    const auto found = known.find(key);
    return found != known.end() ? found->second : known.emplace(key, count(stage, c)).first->second;
}

simt::Counters counters(const std::string& stage, const Case& c) {
    return counted(named(stage), c).work.counters;
}

std::vector<Count> tiles_of_blocks(const std::string& stage, const Case& c) {
    return counted(named(stage), c).tiles_of_blocks;
}

int multiprocessors() {
    return open_device(Backend::checked)->sm_count();
}

/// Holds a stage to its claims on all their problems. They would be worth nothing if its parent met them too,
/// but where all else stays and the change is a head dimension that the parent has not.
void check_claims(const Stage& stage) {
    const Stage* parent = find_stage(stage.parent);
    bool parent_meets_them = parent != nullptr, new_head_dim = false, all_stay = true;
    std::set<std::pair<int, bool>> audited;
    for (const Case& c : claim_cases(stage.folder())) {
        INFO(stage.folder() << " " << description_of(c));
        const Counts child = counted(stage, c), before = parent == nullptr ? Counts() : counted(*parent, c);
        CHECK(child.work.why_not.empty());
        // The checked back-end counts the same, and audits it: what bypasses the counters is in
        // bypassed_bytes.
        if (audited.emplace(c.shape.d, c.causal).second)
            CHECK(count(stage, c, Backend::checked).work == child.work);
        // A parent may compute attention, and the stage its gradients.
        const bool incomparable =
            parent != nullptr && (!parent->has_head_dim(c.shape.d) || parent->pass != stage.pass ||
                                  !why_not_taken(*parent, c).empty());
        CHECK(before.work.why_not.empty() != incomparable);
        for (const Claim& claim : claims(stage.folder(), c, multiprocessors(), before.work, child.work)) {
            INFO((claim.of_parent ? "the parent's " : "") << claim.counter << (claim.stays ? " stays" : ""));
            CHECK(claim.got == claim.expected);
            all_stay = all_stay && (incomparable || claim.stays || claim.expected == 0);
        }
        new_head_dim = new_head_dim || (parent != nullptr && !parent->has_head_dim(c.shape.d));
        const auto order = claimed_tiles_of_blocks(stage.folder(), c, multiprocessors());
        if (!order.empty()) {
            CHECK(child.tiles_of_blocks == order);
            CHECK(before.tiles_of_blocks != order);
            parent_meets_them = false;
        }
        // Nor does a parent that refuses the problem meet what is claimed of it.
        if (parent != nullptr && (parent->pass != stage.pass || !why_not_taken(*parent, c).empty()))
            parent_meets_them = false;
        if (incomparable) continue;
        for (const Claim& claim : claims(stage.folder(), c, multiprocessors(), before.work, before.work))
            parent_meets_them = parent_meets_them && claim.holds();
    }
    CHECK((!parent_meets_them || (new_head_dim && all_stay)));
}

/// Verifies stages on devices of few and of many multiprocessors, with and without a mask.
void check_on_any_device(const std::vector<std::string>& stages, const std::vector<Shape>& shapes) {
    const simt::KeptOptions kept;
    const auto device = open_device(Backend::checked);
    for (const Shape& shape : shapes) {
        for (const bool causal : {false, true}) {
            Reference reference({.shape = shape, .causal = causal, .input = "rising"});
            for (const int multiprocessors : {1, 2, 3, 5, 7, 40}) {
                simt::options().multiprocessors = multiprocessors;
                for (const std::string& stage : stages) {
                    INFO(stage << " on " << multiprocessors << ": " << description_of(reference.problem));
                    const Verdict verdict = verify(*device, named(stage), reference);
                    INFO(verdict.report);
                    CHECK(verdict.passed);
                }
            }
        }
    }
}

/// Few query tiles, of key tiles of Bc keys, get as many blocks each, unless shares for all multiprocessors
/// are long: 16 tiles where an eighth of the multiprocessors would idle, or else 256.
void check_long_shares(const std::string& stage, int Bc) {
    const simt::KeptOptions kept;
    const auto tiles = [&](int multiprocessors, int query_tiles, int key_tiles) {
        simt::options().multiprocessors = multiprocessors;
        return count(named(stage), {.shape = {query_tiles, 1, 1, 1, Bc * key_tiles, 64}}).tiles_of_blocks;
    };
    CHECK(tiles(3, 2, 23) == std::vector<Count>(2, 23));
    CHECK(tiles(3, 2, 24) == std::vector<Count>(3, 16));
    CHECK(tiles(8, 7, 292) == std::vector<Count>(7, 292));
    CHECK(tiles(8, 7, 293) == std::vector<Count>{256, 256, 257, 256, 256, 257, 256, 257});
}

}  // namespace

TEST_CASE("claims: the algorithm's stages do the work that they claim, and their parents do not",
          "[claims]") {
    for (const Stage& stage : stages()) {
        if (is_core(stage)) check_claims(stage);
    }
}

TEST_CASE("claims: every later stage does the work that it claims, and its parent does not",
          "[claims][ladder]") {
    for (const Stage& stage : stages()) {
        if (!is_core(stage)) check_claims(stage);
    }
}

TEST_CASE("claims: scalar reads each tile from shared memory once for each row", "[claims]") {
    // One tile of 64 rows and 32 keys. Written: 64 rows of Q and 32 of K and of V, 128 bytes each. A row
    // reads itself, 32 rows of K and 32 of V, and writes and reads 32 numbers of P.
    const simt::Counters one = counters("scalar", {.shape = {1, 1, 1, 64, 32, 64}});
    CHECK(one.shared_exchange_bytes == 128 * (64 + 32 + 32) + 64 * (128 * (1 + 32 + 32) + 2 * 32 * 4));
    CHECK(one.exponentials == 64 * (32 + 1));
    CHECK(one.mma + one.ldmatrix + one.shuffles == 0);
    // One row more: another block, of which one thread computes.
    const simt::Counters more = counters("scalar", {.shape = {1, 1, 1, 65, 32, 64}});
    CHECK(more.exponentials == 65 * (32 + 1));
    CHECK(more.barriers == 2 * one.barriers);
}

TEST_CASE("claims: a stage that is not batch-invariant divides its work otherwise where a request is alone",
          "[claims][ladder]") {
    const auto device = open_device(Backend::cpu);
    for (Stage stage : stages()) {
        if (stage.batch_invariant || stage.chunks > 0) continue;
        CAPTURE(stage.folder());
        stage.batch_invariant = true;
        const bool forward = stage.pass == Pass::forward;
        const Shape shape = forward ? Shape{3, 4, 2, 1, 3000, 64} : Shape{2, 8, 1, 200, 64, 128};
        const Verdict verdict = verify(*device, stage, Case{.shape = shape});
        CHECK(verdict.report.find("being alone and not last of its batch") != std::string::npos);
    }
}

TEST_CASE("claims: naive keeps N x N matrices", "[claims]") {
    // Twice the length: four times the workspace, and twice that of the child, which keeps O, m and l.
    const Case once{.shape = {1, 1, 1, 128, 128, 64}}, twice{.shape = {1, 1, 1, 256, 256, 64}};
    CHECK(counted(named("naive"), twice).work.workspace_bytes ==
          4 * counted(named("naive"), once).work.workspace_bytes);
    CHECK(counted(named("flash_attention_1"), twice).work.workspace_bytes ==
          2 * counted(named("flash_attention_1"), once).work.workspace_bytes);
}

TEST_CASE("claims: causal skip visits the tiles under the diagonal and masks those on it", "[claims]") {
    // The closed form, where tiles divide the lengths: (Tr + 1) / 2 of Tr tiles per query tile.
    const Case square{.shape = {1, 1, 1, 512, 512, 64}, .causal = true};
    CHECK(counters("causal_skip", square).tiles == 8 * 9 / 2);
    CHECK(counters("causal_skip", square).masked_tiles == 8);
}

TEST_CASE("claims: flash decoding splits the keys across blocks where query tiles do not fill the device",
          "[claims]") {
    // One query row, many keys: the problem that the stage is for.
    const Case decode{.shape = {1, 1, 1, 1, 1024, 64}};
    CHECK(counters("causal_skip", decode).blocks == 1);
    CHECK(counters("flash_decoding", decode).blocks == 16 + 1);
}

TEST_CASE("claims: one launch launches one kernel, in which each block of a split row counts itself",
          "[claims][ladder]") {
    // The same sums in the same order: not a bit of the result moves, whoever comes last.
    const auto device = open_device(Backend::cpu);
    for (const Case& c : claim_cases(named("one_launch").folder())) {
        INFO(description_of(c));
        const Inputs inputs = make_inputs(c);
        const Outputs expected = run_stage(*device, named("pipelined_copies"), c, inputs);
        const Outputs got = run_stage(*device, named("one_launch"), c, inputs);
        CHECK(got.O == expected.O);
        CHECK(got.L == expected.L);
    }
}

TEST_CASE("claims: swizzle copies each line of 128 bytes as one", "[claims][ladder]") {
    // Q has one row, K and V 64 each, a row is one line; 7 rows of 8 of K and V lay in two.
    const Case decode{.shape = {1, 1, 1, 1, 64, 64}};
    CHECK(counters("one_launch", decode).copied_lines == 1 + 2 * (64 + 56));
    CHECK(counters("swizzle", decode).copied_lines == 1 + 2 * 64);
}

TEST_CASE("claims: stream-K gives each block an even share of the key tiles", "[claims][ladder]") {
    // 27 query tiles of 16 key tiles on 24 places: a whole one for each, and 3 * 16 / 24 = 2 key tiles more.
    const Case crowd{.shape = {27, 1, 1, 1, 1024, 64}};
    CHECK(tiles_of_blocks("stream_k", crowd) == std::vector<Count>(24, 18));
    // Parts of the same query tile on 8 places, as before
    const Case decode{.shape = {1, 2, 2, 1, 1024, 64}};
    CHECK(tiles_of_blocks("stream_k", decode) == tiles_of_blocks("swizzle", decode));
    check_long_shares("stream_k", 64);
}

TEST_CASE("claims: full ring has one block per multiprocessor, and tiles of 128 keys that are read once",
          "[claims][ladder]") {
    const Case crowd{.shape = {27, 1, 1, 1, 1024, 64}};
    CHECK(tiles_of_blocks("full_ring", crowd) == std::vector<Count>(8, 27));
    check_long_shares("full_ring", 128);
    const Case decode{.shape = {1, 4, 2, 1, 64, 64}};
    CHECK(counters("stream_k", decode).evict_first_bytes == 0);
    CHECK(counters("full_ring", decode).evict_first_bytes == 2 * 2 * 64 * 64 * 2);
}

TEST_CASE("claims: ends are right for any number of parts and whatever is left over", "[claims][ladder]") {
    check_on_any_device(
        {"pipelined_copies", "swizzle", "stream_k", "full_ring"},
        {{11, 1, 1, 1, 70, 64}, {17, 2, 1, 1, 500, 64}, {1, 2, 1, 1, 5000, 64}, {1, 4, 2, 40, 333, 64}});
}

TEST_CASE("claims: packed rows read K and V once for a group, and split keys gives every block an even share",
          "[claims][ladder]") {
    // A draft of 4 tokens of 8 heads over 2: 16 packed rows of each K and V, which have 16 key tiles of 128.
    const Case draft{.shape = {1, 8, 2, 4, 2048, 64}};
    const Count KV_bytes = 2 * 2048 * 64 * 2, Q_bytes = 8 * 4 * 64 * 2;
    CHECK(counters("own_diagonal", draft).global_load_bytes == 8 * KV_bytes + Q_bytes);
    CHECK(counters("packed_rows", draft).global_load_bytes == 2 * KV_bytes + Q_bytes);
    CHECK(tiles_of_blocks("packed_rows", draft) == std::vector<Count>(2, 16));
    std::vector<Count> tiles = tiles_of_blocks("split_keys", draft);
    tiles.resize(8);  // without the blocks of the merge
    CHECK(tiles == std::vector<Count>(8, 4));
    // 3 query tiles of 47: 6 blocks of 8 would not be even.
    std::vector<Count> of_three = tiles_of_blocks("split_keys", {.shape = {3, 1, 1, 2, 6000, 64}});
    of_three.resize(8);
    CHECK(of_three == std::vector<Count>{17, 18, 17, 18, 18, 17, 18, 18});
    // 15 on 8: the 7 of the last wave keep most of the blocks busy, and 6 of 14 do not.
    const Case full_wave{.shape = {15, 1, 1, 1, 200, 64}}, part_of_one{.shape = {14, 1, 1, 1, 200, 64}};
    CHECK(tiles_of_blocks("split_keys", full_wave) == std::vector<Count>{4, 4, 4, 4, 4, 4, 4, 2});
    CHECK(counted(named("split_keys"), full_wave).work.workspace_bytes == 0);
    CHECK(counted(named("split_keys"), part_of_one).work.workspace_bytes == 2 * 8 * 192 * (64 + 2) * 4);
    check_on_any_device({"packed_rows", "split_keys"}, {{11, 2, 1, 2, 300, 64}, {1, 8, 1, 16, 900, 128}});
}

TEST_CASE("claims: wide warps reads a fragment of K or V once for 32 rows", "[claims][ladder]") {
    // The ratio that the stage is for: at d = 128, 72 ldmatrix for 128 mma become 80 for 256.
    const Case square{.shape = {1, 1, 1, 256, 256, 128}};
    const simt::Counters parent = counters("causal_skip", square), child = counters("wide_warps", square);
    CHECK(parent.ldmatrix * 128 == parent.mma * 72);
    CHECK(child.ldmatrix * 256 == child.mma * 80);
    // Under a mask, whole tiles of 128 rows reach further beyond the diagonal: Tr (Tr + 1) / 2 of 128 x 128.
    const Case masked{.shape = {1, 1, 1, 512, 512, 64}, .causal = true};
    CHECK(counters("causal_skip", masked).mma == 8 * 9 / 2 * 4 * 64);
    CHECK(counters("wide_warps", masked).mma == 4 * 5 / 2 * 4 * 4 * 64);
}

TEST_CASE("claims: longest first does the same work, and starts the longest blocks of many heads first",
          "[claims][ladder]") {
    // Four query tiles, of 2, 4, 6 and 8 key tiles, for each of five heads, which start in a group of eight.
    const Case c{.shape = {2, 5, 5, 512, 512, 128}, .causal = true};
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
    CHECK(tiles_of_blocks("staged_output", c) == head_by_head);
    CHECK(tiles_of_blocks("longest_first", c) == longest_first);
    CHECK(claimed_tiles_of_blocks(named("longest_first").folder(), c, multiprocessors()) == longest_first);
    // What that is for: 8 multiprocessors have 16 places. 320 tiles of 16 heads are 20 for each, and none
    // idles at the end. 10 heads would be 12.5.
    const Case full_groups{.shape = {2, 8, 8, 512, 512, 128}, .causal = true};
    CHECK(list_schedule(tiles_of_blocks("staged_output", full_groups), 16).end == 24);
    CHECK(list_schedule(tiles_of_blocks("longest_first", full_groups), 16).end == 20);
    CHECK(list_schedule(head_by_head, 16).end == 18);
    CHECK(list_schedule(longest_first, 16).end == 14);
    // Without a mask all blocks are alike, and start as in the parent.
    const Case unmasked{.shape = {2, 5, 5, 512, 512, 128}};
    CHECK(tiles_of_blocks("longest_first", unmasked) == std::vector<Count>(40, 8));
    CHECK(claimed_tiles_of_blocks(named("longest_first").folder(), unmasked, multiprocessors()).empty());
}

TEST_CASE("claims: lazy rescale votes, and rescales where the maximum rises by much", "[claims][ladder]") {
    // Five tiles of keys, of which the first, third and fifth are rescaled: a vote each, and six shuffles for
    // each slice that rescales; two per row add l up at the end.
    const Case rising{.shape = {1, 1, 1, 64, 320, 256}, .input = "rising"};
    const simt::Counters parent = counters("async_copies", rising), child = counters("lazy_rescale", rising);
    CHECK(parent.shuffles == 5 * 4 * 2 * 4);
    CHECK(child.shuffles == (3 + 1) * 4 * 2 * 2);
}

TEST_CASE("claims: the gradients take five products, seven without a sum across blocks, and five again",
          "[claims][ladder]") {
    // 6 query tiles and 6 key tiles of 64 x 64 x 128, which are 2 * 128 mma.
    const Case square{.shape = {1, 1, 1, 384, 384, 128}, .pass = Pass::backward};
    CHECK(counters("standard_gradient", square).mma == 36 * 5 * 256);
    CHECK(counters("recompute", square).mma == 36 * 7 * 256);
    CHECK(counters("dq_fragments", square).mma == 36 * 5 * 256);
    CHECK(counters("dq_fragments", square).atomics == 36 * 64 * 128 / 4);
    CHECK(counters("dq_fragments", square).exponentials == 384 * 384);
    // P, dP and dS of all scores; L and D of all rows; dQ, L and D of all rows.
    CHECK(counted(named("standard_gradient"), square).work.workspace_bytes == 384 * 384 * 8);
    CHECK(counted(named("recompute"), square).work.workspace_bytes == 384 * 2 * 4);
    CHECK(counted(named("dq_fragments"), square).work.workspace_bytes == 384 * (128 + 2) * 4);
    // Under a mask 21 tiles of 36 are seen, 6 of them masked. Both kernels of 41 visit them.
    const Case masked{.shape = square.shape, .pass = Pass::backward, .causal = true};
    CHECK(counters("standard_gradient", masked).mma == 36 * 5 * 256);
    CHECK(counters("recompute", masked).mma == 21 * 7 * 256);
    CHECK(counters("recompute", masked).masked_tiles == 2 * 6);
    CHECK(counters("dq_fragments", masked).mma == 21 * 5 * 256);
}

TEST_CASE("claims: one gradient reads a fragment of Q or dO once for all keys of a warp",
          "[claims][ladder]") {
    // The ratio that the stage is for: at d = 128, 0.55 ldmatrix for each mma become 0.35. A tile has 64 x 64
    // scores in the parent, and 64 x 128 in the stage.
    const Case square{.shape = {1, 1, 1, 256, 256, 128}, .pass = Pass::backward};
    const simt::Counters parent = counters("dq_fragments", square), child = counters("one_gradient", square);
    CHECK(parent.mma == 16 * 1280);
    CHECK(parent.ldmatrix * 1280 == parent.mma * 704);
    CHECK(child.mma == 8 * 2560);
    CHECK(child.ldmatrix * 2560 == child.mma * 896);
}

TEST_CASE("claims: persistent gradients has a block per multiprocessor, and its blocks take each part once",
          "[claims][ladder]") {
    // 12 key tiles of one query tile each, for two warpgroups, on 8 multiprocessors
    const Case many{.shape = {1, 12, 12, 128, 128, 64}, .pass = Pass::backward};
    const auto at_work = [](const std::vector<Count>& tiles) {
        return std::count_if(tiles.begin(), tiles.end(), [](Count n) { return n > 0; });
    };
    const auto before = tiles_of_blocks("split_queries", many),
               tiles = tiles_of_blocks("persistent_gradients", many);
    CHECK((multiprocessors() == 8 && at_work(before) == 12 && at_work(tiles) == 8));
    CHECK(std::accumulate(tiles.begin(), tiles.end(), Count{0}) == 12 * 2);
    CHECK(counters("persistent_gradients", many).atomics == 12);
    // With as many as there are multiprocessors each block takes one, in the parent's order.
    const Case few{.shape = {1, 2, 2, 512, 512, 64}, .pass = Pass::backward, .causal = true};
    CHECK(tiles_of_blocks("persistent_gradients", few) == tiles_of_blocks("split_queries", few));
    CHECK(counters("persistent_gradients", few).atomics == 8);
}

TEST_CASE("claims: every stage has some, and every claims.cpp has a stage", "[claims][ladder]") {
    std::vector<std::string> folders;
    for (const Stage& stage : stages()) {
        INFO(stage.folder());
        folders.push_back(stage.folder());
        REQUIRE(!claim_cases(stage.folder()).empty());
        const Case c = claim_cases(stage.folder()).front();
        CHECK(claims(stage.folder(), c, multiprocessors(), {}, {}).size() > 2);
    }
    std::ranges::sort(folders);
    CHECK(folders_with_claims() == folders);
    CHECK_THROWS_AS(claim_cases("no_such_stage"), CannotRun);
    CHECK_THROWS_AS(register_claims("claims.cpp", {}), std::logic_error);  // in which folder?
}

TEST_CASE("claims: counts depend neither on the order of threads nor on workers nor on sm_75's instructions",
          "[claims][ladder]") {
    // That the numbers are exact is what makes them claims.
    for (const Stage& stage : stages()) {
        INFO(stage.folder());
        const Case c{
            .shape = {1, 2, 1, 100, 197, stage.head_dims.front()}, .pass = stage.pass, .causal = true};
        const auto device = open_device(Backend::checked);
        const Outputs on_80 = run_stage(*device, stage, c, make_inputs(c));
        const simt::Counters expected = device->counters();
        const simt::KeptOptions kept;
        for (const auto order : {simt::Order::reversed, simt::Order::shuffled}) {
            simt::options() = {.order = order, .seed = 3, .workers = 3};
            CHECK(count(stage, c).work.counters == expected);
        }
        simt::options() = {.compute_capability = 75};
        if (expected.mbarrier_waits > 0) {  // there are none there
            CHECK_THROWS_AS(run_stage(*device, stage, c, make_inputs(c)), CannotRun);
            continue;
        }
        const Outputs on_75 = run_stage(*device, stage, c, make_inputs(c));
        if (stage.repeats_exactly)  // two m16n8k8 in sequence add up in the order of one m16n8k16
            CHECK(report_difference(c, on_80, on_75, "sm_75") == "");
        CHECK(device->counters() == expected);
        const Case bf16{.shape = c.shape, .pass = stage.pass, .dtype = DType::bf16};
        CHECK_THROWS_AS(run_stage(*device, stage, bf16, make_inputs(bf16)), CannotRun);
    }
}

#endif
