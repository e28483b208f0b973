#include "harness/cases/inputs.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <tuple>

#include "harness/base/parallel.h"
#include "harness/features/cache.h"
#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "reference/attention.h"
#include "stages/errors.h"

namespace ladder {
namespace {

using reference::Matrix;

/// Normal numbers that are the same on every machine: only integers, IEEE arithmetic and sqrt, no libm.
class Random {
  public:
    Random(std::uint64_t seed, unsigned tensor) {
        std::seed_seq sequence{static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32), tensor};
        engine_.seed(sequence);
    }

    /// N(0, 1) as 48 coin flips, and a uniform number that fills the gaps between their counts.
    double normal() {
        const std::uint64_t bits = engine_();
        const double heads = std::popcount(bits >> 16) - 24;                              // variance 12
        const double uniform = (static_cast<double>(bits & 0xffff) + 0.5) / 65536 - 0.5;  // variance 1/12
        return (heads + uniform) / std::sqrt(12 + 1.0 / 12);
    }

    Matrix normal(int rows, int columns) {
        Matrix x(rows, columns);
        std::generate_n(x.data(), x.size(), [this] { return normal(); });
        return x;
    }

    int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }

  private:
    std::mt19937_64 engine_;
};

/// What normal Q and K are multiplied by so that their scores are huge: about +-1e7, or for every other seed
/// +-1e4, which is within the range of fp16. In the backward pass all are +-1e4: P = exp(S - L) needs an L
/// that is exact to less than 1, and fp32 has none at 1e7.
double hugeness(const Case& c, double scale) {
    const bool in_range = c.pass == Pass::backward || (c.input == "huge" && c.seed % 2 == 0);
    return std::sqrt((in_range ? 3e3 : 3e6) / (std::abs(scale) * std::sqrt(c.shape.d)));
}

/// Turns normal K (Nk, d) into the keys that the kind of input wants.
void shape_keys(const Case& c, double scale, Matrix& K) {
    const Shape& s = c.shape;
    if (c.input == "huge") {
        K *= hugeness(c, scale);
    } else if (c.input == "rising" || c.input == "falling") {
        // The score of key j is its place on a ramp, plus a little noise. One tile of 64 keys climbs by 4:
        // the maximum moves, and what came before still weighs exp(-4). Long ramps climb slower, to stay
        // exact in fp32.
        const double slope = std::min(1.0 / 16, 1024.0 / s.Nk) * (c.input == "rising" ? 1 : -1);
        for (int j = 0; j < s.Nk; ++j) {
            K.row(j).array() = K.row(j).array() / 4 + slope * (j - (s.Nk - 1) / 2.0) / (scale * s.d);
        }
    } else if (c.input == "constant" || c.input == "huge_constant") {
        if (c.input == "huge_constant") K.row(0) *= hugeness(c, scale);
        K.rowwise() = Eigen::RowVectorXd(K.row(0));
    } else if (c.input == "one_hot") {
        K = K.unaryExpr([](double x) { return x < 0 ? -1.0 : 1.0; });
    }
}

/// Turns normal Q (Nq, d) into the queries that the kind of input wants of these keys.
void shape_queries(const Case& c, double scale, const reference::Mask& mask, const Matrix& K, Random& random,
                   Matrix& Q) {
    const Shape& s = c.shape;
    if (c.input == "huge" || c.input == "huge_constant") {
        Q *= hugeness(c, scale);
    } else if (c.input == "rising" || c.input == "falling") {
        Q.array() = Q.array() / 4 + 1;
    } else if (c.input == "one_hot") {
        // Row i is its key times a number that makes their score 64; other keys score around 64 / sqrt(d).
        for (int i = 0; i < s.Nq; ++i) {
            const int seen = mask.visible(i);
            int key = seen == 0 ? 0 : mask.first(i), others = random.below(std::max(1, seen));
            for (; seen != 0 && (mask.hides(i, key) || others > 0); ++key) others -= !mask.hides(i, key);
            Q.row(i) = K.row(key) * (64 / (scale * s.d));
        }
    }
}

/// Room for a (B, heads, N, d) tensor.
std::vector<std::uint16_t> tensor(const Shape& s, int heads, int N) {
    return std::vector<std::uint16_t>(static_cast<std::size_t>(s.B) * heads * N * s.d);
}

template <class T>
Inputs make(const Case& c) {
    const Shape& s = c.shape;
    const double scale = c.softmax_scale() == 0 ? 1 : c.softmax_scale();
    Random random_q(c.seed, 0), random_k(c.seed, 1), random_v(c.seed, 2);
    Inputs inputs{tensor(s, s.H, s.Nq), tensor(s, s.Hkv, s.Nk), tensor(s, s.Hkv, s.Nk)};
    const View Q_view = dense_view(inputs.Q.data(), s.H, s.Nq, s.d);
    const View K_view = dense_view(inputs.K.data(), s.Hkv, s.Nk, s.d);
    const View V_view = dense_view(inputs.V.data(), s.Hkv, s.Nk, s.d);

    const auto store = [&](const View& view, int b, int h, const Matrix& values) {
        auto stored = head_of<T>(view, b, h, static_cast<int>(values.rows()), s.d);
        stored = values.cast<T>();
        const double largest = values.cwiseAbs().template maxCoeff<Eigen::PropagateNaN>();
        if (!std::isfinite(static_cast<float>(static_cast<T>(largest)))) {
            throw BadUsage(fmt::format("input '{}' with softmax scale {} does not fit into {}", c.input,
                                       c.softmax_scale(), name(c.dtype)));
        }
    };
    const auto drawn = [&](Random& random, int rows, bool zero_head) {
        Matrix X = random.normal(rows, s.d);
        if (c.input == "zeros" && zero_head) X.setZero();
        if (c.input == "zeros" && rows > 128) X.middleRows(128, std::min(rows - 128, 128)).setZero();
        if (c.input != "outliers") return X;
        for (double& x : X.reshaped()) x += random.below(1000) == 0 ? 10 * random.normal() : 0;
        return X;
    };
    const int group = s.H / s.Hkv;
    std::vector<Matrix> K_before(s.Hkv), V_before(s.Hkv);  // of the request before
    for (int b = 0; b < s.B; ++b) {
        for (int kv = 0; kv < s.Hkv; ++kv) {
            const int head = b * s.Hkv + kv;
            Matrix K = drawn(random_k, s.Nk, head % 3 == 1);
            shape_keys(c, scale, K);
            if (c.input == "biased" || c.input == "smoothed")
                K.rowwise() += Eigen::RowVectorXd(4 * random_k.normal(1, s.d));
            if (c.input == "smoothed") K.rowwise() -= Eigen::RowVectorXd(K.colwise().mean());
            Matrix V = drawn(random_v, s.Nk, head % 3 == 2);
            if (c.input == "same_sign") V.array() += 4;
            if (const int shared = shared_keys(c, b); shared > 0) {
                K.topRows(shared) = K_before[kv].topRows(shared);
                V.topRows(shared) = V_before[kv].topRows(shared);
            }
            store(K_view, b, kv, K);
            store(V_view, b, kv, V);
            for (int h = kv * group; h < (kv + 1) * group; ++h) {
                Matrix Q = drawn(random_q, s.Nq, (b * s.H + h) % 3 == 0);
                shape_queries(c, scale, mask_of(c, b, h), K, random_q, Q);
                store(Q_view, b, h, Q);
            }
            if (c.features.page_size > 0) std::tie(K_before[kv], V_before[kv]) = std::tie(K, V);
        }
    }
    if (c.pass == Pass::forward) return inputs;
    Random random_dO(c.seed, 3);
    inputs.dO = tensor(s, s.H, s.Nq);
    const View dO_view = dense_view(inputs.dO.data(), s.H, s.Nq, s.d);
    for (int head = 0; head < s.B * s.H; ++head)
        store(dO_view, head / s.H, head % s.H, random_dO.normal(s.Nq, s.d));
    add_forward(c, inputs);
    return inputs;
}

}  // namespace

Inputs make_inputs(const Case& c) {
    const auto& kinds = input_kinds();
    if (std::none_of(kinds.begin(), kinds.end(),
                     [&](const InputKind& kind) { return c.input == kind.name; })) {
        std::string known;
        for (const InputKind& kind : kinds)
            known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
        throw BadUsage(fmt::format("unknown input '{}' (known: {})", c.input, known));
    }
    return with_type(c.dtype, [&](auto type) { return make<decltype(type)>(c); });
}

void add_forward(const Case& c, Inputs& inputs) {
    const Shape& s = c.shape;
    inputs.O.resize(inputs.Q.size());
    inputs.L.resize(std::size_t(s.B) * s.H * s.Nq);
    const View Q = dense_view(inputs.Q.data(), s.H, s.Nq, s.d),
               O = dense_view(inputs.O.data(), s.H, s.Nq, s.d),
               K = dense_view(inputs.K.data(), s.Hkv, s.Nk, s.d),
               V = dense_view(inputs.V.data(), s.Hkv, s.Nk, s.d);
    with_type(c.dtype, [&](auto type) {
        using T = decltype(type);
        parallel_for(s.B * s.H, [&](int head) {
            const int b = head / s.H, h = head % s.H, kv = h / (s.H / s.Hkv);
            const auto result = reference::attention(head_of<T>(Q, b, h, s.Nq, s.d).template cast<double>(),
                                                     head_of<T>(K, b, kv, s.Nk, s.d).template cast<double>(),
                                                     head_of<T>(V, b, kv, s.Nk, s.d).template cast<double>(),
                                                     c.softmax_scale(), mask_of(c, b, h));
            head_of<T>(O, b, h, s.Nq, s.d) = result.O.template cast<T>();
            for (int i = 0; i < s.Nq; ++i)
                inputs.L[std::size_t(head) * s.Nq + i] = static_cast<float>(result.L[i]);
        });
    });
}

}  // namespace ladder
