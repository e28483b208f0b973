#include "reference/tiled.h"

#include <algorithm>
#include <cmath>

#include "reference/merge.h"

namespace reference {

Result tiled_attention(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask,
                       int Br, int Bc, const Observer& observe) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const int Nq = static_cast<int>(Q.rows()), Nk = static_cast<int>(K.rows());
    Result result{Matrix(Nq, V.cols()), Vector(Nq)};

    for (int i = 0; i * Br < Nq; ++i) {
        const int first_row = i * Br, rows = std::min(Br, Nq - first_row);
        const Matrix Qi = Q.middleRows(first_row, rows);  // (Br, d)
        Matrix O = Matrix::Zero(rows, V.cols());          // (Br, d), unnormalized
        Vector m = Vector::Constant(rows, -infinity);     // (Br)
        Vector l = Vector::Zero(rows);                    // (Br)

        for (int j = 0; j * Bc < Nk; ++j) {
            const int first_key = j * Bc, keys = std::min(Bc, Nk - first_key);
            Matrix S = scale * Qi * K.middleRows(first_key, keys).transpose();  // (Br, Bc)
            for (int r = 0; r < rows; ++r) {
                const int end = std::clamp(mask.end(first_row + r) - first_key, 0, keys);
                const int begin = std::clamp(mask.first(first_row + r) - first_key, 0, end);
                S.row(r).head(begin).setConstant(-infinity);
                S.row(r).tail(keys - end).setConstant(-infinity);
                for (int k = begin; k < end; ++k) {
                    if (mask.hides(first_row + r, first_key + k)) S(r, k) = -infinity;
                }
            }
            const Vector m_new = m.cwiseMax(S.rowwise().maxCoeff());
            const Vector factor = m.binaryExpr(m_new, &rescale);                // (Br)
            const Matrix P = S.binaryExpr(m_new.replicate(1, keys), &rescale);  // (Br, Bc)
            l = factor.cwiseProduct(l) + P.rowwise().sum();                     // line 9
            O = factor.asDiagonal() * O + P * V.middleRows(first_key, keys);    // line 10
            m = m_new;
            if (observe) observe({i, j, m, l, factor, O});
        }
        for (int r = 0; r < rows; ++r) {
            const Partial row = finish({m[r], l[r], O.row(r)});  // lines 12 and 13
            result.O.row(first_row + r) = row.O;
            result.L[first_row + r] = row.L;
        }
    }
    return result;
}

}  // namespace reference
