#include "reference/worked_example.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "reference/merge.h"
#include "reference/tiled.h"

namespace reference {
namespace {

// One query row at one key tile. Scores, m and L in base 2.
struct RowStep {
    int i, j, row;
    double m, alpha, l;       // after this tile
    Vector S, P;              // (Bc)
    Vector PV;                // (d)
    Vector O_divided, O_sum;  // (d), of stage 01 and of 02, after this tile
};

double in_base_2(double natural) {
    return natural / std::numbers::ln2;
}

// In the order of 03: query tile, key tile, row.
std::vector<RowStep> steps_of(const WorkedExample& e) {
    std::vector<RowStep> steps;
    const auto observe = [&](const Step& step) {
        for (int r = 0; r < e.Br; ++r) {
            const int row = step.i * e.Br + r;
            RowStep now{step.i, step.j, row, in_base_2(step.m[r]), step.rescale[r], step.l[r], {}, {},
                        {},     {},     {}};
            now.S = e.K.middleRows(step.j * e.Bc, e.Bc) * e.Q.row(row).transpose();
            now.P = (now.S.array() - now.m).unaryExpr([](double x) { return std::exp2(x); });
            now.PV = e.V.middleRows(step.j * e.Bc, e.Bc).transpose() * now.P;
            now.O_sum = step.O.row(r);
            // Line 12 of FlashAttention-1's algorithm: what was divided by the old l is multiplied by it
            // again.
            const RowStep* before =
                step.j > 0 ? &steps[steps.size() - static_cast<std::size_t>(e.Br)] : nullptr;
            now.O_divided = now.PV;
            if (before != nullptr) now.O_divided += now.alpha * before->l * before->O_divided;
            now.O_divided /= now.l;
            steps.push_back(now);
        }
    };
    tiled_attention(e.Q, e.K, e.V, e.scale, e.mask, e.Br, e.Bc, observe);
    return steps;
}

// One key tile by itself, and L in base 2.
Partial part_of(const WorkedExample& e, int row, int j) {
    const Vector s = e.scale * (e.K.middleRows(j * e.Bc, e.Bc) * e.Q.row(row).transpose());
    Partial part = finish(from_block(s, e.V.middleRows(j * e.Bc, e.Bc)));
    part.L = in_base_2(part.L);
    return part;
}

// Without the noise of exp and log, and without a minus before 0.
std::string number(double x) {
    return fmt::format("{:g}", std::round(x * 1e5) / 1e5 + 0.0);
}

std::string numbers(const Vector& values, const char* format = "{}", const char* between = " ") {
    std::vector<std::string> texts;
    for (const double x : values) texts.push_back(fmt::format(fmt::runtime(format), number(x)));
    return fmt::format("{}", fmt::join(texts, between));
}

std::string cells(const Vector& values, int width) {
    return numbers(values, fmt::format("{{:>{}}}", width).c_str(), "");
}

std::string tuple(const Vector& values) {
    return fmt::format("({})", numbers(values));
}

// "0.25 (2 -2 2 0) + 1 (0 1 2 2)": what PV is the sum of
std::string products(const Vector& P, const Matrix& V) {
    std::vector<std::string> texts;
    for (Eigen::Index k = 0; k < P.size(); ++k)
        texts.push_back(fmt::format("{} {}", number(P[k]), tuple(V.row(k).transpose())));
    return fmt::format("{}", fmt::join(texts, " + "));
}

}  // namespace

WorkedExample worked_example() {
    WorkedExample example{Matrix(8, 4), Matrix(8, 4), Matrix(8, 4), std::numbers::ln2};
    // The keys of the first tile are the unit vectors, so that the scores there are Q itself. The second tile
    // raises the maximum of rows 0, 2, 4 and 7, ties with it in 3 and 6 and stays below it in 1 and 5. No l
    // has a factor but 2 and 5, so that all quotients end.
    // clang-format off
    example.Q << -1,  1, -1,  0,
                  1, -1,  0, -1,
                 -2,  0, -1, -2,
                  0,  2,  1,  0,
                 -1, -2, -2,  2,
                  2,  2,  0,  0,
                  0,  0,  2,  2,
                 -2, -2,  0,  0;
    example.K <<  1,  0,  0,  0,
                  0,  1,  0,  0,
                  0,  0,  1,  0,
                  0,  0,  0,  1,
                 -1,  1,  0,  1,
                 -1,  0,  0,  1,
                 -1,  0,  0,  0,
                 -1,  1, -1,  1;
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

std::string format_inputs(const WorkedExample& e) {
    std::string text = "row   Q              K              V\n";
    for (Eigen::Index row = 0; row < e.Q.rows(); ++row) {
        text += fmt::format("{:3}", row);
        for (const Matrix* matrix : {&e.Q, &e.K, &e.V})
            text += "  " + cells(matrix->row(row).transpose(), 3) + " ";
        text.back() = '\n';
    }
    return text;
}

std::string format_scores(const WorkedExample& e) {
    std::string text = "row   keys 0 to 3     4 to 7\n";
    const Matrix S = e.Q * e.K.transpose();
    for (Eigen::Index row = 0; row < S.rows(); ++row) {
        text += fmt::format("{:3}  ", row);
        for (int j = 0; j * e.Bc < S.cols(); ++j)
            text += (j > 0 ? "  |" : "") + cells(S.row(row).segment(j * e.Bc, e.Bc).transpose(), 3);
        text += '\n';
    }
    return text;
}

std::string format_steps(const WorkedExample& e) {
    std::string text = "i j row        m  rescale        l\n";
    for (const RowStep& step : steps_of(e)) {
        text += fmt::format("{} {} {:3} {:8.4f} {:8.4f} {:8.4f}\n", step.i, step.j, step.row, step.m + 0.0,
                            step.alpha, step.l);
    }
    const Result result = tiled_attention(e.Q, e.K, e.V, e.scale, e.mask, e.Br, e.Bc);
    text += "row        L  O\n";
    for (Eigen::Index row = 0; row < result.L.size(); ++row) {
        text += fmt::format("{:3} {:8.4f} ", row, in_base_2(result.L[row]));
        for (const double o : result.O.row(row))
            text += fmt::format(" {:8.4f}", std::round(o * 1e4) / 1e4 + 0.0);
        text += '\n';
    }
    return text;
}

std::string format_weights(const WorkedExample& e) {
    std::string text = "i j row   m   P                            rowsum\n";
    for (const RowStep& step : steps_of(e)) {
        text += fmt::format("{} {} {:3} {:>3} {}  {:>8}\n", step.i, step.j, step.row, number(step.m),
                            cells(step.P, 7), number(step.P.sum()));
    }
    return text;
}

std::string format_outputs(const WorkedExample& e) {
    std::string text = "i j row   01: O, divided by l                    02: O, a plain sum\n";
    for (const RowStep& step : steps_of(e)) {
        text += fmt::format("{} {} {:3} {}  |{}\n", step.i, step.j, step.row, cells(step.O_divided, 9),
                            cells(step.O_sum, 9));
    }
    return text;
}

std::string format_merge(const WorkedExample& e) {
    std::string text =
        "row     L_0 weight  O_0                             L_1 weight  O_1                               "
        "L\n";
    const Result result = tiled_attention(e.Q, e.K, e.V, e.scale, e.mask, e.Br, e.Bc);
    for (int row = 0; row < e.Q.rows(); ++row) {
        const double L = in_base_2(result.L[row]);
        text += fmt::format("{:3}", row);
        for (const int j : {0, 1}) {
            const Partial part = part_of(e, row, j);
            text += fmt::format(" {:>7}  {:>5} {} ", number(part.L), number(std::exp2(part.L - L)),
                                cells(part.O, 7));
        }
        text += fmt::format("{:>8}\n", number(L));
    }
    return text;
}

std::string format_row(const WorkedExample& e, int row) {
    std::string text;
    const RowStep* before = nullptr;
    const std::vector<RowStep> steps = steps_of(e);
    for (const RowStep& step : steps) {
        if (step.row != row) continue;
        const Matrix V = e.V.middleRows(step.j * e.Bc, e.Bc);
        const auto line = [&](const std::string& name, const std::string& value) {
            text += fmt::format("  {:<7} {}\n", name, value);
        };
        text += fmt::format("key tile {}\n", step.j);
        line("S", numbers(step.S));
        if (before == nullptr) {
            line("m", number(step.m));
        } else {
            line("m", fmt::format("max({}, {}) = {}", number(before->m), number(step.S.maxCoeff()),
                                  number(step.m)));
            line("alpha",
                 fmt::format("2^({} - {}) = {}", number(before->m), number(step.m), number(step.alpha)));
        }
        line("P", numbers(step.P));
        line("P V", products(step.P, V));
        line("", "= " + tuple(step.PV));
        const std::string sum = numbers(step.P, "{}", " + ");
        if (before == nullptr) {
            line("l", fmt::format("{} = {}", sum, number(step.l)));
            line("01: O", fmt::format("{} / {} = {}", tuple(step.PV), number(step.l), tuple(step.O_divided)));
            line("02: O", tuple(step.O_sum));
        } else {
            line("l", fmt::format("{} x {} + ({}) = {}", number(step.alpha), number(before->l), sum,
                                  number(step.l)));
            line("01: O", fmt::format("({} x {} x {} + {}) / {}", number(step.alpha), number(before->l),
                                      tuple(before->O_divided), tuple(step.PV), number(step.l)));
            line("", "= " + tuple(step.O_divided));
            line("02: O",
                 fmt::format("{} x {} + {}", number(step.alpha), tuple(before->O_sum), tuple(step.PV)));
            line("", "= " + tuple(step.O_sum));
        }
        before = &step;
    }
    const Vector O = before->O_sum / before->l;
    const double L = before->m + std::log2(before->l);
    text += fmt::format("at the end\n  02: O   {} / {} = {}\n  L       {} + log2({}) = {}\n",
                        tuple(before->O_sum), number(before->l), tuple(O), number(before->m),
                        number(before->l), number(L));
    const Partial first = part_of(e, row, 0), second = part_of(e, row, 1);
    const double w = std::exp2(first.L - L);
    text += fmt::format("06, the tiles as two parts\n  O_0     {}   L_0 = {}   2^(L_0 - L) = {}\n",
                        tuple(first.O), number(first.L), number(w));
    text += fmt::format("  O_1     {}   L_1 = {}   2^(L_1 - L) = {}\n", tuple(second.O), number(second.L),
                        number(1 - w));
    text += fmt::format("  O       {} x {} + {} x {} = {}\n", number(w), tuple(first.O), number(1 - w),
                        tuple(second.O), tuple(w * first.O + (1 - w) * second.O));
    return text;
}

}  // namespace reference
