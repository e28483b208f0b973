#include "harness/base/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "harness/base/file.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

constexpr std::size_t longest_header = 10000;  // as NumPy has it

[[noreturn]] void fail(std::string_view source, const std::string& why) {
    throw BadUsage(fmt::format("{}: {}", source, why));
}

[[noreturn]] void malformed(std::string_view source) {
    fail(source, "its .npy header is malformed");
}

// What a header says, as it says it, by key. It is a Python dictionary literal with exactly three of them:
// {'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 3, 4), }
std::map<std::string, std::string> entries_in(const std::string& header, std::string_view source) {
    static const std::regex begin(R"(\s*\{\s*)"), end(R"(\}\s*)"),
        entry(R"((['"])(\w*)\1\s*:\s*('[^']*'|"[^"]*"|\([^()]*\)|[^\s,}]*)\s*(,|(?=\}))\s*)");
    constexpr auto here = std::regex_constants::match_continuous;
    std::map<std::string, std::string> entries;
    std::smatch found;
    if (header.size() > longest_header || !std::regex_search(header, found, begin, here)) malformed(source);
    auto rest = found[0].second;
    for (; std::regex_search(rest, header.end(), found, entry, here); rest = found[0].second) {
        const std::string key = found[2];
        const bool known = key == "descr" || key == "fortran_order" || key == "shape";
        if (!known || !entries.emplace(key, found[3]).second)
            fail(source, fmt::format("its header has an unexpected key '{}'", key));
    }
    const bool is_structured = entries.contains("descr") && entries["descr"].starts_with('[');
    if (is_structured) fail(source, "holds a structured type; expected float16 or float32");
    if (!std::regex_match(rest, header.end(), end) || entries.size() != 3) malformed(source);
    return entries;
}

std::vector<std::int64_t> parse_shape(const std::string& tuple, std::string_view source) {
    if (!tuple.starts_with('(')) malformed(source);
    std::vector<std::int64_t> shape;
    std::istringstream words(tuple.substr(1, tuple.size() - 2));
    for (std::string word; std::getline(words, word, ',');) {
        std::size_t end = 0;
        try {
            shape.push_back(std::stoll(word, &end));
        } catch (const std::out_of_range&) {
            fail(source, "its shape is too large");
        } catch (const std::invalid_argument&) {
            malformed(source);
        }
        if (word.find_first_not_of(" \t\n", end) != word.npos) malformed(source);
    }
    return shape;
}

NpyArray::Type parse_type(const std::string& quoted, std::string_view source) {
    if (quoted.size() < 2 || (quoted[0] != '\'' && quoted[0] != '"')) malformed(source);
    const std::string descr = quoted.substr(1, quoted.size() - 2);
    if (descr == "<f2") return NpyArray::Type::float16;
    if (descr == "<f4") return NpyArray::Type::float32;
    if (descr == ">f2" || descr == ">f4") fail(source, "its data is big-endian; expected little-endian");
    fail(source, fmt::format("its type is '{}'; expected float16 ('<f2') or float32 ('<f4')", descr));
}

}  // namespace

const char* name(NpyArray::Type type) {
    return type == NpyArray::Type::float16 ? "float16" : "float32";
}

std::size_t element_size(NpyArray::Type type) {
    return type == NpyArray::Type::float16 ? 2 : 4;
}

NpyArray parse_npy(std::string content, std::size_t rank, std::string_view source) {
    const auto fail = [&](const std::string& why) { ladder::fail(source, why); };
    const auto byte = [&](std::size_t i) {
        return static_cast<std::size_t>(static_cast<unsigned char>(content[i]));
    };

    if (!std::string_view(content).starts_with(magic)) fail("not a .npy file");
    if (content.size() < 10) fail("truncated in its header");
    const std::size_t version = byte(6);
    if (version != 1 && version != 2) fail(fmt::format(".npy version {}; expected 1 or 2", version));
    const std::size_t prefix = version == 1 ? 10 : 12;
    if (content.size() < prefix) fail("truncated in its header");
    std::size_t header_size = byte(8) | byte(9) << 8;
    if (version == 2) header_size |= byte(10) << 16 | byte(11) << 24;
    if (header_size > content.size() - prefix) fail("truncated in its header");

    const auto entries = entries_in(content.substr(prefix, header_size), source);
    const std::string& fortran_order = entries.at("fortran_order");
    NpyArray array;
    array.type = parse_type(entries.at("descr"), source);
    array.shape = parse_shape(entries.at("shape"), source);
    if (fortran_order != "True" && fortran_order != "False") malformed(source);
    if (fortran_order == "True")
        fail("its data is in Fortran order; expected C order (numpy.ascontiguousarray)");
    if (array.shape.size() != rank) {
        fail(fmt::format("its shape is ({}), of rank {}; expected rank {}", fmt::join(array.shape, ", "),
                         array.shape.size(), rank));
    }
    std::size_t expected = element_size(array.type);
    for (const std::int64_t size : array.shape) {
        if (size < 1)
            fail(fmt::format("its shape is ({}): every size must be at least 1",
                             fmt::join(array.shape, ", ")));
        if (expected > std::numeric_limits<std::size_t>::max() / static_cast<std::size_t>(size)) {
            fail("its shape is too large");
        }
        expected *= static_cast<std::size_t>(size);
    }
    const std::size_t there = content.size() - prefix - header_size;
    if (there < expected)
        fail(fmt::format("truncated: {} bytes of data, its header promises {}", there, expected));
    if (there > expected)
        fail(fmt::format("{} bytes beyond the data that its header promises", there - expected));
    array.bytes = std::move(content.erase(0, prefix + header_size));
    return array;
}

NpyArray read_npy(const std::filesystem::path& path, std::size_t rank) {
    return parse_npy(read_file(path), rank, path.string());
}

std::string format_npy(const NpyArray& array) {
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                     array.type == NpyArray::Type::float16 ? "<f2" : "<f4",
                                     fmt::join(array.shape, ", "), array.shape.size() == 1 ? "," : "");
    // The data starts at a multiple of 64 bytes, and a newline ends the header.
    header.resize((magic.size() + 4 + header.size() + 1 + 63) / 64 * 64 - magic.size() - 4, ' ');
    header.back() = '\n';
    std::string content(magic);
    content +=
        {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
    return content + header + array.bytes;
}

}  // namespace ladder
