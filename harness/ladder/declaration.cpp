#include "harness/ladder/declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "harness/base/file.h"
#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// The end of the string literal that starts at `at`.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
    return std::min(at + 1, text.size());
}

/// A text without its comments.
std::string without_comments(std::string_view text) {
    std::string code;
    for (std::size_t at = 0; at < text.size();) {
        if (text.substr(at).starts_with("//")) at = std::min(text.find('\n', at), text.size());
        const std::size_t end = at < text.size() && text[at] == '"' ? end_of_literal(text, at) : at + 1;
        code += text.substr(at, end - at);
        at = end;
    }
    return code;
}

/// The items, separated by commas, in the first parentheses or braces of a text. None if these never close.
std::vector<std::string_view> items(std::string_view text) {
    std::vector<std::string_view> found;
    int depth = 0;
    for (std::size_t at = std::min(text.find_first_of("({"), text.size()), begin = at + 1;
         at < text.size();) {
        const char c = text[at];
        if (c == '"') {
            at = end_of_literal(text, at);
            continue;
        }
        depth += (c == '(' || c == '{') - (c == ')' || c == '}');
        if (depth == 0 || (depth == 1 && c == ',')) {
            found.push_back(trimmed(text.substr(begin, at - begin)));
            begin = at + 1;
        }
        if (depth == 0) return found;
        ++at;
    }
    return {};
}

// Each of these reads the value of a field. It returns false if that is no literal of the field's type.

bool read(std::string_view value, int& number) {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    return error == std::errc() && end == value.data() + value.size();
}

/// Adjacent string literals, in which only quotation marks need an escape.
bool read(std::string_view value, std::string& text) {
    text.clear();
    for (std::size_t end = 0; !value.empty(); value = trimmed(value.substr(end))) {
        if (value.front() != '"') return false;
        end = end_of_literal(value, 0);
        for (std::size_t at = 1; at + 1 < end; ++at) {
            if (value[at] == '\\') ++at;
            text += value[at];
        }
    }
    return !text.empty();
}

bool read(std::string_view value, bool& flag) {
    flag = value == "true";
    return flag || value == "false";
}

bool read(std::string_view value, Pass& pass) {
    pass = value == "Pass::backward" ? Pass::backward : Pass::forward;
    return pass == Pass::backward || value == "Pass::forward";
}

bool read(std::string_view value, Products& products) {
    products = value == "Products::of_8_bit_cache"   ? Products::of_8_bit_cache
               : value == "Products::of_8_bits"      ? Products::of_8_bits
               : value == "Products::of_8_promoted"  ? Products::of_8_promoted
               : value == "Products::of_8_in_blocks" ? Products::of_8_in_blocks
               : value == "Products::of_8_rotated"   ? Products::of_8_rotated
                                                     : Products::of_16_bits;
    return products != Products::of_16_bits || value == "Products::of_16_bits";
}

bool read(std::string_view value, Tiling& tiling) {
    const auto numbers = items(value);
    return (numbers.size() == 2 || (numbers.size() == 3 && read(numbers[2], tiling.depth))) &&
           read(numbers[0], tiling.Br) && read(numbers[1], tiling.Bc) &&
           std::min({tiling.Br, tiling.Bc, tiling.depth}) > 0;
}

bool read(std::string_view value, std::vector<Feature>& features) {
    const auto list = items(value);
    for (const std::string_view item : list) {
        for (const auto& [feature, word, name] : feature_words())
            if (item == fmt::format("Feature::{}", word)) features.push_back(feature);
    }
    return !list.empty() && features.size() == list.size();
}

/// LADDER_TILES((Br, Bc), {64, 64}, {64, 32})
bool read(std::string_view value, std::vector<Tiling>& tilings) {
    const auto list = items(value);
    for (std::size_t k = 1; k < list.size(); ++k) {
        if (!read(list[k], tilings.emplace_back())) return false;
    }
    return !tilings.empty();
}

/// Those of `using Dims = HeadDims<64, 128>;`
std::vector<int> head_dims(std::string_view source, std::string_view dims) {
    const std::string start = fmt::format("using {} = HeadDims<", dims);
    const std::size_t at = source.rfind(start);
    std::vector<int> numbers;
    for (std::size_t end = at == source.npos ? at : at + start.size() - 1; end < source.size();) {
        if (source[end] == '>') return numbers;
        const std::size_t begin = end + 1;
        end = source.find_first_of(",>", begin);
        if (!read(trimmed(source.substr(begin, end - begin)), numbers.emplace_back())) break;
    }
    return {};
}

}  // namespace

std::string kernel_text(const fs::path& kernel) {
    static const std::regex include_of_a_stage("#include \"stages/([0-9]{2}_\\w+/\\w+[.]cuh)\"");
    std::istringstream lines(read_file(kernel));
    std::string text;
    std::smatch found;
    for (std::string line; std::getline(lines, line);) {
        const bool includes = std::regex_match(line, found, include_of_a_stage);
        const fs::path file = includes ? stages_folder() / found[1].str() : fs::path();
        const std::string included = includes && fs::is_regular_file(file) ? read_file(file) : "";
        const std::size_t code = included.find("\n\n");
        text += code == included.npos ? line + "\n" : included.substr(code + 2);
    }
    return text;
}

int needed_capability(std::string_view source) {
    static constexpr std::string_view line = "\n#include \"stages/hopper.cuh\"";
    return source.starts_with(line.substr(1)) || source.find(line) != source.npos ? 90 : 0;
}

Stage read_declaration(const fs::path& path) {
    const std::string source = kernel_text(path);
    const auto fail = [&](const std::string& what) {
        throw CheckFailed(fmt::format("{}: LADDER_STAGE at the end {}", path.string(), what));
    };
    const std::string declaration = without_comments(
        std::string_view(source).substr(std::min(source.rfind("LADDER_STAGE("), source.size())));
    const auto declared = items(declaration);
    if (declared.size() < 3) fail("is missing");
    Stage stage;
    stage.number = -1;
    stage.source = fs::absolute(path).lexically_normal().string();
    stage.compute_capability = needed_capability(source);
    stage.head_dims = head_dims(source, declared[1]);
    for (const std::string_view field : declared) {
        const std::size_t equals = field.find('=');
        if (!field.starts_with('.') || equals == field.npos) continue;
        const std::string_view key = trimmed(field.substr(0, equals)),
                               value = trimmed(field.substr(equals + 1));
        const bool is_literal = key == ".number"                ? read(value, stage.number)
                                : key == ".name"                ? read(value, stage.name)
                                : key == ".parent"              ? read(value, stage.parent)
                                : key == ".part"                ? read(value, stage.part)
                                : key == ".place"               ? read(value, stage.place)
                                : key == ".formerly"            ? read(value, stage.formerly)
                                : key == ".change"              ? read(value, stage.change)
                                : key == ".shows_in"            ? read(value, stage.shows_in)
                                : key == ".pass"                ? read(value, stage.pass)
                                : key == ".diff_budget"         ? read(value, stage.diff_budget)
                                : key == ".most_lines"          ? read(value, stage.most_lines)
                                : key == ".rounds_large_scores" ? read(value, stage.rounds_large_scores)
                                : key == ".chunks"              ? read(value, stage.chunks)
                                : key == ".divides_rows"        ? read(value, stage.divides_rows)
                                : key == ".repeats_exactly"     ? read(value, stage.repeats_exactly)
                                : key == ".batch_invariant"     ? read(value, stage.batch_invariant)
                                : key == ".tilings"             ? read(value, stage.tilings)
                                : key == ".takes"               ? read(value, stage.takes)
                                : key == ".products"            ? read(value, stage.products)
                                : key == ".takes_e4m3"          ? read(value, stage.takes_e4m3)
                                                                : true;  // a function
        if (!is_literal)
            fail(fmt::format("gives {} no literal that can be read as it stands: {}", key, value));
    }
    if (stage.number < 0 || stage.name.empty()) fail("names no .number or no .name");
    if (stage.head_dims.empty())
        fail(fmt::format("names no head dimensions: using {} = HeadDims<...>", declared[1]));
    if (stage.tilings.size() != stage.head_dims.size())
        fail("needs .tilings = LADDER_TILES(...), with a tile for each head dimension");
    return stage;
}

}  // namespace ladder
