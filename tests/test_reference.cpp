#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "reference/attention.h"
#include "reference/merge.h"
#include "reference/tiled.h"
#include "tests/catch.h"

namespace {

using namespace reference;

constexpr double infinity = std::numeric_limits<double>::infinity();

Matrix random_matrix(int rows, int columns, unsigned seed, double size = 1) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-size, size);
    return Matrix::NullaryExpr(rows, columns, [&] { return uniform(random); });
}

bool near(double a, double b, double tolerance = 1e-12) {
    return a == b || std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
}

bool near(const Matrix& a, const Matrix& b, double tolerance = 1e-12) {
    return a.rows() == b.rows() && a.cols() == b.cols() && (a - b).cwiseAbs().maxCoeff() <= tolerance;
}

bool near(const Partial& a, const Partial& b, double tolerance = 1e-12) {
    return near(a.L, b.L, tolerance) && near(Matrix(a.O), Matrix(b.O), tolerance);
}

bool near(const State& a, const State& b) {
    return a.m == b.m && near(a.l, b.l) && near(Matrix(a.O), Matrix(b.O));
}

/// Attention straight from its definition, one number at a time.
Result brute_force(const Matrix& Q, const Matrix& K, const Matrix& V, double scale, const Mask& mask) {
    Result result{Matrix::Zero(Q.rows(), V.cols()), Vector::Constant(Q.rows(), -infinity)};
    for (int i = 0; i < Q.rows(); ++i) {
        double sum = 0;
        std::vector<double> weights;
        for (int j = 0; j < K.rows(); ++j) {
            const bool visible = !mask.causal || j <= i + mask.Nk - mask.Nq;
            double score = 0;
            for (int c = 0; c < Q.cols(); ++c) score += scale * Q(i, c) * K(j, c);
            weights.push_back(visible ? std::exp(score) : 0.0);
            sum += weights.back();
        }
        if (sum == 0) continue;
        for (int c = 0; c < V.cols(); ++c) {
            for (int j = 0; j < K.rows(); ++j) result.O(i, c) += weights[j] / sum * V(j, c);
        }
        result.L[i] = std::log(sum);
    }
    return result;
}

TEST_CASE("attention agrees with an example by hand") {
    // Scores 0 and log 3: weights 1/4 and 3/4, L = log 4.
    Matrix Q(1, 1), K(2, 1), V(2, 2);
    Q << std::log(3.0);
    K << 0, 2;
    V << 4, 0, 8, -4;
    const Result result = attention(Q, K, V, 0.5, {false, 1, 2});
    CHECK(near(result.O(0, 0), 7));
    CHECK(near(result.O(0, 1), -3));
    CHECK(near(result.L[0], std::log(4.0)));
}

TEST_CASE("attention agrees with brute force") {
    // The last three have several blocks of rows, some of them or of their rows without keys.
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {5, 5}, {3, 7}, {7, 3}, {70, 70}, {150, 40}, {65, 300}}) {
        for (const bool causal : {false, true}) {
            CAPTURE(Nq, Nk, causal);
            const Matrix Q = random_matrix(Nq, 4, 1), K = random_matrix(Nk, 4, 2),
                         V = random_matrix(Nk, 4, 3);
            const Mask mask{causal, Nq, Nk};
            const Result expected = brute_force(Q, K, V, 0.5, mask), got = attention(Q, K, V, 0.5, mask);
            CHECK(near(got.O, expected.O));
            for (int i = 0; i < Nq; ++i) CHECK(near(got.L[i], expected.L[i]));
        }
    }
}

TEST_CASE("attention of some rows is those rows of attention") {
    const Matrix Q = random_matrix(6, 4, 1), K = random_matrix(8, 4, 2), V = random_matrix(8, 4, 3);
    const Mask mask{true, 6, 8};
    Eigen::VectorXi rows(2);
    rows << 1, 4;
    const Result all = attention(Q, K, V, 0.5, mask),
                 some = attention(Q(rows, Eigen::all), rows, K, V, 0.5, mask);
    CHECK(near(some.O, all.O(rows, Eigen::all)));  // a product of other blocks may end in other bits
    CHECK(near(some.L[1], all.L[4]));
}

TEST_CASE("K and V are read a block of keys at a time", "[reference]") {
    constexpr int Nk = 9000;  // two blocks and a piece
    const Matrix Q = random_matrix(3, 5, 1), K = random_matrix(Nk, 5, 2), V = random_matrix(Nk, 5, 3);
    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(3, 0, 2);
    Eigen::Index most = 0;
    const auto some_of = [&](const Matrix& all) {
        return Rows([&](Eigen::Index first, Eigen::Index count) -> Matrix {
            most = std::max(most, count);
            return all.middleRows(first, count);
        });
    };
    for (const bool causal : {false, true}) {
        const Mask mask{causal, 3, Nk};
        const Result expected = brute_force(Q, K, V, 0.5, mask),
                     got = attention(Q, rows, some_of(K), some_of(V), 0.5, mask);
        CHECK((near(got.O, expected.O) && near(Matrix(got.L), Matrix(expected.L))));
        const Matrix scores = Q * K.transpose();
        CHECK(near(scores(0, got.peak[0]), scores.row(0).head(causal ? Nk - 2 : Nk).maxCoeff()));
        using Eigen::half;
        CHECK(near(standard_attention<half>(Q, rows, some_of(K), some_of(V), 0.5, mask).O, expected.O, 0.01));
    }
    CHECK(most < Nk / 2);
}

TEST_CASE("a causal mask is aligned bottom-right, and rows without keys give 0 and -inf") {
    CHECK(Mask{true, 4, 6}.visible(0) == 3);
    CHECK(Mask{true, 4, 6}.visible(3) == 6);
    CHECK(Mask{true, 6, 4}.visible(1) == 0);
    CHECK(Mask{true, 6, 4}.visible(2) == 1);
    CHECK(Mask{false, 6, 4}.visible(0) == 4);

    const Matrix Q = random_matrix(6, 4, 1), K = random_matrix(4, 4, 2), V = random_matrix(4, 4, 3);
    const Result result = attention(Q, K, V, 0.5, {true, 6, 4});
    CHECK(result.O.topRows(2).isZero(0));
    CHECK(result.L[1] == -infinity);
    CHECK(near(Matrix(result.O.row(2)), Matrix(V.row(0))));
}

TEST_CASE(
    "keys that hide from a row weigh nothing, as in a dense mask; rows without others give 0 and -inf") {
    const int Nq = 7, Nk = 9;
    const Matrix Q = random_matrix(Nq, 4, 1), K = random_matrix(Nk, 4, 2), V = random_matrix(Nk, 4, 3),
                 dO = random_matrix(Nq, 4, 4);
    Mask mask{.causal = true, .Nq = Nq, .Nk = Nk};
    for (int key = 0; key < Nk; ++key) mask.hidden.push_back({{key % 4, 3}, {key % 5, 4}});  // from row 3 all
    const Result result = attention(Q, K, V, 0.5, mask);
    const Gradients gradients = attention_gradient(Q, K, V, dO, 0.5, mask);
    Matrix dV = Matrix::Zero(Nk, 4);
    for (int row = 0; row < Nq; ++row) {
        double l = 0;
        int seen = 0;
        Vector O = Vector::Zero(4);
        const auto weight = [&](int key) {
            const bool hides = (row >= key % 4 && row < key % 5) || row == 3;
            return hides || key > row + Nk - Nq ? 0 : std::exp(0.5 * Q.row(row).dot(K.row(key)));
        };
        for (int key = 0; key < Nk; ++key) {
            l += weight(key), seen += weight(key) > 0;
            O += weight(key) * V.row(key).transpose();
        }
        CHECK(mask.visible(row) == seen);
        CHECK((mask.sees_keys(row) == (seen > 0) && (seen == 0) == (row == 3)));
        for (int key = 0; key < Nk && seen > 0; ++key) dV.row(key) += weight(key) / l * dO.row(row);
        CHECK(near(result.L[row], std::log(l)));
        CHECK(near(Matrix(result.O.row(row)), seen == 0 ? Matrix::Zero(1, 4) : Matrix(O.transpose() / l)));
    }
    CHECK(near(gradients.dV, dV));
    CHECK(gradients.dQ.row(3).isZero(0));
    CHECK(near(tiled_attention(Q, K, V, 0.5, mask, 2, 4).O, result.O));
}

TEST_CASE("attention survives scores of 1e4") {
    const Matrix Q = random_matrix(4, 4, 1, 200), K = random_matrix(9, 4, 2, 200), V = random_matrix(9, 4, 3);
    const Result result = attention(Q, K, V, 0.5, {false, 4, 9});
    CHECK(result.O.allFinite());
    CHECK(result.L.allFinite());
    CHECK(result.L.maxCoeff() > 1e3);
}

TEST_CASE("standard attention rounds S, P and O to the storage type") {
    using Eigen::bfloat16;
    using Eigen::half;
    const Eigen::VectorXi row = Eigen::VectorXi::Zero(1);

    SECTION("S") {  // scores 256 and 257: the latter is no bfloat16, so both keys weigh the same
        Matrix Q(1, 1), K(2, 1), V(2, 1);
        Q << 1;
        K << 256, 257;
        V << -1, 1;
        // K as it stands is no bfloat16 either, which this function does not mind.
        CHECK(standard_attention<bfloat16>(Q, row, K, V, 1, {false, 1, 2}).O(0, 0) == 0);
        CHECK(standard_attention<half>(Q, row, K, V, 1, {false, 1, 2}).O(0, 0) > 0.4);
    }
    SECTION("P") {  // 1/2 + 2^-12 is between two halfs and becomes 1/2; 1/2 - 2^-12 is a half and stays
        Matrix Q(1, 1), K(2, 1), V(2, 1);
        Q << 1;
        K << 0x1p-10, 0;
        V << 1, -1;
        CHECK(standard_attention<half>(Q, row, K, V, 1, {false, 1, 2}).O(0, 0) == 0x1p-12);
    }
    SECTION("O") {  // one half of 1 + 2^-10 and 1: exact in fp32, between two numbers of fp16
        Matrix Q(1, 1), K(2, 1), V(2, 1);
        Q << 0;
        K << 0, 0;
        V << 1, 1 + 0x1p-10;
        CHECK(standard_attention<half>(Q, row, K, V, 1, {false, 1, 2}).O(0, 0) == 1);
    }
    SECTION("close to the double result, and not equal to it") {
        const Matrix Q = random_matrix(8, 16, 1, 2), K = random_matrix(20, 16, 2, 2),
                     V = random_matrix(20, 16, 3);
        const Mask mask{true, 8, 20};
        const Result exact = attention(Q, K, V, 0.25, mask);
        const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(8, 0, 7);
        const Result in_half = standard_attention<half>(Q, rows, K, V, 0.25, mask);
        const Result in_bfloat16 = standard_attention<bfloat16>(Q, rows, K, V, 0.25, mask);
        CHECK(near(in_half.O, exact.O, 3e-3));
        CHECK(!near(in_half.O, exact.O, 1e-6));
        CHECK(near(in_bfloat16.O, exact.O, 3e-2));
        CHECK(!near(in_bfloat16.O, exact.O, 1e-4));
        for (int i = 0; i < 8; ++i) CHECK(near(in_half.L[i], exact.L[i], 1e-2));
    }
    SECTION("rows without keys") {
        const Matrix Q = random_matrix(3, 4, 1), K = random_matrix(1, 4, 2), V = random_matrix(1, 4, 3);
        const Result result =
            standard_attention<half>(Q, Eigen::VectorXi::LinSpaced(3, 0, 2), K, V, 0.5, {true, 3, 1});
        CHECK(result.O.topRows(2).isZero(0));
        CHECK(result.L[0] == -infinity);
    }
}

/// The gradient of f by X, by central differences.
Matrix by_differences(Matrix X, const std::function<double(const Matrix&)>& f) {
    constexpr double h = 1e-5;
    Matrix gradient(X.rows(), X.cols());
    for (Eigen::Index i = 0; i < X.size(); ++i) {
        const double x = X.data()[i];
        X.data()[i] = x + h;
        const double above = f(X);
        X.data()[i] = x - h;
        gradient.data()[i] = (above - f(X)) / (2 * h);
        X.data()[i] = x;
    }
    return gradient;
}

TEST_CASE("the gradients are what finite differences of the loss are") {
    // Two heads share K and V. The last but one has rows without keys, and the last several blocks of rows.
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {5, 5}, {3, 7}, {7, 3}, {67, 2}}) {
        for (const bool causal : {false, true}) {
            for (const double scale : {0.5, -0.8, 0.0}) {
                CAPTURE(Nq, Nk, causal, scale);
                const Matrix K = random_matrix(Nk, 3, 1), V = random_matrix(Nk, 3, 2);
                const Mask mask{causal, Nq, Nk};
                std::vector<Matrix> Q, dO;
                for (const unsigned h : {0u, 1u}) {
                    Q.push_back(random_matrix(Nq, 3, 3 + h));
                    dO.push_back(random_matrix(Nq, 3, 5 + h));
                }
                const auto loss = [&](const Matrix& Q0, const Matrix& Ks, const Matrix& Vs) {
                    return dO[0].cwiseProduct(attention(Q0, Ks, Vs, scale, mask).O).sum() +
                           dO[1].cwiseProduct(attention(Q[1], Ks, Vs, scale, mask).O).sum();
                };
                const Gradients first = attention_gradient(Q[0], K, V, dO[0], scale, mask),
                                second = attention_gradient(Q[1], K, V, dO[1], scale, mask);
                CHECK(near(first.dQ, by_differences(Q[0], [&](const Matrix& X) { return loss(X, K, V); }),
                           1e-8));
                CHECK(near(first.dK + second.dK,
                           by_differences(K, [&](const Matrix& X) { return loss(Q[0], X, V); }), 1e-8));
                CHECK(near(first.dV + second.dV,
                           by_differences(V, [&](const Matrix& X) { return loss(Q[0], K, X); }), 1e-8));
                if (causal && Nq > Nk) CHECK(first.dQ.topRows(Nq - Nk).isZero(0));
            }
        }
    }
}

/// The gradients under a mask of 9 x 9, held to finite differences of the loss.
Gradients gradients_under(const Mask& mask) {
    const Matrix Q = random_matrix(9, 3, 1), K = random_matrix(9, 3, 2), V = random_matrix(9, 3, 3),
                 dO = random_matrix(9, 3, 4);
    const auto loss = [&](const Matrix& Qs, const Matrix& Ks, const Matrix& Vs) {
        return dO.cwiseProduct(attention(Qs, Ks, Vs, 0.5, mask).O).sum();
    };
    const Gradients all = attention_gradient(Q, K, V, dO, 0.5, mask);
    CHECK(near(all.dQ, by_differences(Q, [&](const Matrix& X) { return loss(X, K, V); }), 1e-8));
    CHECK(near(all.dK, by_differences(K, [&](const Matrix& X) { return loss(Q, X, V); }), 1e-8));
    CHECK(near(all.dV, by_differences(V, [&](const Matrix& X) { return loss(Q, K, X); }), 1e-8));
    return all;
}

TEST_CASE("the gradients of packed documents and under column bounds are what finite differences are") {
    for (const bool causal : {false, true}) {
        for (const int left : {-1, 1}) {
            CAPTURE(causal, left);
            Mask mask{causal, 9, 9, left};
            // Two have no keys or no rows, one has a row and a key.
            mask.documents = {{0, 3, 0, 2}, {3, 5, 2, 2}, {5, 5, 2, 4}, {5, 6, 4, 5}, {6, 9, 5, 9}};
            const Gradients packed = gradients_under(mask);
            CHECK(packed.dQ.middleRows(3, 2).isZero(0));
            CHECK((packed.dK.middleRows(2, 2).isZero(0) && packed.dV.middleRows(2, 2).isZero(0)));
            mask.documents.clear();
            // Row 5 sees no key, and no row sees key 4.
            for (int key = 0; key < 9; ++key)
                mask.hidden.push_back({{key % 3, 5}, {key % 4, key < 5 ? 9 : 6}});
            mask.hidden[4] = {{0, 4}, {9, 4}};
            const Gradients bounded = gradients_under(mask);
            CHECK(bounded.dQ.row(5).isZero(0));
            CHECK((bounded.dK.row(4).isZero(1e-99) &&
                   bounded.dV.row(4).isZero(1e-99)));  // exp(-inf) may be 1e-308
        }
    }
}

TEST_CASE(
    "the gradients under dropout are what finite differences are, and a dropped key has no part in dV") {
    for (const bool causal : {false, true}) {
        for (const int kept : {1, 128, 230}) {
            CAPTURE(causal, kept);
            Mask mask{causal, 9, 9};
            mask.dropout = {kept, 5, 2, 1};
            const Gradients all = gradients_under(mask);
            for (int key = 0; key < 9; ++key) {
                bool drops = true;
                for (int row = 0; row < 9; ++row)
                    drops = drops && (!mask.dropout.keeps(row, key) || key >= mask.end(row));
                CHECK(all.dV.row(key).isZero(0) == drops);
            }
        }
    }
}

TEST_CASE("gradients from O and L are the same, as parts of rows and keys too") {
    const bool causal = GENERATE(false, true);
    const int Nq = 70, Nk = 66;
    const Matrix Q = random_matrix(Nq, 4, 1, 2), K = random_matrix(Nk, 4, 2, 2), V = random_matrix(Nk, 4, 3),
                 dO = random_matrix(Nq, 4, 4);
    Mask mask{causal, Nq, Nk};
    mask.dropout.kept = GENERATE(256, 200);
    const Result forward = attention(Q, K, V, 0.5, mask);
    const Gradients all = attention_gradient(Q, K, V, dO, 0.5, mask);
    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(Nq, 0, Nq - 1),
                          keys = Eigen::VectorXi::LinSpaced(Nk, 0, Nk - 1), some = keys(Eigen::seq(1, 65, 9));
    const auto part = [&](const Eigen::VectorXi& i, const Eigen::VectorXi& j) {
        return attention_gradient(Q(i, Eigen::all), i, K(j, Eigen::all), j, V(j, Eigen::all),
                                  dO(i, Eigen::all), {forward.O(i, Eigen::all), forward.L(i)}, 0.5, mask);
    };
    const Gradients whole = part(rows, keys), of_rows = part(some, keys), of_keys = part(rows, some);
    CHECK(near(whole.dQ, all.dQ));
    CHECK(near(whole.dK, all.dK));
    CHECK(near(whole.dV, all.dV));
    CHECK(near(of_rows.dQ, all.dQ(some, Eigen::all)));
    CHECK(near(of_keys.dK, all.dK(some, Eigen::all)));
    CHECK(near(of_keys.dV, all.dV(some, Eigen::all)));

    // The sizes of their terms: one by one, and as large as without dropout where it takes them.
    const Vector S = 0.5 * Q * K.row(9).transpose();
    double dV = 0, dK = 0;
    for (int i = 0; i < Nq; ++i) {
        if (9 >= mask.visible(i)) continue;
        const double P = std::exp(S[i] - forward.L[i]);
        const double dP = std::abs(dO.row(i).dot(V.row(9))),
                     D = dO.row(i).cwiseProduct(forward.O.row(i)).norm();
        const double weight = mask.dropout.keeps(i, 9) ? 256.0 / mask.dropout.kept : 1;
        dV += std::pow(P * weight * dO.row(i).norm(), 2);
        dK += std::pow(0.5 * P * (weight * dP + D) * Q.row(i).norm(), 2);
    }
    CHECK(near(whole.dV_terms[9], std::sqrt(dV)));
    CHECK(near(whole.dK_terms[9], std::sqrt(dK)));
    CHECK(near(Matrix(of_rows.dQ_terms), Matrix(whole.dQ_terms(some))));
    CHECK(whole.dQ_terms.minCoeff() >= 0);
}

TEST_CASE("the gradients of standard attention are rounded: close to the double ones, and not equal") {
    const Matrix Q = random_matrix(30, 16, 1, 2), K = random_matrix(20, 16, 2, 2),
                 V = random_matrix(20, 16, 3), dO = random_matrix(30, 16, 4);
    const Mask mask{true, 30, 20};
    const Gradients exact = attention_gradient(Q, K, V, dO, 0.25, mask);
    const auto differ = [&](const Gradients& got, double most, double least) {
        for (Matrix Gradients::*x : {&Gradients::dQ, &Gradients::dK, &Gradients::dV}) {
            CHECK(near(got.*x, exact.*x, most));
            CHECK(!near(got.*x, exact.*x, least));
        }
        CHECK(got.dQ.topRows(10).isZero(0));
    };
    differ(standard_attention_gradient<Eigen::half>(Q, K, V, dO, 0.25, mask), 5e-3, 1e-5);
    differ(standard_attention_gradient<Eigen::bfloat16>(Q, K, V, dO, 0.25, mask), 5e-2, 1e-3);

    const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(30, 0, 29),
                          keys = Eigen::VectorXi::LinSpaced(20, 0, 19);
    const Result forward = attention(Q, K, V, 0.25, mask);
    differ(standard_attention_gradient<Eigen::half>(Q, rows, K, keys, V, dO, forward, 0.25, mask), 5e-3,
           1e-5);

    // dP, one key and row: 1 + 2^-10 in both of dO and V is no half, and D is that product rounded too.
    Matrix one(1, 1), x(1, 1);
    one << 1;
    x << 1 + 0x1p-10;
    const Gradients single = standard_attention_gradient<Eigen::half>(one, one, x, x, 1, {false, 1, 1});
    CHECK(single.dQ(0, 0) == 0);
    CHECK(single.dV(0, 0) == x(0, 0));
    // Given O = 1, the same dP is 1 + 2^-9, rounded, and D = dO.
    Eigen::VectorXi first(1);
    first << 0;
    Result given{one, Vector::Constant(1, 1.0)};  // L = S: P = 1
    CHECK(standard_attention_gradient<Eigen::half>(one, first, one, first, x, x, given, 1, {false, 1, 1})
              .dK(0, 0) == 0x1p-10);
}

/// States of disjoint blocks of keys, with maxima far apart and one block fully masked.
std::vector<State> blocks() {
    std::vector<State> states;
    for (const double shift : {0.0, 30.0, -500.0, 700.0}) {
        const auto seed = static_cast<unsigned>(states.size());
        const Vector s = random_matrix(5, 1, seed).col(0).array() + shift;
        states.push_back(from_block(s, random_matrix(5, 3, seed + 10)));
    }
    states.push_back(from_block(Vector::Constant(5, -infinity), random_matrix(5, 3, 20)));
    return states;
}

TEST_CASE("(m, l, O) under merge is a commutative monoid") {
    const std::vector<State> states = blocks();
    for (const State& a : states) {
        CHECK(near(merge(a, identity(3)), a));
        CHECK(near(merge(identity(3), a), a));
        for (const State& b : states) {
            CHECK(near(merge(a, b), merge(b, a)));
            for (const State& c : states) CHECK(near(merge(merge(a, b), c), merge(a, merge(b, c))));
        }
    }
}

TEST_CASE("blocks without a visible key are the identity, and finish to 0 and -inf") {
    const State masked = blocks().back();
    CHECK(masked.m == -infinity);
    CHECK(masked.l == 0);
    const State both = merge(masked, identity(3));
    CHECK(both.m == -infinity);
    CHECK(both.l == 0);
    CHECK(both.O.isZero(0));
    const Partial done = finish(both);
    CHECK(done.L == -infinity);
    CHECK(done.O.isZero(0));
    const Partial merged = merge(done, done);
    CHECK(merged.L == -infinity);
    CHECK(merged.O.isZero(0));
}

TEST_CASE("states and normalized partials merge to attention over all keys") {
    const Matrix q = random_matrix(1, 4, 1, 5), K = random_matrix(12, 4, 2, 5), V = random_matrix(12, 3, 3);
    const Vector s = 0.5 * (K * q.transpose());
    const Result expected = attention(q, K, V, 0.5, {false, 1, 12});
    const auto block = [&](int first, int n) {
        return from_block(s.segment(first, n), V.middleRows(first, n));
    };
    State states = identity(3);
    Partial partials = finish(identity(3));
    for (const auto& [first, n] : {std::pair{7, 5}, {0, 1}, {1, 6}}) {
        states = merge(states, block(first, n));
        partials = merge(partials, finish(block(first, n)));
    }
    const Partial all{expected.O.row(0), expected.L[0]};
    CHECK(near(finish(states), all));
    CHECK(near(partials, all));
}

TEST_CASE("tiled attention is attention, whatever the tiles") {
    for (const auto& [Nq, Nk] : {std::pair{9, 9}, {4, 11}, {11, 4}}) {
        for (const bool causal : {false, true}) {
            for (const auto& [Br, Bc] : {std::pair{1, 1}, {4, 4}, {3, 2}, {16, 16}}) {
                CAPTURE(Nq, Nk, causal, Br, Bc);
                const Matrix Q = random_matrix(Nq, 4, 1, 3), K = random_matrix(Nk, 4, 2, 3);
                const Matrix V = random_matrix(Nk, 4, 3);
                const Mask mask{causal, Nq, Nk};
                const Result expected = attention(Q, K, V, 0.5, mask);
                const Result got = tiled_attention(Q, K, V, 0.5, mask, Br, Bc);
                CHECK(near(got.O, expected.O));
                for (int i = 0; i < Nq; ++i) CHECK(near(got.L[i], expected.L[i]));
            }
        }
    }
}

TEST_CASE("every step of tiled attention is the state over the keys so far") {
    const Matrix Q = random_matrix(5, 4, 1, 3), K = random_matrix(7, 4, 2, 3), V = random_matrix(7, 4, 3);
    int steps = 0;
    tiled_attention(Q, K, V, 0.5, {false, 5, 7}, 2, 3, [&](const Step& step) {
        CHECK(step.i == steps / 3);
        CHECK(step.j == steps % 3);
        ++steps;
        const int keys = std::min(7, 3 * (step.j + 1));
        for (int r = 0; r < step.m.size(); ++r) {
            const Vector s = 0.5 * (K.topRows(keys) * Q.row(2 * step.i + r).transpose());
            CHECK(near(State{step.m[r], step.l[r], step.O.row(r)}, from_block(s, V.topRows(keys))));
            const double m_before = step.j == 0 ? -infinity : s.head(3 * step.j).maxCoeff();
            CHECK(near(step.rescale[r], std::exp(m_before - step.m[r])));
        }
    });
    CHECK(steps == 9);
}

}  // namespace
