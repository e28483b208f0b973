#include "reference/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

namespace reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Query rows whose scores are in memory together. Those of a whole long sequence would not fit.
constexpr Eigen::Index block_rows = 64;

/// What happens to a number on its way through memory: nothing.
struct AsItIs {
    template <class X>
    const X& operator()(const X& x) const {
        return x;
    }
};

/// It is stored as a T, and read again.
template <class T>
struct Rounded {
    template <class X>
    auto operator()(const X& x) const {
        return x.template cast<T>().template cast<float>().eval();
    }
};

template <class Real>
using MatrixOf = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// In this type, without a copy where it has it already.
template <class Real>
MatrixOf<Real> as(Matrix X) {
    if constexpr (std::is_same_v<Real, double>) {
        return X;
    } else {
        return X.cast<Real>();
    }
}

template <class Real>
Real rounded_to(int bits, Real x) {
    int exponent = 0;
    const Real fraction = std::frexp(x, &exponent);
    return std::ldexp(std::round(std::ldexp(fraction, bits)), exponent - bits);
}

template <class Real>
MatrixOf<Real> tanh_of(const Mask& mask, const MatrixOf<Real>& x) {
    MatrixOf<Real> t = x.array().tanh();
    if (const int bits = mask.scores.tanh_bits; bits > 0) {
        for (Real& number : t.reshaped()) number = rounded_to(bits, number);
    }
    return t;
}

/// Turns a row's scaled scores with the keys key_of(0), key_of(1), ... into those that its mask has, -inf
/// where it hides a key.
template <class Real, class Row, class KeyOf, class Stored>
void change_scores(const Mask& mask, int row, const KeyOf& key_of, const Stored& stored, Row&& s) {
    const auto c = static_cast<Real>(mask.scores.softcap);
    if (c > 0) s = stored((c * tanh_of<Real>(mask, s / c)).eval());
    if (mask.scores.slope != 0) {
        for (Eigen::Index k = 0; k < s.size(); ++k)
            s[k] -= static_cast<Real>(mask.scores.slope * std::abs(mask.distance(row, key_of(k))));
        s = stored(s.eval());
    }
    for (Eigen::Index k = 0; k < s.size(); ++k) {
        if (mask.hides(row, key_of(k))) s[k] = -static_cast<Real>(infinity);
    }
}

/// Attention in the arithmetic of Real. S, P and O pass through `stored`.
template <class Real, class Stored>
Result attend(const Matrix& Q, const Eigen::VectorXi& rows, const Rows& K, const Rows& V, double scale,
              const Mask& mask, const Stored& stored) {
    using Block = MatrixOf<Real>;
    const Block Qs = Q.cast<Real>();
    const Eigen::Index d = V(0, 0).cols();

    const auto sink = static_cast<Real>(mask.sink);

    Result result{Matrix::Zero(Q.rows(), d), Vector::Constant(Q.rows(), mask.sink),
                  Eigen::VectorXi::Constant(Q.rows(), -1)};
    for (Eigen::Index first = 0; first < Q.rows(); first += block_rows) {
        const Eigen::Index n = std::min(block_rows, Q.rows() - first);
        int begin = mask.Nk, end = 0;  // of the keys that any of these rows sees
        for (Eigen::Index i = first; i < first + n; ++i) {
            if (mask.first(rows[i]) >= mask.end(rows[i])) continue;
            begin = std::min(begin, mask.first(rows[i]));
            end = std::max(end, mask.end(rows[i]));
        }
        if (begin >= end) continue;
        const int keys = end - begin;

        Block S(n, keys), P = Block::Zero(n, keys);
        for_each_block(begin, end, [&](int key, int count) {
            S.middleCols(key - begin, count).noalias() =
                Qs.middleRows(first, n) * as<Real>(K(key, count)).transpose();
        });
        for (Eigen::Index i = 0; i < n; ++i) {
            const int row = rows[first + i], from = mask.first(row) - begin;
            if (!mask.sees_keys(row)) continue;
            const int count = mask.end(row) - mask.first(row);
            auto s = S.row(i).segment(from, count);
            s = stored((static_cast<Real>(scale) * s).eval());
            change_scores<Real>(
                mask, row, [&](Eigen::Index k) { return begin + from + static_cast<int>(k); }, stored, s);
            const Real m = std::max(sink, s.maxCoeff(&result.peak[first + i]));
            result.peak[first + i] += begin + from;
            s = (s.array() - m).exp();
            const Real l = s.sum() + std::exp(sink - m);
            if (!mask.dropout.is_none()) {
                for (int k = 0; k < count; ++k)
                    s[k] *= mask.keeps(row, begin + from + k) ? Real(256) / mask.dropout.kept : 0;
            }
            P.row(i).segment(from, count) = stored((s / l).eval());
            result.L[first + i] = m + std::log(l);
        }
        Block O = Block::Zero(n, d);
        for_each_block(begin, end, [&](int key, int count) {
            O.noalias() += P.middleCols(key - begin, count) * as<Real>(V(key, count));
        });
        result.O.middleRows(first, n) = stored(O).template cast<double>();
    }
    return result;
}

/// The rows and keys of the whole problem that some gradients are of, and what the forward pass left, or
/// null.
struct Part {
    const Eigen::VectorXi &rows, &keys;
    const Result* forward;
};

/// The gradients in the arithmetic of Real. What is kept in memory passes through `stored`.
template <class Real, class Stored>
Gradients differentiate(const Matrix& Q, const Matrix& K, const Matrix& V, const Matrix& dO, double scale,
                        const Mask& mask, const Part& part, const Stored& stored) {
    using Block = MatrixOf<Real>;
    const Block Qs = Q.cast<Real>(), Ks = K.cast<Real>(), Vs = V.cast<Real>(), dOs = dO.cast<Real>();
    const Eigen::Index Nq = Q.rows(), Nk = K.rows();
    const bool given = part.forward != nullptr;

    Matrix dQ = Matrix::Zero(Nq, Q.cols());
    Block dK = Block::Zero(Nk, K.cols()), dV = Block::Zero(Nk, V.cols());
    Vector dQ_squares = Vector::Zero(given ? Nq : 0), dK_squares = Vector::Zero(given ? Nk : 0),
           dV_squares = Vector::Zero(given ? Nk : 0);
    double dsink = 0, dsink_squares = 0;
    const auto sink = static_cast<Real>(mask.sink);
    const Vector K_norms = K.rowwise().squaredNorm(), Q_norms = Q.rowwise().squaredNorm(),
                 dO_norms = dO.rowwise().squaredNorm();
    for (Eigen::Index first = 0; first < Nq; first += block_rows) {
        const Eigen::Index n = std::min(block_rows, Nq - first);
        // How many of the keys are before this one.
        const auto before = [&](int key) -> Eigen::Index {
            const int* keys = part.keys.data();
            return std::lower_bound(keys, keys + Nk, key) - keys;
        };
        const auto from = [&](Eigen::Index i) { return before(mask.first(part.rows[first + i])); };
        if (given && mask.sink > -infinity) {
            for (Eigen::Index i = first; i < first + n; ++i) {
                const auto products = dO.row(i).cwiseProduct(part.forward->O.row(i));
                const double weight = std::exp(mask.sink - part.forward->L[i]);
                dsink -= weight * products.sum();
                dsink_squares += weight * weight * products.squaredNorm();
            }
        }
        const auto seen = [&](Eigen::Index i) { return before(mask.end(part.rows[first + i])) - from(i); };
        // What dropout multiplies these probabilities of a row with.
        const auto kept_of = [&](int row, Eigen::Index begin, Eigen::Index count) {
            Block kept = Block::Ones(1, count);
            for (Eigen::Index k = 0; k < (mask.dropout.is_none() ? 0 : count); ++k)
                kept(k) = mask.keeps(row, part.keys[begin + k]) ? Real(256) / mask.dropout.kept : 0;
            return kept;
        };
        Eigen::Index most = 0;
        for (Eigen::Index i = 0; i < n; ++i) most = std::max(most, seen(i) == 0 ? 0 : from(i) + seen(i));
        if (most == 0) continue;

        const Block dO_block = dOs.middleRows(first, n);
        Block S = Qs.middleRows(first, n) * Ks.topRows(most).transpose();  // (n, most)
        Block dP = stored((dO_block * Vs.topRows(most).transpose()).eval());
        Block P = Block::Zero(n, most), dS = Block::Zero(n, most);
        // Terms of dS and P, as large as without dropout if it takes them: they are rounded before it.
        Matrix terms = Matrix::Zero(given ? n : 0, given ? most : 0), weights = terms;
        for (Eigen::Index i = 0; i < n; ++i) {
            const Eigen::Index begin = from(i), count = seen(i);
            const int row = part.rows[first + i];
            if (count == 0 || !mask.sees_keys(row)) continue;
            auto s = S.row(i).segment(begin, count);
            auto p = P.row(i).segment(begin, count);
            s *= static_cast<Real>(scale);
            const auto change = [&](const auto& stored_S) {
                change_scores<Real>(
                    mask, row, [&](Eigen::Index k) { return part.keys[begin + k]; }, stored_S, s);
            };
            // What the scores of the mask change with these.
            Block slopes = Block::Ones(1, count);
            if (const auto c = static_cast<Real>(mask.scores.softcap); c > 0)
                slopes = 1 - tanh_of<Real>(mask, s / c).array().square();
            auto dp = dP.row(i).segment(begin, count);
            const Block kept = kept_of(row, begin, count);
            Real D = 0;
            if (given) {
                change(AsItIs());
                p = stored((s.array() - static_cast<Real>(part.forward->L[first + i])).exp().matrix().eval());
                D = dO_block.row(i).dot(part.forward->O.row(first + i).template cast<Real>());
                const double D_size = dO.row(first + i).cwiseProduct(part.forward->O.row(first + i)).norm();
                const Matrix at_least = kept.template cast<double>().cwiseMax(1);
                auto weight = weights.row(i).segment(begin, count);
                weight = p.template cast<double>().cwiseProduct(at_least);
                auto term = terms.row(i).segment(begin, count);
                term = weight.array() * dp.template cast<double>().array().abs() +
                       p.template cast<double>().array() * D_size;
                if (const double c = mask.scores.softcap, error = mask.scores.tanh_error; c > 0) {
                    // A tanh t that is off by an error e is so by e |t|: weights by e c |t|, 1 - t^2 by 2 e
                    // t^2.
                    const Eigen::ArrayXXd squares = 1 - slopes.template cast<double>().array(),
                                          larger = 1 + error * c * squares.sqrt();
                    weight.array() *= larger;
                    term.array() *= (1 - squares) * larger + 2 * error * squares;
                }
            } else {
                s = stored(s.eval());
                change(stored);
                const Real m = std::max(sink, s.maxCoeff());
                s = (s.array() - m).exp();
                const Real sink_weight = std::exp(sink - m), l = s.sum() + sink_weight;
                p = stored((s / l).eval());
                D = p.dot(dp.cwiseProduct(kept));
                dsink -= static_cast<double>(sink_weight / l * D);
            }
            dp = stored(dp.cwiseProduct(kept).eval());  // of the probabilities before dropout
            auto ds = dS.row(i).segment(begin, count);
            ds = stored((p.array() * (dp.array() - D)).matrix().eval());
            if (mask.scores.softcap > 0) ds = stored(ds.cwiseProduct(slopes).eval());
            p = stored(p.cwiseProduct(kept).eval());  // as in O
        }
        const auto factor = static_cast<Real>(scale);
        dQ.middleRows(first, n) = stored((factor * (dS * Ks.topRows(most))).eval()).template cast<double>();
        dK.topRows(most) += dS.transpose() * Qs.middleRows(first, n);
        dV.topRows(most) += P.transpose() * dO_block;
        if (!given) continue;
        const Matrix squares = scale * scale * terms.cwiseAbs2();
        dQ_squares.segment(first, n) = squares * K_norms.head(most);
        dK_squares.head(most) += squares.transpose() * Q_norms.segment(first, n);
        dV_squares.head(most) += weights.cwiseAbs2().transpose() * dO_norms.segment(first, n);
    }
    return {dQ,
            stored((static_cast<Real>(scale) * dK).eval()).template cast<double>(),
            stored(dV).template cast<double>(),
            dsink,
            dQ_squares.cwiseSqrt(),
            dK_squares.cwiseSqrt(),
            dV_squares.cwiseSqrt(),
            std::sqrt(dsink_squares)};
}

template <class Real, class Stored>
Gradients differentiate_all(const Matrix& Q, const Matrix& K, const Matrix& V, const Matrix& dO, double scale,
                            const Mask& mask, const Stored& stored) {
    const auto Nq = static_cast<int>(Q.rows()), Nk = static_cast<int>(K.rows());
    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(Nq, 0, Nq - 1),
                          keys = Eigen::VectorXi::LinSpaced(Nk, 0, Nk - 1);
    return differentiate<Real>(Q, K, V, dO, scale, mask, {rows, keys, nullptr}, stored);
}

}  // namespace

Document Mask::document_of(int row) const {
    if (documents.empty()) return {0, Nq, 0, Nk};
    return *std::partition_point(documents.begin(), documents.end(),
                                 [&](const Document& document) { return document.end_row <= row; });
}

bool Mask::keeps(int row, int key) const {
    const Document own = document_of(row);
    Dropout of_document = dropout;
    of_document.batch += own.first_row;
    return of_document.keeps(row - own.first_row, key - own.first_key);
}

int Mask::end(int row) const {
    const Document own = document_of(row);
    const int position = own.position(row);
    int end = own.end_key;
    if (causal) end = std::min(end, position + 1);
    if (right >= 0) end = static_cast<int>(std::min<std::int64_t>(end, std::int64_t{position} + right + 1));
    return std::max(end, own.first_key);
}

int Mask::first(int row) const {
    const Document own = document_of(row);
    const int last = own.position(tree.empty() ? row : 0);  // in a tree no row is before row 0
    const std::int64_t first = left < 0 ? own.first_key : std::int64_t{last} - left;
    return static_cast<int>(std::clamp<std::int64_t>(first, own.first_key, end(row)));
}

int Mask::visible(int row) const {
    int seen = end(row) - first(row);
    const bool some_hide = !hidden.empty() || !tiles.empty() || !tree.empty();
    for (int key = first(row); some_hide && key < end(row); ++key) seen -= hides(row, key);
    return seen;
}

int Mask::distance(int row, int key) const {
    if (tree.empty()) return document_of(row).position(row) - key;
    const int k = key - (Nk - Nq);  // of the draft
    return k < 0 ? std::popcount(tree[row]) - 1 - k : std::popcount(tree[row] >> k) - 1;
}

bool Mask::tree_hides(int row, int key) const {
    const int k = key - (Nk - Nq);
    return (k >= 0 && (tree[row] >> k) % 2 == 0) || (left >= 0 && distance(row, key) > left);
}

bool Mask::sees_keys(int row) const {
    for (int key = first(row), last = end(row); key < last; ++key) {
        if (!hides(row, key)) return true;
    }
    return false;
}

Result attention(const Matrix& Q, const Eigen::VectorXi& rows, const Rows& K, const Rows& V, double scale,
                 const Mask& mask) {
    return attend<double>(Q, rows, K, V, scale, mask, AsItIs());
}

Result attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask) {
    const int Nq = static_cast<int>(Q.rows());
    return attention(Q, Eigen::VectorXi::LinSpaced(Nq, 0, Nq - 1), K, V, scale, mask);
}

template <class T>
Result standard_attention(const Matrix& Q, const Eigen::VectorXi& rows, const Rows& K, const Rows& V,
                          double scale, const Mask& mask) {
    return attend<float>(Q, rows, K, V, scale, mask, Rounded<T>());
}

Gradients attention_gradient(const Matrix& Q, const Matrix& K, const Matrix& V, const Matrix& dO,
                             double scale, const Mask& mask) {
    return differentiate_all<double>(Q, K, V, dO, scale, mask, AsItIs());
}

Gradients attention_gradient(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K,
                             const Eigen::VectorXi& keys, const Matrix& V, const Matrix& dO,
                             const Result& forward, double scale, const Mask& mask) {
    return differentiate<double>(Q, K, V, dO, scale, mask, {rows, keys, &forward}, AsItIs());
}

template <class T>
Gradients standard_attention_gradient(const Matrix& Q, const Matrix& K, const Matrix& V, const Matrix& dO,
                                      double scale, const Mask& mask) {
    return differentiate_all<float>(Q, K, V, dO, scale, mask, Rounded<T>());
}

template <class T>
Gradients standard_attention_gradient(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K,
                                      const Eigen::VectorXi& keys, const Matrix& V, const Matrix& dO,
                                      const Result& forward, double scale, const Mask& mask) {
    return differentiate<float>(Q, K, V, dO, scale, mask, {rows, keys, &forward}, Rounded<T>());
}

template Result standard_attention<Eigen::half>(const Matrix&, const Eigen::VectorXi&, const Rows&,
                                                const Rows&, double, const Mask&);
template Result standard_attention<Eigen::bfloat16>(const Matrix&, const Eigen::VectorXi&, const Rows&,
                                                    const Rows&, double, const Mask&);

template Gradients standard_attention_gradient<Eigen::half>(const Matrix&, const Matrix&, const Matrix&,
                                                            const Matrix&, double, const Mask&);
template Gradients standard_attention_gradient<Eigen::half>(const Matrix&, const Eigen::VectorXi&,
                                                            const Matrix&, const Eigen::VectorXi&,
                                                            const Matrix&, const Matrix&, const Result&,
                                                            double, const Mask&);
template Gradients standard_attention_gradient<Eigen::bfloat16>(const Matrix&, const Matrix&, const Matrix&,
                                                                const Matrix&, double, const Mask&);
template Gradients standard_attention_gradient<Eigen::bfloat16>(const Matrix&, const Eigen::VectorXi&,
                                                                const Matrix&, const Eigen::VectorXi&,
                                                                const Matrix&, const Matrix&, const Result&,
                                                                double, const Mask&);

}  // namespace reference
