// One table, three forms.

#include "harness/base/table.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/catch.h"

using namespace ladder;

namespace {

Table sample() {
    Table table("rows", "Title",
                {{"name", "name"}, {"n", "number", Align::right}, {"ratio", "", Align::right}});
    table.add_row({"α", Cell::count(1234567), {Value(0.5), "x0.5"}});
    table.add_row({Cell("a|b", Tone::strong), Cell::count(7)});
    return table;
}

Document sample_document() {
    Document document;
    document.command = "sample";
    document.facts = {{"GPU", "none"}, {"µ", "value"}};
    document.data = {{"hidden", Value(std::int64_t{3})}};
    document.tables = {sample()};
    document.listings = {{"diff", "+a\n", "diff", [](const std::string& text) { return "<" + text + ">"; }}};
    document.notes = {"a note"};
    return document;
}

}  // namespace

TEST_CASE("table: columns align by characters and not by bytes", "[table]") {
    CHECK(to_terminal(sample(), false) ==
          "Title\n"
          "name     number\n"
          "α     1,234,567  x0.5\n"
          "a|b           7\n");
}

TEST_CASE("table: marks are arrows in a terminal and bold in Markdown, and keep columns aligned", "[table]") {
    Table table("rows", "", {{"x", "x", Align::right}, {"y", "y"}, {"z", "z"}});
    table.add_row({{Value(1.0), "1.00x", Tone::marked}, {Value(), "a", Tone::marked}, "end"});
    table.add_row({{Value(12.5), "12.50x"}, "bc", "end"});
    CHECK(to_terminal(table, false) ==
          "     x    y     z\n"
          " 1.00x ←  a ←   end\n"
          "12.50x    bc    end\n");
    CHECK(to_markdown(table).find("| **1.00x** | **a** | end |") != std::string::npos);
}

TEST_CASE("table: colour adds escapes and nothing else", "[table]") {
    std::string coloured = to_terminal(sample(), true);
    CHECK(coloured.find("\x1b[1ma|b\x1b[0m") != std::string::npos);
    for (std::size_t start; (start = coloured.find('\x1b')) != std::string::npos;) {
        coloured.erase(start, coloured.find('m', start) - start + 1);
    }
    CHECK(coloured == to_terminal(sample(), false));
}

TEST_CASE("table: Markdown escapes bars and marks strong cells", "[table]") {
    CHECK(to_markdown(sample()) ==
          "| name | number |  |\n"
          "|---|---:|---:|\n"
          "| α | 1,234,567 | x0.5 |\n"
          "| **a\\|b** | 7 | |\n");
}

TEST_CASE("table: JSON has values, not their texts", "[table]") {
    const auto json = to_json(sample());
    REQUIRE(json.size() == 2);
    CHECK(json[0]["n"] == 1234567);
    CHECK(json[0]["ratio"] == 0.5);
    CHECK(json[1]["name"] == "a|b");
    CHECK(json[1]["ratio"].is_null());
}

TEST_CASE("table: what JSON cannot say becomes null", "[table]") {
    Table table("rows", "", {{"x", "x"}});
    table.add_row({{Value(std::numeric_limits<double>::quiet_NaN()), "nan"}});
    table.add_row({{Value(true), "yes"}});
    CHECK(to_json(table)[0]["x"].is_null());
    CHECK(to_json(table)[1]["x"] == true);
}

TEST_CASE("table: a row that does not fit is an error of the program", "[table]") {
    Table table("rows", "", {{"x", "x"}});
    CHECK_THROWS_AS(table.add_row({"1", "2"}), std::logic_error);
}

TEST_CASE("document: facts, tables, listings and notes in every form", "[table]") {
    const Document document = sample_document();
    const std::string terminal = to_terminal(document, false);
    CHECK(terminal.find("GPU  none\nµ    value\n") == 0);
    CHECK(terminal.find("\n\n+a\n\na note\n") != std::string::npos);
    CHECK(terminal.find("hidden") == std::string::npos);
    CHECK(to_terminal(document, true).find("<+a\n>") != std::string::npos);

    const std::string markdown = to_markdown(document);
    CHECK(markdown.find("- GPU: none\n") == 0);
    CHECK(markdown.find("### Title\n\n| name |") != std::string::npos);
    CHECK(markdown.find("```diff\n+a\n```\n") != std::string::npos);

    const auto json = to_json(document);
    CHECK(json["command"] == "sample");
    CHECK(json["GPU"] == "none");
    CHECK(json["hidden"] == 3);
    CHECK(json["rows"].size() == 2);
    CHECK(json["diff"] == "+a\n");
    CHECK(json["notes"][0] == "a note");
    CHECK(!json.contains("failure"));
}

TEST_CASE("thousands separators", "[table]") {
    CHECK(with_separators(0) == "0");
    CHECK(with_separators(999) == "999");
    CHECK(with_separators(1000) == "1,000");
    CHECK(with_separators(1234567890) == "1,234,567,890");
}

TEST_CASE("display width counts characters", "[table]") {
    CHECK(display_width("abc") == 3);
    CHECK(display_width("αβγ") == 3);
    CHECK(display_width("1.5x ←") == 6);
    CHECK(display_width("e\u0301") == 1);  // e and a combining accent
    CHECK(display_width("") == 0);
}
