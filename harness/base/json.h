/// @file
/// JSON files. Needs all of nlohmann-json, so only .cpp include it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

/// An empty optional is JSON's null, and so is NaN, which JSON cannot write.
template <class T>
struct nlohmann::adl_serializer<std::optional<T>> {
    static void to_json(nlohmann::json& json, const std::optional<T>& value) {
        json = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
    }
    static void from_json(const nlohmann::json& json, std::optional<T>& value) {
        value = json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
    }
};

namespace ladder {

/// Throws BadUsage naming the file if it cannot be read or is not JSON.
nlohmann::json read_json(const std::filesystem::path& path);

/// Anybody's bytes, such as a file's name, as text that JSON takes, no terminal obeys and shows as it is:
/// control characters, those that are invisible or turn the order of others, and what is no UTF-8 become
/// \\x1b. No two become the same.
std::string printable(std::string_view bytes);

}  // namespace ladder
