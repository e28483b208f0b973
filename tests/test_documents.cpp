/// @file
/// Packed documents: what their rows see, and who refuses them.

#include <string>

#include "harness/cases/random.h"
#include "harness/features/documents.h"
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

Case packed(const std::string& documents, int Nq, int Nk) {
    Case c{.shape = {.B = 1, .H = 2, .Hkv = 1, .Nq = Nq, .Nk = Nk, .d = 64}};
    c.features.documents = documents;
    return c;
}

}  // namespace

TEST_CASE("documents: a row sees what its document's mask leaves, counted key by key", "[problem]") {
    for (const bool causal : {false, true}) {
        for (const Window window : {Window{}, Window{3, 1}, Window{-1, 2}}) {
            Case c = packed("0,4,1x6,5x2,0x3,2x0,7", 19, 22);
            c.causal = causal;
            c.features.window = window;
            INFO(description_of(c));
            const reference::Mask mask = mask_of(c, 0, 0);
            double scores = 0;
            for (const auto& own : documents_of(c)) {
                for (int row = own.first_row; row < own.end_row; ++row) {
                    int seen = 0;
                    for (int key = own.first_key; key < own.end_key; ++key) {
                        const int distance = (own.end_row - row) - (own.end_key - key);  // of key past row
                        const bool sees = (!causal || distance <= 0) &&
                                          (window.left < 0 || distance >= -window.left) &&
                                          (window.right < 0 || distance <= window.right);
                        CHECK((key >= mask.first(row) && key < mask.end(row)) == sees);
                        seen += sees;
                    }
                    CHECK(mask.visible(row) == seen);
                    scores += seen;
                }
            }
            CHECK(flops(c.shape, causal, Pass::forward, c.features) == 4 * 2 * scores * 64);
            CHECK(parse_case(options_of(c)) == c);
        }
    }
    CHECK(document_bounds(packed("2,0,1x3", 3, 5)) == std::vector<int>{0, 2, 2, 3, 0, 2, 2, 5});
}

TEST_CASE("documents: lengths are checked, and random ones always fit", "[problem]") {
    for (const char* wrong : {"", "1,", ",1", "a", "-1,2", "1x", "x1", "1x1x1", "1,1", "99999999999"})
        CHECK_THROWS_AS(parse_case(std::string("--shape 1,1,1,1,1,64 --documents ") + wrong), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 2,1,1,1,1,64 --documents 1"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,1,1,64 --documents 1 --columns random"), BadUsage);
    CHECK(parse_case("--shape 1,1,1,1,1,64 --documents 1").features.documents == "1");
    std::mt19937_64 random(1);
    int with_empty = 0;
    for (int k = 0; k < 200; ++k) {
        const int Nq = 1 + static_cast<int>(random() % 300),
                  Nk = k % 2 == 0 ? Nq : 1 + static_cast<int>(random() % 300);
        Case c{.shape = {.Nq = Nq, .Nk = Nk}};
        info_of(Feature::documents).draw(random, stages().front(), c);
        if (c.features.documents.empty()) continue;
        CHECK_NOTHROW(require_possible(c));
        for (const Case& smaller : info_of(Feature::documents).simpler(c)) {
            CHECK_NOTHROW(require_possible(smaller));
            CHECK(smaller.shape.Nq + smaller.shape.Nk <= Nq + Nk);
        }
        for (const auto& own : documents_of(c)) with_empty += own.first_row == own.end_row;
    }
    CHECK(with_empty > 20);
}

TEST_CASE("documents: a stage that takes none refuses them by name", "[problem]") {
    const Case c = packed("3,4", 7, 7);
    const Stage& other = test::stage_that({.takes = {Feature::window}, .lacks = {Feature::documents}});
    CHECK(why_not_taken(other, c) == other.folder() + " does not take packed documents");
    CHECK(why_not_taken(test::stage_that({.takes = {Feature::documents}}), c).empty());
    CHECK(description_of(c).ends_with("normal documents=3,4"));
}
