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

}  // namespace ladder
