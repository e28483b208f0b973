/// @file
/// What changes scores and row sums: softcap, ALiBi and sinks, in the reference and as features.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "harness/cases/inputs.h"
#include "harness/cases/random.h"
#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/one_case.h"
#include "harness/verify/verdict.h"
#include "reference/attention.h"
#include "stages/errors.h"
#include "tests/answers.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/fake_device.h"

namespace ladder::test {
namespace {

using reference::Gradients;
using reference::Mask;
using reference::Vector;

constexpr double no_sink = -std::numeric_limits<double>::infinity();

Matrix drawn_matrix(int rows, int columns, unsigned seed, double size = 1) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-size, size);
    return Matrix::NullaryExpr(rows, columns, [&] { return uniform(random); });
}

struct Terms {
    double softcap, slope, sink;
};

/// One of each alone, and together
const Terms all_terms[] = {{0.4, 0, no_sink}, {0, 0.3, no_sink}, {0, 0, 0.7}, {1.5, 0.25, -0.5}};

Mask with(Mask mask, const Terms& terms) {
    mask.scores = {.softcap = terms.softcap, .slope = terms.slope};
    mask.sink = terms.sink;
    return mask;
}

/// From the definition, one number at a time.
reference::Result by_definition(const Matrix& Q, const Matrix& K, const Matrix& V, double scale,
                                const Mask& mask, const Terms& terms) {
    reference::Result result{Matrix::Zero(Q.rows(), V.cols()), Vector(Q.rows())};
    for (int i = 0; i < Q.rows(); ++i) {
        double sum = std::exp(terms.sink);
        for (int j = mask.first(i); j < mask.end(i); ++j) {
            double s = scale * Q.row(i).dot(K.row(j));
            if (terms.softcap > 0) s = terms.softcap * std::tanh(s / terms.softcap);
            const double weight = std::exp(s - terms.slope * std::abs(i + mask.Nk - mask.Nq - j));
            sum += weight;
            result.O.row(i) += weight * V.row(j);
        }
        if (sum > 0) result.O.row(i) /= sum;
        result.L[i] = std::log(sum);
    }
    return result;
}

}  // namespace

TEST_CASE("scores: softcap, ALiBi and sinks are what their formulas say") {
    for (const auto& [Nq, Nk] : {std::pair{7, 7}, {3, 70}, {70, 5}}) {
        for (const bool causal : {false, true}) {
            for (const Terms& terms : all_terms) {
                CAPTURE(Nq, Nk, causal, terms.softcap, terms.slope, terms.sink);
                const Matrix Q = drawn_matrix(Nq, 4, 1, 2), K = drawn_matrix(Nk, 4, 2, 2),
                             V = drawn_matrix(Nk, 3, 3);
                const Mask mask = with({causal, Nq, Nk}, terms);
                const auto expected = by_definition(Q, K, V, 0.7, mask, terms),
                           got = reference::attention(Q, K, V, 0.7, mask);
                CHECK((got.O - expected.O).cwiseAbs().maxCoeff() < 1e-13);
                for (int i = 0; i < Nq; ++i)
                    CHECK((got.L[i] == expected.L[i] || std::abs(got.L[i] - expected.L[i]) < 1e-13));
                if (causal && Nq > Nk) {  // a row that sees no key
                    CHECK(got.O.row(0).isZero(0));
                    CHECK(got.L[0] == terms.sink);
                }
            }
        }
    }
}

TEST_CASE("scores: a sink of any size is finite, and none is a sink of -inf") {
    const Matrix Q = drawn_matrix(3, 4, 1), K = drawn_matrix(5, 4, 2), V = drawn_matrix(5, 4, 3);
    const auto none = reference::attention(Q, K, V, 1, {false, 3, 5});
    const auto large = reference::attention(Q, K, V, 1, with({false, 3, 5}, {0, 0, 1e4}));
    CHECK(large.O.isZero(1e-99));  // exp(-inf) may be 1e-308
    CHECK((large.L.array() == 1e4).all());
    const auto small = reference::attention(Q, K, V, 1, with({false, 3, 5}, {0, 0, -1e4}));
    CHECK((small.O == none.O && small.L == none.L));
}

TEST_CASE("scores: distances are from the row's position in its document") {
    const Matrix Q = drawn_matrix(9, 4, 1), K = drawn_matrix(8, 4, 2), V = drawn_matrix(8, 4, 3);
    const Terms terms{2, 0.5, 0.25};
    Mask mask = with({true, 9, 8}, terms);
    mask.documents = {{0, 4, 0, 3}, {4, 9, 3, 8}};
    const auto packed = reference::attention(Q, K, V, 1, mask);
    for (const auto& [row, end_row, key, end_key] : mask.documents) {
        const int rows = end_row - row, keys = end_key - key;
        const auto own = by_definition(Q.middleRows(row, rows), K.middleRows(key, keys),
                                       V.middleRows(key, keys), 1, {true, rows, keys}, terms);
        CHECK((packed.O.middleRows(row, rows) - own.O).cwiseAbs().maxCoeff() < 1e-14);
        CHECK((packed.L.segment(row, rows) - own.L).cwiseAbs().maxCoeff() < 1e-14);
    }
}

TEST_CASE("scores: the gradients are what finite differences are, the sink's too") {
    for (const auto& [Nq, Nk] : {std::pair{9, 9}, {9, 4}, {4, 9}}) {
        for (const bool causal : {false, true}) {
            for (const int kept : {256, 128}) {
                for (const Terms& terms : all_terms) {
                    CAPTURE(Nq, Nk, causal, kept, terms.softcap, terms.slope, terms.sink);
                    const Matrix Q = drawn_matrix(Nq, 3, 1), K = drawn_matrix(Nk, 3, 2),
                                 V = drawn_matrix(Nk, 3, 3), dO = drawn_matrix(Nq, 3, 4);
                    Mask mask = with({causal, Nq, Nk}, terms);
                    mask.dropout = {kept, 5, 2, 1};
                    const auto loss = [&](const Matrix& Qs, const Matrix& Ks, const Matrix& Vs,
                                          const Mask& under) {
                        return dO.cwiseProduct(reference::attention(Qs, Ks, Vs, 0.9, under).O).sum();
                    };
                    constexpr double h = 1e-5;
                    const auto by_differences = [&](Matrix X, auto&& f) {
                        Matrix gradient(X.rows(), X.cols());
                        for (Eigen::Index i = 0; i < X.size(); ++i) {
                            const double x = X.data()[i];
                            X.data()[i] = x + h;
                            const double above = f(X);
                            X.data()[i] = x - h;
                            gradient.data()[i] = (above - f(X)) / (2 * h);
                            X.data()[i] = x;
                        }
                        return gradient;
                    };
                    const auto near = [](const Matrix& a, const Matrix& b) {
                        return (a - b).cwiseAbs().maxCoeff() < 1e-8;
                    };
                    const Gradients all = reference::attention_gradient(Q, K, V, dO, 0.9, mask);
                    CHECK(near(all.dQ, by_differences(Q, [&](auto& X) { return loss(X, K, V, mask); })));
                    CHECK(near(all.dK, by_differences(K, [&](auto& X) { return loss(Q, X, V, mask); })));
                    CHECK(near(all.dV, by_differences(V, [&](auto& X) { return loss(Q, K, X, mask); })));
                    Mask above = mask, below = mask;
                    above.sink += h, below.sink -= h;
                    const double dsink = (loss(Q, K, V, above) - loss(Q, K, V, below)) / (2 * h);
                    CHECK(std::abs(all.dsink - (terms.sink == no_sink ? 0 : dsink)) < 1e-8);

                    // The same from O and L
                    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(Nq, 0, Nq - 1),
                                          keys = Eigen::VectorXi::LinSpaced(Nk, 0, Nk - 1);
                    const auto forward = reference::attention(Q, K, V, 0.9, mask);
                    const Gradients from_L =
                        reference::attention_gradient(Q, rows, K, keys, V, dO, forward, 0.9, mask);
                    CHECK(near(from_L.dQ, all.dQ));
                    CHECK(near(from_L.dK, all.dK));
                    CHECK(near(from_L.dV, all.dV));
                    CHECK(std::abs(from_L.dsink - all.dsink) < 1e-12);
                    CHECK((from_L.dsink_terms > 0) == (terms.sink > no_sink));
                }
            }
        }
    }
}

namespace {

/// What a kernel writes that computes with such masks, rounded once.
Outputs outputs_of(const Case& c, const Inputs& inputs, const std::function<void(Mask&)>& change) {
    const Shape& s = c.shape;
    Outputs outputs;
    const bool forward = c.pass == Pass::forward;
    outputs.O.resize(forward ? inputs.Q.size() : 0);
    outputs.L.resize(forward ? std::size_t(s.B) * s.H * s.Nq : 0);
    outputs.dQ.resize(forward ? 0 : inputs.Q.size());
    outputs.dK.resize(forward ? 0 : inputs.K.size());
    outputs.dV.resize(forward ? 0 : inputs.V.size());
    outputs.dsinks.resize(forward || c.features.sinks.empty() ? 0 : s.H);
    with_type(c.dtype, [&](auto type) {
        using T = decltype(type);
        const auto view = [&](const auto& tensor, int b, int h, int heads, int N) {
            auto* data = const_cast<std::uint16_t*>(tensor.data());
            return head_of<T>(dense_view(data, heads, N, s.d), b, h, N, s.d);
        };
        const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(s.Nq, 0, s.Nq - 1),
                              keys = Eigen::VectorXi::LinSpaced(s.Nk, 0, s.Nk - 1);
        for (int head = 0; head < s.B * s.Hkv; ++head) {
            const int b = head / s.Hkv, kv = head % s.Hkv, group = s.H / s.Hkv;
            const Matrix K = view(inputs.K, b, kv, s.Hkv, s.Nk).template cast<double>(),
                         V = view(inputs.V, b, kv, s.Hkv, s.Nk).template cast<double>();
            Matrix dK = Matrix::Zero(s.Nk, s.d), dV = dK;
            for (int h = kv * group; h < (kv + 1) * group; ++h) {
                Mask mask = mask_of(c, b, h);
                change(mask);
                const Matrix Q = view(inputs.Q, b, h, s.H, s.Nq).template cast<double>();
                float* const L = const_cast<float*>((forward ? outputs.L : inputs.L).data());
                Eigen::Map<Eigen::VectorXf> L_of_rows(L + (b * s.H + h) * s.Nq, s.Nq);
                if (forward) {
                    const auto result = reference::attention(Q, K, V, c.softmax_scale(), mask);
                    view(outputs.O, b, h, s.H, s.Nq) = result.O.template cast<T>();
                    L_of_rows = result.L.template cast<float>();
                    continue;
                }
                const Gradients all = reference::attention_gradient(
                    Q, rows, K, keys, V, view(inputs.dO, b, h, s.H, s.Nq).template cast<double>(),
                    {view(inputs.O, b, h, s.H, s.Nq).template cast<double>(),
                     L_of_rows.template cast<double>()},
                    c.softmax_scale(), mask);
                view(outputs.dQ, b, h, s.H, s.Nq) = all.dQ.template cast<T>();
                dK += all.dK, dV += all.dV;
                if (!outputs.dsinks.empty()) outputs.dsinks[h] += static_cast<float>(all.dsink);
            }
            if (forward) continue;
            view(outputs.dK, b, kv, s.Hkv, s.Nk) = dK.template cast<T>();
            view(outputs.dV, b, kv, s.Hkv, s.Nk) = dV.template cast<T>();
        }
    });
    return outputs;
}

}  // namespace

TEST_CASE("scores: the judge takes what is right, and nothing where one of them is left out or wrong") {
    const Pass pass = GENERATE(Pass::forward, Pass::backward);
    const DType dtype = GENERATE(DType::fp16, DType::bf16);
    const std::string options = GENERATE("--softcap 1", "--softcap 30 --scale 0.5", "--softcap 5 --scale 1",
                                         "--alibi drawn", "--alibi geometric", "--sinks drawn",
                                         "--sinks extreme", "--softcap 5 --alibi drawn --sinks drawn");
    Case c = parse_case("--shape 2,6,2,70,66,64 --causal " + options);
    c.pass = pass, c.dtype = dtype;
    CAPTURE(name(pass), name(dtype), options);
    const Inputs inputs = make_inputs(c);
    const auto verdict = [&](const std::function<void(Mask&)>& change) {
        return judge(c, inputs, outputs_of(c, inputs, change));
    };
    const Verdict right = verdict([](Mask&) {});
    CHECK(right.report == "");
    CHECK(right.passed);
    // A GPU's tanh, and one of fewer bits than P is rounded to
    CHECK(verdict([](Mask& mask) { mask.scores.tanh_bits = 11; }).passed);
    if (c.features.softcap > 0) {
        CHECK(!verdict([&](Mask& mask) { mask.scores.tanh_bits = dtype == DType::fp16 ? 6 : 4; }).passed);
        CHECK(!verdict([](Mask& mask) { mask.scores.softcap = 0; }).passed);
    }
    if (!c.features.alibi.empty()) {
        CHECK(!verdict([](Mask& mask) { mask.scores.slope = 0; }).passed);
        CHECK(!verdict([](Mask& mask) { mask.scores.slope *= 1.1; }).passed);
    }
    if (!c.features.sinks.empty()) CHECK(!verdict([](Mask& mask) { mask.sink += 0.1; }).passed);
}

TEST_CASE("scores: dsinks are judged by head, and reported by head") {
    Case c = parse_case("--shape 2,6,2,70,66,64 --sinks drawn");
    c.pass = Pass::backward;
    const Inputs inputs = make_inputs(c);
    Outputs outputs = outputs_of(c, inputs, [](Mask&) {});
    REQUIRE(judge(c, inputs, outputs).passed);
    outputs.dsinks[4] *= 1.01f;
    const Verdict wrong = judge(c, inputs, outputs);
    CHECK(!wrong.passed);
    CAPTURE(wrong.report);
    CHECK(wrong.report.starts_with("dsinks is wrong in 1 of 6 elements"));
    CHECK(wrong.report.find("worst at h=4: expected") != std::string::npos);
    CHECK(wrong.report.find("only h = 4") != std::string::npos);
    outputs.dsinks[4] = std::bit_cast<float>(unwritten_half * 0x10001u);
    CHECK(judge(c, inputs, outputs).report.starts_with("dsinks was not written in 1 of 6 elements"));
}

TEST_CASE("scores: a stage gets slopes and sinks in memory, and writes dsinks between canaries") {
    Case c = parse_case("--shape 2,4,2,37,65,64 --causal --softcap 20 --alibi drawn --sinks drawn");
    c.pass = Pass::backward;
    const Inputs inputs = make_inputs(c);
    Stage stage = gradient_stage();
    stage.takes = {Feature::softcap, Feature::alibi, Feature::sinks};
    stage.batch_invariant = false;  // one request alone has no dsinks
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            CHECK(p.softcap == 20);
            for (int b = 0; b < 2; ++b) {
                for (int h = 0; h < 4; ++h) {
                    const Mask mask = mask_of(c, b, h);
                    CHECK(p.alibi_slopes[b * p.alibi_batch_stride + h] == mask.scores.slope);
                    CHECK(p.sinks[h] == mask.sink);
                }
            }
            const Outputs outputs = outputs_of(c, inputs, [](Mask&) {});
            const auto write = [](void* data, const auto& from) {
                std::memcpy(data, from.data(), from.size() * sizeof(from[0]));
            };
            write(p.dQ.data, outputs.dQ), write(p.dK.data, outputs.dK), write(p.dV.data, outputs.dV);
            REQUIRE(std::isnan(p.dsinks[0]));
            write(p.dsinks, outputs.dsinks);
            damage(p);
        });
        return verify(device, stage, c);
    };
    const Verdict right = verdict_of([](const Problem&) {});
    CHECK(right.report == "");
    CHECK(right.passed);
    CHECK(verdict_of([](const Problem& p) {
              p.dsinks[4] = 0;
          }).report.starts_with("wrote outside of dsinks: to element 4 of 4"));
    CHECK(verdict_of([](const Problem& p) {
              p.dsinks[3] += 1;
          }).report.starts_with("dsinks is wrong in 1 of 4 elements"));
    stage.takes.pop_back();
    CHECK_THROWS_WITH(require_taken(stage, c), "07_fake does not take attention sinks");
}

TEST_CASE("scores: they are written as they are, and a stage that takes none refuses each by name") {
    const std::string options = "--shape 1,6,2,64,64,64 --softcap 0.1 --alibi drawn --sinks extreme";
    const Case c = parse_case(options);
    CHECK(options_of(c) == options);
    CHECK(description_of(c).ends_with("normal softcap=0.1 alibi=drawn sinks=extreme"));
    for (const auto& [option, feature] : {std::pair{"--softcap 30", Feature::softcap},
                                          {"--alibi geometric", Feature::alibi},
                                          {"--sinks drawn", Feature::sinks}}) {
        const Case one = parse_case(std::string("--shape 1,1,1,64,64,64 ") + option);
        for (const Stage& stage : stages()) {
            const bool taken = takes(stage, feature);
            CHECK(why_not_taken(stage, one) ==
                  (taken ? "" : stage.folder() + " does not take " + name(feature)));
        }
    }
    for (const char* wrong : {"--softcap 0", "--softcap -1", "--softcap inf", "--softcap nan", "--softcap x",
                              "--alibi 1", "--sinks 1"}) {
        CAPTURE(wrong);
        CHECK_THROWS_AS(parse_case(std::string("--shape 1,1,1,64,64,64 ") + wrong), BadUsage);
    }
}

TEST_CASE("scores: a stage that takes them is verified on each, on all together and at corners") {
    Stage stage = stage_that({.takes = {Feature::window}, .pass = GENERATE(Pass::forward, Pass::backward)});
    for (const Feature feature : {Feature::softcap, Feature::alibi, Feature::sinks})
        stage.takes.push_back(feature);
    const std::vector<Case> cases = verification_cases(stage, Cover::pairs);
    const auto some = [&](auto&& holds) {
        return std::ranges::any_of(cases, [&](const Case& c) {
            CHECK(c.pass == stage.pass);
            return why_not_taken(stage, c).empty() && holds(c, c.features);
        });
    };
    const auto hides_rows = [](const Case& c) { return c.causal && c.shape.Nq > c.shape.Nk; };
    CHECK(some([](const Case& c, const Features& f) {
        return c.shape.H > c.shape.Hkv && f.softcap > 0 && f.alibi == "drawn" && f.sinks == "drawn" &&
               f.window != Window();
    }));
    CHECK(some([](const Case&, const Features& f) { return f == Features(); }));
    for (const float softcap : {1.0f, 1e4f})
        CHECK(some([&](const Case& c, const Features& f) { return hides_rows(c) && f.softcap == softcap; }));
    for (const char* alibi : {"drawn", "geometric", "zero"})
        CHECK(some([&](const Case&, const Features& f) { return f.alibi == alibi; }));
    CHECK(some([&](const Case& c, const Features& f) { return hides_rows(c) && f.alibi == "drawn"; }));
    for (const char* sinks : {"drawn", "extreme"})
        CHECK(some([&](const Case& c, const Features& f) { return hides_rows(c) && f.sinks == sinks; }));

    Case large = parse_case(
        "--shape 2,6,2,70,66,64 --causal --softcap 100 --alibi drawn --sinks extreme --input rising");
    large = shrink(large, [](const Case& c) { return c.features.softcap > 0 && !c.features.sinks.empty(); });
    CHECK(options_of(large) == "--shape 1,1,1,1,1,64 --softcap 50 --sinks drawn");
}

TEST_CASE("scores: slopes and sinks are the same numbers for a kernel, the reference and a sample") {
    Case c = parse_case("--shape 3,6,2,64,64,64 --alibi drawn --sinks extreme --seed 5");
    const auto numbers_of = [&](Feature feature) {
        return std::get<std::vector<float>>(info_of(feature).numbers(c));
    };
    const std::vector<float> slopes = numbers_of(Feature::alibi), sinks = numbers_of(Feature::sinks);
    REQUIRE((slopes.size() == 18 && sinks.size() == 6));
    CHECK((sinks[0] == 1e4f && sinks[1] == -1e4f));
    CHECK(std::set(slopes.begin(), slopes.end()).size() > 8);
    const Problem p =
        make_problem(c, {.numbers = {{Feature::alibi, slopes.data()}, {Feature::sinks, sinks.data()}}});
    CHECK(p.alibi_slopes == slopes.data());
    CHECK(p.alibi_batch_stride == 6);
    CHECK(p.sinks == sinks.data());
    for (int b = 0; b < 3; ++b) {
        for (int h = 0; h < 6; ++h) {
            CHECK(mask_of(c, b, h).scores.slope == slopes[b * 6 + h]);
            CHECK(mask_of(c, b, h).sink == sinks[h]);
        }
    }
    Case sample = c;
    sample.shape = {.B = 2, .H = 3, .Hkv = 1, .Nq = 64, .Nk = 64, .d = 64};
    sample.sampled = {{0, 3}, {2, 3}};
    CHECK(mask_of(sample, 1, 2).scores.slope == slopes[17]);
    CHECK(mask_of(sample, 1, 2).sink == sinks[5]);
    c.features.alibi = "geometric";
    CHECK(numbers_of(Feature::alibi) == std::vector<float>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625});
    CHECK(make_problem(c, {}).alibi_batch_stride == 0);
}

}  // namespace ladder::test
