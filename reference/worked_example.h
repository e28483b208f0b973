/// @file
/// A problem small enough to follow by hand, through stages 01, 02 and 06, and the text that shows it.
///
/// Its scale is ln 2, so that exp(S) is 2 to the power of Q K^T, a whole number: every P is a power of two,
/// every O a short decimal fraction. All that is printed counts in base 2, as the kernels do: m is the
/// maximum of Q K^T, P = 2^(Q K^T - m), and L = m + log2(l).
#pragma once

#include <string>

#include "reference/attention.h"

namespace reference {

/// N = 8, d = 4, tiles of 4 x 4, scale = ln 2, no mask.
struct WorkedExample {
    Matrix Q, K, V;  ///< (8, 4), small integers
    double scale;
    Mask mask{.causal = false, .Nq = 8, .Nk = 8};
    int Br = 4, Bc = 4;
};
WorkedExample worked_example();

/// A line for each row: its Q, K and V.
std::string format_inputs(const WorkedExample& example);

/// A line for each query row: Q K^T, a bar between the key tiles.
std::string format_scores(const WorkedExample& example);

/// Every step as text, one line per query row, four decimals:
///
///     i j row      m  rescale       l
///
/// and then each row's O and L.
std::string format_steps(const WorkedExample& example);

/// A line for each query row and step: P and its sum, over the keys of the tile.
std::string format_weights(const WorkedExample& example);

/// A line for each query row and step: O after it, as stage 01 keeps it (divided by l) and as 02 does.
std::string format_outputs(const WorkedExample& example);

/// A line for each query row: O and L of each key tile by itself, its weight 2^(L_s - L), and L of all keys.
/// What two blocks of stage 06 leave to the merge, and how much each counts.
std::string format_merge(const WorkedExample& example);

/// The arithmetic of one query row, from its scores to its O and L: by 01, by 02, and by 06.
std::string format_row(const WorkedExample& example, int row);

}  // namespace reference
