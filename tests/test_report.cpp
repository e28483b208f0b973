/// @file
/// Where outputs are wrong, in words.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/problem/tensors.h"
#include "harness/verify/verdict.h"
#include "tests/answers.h"
#include "tests/catch.h"

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("the report names the place") {
    Answer a = answer(make_case({2, 2, 2, 150, 97, 128}));
    a.set(1, 0, 130, 70, 8.0f);
    a.set(1, 0, 131, 71, 4.0f);
    const std::string report = a.verdict().report;
    INFO(report);
    CHECK(contains(report, "O is wrong in 2 of 76800 elements"));
    CHECK(contains(report, "worst at b=1 h=0 row=130 column=70, query tile 2"));
    CHECK(contains(report, "got 8"));
}

TEST_CASE("the report finds the pattern") {
    struct Example {
        const char* pattern;  ///< null for none
        Case c;
        std::function<bool(int b, int h, int row, int column)> wrong;
    };
    const Case ragged = make_case({1, 2, 2, 150, 97, 64}),
               causal = make_case({1, 2, 2, 200, 200, 64}, DType::fp16, true);
    const std::vector<Example> examples{
        {"everything is wrong", ragged, [](int, int, int, int) { return true; }},
        {"only the rows of the last, ragged query tile", ragged,
         [](int, int, int row, int) { return row >= 128; }},
        {"only the rows of the first query tile", ragged, [](int, int, int row, int) { return row < 64; }},
        {"only every row past the first query tile", ragged,
         [](int, int, int row, int) { return row >= 64; }},
        {"only every row past the first key tile", make_case({1, 1, 1, 200, 140, 64}, DType::fp16, true),
         [](int, int, int row, int) { return row >= 124; }},
        {"only the rows that see the last, ragged key tile",
         make_case({1, 1, 1, 192, 230, 64}, DType::fp16, true),
         [](int, int, int row, int) { return row >= 192 - 38; }},
        {"only the rows that see only part of a key tile (mask?)", causal,
         [](int, int, int row, int) { return row % 64 != 63; }},
        {"only rows 8..15 of every 16", ragged, [](int, int, int row, int) { return row % 16 >= 8; }},
        {"only rows 32..47 of every 64 (warp 2?)", ragged,
         [](int, int, int row, int) { return row % 64 / 16 == 2; }},
        {"only rows 20..30", ragged, [](int, int, int row, int) { return row >= 20 && row <= 30; }},
        {"only columns 64..127", make_case({1, 1, 1, 50, 50, 128}),
         [](int, int, int, int c) { return c >= 64; }},
        {"only odd columns", ragged, [](int, int, int, int c) { return c % 2 == 1; }},
        {"only column 9", ragged, [](int, int, int, int c) { return c == 9; }},
        {"only columns 8..15 of every 16", ragged, [](int, int, int, int c) { return c % 16 >= 8; }},
        {"whole heads: only h = 1, 2 (GQA mapping?)", make_case({2, 4, 2, 50, 50, 64}),
         [](int, int h, int, int) { return h == 1 || h == 2; }},
        {"whole heads: only h = 1, 3, all but the first of each group", make_case({2, 4, 2, 50, 50, 64}),
         [](int, int h, int, int) { return h % 2 == 1; }},
        {"whole heads: only h = 0\n", make_case({2, 4, 2, 50, 50, 64}),
         [](int, int h, int, int) { return h == 0; }},
        {"whole heads: only b = 0\n", make_case({2, 4, 2, 50, 50, 64}),
         [](int b, int, int, int) { return b == 0; }},
        {"whole heads: only b = 1 (batch stride?)", make_case({2, 4, 2, 50, 50, 64}),
         [](int b, int, int, int) { return b == 1; }},
        {"only h = 1; only the rows of the last, ragged query tile; only column 3", ragged,
         [](int, int h, int row, int c) { return h == 1 && row >= 128 && c == 3; }},
        {nullptr, ragged, [](int, int h, int row, int c) { return (h + 7 * row + 3 * c) % 11 == 0; }},
    };
    for (const Example& example : examples) {
        Answer a = answer(example.c);
        a.spoil(example.wrong);
        const Verdict verdict = a.verdict();
        INFO(verdict.report);
        CHECK(!verdict.passed);
        if (example.pattern == nullptr) {
            CHECK(!contains(verdict.report, "pattern"));
        } else {
            CHECK(contains(verdict.report + "\n", "pattern: " + std::string(example.pattern)));
        }
    }
}

TEST_CASE("the report finds the rows whose maximum rises after the first key tile, which a kernel rescales") {
    const std::string pattern =
        "pattern: only the rows whose maximum rises after the first key tile (rescale?)";
    for (const bool causal : {false, true}) {
        // Which rows they are differs from head to head; together they are all that see a second tile.
        const Case c = make_case({2, 4, 2, 150, 192, 64}, DType::fp16, causal);
        Answer a = answer(c);
        const std::vector<int> peak = Expected(c, a.inputs).peak;
        const auto rises = [&](int b, int h, int row, int) {
            return peak[(b * 4 + h) * std::size_t{150} + static_cast<std::size_t>(row)] >= 64;
        };
        a.spoil(rises);
        CHECK(contains(a.verdict().report, pattern));
        CHECK(!contains(a.verdict().report, "% of these elements"));
        // One row more, and it is something else.
        a.spoil(
            [&](int b, int h, int row, int) { return b == 0 && h == 0 && row == 0 && !rises(b, h, row, 0); });
        a.spoil([&](int b, int h, int row, int) { return b == 1 && h == 2 && !rises(b, h, row, 0); });
        CHECK(!contains(a.verdict().report, "rescale?"));
    }
}

TEST_CASE("the report sees an error that grows with the keys that a row sees") {
    const Case c = make_case({1, 1, 1, 200, 200, 64}, DType::fp16, true);
    const auto report = [&](float slope) {
        Answer a = answer(c);
        for (int row = 0; row < 200; ++row) {
            for (int column = 0; column < 64; ++column) {
                a.set(0, 0, row, column, a.get(0, 0, row, column) + 1 + slope * static_cast<float>(row));
            }
        }
        return a.verdict().report;
    };
    CHECK(contains(report(0.1f), "the error grows with the number of keys that a row sees"));
    CHECK(contains(report(0.001f), "everything is wrong"));  // too little to speak of
    CHECK(contains(report(0), "everything is wrong"));
}

TEST_CASE("the judge says which gradient is wrong, and where") {
    const Case c = gradient_case({2, 4, 2, 150, 97, 64}, DType::fp16, true);
    const Inputs inputs = make_inputs(c);
    const Expected expected(c, inputs);
    Outputs outputs = gradients(c, inputs);
    REQUIRE(judge(c, expected, outputs).passed);
    const auto report = [&](Mistake mistake) {
        return judge(c, expected, gradients(c, inputs, mistake)).report;
    };
    CHECK(contains(report(Mistake::dQ_scaled_twice), "dQ is wrong in"));
    CHECK(!contains(report(Mistake::dQ_scaled_twice), "dK"));
    CHECK(contains(report(Mistake::dK_not_scaled), "dK is wrong in"));
    CHECK(contains(report(Mistake::dV_of_dS), "dV is wrong in"));
    CHECK(contains(report(Mistake::mask_forgotten), "dV is wrong in"));
    CHECK(judge(c, expected, gradients(c, inputs, Mistake::dV_of_dS)).tensor == "dV");

    const auto element = [](int head, int N, int row, int column) {
        return (static_cast<std::size_t>(head) * N + row) * 64 + column;
    };
    const std::uint16_t eight = 0x4800;
    SECTION("in one place of dK") {
        outputs.dK[element(2, 97, 70, 5)] = eight;
        const Verdict verdict = judge(c, expected, outputs);
        CHECK(contains(verdict.report, "dK is wrong in 1 of 24832 elements"));
        CHECK(contains(verdict.report, "worst at b=1 h_kv=0 key=70 column=5, key tile 1"));
        CHECK(verdict.tensor == "dK");
    }
    SECTION("in the keys of a ragged tile") {
        for (int head = 0; head < 4; ++head) {
            for (int key = 64; key < 97; ++key) {
                for (int column = 0; column < 64; ++column)
                    outputs.dV[element(head, 97, key, column)] = eight;
            }
        }
        CHECK(contains(judge(c, expected, outputs).report,
                       "pattern: only the keys of the last, ragged key tile"));
    }
    SECTION("NaN") {
        outputs.dV[element(3, 97, 96, 63)] = 0x7e00;
        CHECK(contains(judge(c, expected, outputs).report,
                       "dV is not finite in 1 of 24832 elements\n  first at b=1 h_kv=1 key=96"));
    }
    SECTION("not written") {
        outputs.dQ[element(7, 150, 3, 0)] = 0x7fed;
        CHECK(contains(judge(c, expected, outputs).report, "dQ was not written in 1 of 76800"));
    }
    SECTION("a row without keys") {
        outputs.dQ[element(0, 150, 52, 0)] = 1;
        CHECK(contains(judge(c, expected, outputs).report, "dQ is not 0 where a row sees no key"));
        CHECK(contains(judge(c, Expected(c, inputs, 2), outputs).report, "row=52"));
    }
    CHECK(!judge(c, expected, outputs).passed);
}

}  // namespace
