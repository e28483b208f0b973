#include "tests/answers.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/features/features.h"
#include "harness/problem/tensors.h"

namespace ladder::test {
namespace {

/// The case whose tensors lie as the host has them.
Case on_host(const Case& c) {
    Case dense = c;
    dense.layout = Layout::bhnd;
    return dense;
}

}  // namespace

Case make_case(Shape shape, DType dtype, bool causal, Layout layout) {
    Case c;
    c.shape = shape;
    c.dtype = dtype;
    c.causal = causal;
    c.layout = layout;
    return c;
}

Stage make_stage() {
    Stage stage;
    stage.number = 7;
    stage.name = "fake";
    stage.head_dims = {64, 128};
    return stage;
}

Stage gradient_stage() {
    Stage stage = make_stage();
    stage.pass = Pass::backward;
    return stage;
}

Case gradient_case(Shape shape, DType dtype, bool causal, Layout layout) {
    Case c = make_case(shape, dtype, causal, layout);
    c.pass = Pass::backward;
    return c;
}

std::uint16_t& Answer::stored(int b, int h, int row, int column) {
    const View v = dense_view(nullptr, c.shape.H, c.shape.Nq, c.shape.d);
    return outputs.O[b * v.batch + h * v.head + row * v.row + column];
}

float Answer::get(int b, int h, int row, int column) {
    return with_type(c.dtype, [&](auto type) {
        return static_cast<float>(std::bit_cast<decltype(type)>(stored(b, h, row, column)));
    });
}

void Answer::set(int b, int h, int row, int column, float o) {
    stored(b, h, row, column) = with_type(
        c.dtype, [&](auto type) { return std::bit_cast<std::uint16_t>(static_cast<decltype(type)>(o)); });
}

void Answer::spoil(const std::function<bool(int b, int h, int row, int column)>& where, float by) {
    const Shape& s = c.shape;
    for (int b = 0; b < s.B; ++b) {
        for (int h = 0; h < s.H; ++h) {
            for (int row = 0; row < s.Nq; ++row) {
                for (int column = 0; column < s.d; ++column) {
                    if (where(b, h, row, column)) set(b, h, row, column, get(b, h, row, column) + by);
                }
            }
        }
    }
}

reference::Result exact(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
    return reference::attention(Q, K, V, c.softmax_scale(), {c.causal, c.shape.Nq, c.shape.Nk});
}

reference::Result standard(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(c.shape.Nq, 0, c.shape.Nq - 1);
    const reference::Mask mask{c.causal, c.shape.Nq, c.shape.Nk};
    auto result = with_type(c.dtype, [&](auto type) {
        return reference::standard_attention<decltype(type)>(Q, rows, K, V, c.softmax_scale(), mask);
    });
    result.L =
        exact(Q, K, V, c).L;  // the ladder keeps scores in fp32, so L is held to more than 16-bit scores give
    return result;
}

reference::Result as_a_kernel(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c) {
    using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const int Nq = c.shape.Nq, Nk = c.shape.Nk;
    const reference::Mask mask{c.causal, Nq, Nk};
    const float scale_log2 = c.softmax_scale() * 1.44269504f;
    reference::Result result{Matrix::Zero(Nq, V.cols()), reference::Vector::Constant(Nq, -infinity)};
    for (int i = 0; i < Nq; ++i) {
        float m = -infinity, l = 0;
        Eigen::RowVectorXf O = Eigen::RowVectorXf::Zero(V.cols());
        for (int first = 0; first < mask.visible(i); first += 64) {
            const int n = std::min(64, mask.visible(i) - first);
            const Eigen::VectorXf s =
                scale_log2 * (K.middleRows(first, n).cast<float>() * Q.row(i).cast<float>().transpose());
            const float m_new = std::max(m, s.maxCoeff());
            const float rescale = std::exp2(m - m_new);
            const Eigen::VectorXf p = s.unaryExpr([&](float x) { return std::exp2(x - m_new); });
            const Eigen::VectorXf P = with_type(c.dtype, [&](auto type) -> Eigen::VectorXf {
                return p.template cast<decltype(type)>().template cast<float>();
            });
            l = rescale * l + p.sum();
            O = rescale * O + P.transpose() * MatrixF(V.middleRows(first, n).cast<float>());
            m = m_new;
        }
        if (l == 0) continue;
        result.O.row(i) = (O / l).cast<double>();
        result.L[i] = m * 0.693147181f + std::log(l);
    }
    return result;
}

void attend(const Problem& p, const Head& head) {
    Case c = make_case(p, p.dtype, p.causal);
    c.scale = p.scale;
    with_type(p.dtype, [&](auto type) {
        using T = decltype(type);
        for (int b = 0; b < p.B; ++b) {
            for (int h = 0; h < p.H; ++h) {
                const int kv = h / (p.H / p.Hkv);
                const auto result = head(head_of<T>(p.Q, b, h, p.Nq, p.d).template cast<double>(),
                                         head_of<T>(p.K, b, kv, p.Nk, p.d).template cast<double>(),
                                         head_of<T>(p.V, b, kv, p.Nk, p.d).template cast<double>(), c);
                head_of<T>(p.O, b, h, p.Nq, p.d) = result.O.template cast<T>();
                Eigen::Map<Eigen::VectorXf>(p.L + (b * p.H + h) * p.Nq, p.Nq) =
                    result.L.template cast<float>();
            }
        }
    });
}

void attend_exactly(const Problem& p) {
    attend(p, exact);
}

Answer answer(const Case& c, const Head& head) {
    Answer a{c, make_inputs(c), {}};
    const Shape& s = c.shape;
    a.outputs.O.resize(a.inputs.Q.size());
    a.outputs.L.resize(static_cast<std::size_t>(s.B) * s.H * s.Nq);
    attend(make_problem(on_host(c), {.Q = a.inputs.Q.data(),
                                     .K = a.inputs.K.data(),
                                     .V = a.inputs.V.data(),
                                     .O = a.outputs.O.data(),
                                     .L = a.outputs.L.data()}),
           head);
    return a;
}

void differentiate(const Problem& p, Mistake mistake) {
    using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const int group = p.H / p.Hkv;
    const reference::Mask mask{p.causal && mistake != Mistake::mask_forgotten, p.Nq, p.Nk};
    with_type(p.dtype, [&](auto type) {
        using T = decltype(type);
        const auto rounded = [](const MatrixF& x) -> MatrixF {
            return x.template cast<T>().template cast<float>();
        };
        const auto of = [&](const View& view, int b, int h, int N) -> MatrixF {
            return head_of<T>(view, b, h, N, p.d).template cast<float>();
        };
        for (int item = 0; item < p.B * p.Hkv; ++item) {
            const int b = item / p.Hkv, kv = item % p.Hkv;
            const MatrixF K = of(p.K, b, kv, p.Nk), V = of(p.V, b, kv, p.Nk);
            MatrixF dK = MatrixF::Zero(p.Nk, p.d), dV = dK;
            for (int h = kv * group; h < (kv + 1) * group; ++h) {
                const MatrixF Q = of(p.Q, b, h, p.Nq), dO = of(p.dO, b, h, p.Nq), O = of(p.O, b, h, p.Nq);
                Eigen::VectorXf D =
                    dO.cwiseProduct(mistake == Mistake::D_of_dO_alone ? dO : O).rowwise().sum();
                if (mistake == Mistake::no_D) D.setZero();
                MatrixF P = Q * K.transpose(), dS = dO * V.transpose();
                for (int i = 0; i < p.Nq; ++i) {
                    int seen = mask.visible(i);
                    if (mistake == Mistake::last_key_forgotten) seen = std::min(seen, p.Nk - 1);
                    if (p.causal && !mask.causal && p.L[(b * p.H + h) * p.Nq + i] == -infinity) seen = 0;
                    const float L = p.L[(b * p.H + h) * p.Nq + i];
                    const float L_2 = mistake == Mistake::L_in_base_2 ? L : L * 1.44269504f;
                    for (int j = 0; j < p.Nk; ++j)
                        P(i, j) = j < seen ? std::exp2(p.scale * 1.44269504f * P(i, j) - L_2) : 0.0f;
                    const float D_i = mistake == Mistake::D_of_P             ? P.row(i).dot(dS.row(i))
                                      : mistake == Mistake::D_of_another_row ? D[(i + 1) % p.Nq]
                                                                             : D[i];
                    for (int j = 0; j < p.Nk; ++j) dS(i, j) = j < seen ? P(i, j) * (dS(i, j) - D_i) : 0.0f;
                }
                P = rounded(P);
                dS = rounded(dS);
                const float dQ_scale = mistake == Mistake::dQ_not_scaled     ? 1.0f
                                       : mistake == Mistake::dQ_scaled_twice ? p.scale * p.scale
                                                                             : p.scale;
                head_of<T>(p.dQ, b, h, p.Nq, p.d) = (dQ_scale * dS * K).template cast<T>();
                if (mistake == Mistake::one_head_of_group) dK.setZero();
                dK += dS.transpose() * Q;
                dV += (mistake == Mistake::dV_of_dS ? dS : P).transpose() * dO;
            }
            const float dK_scale = mistake == Mistake::dK_not_scaled     ? 1.0f
                                   : mistake == Mistake::dK_scaled_twice ? p.scale * p.scale
                                                                         : p.scale;
            head_of<T>(p.dK, b, kv, p.Nk, p.d) = (dK_scale * dK).template cast<T>();
            head_of<T>(p.dV, b, kv, p.Nk, p.d) = dV.template cast<T>();
        }
    });
}

Outputs gradients(const Case& c, const Inputs& inputs, Mistake mistake) {
    Outputs outputs;
    outputs.dQ.resize(inputs.Q.size());
    outputs.dK.resize(inputs.K.size());
    outputs.dV.resize(inputs.V.size());
    Inputs from = inputs;
    differentiate(make_problem(on_host(c), {.Q = from.Q.data(),
                                            .K = from.K.data(),
                                            .V = from.V.data(),
                                            .O = from.O.data(),
                                            .L = from.L.data(),
                                            .dO = from.dO.data(),
                                            .dQ = outputs.dQ.data(),
                                            .dK = outputs.dK.data(),
                                            .dV = outputs.dV.data()}),
                  mistake);
    return outputs;
}

}  // namespace ladder::test
