#include "harness/ladder/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string_view>

#include "harness/base/file.h"
#include "harness/ladder/constants.h"
#include "harness/ladder/library.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct Folders {
    fs::path sources = LADDER_SOURCE_DIR, build = LADDER_BUILD_FOLDER;
};

Folders& folders() {
    static Folders folders;
    return folders;
}

constexpr std::string_view blanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// The end of the string literal that starts at `at`.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
    return std::min(at + 1, text.size());
}

/// The arguments of the call whose opening parenthesis is at `open`; none if it does not end.
std::vector<std::string_view> arguments(std::string_view text, std::size_t open) {
    std::vector<std::string_view> found;
    int depth = 0;
    for (std::size_t at = open, begin = open + 1; at < text.size();) {
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

/// The text of adjacent string literals, of which nothing but the quotation marks needs an escape.
std::string literal(std::string_view value) {
    std::string text;
    for (std::size_t at = value.find('"'); at < value.size(); at = value.find('"', at)) {
        const std::size_t end = end_of_literal(value, at);
        for (++at; at + 1 < end; ++at) {
            if (value[at] == '\\') ++at;
            text += value[at];
        }
        at = end;
    }
    return text;
}

std::optional<int> whole_number(std::string_view value) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    return error == std::errc() && end == value.data() + value.size() ? std::optional(number) : std::nullopt;
}

/// The numbers of `using dims = HeadDims<64, 128>;`
std::vector<int> head_dims(std::string_view source, std::string_view dims) {
    std::vector<int> numbers;
    const std::string start = fmt::format("using {} = HeadDims<", dims);
    std::size_t at = source.rfind(start);
    if (at == source.npos) return numbers;
    at += start.size();
    const std::string_view list = source.substr(at, source.find('>', at) - at);
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        if (const auto number = whole_number(trimmed(list.substr(begin, end - begin))))
            numbers.push_back(*number);
        begin = end + 1;
    }
    return numbers;
}

Tiling read_tiling(std::string_view source, int d) {
    Tiling tiling;
    const auto constants = read_constants(source, d);
    for (const auto& [name, value] :
         {std::pair{"Br", &tiling.Br}, {"Bc", &tiling.Bc}, {"depth", &tiling.depth}}) {
        if (const auto found = constants.find(name); found != constants.end() && found->second > 0)
            *value = found->second;
    }
    return tiling;
}

std::vector<Stage> read_stages() {
    std::vector<Stage> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(stages_folder(), error)) {
        const fs::path kernel = entry.path() / "kernel.cu";
        const char first = entry.path().filename().string().front();
        if (first >= '0' && first <= '9' && fs::exists(kernel)) found.push_back(read_declaration(kernel));
    }
    if (error) throw CannotRun(fmt::format("cannot list {}: {}", stages_folder().string(), error.message()));
    std::sort(found.begin(), found.end(), [](const Stage& a, const Stage& b) { return a.number < b.number; });
    const auto twice = std::adjacent_find(
        found.begin(), found.end(), [](const Stage& a, const Stage& b) { return a.number == b.number; });
    if (twice != found.end())
        throw CheckFailed(
            fmt::format("{} and {} declare the same number", twice->source, (twice + 1)->source));
    return found;
}

}  // namespace

std::string Stage::folder() const {
    return fmt::format("{:02}_{}", number, name);
}

bool Stage::has_head_dim(int d) const {
    return std::find(head_dims.begin(), head_dims.end(), d) != head_dims.end();
}

fs::path source_folder() {
    const fs::path& folder = folders().sources;
    if (!fs::exists(folder / "stages"))
        throw CannotRun(fmt::format("there is no {}: the folder that this program was built from has moved",
                                    (folder / "stages").string()));
    return folder;
}

const fs::path& build_folder() {
    return folders().build;
}

void use_folders(const fs::path& sources, const fs::path& build) {
    folders() = {sources, build};
}

fs::path stages_folder() {
    const char* named = std::getenv("LADDER_STAGES");
    return named != nullptr && *named != '\0' ? fs::path(named) : source_folder() / "stages";
}

const std::vector<Stage>& stages() {
    static const std::vector<Stage> all = read_stages();
    return all;
}

const Stage* find_stage(int number) {
    for (const Stage& stage : stages()) {
        if (stage.number == number) return &stage;
    }
    return nullptr;
}

const Stage* parent_at(const Stage& stage, int d) {
    const Stage* parent = find_stage(stage.parent);
    while (parent != nullptr && !parent->has_head_dim(d)) parent = find_stage(parent->parent);
    return parent;
}

const Stage& stage_in(const fs::path& folder) {
    const fs::path name = fs::absolute(folder).lexically_normal().filename();
    for (const Stage& stage : stages()) {
        if (stage.folder() == name) return stage;
    }
    throw BadUsage(fmt::format("there is no stage {}", name.string()));
}

int part_of(int number) {
    return number / 10 * 10;
}

bool is_core(const Stage& stage) {
    return part_of(stage.number) == 0;
}

bool is_ablation(int number) {
    return part_of(number) == 90;
}

bool is_for_order(const Stage& stage) {
    const Stage* parent = find_stage(stage.parent);
    return parent != nullptr && stage.repeats_exactly && !parent->repeats_exactly;
}

bool is_last_of_part(const Stage& stage) {
    return !is_ablation(stage.number) && !is_for_order(stage) &&
           std::none_of(stages().begin(), stages().end(), [&](const Stage& other) {
               return part_of(other.number) == part_of(stage.number) && other.number > stage.number &&
                      !is_for_order(other);
           });
}

std::map<int, fs::path> part_pages() {
    std::map<int, fs::path> pages;
    for (const auto& entry : fs::directory_iterator(stages_folder())) {
        const std::string name = entry.path().filename().string();
        const auto number = name.size() > 3 ? whole_number(name.substr(0, 2)) : std::nullopt;
        if (number && name.substr(2, 2) == "s_" && entry.path().extension() == ".md") pages[*number] = name;
    }
    return pages;
}

std::vector<const Stage*> with_parents(const std::vector<const Stage*>& stages) {
    std::vector<const Stage*> all = stages;
    for (const Stage* stage : stages) {
        for (const int d : stage->head_dims) {
            const Stage* parent = parent_at(*stage, d);
            if (parent != nullptr && std::find(all.begin(), all.end(), parent) == all.end())
                all.push_back(parent);
        }
    }
    return all;
}

int needed_capability(std::string_view source) {
    static constexpr std::string_view line = "\n#include \"stages/hopper.cuh\"";
    return source.starts_with(line.substr(1)) || source.find(line) != source.npos ? 90 : 0;
}

Stage read_declaration(const fs::path& path) {
    const std::string source = read_file(path);
    const auto fail = [&](std::string_view what) {
        throw CheckFailed(fmt::format("{}: LADDER_STAGE at the end {}", path.string(), what));
    };
    const std::size_t at = source.rfind("LADDER_STAGE(");
    const auto declared = arguments(source, at == source.npos ? source.size() : source.find('(', at));
    if (declared.size() < 3) fail("is missing");
    Stage stage;
    stage.number = -1;
    stage.source = fs::absolute(path).lexically_normal().string();
    stage.compute_capability = needed_capability(source);
    stage.rounds_large_scores =
        source.find("parts.L") != source.npos || source.find("scale - m[") != source.npos;
    stage.head_dims = head_dims(source, declared[1]);
    for (const int d : stage.head_dims) stage.tilings.push_back(read_tiling(source, d));
    for (const std::string_view field : declared) {
        const std::size_t equals = field.find('=');
        if (!field.starts_with('.') || equals == field.npos) continue;
        const std::string_view key = trimmed(field.substr(1, equals - 1)),
                               value = trimmed(field.substr(equals + 1));
        for (const auto& [name, text] :
             {std::pair{"name", &stage.name}, {"change", &stage.change}, {"shows_in", &stage.shows_in}}) {
            if (key == name) *text = literal(value);
        }
        for (const auto& [name, number] : {std::pair{"number", &stage.number},
                                           {"parent", &stage.parent},
                                           {"diff_budget", &stage.diff_budget}}) {
            if (key == name) *number = whole_number(value).value_or(-1);
        }
        if (key == "repeats_exactly") stage.repeats_exactly = value != "false";
        if (key == "pass") stage.pass = value == "Pass::backward" ? Pass::backward : Pass::forward;
    }
    if (stage.number < 0 || stage.name.empty()) fail("names no .number or no .name");
    if (stage.head_dims.empty())
        fail(fmt::format("names no head dimensions: using {} = HeadDims<...>", declared[1]));
    return stage;
}

const Stage& own_stage(const fs::path& path) {
    static std::deque<Stage> own;
    if (path.extension() == ".so") {
        if (!fs::exists(path)) throw BadUsage(fmt::format("there is no {}", path.string()));
        own.push_back(load_library(fs::absolute(path)));
        own.back().name = "yours";
        return own.back();
    }
    const fs::path kernel = fs::is_directory(path) ? path / "kernel.cu" : path;
    if (!fs::is_regular_file(kernel)) throw BadUsage(fmt::format("there is no {}", kernel.string()));
    Stage stage = read_declaration(kernel);
    const auto known =
        std::find_if(own.begin(), own.end(), [&](const Stage& s) { return s.source == stage.source; });
    if (known != own.end()) return *known;
    stage.name = fs::path(stage.source).parent_path().filename().string();
    return own.emplace_back(std::move(stage));
}

}  // namespace ladder
