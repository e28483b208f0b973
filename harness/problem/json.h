/// @file
/// Sizes and types as JSON. Needs all of nlohmann-json, so only .cpp include it.
#pragma once

#include "harness/base/json.h"
#include "stages/stage.h"

namespace ladder {

void to_json(nlohmann::json& json, const DType& dtype);
void from_json(const nlohmann::json& json, DType& dtype);

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Shape, B, H, Hkv, Nq, Nk, d)

}  // namespace ladder
