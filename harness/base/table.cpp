#include "harness/base/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "harness/base/terminal.h"

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

constexpr std::string_view arrow = " ←";
constexpr std::size_t column_gap = 2;  // between columns

// A column of a table as it is printed, without the marks of its cells.
struct Fitted {
    std::size_t index;
    std::size_t mark_width = 0;  // a column without marks needs no room for one
    std::size_t width = 0;       // of what is printed
    std::size_t cells = 0;       // at least, for cells in one line and a title in several
    std::size_t words = 0;       // at least, for text in several lines
};

// The lines of a title. One may also end after an underscore, since the names of stages are long.
std::vector<std::string> title_lines(const std::string& title, std::size_t width) {
    if (width == 0 || display_width(title) <= width) return {title};
    const auto replaced = [](std::string text, std::string_view from, std::string_view to) {
        for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
            text.replace(at, from.size(), to);
        return text;
    };
    std::vector<std::string> lines = wrapped(replaced(title, "_", "_ "), width);
    for (std::string& line : lines) line = replaced(line, "_ ", "_");
    return lines;
}

std::size_t widest(const std::vector<std::string>& lines) {
    std::size_t width = 0;
    for (const std::string& line : lines) width = std::max(width, display_width(line));
    return width;
}

std::vector<Fitted> fitted_columns(const Table& table) {
    std::vector<Fitted> columns;
    for (std::size_t i = 0; i < table.columns().size(); ++i) {
        const Column& column = table.columns()[i];
        Fitted fitted{.index = i, .cells = widest(title_lines(column.title, 1))};
        fitted.words = std::max(fitted.cells, least_text);
        for (const auto& row : table.rows()) {
            const std::string& text = row[i].text;
            fitted.cells = std::max(fitted.cells, display_width(text));
            // Numbers stay in one line.
            fitted.words = std::max(
                fitted.words, column.align == Align::left ? widest(wrapped(text, 1)) : display_width(text));
            if (row[i].tone == Tone::marked) fitted.mark_width = display_width(arrow);
        }
        fitted.words = std::min(fitted.words, fitted.cells);
        fitted.width = std::max(fitted.cells, display_width(column.title));
        columns.push_back(fitted);
    }
    return columns;
}

std::size_t total_width(const std::vector<Fitted>& columns, std::size_t Fitted::*width = &Fitted::width) {
    std::size_t sum = 0;
    for (const Fitted& column : columns)
        sum += column.width == 0 ? 0 : column.*width + column.mark_width + column_gap;
    return sum == 0 ? 0 : sum - column_gap;
}

// Makes columns narrower, the widest first, until all fit or none can be narrower: titles take several lines,
// and then text does.
void narrow(std::vector<Fitted>& columns, std::size_t width) {
    for (const auto least : {&Fitted::cells, &Fitted::words}) {
        while (total_width(columns) > width) {
            Fitted* widest = nullptr;
            for (Fitted& column : columns) {
                if (column.width > column.*least && (widest == nullptr || column.width > widest->width))
                    widest = &column;
            }
            if (widest == nullptr) break;
            widest->width -= 1;
        }
    }
}

// Blocks of columns that fit, each beginning with the first column.
std::vector<std::vector<Fitted>> blocks_of(const std::vector<Fitted>& columns, std::size_t width) {
    std::vector<std::vector<Fitted>> blocks;
    for (std::size_t i = 1; i < columns.size(); ++i) {
        if (!blocks.empty()) {
            auto longer = blocks.back();
            longer.push_back(columns[i]);
            if (total_width(longer, &Fitted::cells) <= width) {
                blocks.back() = std::move(longer);
                continue;
            }
        }
        blocks.push_back({columns.front(), columns[i]});
    }
    return blocks;
}

// The columns of a table, in one block or several below each other.
std::vector<std::vector<Fitted>> fit(const Table& table, std::size_t width,
                                     std::vector<std::string>& left_out) {
    std::vector<Fitted> columns = fitted_columns(table);
    if (width == 0 || total_width(columns) <= width) return {columns};
    if (total_width(columns, &Fitted::cells) > width) {
        std::erase_if(columns, [&](const Fitted& fitted) {
            const Column& column = table.columns()[fitted.index];
            if (column.spare) left_out.push_back(column.title);
            return column.spare;
        });
    }
    std::vector<std::vector<Fitted>> blocks{columns};
    narrow(blocks.front(), width);
    if (total_width(blocks.front()) > width && columns.size() > 2) {
        blocks = blocks_of(columns, width);
        for (auto& block : blocks) narrow(block, width);
    }
    return blocks;
}

// One row of a table, or its titles: as many lines as its longest cell takes.
template <class LinesOf, class ToneOf>
std::string print_row(const Table& table, const std::vector<Fitted>& columns, bool colour,
                      const LinesOf& lines_of, const ToneOf& tone_of) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (const Fitted& column : columns) {
        cells.push_back(lines_of(column));
        height = std::max(height, cells.back().size());
    }
    const auto blanks = [](std::size_t n) { return std::string(n, ' '); };
    std::string result;
    for (std::size_t l = 0; l < height; ++l) {
        std::string held;  // blanks are held back until something follows them
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const Fitted& column = columns[i];
            const std::string text = l < cells[i].size() ? cells[i][l] : "";
            const Tone tone = tone_of(column.index);
            const bool marked = tone == Tone::marked && l + 1 == cells[i].size();
            const std::size_t taken = display_width(text);
            const std::size_t padding = column.width > taken ? column.width - taken : 0,
                              after = (marked ? 0 : column.mark_width) + column_gap;
            if (text.empty()) {
                held += blanks(column.width + column.mark_width == 0 ? 0 : padding + after);
                continue;
            }
            const bool right = table.columns()[column.index].align == Align::right;
            if (right) held += blanks(padding);
            result += held + paint(marked ? fmt::format("{}{}", text, arrow) : text, tone, colour);
            held = blanks(right ? after : padding + after);
        }
        result += "\n";
    }
    return result;
}

// Paragraphs with lines of another length.
std::string reflowed(const std::string& text, std::size_t width) {
    if (width == 0) return text;
    std::string result, paragraph;
    const auto finish = [&] {
        if (!paragraph.empty()) result += fmt::format("{}\n", fmt::join(wrapped(paragraph, width), "\n"));
        paragraph.clear();
    };
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) {
            finish();
            result += "\n";
        } else {
            paragraph += (paragraph.empty() ? "" : " ") + line;
        }
    }
    finish();
    return result;
}

std::string print(const Listing& listing, bool colour, std::size_t width) {
    if (listing.lines == Lines::prose) return reflowed(listing.text, width);
    if (listing.lines == Lines::wrapped) return continued(listing.text, width);
    return colour && listing.colour ? listing.colour(listing.text) : listing.text;
}

std::string print(const Table& table, bool colour, std::size_t width, std::vector<std::string>& left_out) {
    std::string result;
    if (!table.title().empty()) {
        for (const std::string& line : wrapped(table.title(), width))
            result += paint(line, Tone::strong, colour) + "\n";
    }
    const auto blocks = fit(table, width, left_out);
    for (const auto& columns : blocks) {
        if (&columns != &blocks.front()) result += "\n";
        result += print_row(
            table, columns, colour,
            [&](const Fitted& c) { return title_lines(table.columns()[c.index].title, c.width); },
            [](std::size_t) { return Tone::faint; });
        for (std::size_t k = 0; k < table.rows().size(); ++k) {
            const auto& row = table.rows()[k];
            if (const std::string heading = table.heading_above(k); !heading.empty())
                result += "\n" + paint(heading, Tone::strong, colour) + "\n";
            result += print_row(
                table, columns, colour, [&](const Fitted& c) { return wrapped(row[c.index].text, c.width); },
                [&](std::size_t i) { return row[i].tone; });
        }
    }
    return result;
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

std::string counted(std::uint64_t n, std::string_view one, std::string_view many) {
    const std::string plural = many.empty() ? std::string(one) + "s" : std::string(many);
    return fmt::format("{} {}", with_separators(n), n == 1 ? one : plural);
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

std::string to_terminal(const Table& table, bool colour, std::size_t width) {
    std::vector<std::string> left_out;
    return print(table, colour, width, left_out);
}

std::string to_terminal(const Printout& printout, bool colour, std::size_t width) {
    std::size_t keys = 0;
    for (const auto& [key, cell] : printout.facts) keys = std::max(keys, display_width(key));
    std::vector<std::string> parts;
    for (const Listing& listing : printout.listings) {
        if (listing.first) parts.push_back(print(listing, colour, width));
    }
    std::string facts;
    for (const auto& [key, cell] : printout.facts) {
        const std::size_t room = width == 0 ? 0 : std::max(width, keys + 2 + least_text) - keys - 2;
        std::string name = paint(key, Tone::faint, colour) + std::string(keys - display_width(key), ' ');
        for (const std::string& line : wrapped(cell.text, room)) {
            facts += name + "  " + paint(line, cell.tone, colour) + "\n";
            name = std::string(keys, ' ');
        }
    }
    if (!facts.empty()) parts.push_back(facts);
    std::vector<std::string> left_out;
    for (const Table& table : printout.tables) parts.push_back(print(table, colour, width, left_out));
    for (const Listing& listing : printout.listings) {
        if (!listing.first) parts.push_back(print(listing, colour, width));
    }
    const auto paragraph = [&](const std::string& text) {
        return fmt::format("{}\n", fmt::join(wrapped(text, width), "\n"));
    };
    std::string notes;
    for (const std::string& note : printout.notes) notes += paragraph(note);
    if (!left_out.empty()) {
        notes += paragraph(fmt::format("A terminal of {} columns has no room for: {}. --markdown shows all.",
                                       width, fmt::join(left_out, ", ")));
    }
    if (!notes.empty()) parts.push_back(notes);
    return fmt::format("{}", fmt::join(parts, "\n"));
}

std::string to_markdown(const Table& table) {
    std::string result = "|";
    for (const Column& column : table.columns()) result += fmt::format(" {} |", markdown_cell(column.title));
    result += "\n|";
    for (const Column& column : table.columns()) result += column.align == Align::right ? "---:|" : "---|";
    result += "\n";
    for (std::size_t k = 0; k < table.rows().size(); ++k) {
        const auto& row = table.rows()[k];
        if (const std::string heading = table.heading_above(k); !heading.empty()) {
            result += fmt::format("| **{}** |", markdown_cell(heading));
            for (std::size_t i = 1; i < row.size(); ++i) result += " |";
            result += "\n";
        }
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

std::string to_markdown(const Printout& printout) {
    std::vector<std::string> parts;
    const auto add_listings = [&](bool first) {
        for (const Listing& listing : printout.listings) {
            if (listing.first == first)
                parts.push_back(fmt::format("```{}\n{}```\n", listing.language, listing.text));
        }
    };
    add_listings(true);
    std::string facts;
    for (const auto& [key, cell] : printout.facts) facts += fmt::format("- {}: {}\n", key, cell.text);
    if (!facts.empty()) parts.push_back(facts);
    for (const Table& table : printout.tables) {
        if (!table.title().empty()) parts.push_back(fmt::format("### {}\n", table.title()));
        parts.push_back(to_markdown(table));
    }
    add_listings(false);
    for (const std::string& note : printout.notes) parts.push_back(note + "\n");
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

Json to_json(const Printout& printout) {
    Json json;
    json["command"] = printout.command;
    for (const auto& [key, cell] : printout.facts) json[key] = to_json(cell.value);
    for (const auto& [key, value] : printout.data) json[key] = to_json(value);
    for (const auto* tables : {&printout.tables, &printout.data_tables}) {
        for (const Table& table : *tables) json[table.key()] = to_json(table);
    }
    for (const Listing& listing : printout.listings) json[listing.key] = listing.text;
    if (!printout.notes.empty()) json["notes"] = printout.notes;
    if (!printout.failure.empty()) json["failure"] = printout.failure;
    return json;
}

}  // namespace ladder
