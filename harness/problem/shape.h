/// @file
/// Sizes as a user types them: parsed and validated here, for every command.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/case.h"
#include "stages/errors.h"
#include "stages/stage.h"

namespace ladder {

/// Whether all of a word is a number that its type holds, which is then in `number`.
template <class T>
bool read_number(std::string_view word, T& number) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc() && end == word.data() + word.size();
}

/// The number that a word is. Throws BadUsage.
template <class T>
T number_in(const std::string& word) {
    T value{};
    if (!read_number(word, value)) throw BadUsage("'" + word + "' is not a number");
    return value;
}

/// Parses "B,H,Hkv,Nq,Nk,D" and validates it. Throws BadUsage.
Shape parse_shape(std::string_view text);

/// Parses "LEFT,RIGHT", each the keys that a row sees on that side of its own position, or -1 for all. Throws
/// BadUsage.
Window parse_window(std::string_view text);

/// Parses "P,SEED": the share that dropout takes, in 256ths, and a seed. Throws BadUsage if it takes none or
/// all.
Dropout parse_dropout(std::string_view text);

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

/// Floating-point operations as the FlashAttention papers count them: 4 d for each score that a mask leaves,
/// half of B H N N if it is causal; 2.5 times that in the backward pass, whose products are five and not two.
/// In a window or in documents, or with column bounds or tile lists as seed 1 draws them, the scores that are
/// left are counted one by one.
double flops(const Shape& shape, bool causal, Pass pass = Pass::forward, const Features& features = {});

/// Bytes of Q, K, V and O, each once, of K and V those that requests have, and in the backward pass of their
/// gradients too: what no kernel can avoid moving. `products`: a stage's, whose K and V may be of one byte.
double unavoidable_bytes(const Shape& shape, Pass pass = Pass::forward, const Features& features = {},
                         Products products = Products::of_16_bits);

/// Whether the bytes of K and V bound the problem and not the products: one query row, as in decoding, or
/// the few of a draft, whose rows of a group fit a tile of 64 and whose keys are 16 times as many or more.
bool counts_bytes(const Shape& shape);

/// "B=1 H=8 Hkv=2 Nq=512 Nk=512 d=64"
std::string to_string(const Shape& shape);

/// "0.1015625,5": the share as it is
std::string to_string(const Dropout& dropout);

/// "1.5 GiB"
std::string human_bytes(double bytes);

}  // namespace ladder
