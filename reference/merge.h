/// @file
/// The algebra of every stage after 00: attention of one query row over any set of keys is a triple
/// (m, l, O), and triples over disjoint sets of keys merge into the triple over their union, in any order.
///
/// With s_j the scaled score of key j and v_j its value,
///
///     m = max_j s_j        l = sum_j exp(s_j - m)        O = sum_j exp(s_j - m) v_j
///
/// which makes `merge` associative and commutative with `identity` as its neutral element: a commutative
/// monoid. Walking the keys tile by tile is a left fold of it (FlashAttention-2, Algorithm 1, lines 6 to 11);
/// splitting the keys across blocks is a tree (Flash-Decoding).
///
/// Sources: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, arXiv 1805.02867 (m and l);
/// T. Dao, FlashAttention-2, arXiv 2307.08691, section 3.1 (O stays unnormalized until the end; L alone is
/// kept); T. Dao, D. Haziza, F. Massa, G. Sizov, Flash-Decoding for long-context inference, 2023 (merge by
/// L).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention.h"

namespace reference {

/// One query row's attention over some keys, unnormalized. Over no keys: m = -inf, l = 0, O = 0.
struct State {
    double m = -std::numeric_limits<double>::infinity();  ///< largest score
    double l = 0;                                         ///< sum of exp(s - m)
    Vector O;                                             ///< (d), sum of exp(s - m) v
};

/// One query row's attention over some keys, normalized: what a Flash-Decoding block hands to the merge.
struct Partial {
    Vector O;  ///< (d), softmax(s) V
    double L;  ///< log(sum(exp(s))); -inf over no keys
};

/// What a sum of exponentials relative to `from` is multiplied by to be relative to `to` >= from.
/// 0 when nothing was summed, where exp(-inf - -inf) would be NaN.
inline double rescale(double from, double to) {
    return from == -std::numeric_limits<double>::infinity() ? 0.0 : std::exp(from - to);
}

/// The state over no keys.
inline State identity(Eigen::Index d) {
    State none;
    none.O = Vector::Zero(d);
    return none;
}

/// The state over a block of keys: s (n) are their scaled scores, -inf where masked; V is (n, d).
inline State from_block(const Vector& s, const Matrix& V) {
    State block = identity(V.cols());
    for (Eigen::Index j = 0; j < s.size(); ++j) block.m = std::max(block.m, s[j]);
    for (Eigen::Index j = 0; j < s.size(); ++j) {
        const double p = rescale(s[j], block.m);
        block.l += p;
        block.O += p * V.row(j).transpose();
    }
    return block;
}

/// The state over the keys of a and of b, which must not overlap.
inline State merge(const State& a, const State& b) {
    const double m = std::max(a.m, b.m);
    const double from_a = rescale(a.m, m), from_b = rescale(b.m, m);
    return {m, from_a * a.l + from_b * b.l, from_a * a.O + from_b * b.O};
}

/// Divides once, at the end: O = O / l and L = m + log(l) (Algorithm 1, lines 12 and 13). O = 0, L = -inf
/// over no keys.
inline Partial finish(const State& a) {
    if (a.l == 0) return {Vector::Zero(a.O.size()), -std::numeric_limits<double>::infinity()};
    return {a.O / a.l, a.m + std::log(a.l)};
}

/// The same merge for normalized partials, which need only L: each is a state with m = L and l = 1.
inline Partial merge(const Partial& a, const Partial& b) {
    const auto state = [](const Partial& part) {
        const double weight = rescale(part.L, part.L);  // 1, or 0 over no keys
        return State{part.L, weight, weight * part.O};
    };
    return finish(merge(state(a), state(b)));
}

}  // namespace reference
