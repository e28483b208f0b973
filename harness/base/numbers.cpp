#include "harness/base/numbers.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace ladder {

std::vector<std::string_view> comma_separated(std::string_view text) {
    std::vector<std::string_view> words;
    for (std::size_t begin = 0; begin <= text.size(); begin += words.back().size() + 1)
        words.push_back(text.substr(begin, text.find(',', begin) - begin));
    return words;
}

std::string short_size(int n) {
    return n >= 1024 && n % 1024 == 0 ? fmt::format("{}k", n / 1024) : std::to_string(n);
}

std::string human_bytes(double bytes) {
    constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    std::size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.4g} {}", bytes, units[unit]);
}

}  // namespace ladder
