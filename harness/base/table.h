/// @file
/// What a command prints: a printout of facts, tables and notes, in one model for terminal, Markdown and
/// JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "harness/base/file.h"

namespace ladder {

/// A value as JSON knows it; monostate is null.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

/// How a cell stands out.
enum class Tone : std::uint8_t {
    plain,
    good,    ///< green in a terminal
    bad,     ///< red in a terminal
    faint,   ///< grey in a terminal
    strong,  ///< bold in a terminal and in Markdown
    marked   ///< the same, and with an arrow in a terminal, which may have no bold
};

/// One cell: the value for JSON and the text for people.
struct Cell {
    Value value;
    std::string text;
    Tone tone = Tone::plain;

    Cell() = default;
    Cell(const char* words, Tone t = Tone::plain) : Cell(std::string(words), t) {}
    Cell(std::string words, Tone t = Tone::plain) : value(words), text(std::move(words)), tone(t) {}
    Cell(Value v, std::string shown, Tone t = Tone::plain)
        : value(std::move(v)), text(std::move(shown)), tone(t) {}

    /// A whole number, shown with thousands separators.
    static Cell count(std::uint64_t n);
};

/// 1234567 as "1,234,567".
std::string with_separators(std::uint64_t n);

/// "1 case", "1,234 cases"; `many` where the plural is not `one` with an s.
std::string counted(std::uint64_t n, std::string_view one, std::string_view many = {});

/// "global load bytes" for "global_load_bytes".
std::string in_words(std::string name);

enum class Align : std::uint8_t { left, right };

/// A column: its key in JSON, its title for people.
struct Column {
    std::string key;
    std::string title;
    Align align = Align::left;
    bool spare = false;  ///< whether it is left out where a terminal is too narrow for all
};

/// Rows of cells under columns.
class Table {
  public:
    Table(std::string key, std::string title, std::vector<Column> columns)
        : key_(std::move(key)), title_(std::move(title)), columns_(std::move(columns)) {}

    /// Missing cells at the end are empty; too many throw std::logic_error.
    void add_row(std::vector<Cell> row);

    /// A line above the rows that follow, for people.
    void add_heading(std::string text) { headings_[rows_.size()] = std::move(text); }

    void set_title(std::string title) { title_ = std::move(title); }

    const std::string& key() const { return key_; }
    const std::string& title() const { return title_; }
    const std::vector<Column>& columns() const { return columns_; }
    const std::vector<std::vector<Cell>>& rows() const { return rows_; }
    /// The heading above a row; empty for most.
    std::string heading_above(std::size_t row) const {
        const auto found = headings_.find(row);
        return found == headings_.end() ? "" : found->second;
    }

  private:
    std::string key_;
    std::string title_;
    std::vector<Column> columns_;
    std::vector<std::vector<Cell>> rows_;
    std::map<std::size_t, std::string> headings_;  ///< by the row below
};

/// What becomes of lines that a terminal has no room for.
enum class Lines : std::uint8_t {
    kept,     ///< they stay: a diff
    wrapped,  ///< they go on in the next line, further in: a report
    prose     ///< paragraphs, whose lines may end elsewhere
};

/// Text whose lines matter: a diff, a report; or paragraphs.
struct Listing {
    std::string key;  ///< in JSON
    std::string text;
    std::string language;  ///< of the Markdown block, such as "diff"
    std::string (*colour)(const std::string&) =
        nullptr;  ///< its form for a terminal in colour; null for plain
    Lines lines = Lines::kept;
    bool first = false;  ///< what to read before all else, facts and tables included
};

/// Everything that one command has to say, in the order in which it is printed.
struct Printout {
    std::string command;
    std::vector<std::pair<std::string, Cell>> facts;  ///< where, what, when
    std::vector<std::pair<std::string, Value>> data;  ///< for JSON only
    std::vector<Table> tables;
    std::vector<Table> data_tables;  ///< for JSON only
    std::vector<Listing> listings;
    std::vector<std::string> notes;  ///< one line each
    std::string failure;             ///< why the check failed, in one line; empty if all is well
    /// Writes the JSON file in a form of the command's own; null for to_json(printout).
    std::function<void(const OutputFile&)> save;
};

/// Aligned columns; with `colour`, tones become ANSI colours. What is wider than `width` columns, unless that
/// is 0, is made to fit: titles take several lines; if that is not enough, spare columns go and the widest
/// cells of text take several lines; at last the columns come in several blocks below each other, each
/// beginning with the first column.
std::string to_terminal(const Table& table, bool colour, std::size_t width = 0);
/// The same of its tables, with a line that says which columns went. Facts, notes and
/// prose are wrapped, and listings as they say.
std::string to_terminal(const Printout& printout, bool colour, std::size_t width = 0);

std::string to_markdown(const Table& table);
std::string to_markdown(const Printout& printout);

/// An array of one object per row.
nlohmann::ordered_json to_json(const Table& table);
nlohmann::ordered_json to_json(const Printout& printout);

}  // namespace ladder
