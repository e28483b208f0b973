/// @file
/// The verdict on outputs.

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "harness/verify/verdict.h"
#include "reference/attention.h"
#include "tests/answers.h"
#include "tests/catch.h"

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("the judge accepts a kernel's rounding in every verification case", "[slow]") {
    for (const Case& c : verification_cases(make_stage(), Cover::all)) {
        CAPTURE(description_of(c));
        const Verdict verdict = answer(c, as_a_kernel).verdict();
        CHECK(verdict.report == "");
        CHECK(verdict.passed);
    }
}

TEST_CASE("the judge rejects a tail padded with 0 instead of -inf") {
    const auto padded = [](const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
        const Eigen::Index tiles = (K.rows() + 63) / 64 * 64;
        Matrix K0 = Matrix::Zero(tiles, K.cols()), V0 = Matrix::Zero(tiles, V.cols());
        K0.topRows(K.rows()) = K;
        V0.topRows(V.rows()) = V;
        return reference::attention(Q, K0, V0, c.softmax_scale(),
                                    {false, c.shape.Nq, static_cast<int>(tiles)});
    };
    for (const DType dtype : {DType::fp16, DType::bf16}) {
        for (const int Nk : {1, 37, 65, 127, 1025}) {
            CAPTURE(name(dtype), Nk);
            Answer a = answer(make_case({1, 1, 1, 37, Nk, 64}, dtype), padded);
            CHECK(!a.verdict().passed);
            CHECK(contains(a.verdict().report, "L is wrong"));
            if (Nk == 127) continue;  // a single 0 is lost in bf16's rounding of O: L alone shows it
            const Answer right = answer(a.c);
            a.outputs.L = right.outputs.L;
            CHECK(contains(a.verdict().report, "O is wrong"));
        }
        CHECK(answer(make_case({1, 1, 1, 37, 128, 64}, dtype), padded).verdict().passed);
    }
}

TEST_CASE("the judge rejects what is wrong in one place") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    CAPTURE(name(dtype));
    Answer a = answer(make_case({2, 2, 1, 70, 90, 64}, dtype, true, Layout::bnhd));
    REQUIRE(a.verdict().passed);

    SECTION("NaN") {
        a.set(1, 1, 69, 63, not_a_number);
        CHECK(contains(a.verdict().report, "O is not finite in 1 of 17920 elements"));
        CHECK(contains(a.verdict(4).report, "b=1 h=1 row=69 column=63"));
    }
    SECTION("NaN in a row that is not sampled") {
        a.set(1, 0, 33, 1, not_a_number);
        CHECK(contains(a.verdict(2).report, "b=1 h=0 row=33 column=1"));
    }
    SECTION("infinity") {
        a.set(0, 0, 0, 0, -infinity);
        CHECK(contains(a.verdict().report, "O is not finite"));
    }
    SECTION("unwritten") {
        a.stored(0, 1, 5, 7) = 0x7fed;
        CHECK(contains(a.verdict().report, "O was not written in 1 of 17920"));
        CHECK(!contains(a.verdict().report, "finite"));
    }
    SECTION("L unwritten") {
        a.L(0, 1, 5) = std::bit_cast<float>(0x7fed7fedu);
        CHECK(contains(a.verdict().report, "L was not written in 1 of 280"));
    }
    SECTION("NaN in L") {
        a.L(0, 1, 5) = not_a_number;
        CHECK(contains(a.verdict().report, "L is not finite"));
    }
    SECTION("a row that belongs elsewhere") {
        for (int column = 0; column < 64; ++column) a.set(0, 0, 41, column, a.get(0, 0, 42, column));
        CHECK(contains(a.verdict().report, "only row 41"));
    }
    SECTION("L off by 1e-3") {
        a.L(1, 0, 69) *= 1.001f;
        CHECK(contains(a.verdict().report, "L is wrong in 1 of 280"));
        CHECK(contains(a.verdict().report, "b=1 h=0 row=69, query tile 1"));
        CHECK(std::abs(a.verdict().max_L_error - 1e-3) < 1e-5);
    }
    SECTION("L off by 2e-4") {
        a.L(1, 0, 69) *= 1.00005f;
        CHECK(a.verdict().passed);
        a.L(1, 0, 69) *= 1.00015f;
        CHECK(contains(a.verdict().report, "L is wrong"));
    }
    SECTION("L -inf where there are keys") {
        a.L(1, 0, 69) = -infinity;
        CHECK(!a.verdict().passed);
    }
    CHECK(!a.verdict().passed);
}

TEST_CASE("the judge wants exactly 0 and -inf from rows without keys") {
    Answer a = answer(make_case({1, 2, 2, 150, 37, 64}, DType::fp16, true));
    REQUIRE(a.verdict().passed);
    SECTION("O is tiny") {
        a.set(0, 1, 3, 2, 1e-6f);
        CHECK(contains(a.verdict().report, "O is not 0 where a row sees no key"));
    }
    SECTION("O is tiny in all of them") {
        a.spoil([](int, int, int row, int) { return row < 113; }, 1e-4f);
        CHECK(contains(a.verdict().report, "only the rows without keys"));
    }
    SECTION("L is 0") {
        a.L(0, 0, 0) = 0;
        CHECK(contains(a.verdict().report, "expected -inf, got 0"));
    }
    SECTION("L is 0 in a row that is not sampled") {
        a.L(0, 0, 50) = 0;
        CHECK(!a.verdict(1).passed);
    }
    SECTION("L is +inf") {
        a.L(0, 0, 0) = infinity;
    }
    CHECK(!a.verdict().passed);
}

TEST_CASE("the judge compares only the sampled rows with the reference") {
    Answer a = answer(make_case({1, 1, 1, 500, 37, 64}));
    a.spoil([](int, int, int row, int) { return row == 499; });
    CHECK(!a.verdict(8).passed);
    CHECK(a.verdict(1).passed);
    CHECK(!a.verdict(500).passed);
    CHECK(!a.verdict(100000).passed);
}

TEST_CASE("the judge accepts a kernel's rounding of gradients in every verification case") {
    std::map<Mistake, double> nearest;  // to the bound on relative L2
    for (const Case& c : verification_cases(gradient_stage(), Cover::pairs)) {
        CAPTURE(description_of(c));
        const Inputs inputs = make_inputs(c);
        const Expected expected(c, inputs);
        for (const Mistake kernel : {Mistake::none, Mistake::D_of_P}) {
            const Verdict verdict = judge(c, expected, gradients(c, inputs, kernel));
            CHECK(verdict.report == "");
            CHECK(verdict.passed);
            nearest[kernel] =
                std::max(nearest[kernel], verdict.relative_l2 / (c.dtype == DType::fp16 ? 1e-3 : 8e-3));
        }
    }
    CHECK(nearest[Mistake::none] < 0.5);
    CHECK(nearest[Mistake::D_of_P] < 0.8);
}

TEST_CASE("the judge rejects what kernels get wrong in gradients, on the quick cases") {
    std::map<Mistake, int> rejected;
    for (const Case& c : verification_cases(gradient_stage(), Cover::each)) {
        CAPTURE(description_of(c));
        const Inputs inputs = make_inputs(c);
        const Expected expected(c, inputs);
        for (const Mistake mistake : mistakes) {
            const Outputs wrong = gradients(c, inputs, mistake);
            const Verdict verdict = judge(c, expected, wrong);
            rejected[mistake] += !verdict.passed;
            CHECK(verdict.passed == verdict.report.empty());
        }
    }
    for (const Mistake mistake : mistakes) {
        CAPTURE(static_cast<int>(mistake), rejected[mistake]);
        // Not in every case: where a row's weight sits on one key, dS is what rounding leaves, and scale 0
        // makes dQ and dK 0.
        CHECK(rejected[mistake] >= 3);
    }
}

}  // namespace
