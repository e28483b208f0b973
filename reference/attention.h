/// @file
/// Attention and its gradients in Eigen: the yardstick that every stage is verified against.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "reference/mask.h"

namespace reference {

/// Row-major so that a (N, d) slice of a tensor maps without a copy.
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

/// O (rows, d) and L (rows): L = log sum exp of the scaled, masked scores; -inf and O = 0 for a row without
/// keys, or the sink where the mask has one. `peak` (rows) is the key with a row's largest score, -1 without
/// keys; empty where O and L were given.
struct Result {
    Matrix O;
    Vector L;
    Eigen::VectorXi peak = {};
};

/// K or V of one head, (Nk, d), of which attention() asks for some rows at a time: a million keys need not be
/// in memory in double precision.
class Rows {
  public:
    using Some = std::function<Matrix(Eigen::Index first, Eigen::Index count)>;
    Rows(Matrix all)
        : some_([all = std::move(all)](Eigen::Index first, Eigen::Index count) -> Matrix {
              return all.middleRows(first, count);
          }) {}
    explicit Rows(Some some) : some_(std::move(some)) {}

    Matrix operator()(Eigen::Index first, Eigen::Index count) const { return some_(first, count); }

  private:
    Some some_;
};

/// Calls f(first, count) for blocks of the keys begin .. end - 1, so large that few long products are left.
template <class F>
void for_each_block(int begin, int end, F&& f) {
    constexpr int block_keys = 4096;
    for (int first = begin; first < end; first += block_keys) f(first, std::min(block_keys, end - first));
}

/// One head's attention in double precision: softmax(scale Q K^T + mask) V.
/// Q is (n, d), the query rows `rows` of the whole problem (rows[i] is the index of row i of Q, for the
/// mask); K and V are (Nk, d).
Result attention(const Matrix& Q, const Eigen::VectorXi& rows, const Rows& K, const Rows& V, double scale,
                 const Mask& mask);

/// The same with every row of the problem: rows = 0 .. Nq - 1.
Result attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask);

/// Standard attention as a 16-bit library computes it: fp32 accumulation, and S, P and O each rounded to T
/// (Eigen::half or Eigen::bfloat16). The pass rule of the FlashAttention project's tests compares with its
/// error.
template <class T>
Result standard_attention(const Matrix& Q, const Eigen::VectorXi& rows, const Rows& K, const Rows& V,
                          double scale, const Mask& mask);

/// What a loss changes with its inputs, given dO, its gradient by O: the gradients by one head's Q (n, d), K
/// and V (n, d). Where query heads share K and V, the sum over them is the gradient by K and V.
struct Gradients {
    Matrix dQ, dK, dV;
    double dsink;  ///< by the sink of the mask; 0 without one
    /// For each row of dQ, dK and dV, the root of the sum of the squares of the terms that it is a sum of, a
    /// term being as large as what it is a difference of: P (|dP| + |dO o O|) |K|, say. What rounding leaves
    /// is relative to this, also where the terms cancel. Empty unless O and L were given.
    Vector dQ_terms, dK_terms, dV_terms;
    double dsink_terms;  ///< the same of that
};

/// One head's gradients in double precision, with everything that they need computed from Q (Nq, d), K, V
/// (Nk, d) and dO (Nq, d):
///
///     D = rowsum(P o dP)      dP = dO V^T      dS = P o (dP - D)
///     dV = P^T dO             dQ = scale dS K  dK = scale dS^T Q
///
/// With a softcap dS is then multiplied by 1 - tanh(s / c)^2. The sink's gradient is -rowsum(P of the sink
/// D), since it has no value. Rows without keys add nothing, and have dQ = 0.
Gradients attention_gradient(const Matrix& Q, const Matrix& K, const Matrix& V, const Matrix& dO,
                             double scale, const Mask& mask);

/// What some query rows and some keys add to them, from what the forward pass left, as a kernel does it:
/// P = exp(S - L), and D = rowsum(dO o O), which is the same. dQ is whole if all keys are given, dK, dV and
/// dsink if all rows are. Q, dO and O are (rows, d), L is (rows), K and V are (keys, d); rows and keys are
/// indices of the whole problem, ascending. Source: T. Dao, FlashAttention-2, arXiv 2307.08691, Algorithm 2.
Gradients attention_gradient(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K,
                             const Eigen::VectorXi& keys, const Matrix& V, const Matrix& dO,
                             const Result& forward, double scale, const Mask& mask);

/// The gradients as a 16-bit library computes them: products in fp32, and S, P, dP, dS and the gradients each
/// rounded to T.
template <class T>
Gradients standard_attention_gradient(const Matrix& Q, const Matrix& K, const Matrix& V, const Matrix& dO,
                                      double scale, const Mask& mask);

/// The same of some rows and keys. S is not rounded, since it has to fit to the L that is given.
template <class T>
Gradients standard_attention_gradient(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K,
                                      const Eigen::VectorXi& keys, const Matrix& V, const Matrix& dO,
                                      const Result& forward, double scale, const Mask& mask);

}  // namespace reference
