/// @file
/// How features check what a call in Python is given.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "harness/features/given.h"
#include "stages/errors.h"

namespace ladder {

/// The text of a feature that is numbers of the caller's: to what a stage takes it makes no difference which.
constexpr const char* given_numbers = "some";

/// Throws BadUsage with what is wrong with the argument of this name.
template <class... Words>
[[noreturn]] void refuse(const char* name, fmt::format_string<Words...> what, Words&&... words) {
    throw BadUsage(fmt::format("{}: {}", name, fmt::format(what, std::forward<Words>(words)...)));
}

void require_axes(const char* name, const Array& numbers, const std::vector<std::int64_t>& axes);

/// Every one from 0 to `most`; `what`: "a length".
void require_range(const char* name, std::span<const int> numbers, const char* what, std::int64_t most);

/// That none is below the one before it; `what`: "length is negative".
void require_ascent(const char* name, std::span<const int> numbers, const char* what);

/// That fp32 numbers lie as a kernel reads them, and are finite.
void require_reals(const char* name, const Given& given);

}  // namespace ladder
