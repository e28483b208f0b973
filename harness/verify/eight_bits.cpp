#include "harness/verify/eight_bits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "harness/problem/tensors.h"
#include "simt/e4m3.h"

namespace ladder {
namespace {

using reference::Matrix;
using simt::AlignedColumns;
using simt::AlignedRow;

constexpr int depth = AlignedRow::depth, panel = AlignedColumns::columns;
constexpr int rows_together = 8;  // that read K and V at a time, since these are larger than a cache

// What a kernel's key tiles, and the blocks that share a scale, have.
constexpr int block_rows = 128;

float to_e4m3(float x) {
    return simt::value_of(simt::round_to<simt::e4m3>(x));
}

/// Rows of A, and columns of B, in the pieces that an instruction takes. Beyond their ends are zeros.
struct RowPieces {
    RowPieces(Eigen::Index n, Eigen::Index length) : pieces((length + depth - 1) / depth), of(n * pieces) {}
    void set(Eigen::Index i, Eigen::Index k, float number) {
        of[i * pieces + k / depth].set(static_cast<int>(k % depth), number);
    }
    Eigen::Index pieces;
    std::vector<AlignedRow> of;
};
struct ColumnPieces {
    explicit ColumnPieces(const Matrix& X)
        : pieces((X.cols() + depth - 1) / depth), of((X.rows() + panel - 1) / panel * pieces) {
        for (Eigen::Index j = 0; j < X.rows(); ++j) {
            for (Eigen::Index k = 0; k < X.cols(); ++k)
                of[j / panel * pieces + k / depth].set(
                    static_cast<int>(k % depth), static_cast<int>(j % panel), static_cast<float>(X(j, k)));
        }
    }
    Eigen::Index pieces;
    std::vector<AlignedColumns> of;
};

/// Of each row x the sums H D x: D has random signs, H is Hadamard's matrix of 1 and -1, whose entry (i, j)
/// is negative if i and j have an odd number of bits in common. In fp32, by steps that add and subtract
/// elements 1, 2, 4, ... apart. Since (H D)^T H D = d, two rows' product becomes d times as large.
Matrix rotated(const Matrix& X) {
    constexpr std::uint32_t pi[] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};  // its fraction's bits
    Matrix turned = X;
    const Eigen::Index d = X.cols();
    for (Eigen::Index c = 0; c < d; ++c) {
        if (pi[c / 32 % 4] >> c % 32 & 1) turned.col(c) *= -1;
    }
    for (Eigen::Index i = 0; i < X.rows(); ++i) {
        double* x = &turned(i, 0);
        for (Eigen::Index apart = 1; apart < d; apart *= 2) {
            for (Eigen::Index c = 0; c < d; ++c) {
                if ((c & apart) != 0) continue;
                const auto a = static_cast<float>(x[c]), b = static_cast<float>(x[c + apart]);
                x[c] = a + b;
                x[c + apart] = a - b;
            }
        }
    }
    return turned;
}

/// Adds the products of row i of A and `panel` columns of B from j on, over [first, end), by instructions
/// that begin at multiples of their depth.
void add_products(const RowPieces& A, Eigen::Index i, const ColumnPieces& B, Eigen::Index j,
                  Eigen::Index first, Eigen::Index end, float (&sum)[panel]) {
    for (Eigen::Index k = first / depth; k * depth < end; ++k)
        simt::add_products(A.of[i * A.pieces + k], B.of[j / panel * B.pieces + k], sum, true);
}

}  // namespace

EightBits EightBits::of(const Matrix& X, const Eigen::VectorXi& rows, Eigen::Index together) {
    EightBits rounded{Matrix(rows.size(), X.cols()), reference::Vector(rows.size())};
    Eigen::Index block = -1;
    E4m3Scale scale(0);
    for (Eigen::Index i = 0; i < rows.size(); ++i) {
        if (const Eigen::Index own = rows[i] / together; own != block) {
            block = own;
            const Eigen::Index first = block * together, n = std::min(together, X.rows() - first);
            scale = E4m3Scale(static_cast<float>(X.middleRows(first, n).cwiseAbs().maxCoeff()));
        }
        for (Eigen::Index c = 0; c < X.cols(); ++c)
            rounded.numbers(i, c) = to_e4m3(static_cast<float>(X(rows[i], c)) * scale.inverse);
        rounded.scales[i] = scale.scale;
    }
    return rounded;
}

EightBits EightBits::of(const Matrix& X) {
    return of(X, Eigen::VectorXi::LinSpaced(X.rows(), 0, static_cast<int>(X.rows()) - 1), X.rows());
}

EightBits EightBits::of(const Matrix& X, float largest) {
    const E4m3Scale scale(largest);
    EightBits rounded{X, reference::Vector::Constant(X.rows(), scale.scale)};
    for (double& x : rounded.numbers.reshaped()) x = to_e4m3(static_cast<float>(x) * scale.inverse);
    return rounded;
}

EightBitHead round_head(const Matrix& Q, const Eigen::VectorXi& rows, const Matrix& K, const Matrix& V,
                        double scale, Products products) {
    const bool rotates = products >= Products::of_8_rotated;
    const Eigen::Index together =
        products >= Products::of_8_in_blocks ? block_rows : std::max(Q.rows(), K.rows());
    const Eigen::VectorXi keys = Eigen::VectorXi::LinSpaced(K.rows(), 0, static_cast<int>(K.rows()) - 1);
    return {EightBits::of(rotates ? rotated(Q) : Q, rows, together),
            EightBits::of(rotates ? rotated(K) : K, keys, together), EightBits::of(V),
            rotates ? scale / static_cast<double>(Q.cols()) : scale};
}

EightBitAttention::EightBitAttention(const EightBitHead& head, const Eigen::VectorXi& rows,
                                     const reference::Mask& mask, Products products)
    : O(Matrix::Zero(rows.size(), head.V.numbers.cols())),
      L(reference::Vector::Constant(rows.size(), -std::numeric_limits<double>::infinity())),
      spread(O) {
    const auto& [Q, K, V, scale] = head;
    const ColumnPieces k(K.numbers), v(V.numbers.transpose());
    const Eigen::Index d = V.numbers.cols(), Nk = K.numbers.rows();
    for (Eigen::Index first_row = 0; first_row < rows.size(); first_row += rows_together) {
        const Eigen::Index n = std::min<Eigen::Index>(rows_together, rows.size() - first_row);
        RowPieces q(n, d), p(n, Nk);
        Matrix P = Matrix::Zero(n, (Nk + panel - 1) / panel * panel);
        reference::Vector l = reference::Vector::Zero(n);
        std::vector<int> firsts(n), ends(n);  // of the keys that a row sees
        for (Eigen::Index i = 0; i < n; ++i) {
            const int row = rows[first_row + i];
            if (mask.sees_keys(row)) firsts[i] = mask.first(row), ends[i] = mask.end(row);
            for (Eigen::Index c = 0; c < d; ++c) q.set(i, c, static_cast<float>(Q.numbers(first_row + i, c)));
        }
        const int end = *std::max_element(ends.begin(), ends.end());
        for (int j = 0; j < end; j += panel) {  // S
            for (Eigen::Index i = 0; i < n; ++i) {
                float S[panel] = {};
                if (j < ends[i]) add_products(q, i, k, j, 0, d, S);
                std::copy_n(S, panel, &P(i, j));
            }
        }
        for (Eigen::Index i = 0; i < n; ++i) {
            if (ends[i] == 0) continue;
            // s becomes P, which is rounded in p.
            const Eigen::Index row = first_row + i;
            reference::Vector s = P.row(i).segment(firsts[i], ends[i] - firsts[i]);
            for (int j = firsts[i]; j < ends[i]; ++j) {
                s[j - firsts[i]] = mask.hides(rows[row], j)
                                       ? -std::numeric_limits<double>::infinity()
                                       : scale * Q.scales[row] * K.scales[j] * s[j - firsts[i]];
            }
            const double m = s.maxCoeff();
            s = (s.array() - m).exp();
            l[i] = s.sum();
            L[row] = m + std::log(l[i]);
            for (int j = firsts[i]; j < ends[i]; ++j)
                p.set(i, j, to_e4m3(static_cast<float>(s[j - firsts[i]] * 0x1p8)));
            P.row(i).setZero();
            P.row(i).segment(firsts[i], s.size()) = s;
        }
        auto squares = spread.middleRows(first_row, n);
        for (int j = 0; j < end; ++j) {
            for (Eigen::Index i = 0; i < n; ++i) squares.row(i) += (P(i, j) * V.numbers.row(j)).cwiseAbs2();
        }
        const int together = products == Products::of_8_bits ? end : block_rows;
        for (Eigen::Index c = 0; c < d; c += panel) {
            for (Eigen::Index i = 0; i < n; ++i) {
                if (ends[i] == 0) continue;
                double sums[panel] = {};
                for (int j = firsts[i] / together * together; j < ends[i]; j += together) {
                    float sum[panel] = {};
                    add_products(p, i, v, c, j, std::min(ends[i], j + together), sum);
                    for (int of = 0; of < panel; ++of) sums[of] += double{sum[of]};
                }
                for (int of = 0; of < panel; ++of)
                    O(first_row + i, c + of) = sums[of] * 0x1p-8 / l[i] * V.scales[0];
            }
        }
        for (Eigen::Index i = 0; i < n; ++i) {
            if (ends[i] > 0) squares.row(i) = squares.row(i).cwiseSqrt() / l[i] * V.scales[0];
        }
    }
}

}  // namespace ladder
