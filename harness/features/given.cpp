#include "harness/features/given.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "harness/features/checks.h"
#include "harness/problem/shape.h"

namespace ladder {
namespace {

/// The first of these numbers that has this name; `before` others come first. Null if there is none.
template <class X>
const X* named(const Given& given, const std::vector<X>& numbers, std::size_t before, std::string_view name) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (given.names[before + i] == name) return &numbers[i];
    }
    return nullptr;
}

}  // namespace

bool Given::has(std::string_view name) const {
    return std::ranges::find(names, name) != names.end();
}

const Array* Given::array(std::string_view name) const {
    return named(*this, arrays, 0, name);
}

std::span<const int> Given::readable(std::string_view name) const {
    const Array* numbers = array(name);
    if (numbers == nullptr || !numbers->on_host) return {};
    return {numbers->integers(), static_cast<std::size_t>(numbers->count())};
}

std::vector<std::int64_t> Given::list(std::string_view name) const {
    std::vector<std::int64_t> own;
    for (std::size_t i = 0; i < integers.size(); ++i) {
        if (names[arrays.size() + i] == name) own.push_back(integers[i]);
    }
    return own;
}

std::int64_t Given::integer(std::string_view name) const {
    const auto* number = named(*this, integers, arrays.size(), name);
    return number == nullptr ? 0 : *number;
}

double Given::real(std::string_view name) const {
    const auto* number = named(*this, reals, arrays.size() + integers.size(), name);
    return number == nullptr ? 0 : *number;
}

void require_axes(const char* name, const Array& numbers, const std::vector<std::int64_t>& axes) {
    if (numbers.axes != axes)
        refuse(name, "they are {}; expected {}", axes_text(numbers.axes), axes_text(axes));
}

void require_range(const char* name, std::span<const int> numbers, const char* what, std::int64_t most) {
    for (const int number : numbers) {
        if (number < 0 || number > most) refuse(name, "{} is {}; expected 0 to {}", what, number, most);
    }
}

void require_ascent(const char* name, std::span<const int> numbers, const char* what) {
    const auto fall = std::adjacent_find(numbers.begin(), numbers.end(), std::greater());
    if (fall != numbers.end()) refuse(name, "{} comes after {}: no {}", fall[1], fall[0], what);
}

void require_reals(const char* name, const Given& given) {
    if (given.array(name)->data % sizeof(float) != 0)
        refuse(name, "they must begin at a multiple of 4 bytes");
    for (const int bits : given.readable(name)) {
        if (const auto number = std::bit_cast<float>(bits); !std::isfinite(number))
            refuse(name, "one is {}; expected finite numbers", number);
    }
}

}  // namespace ladder
