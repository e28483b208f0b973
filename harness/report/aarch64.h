/// @file
/// How the algorithm's stages did on aarch64, as tests/aarch64.sh recorded it.
#pragma once

#include <filesystem>
#include <string>

namespace ladder {

/// A table in Markdown: a row for each step, with the cases that passed, the races found and the seconds that
/// it took. Throws BadUsage naming the file if it is no such record.
std::string aarch64_block(const std::filesystem::path& record);

}  // namespace ladder
