/// @file
/// Attention in Eigen: the yardstick that every stage is verified against.
#pragma once

#include <Eigen/Core>
#include <limits>

namespace reference {

/// Row-major so that a (N, d) slice of a tensor maps without a copy.
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

/// O (rows, d) and L (rows): L = log sum exp of the scaled, masked scores; -inf and O = 0 for a row without
/// keys.
struct Result {
    Matrix O;
    Vector L;
};

/// Which keys a query row sees: all of the first `keys`, or under a causal mask those with
/// j <= i + Nk - Nq (aligned bottom-right). `row` counts from the first row of the whole (Nq, d) problem.
struct Mask {
    bool causal = false;
    int Nq = 0;
    int Nk = 0;
    /// Keys that `row` sees, as a count: keys 0 .. visible(row) - 1.
    int visible(int row) const;
};

/// One head's attention in double precision: softmax(scale Q K^T + mask) V.
/// Q is (n, d), the query rows `rows` of the whole problem (rows[i] is the index of row i of Q, for the
/// mask); K and V are (Nk, d).
Result attention(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V, double scale,
                 const Mask& mask);

/// The same with every row of the problem: rows = 0 .. Nq - 1.
Result attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask);

/// Standard attention as a 16-bit library computes it: fp32 accumulation, and S, P and O each rounded to T
/// (Eigen::half or Eigen::bfloat16). The pass rule of the FlashAttention project's tests compares with its
/// error.
template <class T>
Result standard_attention(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V,
                          double scale, const Mask& mask);

}  // namespace reference
