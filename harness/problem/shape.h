/// @file
/// Sizes as a user types them: parsed and validated here, for every command.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/case.h"
#include "stages/stage.h"

namespace ladder {

/// Parses "B,H,Hkv,Nq,Nk,D" and validates it. Throws BadUsage.
Shape parse_shape(std::string_view text);

/// The head dimensions that any stage has.
const std::set<int>& known_head_dims();

/// Throws BadUsage unless every size is at least 1 and within what kernels can index, the key/value heads
/// divide the query heads, some stage has the head dimension, and the tensors' bytes can be counted.
void validate(const Shape& shape);

/// The axes of a tensor: "(1, 8, 512, 64)"
std::string axes_text(const std::vector<std::int64_t>& axes);

/// The sizes of the problem whose Q, K and V have these four axes, in the order of their layout; validated.
/// With `d`, for a problem that is computed at this head dimension instead of theirs. Throws BadUsage if they
/// do not agree.
Shape shape_of(const std::vector<std::int64_t>& Q, const std::vector<std::int64_t>& K,
               const std::vector<std::int64_t>& V, Layout layout, std::optional<int> d = std::nullopt);

/// Throws BadUsage, with those that it has, if the stage has no such head dimension.
void require_head_dim(const Stage& stage, int d);

/// Bytes of Q, K, V, O and L, and in the backward pass of dO, dQ, dK and dV too. In floating point, where
/// sizes that overflow every integer still compare.
double problem_bytes(const Shape& shape, Pass pass = Pass::forward);

/// "B=1 H=8 Hkv=2 Nq=512 Nk=512 d=64"
std::string to_string(const Shape& shape);

}  // namespace ladder
