#include "reference/attention.h"

#include <algorithm>
#include <cmath>

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

/// Attention in the arithmetic of Real. S, P and O pass through `stored`.
template <class Real, class Stored>
Result attend(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V, double scale,
              const Mask& mask, const Stored& stored) {
    using Block = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const Block Qs = Q.cast<Real>(), Ks = K.cast<Real>(), Vs = V.cast<Real>();

    Result result{Matrix::Zero(Q.rows(), V.cols()), Vector::Constant(Q.rows(), -infinity)};
    for (Eigen::Index first = 0; first < Q.rows(); first += block_rows) {
        const Eigen::Index n = std::min(block_rows, Q.rows() - first);
        int keys = 0;  // that any of these rows sees
        for (Eigen::Index i = first; i < first + n; ++i) keys = std::max(keys, mask.visible(rows[i]));
        if (keys == 0) continue;

        Block S = Qs.middleRows(first, n) * Ks.topRows(keys).transpose();  // (n, keys)
        Block P = Block::Zero(n, keys);
        for (Eigen::Index i = 0; i < n; ++i) {
            const int seen = mask.visible(rows[first + i]);
            if (seen == 0) continue;
            auto s = S.row(i).head(seen);
            s = stored((static_cast<Real>(scale) * s).eval());
            const Real m = s.maxCoeff();
            s = (s.array() - m).exp();
            const Real l = s.sum();
            P.row(i).head(seen) = stored((s / l).eval());
            result.L[first + i] = m + std::log(l);
        }
        result.O.middleRows(first, n) = stored((P * Vs.topRows(keys)).eval()).template cast<double>();
    }
    return result;
}

}  // namespace

int Mask::visible(int row) const {
    return causal ? std::clamp(row + 1 + Nk - Nq, 0, Nk) : Nk;
}

Result attention(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V, double scale,
                 const Mask& mask) {
    return attend<double>(Q, rows, K, V, scale, mask, AsItIs());
}

Result attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask) {
    const int Nq = static_cast<int>(Q.rows());
    return attention(Q, Eigen::VectorXi::LinSpaced(Nq, 0, Nq - 1), K, V, scale, mask);
}

template <class T>
Result standard_attention(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V,
                          double scale, const Mask& mask) {
    return attend<float>(Q, rows, K, V, scale, mask, Rounded<T>());
}

template Result standard_attention<Eigen::half>(const Matrix&, const Eigen::VectorXi&, const Matrix&,
                                                const Matrix&, double, const Mask&);
template Result standard_attention<Eigen::bfloat16>(const Matrix&, const Eigen::VectorXi&, const Matrix&,
                                                    const Matrix&, double, const Mask&);

}  // namespace reference
