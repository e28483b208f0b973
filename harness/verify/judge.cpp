#include "harness/verify/judge.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "harness/base/parallel.h"
#include "harness/problem/tensors.h"
#include "harness/verify/mismatch.h"
#include "reference/attention.h"

namespace ladder {
namespace {

using reference::Mask;
using reference::Matrix;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

double value(DType dtype, std::uint16_t stored) {
    return with_type(dtype, [&](auto type) {
        return static_cast<double>(static_cast<float>(std::bit_cast<decltype(type)>(stored)));
    });
}

bool is_finite(DType dtype, std::uint16_t stored) {
    const std::uint16_t exponent = dtype == DType::fp16 ? 0x7c00 : 0x7f80;
    return (stored & exponent) != exponent;
}

std::vector<int> all_rows(const Case& c) {
    std::vector<int> rows(c.shape.Nq);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

/// At most `sampled` query rows: first, last, the edges of tiles, then seeded ones. All of them if sampled is
/// 0.
std::vector<int> compared_rows(const Case& c, int sampled) {
    const int Nq = c.shape.Nq;
    if (sampled <= 0 || sampled >= Nq) return all_rows(c);
    std::set<int> rows;
    const int last_tile = (Nq - 1) / tile * tile;
    for (const int row : {0, Nq - 1, last_tile, last_tile - 1, tile - 1, tile}) {
        if (row >= 0 && row < Nq && static_cast<int>(rows.size()) < sampled) rows.insert(row);
    }
    std::mt19937_64 random(c.seed);
    while (static_cast<int>(rows.size()) < sampled) {
        rows.insert(static_cast<int>(random() % static_cast<std::uint64_t>(Nq)));
    }
    return {rows.begin(), rows.end()};
}

/// The texts that are not empty, one below the other.
std::string join_lines(std::initializer_list<std::string> texts) {
    std::string joined;
    for (const std::string& text : texts) {
        if (!text.empty()) joined += (joined.empty() ? "" : "\n") + text;
    }
    return joined;
}

/// Calls f(b, h, row, column, index) for every element of O, index being its place in memory.
template <class F>
void for_each_O(const Case& c, F&& f) {
    const Shape& s = c.shape;
    const View view = make_view(nullptr, c.layout, s.H, s.Nq, s.d);
    for (int b = 0; b < s.B; ++b) {
        for (int h = 0; h < s.H; ++h) {
            for (int row = 0; row < s.Nq; ++row) {
                const std::int64_t first = b * view.batch + h * view.head + row * view.row;
                for (int column = 0; column < s.d; ++column) {
                    f(b, h, row, column, static_cast<std::size_t>(first + column));
                }
            }
        }
    }
}

/// Calls f(b, h, row, index) for every element of L.
template <class F>
void for_each_L(const Case& c, F&& f) {
    std::size_t index = 0;
    for (int b = 0; b < c.shape.B; ++b) {
        for (int h = 0; h < c.shape.H; ++h) {
            for (int row = 0; row < c.shape.Nq; ++row) f(b, h, row, index++);
        }
    }
}

/// Query heads of the batch: (B, H).
int heads_of(const Case& c) {
    return c.shape.B * c.shape.H;
}

/// What is expected of O in one head: (rows, d).
Eigen::Map<const Matrix> expected_O(const Case& c, const Expected& expected, int head) {
    const auto rows = std::ssize(expected.rows);
    return {expected.O.data() + head * rows * c.shape.d, rows, c.shape.d};
}

/// What a stage wrote of it.
Matrix got_O(const Case& c, const std::vector<int>& rows, const Outputs& outputs, int head) {
    const Shape& s = c.shape;
    auto* data = const_cast<std::uint16_t*>(outputs.O.data());  // only read
    return with_type(c.dtype, [&](auto type) -> Matrix {
        const View view = make_view(data, c.layout, s.H, s.Nq, s.d);
        return head_of<decltype(type)>(view, head / s.H, head % s.H, s.Nq, s.d)(rows, Eigen::all)
            .template cast<double>();
    });
}

double expected_L(const Expected& expected, int head, int k) {
    return expected.L[head * expected.rows.size() + k];
}
double L_size(const Expected& expected, int head, int k) {
    return expected.L_size[head * expected.rows.size() + k];
}
double got_L(const Case& c, const std::vector<int>& rows, const Outputs& outputs, int head, int k) {
    return outputs.L[static_cast<std::size_t>(head) * c.shape.Nq + rows[k]];
}

constexpr double L_bound = 1e-4;  ///< relative; L is fp32 whatever the storage type

/// What an error of L is relative to: L, or 1 if that is more. Where a score is small as the sum of large
/// products, fp32 cannot do better than their rounding, which is bounded by |q| |k|; that is added.
double size_of_L(double L, double largest_product) {
    const double size = std::isfinite(L) ? std::max(1.0, std::abs(L)) : 1.0;
    return size + 0x1p-21 / L_bound * largest_product;
}

/// Fills in O, L and its size. Returns the largest error of standard attention.
template <class T>
double expect(const Case& c, const Inputs& inputs, Expected& expected) {
    const Shape& s = c.shape;
    const Mask mask{c.causal, s.Nq, s.Nk};
    const double scale = c.softmax_scale();
    const auto head = [&](const std::vector<std::uint16_t>& tensor, int b, int h, int heads, int N) {
        auto* data = const_cast<std::uint16_t*>(tensor.data());  // only read
        return head_of<T>(make_view(data, c.layout, heads, N, s.d), b, h, N, s.d);
    };

    // Rows that one thread takes at a time: so many that K and V, which each converts for itself, cost
    // little.
    constexpr int piece_rows = 256;
    const int rows = static_cast<int>(expected.rows.size()), pieces = (rows + piece_rows - 1) / piece_rows;
    std::vector<double> errors(static_cast<std::size_t>(heads_of(c)) * pieces);
    parallel_for(heads_of(c) * pieces, [&](int item) {
        const int i = item / pieces, b = i / s.H, h = i % s.H, kv = h / (s.H / s.Hkv);
        const int first = item % pieces * piece_rows, n = std::min(piece_rows, rows - first);
        const Eigen::VectorXi some = Eigen::Map<const Eigen::VectorXi>(expected.rows.data() + first, n);
        const Matrix Q = head(inputs.Q, b, h, s.H, s.Nq)(some, Eigen::all).template cast<double>();
        const Matrix K = head(inputs.K, b, kv, s.Hkv, s.Nk).template cast<double>();
        const Matrix V = head(inputs.V, b, kv, s.Hkv, s.Nk).template cast<double>();
        const auto exact = reference::attention(Q, some, K, V, scale, mask);
        const auto standard = reference::standard_attention<T>(Q, some, K, V, scale, mask);
        errors[item] = (standard.O - exact.O).cwiseAbs().template maxCoeff<Eigen::PropagateNaN>();
        const std::size_t row = static_cast<std::size_t>(i) * rows + first;
        std::copy_n(exact.O.data(), exact.O.size(), expected.O.data() + row * s.d);
        std::copy_n(exact.L.data(), n, expected.L.data() + row);
        const double largest_key = K.rowwise().norm().maxCoeff();
        for (int k = 0; k < n; ++k) {
            expected.L_size[row + k] = size_of_L(exact.L[k], std::abs(scale) * Q.row(k).norm() * largest_key);
        }
    });

    // Scores too large for fp16 make standard attention NaN; such heads set no standard.
    double largest = 0;
    for (auto error = errors.begin(); error != errors.end(); error += pieces) {
        const auto is_number = [](double x) { return std::isfinite(x); };
        if (std::all_of(error, error + pieces, is_number))
            largest = std::max(largest, *std::max_element(error, error + pieces));
    }
    return largest;
}

/// The pass rule's numbers. Nothing passes by not being comparable: write !(error <= bound), never error >
/// bound.
struct Bounds {
    double O;  ///< absolute
    double O_relative_l2;
};

/// The floor under the bound on O is one unit in the last place of the largest output, as in FlashAttention's
/// tests
/// ("the error of any arithmetic on the output", twice): P and O are each rounded, even where
/// standard attention happens to be exact.
Bounds bounds(DType dtype, double standard_error, double largest_output) {
    const bool fp16 = dtype == DType::fp16;
    const double ulp = (fp16 ? 0x1p-10 : 0x1p-7) * largest_output;
    return {.O = 2 * standard_error + ulp, .O_relative_l2 = fp16 ? 1e-3 : 8e-3};
}

/// Of L; 0 for equal values, so that -inf matches -inf and nothing else.
double relative_error(double got, double expected, double size) {
    if (got == expected) return 0;
    const double error = std::abs(got - expected) / size;
    return std::isfinite(error) ? error : infinity;
}

/// Reports the elements of O that make it fail: what breaks the bound, and in a row that breaks the L2 bound
/// what contributes to that. When the whole breaks the L2 bound some row does, so a failure always has a
/// place.
std::string report_wrong_O(const Case& c, const Expected& all_expected, const Outputs& outputs,
                           const Bounds& bound, const Verdict& verdict) {
    const std::vector<int>& rows = all_expected.rows;
    Mismatch wrong(c, rows, c.shape.d);
    for (int i = 0; i < heads_of(c); ++i) {
        const auto expected = expected_O(c, all_expected, i);
        const Matrix got = got_O(c, rows, outputs, i);
        for (int k = 0; k < std::ssize(rows); ++k) {
            const double row_bound = bound.O_relative_l2 * expected.row(k).norm();
            const double row_error = (got.row(k) - expected.row(k)).norm();
            double limit = bound.O;
            if (!(row_error <= row_bound)) {
                limit = std::min(limit, std::max(row_error / 4, row_bound) / std::sqrt(c.shape.d));
            }
            for (int column = 0; column < c.shape.d; ++column) {
                if (!(std::abs(got(k, column) - expected(k, column)) <= limit)) {
                    wrong.add(i / c.shape.H, i % c.shape.H, rows[k], column, expected(k, column),
                              got(k, column));
                }
            }
        }
    }
    return wrong.report("O is wrong",
                        fmt::format(": max error {:.2e}, bound {:.2e}; relative L2 {:.2e}, bound {:.0e}",
                                    verdict.max_error, bound.O, verdict.relative_l2, bound.O_relative_l2));
}

std::string report_wrong_L(const Case& c, const Expected& all_expected, const Outputs& outputs,
                           const Verdict& verdict) {
    const std::vector<int>& rows = all_expected.rows;
    Mismatch wrong(c, rows, 1);
    for (int i = 0; i < heads_of(c); ++i) {
        for (int k = 0; k < std::ssize(rows); ++k) {
            const double expected = expected_L(all_expected, i, k), got = got_L(c, rows, outputs, i, k);
            if (!(relative_error(got, expected, L_size(all_expected, i, k)) <= L_bound)) {
                wrong.add(i / c.shape.H, i % c.shape.H, rows[k], 0, expected, got);
            }
        }
    }
    return wrong.report(
        "L is wrong", fmt::format(": max relative error {:.2e}, bound {:.0e}", verdict.max_L_error, L_bound));
}

}  // namespace

Expected::Expected(const Case& c, const Inputs& inputs, int sampled_rows)
    : rows(compared_rows(c, sampled_rows)),
      O(heads_of(c) * rows.size() * c.shape.d),
      L(heads_of(c) * rows.size()),
      L_size(heads_of(c) * rows.size()),
      standard_error(
          with_type(c.dtype, [&](auto type) { return expect<decltype(type)>(c, inputs, *this); })) {}

std::string report_unwritten(const Case& c, const Outputs& outputs) {
    const auto none_in = [](const auto& tensor) {
        return std::none_of(tensor.begin(), tensor.end(), [](auto stored) { return is_unwritten(stored); });
    };
    if (none_in(outputs.O) && none_in(outputs.L)) return "";
    Mismatch O(c, all_rows(c), c.shape.d), L(c, all_rows(c), 1);
    for_each_O(c, [&](int b, int h, int row, int column, std::size_t index) {
        if (is_unwritten(outputs.O[index])) O.add(b, h, row, column, unknown, unknown);
    });
    for_each_L(c, [&](int b, int h, int row, std::size_t index) {
        if (is_unwritten(outputs.L[index])) L.add(b, h, row, 0, unknown, unknown);
    });
    return join_lines({O.report("O was not written"), L.report("L was not written")});
}

std::string report_impossible(const Case& c, const Outputs& outputs) {
    if (const std::string unwritten = report_unwritten(c, outputs); !unwritten.empty()) return unwritten;
    const Mask mask{c.causal, c.shape.Nq, c.shape.Nk};
    Mismatch not_finite(c, all_rows(c), c.shape.d), not_zero(c, all_rows(c), c.shape.d), L(c, all_rows(c), 1);
    for_each_O(c, [&](int b, int h, int row, int column, std::size_t index) {
        const std::uint16_t o = outputs.O[index];
        if (!is_finite(c.dtype, o)) {
            not_finite.add(b, h, row, column, unknown, value(c.dtype, o));
        } else if (mask.visible(row) == 0 && value(c.dtype, o) != 0) {
            not_zero.add(b, h, row, column, 0, value(c.dtype, o));
        }
    });
    for_each_L(c, [&](int b, int h, int row, std::size_t index) {
        const double l = outputs.L[index];
        const bool sees_keys = mask.visible(row) > 0;
        if (sees_keys ? !std::isfinite(l) : l != -infinity) {
            L.add(b, h, row, 0, sees_keys ? unknown : -infinity, l);
        }
    });
    return join_lines({not_finite.report("O is not finite"),
                       not_zero.report("O is not 0 where a row sees no key"),
                       L.report("L is not finite, or not -inf where a row sees no key")});
}

Verdict judge(const Case& c, const Expected& expected, const Outputs& outputs) {
    struct Errors {
        double O = 0, O_squared = 0, L = 0, size_squared = 0, largest = 0;
    };
    std::vector<Errors> errors(heads_of(c));
    parallel_for(heads_of(c), [&](int i) {
        const auto wanted = expected_O(c, expected, i);
        const Matrix error = (got_O(c, expected.rows, outputs, i) - wanted).cwiseAbs();
        double L = 0;
        for (int k = 0; k < std::ssize(expected.rows); ++k) {
            const double got = got_L(c, expected.rows, outputs, i, k);
            L = std::max(L, relative_error(got, expected_L(expected, i, k), L_size(expected, i, k)));
        }
        errors[i] = {.O = error.hasNaN() ? infinity : error.maxCoeff(),
                     .O_squared = error.squaredNorm(),
                     .L = L,
                     .size_squared = wanted.squaredNorm(),
                     .largest = wanted.cwiseAbs().maxCoeff()};
    });

    Verdict verdict;
    verdict.standard_max_error = expected.standard_error;
    double squared_error = 0, squared_size = 0, largest = 0;
    for (const Errors& head : errors) {
        verdict.max_error = std::max(verdict.max_error, head.O);
        verdict.max_L_error = std::max(verdict.max_L_error, head.L);
        squared_error += head.O_squared;
        squared_size += head.size_squared;
        largest = std::max(largest, head.largest);
    }
    verdict.relative_l2 = squared_error == 0 ? 0 : std::sqrt(squared_error / squared_size);

    const Bounds bound = bounds(c.dtype, verdict.standard_max_error, largest);
    const bool O_passes = verdict.max_error <= bound.O && verdict.relative_l2 <= bound.O_relative_l2;
    const bool L_passes = verdict.max_L_error <= L_bound;
    verdict.report = report_impossible(c, outputs);
    if (verdict.report.empty()) {  // otherwise wrong values are no news
        verdict.report = join_lines({O_passes ? "" : report_wrong_O(c, expected, outputs, bound, verdict),
                                     L_passes ? "" : report_wrong_L(c, expected, outputs, verdict)});
    }
    verdict.passed = O_passes && L_passes && verdict.report.empty();
    return verdict;
}

Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows) {
    return judge(c, Expected(c, inputs, sampled_rows), outputs);
}

std::string report_difference(const Case& c, const Outputs& first, const Outputs& other,
                              const std::string& other_is) {
    Mismatch O(c, all_rows(c), c.shape.d), L(c, all_rows(c), 1);
    for_each_O(c, [&](int b, int h, int row, int column, std::size_t i) {
        if (first.O[i] != other.O[i]) {
            O.add(b, h, row, column, value(c.dtype, first.O[i]), value(c.dtype, other.O[i]));
        }
    });
    for_each_L(c, [&](int b, int h, int row, std::size_t i) {
        if (std::memcmp(&first.L[i], &other.L[i], sizeof(float)) != 0)
            L.add(b, h, row, 0, first.L[i], other.L[i]);
    });
    return join_lines({O.report(other_is + " changed O"), L.report(other_is + " changed L")});
}

}  // namespace ladder
