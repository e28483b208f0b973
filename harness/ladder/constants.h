/// @file
/// The numbers that a kernel's code distinguishes, read from its source.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ladder {

/// The values, at this head dimension, of a source's `constexpr int NAME = EXPRESSION` outside of functions:
/// in a namespace, or `static` in a struct. An expression may have numbers, d, constants above it (also as
/// NAME<d>), parentheses, + - * / %, comparisons and ?:. Constants whose expression has anything else are
/// left out.
std::map<std::string, int> read_constants(std::string_view source, int d);

}  // namespace ladder
