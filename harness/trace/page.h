/// @file
/// The schedule explorer, put together of the files in explorer/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ladder {

/// The schedule explorer: one self-contained HTML page that shows traces in their JSON form.
std::string explorer_page(const nlohmann::ordered_json& traces);

}  // namespace ladder
