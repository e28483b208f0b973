/// @file
/// Column bounds: what they hide, and who refuses them.

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/features/columns.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "stages/errors.h"
#include "tests/any_stage.h"
#include "tests/catch.h"

using namespace ladder;

namespace {

Case drawn(const char* columns, bool causal, std::uint64_t seed = 1, int Nq = 150, int Nk = 170) {
    return {.shape = {.B = 2, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = Nk, .d = 64},
            .causal = causal,
            .features = {.columns = columns},
            .seed = seed};
}

}  // namespace

TEST_CASE("columns: bounds have the form that a problem says, and visible scores are those of a dense mask") {
    for (const ColumnPattern& pattern : column_patterns()) {
        for (const bool causal : {false, true}) {
            for (const Window window : {Window{}, Window{40, 10}}) {
                Case c = drawn(pattern.name, causal);
                c.features.window = window;
                INFO(description_of(c));
                const Columns columns = make_problem(c, {}).columns;
                CHECK(make_columns(c).size() ==
                      std::size_t(c.shape.B) * columns.heads * c.shape.Nk * columns.count);
                CHECK(columns.count == (causal ? pattern.causal_count : pattern.count));
                CHECK(c.shape.H % columns.heads == 0);
                double scores = 0;
                for (int head = 0; head < 8; ++head) {
                    const reference::Mask mask = mask_of(c, head / 4, head % 4);
                    for (int row = 0; row < c.shape.Nq; ++row) scores += mask.visible(row);
                }
                CHECK(visible_scores(c) == scores);
                CHECK(flops(c.shape, causal, Pass::forward, c.features) == 4 * scores * 64);
            }
        }
    }
}

TEST_CASE("columns: the patterns are the masks that they are called") {
    for (const bool causal : {false, true}) {
        const reference::Mask documents = mask_of(drawn("documents", causal, 1, 160, 160), 0, 0);
        std::set<std::pair<int, int>> ranges;  // of the keys that a row sees
        for (int row = 0; row < 160; ++row) {
            CHECK(!documents.hides(row, row));
            int first = row, last = row;
            while (first > 0 && !documents.hides(row, first - 1)) --first;
            while (last < 159 && !documents.hides(row, last + 1)) ++last;
            const int seen = documents.visible(row);
            CHECK(seen == (causal ? row : last) - first + 1);
            ranges.insert({first, causal ? 0 : last});
        }
        CHECK(ranges.size() > 4);
    }
    const reference::Mask window = mask_of(drawn("global_window", false, 1, 640, 640), 0, 0);
    for (const auto& [row, key, sees] : {std::tuple{0, 600, true},
                                         {600, 9, true},
                                         {600, 10, false},
                                         {9, 639, true},
                                         {10, 300, false},
                                         {300, 339, true},
                                         {300, 340, false},
                                         {300, 261, true},
                                         {300, 260, false}})
        CHECK(window.hides(row, key) != sees);
    const auto masks_of_three_heads = [](const char* pattern) {
        const Case c = drawn(pattern, false);
        std::set<std::vector<int>> masks;
        for (const int h : {0, 1, 2}) {
            std::vector<int> edges;
            for (const auto& hidden : hidden_rows(c, 1, h)) edges.push_back(hidden.begin[0]);
            masks.insert(edges);
        }
        return masks.size();
    };
    CHECK(masks_of_three_heads("documents") == 1);
    CHECK(masks_of_three_heads("random") == 2);  // 0 and 1 share a key/value head
    CHECK(masks_of_three_heads("query_heads") == 3);
}

TEST_CASE("columns: a stage that takes none refuses them by name") {
    const Case c = drawn("documents", true);
    const Stage& other = test::stage_that({.takes = {Feature::window}, .lacks = {Feature::columns}});
    CHECK(why_not_taken(other, c) == other.folder() + " does not take column bounds");
    CHECK(why_not_taken(test::stage_that({.takes = {Feature::columns}}), c).empty());
    CHECK_THROWS_AS(column_pattern("every"), BadUsage);
    CHECK(description_of(c).ends_with("normal columns=documents"));
}
