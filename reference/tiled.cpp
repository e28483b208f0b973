#include "reference/tiled.h"

#include <fmt/format.h>

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
                const int seen = std::clamp(mask.visible(first_row + r) - first_key, 0, keys);
                S.row(r).tail(keys - seen).setConstant(-infinity);
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

WorkedExample worked_example() {
    WorkedExample example{Matrix(8, 4), Matrix(8, 4), Matrix(8, 4)};
    // Chosen so that the second key tile raises the maximum of four rows, ties with it in one and stays below
    // it in three.
    // clang-format off
    example.Q << -1,  0,  1, -1,
                 -1, -2, -2, -1,
                 -1,  2, -1,  1,
                 -2,  1,  1,  1,
                  1,  1,  2, -1,
                  1, -2,  1, -1,
                 -2,  0,  2,  1,
                  1,  1, -2,  0;
    example.K << -2, -2,  1,  2,
                  1, -2, -2,  0,
                 -1, -2,  1,  2,
                 -1,  2, -1,  2,
                 -2,  2, -2,  1,
                 -1, -1,  2,  1,
                  2,  1,  0,  2,
                  0,  1, -1, -1;
    example.V <<  2, -2,  2,  0,
                  0,  1,  2,  2,
                 -1,  0, -1,  0,
                  2,  0,  2, -2,
                  2,  2, -1,  0,
                 -1, -2,  0,  0,
                 -1,  0, -2,  1,
                  0,  1,  0,  1;
    // clang-format on
    return example;
}

std::string format_steps(const WorkedExample& e) {
    std::string text = "i j row        m  rescale        l\n";
    const auto observe = [&](const Step& step) {
        for (Eigen::Index r = 0; r < step.m.size(); ++r) {
            text += fmt::format("{} {} {:3} {:8.4f} {:8.4f} {:8.4f}\n", step.i, step.j, step.i * e.Br + r,
                                step.m[r], step.rescale[r], step.l[r]);
        }
    };
    const Result result = tiled_attention(e.Q, e.K, e.V, e.scale, e.mask, e.Br, e.Bc, observe);
    text += "row        L  O\n";
    for (Eigen::Index row = 0; row < result.L.size(); ++row) {
        text += fmt::format("{:3} {:8.4f} ", row, result.L[row]);
        for (const double o : result.O.row(row)) text += fmt::format(" {:8.4f}", o);
        text += '\n';
    }
    return text;
}

}  // namespace reference
