/// @file
/// Attention by products of 8 bits, as Hopper computes them: what a stage that quantizes may lose.
#pragma once

#include "reference/attention.h"
#include "stages/stage.h"

namespace ladder {

/// Rows in e4m3: each element is its number times the scale of its row.
struct EightBits {
    reference::Matrix numbers;
    reference::Vector scales;

    /// Rounds rows of X, of which each `together` share a scale: the largest element of these becomes 448,
    /// all others the nearest number of e4m3. In fp32: scale = max(|X|, 2^-100) / 448, and an element x is
    /// rounded from x (448 / max(|X|, 2^-100)).
    static EightBits of(const reference::Matrix& X, const Eigen::VectorXi& rows, Eigen::Index together);

    /// The same of all rows, with one scale.
    static EightBits of(const reference::Matrix& X);
    /// The same, in which this element becomes 448, and what is above it, too.
    static EightBits of(const reference::Matrix& X, float largest);

    reference::Matrix values() const { return scales.asDiagonal() * numbers; }
};

/// A head as stages with these products multiply it, and the softmax scale that goes with it.
struct EightBitHead {
    EightBits Q, K, V;
    double scale;
};

/// Of Q the rows `rows`, each with the scale that all of Q gives it.
EightBitHead round_head(const reference::Matrix& Q, const Eigen::VectorXi& rows, const reference::Matrix& K,
                        const reference::Matrix& V, double scale, Products products);

/// Attention of some rows of a head, as standard attention with products of 8 bits has it.
struct EightBitAttention {
    reference::Matrix O;
    reference::Vector L;
    /// Of an element of O, the root of the sum of (P V)^2 over the keys: if each P is off by a share e of it,
    /// all by chance, the element is off by e times that. The largest P is no exception: its 2^8 is exact
    /// here, but a kernel may have set m by an earlier maximum.
    reference::Matrix spread;

    /// S = Q K^T in sums of 13 bits; P = exp(S - m) in units of 2^-8, rounded to e4m3; P V in sums of 13
    /// bits, of all keys or, if promoted, of each 128, which are added in full; O = P V / l, with l the sum
    /// of P before it is rounded. The head has the rows `rows` of the whole problem.
    EightBitAttention(const EightBitHead& head, const Eigen::VectorXi& rows, const reference::Mask& mask,
                      Products products);
};

}  // namespace ladder
