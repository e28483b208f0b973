/// @file
/// What a problem takes at least: scores, operations, bytes.
#pragma once

#include "harness/problem/case.h"
#include "stages/stage.h"

namespace ladder {

/// Scores of all heads that the mask leaves, with masks that are drawn as the seed of the case draws them.
/// Under a causal mask alone, half of its square counts.
double visible_scores(const Case& c);
/// The same, row by row: of masks that leave each row a range of keys, the same in each head.
double scores_of_rows(const Case& c);

/// Keys that some row of a batch entry sees, of masks that leave each row a range of keys.
double keys_of_rows(const Case& c, int b);

/// Floating-point operations as the FlashAttention papers count them: 4 d for each score that a mask leaves,
/// half of B H N N if it is causal; 2.5 times that in the backward pass, whose products are five and not two.
/// Masks that the seed draws are those of seed 1.
double flops(const Shape& shape, bool causal, Pass pass = Pass::forward, const Features& features = {});

/// Bytes of Q, K, V and O, each once, of K and V those that requests have, and in the backward pass of their
/// gradients too: what no kernel can avoid moving. `stage`: whose inputs may be of one byte, and tokens have
/// two scales of each head.
double unavoidable_bytes(const Shape& shape, Pass pass = Pass::forward, const Features& features = {},
                         const Stage& stage = {});

/// Whether the bytes of K and V bound the problem and not the products: one query row, as in decoding, or
/// the few of a draft, whose rows of a group fit a tile of 64 and whose keys are 16 times as many or more.
bool counts_bytes(const Shape& shape);

}  // namespace ladder
