/// @file
/// Numbers as people write and read them.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "stages/errors.h"

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

/// The words between the commas of a text.
std::vector<std::string_view> comma_separated(std::string_view text);

/// 2048 as "2k"
std::string short_size(int n);

/// "1.5 GiB"
std::string human_bytes(double bytes);

}  // namespace ladder
