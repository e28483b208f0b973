/// @file
/// A case, where its tensors lie, and its inputs.

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/cases/inputs.h"
#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "stages/errors.h"
#include "tests/answers.h"
#include "tests/catch.h"

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("a case describes itself") {
    Case c = make_case({1, 2, 1, 37, 65, 64}, DType::fp16, true, Layout::bnhd);
    c.input = "rising";
    CHECK(description_of(c) == "B=1 H=2 Hkv=1 Nq=37 Nk=65 d=64 fp16 causal bnhd rising");
    CHECK(c.softmax_scale() == 0.125f);
    c.scale = 0.5f;
    c.seed = 9;
    c.multiprocessors = 132;
    CHECK(contains(description_of(c), "scale=0.5 seed=9 sms=132"));
    CHECK(options_of(c) ==
          "--shape 1,2,1,37,65,64 --causal --layout bnhd --input rising --seed 9 --scale 0.5 --sms 132");
    CHECK(c.softmax_scale() == 0.5f);
}

TEST_CASE("a layout places tensors, and moves no two of their rows to one place") {
    const auto dense = [](Layout layout, Tensor tensor) {
        Case c = make_case({2, 6, 3, 5, 7, 64}, DType::fp16, false, layout);
        c.pass = Pass::backward;
        const Placement p = placement(c, tensor);
        std::set<std::size_t> rows;
        p.for_each_row([&](std::size_t offset) {
            CHECK(offset % 8 == 0);
            rows.insert(offset);
        });
        CHECK(rows.size() * 64 == p.count());
        for (auto row = rows.begin(); std::next(row) != rows.end(); ++row)
            CHECK(*std::next(row) >= *row + 64);
        CHECK(*rows.rbegin() + 64 == p.span());
        CHECK(p.is_sparse() == (layout == Layout::far));
        return p;
    };
    const Placement bhnd = dense(Layout::bhnd, Tensor::V), bnhd = dense(Layout::bnhd, Tensor::V);
    CHECK((bhnd.row == 64 && bhnd.head == 7 * 64 && bhnd.batch == 3 * 7 * 64));
    CHECK((bnhd.row == 3 * 64 && bnhd.head == 64 && bnhd.batch == bhnd.batch));
    constexpr Tensor all[] = {Tensor::Q,  Tensor::K,  Tensor::V,  Tensor::O,
                              Tensor::dO, Tensor::dQ, Tensor::dK, Tensor::dV};
    // Of the same heads and rows, no two have their strides in common.
    std::set<std::tuple<int, std::int64_t, std::int64_t>> strides;
    for (const Tensor tensor : all) {
        const Placement mixed = dense(Layout::mixed, tensor);
        CHECK(strides.emplace(mixed.heads, mixed.head, mixed.row).second);
        const Placement far = dense(Layout::far, tensor);
        CHECK(far.batch >= std::int64_t{1} << 31);
        CHECK(far.head >= std::int64_t{1} << 31);
        CHECK(256 * far.row >= std::int64_t{1} << 31);
    }
}

TEST_CASE("inputs are the same for the same case, and only for it") {
    Case c = make_case({2, 4, 2, 5, 7, 64});
    const Inputs inputs = make_inputs(c);
    CHECK(make_inputs(c).Q == inputs.Q);
    CHECK(make_inputs(c).K == inputs.K);
    CHECK(inputs.Q.size() == 2 * 4 * 5 * 64);
    CHECK(inputs.K.size() == 2 * 2 * 7 * 64);
    CHECK(inputs.K != inputs.V);
    // Recorded once: the same on every machine and with every compiler.
    CHECK(std::vector<std::uint16_t>(inputs.Q.begin(), inputs.Q.begin() + 4) ==
          std::vector<std::uint16_t>{48202, 12832, 13471, 13988});
    c.seed = 2;
    CHECK(make_inputs(c).Q != inputs.Q);
}

TEST_CASE("every input kind is what it says") {
    for (const DType dtype : {DType::fp16, DType::bf16}) {
        for (const int d : {64, 128}) {
            Matrix biased;  // without its means
            for (const InputKind& kind : input_kinds()) {
                CAPTURE(kind.name, d, name(dtype));
                Case c = make_case({1, 1, 1, 40, 256, d}, dtype);
                c.input = kind.name;
                Answer a{c, make_inputs(c), {}};
                const auto as_matrix = [&](std::vector<std::uint16_t>& tensor, int N) -> Matrix {
                    return with_type(dtype, [&](auto type) -> Matrix {
                        const View view = dense_view(tensor.data(), 1, N, d);
                        return head_of<decltype(type)>(view, 0, 0, N, d).template cast<double>();
                    });
                };
                const Matrix Q = as_matrix(a.inputs.Q, 40), K = as_matrix(a.inputs.K, 256);
                const double mean = std::string(kind.name) == "same_sign" ? 4 : 0;
                const Matrix V = as_matrix(a.inputs.V, 256).array() - mean;
                const Matrix S = c.softmax_scale() * Q * K.transpose();
                const std::string input = kind.name;
                if (input == "outliers") {  // of which about half are that large
                    for (const Matrix& X : {K, V}) {
                        const auto large = (X.array().abs() > 6.5).count();
                        CHECK(large >= X.size() / 4000);
                        CHECK(large <= X.size() / 1000);
                    }
                    continue;
                }

                if (input == "zeros") {  // rows 128 to 255 of a head that has others
                    for (const Matrix& X : {K, V}) {
                        CHECK(X.bottomRows(128).isZero(0));
                        CHECK(std::abs(X.topRows(128).squaredNorm() / X.size() - 0.5) < 0.05);
                    }
                    continue;
                }

                if (input == "biased" || input == "smoothed") {  // the same but for the means
                    const Eigen::RowVectorXd means = K.colwise().mean();
                    CHECK((input == "biased" ? means.squaredNorm() > 8 * d : means.norm() < 0.02));
                    const Matrix centered = K.rowwise() - means;
                    CHECK(std::abs(centered.squaredNorm() / K.size() - 1) < 0.05);
                    if (!biased.size()) biased = centered;
                    CHECK((centered - biased).cwiseAbs().maxCoeff() < (dtype == DType::fp16 ? 0.02 : 0.1));
                }
                CHECK(std::abs(V.mean()) < 0.05);
                CHECK(std::abs(V.squaredNorm() / V.size() - 1) < 0.05);
                CHECK(V.maxCoeff() > 3);
                CHECK(V.maxCoeff() < 6.5);
                if (input == "normal") CHECK(std::abs(S.squaredNorm() / S.size() - 1) < 0.2);
                if (input == "huge") {
                    CHECK(S.maxCoeff() > 8e6);
                    CHECK(S.minCoeff() < -8e6);
                    CHECK(S.cwiseAbs().maxCoeff() < 3e7);
                    for (const auto& [pass, seed] : {std::pair{Pass::forward, 2}, {Pass::backward, 1}}) {
                        c.pass = pass;
                        c.seed = static_cast<std::uint64_t>(seed);
                        Inputs smaller = make_inputs(c);
                        const Matrix S_smaller = c.softmax_scale() * as_matrix(smaller.Q, 40) *
                                                 as_matrix(smaller.K, 256).transpose();
                        CHECK(S_smaller.maxCoeff() > 8e3);
                        CHECK(S_smaller.cwiseAbs().maxCoeff() < 3e4);
                    }
                }
                if (input == "huge_constant") {
                    CHECK((S.rowwise().maxCoeff() - S.rowwise().minCoeff()).maxCoeff() < 1e-6);
                    CHECK(S.maxCoeff() > 3e6);
                    CHECK(S.minCoeff() < -3e6);
                    CHECK((S.col(0).array() < -1e4).count() >
                          10);  // so that exp(S - 0) is 0 in all of such a row
                }
                if (input == "rising" || input == "falling") {
                    for (int tile = 1; tile < 4; ++tile) {
                        const Eigen::VectorXd before = S.middleCols(64 * (tile - 1), 64).rowwise().maxCoeff();
                        const Eigen::VectorXd here = S.middleCols(64 * tile, 64).rowwise().maxCoeff();
                        CHECK((input == "rising" ? here - before : before - here).minCoeff() > 1);
                    }
                }
                if (input == "constant") {
                    CHECK((S.rowwise().maxCoeff() - S.rowwise().minCoeff()).maxCoeff() < 1e-12);
                    CHECK(S.cwiseAbs().maxCoeff() > 0.5);
                }
                if (input == "one_hot") {
                    std::set<Eigen::Index> keys;
                    for (int i = 0; i < 40; ++i) {
                        Eigen::Index key = 0;
                        const double top = S.row(i).maxCoeff(&key);
                        keys.insert(key);
                        CHECK((S.row(i).array() > top - 10).count() == 1);
                    }
                    CHECK(keys.size() > 20);
                }
            }
        }
    }
}

TEST_CASE("one_hot puts each row's weight on a key that it sees") {
    Case c = make_case({1, 4, 2, 40, 50, 64}, DType::fp16, true);
    c.input = "one_hot";
    Answer a = answer(c);
    for (int h = 0; h < 4; ++h) {
        for (int row = 0; row < 40; ++row) CHECK(std::abs(a.L(0, h, row) - 64) < 1);
    }
}

TEST_CASE("inputs that make no sense are refused") {
    Case c = make_case({});
    c.input = "nothing";
    CHECK_THROWS_AS(make_inputs(c), BadUsage);
    c.input = "huge";
    c.scale = 1e-12f;  // would need Q and K beyond fp16
    CHECK_THROWS_AS(make_inputs(c), BadUsage);
}

TEST_CASE("the inputs of the backward pass are those of the forward one, dO, and the O and L of attention") {
    const Case c = gradient_case({2, 4, 2, 5, 7, 64}, DType::bf16, true, Layout::bnhd);
    const Inputs inputs = make_inputs(c);
    Case forward = c;
    forward.pass = Pass::forward;
    const Answer a = answer(forward);
    CHECK(inputs.Q == a.inputs.Q);
    CHECK(inputs.V == a.inputs.V);
    CHECK(inputs.dO.size() == inputs.Q.size());
    CHECK(inputs.dO != inputs.Q);
    CHECK(inputs.O == a.outputs.O);
    CHECK(inputs.L == a.outputs.L);
    CHECK(a.inputs.dO.empty());
    CHECK(contains(description_of(c), "d=64 bf16 backward causal bnhd"));
    CHECK(description_of(c) != description_of(forward));
    Stage stage = gradient_stage();
    stage.tilings = {{64, 128, 2}, {64, 64, 3}};  // rings of query tiles, which wrap
    const auto cases = verification_cases(stage, Cover::each);
    for (const Case& one : cases) CHECK(one.pass == Pass::backward);
    for (const auto& [d, rows] : {std::pair{64, 5 * 64}, {128, 7 * 64}}) {
        CHECK(std::any_of(cases.begin(), cases.end(), [d = d, rows = rows](const Case& one) {
            return one.shape.d == d && one.shape.Nq > rows;
        }));
    }
}

}  // namespace
