#include "harness/verify/expected.h"

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "harness/base/parallel.h"
#include "harness/features/cache.h"
#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "harness/verify/eight_bits.h"
#include "harness/verify/mismatch.h"
#include "harness/verify/outputs.h"
#include "reference/attention.h"

namespace ladder {
namespace {

using reference::Mask;
using reference::Matrix;
using reference::Rows;

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
    constexpr int tile = Mismatch::tile;
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

/// Query heads of the batch: (B, H).
int heads_of(const Case& c) {
    return c.shape.B * c.shape.H;
}

constexpr double L_bound = 1e-4;  ///< relative; L is fp32 whatever the storage type

/// What an error of L is relative to: L, or 1 if that is more. Where a score is small as the sum of large
/// products, fp32 cannot do better than their rounding, which is bounded by |q| |k|; that is added.
double size_of_L(double L, double largest_product) {
    const double size = std::isfinite(L) ? std::max(1.0, std::abs(L)) : 1.0;
    return size + 0x1p-21 / L_bound * largest_product;
}

/// What an element of O may be off by where S scale - m is one multiply-add. m is a rounded product and
/// S scale an exact one, except in the tile that sets m, whose own products are rounded, too: each by 2^-24
/// of it at most. So each tile's weight is off by a factor within exp(-e) .. exp(e), e = 2^-23 |m|; merging
/// parts of the keys by their L in fp32 would do the same, rounded as m + log2(l) and when multiplied by
/// ln 2. Two sets of weights whose factors differ by exp(2 e) at most share all but tanh(e / 2) of their
/// weight: O is off by no more than that share of the distance between two values of V. Tiles whose maximum
/// is far below m weigh nothing.
double lost_in_rounding(double L, double distance) {
    constexpr double of_no_weight = 20;  // exp(-20) = 2e-9
    return std::isfinite(L) ? std::tanh(0x1p-24 * (std::abs(L) + of_no_weight)) * distance : 0;
}

/// A GPU's tanh is off by 2^-11 of it at most, as much as if 11 bits of it were kept (PTX, tanh.approx.f32).
/// Scores under a softcap c are then off by 2^-11 of them, and their weights relative to these.
constexpr int tanh_bits = 11;
constexpr double tanh_error = 0x1p-11;

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
/// Under ALiBi S and L may be large where products are not.
double error_of_P(double scale, const Matrix& Q, const Matrix& K, const Mask& mask,
                  const reference::Vector& L) {
    double size = std::abs(scale) * Q.rowwise().norm().maxCoeff() * K.rowwise().norm().maxCoeff();
    for (const double of_row : L)
        if (mask.scores.slope != 0 && std::isfinite(of_row)) size = std::max(size, std::abs(of_row));
    return 0x1p-21 * size;
}

/// A case's inputs, head by head, in double precision.
template <class T>
class Heads {
  public:
    Heads(const Case& c, const Inputs& inputs) : case_(c), inputs_(inputs) {}

    Matrix Q(int i) const { return whole(of_queries(inputs_.Q, i)); }
    Matrix Q(int i, const Eigen::VectorXi& rows) const {
        return of_queries(inputs_.Q, i)(rows, Eigen::all).template cast<double>();
    }
    Matrix K(int i) const { return whole(of_keys(inputs_.K, i)); }
    Matrix V(int i) const { return whole(of_keys(inputs_.V, i)); }
    Rows K_rows(int i) const { return rows_of(of_keys(inputs_.K, i)); }
    Rows V_rows(int i) const { return rows_of(of_keys(inputs_.V, i)); }
    Matrix dO(int i) const { return whole(of_queries(inputs_.dO, i)); }
    /// O and L, as the backward pass is given them.
    reference::Result forward(int i) const {
        const int N = case_.shape.Nq;
        return {whole(of_queries(inputs_.O, i)),
                Eigen::Map<const Eigen::VectorXf>(inputs_.L.data() + std::size_t(i) * N, N).cast<double>()};
    }

  private:
    static Matrix whole(const auto& head) { return head.template cast<double>(); }
    static Rows rows_of(const auto& head) {
        return Rows([head](Eigen::Index first, Eigen::Index count) -> Matrix {
            return head.middleRows(first, count).template cast<double>();
        });
    }
    auto of_queries(const std::vector<std::uint16_t>& tensor, int i) const {
        return head(tensor, i / case_.shape.H, i % case_.shape.H, case_.shape.H, case_.shape.Nq);
    }
    /// The key/value head that query head i reads.
    auto of_keys(const std::vector<std::uint16_t>& tensor, int i) const {
        const Shape& s = case_.shape;
        return head(tensor, i / s.H, i % s.H / (s.H / s.Hkv), s.Hkv, s.Nk);
    }
    auto head(const std::vector<std::uint16_t>& tensor, int b, int h, int heads, int N) const {
        auto* data = const_cast<std::uint16_t*>(tensor.data());  // only read
        return head_of<T>(dense_view(data, heads, N, case_.shape.d), b, h, N, case_.shape.d);
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

/// How far off products of 8 bits are, over the rows of a head: the largest error of O, its squares and those
/// of O, the largest error of L.
struct EightBitErrors {
    double of_O = 0, squared = 0, size_squared = 0, of_L = 0;

    /// What rounding P loses depends on where its numbers lie between two of e4m3, and these are other
    /// numbers in a kernel that has seen a part of the keys. So it is no less than if all P were off by
    /// chance: each by 2^-4 of it at most, and by less than 2^-5 as a root of a mean square. Cut sums are as
    /// they are here.
    EightBitErrors(const EightBitAttention& emulated, const reference::Result& exact) {
        const Matrix error = (emulated.O - exact.O).cwiseAbs();
        of_O = error.cwiseMax(0x1p-4 * emulated.spread).template maxCoeff<Eigen::PropagateNaN>();
        squared = std::max(error.squaredNorm(), 0x1p-10 * emulated.spread.squaredNorm());
        size_squared = exact.O.squaredNorm();
        for (Eigen::Index i = 0; i < exact.L.size(); ++i) {
            if (std::isfinite(exact.L[i])) of_L = std::max(of_L, std::abs(emulated.L[i] - exact.L[i]));
        }
    }
    EightBitErrors() = default;
};

/// What bounds of errors depend on, of the keys and values of a head
struct KeySizes {
    double largest_norm = 0;                                                ///< of a row of K
    double least = std::numeric_limits<double>::infinity(), most = -least;  ///< of V

    KeySizes(const Rows& K, const Rows& V, int keys) {
        reference::for_each_block(0, keys, [&](int first, int count) {
            const Matrix values = V(first, count);
            largest_norm = std::max(largest_norm, K(first, count).rowwise().norm().maxCoeff());
            least = std::min(least, values.minCoeff());
            most = std::max(most, values.maxCoeff());
        });
    }
};

/// The largest element of K or V in a cache, of each head of the requests that have one scale: (B, Hkv).
template <class T>
std::vector<float> largest_in_cache(const Case& c, const std::vector<std::uint16_t>& X) {
    const Shape& s = c.shape;
    std::vector<float> largest(std::size_t(s.B) * s.Hkv);
    auto* data = const_cast<std::uint16_t*>(X.data());  // only read
    const View view = dense_view(data, s.Hkv, s.Nk, s.d);
    for (int b = 0; b < s.B; ++b) {
        for (int h = 0; h < s.Hkv; ++h) {
            float& of_all = largest[first_sharer(c, b) * s.Hkv + h];
            const int keys = length_of(c, b);
            const auto rows = head_of<T>(view, b, h, keys, s.d).template cast<float>();
            if (keys > 0) of_all = std::max(of_all, rows.cwiseAbs().maxCoeff());
        }
    }
    for (int k = 0; k < s.B * s.Hkv; ++k)
        largest[k] = largest[first_sharer(c, k / s.Hkv) * s.Hkv + k % s.Hkv];
    return largest;
}

/// Fills in O and L.
template <class T>
void expect_attention(const Case& c, const Inputs& inputs, Expected& expected, Products products) {
    if (c.features.promotion && products == Products::of_8_bits) products = Products::of_8_promoted;
    const bool rounds = products != Products::of_16_bits, of_cache = products == Products::of_8_bit_cache;
    const bool quantized = rounds && !of_cache;  // all that it multiplies
    const Shape& s = c.shape;
    const Heads<T> heads(c, inputs);
    ExpectedTensor &O = expected.tensors[0], &L = expected.tensors[1];

    // Rows that one thread takes at a time: so many that what each converts for itself of K and V costs
    // little. Products of 8 bits take longest.
    const int piece_rows = quantized ? 64 : 256;
    const int rows = static_cast<int>(O.rows.size()), pieces = (rows + piece_rows - 1) / piece_rows;
    std::vector<double> errors(static_cast<std::size_t>(heads_of(c)) * pieces);
    std::vector<EightBitErrors> of_8_bits(quantized ? errors.size() : 0);
    std::vector<std::pair<double, double>> of_tanh(errors.size());  // squares of its errors, and of O
    if (rounds) expected.unquantized_O.resize(O.values.size());
    std::vector<float> largest_K, largest_V;
    const bool of_tokens = of_cache && c.features.token_scales;
    if (of_cache && !of_tokens) {
        largest_K = largest_in_cache<T>(c, inputs.K);
        largest_V = largest_in_cache<T>(c, inputs.V);
    }
    parallel_for(heads_of(c) * pieces, [&](int item) {
        const int i = item / pieces;
        const int first = item % pieces * piece_rows, n = std::min(piece_rows, rows - first);
        const Eigen::VectorXi some = Eigen::Map<const Eigen::VectorXi>(O.rows.data() + first, n);
        Matrix Q = heads.Q(i, some);
        Rows K = heads.K_rows(i), V = heads.V_rows(i);
        const Mask mask = mask_of(c, i / s.H, i % s.H);
        const std::size_t row = static_cast<std::size_t>(i) * rows + first;
        double scale = c.softmax_scale();
        std::optional<EightBitAttention> emulated;
        if (rounds) {
            const Matrix O_16 = reference::attention(Q, some, K, V, scale, mask).O;
            std::copy_n(O_16.data(), O_16.size(), expected.unquantized_O.data() + row * s.d);
        }
        if (of_tokens) {
            const Eigen::VectorXi keys = Eigen::VectorXi::LinSpaced(s.Nk, 0, s.Nk - 1);
            K = EightBits::of(heads.K(i), keys, 1).values();
            V = EightBits::of(heads.V(i), keys, 1).values();
        } else if (of_cache) {
            const int head = i / s.H * s.Hkv + i % s.H / (s.H / s.Hkv);
            K = EightBits::of(heads.K(i), largest_K[head]).values();
            V = EightBits::of(heads.V(i), largest_V[head]).values();
        }
        if (quantized) {
            const EightBitHead head = round_head(heads.Q(i), some, heads.K(i), heads.V(i), scale, products);
            emulated.emplace(head, some, mask, products);
            Q = head.Q.values(), K = head.K.values(), V = head.V.values();
            scale = head.scale;
        }
        const auto exact = reference::attention(Q, some, K, V, scale, mask);
        if (emulated) {
            of_8_bits[item] = {*emulated, exact};
            errors[item] = of_8_bits[item].of_O;
        } else {
            errors[item] =
                largest_error(reference::standard_attention<T>(Q, some, K, V, scale, mask).O, exact.O);
        }
        if (mask.scores.softcap > 0) {
            Mask rough = mask;
            rough.scores.tanh_bits = tanh_bits;
            of_tanh[item] = {(reference::attention(Q, some, K, V, scale, rough).O - exact.O).squaredNorm(),
                             exact.O.squaredNorm()};
        }
        std::copy_n(exact.O.data(), exact.O.size(), O.values.data() + row * s.d);
        std::copy_n(exact.L.data(), n, L.values.data() + row);
        std::copy_n(exact.peak.data(), n, expected.peak.data() + row);
        // P is rounded before dropout takes any of it: of a row that loses its largest weights, relative to
        // these.
        Mask whole = mask;
        whole.dropout = {};
        const Matrix sized =
            mask.dropout.is_none() ? exact.O : reference::attention(Q, some, K, V, scale, whole).O;
        const KeySizes sizes(K, V, s.Nk);
        for (int k = 0; k < n; ++k) {
            O.size[row + k] = std::max(exact.O.row(k).norm(), sized.row(k).norm());
            const double largest_product = std::abs(scale) * Q.row(k).norm() * sizes.largest_norm;
            L.size[row + k] = size_of_L(exact.L[k], largest_product) +
                              tanh_error / L_bound * std::min(mask.scores.softcap, largest_product);
            O.lost_in_rounding[row + k] = lost_in_rounding(exact.L[k], sizes.most - sizes.least);
        }
    });
    O.standard_error = largest_of_heads(errors, pieces);
    double squared = 0, size_squared = 0;
    for (const auto& [of_errors, of_O] : of_tanh) squared += of_errors, size_squared += of_O;
    if (squared > 0) O.standard_l2 = std::sqrt(squared / size_squared);
    if (!quantized) return;
    EightBitErrors all;
    for (const EightBitErrors& piece : of_8_bits) {
        all.squared += piece.squared;
        all.size_squared += piece.size_squared;
        all.of_L = std::max(all.of_L, piece.of_L);
    }
    if (all.squared > 0) O.standard_l2 = std::sqrt(all.squared / all.size_squared);
    for (double& size : L.size) size += 2 * all.of_L / L_bound;
}

/// Fills in dQ, dK and dV.
template <class T>
void expect_gradients(const Case& c, const Inputs& inputs, Expected& expected) {
    const Shape& s = c.shape;
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
        Mask mask = mask_of(c, i / s.H, i % s.H);
        mask.scores.tanh_error = tanh_error / relative_l2_bound(c.dtype);
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
        const double more = 1 + error_of_P(scale, Q, K, mask, forward.L) / relative_l2_bound(c.dtype);
        for (auto terms : {&Gradients::dQ_terms, &Gradients::dK_terms, &Gradients::dV_terms})
            exact[i].*terms *= more;
        exact[i].dsink_terms *= more;
    });

    // Each tensor's heads: a query head's gradient, or the sum of those of a group. Standard attention rounds
    // what it adds up, and then the sum.
    const auto fill = [&](ExpectedTensor& tensor, Matrix Gradients::*value,
                          reference::Vector Gradients::*terms, int count) {
        const int group = heads_of(c) / count;
        const auto n = std::ssize(tensor.rows);
        std::vector<double> errors(count);
        double squared = 0, size_squared = 0;
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
            const Matrix of_type = of_standard.cast<T>().template cast<double>();
            errors[head] = largest_error(of_type, sum);
            squared += (of_type - sum).squaredNorm(), size_squared += size.squaredNorm();
        }
        tensor.standard_error = largest_of_heads(errors, 1);
        // A sink may take all weights of a row below the smallest numbers of fp16. Rounding
        // these is off by more than the bound.
        const double l2 = std::sqrt(squared / size_squared) - relative_l2_bound(c.dtype);
        if (!c.features.sinks.empty() && std::isfinite(l2) && l2 > 0) tensor.standard_l2 = l2;
    };
    fill(dQ, &Gradients::dQ, &Gradients::dQ_terms, heads_of(c));
    fill(dK, &Gradients::dK, &Gradients::dK_terms, s.B * s.Hkv);
    fill(dV, &Gradients::dV, &Gradients::dV_terms, s.B * s.Hkv);
    if (expected.tensors.size() == 3) return;
    ExpectedTensor& dsinks = expected.tensors[3];
    constexpr double fp32_loses = 0x1p-80;  // of terms below its range
    for (int h = 0; h < s.H; ++h) {
        double squares = 0;
        for (int i = h; i < heads_of(c); i += s.H) {
            dsinks.values[h] += exact[i].dsink;
            squares += exact[i].dsink_terms * exact[i].dsink_terms;
        }
        dsinks.size[h] = std::max({std::sqrt(squares), std::abs(dsinks.values[h]), fp32_loses});
    }
}

/// Adds the time until the end of its scope.
class Elapsed {
  public:
    explicit Elapsed(double& seconds) : seconds_(seconds) {}
    ~Elapsed() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

  private:
    using Clock = std::chrono::steady_clock;
    double& seconds_;
    const Clock::time_point start_ = Clock::now();
};

}  // namespace

/// FlashAttention's tests (tests/test_flash_attn.py) allow O twice the largest error of standard attention,
/// and the gradients three times: a kernel rounds D with O, and a group's sum otherwise than head by head.
///
/// The floor is one unit in the last place of the largest output, as in those tests ("the error of any
/// arithmetic on the output", twice): P and O are each rounded, even where standard attention happens to be
/// exact. An output that is small since its terms cancel is as large as they are.
Bounds bounds_of(const Case& c, double standard_error, double largest_output) {
    const double ulp = (c.dtype == DType::fp16 ? 0x1p-10 : 0x1p-7) * largest_output;
    return {.absolute = (c.pass == Pass::forward ? 2 : 3) * standard_error + ulp,
            .relative_l2 = relative_l2_bound(c.dtype)};
}

/// Each error is held to the bound, so their L2 norm is free. dsinks are sums in fp32 of terms in which D may
/// be taken from P and dP.
Bounds bounds_of_floats(const Case& c) {
    return {.absolute = c.pass == Pass::forward ? L_bound : relative_l2_bound(c.dtype),
            .relative_l2 = std::numeric_limits<double>::infinity()};
}

Expected::Expected(const Case& c, const Inputs& inputs, int sampled_rows, Products products) {
    for (const OutputTensor& tensor : output_tensors(c)) {
        ExpectedTensor& expected = tensors.emplace_back();
        expected.rows = compared_rows(c, tensor.rows(c.shape), sampled_rows);
        expected.size.resize(std::size_t(tensor.batches(c.shape)) * tensor.heads(c.shape) *
                             expected.rows.size());
        expected.values.resize(expected.size.size() * tensor.columns(c.shape));
    }
    if (c.pass == Pass::forward) {
        tensors[0].lost_in_rounding.resize(tensors[0].size.size());
        peak.resize(tensors[0].size.size());
    }
    with_type(c.dtype, [&](auto type) {
        if (c.pass == Pass::forward) expect_attention<decltype(type)>(c, inputs, *this, products);
        if (c.pass == Pass::backward) expect_gradients<decltype(type)>(c, inputs, *this);
    });
}

const Inputs& Reference::inputs() {
    if (!inputs_) {
        const Elapsed elapsed(seconds_);
        inputs_ = make_inputs(problem);
    }
    return *inputs_;
}

const Expected& Reference::expected(Products products) {
    if (const auto known = expected_.find(products); known != expected_.end()) return known->second;
    const Inputs& from = inputs();
    const Elapsed elapsed(seconds_);
    return expected_.try_emplace(products, problem, from, 0, products).first->second;
}

}  // namespace ladder
