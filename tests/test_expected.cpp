/// @file
/// What is expected of a case, and the bounds on errors.

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "harness/verify/eight_bits.h"
#include "harness/verify/expected.h"
#include "reference/attention.h"
#include "tests/answers.h"
#include "tests/catch.h"

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("what is expected is attention of each head, and the error of standard attention") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const Case c =
        make_case({2, 4, 2, 300, 290, 64}, dtype, true, Layout::bnhd);  // more rows than one thread
    const int sampled = GENERATE(0, 7);                                 // takes at a time
    CAPTURE(name(dtype), sampled);
    Inputs inputs = make_inputs(c);
    const Expected expected(c, inputs, sampled);
    const std::size_t rows = expected.tensors[0].rows.size();
    REQUIRE(rows == (sampled == 0 ? 300 : 7));
    REQUIRE(expected.tensors[0].values.size() == 8 * rows * 64);
    REQUIRE(expected.tensors[1].values.size() == 8 * rows);

    const reference::Mask mask{true, 300, 290};
    const Eigen::VectorXi indices =
        Eigen::Map<const Eigen::VectorXi>(expected.tensors[0].rows.data(), static_cast<Eigen::Index>(rows));
    double standard_error = 0;
    for (int head = 0; head < 8; ++head) {
        const auto of = [&](std::vector<std::uint16_t>& tensor, int heads, int h, int N) -> Matrix {
            return with_type(dtype, [&](auto type) -> Matrix {
                const View view = dense_view(tensor.data(), heads, N, 64);
                return head_of<decltype(type)>(view, head / 4, h, N, 64).template cast<double>();
            });
        };
        const int h = head % 4;
        const Matrix Q = of(inputs.Q, 4, h, 300)(indices, Eigen::all), K = of(inputs.K, 2, h / 2, 290),
                     V = of(inputs.V, 2, h / 2, 290);
        const auto exact = reference::attention(Q, indices, K, V, c.softmax_scale(), mask);
        const auto standard = with_type(dtype, [&](auto type) {
            return reference::standard_attention<decltype(type)>(Q, indices, K, V, c.softmax_scale(), mask);
        });
        standard_error = std::max(standard_error, (standard.O - exact.O).cwiseAbs().maxCoeff());
        const Eigen::Map<const Matrix> O(expected.tensors[0].values.data() + head * rows * 64,
                                         static_cast<Eigen::Index>(rows), 64);
        CHECK((O - exact.O).cwiseAbs().maxCoeff() < 1e-14);
        for (std::size_t k = 0; k < rows; ++k) {
            const double L = expected.tensors[1].values[head * rows + k];
            CHECK((L == exact.L[k] || std::abs(L - exact.L[k]) < 1e-13));
        }
    }
    CHECK(standard_error > 0);
    CHECK(std::abs(expected.tensors[0].standard_error / standard_error - 1) < 1e-6);
}

TEST_CASE("of a large problem some rows of dQ and some keys are compared") {
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const Case c = gradient_case({1, 4, 2, 200, 220, 64}, dtype, true);
    const Inputs inputs = make_inputs(c);
    const Expected all(c, inputs), some(c, inputs, 9);
    for (std::size_t t = 0; t < 3; ++t) {
        REQUIRE(some.tensors[t].rows.size() == 9);
        const std::size_t N = all.tensors[t].rows.size(), heads = t == 0 ? 4 : 2;
        for (std::size_t head = 0; head < heads; ++head) {
            for (std::size_t k = 0; k < 9; ++k) {
                const std::size_t row = head * N + some.tensors[t].rows[k];
                CHECK(std::abs(some.tensors[t].size[head * 9 + k] / all.tensors[t].size[row] - 1) < 1e-12);
                for (std::size_t column = 0; column < 64; ++column) {
                    REQUIRE(std::abs(some.tensors[t].values[(head * 9 + k) * 64 + column] -
                                     all.tensors[t].values[row * 64 + column]) < 1e-12);
                }
            }
        }
        CHECK(some.tensors[t].standard_error > 0);
        CHECK(some.tensors[t].standard_error < 2 * all.tensors[t].standard_error);
    }
    CHECK(judge(c, some, gradients(c, inputs)).passed);
    for (const Mistake mistake : mistakes) CHECK(!judge(c, some, gradients(c, inputs, mistake)).passed);
}

TEST_CASE("the judge accepts standard attention in the storage type") {
    for (const DType dtype : {DType::fp16, DType::bf16}) {
        for (const bool causal : {false, true}) {
            CAPTURE(name(dtype), causal);
            const Verdict verdict =
                answer(make_case({1, 2, 1, 97, 130, 64}, dtype, causal), standard).verdict();
            CHECK(verdict.report == "");
            CHECK(verdict.passed);
            CHECK(verdict.max_error > 0);
            CHECK(verdict.max_error == verdict.standard_max_error);
            CHECK(verdict.relative_l2 > 0);
        }
    }
}

TEST_CASE("the judge needs no help from standard attention where scores overflow its fp16") {
    Case c = make_case({1, 1, 1, 37, 65, 64});
    c.scale = 4000;
    REQUIRE(answer(c, standard).get(0, 0, 0, 0) != answer(c, standard).get(0, 0, 0, 0));  // NaN
    Answer a = answer(c);
    CHECK(a.verdict().passed);
    a.spoil([](int, int, int row, int) { return row == 3; });
    CHECK(!a.verdict().passed);
}

TEST_CASE("L may be off by what fp32 rounds where a small score is a sum of large products") {
    // One query and one key: L is their score, 0 = x y - x y, with scale |q| |k| = x y / 4.
    Answer a = answer(make_case({1, 1, 1, 1, 1, 64}));
    const auto stored = [](float x) {
        return with_type(DType::fp16, [&](auto type) {
            return std::bit_cast<std::uint16_t>(static_cast<decltype(type)>(x));
        });
    };
    const auto set = [&](float x, float y) {
        for (auto* tensor : {&a.inputs.Q, &a.inputs.K}) std::fill(tensor->begin(), tensor->end(), 0);
        for (const int column : {0, 1}) {
            a.inputs.Q[column] = stored(x);
            a.inputs.K[column] = stored(column == 0 ? y : -y);
        }
    };
    const auto accepts = [&](float L) {
        a.L(0, 0, 0) = L;
        return a.verdict().passed;
    };
    set(1, 1);
    CHECK(accepts(0.9e-4f));
    CHECK(!accepts(1.1e-4f));
    set(200, 100);  // 2^-21 * 5000 = 2.38e-3
    CHECK(accepts(2.4e-3f));
    CHECK(!accepts(2.6e-3f));
    CHECK(contains(a.verdict().report, "L is wrong in 1 of 1"));
}

TEST_CASE(
    "where parts are merged by an L of fp32, O may be off by what that loses of huge scores, and no more") {
    // Parts of 64 keys, whose L is rounded twice.
    const auto merged = [](const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
        reference::Result all{Matrix::Zero(Q.rows(), V.cols()), exact(Q, K, V, c).L};
        for (Eigen::Index i = 0; i < Q.rows(); ++i) {
            double sum = 0;
            for (Eigen::Index first = 0; first < K.rows(); first += 64) {
                const Eigen::Index n = std::min<Eigen::Index>(64, K.rows() - first);
                Case part = c;
                part.causal = false;
                part.shape.Nq = 1;
                part.shape.Nk = static_cast<int>(n);
                const auto of = exact(Q.row(i), K.middleRows(first, n), V.middleRows(first, n), part);
                const float in_base_2 = static_cast<float>(of.L[0] * 1.4426950408889634);
                const double weight = std::exp(static_cast<double>(in_base_2 * 0.693147181f) - all.L[i]);
                all.O.row(i) += weight * of.O;
                sum += weight;
            }
            all.O.row(i) /= sum;
        }
        return all;
    };
    for (const char* input : {"huge_constant", "normal", "huge"}) {
        for (const DType dtype : {DType::fp16, DType::bf16}) {
            Case c = make_case({1, 2, 1, 40, 130, 64}, dtype);
            c.input = input;
            CAPTURE(description_of(c));
            Answer a = answer(c, merged);
            const Expected expected(c, a.inputs);
            CHECK(judge(c, expected, a.outputs, true).report == "");
            // Two equal parts and two keys: without their logarithms each would have a third of the weight.
            CHECK(judge(c, expected, a.outputs).passed == (std::string(input) != "huge_constant"));
            CHECK(judge(c, expected, answer(c).outputs).passed);

            // It is an allowance for rows with large scores, and in these for less than V differs by.
            const auto spoiled_by = [&](float by, bool only_small) {
                Answer wrong = answer(c);
                wrong.spoil([&](int, int h, int row,
                                int) { return !only_small || std::abs(wrong.L(0, h, row)) < 100; },
                            by);
                return judge(c, expected, wrong.outputs, true);
            };
            CHECK(!spoiled_by(12.0f, false).passed);
            if (std::string(input) == "normal") {
                CHECK(!spoiled_by(0.02f, true).passed);
                CHECK(contains(spoiled_by(0.02f, true).report, "O is wrong in"));
            }
            a.set(0, 1, 3, 5, not_a_number);
            CHECK(!judge(c, expected, a.outputs, true).passed);
        }
    }
    int rounding = 0;
    for (const Stage& stage : stages()) {  // those alone whose exponents are such a multiply-add
        CAPTURE(stage.folder());
        const std::string text = kernel_text(stage.source);
        CHECK(stage.rounds_large_scores == (contains(text, "scale - m[") || contains(text, "scale - m;")));
        rounding += stage.rounds_large_scores ? 1 : 0;
    }
    CHECK(rounding > 0);
}

TEST_CASE("the bounds on the largest error and on relative L2 each reject alone") {
    SECTION("one element, in many") {
        Answer a = answer(make_case({1, 2, 2, 200, 37, 128}));
        a.spoil([](int, int h, int row, int column) { return h == 1 && row == 70 && column == 5; }, 0.02f);
        const Verdict verdict = a.verdict();
        CHECK(verdict.relative_l2 < 1e-3);
        CHECK(!verdict.passed);
        CHECK(contains(verdict.report, "O is wrong in 1 of 51200 elements"));
    }
    SECTION("every element, a little") {
        Answer a = answer(make_case({1, 1, 1, 200, 200, 64}, DType::fp16, true));
        a.spoil([](int, int, int, int) { return true; }, 5e-4f);
        const Verdict verdict = a.verdict();
        CHECK(verdict.max_error < 2 * verdict.standard_max_error);
        CHECK(!verdict.passed);
        CHECK(contains(verdict.report, "relative L2"));
        CHECK(contains(verdict.report, "worst at"));  // although no element breaks the bound on its own
    }
}

TEST_CASE("rounding to 8 bits takes the nearest number, and the largest element becomes 448") {
    Case c = make_case({1, 1, 1, 50, 60, 64});
    c.seed = 7;
    Inputs inputs = make_inputs(c);
    const Matrix X =
        head_of<Eigen::half>(dense_view(inputs.Q.data(), 1, 50, 64), 0, 0, 50, 64).cast<double>();
    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(50, 0, 49);
    const EightBits rounded = EightBits::of(X, rows, 50);
    CHECK(rounded.numbers.cwiseAbs().maxCoeff() == 448);
    CHECK(rounded.scales.minCoeff() == static_cast<float>(X.cwiseAbs().maxCoeff()) / 448);
    CHECK(rounded.scales.maxCoeff() == rounded.scales.minCoeff());
    for (Eigen::Index k = 0; k < X.size(); ++k) {
        const double number = rounded.numbers.data()[k], exact = X.data()[k] / rounded.scales[0];
        const int exponent = std::max(std::ilogb(number == 0 ? 1e-9 : number), -6);
        REQUIRE(std::abs(number - exact) <= std::ldexp(1.0 + 1e-6, exponent - 4));
        REQUIRE(number == std::ldexp(std::round(std::ldexp(number, 3 - exponent)), exponent - 3));
    }
    const Eigen::VectorXi both = Eigen::VectorXi::LinSpaced(2, 0, 1);
    CHECK(EightBits::of(Matrix::Zero(2, 64), both, 2).values() == Matrix::Zero(2, 64));

    // Blocks of 20 rows have their own scales, and rows that are picked those of their blocks.
    const EightBits some = EightBits::of(X, Eigen::VectorXi{{3, 19, 20, 45}}, 20);
    const auto scale_of = [&](int first, int n) {
        return static_cast<float>(X.middleRows(first, n).cwiseAbs().maxCoeff()) / 448;
    };
    CHECK(some.scales ==
          reference::Vector{{scale_of(0, 20), scale_of(0, 20), scale_of(20, 20), scale_of(40, 10)}});
    CHECK((some.values().row(3) - X.row(45)).cwiseAbs().maxCoeff() < X.row(45).cwiseAbs().maxCoeff() / 16);
}

/// Q (30, 64) and K (300, 64) from N(0, 1), of which a test makes some elements outliers.
struct Scored {
    Matrix Q = elements(&Inputs::Q, 30), K = elements(&Inputs::K, 300);

    EightBitHead head(Products products) const {
        return round_head(Q, Eigen::VectorXi::LinSpaced(30, 0, 29), K, K, 1, products);
    }
    /// The relative error of the scores with these keys.
    double error(Products products, int first_key, int keys) const {
        const EightBitHead of = head(products);
        const Matrix S = of.scale * of.Q.values() * of.K.values().middleRows(first_key, keys).transpose(),
                     exact = Q * K.middleRows(first_key, keys).transpose();
        return (S - exact).norm() / exact.norm();
    }
    static Matrix elements(std::vector<std::uint16_t> Inputs::*tensor, int N) {
        Inputs inputs = make_inputs(make_case({1, 1, 1, 30, 300, 64}));
        return head_of<Eigen::half>(dense_view((inputs.*tensor).data(), 1, N, 64), 0, 0, N, 64)
            .cast<double>();
    }
};

TEST_CASE("an outlier beyond the range of 8 bits costs those that share its scale") {
    Scored scored;
    scored.K.row(7) *= 0x1p20;
    CHECK(scored.error(Products::of_8_promoted, 128, 172) > 0.9);
    CHECK(scored.error(Products::of_8_in_blocks, 128, 172) < 0.05);
    CHECK(scored.error(Products::of_8_in_blocks, 8, 120) > 0.9);
}

TEST_CASE("rotated rows have the same products, and no element that stands out") {
    Scored scored;
    scored.Q.col(5) *= 50;
    const Matrix plain = scored.head(Products::of_8_in_blocks).Q.values(),
                 rotated = scored.head(Products::of_8_rotated).Q.values();
    const auto peak = [](const Matrix& X) {
        return X.cwiseAbs().maxCoeff() / std::sqrt(X.squaredNorm() / static_cast<double>(X.size()));
    };
    CHECK(peak(plain) > 12);
    CHECK(peak(rotated) < 5);
    CHECK(scored.error(Products::of_8_rotated, 0, 300) > 0.01);
    CHECK(scored.error(Products::of_8_rotated, 0, 300) < 0.05);
}

TEST_CASE("with products of 8 bits what is expected is attention of rounded inputs") {
    Case c = make_case({1, 2, 1, 20, 2000, 64});
    c.input = "same_sign";
    const Inputs inputs = make_inputs(c);
    const Expected plain(c, inputs), summed(c, inputs, 0, Products::of_8_bits),
        promoted(c, inputs, 0, Products::of_8_promoted);
    CHECK(summed.unquantized_O == plain.tensors[0].values);
    CHECK(summed.tensors[0].values == promoted.tensors[0].values);
    CHECK(summed.tensors[0].values != plain.tensors[0].values);
    CHECK(plain.tensors[0].standard_l2 == 0);
    // Sums of 13 bits of 2,000 keys of one sign; and what rounding P loses, if sums are promoted.
    CHECK(summed.tensors[0].standard_l2 > 0.02);
    CHECK(summed.tensors[0].standard_l2 < 0.05);
    CHECK(promoted.tensors[0].standard_l2 < 0.005);
    // So a kernel without rounding passes as one of 8 bits only if its inputs were rounded, too.
    Outputs exact = answer(c).outputs;
    CHECK(judge(c, plain, exact).passed);
    CHECK(!judge(c, promoted, exact).passed);
}

TEST_CASE("of a cache in 8 bits K and V alone are rounded, and the rule is that of 16 bits") {
    const Case c = make_case({1, 2, 1, 20, 2000, 64});
    const Inputs inputs = make_inputs(c);
    const Expected plain(c, inputs), cached(c, inputs, 0, Products::of_8_bit_cache);
    CHECK(cached.unquantized_O == plain.tensors[0].values);
    CHECK(cached.tensors[0].standard_l2 == 0);
    CHECK(cached.tensors[0].standard_error < 2 * plain.tensors[0].standard_error);
    const Outputs exact = answer(c).outputs;  // of K and V in 16 bits
    CHECK(judge(c, plain, exact).passed);
    CHECK(!judge(c, cached, exact).passed);
    // sqrt(2) x 2.7%; the judge's distance is that of outputs from what is not rounded.
    double squared = 0, size_squared = 0;
    for (std::size_t k = 0; k < plain.tensors[0].values.size(); ++k) {
        squared += std::pow(cached.tensors[0].values[k] - plain.tensors[0].values[k], 2);
        size_squared += std::pow(plain.tensors[0].values[k], 2);
    }
    CHECK(std::sqrt(squared / size_squared) > 0.03);
    CHECK(std::sqrt(squared / size_squared) < 0.05);
    // Its scales are of the keys that a request has, whatever comes after these.
    Case ragged = make_case({2, 2, 1, 1, 300, 64});
    ragged.features.lengths = "200,30";
    Inputs before = make_inputs(ragged), after = before;
    for (int b = 0; b < 2; ++b) {
        const auto first = after.K.begin() + (b * 300 + (b == 0 ? 200 : 30)) * 64;
        std::fill(first, after.K.begin() + (b + 1) * 300 * 64, std::uint16_t{0x7000});  // 8192
    }
    const auto O_of = [&](const Inputs& of) {
        return Expected(ragged, of, 0, Products::of_8_bit_cache).tensors[0].values;
    };
    CHECK(O_of(before) == O_of(after));
    CHECK(unavoidable_bytes(c.shape, Pass::forward, {}, {.products = Products::of_8_bit_cache}) ==
          2.0 * (2 * 20 * 2 + 2000) * 64);
    // A scale for each token: its row alone decides how it is rounded.
    Case of_tokens = ragged;
    of_tokens.features.token_scales = true;
    const auto O_of_tokens = [&](const Inputs& of) {
        return Expected(of_tokens, of, 0, Products::of_8_bit_cache).tensors[0].values;
    };
    CHECK(O_of_tokens(before) == O_of_tokens(after));
    CHECK(O_of_tokens(before) != O_of(before));
    Case same = ragged;
    same.input = "constant";  // in which a token has the largest of its head
    Inputs constant = make_inputs(same);
    std::copy(constant.K.begin(), constant.K.end(), constant.V.begin());
    CHECK(O_of_tokens(constant) == O_of(constant));
    CHECK(unavoidable_bytes(ragged.shape, Pass::forward, of_tokens.features,
                            {.products = Products::of_8_bit_cache}) ==
          unavoidable_bytes(ragged.shape, Pass::forward, ragged.features,
                            {.products = Products::of_8_bit_cache}) +
              2.0 * 4 * 230);
    CHECK(unavoidable_bytes(c.shape, Pass::forward, {}, {.takes_e4m3 = true}) ==
          (3.0 * 2 * 20 + 2 * 2000) * 64);
}

}  // namespace
