#include "reference/attention.h"

#include <algorithm>
#include <cmath>

namespace reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Result no_keys_seen(Eigen::Index rows, Eigen::Index d) {
    return {Matrix::Zero(rows, d), Vector::Constant(rows, -kInfinity)};
}

}  // namespace

int Mask::visible(int row) const {
    return causal ? std::clamp(row + 1 + Nk - Nq, 0, Nk) : Nk;
}

// A row at a time: N x N scores of a long sequence would not fit into memory.
Result attention(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V, double scale,
                 const Mask& mask) {
    Result result = no_keys_seen(Q.rows(), V.cols());
    for (Eigen::Index i = 0; i < Q.rows(); ++i) {
        const int n = mask.visible(rows[i]);
        if (n == 0) continue;
        const Vector S = scale * (K.topRows(n) * Q.row(i).transpose());  // (n)
        const double m = S.maxCoeff();
        const Vector P = (S.array() - m).exp();  // (n), unnormalized
        const double l = P.sum();
        result.O.row(i) = P.transpose() * V.topRows(n) / l;
        result.L[i] = m + std::log(l);
    }
    return result;
}

Result attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask) {
    const int Nq = static_cast<int>(Q.rows());
    return attention(Q, Eigen::VectorXi::LinSpaced(Nq, 0, Nq - 1), K, V, scale, mask);
}

template <class T>
Result standard_attention(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V,
                          double scale, const Mask& mask) {
    using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using VectorF = Eigen::VectorXf;
    const auto rounded = [](const VectorF& x) -> VectorF { return x.cast<T>().template cast<float>(); };
    const MatrixF Qf = Q.cast<float>(), Kf = K.cast<float>(), Vf = V.cast<float>();

    Result result = no_keys_seen(Q.rows(), V.cols());
    for (Eigen::Index i = 0; i < Q.rows(); ++i) {
        const int n = mask.visible(rows[i]);
        if (n == 0) continue;
        const VectorF S = rounded(static_cast<float>(scale) * (Kf.topRows(n) * Qf.row(i).transpose()));
        const float m = S.maxCoeff();
        const VectorF exponentials = (S.array() - m).exp();
        const float l = exponentials.sum();
        const VectorF P = rounded(exponentials / l);
        result.O.row(i) = rounded(Vf.topRows(n).transpose() * P).template cast<double>();
        result.L[i] = m + std::log(l);
    }
    return result;
}

template Result standard_attention<Eigen::half>(const Matrix&, const Eigen::VectorXi&, const Matrix&,
                                                const Matrix&, double, const Mask&);
template Result standard_attention<Eigen::bfloat16>(const Matrix&, const Eigen::VectorXi&, const Matrix&,
                                                    const Matrix&, double, const Mask&);

}  // namespace reference
