/// @file
/// Drafts that are trees: which keys a row sees, where it stands, and who refuses them.

#include <Eigen/Core>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "reference/attention.h"
#include "reference/tiled.h"
#include "stages/errors.h"
#include "tests/any_stage.h"
#include "tests/catch.h"

using namespace ladder;

namespace {

Case draft(int Nq, const std::string& tree, std::uint64_t seed = 1) {
    Case c{.shape = {.B = 3, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = 70, .d = 64}, .causal = true, .seed = seed};
    c.features.lengths = "70,41,66";
    c.features.tree = tree;
    return c;
}

/// The words of a tree that is given by what each row continues, -1 for nothing.
std::vector<std::uint64_t> words_of(const std::vector<int>& parents) {
    std::vector<std::uint64_t> words;
    for (std::size_t i = 0; i < parents.size(); ++i)
        words.push_back((parents[i] < 0 ? 0 : words[parents[i]]) | std::uint64_t{1} << i);
    return words;
}

/// Medusa (arXiv 2401.10774): the four best next tokens, after each of the first two the three best second
/// ones, after the first of these the two best third ones.
const std::vector<int> medusa{-1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 4, 4};
/// SpecInfer (arXiv 2305.09781): sequences of a small model that are merged where they begin alike, each
/// added as it is drawn, so that rows of a path do not follow each other.
const std::vector<int> spec_infer{-1, 0, 1, 2, 1, 4, 5, 0, 7, 3, -1, 10, 8, 12};

/// Rows of a matrix with these numbers.
reference::Matrix rows_of(const reference::Matrix& X, const std::vector<int>& rows) {
    reference::Matrix some(std::ssize(rows), X.cols());
    for (std::size_t k = 0; k < rows.size(); ++k) some.row(static_cast<Eigen::Index>(k)) = X.row(rows[k]);
    return some;
}

}  // namespace

TEST_CASE("trees: a row computes what it would as the last of its path alone", "[reference]") {
    constexpr int cache = 37, d = 16;
    std::srand(1);
    for (const std::vector<int>& parents : {medusa, spec_infer}) {
        const auto words = words_of(parents);
        const int Nq = static_cast<int>(parents.size()), Nk = cache + Nq;
        const reference::Matrix Q = reference::Matrix::Random(Nq, d), K = reference::Matrix::Random(Nk, d),
                                V = reference::Matrix::Random(Nk, d);
        for (const int left : {-1, 0, 1, 2, 5, 36, 38, 39, 100}) {
            for (const double slope : {0.0, 0.25}) {
                reference::Mask mask{.causal = true, .Nq = Nq, .Nk = Nk, .left = left};
                mask.scores.slope = slope;
                mask.sink = 0.5;
                mask.tree = words;
                const reference::Result got = reference::attention(Q, K, V, 0.3, mask);
                for (int row = 0; row < Nq; ++row) {
                    std::vector<int> keys(cache);
                    for (int key = 0; key < cache; ++key) keys[key] = key;
                    for (int k = 0; k < Nq; ++k) {
                        if (words[row] >> k & 1) keys.push_back(cache + k);
                    }
                    reference::Mask path{
                        .causal = true, .Nq = 1, .Nk = static_cast<int>(keys.size()), .left = left};
                    path.scores.slope = slope;
                    path.sink = 0.5;
                    const reference::Result alone = reference::attention(rows_of(Q, {row}), rows_of(K, keys),
                                                                         rows_of(V, keys), 0.3, path);
                    CAPTURE(Nq, left, slope, row);
                    CHECK((got.O.row(row) - alone.O.row(0)).norm() < 1e-12);
                    CHECK(std::abs(got.L[row] - alone.L[0]) < 1e-12);
                    CHECK(mask.visible(row) == path.visible(0));
                }
            }
        }
        reference::Mask mask{.causal = true, .Nq = Nq, .Nk = Nk};
        mask.tree = words;
        const reference::Result exact = reference::attention(Q, K, V, 0.3, mask),
                                tiled = reference::tiled_attention(Q, K, V, 0.3, mask, 4, 8, nullptr);
        CHECK((exact.O - tiled.O).norm() < 1e-12);
    }
}

TEST_CASE("trees: words are as they are drawn, and a chain is a causal mask", "[problem]") {
    for (const char* tree : {"drawn", "binary", "any_rows", "chain"}) {
        for (const int Nq : {1, 5, 64}) {
            const Case c = draft(Nq, tree, 7);
            CHECK(parse_case(options_of(c)) == c);
            double scores = 0;
            for (int b = 0; b < 3; ++b) {
                const reference::Mask mask = mask_of(c, b, 0);
                REQUIRE(std::ssize(mask.tree) == Nq);
                for (int i = 0; i < Nq; ++i) {
                    CHECK(mask.tree[i] >> i == 1);  // itself, and no row after it
                    scores += 4 * mask.visible(i);
                    std::uint64_t all = 0;  // that its ancestors see
                    for (int k = 0; k < i; ++k) all |= mask.tree[i] >> k & 1 ? mask.tree[k] : 0;
                    if (std::string(tree) != "any_rows") CHECK((all & ~mask.tree[i]) == 0);
                    if (std::string(tree) == "chain") CHECK(std::popcount(mask.tree[i]) == i + 1);
                }
            }
            CHECK(visible_scores(c) == scores);
        }
    }
    const Case chain = draft(5, "chain");
    Case causal = chain;
    causal.features.tree.clear();
    for (int row = 0; row < 5; ++row)
        CHECK(mask_of(chain, 1, 0).visible(row) == mask_of(causal, 1, 0).visible(row));
    // Each request has its own tree
    const Case drawn = draft(20, "drawn");
    CHECK(mask_of(drawn, 0, 0).tree != mask_of(drawn, 1, 0).tree);
    CHECK(mask_of(draft(20, "binary"), 0, 0).tree == mask_of(draft(20, "binary"), 1, 0).tree);
}

TEST_CASE("trees: what does not go with one is refused by name", "[problem]") {
    Case c = draft(65, "drawn");
    CHECK_THROWS_WITH(require_possible(c),
                      "a draft that is a tree has at most 64 rows; the problem has Nq = 65");
    c = draft(5, "drawn");
    c.causal = false;
    CHECK_THROWS_WITH(require_possible(c), "a draft that is a tree needs a causal mask: --causal");
    c = draft(5, "drawn");
    c.features.page_size = 1;
    c.features.prefix = 36;  // of 41 keys, the last 5 are the draft
    CHECK_NOTHROW(require_possible(c));
    c.features.prefix = 37;
    CHECK_THROWS_WITH(require_possible(c), "each row must see the prefix of 37 keys: at most 36");
    CHECK_THROWS_WITH(parse_case("--shape 1,1,1,2,4,64 --causal --tree bushy"),
                      "unknown tree 'bushy' (known: chain, binary, any_rows, drawn)");
    const Stage& other = test::stage_that({.takes = {Feature::lengths}, .lacks = {Feature::tree}});
    CHECK(why_not_taken(other, draft(5, "drawn")) ==
          other.folder() + " does not take a draft that is a tree");
}
