// One table, three forms.

#include "harness/base/table.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/progress.h"
#include "harness/base/terminal.h"
#include "tests/catch.h"
#include "tests/folder.h"
#include "tests/terminal.h"

using namespace ladder;

namespace {

Table sample() {
    Table table("rows", "Title",
                {{"name", "name"}, {"n", "number", Align::right}, {"ratio", "", Align::right}});
    table.add_row({"α", Cell::count(1234567), {Value(0.5), "x0.5"}});
    table.add_row({Cell("a|b", Tone::strong), Cell::count(7)});
    return table;
}

Printout sample_printout() {
    Printout printout;
    printout.command = "sample";
    printout.facts = {{"GPU", "none"}, {"µ", "value"}};
    printout.data = {{"hidden", Value(std::int64_t{3})}};
    printout.tables = {sample()};
    printout.listings = {{"diff", "+a\n", "diff", [](const std::string& text) { return "<" + text + ">"; }}};
    printout.notes = {"a note"};
    return printout;
}

// A title of two words, a column that may go, text that may be wrapped, and numbers.
Table wide_table() {
    Table table("rows", "",
                {{"name", "name"},
                 {"spare", "spare one", Align::left, true},
                 {"first", "goes first", Align::right, true},
                 {"text", "text"},
                 {"ms", "median ms", Align::right}});
    table.add_row({"my_deferred", "abcdefgh", Cell::count(12), "one two three four five six", "1.5"});
    table.add_row({"03", "x", Cell::count(3), "seven", "22.25"});
    return table;
}

std::size_t widest_line(const std::string& text) {
    std::istringstream lines(text);
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, display_width(line));
    return widest;
}

}  // namespace

TEST_CASE("table: columns align by characters and not by bytes", "[table]") {
    CHECK(to_terminal(sample(), false) ==
          "Title\n"
          "name     number\n"
          "α     1,234,567  x0.5\n"
          "a|b           7\n");
}

TEST_CASE("table: headings stand above rows, for people", "[table]") {
    Table table("rows", "", {{"x", "x"}, {"y", "y"}});
    for (const char* name : {"a", "b"}) {
        table.add_heading(std::string("of ") + name);
        table.add_row({name, "1"});
    }
    CHECK(to_terminal(table, false) == "x  y\n\nof a\na  1\n\nof b\nb  1\n");
    CHECK(to_markdown(table) ==
          "| x | y |\n|---|---|\n| **of a** | |\n| a | 1 |\n| **of b** | |\n| b | 1 |\n");
    CHECK(to_json(table).dump() == R"([{"x":"a","y":"1"},{"x":"b","y":"1"}])");
}

TEST_CASE("terminal: commands are printed as they can be typed", "[table]") {
    CHECK(lab_command({"check", "my"}) == "./lab check my");
    CHECK(lab_command({"check", "it's mine"}) == R"(./lab check 'it'\''s mine')");
    setenv("LADDER_COMMAND", "/home/a b/lab", 1);
    CHECK(lab_command({"start"}) == "'/home/a b/lab' start");
    unsetenv("LADDER_COMMAND");
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

TEST_CASE("table: what is too wide is made to fit: titles, spare columns, text, blocks", "[table]") {
    const std::string all = to_terminal(wide_table(), false);
    CHECK(widest_line(all) == 74);
    CHECK(to_terminal(wide_table(), false, 74) == all);
    CHECK(to_terminal(wide_table(), false, 68) ==
          "name         spare        goes  text                          median\n"
          "             one         first                                    ms\n"
          "my_deferred  abcdefgh       12  one two three four five six      1.5\n"
          "03           x               3  seven                          22.25\n");
    CHECK(to_terminal(wide_table(), false, 46) ==
          "name         text                       median\n"
          "                                            ms\n"
          "my_deferred  one two three four five       1.5\n"
          "             six\n"
          "03           seven                       22.25\n");
    CHECK(to_terminal(wide_table(), false, 30) ==
          "name         text\n"
          "my_deferred  one two three\n"
          "             four five six\n"
          "03           seven\n"
          "\n"
          "name         median ms\n"
          "my_deferred        1.5\n"
          "03               22.25\n");
    Table stages("stages", "", {{"n", ""}, {"02", "my_deferred_normalization", Align::right}});
    stages.add_row({"blocks", Cell::count(16)});
    CHECK(to_terminal(stages, false, 22) ==
          "          my_deferred_\n"
          "         normalization\n"
          "blocks              16\n");
    for (std::size_t width = 24; width < 80; ++width) {
        CAPTURE(width);
        CHECK(widest_line(to_terminal(wide_table(), false, width)) <= width);
    }
}

TEST_CASE("printout: facts, notes and prose are wrapped, and columns that went are named", "[table]") {
    Printout printout = sample_printout();
    printout.facts.emplace_back("compiled by", "a compiler of many words, and more of them");
    printout.tables = {wide_table()};
    printout.notes = {"a note that is too long for a line of this terminal"};
    printout.listings.push_back(
        {"hint", "one\nparagraph of two lines\n\nand another\n", "", nullptr, Lines::prose});
    const std::string text = to_terminal(printout, false, 40);
    CHECK(widest_line(text) <= 40);
    CHECK(text.find("compiled by  a compiler of many words,\n             and more of them\n") != text.npos);
    CHECK(text.find("a note that is too long for a line of\nthis terminal\n") != text.npos);
    CHECK(text.find("one paragraph of two lines\n\nand another\n") != text.npos);
    CHECK(text.find("spare one, goes first.") != text.npos);
    printout.listings = {
        {"report",
         "  read of memory at kernel.cu:43 before the copy\n./lab check 'a folder of a long name' my\n", "",
         nullptr, Lines::wrapped, true}};
    const std::string report = to_terminal(printout, false, 40);
    CHECK(
        report.starts_with("  read of memory at kernel.cu:43\n      before the copy\n"
                           "./lab check 'a folder of a long name' my\n\n"));
    CHECK(to_markdown(printout).starts_with("```\n  read of memory at kernel.cu:43 before the copy\n"));
    CHECK(to_terminal(printout, false).find("Left out") == std::string::npos);
}

TEST_CASE("terminal: words are wrapped and cut by columns, and a mistyped one is recognized", "[table]") {
    CHECK(wrapped("", 5) == std::vector<std::string>{""});
    CHECK(wrapped("αβ γδ ε", 5) == std::vector<std::string>{"αβ γδ", "ε"});
    CHECK(wrapped("  a longer_than_that b", 6) == std::vector<std::string>{"  a", "longer_than_that", "b"});
    CHECK(wrapped("as it is", 0) == std::vector<std::string>{"as it is"});
    // Lines go on further in, but for commands and what a compiler shows of a source.
    CHECK(continued("lab: there is no folder of that name, nor a stage\n", 30) ==
          "lab: there is no folder of\n    that name, nor a stage\n");
    const std::string whole =
        lab_command() + " check 'the folder of my kernel'\n   12 |     int x = ;  // here\n";
    CHECK(continued(whole, 20) == whole);
    CHECK(cut_to("αβγδ", 4) == "αβγδ");
    CHECK(cut_to("αβγδ", 3) == "αβ…");
    const std::vector<std::string> there{"time", "trace", "split_q", "flash_attention_1", "flash_decoding"};
    CHECK(did_you_mean("tiem", there) == " (did you mean 'time'?)");
    CHECK(did_you_mean("split-q", there) == " (did you mean 'split_q'?)");
    CHECK(did_you_mean("decoding", there) == " (did you mean 'flash_decoding'?)");
    for (const char* word : {"", "t", "flash", "dance", "99"}) CHECK(did_you_mean(word, there).empty());
    CHECK(did_you_mean("rnu", {"run", "zoo"}) == " (did you mean 'run'?)");
    CHECK(did_you_mean("foo", {"run", "zoo"}).empty());
}

TEST_CASE("progress: one line that fits the terminal; in a log a line for each tenth of what takes long",
          "[table]") {
    unsetenv("COLUMNS");
    ladder::test::Terminal terminal(20);
    std::FILE* out = std::fopen(terminal.path().c_str(), "w");
    REQUIRE(out != nullptr);
    {
        const ProgressLine progress(out);
        progress("verify 04_split_q, and so on", 6, 30);
    }
    std::fclose(out);
    CHECK(terminal.said() == "\r\x1b[K[7/30] verify 04_s…\r\x1b[K");

    const auto logged = [](double quiet_s) {
        const ladder::test::Folder folder;
        std::FILE* log = std::fopen((folder / "log").c_str(), "w");
        REQUIRE(log != nullptr);
        const ProgressLine progress(log, quiet_s);
        for (int phase = 0; phase < 2; ++phase) {
            for (int done = 0; done < 40; ++done) progress("step " + std::to_string(done), done, 40);
        }
        std::fclose(log);
        return folder.read("log");
    };
    const std::string lines = logged(0);
    CHECK(std::count(lines.begin(), lines.end(), '\n') == 18);
    CHECK(lines.starts_with("lab: 10%, step 4\nlab: 20%, step 8\n"));
    CHECK(logged(3600).empty());

    const auto left = ladder::ProgressLine::time_left;
    CHECK((left(0, 10, 60).empty() && left(3, 10, 1).empty()));  // too early to say
    CHECK(left(5, 10, 4) == ", about 5 s left");
    CHECK(left(1, 10, 5) == ", about 50 s left");
    CHECK(left(10, 40, 60) == ", about 3 min left");
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

TEST_CASE("printout: facts, tables, listings and notes in every form", "[table]") {
    const Printout printout = sample_printout();
    const std::string terminal = to_terminal(printout, false);
    CHECK(terminal.find("GPU  none\nµ    value\n") == 0);
    CHECK(terminal.find("\n\n+a\n\na note\n") != std::string::npos);
    CHECK(terminal.find("hidden") == std::string::npos);
    CHECK(to_terminal(printout, true).find("<+a\n>") != std::string::npos);

    const std::string markdown = to_markdown(printout);
    CHECK(markdown.find("- GPU: none\n") == 0);
    CHECK(markdown.find("### Title\n\n| name |") != std::string::npos);
    CHECK(markdown.find("```diff\n+a\n```\n") != std::string::npos);

    const auto json = to_json(printout);
    CHECK(json["command"] == "sample");
    CHECK(json["GPU"] == "none");
    CHECK(json["hidden"] == 3);
    CHECK(json["rows"].size() == 2);
    CHECK(json["diff"] == "+a\n");
    CHECK(json["notes"][0] == "a note");
    CHECK(!json.contains("failure"));
}

TEST_CASE("thousands separators", "[table]") {
    CHECK(counted(0, "case") == "0 cases");
    CHECK(counted(1, "case") == "1 case");
    CHECK(counted(1234, "case") == "1,234 cases");
    CHECK(counted(1, "launch", "launches") == "1 launch");
    CHECK(counted(2, "launch", "launches") == "2 launches");
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
