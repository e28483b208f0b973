/// @file
/// How far the stages are from attention in double precision, as `lab verify --json` recorded it on a GPU.
#pragma once

#include <filesystem>
#include <string>

namespace ladder {

/// Two tables in Markdown, one of N(0, 1) inputs and one of all inputs: a row for each stage, and for each
/// type the largest error, that of standard attention in the same case, and the largest relative L2.
/// Throws BadUsage naming the file if it is no such record.
std::string errors_block(const std::filesystem::path& record);

}  // namespace ladder
