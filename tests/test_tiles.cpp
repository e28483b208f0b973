/// @file
/// Lists of tiles: which mask they are, and who refuses them.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/features/features.h"
#include "harness/features/patterns.h"
#include "harness/features/tiles.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "stages/errors.h"
#include "tests/any_stage.h"
#include "tests/catch.h"

using namespace ladder;

namespace {

Case drawn(const std::string& tiles, std::uint64_t seed = 1, int Nq = 150, int Nk = 330) {
    Case c{.shape = {.B = 2, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = Nk, .d = 64}, .seed = seed};
    c.features.tiles = tiles;
    return c;
}

/// Whether the lists of a problem show a key to a row, as a kernel reads them.
bool lists_show(const Case& c, const TileLists& lists, int b, int h, int row, int key) {
    const int Tr = (c.shape.Nq + 63) / 64;
    const int r = (b % lists.batches * lists.heads + h / (c.shape.H / lists.heads)) * Tr + row / 64;
    const auto place = [&](const TileList& list) {
        const int* end = list.tiles + list.first[r + 1];
        const int* found = std::find(list.tiles + list.first[r], end, key / 64);
        return found == end ? -1 : static_cast<int>(found - list.tiles);
    };
    if (place(lists.full) >= 0) return true;
    const int k = place(lists.partial);
    return k >= 0 && lists.bits[k * 64 + row % 64] >> key % 64 & 1;
}

}  // namespace

TEST_CASE("tiles: lists show what the mask of the reference shows, and scores are counted alike") {
    for (const TilePattern& pattern : tile_patterns()) {
        for (const std::uint64_t seed : {1, 2}) {
            const Case c = drawn(pattern.name, seed);
            INFO(description_of(c));
            const std::vector<int> memory = make_tile_lists(c);
            const TileLists lists = tile_lists(c, memory.data());
            CHECK(lists.heads == heads_with_masks(pattern.mask_of, c.shape));
            CHECK(lists.batches == (pattern.mask_of == MaskOf::all_heads ? 1 : 2));
            double scores = 0;
            int wrong = 0;
            for (int head = 0; head < 8; ++head) {
                const reference::Mask mask = mask_of(c, head / 4, head % 4);
                for (int row = 0; row < c.shape.Nq; ++row) {
                    scores += mask.visible(row);
                    for (int key = 0; key < c.shape.Nk; ++key)
                        wrong += lists_show(c, lists, head / 4, head % 4, row, key) == mask.hides(row, key);
                }
            }
            CHECK(wrong == 0);
            CHECK(flops(c.shape, false, Pass::forward, c.features) ==
                  (seed == 1 ? 4 * scores * 64 : flops(c.shape, false, Pass::forward, c.features)));
            const int Tr = (c.shape.Nq + 63) / 64 * lists.batches * lists.heads;
            for (const TileList& list : {lists.full, lists.partial}) {
                CHECK(list.first[0] == 0);
                for (int r = 0; r < Tr; ++r)
                    CHECK(std::is_sorted(list.tiles + list.first[r], list.tiles + list.first[r + 1]));
            }
            // A full tile has 64 keys, so the ragged last one, number 5, is partial or hidden.
            CHECK(std::find(lists.full.tiles, lists.full.tiles + lists.full.first[Tr], 5) ==
                  lists.full.tiles + lists.full.first[Tr]);
        }
    }
}

TEST_CASE("tiles: the patterns are the masks that they are called") {
    const auto shows = [](const Case& c, int row, int key) { return !mask_of(c, 0, 0).hides(row, key); };
    const Case causal = drawn("causal");
    const reference::Mask rule{.causal = true, .Nq = 150, .Nk = 330};
    const reference::Mask listed = mask_of(causal, 0, 0);
    for (int row = 0; row < 150; ++row) CHECK(listed.visible(row) == rule.visible(row));
    CHECK(shows(causal, 0, 180));
    CHECK(!shows(causal, 0, 181));

    const reference::Tiles quarter = tiles_of(drawn("quarter", 1, 2048, 2048), 0, 0);
    const auto full = std::count(quarter.kinds.begin(), quarter.kinds.end(), reference::Tiles::full);
    CHECK(full > 1024 / 4 - 50);
    CHECK(full < 1024 / 4 + 50);
    CHECK(quarter.bits.empty());

    const Case some = drawn("diagonal_and_random", 1, 640, 640);
    const reference::Mask mask = mask_of(some, 0, 0);
    int before = 0;
    for (int row = 0; row < 640; ++row) {
        CHECK(!mask.hides(row, row));
        CHECK((row == 639 || mask.hides(row, row + 1)));
        if (row % 64 == 0) before += mask.visible(row) / 64;  // whole tiles
    }
    CHECK(before > 45 / 4 - 9);
    CHECK(before < 45 / 4 + 9);

    const Case dilated = drawn("dilated", 1, 640, 640);
    for (const auto& [key, seen] :
         {std::pair{300, true}, {298, true}, {299, false}, {222, true}, {220, false}, {302, false}})
        CHECK(shows(dilated, 300, key) == seen);
    const reference::Tiles kinds = tiles_of(dilated, 0, 0);
    CHECK(std::count(kinds.kinds.begin(), kinds.kinds.end(), reference::Tiles::full) == 0);

    const Case random = drawn("random", 1, 640, 640);
    CHECK(tiles_of(random, 0, 0).kinds == tiles_of(random, 0, 1).kinds);  // which share a key/value head
    CHECK(tiles_of(random, 0, 0).kinds != tiles_of(random, 0, 2).kinds);
    CHECK(tiles_of(random, 0, 0).kinds != tiles_of(random, 1, 0).kinds);
}

TEST_CASE("tiles: a stage that takes none refuses them by name, and another mask does not go with them") {
    Case c = drawn("quarter");
    const Stage& other = test::stage_that({.takes = {Feature::columns}, .lacks = {Feature::tiles}});
    CHECK(why_not_taken(other, c) == other.folder() + " does not take lists of tiles");
    CHECK(why_not_taken(test::stage_that({.takes = {Feature::tiles}}), c).empty());
    CHECK(description_of(c).ends_with("normal tiles=quarter"));
    CHECK(parse_case(options_of(c)) == c);
    CHECK_THROWS_AS(tile_pattern("every"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,64,64,64 --tiles quarter --causal"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,64,64,64 --tiles quarter --window 3,0"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,64,64,64 --tiles quarter --columns documents"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,64,64,64 --tiles quarter --documents 64"), BadUsage);
}
