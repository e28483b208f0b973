/// @file
/// Sizes and types as JSON. Needs all of nlohmann-json, so only .cpp include it.
#pragma once

#include <array>

#include "harness/base/json.h"
#include "stages/stage.h"

namespace ladder {

void to_json(nlohmann::json& json, const DType& dtype);
void from_json(const nlohmann::json& json, DType& dtype);

// [B, H, Hkv, Nq, Nk, d], as --shape has them.
inline void to_json(nlohmann::json& json, const Shape& s) {
    json = {s.B, s.H, s.Hkv, s.Nq, s.Nk, s.d};
}
inline void from_json(const nlohmann::json& json, Shape& s) {
    const auto [B, H, Hkv, Nq, Nk, d] = json.get<std::array<int, 6>>();
    s = {.B = B, .H = H, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = d};
}

}  // namespace ladder
