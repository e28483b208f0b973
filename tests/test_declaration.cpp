/// @file
/// What harness/ladder/ reads of a kernel's source.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "harness/ladder/declaration.h"
#include "stages/errors.h"
#include "tests/catch.h"
#include "tests/folder.h"

namespace {

using namespace ladder;

TEST_CASE("a declaration is read as it stands, and what is no literal is refused by name") {
    const ladder::test::Folder folder;
    const auto read = [&](const std::string& fields, const std::string& dims = "64, 128") {
        return read_declaration(folder.write(
            "kernel.cu", fmt::format("// LADDER_STAGE(\nusing Dims = HeadDims<{}>;\n"
                                     "LADDER_STAGE(forward, Dims, .number = 7, .name = \"x\"{});\n",
                                     dims, fields)));
    };
    const std::string tiles = ", .tilings = LADDER_TILES((Br, Bc<d>, 4), {16, 128, 4}, {16, 64})";
    const Stage stage = read(R"(, .parent = -1, .change = "a \"b\", (c" " }", .diff_budget = 0,
                                // (a, b, "c", .diff_budget = 7
                                .most_lines = 500,  // and why
                                .repeats_exactly = false, .rounds_large_scores = true, .pass = Pass::backward,
                                .workspace_bytes = [](const Shape&, int) { return 1; })" +
                             tiles);
    CHECK(stage.number == 7);
    CHECK(stage.parent == -1);
    CHECK(stage.change == "a \"b\", (c }");
    CHECK(stage.diff_budget == 0);
    CHECK(stage.most_lines == 500);
    CHECK(stage.rounds_large_scores);
    CHECK(!stage.repeats_exactly);
    CHECK(stage.pass == Pass::backward);
    CHECK(stage.head_dims == std::vector{64, 128});
    CHECK(stage.tilings == std::vector<Tiling>{{16, 128, 4}, {16, 64, 1}});

    const auto refuses = [&](const std::string& why, const std::string& fields,
                             const std::string& dims = "64, 128") {
        CAPTURE(fields, dims);
        try {
            read(fields, dims);
            FAIL("it is read");
        } catch (const CheckFailed& refusal) {
            CHECK(refusal.what() == fmt::format("{}: LADDER_STAGE at the end {}", folder / "kernel.cu", why));
        }
    };
    const std::string no_literal = "gives {} no literal that can be read as it stands: {}",
                      no_tiles = "needs .tilings = LADDER_TILES(...), with a tile for each head dimension";
    for (const auto& [field, value] : {std::pair{".parent", "first + 1"},
                                       {".change", "TEXT"},
                                       {".repeats_exactly", "exactly"},
                                       {".most_lines", "most"},
                                       {".rounds_large_scores", "1"},
                                       {".pass", "pass"},
                                       {".tilings", "LADDER_TILES((Br, Bc), {64, Bc}, {64, 64})"},
                                       {".tilings", "LADDER_TILES((Br, Bc), {64, 0}, {64, 64})"}})
        refuses(fmt::format(fmt::runtime(no_literal), field, value), fmt::format(", {} = {}", field, value));
    refuses(no_tiles, ", .tilings = LADDER_TILES((Br, Bc), {64, 64})");
    refuses(no_tiles, "");
    refuses("names no head dimensions: using Dims = HeadDims<...>", tiles, "64, wide");
}

}  // namespace
