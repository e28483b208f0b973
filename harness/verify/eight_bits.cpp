#include "harness/verify/eight_bits.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "simt/e4m3.h"

namespace ladder {
namespace {

using reference::Matrix;
using simt::AlignedElement;

constexpr int depth = 32;  // products that one instruction adds
constexpr float largest_e4m3 = 448;

simt::e4m3 to_e4m3(float x) {
    return simt::round_to<simt::e4m3>(x);
}

/// Rows of elements, each as many as fill whole instructions.
class Rows {
  public:
    explicit Rows(const Matrix& X)
        : stride_((X.cols() + depth - 1) / depth * depth),
          elements_(static_cast<std::size_t>(X.rows() * stride_), AlignedElement(simt::e4m3{0})) {
        for (Eigen::Index i = 0; i < X.rows(); ++i) {
            for (Eigen::Index k = 0; k < X.cols(); ++k) set(i, k, static_cast<float>(X(i, k)));
        }
    }
    void set(Eigen::Index i, Eigen::Index k, float number) {
        elements_[static_cast<std::size_t>(i * stride_ + k)] = AlignedElement(to_e4m3(number));
    }
    const AlignedElement* row(Eigen::Index i) const { return elements_.data() + i * stride_; }

    /// The sum of the products of row i of A and row j of B over [first, end), by instructions that begin at
    /// multiples of their depth.
    friend double product(const Rows& A, Eigen::Index i, const Rows& B, Eigen::Index j, Eigen::Index first,
                          Eigen::Index end) {
        float sum = 0;
        for (Eigen::Index k = first / depth * depth; k < end; k += depth)
            sum = simt::add_products<depth>(A.row(i) + k, B.row(j) + k, sum, true);
        return sum;
    }

  private:
    Eigen::Index stride_;
    std::vector<AlignedElement> elements_;
};

}  // namespace

EightBits EightBits::of(const Matrix& X) {
    const float amax = std::max(static_cast<float>(X.cwiseAbs().maxCoeff()), 0x1p-100f);
    const float inverse = largest_e4m3 / amax;
    return {X.unaryExpr([=](double x) { return double{value_of(to_e4m3(static_cast<float>(x) * inverse))}; }),
            amax / largest_e4m3};
}

EightBitAttention::EightBitAttention(const EightBits& Q, const Eigen::VectorXi& rows, const EightBits& K,
                                     const EightBits& V, double scale, const reference::Mask& mask,
                                     Products products)
    : O(Matrix::Zero(rows.size(), V.numbers.cols())),
      L(reference::Vector::Constant(rows.size(), -std::numeric_limits<double>::infinity())),
      spread(O) {
    const Rows q(Q.numbers), k(K.numbers), v(V.numbers.transpose());
    const Eigen::Index d = V.numbers.cols();
    const double of_S = scale * double{Q.scale} * double{K.scale};
    for (Eigen::Index i = 0; i < rows.size(); ++i) {
        const int row = rows[i], first = mask.first(row), end = mask.end(row);
        if (mask.visible(row) == 0) continue;
        reference::Vector P = reference::Vector::Zero(K.numbers.rows());
        auto s = P.segment(first, end - first);
        for (int j = first; j < end; ++j) {
            P[j] = mask.hides(row, j) ? -std::numeric_limits<double>::infinity()
                                      : of_S * product(q, i, k, j, 0, Q.numbers.cols());
        }
        Eigen::Index peak = 0;
        const double m = s.maxCoeff(&peak);
        s = (s.array() - m).exp();
        const double l = s.sum();
        L[i] = m + std::log(l);
        Rows p(Matrix::Zero(1, P.size()));
        for (int j = first; j < end; ++j) p.set(0, j, static_cast<float>(P[j] * 0x1p8));
        s[peak] = 0;
        const int together = products == Products::of_8_promoted ? 128 : end;
        for (Eigen::Index c = 0; c < d; ++c) {
            double sum = 0;
            for (int j = first / together * together; j < end; j += together)
                sum += product(p, 0, v, c, j, std::min(end, j + together));
            O(i, c) = sum * 0x1p-8 / l * V.scale;
            spread(i, c) = P.cwiseProduct(V.numbers.col(c)).norm() / l * V.scale;
        }
    }
}

}  // namespace ladder
