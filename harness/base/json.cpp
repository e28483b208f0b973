#include "harness/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "harness/base/file.h"
#include "stages/errors.h"

namespace ladder {

nlohmann::json read_json(const std::filesystem::path& path) {
    try {
        return nlohmann::json::parse(read_file(path));
    } catch (const nlohmann::json::exception& error) {
        throw BadUsage(fmt::format("cannot read {}: {}", path.string(), error.what()));
    }
}

namespace {

/// Characters that show nothing, or change how others are shown: Unicode's control and format characters, its
/// separators of lines, what is ignorable by default, and fillers.
bool is_invisible(std::uint32_t c) {
    constexpr std::pair<std::uint32_t, std::uint32_t> ranges[]{
        {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
        {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
        {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
        {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1345f}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
    return std::any_of(std::begin(ranges), std::end(ranges),
                       [c](const auto& range) { return c >= range.first && c <= range.second; });
}

/// The character that begins a text in UTF-8, and how many bytes it has.
std::pair<std::uint32_t, std::size_t> first_character(std::string_view utf8) {
    const auto lead = static_cast<unsigned char>(utf8[0]);
    const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    std::uint32_t c = bytes == 1 ? lead : lead & (0x7f >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) c = c << 6 | (static_cast<unsigned char>(utf8[i]) & 0x3f);
    return {c, bytes};
}

}  // namespace

std::string printable(std::string_view bytes) {
    const bool is_text = nlohmann::json(bytes).dump(-1, ' ', true, nlohmann::json::error_handler_t::ignore) ==
                         nlohmann::json(bytes).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    std::string text;
    while (!bytes.empty()) {
        const bool is_byte = !is_text && static_cast<unsigned char>(bytes[0]) >= 0x80;
        const auto [character, length] =
            is_byte ? std::pair{std::uint32_t{0}, std::size_t{1}} : first_character(bytes);
        const std::string_view same = bytes.substr(0, length);
        if (is_byte || character == '\\' || is_invisible(character)) {
            for (const char c : same) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
            text += same;
        }
        bytes.remove_prefix(length);
    }
    return text;
}

}  // namespace ladder
