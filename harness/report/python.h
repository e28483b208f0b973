/// @file
/// What the Python package costs and brings in PyTorch, as tests/python_gpu.sh recorded it.
#pragma once

#include <filesystem>
#include <string>

namespace ladder {

/// Three tables in Markdown: the host's time for a call beside SDPA's, tokens per second of a Llama by
/// implementation, and the steps of training by stages. Throws BadUsage naming the file if it is no such
/// record.
std::string python_block(const std::filesystem::path& record);

}  // namespace ladder
