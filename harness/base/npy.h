/// @file
/// NumPy's .npy files, versions 1 and 2: as much of the format as attention needs, strictly read.
/// float16 or float32, little-endian, C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

/// An array and its type. `bytes` holds the elements as stored.
struct NpyArray {
    enum class Type : std::uint8_t { float16, float32 };

    Type type = Type::float32;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

const char* name(NpyArray::Type type);
std::size_t element_size(NpyArray::Type type);

/// Parses a file's content; `source` names it in messages. Throws BadUsage unless it is an array of this
/// rank, without empty axes, whose header and data agree to the byte.
NpyArray parse_npy(std::string content, std::size_t rank, std::string_view source);

/// Reads a file. Throws BadUsage.
NpyArray read_npy(const std::filesystem::path& path, std::size_t rank);

/// The content of a version 1 file.
std::string format_npy(const NpyArray& array);

}  // namespace ladder
