#include "harness/base/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ladder {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
    return std::visit(
        [](const auto& v) -> Json {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, std::monostate>) {
                return nullptr;
            } else if constexpr (std::is_same_v<T, double>) {
                return std::isfinite(v) ? Json(v) : Json(nullptr);  // JSON has no NaN
            } else {
                return v;
            }
        },
        value);
}

const char* escape(Tone tone) {
    switch (tone) {
        case Tone::good:
            return "\x1b[32m";
        case Tone::bad:
            return "\x1b[31m";
        case Tone::faint:
            return "\x1b[2m";
        case Tone::strong:
        case Tone::marked:
            return "\x1b[1m";
        default:
            return "";
    }
}

std::string paint(std::string text, Tone tone, bool colour) {
    if (!colour || tone == Tone::plain || text.empty()) return text;
    return fmt::format("{}{}\x1b[0m", escape(tone), text);
}

bool is_bold(Tone tone) {
    return tone == Tone::strong || tone == Tone::marked;
}

// A bar would end the cell, and a line break the row.
std::string markdown_cell(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '|') escaped += '\\';
        escaped += c == '\n' ? ' ' : c;
    }
    return escaped;
}

}  // namespace

Cell Cell::count(std::uint64_t n) {
    return {Value(static_cast<std::int64_t>(n)), with_separators(n)};
}

std::string with_separators(std::uint64_t n) {
    std::string digits = std::to_string(n);
    for (std::size_t i = digits.size(); i > 3;) digits.insert(i -= 3, 1, ',');
    return digits;
}

std::string in_words(std::string name) {
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
}

void Table::add_row(std::vector<Cell> row) {
    if (row.size() > columns_.size())
        throw std::logic_error(fmt::format("a row of table {} has too many cells", key_));
    row.resize(columns_.size());
    rows_.push_back(std::move(row));
}

std::string to_terminal(const Table& table, bool colour) {
    constexpr std::string_view mark = " ←";
    const std::size_t columns = table.columns().size();
    std::vector<std::size_t> widths(columns),
        mark_widths(columns);  // a column without marks needs no room for one
    for (std::size_t i = 0; i < columns; ++i) {
        widths[i] = display_width(table.columns()[i].title);
        for (const auto& row : table.rows()) {
            widths[i] = std::max(widths[i], display_width(row[i].text));
            if (row[i].tone == Tone::marked) mark_widths[i] = display_width(mark);
        }
    }
    const auto line = [&](const auto& text_of, const auto& tone_of) {
        std::string result, gap;  // blanks are held back until something follows them
        const auto blanks = [](std::size_t n) { return std::string(n, ' '); };
        for (std::size_t i = 0; i < columns; ++i) {
            const std::string& text = text_of(i);
            const bool marked = tone_of(i) == Tone::marked;
            const std::size_t padding = widths[i] - display_width(text),
                              after = (marked ? 0 : mark_widths[i]) + 2;
            if (text.empty()) {
                gap += blanks(padding + after);
                continue;
            }
            const bool right = table.columns()[i].align == Align::right;
            if (right) gap += blanks(padding);
            result += gap + paint(marked ? fmt::format("{}{}", text, mark) : text, tone_of(i), colour);
            gap = blanks(right ? after : padding + after);
        }
        return result + "\n";
    };
    std::string result;
    if (!table.title().empty()) result += paint(table.title(), Tone::strong, colour) + "\n";
    result += line([&](std::size_t i) -> const std::string& { return table.columns()[i].title; },
                   [](std::size_t) { return Tone::faint; });
    for (const auto& row : table.rows()) {
        result += line([&](std::size_t i) -> const std::string& { return row[i].text; },
                       [&](std::size_t i) { return row[i].tone; });
    }
    return result;
}

std::string to_terminal(const Document& document, bool colour) {
    std::size_t width = 0;
    for (const auto& [key, cell] : document.facts) width = std::max(width, display_width(key));
    std::vector<std::string> parts;
    std::string facts;
    for (const auto& [key, cell] : document.facts) {
        facts += paint(key, Tone::faint, colour) + std::string(width - display_width(key), ' ') + "  " +
                 paint(cell.text, cell.tone, colour) + "\n";
    }
    if (!facts.empty()) parts.push_back(facts);
    for (const Table& table : document.tables) parts.push_back(to_terminal(table, colour));
    for (const Listing& listing : document.listings) {
        parts.push_back(colour && listing.colour ? listing.colour(listing.text) : listing.text);
    }
    if (!document.notes.empty()) parts.push_back(fmt::format("{}\n", fmt::join(document.notes, "\n")));
    return fmt::format("{}", fmt::join(parts, "\n"));
}

std::string to_markdown(const Table& table) {
    std::string result = "|";
    for (const Column& column : table.columns()) result += fmt::format(" {} |", markdown_cell(column.title));
    result += "\n|";
    for (const Column& column : table.columns()) result += column.align == Align::right ? "---:|" : "---|";
    result += "\n";
    for (const auto& row : table.rows()) {
        result += "|";
        for (const Cell& cell : row) {
            const std::string text = markdown_cell(cell.text);
            result += text.empty()         ? " |"
                      : is_bold(cell.tone) ? fmt::format(" **{}** |", text)
                                           : fmt::format(" {} |", text);
        }
        result += "\n";
    }
    return result;
}

std::string to_markdown(const Document& document) {
    std::vector<std::string> parts;
    std::string facts;
    for (const auto& [key, cell] : document.facts) facts += fmt::format("- {}: {}\n", key, cell.text);
    if (!facts.empty()) parts.push_back(facts);
    for (const Table& table : document.tables) {
        if (!table.title().empty()) parts.push_back(fmt::format("### {}\n", table.title()));
        parts.push_back(to_markdown(table));
    }
    for (const Listing& listing : document.listings) {
        parts.push_back(fmt::format("```{}\n{}```\n", listing.language, listing.text));
    }
    for (const std::string& note : document.notes) parts.push_back(note + "\n");
    return fmt::format("{}", fmt::join(parts, "\n"));
}

Json to_json(const Table& table) {
    Json rows = Json::array();
    for (const auto& row : table.rows()) {
        Json object = Json::object();
        for (std::size_t i = 0; i < row.size(); ++i) object[table.columns()[i].key] = to_json(row[i].value);
        rows.push_back(std::move(object));
    }
    return rows;
}

Json to_json(const Document& document) {
    Json json;
    json["command"] = document.command;
    for (const auto& [key, cell] : document.facts) json[key] = to_json(cell.value);
    for (const auto& [key, value] : document.data) json[key] = to_json(value);
    for (const auto* tables : {&document.tables, &document.data_tables}) {
        for (const Table& table : *tables) json[table.key()] = to_json(table);
    }
    for (const Listing& listing : document.listings) json[listing.key] = listing.text;
    if (!document.notes.empty()) json["notes"] = document.notes;
    if (!document.failure.empty()) json["failure"] = document.failure;
    return json;
}

std::size_t display_width(std::string_view utf8) {
    std::size_t width = 0;
    for (std::size_t i = 0; i < utf8.size(); ++i) {
        const auto byte = static_cast<unsigned char>(utf8[i]);
        const bool continues = (byte & 0xc0) == 0x80;
        // U+0300 to U+036F, the combining marks, sit on the character before them.
        const auto next = i + 1 < utf8.size() ? static_cast<unsigned char>(utf8[i + 1]) : 0;
        const bool combines = byte == 0xcc || (byte == 0xcd && next < 0xb0);
        width += !continues && !combines;
    }
    return width;
}

}  // namespace ladder
