/// @file
/// The JSON forms that recorded measurements share. Needs all of nlohmann-json, so only their .cpp include
/// it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/results.h"

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

void to_json(nlohmann::json& json, const DType& dtype);
void from_json(const nlohmann::json& json, DType& dtype);

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Shape, B, H, Hkv, Nq, Nk, d)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hardware, gpu, sm_count, device_arch, binary_arch, ptx_arch, driver,
                                   toolkit)

/// Throws BadUsage naming the file if it cannot be read or is not JSON.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace ladder
