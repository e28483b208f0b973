/// @file
/// How the package did in another project's own tests, as tests/peer_tests.sh recorded it.
#pragma once

#include <filesystem>
#include <string>

namespace ladder {

/// A sentence in Markdown for each of these records, folder/GPU-peer-tests.json: how many tests passed of
/// those of problems that a stage takes, and how many were left out, by reason. Empty if there is none.
/// Throws BadUsage naming the file if it is no such record.
std::string peer_tests_block(const std::filesystem::path& folder);

}  // namespace ladder
