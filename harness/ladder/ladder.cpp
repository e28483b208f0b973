#include "harness/ladder/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <regex>

#include "harness/base/built.h"
#include "harness/base/file.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/library.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct Folders {
    fs::path sources = built_from, build = built_in;
};

Folders& folders() {
    static Folders folders;
    return folders;
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
    std::ranges::sort(found, {}, &Stage::number);
    const auto twice = std::ranges::adjacent_find(found, {}, &Stage::number);
    if (twice != found.end())
        throw CheckFailed(
            fmt::format("{} and {} declare the same number", twice->source, (twice + 1)->source));
    std::ranges::sort(found, {}, reading_order);
    return found;
}

std::vector<Part> read_parts() {
    static const std::regex says("\n<!-- part: (?:at most ([0-9]+) lines|(experiments)) -->\n$");
    std::vector<Part> found;
    for (const auto& entry : fs::directory_iterator(stages_folder())) {
        const std::string name = entry.path().filename().string();
        if (name.find("s_") != 2 || name.find_first_not_of("0123456789") != 2 || !name.ends_with(".md"))
            continue;
        const std::string text = read_file(entry.path());
        Part& part = found.emplace_back();
        part.first = std::stoi(name);
        part.page = name;
        part.title = text.substr(2, text.find('\n') - 2);
        const std::string end = text.substr(text.rfind("\n\n") + 1);
        if (std::smatch said; std::regex_match(end, said, says)) {
            if (said[1].matched) part.most_lines = std::stoi(said[1]);
            part.experiments = said[2].matched;
        }
    }
    std::ranges::sort(found, {}, &Part::first);
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

const Stage* stage_called(const std::string& folder) {
    const auto is_now = [&](const Stage& stage) { return stage.folder() == folder; };
    auto found = std::ranges::find_if(stages(), is_now);
    if (found == stages().end()) found = std::ranges::find(stages(), folder, &Stage::formerly);
    return found != stages().end() ? &*found : nullptr;
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

const std::vector<Part>& parts() {
    static const std::vector<Part> all = read_parts();
    return all;
}

Part part_of(const Stage& stage) {
    const int number = stage.part >= 0 ? stage.part : stage.number;
    const auto after = std::ranges::upper_bound(parts(), number, {}, &Part::first);
    if (after != parts().begin()) return *(after - 1);
    const int tens = number / 10 * 10;
    return {.first = tens, .page = {}, .title = fmt::format("{:02}s", tens)};
}

std::array<int, 3> reading_order(const Stage& stage) {
    const bool is_placed = stage.place >= 0;  // then it comes before the stage with that number
    return {part_of(stage).first, is_placed ? stage.place : stage.number, stage.number - 100 * is_placed};
}

bool is_core(const Stage& stage) {
    return part_of(stage).first == 0;
}

bool is_experiment(const Stage& stage) {
    return part_of(stage).experiments;
}

bool is_for_order(const Stage& stage, const std::vector<Stage>& ladder) {
    return stage.repeats_exactly && std::any_of(ladder.begin(), ladder.end(), [&](const Stage& parent) {
               return parent.number == stage.parent && !parent.repeats_exactly;
           });
}

bool is_batch_invariant(const Stage& stage) {
    return stage.repeats_exactly && stage.batch_invariant && stage.chunks == 0;
}

bool is_last_of_part(const Stage& stage) {
    const auto is_last_at = [&](int d) {
        return std::none_of(stages().begin(), stages().end(), [&](const Stage& other) {
            const auto own = reading_order(stage), its = reading_order(other);
            return its[0] == own[0] && its > own && other.has_head_dim(d) && !is_for_order(other);
        });
    };
    return !is_experiment(stage) && !is_for_order(stage) && stage.chunks == 0 &&
           std::any_of(stage.head_dims.begin(), stage.head_dims.end(), is_last_at);
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

const Stage& own_stage(const fs::path& path) {
    static std::deque<Stage> own;
    if (path.extension() == ".so") {
        if (!fs::exists(path)) throw BadUsage(fmt::format("there is no {}", path.string()));
        Stage& yours = own.emplace_back(load_library(fs::absolute(path)));
        yours.name = "yours";
        // A grader times it next to the stage that it is to be: bounds are that one's, not its own claim.
        if (const Stage* solution = find_stage(yours.number)) {
            yours.products = solution->products;
            yours.takes_e4m3 = solution->takes_e4m3;
            yours.rounds_large_scores = solution->rounds_large_scores;
            yours.batch_invariant &= solution->batch_invariant;
        }
        return yours;
    }
    const fs::path kernel = fs::is_directory(path) ? path / "kernel.cu" : path;
    if (!fs::is_regular_file(kernel)) throw BadUsage(fmt::format("there is no {}", kernel.string()));
    Stage stage = read_declaration(kernel);
    std::error_code none;
    for (const Stage& one : stages())
        if (fs::equivalent(one.source, kernel, none)) return one;
    const auto known =
        std::find_if(own.begin(), own.end(), [&](const Stage& s) { return s.source == stage.source; });
    if (known != own.end()) return *known;
    stage.name = fs::path(stage.source).parent_path().filename().string();
    return own.emplace_back(std::move(stage));
}

}  // namespace ladder
