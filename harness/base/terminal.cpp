#include "harness/base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

namespace ladder {
namespace {

// Where the character that begins at `at` ends, with the combining marks that sit on it.
std::size_t end_of_character(std::string_view utf8, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(utf8[i]); };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
    // U+0300 to U+036F
    const auto combines = [&](std::size_t i) {
        return i + 1 < utf8.size() && (byte(i) == 0xcc || (byte(i) == 0xcd && byte(i + 1) < 0xb0));
    };
    for (++at; at < utf8.size() && (continues(at) || combines(at));) ++at;
    return at;
}

// Letters to insert, leave out or exchange until one word is the other; two neighbours that changed places
// count once.
std::size_t edits(const std::string& a, const std::string& b) {
    std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
        before_last = std::exchange(last, row);
    }
    return last.back();
}

}  // namespace

std::size_t terminal_width(int file) {
    if (isatty(file) != 1) return 0;
    std::size_t columns = 0;
    if (const char* said = std::getenv("COLUMNS"); said != nullptr)
        std::from_chars(said, said + std::strlen(said), columns);
    winsize size{};
    if (columns == 0 && ioctl(file, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    return columns;
}

std::size_t display_width(std::string_view utf8) {
    std::size_t width = 0;
    for (std::size_t at = 0; at < utf8.size(); at = end_of_character(utf8, at)) ++width;
    return width;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
    if (width == 0 || display_width(text) <= width) return {std::string(text)};
    std::vector<std::string> lines{""};
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t word = std::min(text.find_first_not_of(' ', at), text.size());
        const std::size_t end = std::min(text.find(' ', word), text.size());
        const std::string_view next = text.substr(word, end - word);
        std::string& line = lines.back();
        if (line.empty() || display_width(line) + (word - at) + display_width(next) <= width) {
            line += text.substr(at, end - at);
        } else if (!next.empty()) {
            lines.emplace_back(next);
        }
        at = end;
    }
    return lines;
}

std::string continued(const std::string& text, std::size_t width) {
    if (width == 0) return text;
    constexpr std::size_t further = 4;
    std::string result;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
        const std::size_t number =
            line.find_first_not_of(" 0123456789");  // of a line of a source, before a bar
        const bool is_whole = line.starts_with(lab_command() + " ") ||
                              (number != line.npos && number > 0 && line[number] == '|');
        if (display_width(line) <= width || width < indent + further + least_text || is_whole) {
            result += line + "\n";
            continue;
        }
        std::string begin(indent, ' ');
        for (const std::string& piece : wrapped(line.substr(indent), width - indent - further)) {
            result += begin + piece + "\n";
            begin = std::string(indent + further, ' ');
        }
    }
    return result;
}

std::string cut_to(std::string_view text, std::size_t width) {
    if (display_width(text) <= width) return std::string(text);
    std::size_t end = 0;
    for (std::size_t columns = 1; columns < width; ++columns) end = end_of_character(text, end);
    return width == 0 ? "" : std::string(text.substr(0, end)) + "…";
}

std::string shell_word(std::string_view word) {
    const auto is_plain = [](char c) {
        return static_cast<unsigned char>(c) >= 0x80 || std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::strchr("_-+=@%:,./", c) != nullptr;
    };
    if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

std::string lab_command(const std::vector<std::string>& words) {
    const char* called = std::getenv("LADDER_COMMAND");
    std::string line = called != nullptr && *called != '\0' ? shell_word(called) : "./lab";
    for (const std::string& word : words) line += " " + shell_word(word);
    return line;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& there) {
    if (word.size() < 2) return "";
    const std::string* nearest = nullptr;
    std::size_t fewest = std::min<std::size_t>(2, word.size() / 2) + 1;
    for (const std::string& name : there) {
        // Of three letters, two that are right say little if the first is wrong: "foo" is not "zoo".
        if (word.size() <= 3 && !name.empty() && word[0] != name[0]) continue;
        if (const std::size_t wrong = edits(word, name); wrong < fewest) nearest = &name, fewest = wrong;
    }
    if (nearest == nullptr && word.size() > 2) {
        const auto has = [&](const std::string& name) { return name.find(word) != name.npos; };
        const auto one = std::find_if(there.begin(), there.end(), has);
        if (one != there.end() && std::none_of(one + 1, there.end(), has)) nearest = &*one;
    }
    return nearest == nullptr ? "" : fmt::format(" (did you mean '{}'?)", *nearest);
}

}  // namespace ladder
