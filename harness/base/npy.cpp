#include "harness/base/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>
#include <optional>

#include "harness/base/file.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Header {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
};

// The header is a Python dictionary literal with exactly three keys:
// {'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 3, 4), }
class HeaderParser {
  public:
    HeaderParser(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

    Header parse() {
        Header header;
        expect('{');
        while (!accept('}')) {
            const std::string key = string();
            expect(':');
            if (key == "descr" && !header.descr) {
                if (peek() == '[') fail("holds a structured type; expected float16 or float32");
                header.descr = string();
            } else if (key == "fortran_order" && !header.fortran_order) {
                header.fortran_order = boolean();
            } else if (key == "shape" && !header.shape) {
                header.shape = tuple();
            } else {
                fail(fmt::format("its header has an unexpected key '{}'", key));
            }
            if (!accept(',') && peek() != '}') malformed();
        }
        if (peek() != '\0') malformed();
        if (!header.descr || !header.fortran_order || !header.shape) malformed();
        return header;
    }

  private:
    [[noreturn]] void fail(std::string_view why) const {
        throw BadUsage(fmt::format("{}: {}", source_, why));
    }
    [[noreturn]] void malformed() const { fail("its .npy header is malformed"); }

    char peek() {
        const std::size_t start = rest_.find_first_not_of(" \t\n");
        rest_.remove_prefix(start == rest_.npos ? rest_.size() : start);
        return rest_.empty() ? '\0' : rest_.front();
    }
    bool accept(char c) {
        if (peek() != c || rest_.empty()) return false;
        rest_.remove_prefix(1);
        return true;
    }
    void expect(char c) {
        if (!accept(c)) malformed();
    }
    std::string string() {
        const char quote = peek();
        if (quote != '\'' && quote != '"') malformed();
        const std::size_t end = rest_.find(quote, 1);
        if (end == rest_.npos) malformed();
        std::string text(rest_.substr(1, end - 1));
        rest_.remove_prefix(end + 1);
        return text;
    }
    bool boolean() {
        peek();
        for (const std::string_view word : {"True", "False"}) {
            if (!rest_.starts_with(word)) continue;
            rest_.remove_prefix(word.size());
            return word == "True";
        }
        malformed();
    }
    std::vector<std::int64_t> tuple() {
        std::vector<std::int64_t> values;
        expect('(');
        while (!accept(')')) {
            peek();
            std::int64_t value = 0;
            const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
            if (error == std::errc::result_out_of_range) fail("its shape is too large");
            if (error != std::errc()) malformed();
            rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
            values.push_back(value);
            if (!accept(',') && peek() != ')') malformed();
        }
        return values;
    }

    std::string_view rest_;
    std::string_view source_;
};

NpyArray::Type parse_type(const std::string& descr, std::string_view source) {
    if (descr == "<f2") return NpyArray::Type::float16;
    if (descr == "<f4") return NpyArray::Type::float32;
    const bool big_endian = descr == ">f2" || descr == ">f4";
    throw BadUsage(big_endian
                       ? fmt::format("{}: its data is big-endian; expected little-endian", source)
                       : fmt::format("{}: its type is '{}'; expected float16 ('<f2') or float32 ('<f4')",
                                     source, descr));
}

}  // namespace

const char* name(NpyArray::Type type) {
    return type == NpyArray::Type::float16 ? "float16" : "float32";
}

std::size_t element_size(NpyArray::Type type) {
    return type == NpyArray::Type::float16 ? 2 : 4;
}

NpyArray parse_npy(std::string content, std::size_t rank, std::string_view source) {
    const auto fail = [&](std::string_view why) { throw BadUsage(fmt::format("{}: {}", source, why)); };
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

    const Header header = HeaderParser(std::string_view(content).substr(prefix, header_size), source).parse();
    NpyArray array;
    array.type = parse_type(*header.descr, source);
    array.shape = *header.shape;
    if (*header.fortran_order)
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
