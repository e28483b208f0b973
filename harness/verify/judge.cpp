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

std::vector<int> all_rows(int N) {
    std::vector<int> rows(N);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

/// At most `sampled` of N query rows or keys: first, last, the edges of tiles, then seeded ones. All of them
/// if sampled is 0.
std::vector<int> compared_rows(const Case& c, int N, int sampled) {
    if (sampled <= 0 || sampled >= N) return all_rows(N);
    std::set<int> rows;
    const int last_tile = (N - 1) / tile * tile;
    for (const int row : {0, N - 1, last_tile, last_tile - 1, tile - 1, tile}) {
        if (row >= 0 && row < N && static_cast<int>(rows.size()) < sampled) rows.insert(row);
    }
    std::mt19937_64 random(c.seed);
    while (static_cast<int>(rows.size()) < sampled) {
        rows.insert(static_cast<int>(random() % static_cast<std::uint64_t>(N)));
    }
    return {rows.begin(), rows.end()};
}

/// The texts that are not empty, one below the other.
std::string join_lines(const std::vector<std::string>& texts) {
    std::string joined;
    for (const std::string& text : texts) {
        if (!text.empty()) joined += (joined.empty() ? "" : "\n") + text;
    }
    return joined;
}

/// Calls f(b, h, row, column, index) for every element of a tensor, index being its place in memory.
template <class F>
void for_each_element(const Case& c, const OutputTensor& tensor, F&& f) {
    const int heads = tensor.heads(c.shape), N = tensor.rows(c.shape), d = c.shape.d;
    std::size_t index = 0;
    for (int b = 0; b < c.shape.B; ++b) {
        for (int h = 0; h < heads; ++h) {
            for (int row = 0; row < N; ++row) {
                for (int column = 0; column < d; ++column) f(b, h, row, column, index++);
            }
        }
    }
}

/// None of its elements, yet.
Mismatch none_of(const Case& c, const OutputTensor& tensor) {
    return {c, all_rows(tensor.rows(c.shape)), c.shape.d, tensor.of_keys};
}

/// Calls f(b, h, row, index) for every element of L, which the forward pass computes.
template <class F>
void for_each_L(const Case& c, F&& f) {
    if (c.pass == Pass::backward) return;
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

/// What is expected of one head of a tensor: (rows, d).
Eigen::Map<const Matrix> expected_head(const Case& c, const ExpectedTensor& expected, int head) {
    const auto rows = std::ssize(expected.rows);
    return {expected.values.data() + head * rows * c.shape.d, rows, c.shape.d};
}

/// What the errors of its rows are relative to: (rows).
Eigen::Map<const reference::Vector> sizes_of_head(const ExpectedTensor& expected, int head) {
    const auto rows = std::ssize(expected.rows);
    return {expected.size.data() + head * rows, rows};
}

/// What a stage wrote of it.
Matrix got_head(const Case& c, const OutputTensor& tensor, const std::vector<int>& rows,
                const Outputs& outputs, int head) {
    auto* data = const_cast<std::uint16_t*>((outputs.*tensor.elements).data());  // only read
    const int heads = tensor.heads(c.shape), N = tensor.rows(c.shape), d = c.shape.d;
    return with_type(c.dtype, [&](auto type) -> Matrix {
        const View view = dense_view(data, heads, N, d);
        return head_of<decltype(type)>(view, head / heads, head % heads, N, d)(rows, Eigen::all)
            .template cast<double>();
    });
}

double expected_L(const Expected& expected, int head, int k) {
    return expected.L[head * expected.tensors[0].rows.size() + k];
}
double L_size(const Expected& expected, int head, int k) {
    return expected.L_size[head * expected.tensors[0].rows.size() + k];
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

/// What an element of O may be off by where parts of the keys are merged by their L, each of which is stored
/// in fp32. It is rounded twice, as m + log2(l) and when that is multiplied by ln 2: by 2^-23 of it at most.
/// So each part's weight exp(L_s - L) is off by a factor within exp(-e) .. exp(e), e = 2^-23 |L_s|. Two sets
/// of weights whose factors differ by exp(2 e) at most share all but tanh(e / 2) of their weight: O is off by
/// no more than that share of the distance between two values of V. Parts whose L_s is far below L weigh
/// nothing.
/// Where S scale - m is one multiply-add, m is a rounded product and S scale an exact one, except in the tile
/// that sets m, whose own products are rounded, too: each by 2^-24 of it at most. That is the same e.
double lost_in_rounding(double L, double distance) {
    constexpr double of_no_weight = 20;  // exp(-20) = 2e-9
    return std::isfinite(L) ? std::tanh(0x1p-24 * (std::abs(L) + of_no_weight)) * distance : 0;
}

/// The pass rule's numbers. Nothing passes by not being comparable: write !(error <= bound), never error >
/// bound.
struct Bounds {
    double absolute;
    double relative_l2;
};

/// Relative L2 of every tensor. Kernels that round P and dS to the storage type, as factors of the next
/// product, and accumulate in fp32 stay below half of it on every kind of input and in either type; below 0.8
/// of it if they take D from P and dP, which differs from rowsum(dO o O) by what O was rounded. With
/// gradients that is so only because these are measured against the terms that they are sums of
/// (ExpectedTensor::size): with equal keys, or where a row's weight sits on one key, the terms cancel, and
/// what is left of them is rounding.
double relative_l2_bound(DType dtype) {
    return dtype == DType::fp16 ? 1e-3 : 8e-3;
}

/// What fp32 rounds of a score which is the sum of large products, as an error of P relative to P. The
/// forward pass divides by a sum of weights that are all off alike; P = exp(S - L) is off by all of it.
double error_of_P(double scale, const Matrix& Q, const Matrix& K) {
    return 0x1p-21 * std::abs(scale) * Q.rowwise().norm().maxCoeff() * K.rowwise().norm().maxCoeff();
}

/// A case's inputs, head by head, in double precision.
template <class T>
class Heads {
  public:
    Heads(const Case& c, const Inputs& inputs) : case_(c), inputs_(inputs) {}

    Matrix Q(int i) const { return of_queries(inputs_.Q, i); }
    Matrix K(int i) const { return of_keys(inputs_.K, i); }
    Matrix V(int i) const { return of_keys(inputs_.V, i); }
    Matrix dO(int i) const { return of_queries(inputs_.dO, i); }
    /// O and L, as the backward pass is given them.
    reference::Result forward(int i) const {
        const int N = case_.shape.Nq;
        return {of_queries(inputs_.O, i),
                Eigen::Map<const Eigen::VectorXf>(inputs_.L.data() + std::size_t(i) * N, N).cast<double>()};
    }

  private:
    Matrix of_queries(const std::vector<std::uint16_t>& tensor, int i) const {
        return head(tensor, i / case_.shape.H, i % case_.shape.H, case_.shape.H, case_.shape.Nq);
    }
    /// The key/value head that query head i reads.
    Matrix of_keys(const std::vector<std::uint16_t>& tensor, int i) const {
        const Shape& s = case_.shape;
        return head(tensor, i / s.H, i % s.H / (s.H / s.Hkv), s.Hkv, s.Nk);
    }
    Matrix head(const std::vector<std::uint16_t>& tensor, int b, int h, int heads, int N) const {
        auto* data = const_cast<std::uint16_t*>(tensor.data());  // only read
        return head_of<T>(dense_view(data, heads, N, case_.shape.d), b, h, N, case_.shape.d)
            .template cast<double>();
    }

    const Case& case_;
    const Inputs& inputs_;
};

double largest_error(const Matrix& standard, const Matrix& exact) {
    return (standard - exact).cwiseAbs().template maxCoeff<Eigen::PropagateNaN>();
}

/// The largest of the errors of heads, each in so many pieces. Scores too large for fp16 make standard
/// attention NaN; such heads set no standard.
double largest_of_heads(const std::vector<double>& errors, int pieces) {
    double largest = 0;
    for (auto error = errors.begin(); error != errors.end(); error += pieces) {
        const auto is_number = [](double x) { return std::isfinite(x); };
        if (std::all_of(error, error + pieces, is_number))
            largest = std::max(largest, *std::max_element(error, error + pieces));
    }
    return largest;
}

/// Fills in O, L and its size.
template <class T>
void expect_attention(const Case& c, const Inputs& inputs, Expected& expected) {
    const Shape& s = c.shape;
    const Mask mask{c.causal, s.Nq, s.Nk};
    const double scale = c.softmax_scale();
    const Heads<T> heads(c, inputs);
    ExpectedTensor& O = expected.tensors[0];

    // Rows that one thread takes at a time: so many that K and V, which each converts for itself, cost
    // little.
    constexpr int piece_rows = 256;
    const int rows = static_cast<int>(O.rows.size()), pieces = (rows + piece_rows - 1) / piece_rows;
    std::vector<double> errors(static_cast<std::size_t>(heads_of(c)) * pieces);
    parallel_for(heads_of(c) * pieces, [&](int item) {
        const int i = item / pieces;
        const int first = item % pieces * piece_rows, n = std::min(piece_rows, rows - first);
        const Eigen::VectorXi some = Eigen::Map<const Eigen::VectorXi>(O.rows.data() + first, n);
        const Matrix Q = heads.Q(i)(some, Eigen::all), K = heads.K(i), V = heads.V(i);
        const auto exact = reference::attention(Q, some, K, V, scale, mask);
        errors[item] = largest_error(reference::standard_attention<T>(Q, some, K, V, scale, mask).O, exact.O);
        const std::size_t row = static_cast<std::size_t>(i) * rows + first;
        std::copy_n(exact.O.data(), exact.O.size(), O.values.data() + row * s.d);
        std::copy_n(exact.L.data(), n, expected.L.data() + row);
        std::copy_n(exact.peak.data(), n, expected.peak.data() + row);
        const double largest_key = K.rowwise().norm().maxCoeff();
        for (int k = 0; k < n; ++k) {
            O.size[row + k] = exact.O.row(k).norm();
            expected.L_size[row + k] = size_of_L(exact.L[k], std::abs(scale) * Q.row(k).norm() * largest_key);
            O.lost_in_rounding[row + k] = lost_in_rounding(exact.L[k], V.maxCoeff() - V.minCoeff());
        }
    });
    O.standard_error = largest_of_heads(errors, pieces);
}

/// Fills in dQ, dK and dV.
template <class T>
void expect_gradients(const Case& c, const Inputs& inputs, Expected& expected) {
    const Shape& s = c.shape;
    const Mask mask{c.causal, s.Nq, s.Nk};
    const double scale = c.softmax_scale();
    const Heads<T> heads(c, inputs);
    ExpectedTensor &dQ = expected.tensors[0], &dK = expected.tensors[1], &dV = expected.tensors[2];
    const auto indices = [](const std::vector<int>& rows) -> Eigen::VectorXi {
        return Eigen::Map<const Eigen::VectorXi>(rows.data(), std::ssize(rows));
    };
    const Eigen::VectorXi every_row = indices(all_rows(s.Nq)), every_key = indices(all_rows(s.Nk)),
                          rows = indices(dQ.rows), keys = indices(dK.rows);
    const bool whole = rows.size() == s.Nq && keys.size() == s.Nk;

    using reference::Gradients;
    std::vector<Gradients> exact(heads_of(c)), standard(heads_of(c));
    parallel_for(heads_of(c), [&](int i) {
        const Matrix Q = heads.Q(i), K = heads.K(i), V = heads.V(i), dO = heads.dO(i);
        const reference::Result forward = heads.forward(i);
        if (whole) {
            exact[i] = reference::attention_gradient(Q, rows, K, keys, V, dO, forward, scale, mask);
            standard[i] = reference::standard_attention_gradient<T>(Q, K, V, dO, scale, mask);
        } else {
            // dQ of the rows, with every key; then dK and dV of the keys, with every row.
            const Matrix Q_rows = Q(rows, Eigen::all), dO_rows = dO(rows, Eigen::all);
            const Matrix K_keys = K(keys, Eigen::all), V_keys = V(keys, Eigen::all);
            const reference::Result of_rows{forward.O(rows, Eigen::all), forward.L(rows)};
            exact[i] =
                reference::attention_gradient(Q, every_row, K_keys, keys, V_keys, dO, forward, scale, mask);
            standard[i] = reference::standard_attention_gradient<T>(Q, every_row, K_keys, keys, V_keys, dO,
                                                                    forward, scale, mask);
            const auto exact_rows =
                reference::attention_gradient(Q_rows, rows, K, every_key, V, dO_rows, of_rows, scale, mask);
            exact[i].dQ = exact_rows.dQ;
            exact[i].dQ_terms = exact_rows.dQ_terms;
            standard[i].dQ = reference::standard_attention_gradient<T>(Q_rows, rows, K, every_key, V, dO_rows,
                                                                       of_rows, scale, mask)
                                 .dQ;
        }
        const double more = 1 + error_of_P(scale, Q, K) / relative_l2_bound(c.dtype);
        for (auto terms : {&Gradients::dQ_terms, &Gradients::dK_terms, &Gradients::dV_terms})
            exact[i].*terms *= more;
    });

    // Each tensor's heads: a query head's gradient, or the sum of those of a group. Standard attention rounds
    // what it adds up, and then the sum.
    const auto fill = [&](ExpectedTensor& tensor, Matrix Gradients::*value,
                          reference::Vector Gradients::*terms, int count) {
        const int group = heads_of(c) / count;
        const auto n = std::ssize(tensor.rows);
        std::vector<double> errors(count);
        for (int head = 0; head < count; ++head) {
            Eigen::Map<Matrix> sum(tensor.values.data() + head * n * s.d, n, s.d);
            Eigen::Map<reference::Vector> size(tensor.size.data() + head * n, n);
            Eigen::MatrixXf of_standard = Eigen::MatrixXf::Zero(n, s.d);
            for (int i = head * group; i < (head + 1) * group; ++i) {
                sum += exact[i].*value;
                size += (exact[i].*terms).cwiseAbs2();
                of_standard += (standard[i].*value).template cast<float>();
            }
            size = size.cwiseSqrt().cwiseMax(sum.rowwise().norm()).eval();
            errors[head] = largest_error(of_standard.cast<T>().template cast<double>(), sum);
        }
        tensor.standard_error = largest_of_heads(errors, 1);
    };
    fill(dQ, &Gradients::dQ, &Gradients::dQ_terms, heads_of(c));
    fill(dK, &Gradients::dK, &Gradients::dK_terms, s.B * s.Hkv);
    fill(dV, &Gradients::dV, &Gradients::dV_terms, s.B * s.Hkv);
}

/// FlashAttention's tests (tests/test_flash_attn.py) allow O twice the largest error of standard attention,
/// and the gradients three times: a kernel rounds D with O, and a group's sum otherwise than head by head.
///
/// The floor is one unit in the last place of the largest output, as in those tests ("the error of any
/// arithmetic on the output", twice): P and O are each rounded, even where standard attention happens to be
/// exact. An output that is small since its terms cancel is as large as they are.
Bounds bounds(const Case& c, double standard_error, double largest_output) {
    const double ulp = (c.dtype == DType::fp16 ? 0x1p-10 : 0x1p-7) * largest_output;
    return {.absolute = (c.pass == Pass::forward ? 2 : 3) * standard_error + ulp,
            .relative_l2 = relative_l2_bound(c.dtype)};
}

/// Of L; 0 for equal values, so that -inf matches -inf and nothing else.
double relative_error(double got, double expected, double size) {
    if (got == expected) return 0;
    const double error = std::abs(got - expected) / size;
    return std::isfinite(error) ? error : infinity;
}

/// The errors of one tensor.
struct TensorErrors {
    double largest = 0;
    double relative_l2 = 0;
    /// The same of what is held to the bounds: less where parts are merged by L.
    double held_largest = 0, held_relative_l2 = 0;
    Bounds bound{};

    bool pass() const { return held_largest <= bound.absolute && held_relative_l2 <= bound.relative_l2; }
    /// Above 1 it fails. Where nothing but the exact value is allowed, and is there, it is as far from it as
    /// can be.
    double nearness() const {
        const auto over = [](double error, double limit) {
            return error == 0 ? 0 : error <= infinity && limit > 0 ? error / limit : infinity;
        };
        return std::max(over(held_largest, bound.absolute), over(held_relative_l2, bound.relative_l2));
    }
};

/// What each element of a head is off by: all of it, or what exceeds that which a merge may lose.
Matrix errors_of_head(const Matrix& got, const Matrix& wanted, const ExpectedTensor& expected, int head,
                      bool rounds_large_scores) {
    Matrix error = (got - wanted).cwiseAbs();
    if (!rounds_large_scores || expected.lost_in_rounding.empty()) return error;
    const auto rows = std::ssize(expected.rows);
    const Eigen::Map<const reference::Vector> lost(expected.lost_in_rounding.data() + head * rows, rows);
    error.colwise() -= lost;
    return error.unaryExpr([](double x) { return std::isnan(x) ? x : std::max(x, 0.0); });
}

double largest_of(const Matrix& error) {
    return error.hasNaN() ? infinity : error.maxCoeff();
}

TensorErrors errors_of(const Case& c, const OutputTensor& tensor, const ExpectedTensor& expected,
                       const Outputs& outputs, bool rounds_large_scores) {
    struct Errors {
        double largest = 0, squared = 0, size_squared = 0, largest_output = 0;
        double held_largest = 0, held_squared = 0;
    };
    const int heads = c.shape.B * tensor.heads(c.shape);
    std::vector<Errors> errors(heads);
    parallel_for(heads, [&](int i) {
        const auto wanted = expected_head(c, expected, i);
        const auto sizes = sizes_of_head(expected, i);
        const Matrix got = got_head(c, tensor, expected.rows, outputs, i);
        const Matrix error = errors_of_head(got, wanted, expected, i, false),
                     held = rounds_large_scores ? errors_of_head(got, wanted, expected, i, true) : error;
        errors[i] = {
            .largest = largest_of(error),
            .squared = error.squaredNorm(),
            .size_squared = sizes.squaredNorm(),
            .largest_output = std::max(wanted.cwiseAbs().maxCoeff(), sizes.maxCoeff() / std::sqrt(c.shape.d)),
            .held_largest = largest_of(held),
            .held_squared = held.squaredNorm()};
    });
    TensorErrors all;
    double squared_error = 0, held_squared = 0, squared_size = 0, largest_output = 0;
    for (const Errors& head : errors) {
        all.largest = std::max(all.largest, head.largest);
        all.held_largest = std::max(all.held_largest, head.held_largest);
        squared_error += head.squared;
        held_squared += head.held_squared;
        squared_size += head.size_squared;
        largest_output = std::max(largest_output, head.largest_output);
    }
    const auto relative = [&](double squared) {
        return squared == 0 ? 0 : std::sqrt(squared / squared_size);
    };
    all.relative_l2 = relative(squared_error);
    all.held_relative_l2 = relative(held_squared);
    all.bound = bounds(c, expected.standard_error, largest_output);
    return all;
}

/// Reports the elements of a tensor that make it fail: what breaks the bound, and in a row that breaks the L2
/// bound what contributes to that. When the whole breaks the L2 bound some row does, so a failure always has
/// a place.
std::string report_wrong(const Case& c, const OutputTensor& tensor, const ExpectedTensor& all_expected,
                         const std::vector<int>& peak, const Outputs& outputs, bool rounds_large_scores,
                         const TensorErrors& errors) {
    const std::vector<int>& rows = all_expected.rows;
    const int heads = tensor.heads(c.shape);
    const Bounds& bound = errors.bound;
    Mismatch wrong(c, rows, c.shape.d, tensor.of_keys);
    wrong.set_peak(peak);
    for (int i = 0; i < c.shape.B * heads; ++i) {
        const auto expected = expected_head(c, all_expected, i);
        const auto sizes = sizes_of_head(all_expected, i);
        const Matrix got = got_head(c, tensor, rows, outputs, i),
                     error = errors_of_head(got, expected, all_expected, i, rounds_large_scores);
        for (int k = 0; k < std::ssize(rows); ++k) {
            const double row_bound = bound.relative_l2 * sizes[k];
            const double row_error = error.row(k).norm();
            double limit = bound.absolute;
            if (!(row_error <= row_bound)) {
                limit = std::min(limit, std::max(row_error / 4, row_bound) / std::sqrt(c.shape.d));
            }
            for (int column = 0; column < c.shape.d; ++column) {
                if (!(error(k, column) <= limit)) {
                    wrong.add(i / heads, i % heads, rows[k], column, expected(k, column), got(k, column));
                }
            }
        }
    }
    return wrong.report(fmt::format("{} is wrong", tensor.name),
                        fmt::format(": max error {:.2e}, bound {:.2e}; relative L2 {:.2e}, bound {:.0e}",
                                    errors.largest, bound.absolute, errors.relative_l2, bound.relative_l2));
}

/// The largest relative error of L.
double largest_L_error(const Case& c, const Expected& expected, const Outputs& outputs) {
    double largest = 0;
    for (int i = 0; i < heads_of(c); ++i) {
        const std::vector<int>& rows = expected.tensors[0].rows;
        for (int k = 0; k < std::ssize(rows); ++k) {
            largest = std::max(largest, relative_error(got_L(c, rows, outputs, i, k),
                                                       expected_L(expected, i, k), L_size(expected, i, k)));
        }
    }
    return largest;
}

std::string report_wrong_L(const Case& c, const Expected& all_expected, const Outputs& outputs,
                           double largest_error) {
    const std::vector<int>& rows = all_expected.tensors[0].rows;
    Mismatch wrong(c, rows, 1);
    wrong.set_peak(all_expected.peak);
    for (int i = 0; i < heads_of(c); ++i) {
        for (int k = 0; k < std::ssize(rows); ++k) {
            const double expected = expected_L(all_expected, i, k), got = got_L(c, rows, outputs, i, k);
            if (!(relative_error(got, expected, L_size(all_expected, i, k)) <= L_bound)) {
                wrong.add(i / c.shape.H, i % c.shape.H, rows[k], 0, expected, got);
            }
        }
    }
    return wrong.report("L is wrong",
                        fmt::format(": max relative error {:.2e}, bound {:.0e}", largest_error, L_bound));
}

}  // namespace

Expected::Expected(const Case& c, const Inputs& inputs, int sampled_rows) {
    for (const OutputTensor& tensor : output_tensors(c.pass)) {
        ExpectedTensor& expected = tensors.emplace_back();
        expected.rows = compared_rows(c, tensor.rows(c.shape), sampled_rows);
        expected.size.resize(std::size_t(c.shape.B) * tensor.heads(c.shape) * expected.rows.size());
        expected.values.resize(expected.size.size() * c.shape.d);
        if (c.pass == Pass::forward) expected.lost_in_rounding.resize(expected.size.size());
    }
    if (c.pass == Pass::forward) {
        L.resize(tensors[0].size.size());
        L_size.resize(L.size());
        peak.resize(L.size());
    }
    with_type(c.dtype, [&](auto type) {
        if (c.pass == Pass::forward) expect_attention<decltype(type)>(c, inputs, *this);
        if (c.pass == Pass::backward) expect_gradients<decltype(type)>(c, inputs, *this);
    });
}

std::string report_unwritten(const Case& c, const Outputs& outputs) {
    const auto some_in = [](const auto& tensor) {
        return std::any_of(tensor.begin(), tensor.end(), [](auto stored) { return is_unwritten(stored); });
    };
    std::vector<std::string> reports;
    for (const OutputTensor& tensor : output_tensors(c.pass)) {
        const std::vector<std::uint16_t>& elements = outputs.*tensor.elements;
        if (!some_in(elements)) continue;
        Mismatch missing = none_of(c, tensor);
        for_each_element(c, tensor, [&](int b, int h, int row, int column, std::size_t index) {
            if (is_unwritten(elements[index])) missing.add(b, h, row, column, unknown, unknown);
        });
        reports.push_back(missing.report(fmt::format("{} was not written", tensor.name)));
    }
    if (some_in(outputs.L)) {
        Mismatch missing(c, all_rows(c.shape.Nq), 1);
        for_each_L(c, [&](int b, int h, int row, std::size_t index) {
            if (is_unwritten(outputs.L[index])) missing.add(b, h, row, 0, unknown, unknown);
        });
        reports.push_back(missing.report("L was not written"));
    }
    return join_lines(reports);
}

std::string report_impossible(const Case& c, const Outputs& outputs) {
    if (const std::string unwritten = report_unwritten(c, outputs); !unwritten.empty()) return unwritten;
    // Under a mask every key is seen by the last row, so dK and dV have no such rows.
    const Mask mask{c.causal, c.shape.Nq, c.shape.Nk};
    std::vector<std::string> reports;
    for (const OutputTensor& tensor : output_tensors(c.pass)) {
        Mismatch not_finite = none_of(c, tensor), not_zero = none_of(c, tensor);
        const std::vector<std::uint16_t>& elements = outputs.*tensor.elements;
        for_each_element(c, tensor, [&](int b, int h, int row, int column, std::size_t index) {
            const std::uint16_t x = elements[index];
            if (!is_finite(c.dtype, x)) {
                not_finite.add(b, h, row, column, unknown, value(c.dtype, x));
            } else if (!tensor.of_keys && mask.visible(row) == 0 && value(c.dtype, x) != 0) {
                not_zero.add(b, h, row, column, 0, value(c.dtype, x));
            }
        });
        reports.push_back(not_finite.report(fmt::format("{} is not finite", tensor.name)));
        reports.push_back(not_zero.report(fmt::format("{} is not 0 where a row sees no key", tensor.name)));
    }
    Mismatch L(c, all_rows(c.shape.Nq), 1);
    for_each_L(c, [&](int b, int h, int row, std::size_t index) {
        const double l = outputs.L[index];
        const bool sees_keys = mask.visible(row) > 0;
        if (sees_keys ? !std::isfinite(l) : l != -infinity) {
            L.add(b, h, row, 0, sees_keys ? unknown : -infinity, l);
        }
    });
    reports.push_back(L.report("L is not finite, or not -inf where a row sees no key"));
    return join_lines(reports);
}

Verdict judge(const Case& c, const Expected& expected, const Outputs& outputs, bool rounds_large_scores) {
    const std::vector<OutputTensor>& tensors = output_tensors(c.pass);
    Verdict verdict{.report = report_impossible(c, outputs), .tensor = ""};
    const bool possible = verdict.report.empty();  // otherwise wrong values are no news
    verdict.passed = possible;
    double nearest = -1;
    std::vector<std::string> reports{verdict.report};
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        const ExpectedTensor& wanted = expected.tensors[k];
        const TensorErrors errors = errors_of(c, tensors[k], wanted, outputs, rounds_large_scores);
        if (errors.nearness() > nearest) {
            nearest = errors.nearness();
            verdict.tensor = tensors[k].name;
            verdict.max_error = errors.largest;
            verdict.standard_max_error = wanted.standard_error;
            verdict.relative_l2 = errors.relative_l2;
        }
        if (errors.pass()) continue;
        verdict.passed = false;
        if (possible)
            reports.push_back(
                report_wrong(c, tensors[k], wanted, expected.peak, outputs, rounds_large_scores, errors));
    }
    if (c.pass == Pass::forward) {
        verdict.max_L_error = largest_L_error(c, expected, outputs);
        if (!(verdict.max_L_error <= L_bound)) {
            verdict.passed = false;
            if (possible) reports.push_back(report_wrong_L(c, expected, outputs, verdict.max_L_error));
        }
    }
    verdict.report = join_lines(reports);
    return verdict;
}

Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows) {
    return judge(c, Expected(c, inputs, sampled_rows), outputs);
}

std::string report_difference(const Case& c, const Outputs& first, const Outputs& other,
                              const std::string& other_is) {
    std::vector<std::string> reports;
    for (const OutputTensor& tensor : output_tensors(c.pass)) {
        const std::vector<std::uint16_t>&before = first.*tensor.elements, &after = other.*tensor.elements;
        Mismatch changed = none_of(c, tensor);
        for_each_element(c, tensor, [&](int b, int h, int row, int column, std::size_t i) {
            if (before[i] != after[i])
                changed.add(b, h, row, column, value(c.dtype, before[i]), value(c.dtype, after[i]));
        });
        reports.push_back(changed.report(fmt::format("{} changed {}", other_is, tensor.name)));
    }
    Mismatch L(c, all_rows(c.shape.Nq), 1);
    for_each_L(c, [&](int b, int h, int row, std::size_t i) {
        if (std::memcmp(&first.L[i], &other.L[i], sizeof(float)) != 0)
            L.add(b, h, row, 0, first.L[i], other.L[i]);
    });
    reports.push_back(L.report(other_is + " changed L"));
    return join_lines(reports);
}

}  // namespace ladder
