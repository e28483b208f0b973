#include "harness/base/json.h"

#include <fmt/format.h>

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

std::string printable(std::string_view bytes) {
    const bool is_text = nlohmann::json(bytes).dump(-1, ' ', true, nlohmann::json::error_handler_t::ignore) ==
                         nlohmann::json(bytes).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto c = static_cast<unsigned char>(bytes[i]);
        const bool begins_control =
            c == 0xc2 && i + 1 < bytes.size() && static_cast<unsigned char>(bytes[i + 1]) < 0xa0;
        const bool ends_control = c < 0xa0 && i > 0 && static_cast<unsigned char>(bytes[i - 1]) == 0xc2;
        const bool plain = c >= 32 && c < 127 && c != '\\';
        if (plain || (c >= 128 && is_text && !begins_control && !ends_control)) {
            text += bytes[i];
        } else {
            text += fmt::format("\\x{:02x}", c);
        }
    }
    return text;
}

}  // namespace ladder
