#include "course/exercise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "course/effort.h"
#include "course/mutants.h"
#include "course/problems.h"
#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/table.h"
#include "harness/base/terminal.h"
#include "harness/count/counting.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// Each once, at head dimensions that the exercise has.
void add_problem(Exercise& e, Case c) {
    c.pass = e.pass;
    const bool known = std::find(e.problems.begin(), e.problems.end(), c) != e.problems.end();
    const bool has_dim = std::find(e.head_dims.begin(), e.head_dims.end(), c.shape.d) != e.head_dims.end();
    if (!known && has_dim) e.problems.push_back(std::move(c));
}

/// The declaration in a hand-out's stage.json.
Stage declaration_in(const nlohmann::json& json) {
    Stage stage;
    json.at("number").get_to(stage.number);
    json.at("name").get_to(stage.name);
    json.at("parent").get_to(stage.parent);
    json.at("change").get_to(stage.change);
    json.at("shows_in").get_to(stage.shows_in);
    json.at("diff_budget").get_to(stage.diff_budget);
    stage.pass = json.at("pass") == name(Pass::backward) ? Pass::backward : Pass::forward;
    json.at("repeats_exactly").get_to(stage.repeats_exactly);
    json.at("batch_invariant").get_to(stage.batch_invariant);
    json.at("head_dims").get_to(stage.head_dims);
    for (const auto& tiling : json.at("tilings"))
        stage.tilings.push_back({tiling.at(0), tiling.at(1), tiling.at(2)});
    json.at("rounds_large_scores").get_to(stage.rounds_large_scores);
    stage.products = static_cast<Products>(json.at("products"));
    json.at("takes_e4m3").get_to(stage.takes_e4m3);
    for (const FeatureInfo& info : all_features()) {
        for (const auto& word : json.at("takes"))
            if (word == info.word()) stage.takes.push_back(info.feature);
    }
    json.at("chunks").get_to(stage.chunks);
    json.at("divides_rows").get_to(stage.divides_rows);
    return stage;
}

/// What a stage that is in this build says of itself, or else what the hand-out's stage.json says.
Exercise describe(const fs::path& folder) {
    Exercise e;
    e.solved_here = fs::exists(folder / "README.md");
    // In a hand-out a student may have put a kernel of their own here: what it says of itself is not the
    // exercise.
    const Stage* stage = find_stage(std::stoi(folder.filename().string()));
    if (stage != nullptr && e.solved_here) {
        static_cast<Stage&>(e) = *stage;
        for (const fs::path& file : mutant_files(folder)) add_problem(e, read_mutant(file).problem);
        return e;
    }
    return exercise_in(read_file(folder / "stage.json"));
}

/// The folders of stages that have an exercise, in order.
std::vector<fs::path> exercise_folders() {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(source_folder() / "stages")) {
        if (fs::exists(entry.path() / "exercise.md")) folders.push_back(entry.path());
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

Exercise read_exercise(const fs::path& folder) {
    Exercise e = describe(folder);
    const std::string text = read_file(folder / "exercise.md");
    e.task = section(text, "The task");
    e.complaint = section(text, "The complaint");
    if (e.complaint.empty()) {
        const std::string lesson = section(read_file(folder / "README.md"), "The complaint");
        e.complaint = lesson.substr(0, lesson.find("\n\nTry it first: "));  // its reader does
        // A measured number is in an element that says where it is from.
        e.complaint = std::regex_replace(e.complaint, std::regex("</?data[^>]*>"), "");
    }
    for (int n = 1; !section(text, fmt::format("Hint {}", n)).empty(); ++n)
        e.hints.push_back(section(text, fmt::format("Hint {}", n)));
    return e;
}

/// The counters that change with what the parent has, a table for each problem; `more` columns stay empty.
std::string tables_of(const std::vector<MustMove>& moves, const Stage& parent,
                      const std::vector<std::string>& more) {
    std::string text, problem;
    for (const MustMove& move : moves) {
        const std::string described = description_of(move.problem);
        if (described != problem) {
            text += fmt::format("{}On {}:\n\n| counter | {} |", problem.empty() ? "" : "\n", described,
                                parent.folder());
            for (const std::string& column : more) text += fmt::format(" {} |", column);
            text += "\n|---|---:|";
            for (std::size_t k = 0; k < more.size(); ++k) text += "---|";
            text += "\n";
        }
        problem = described;
        text += fmt::format("| {} | {} |", in_words(move.claim.counter),
                            move.parent_refuses ? "refused" : with_separators(move.claim.got));
        for (std::size_t k = 0; k < more.size(); ++k) text += " |";
        text += "\n";
    }
    return text;
}

std::string task_text(const Exercise& e, const std::vector<MustMove>& moves, const fs::path& path) {
    const Stage& parent = parent_of(e);
    const std::string check = lab_command({"check", path.string()});
    const Effort effort = effort_of(e);
    std::string text = fmt::format(
        "# Stage {:02}: {}\n\nYou have {} in kernel.cu, as it is. Make one change to it.\n\n"
        "**The change:** {}.\n\n"
        "**Effort:** {}, about {}; the ladder's own solution adds or changes {}.\n\n"
        "## The complaint\n\n{}\n\n## The task\n\n{}\n\n## What moves\n\n",
        e.number, in_words(e.name),
        start_of(e) == parent.source ? "the kernel of " + parent.folder() : "a kernel to complete", e.change,
        effort.difficulty(), counted(static_cast<unsigned>(effort.hours()), "hour"),
        counted(static_cast<unsigned>(effort.lines), "line"), e.complaint,
        e.task +
            (e.task.find("LADDER_STAGE") == e.task.npos
                 ? ""
                 : "\n\nLADDER_STAGE is at the end of kernel.cu. Its fields stand in the order of `Stage` in "
                   "stages/stage.h."));
    if (!moves.empty())
        text += fmt::format(
            "These counters take another value{}. Predict each before you change anything:\n`{}` shows your "
            "numbers next to what it counts, and tells no value that\nyou have not predicted.\n\n{}",
            moves.back().parent_refuses ? ", or are of a problem that the parent refuses" : "", check,
            tables_of(moves, parent, {}));
    const int sm_count = open_device(Backend::cpu)->sm_count();
    for (const Case& c : counted_problems(e)) {
        const auto order = claimed_tiles_of_blocks(e.folder(), c, sm_count);
        if (order.empty()) continue;
        text += fmt::format("{}The order of the blocks: on {} their key tiles must be {}.\n",
                            moves.empty() ? "" : "\n", description_of(c), fmt::join(order, ", "));
        break;
    }
    std::vector<int> new_dims = e.head_dims;
    std::erase_if(new_dims, [&](int d) { return parent.has_head_dim(d); });
    if (!new_dims.empty())
        text += fmt::format(
            "\nHead dimension {} is new: it joins `Dims` at the end of kernel.cu, and its tile `.tilings`.\n",
            fmt::join(new_dims, " and "));
    text += "\nOther problems follow the same rule, and what the change does not name stays as it is.\n";
    if (!effort.functions.empty()) {
        text +=
            "\n## Functions that you will need\n\nThe CUDA layer has them, and the parent does not call "
            "them.\n\n"
            "| name | in | what it does |\n|---|---|---|\n";
        for (const NewFunction& function : effort.functions)
            text += fmt::format("| `{}` | {} | {} |\n", function.name, function.header, function.meaning);
    }
    text += fmt::format(
        "\n## How to work\n\n"
        "1. Write your prediction into prediction.md, as numbers, before you change anything.\n"
        "2. Edit kernel.cu. `{0}` says what is wrong; with `--watch` it says so whenever you save.\n"
        "3. `{1}` gives the next of three hints. `{2}` starts over and keeps what you had.\n\n"
        "These commands are for the folder in which you typed `{3}`.\n",
        check, lab_command({"hint", path.string()}), lab_command({"reset", path.string()}),
        lab_command({"start", std::to_string(e.number)}));
    return text;
}

std::string prediction_text(const Exercise& e, const std::vector<MustMove>& moves, const fs::path& path) {
    const std::string tables = tables_of(moves, parent_of(e), {"my prediction", "because"});
    return fmt::format(
        "# Prediction for stage {:02}: {}\n\nWritten before the first change. A wrong one is worth as much "
        "as a right one,\nif it says why. `{}` reads the numbers of these tables.\n\n{}{}"
        "| beyond these | the parent's | my prediction | because |\n|---|---|---|---|\n"
        "| a counter that stays | | | |\n| time on a GPU, in the regime {} | 1x | | |\n\n"
        "Afterwards: where was it wrong, and why?\n",
        e.number, in_words(e.name), lab_command({"check", path.string()}), tables, tables.empty() ? "" : "\n",
        e.shows_in);
}

}  // namespace

std::string stage_json(const Exercise& e) {
    auto tilings = nlohmann::json::array();
    for (const Tiling& t : e.tilings) tilings.push_back({t.Br, t.Bc, t.depth});
    std::vector<std::string> features, problems;
    for (const FeatureInfo& info : all_features())
        if (takes(e, info.feature)) features.emplace_back(info.word());
    for (const Case& c : e.problems) problems.push_back(options_of(c));
    const nlohmann::ordered_json json{{"number", e.number},
                                      {"name", e.name},
                                      {"parent", e.parent},
                                      {"change", e.change},
                                      {"shows_in", e.shows_in},
                                      {"diff_budget", e.diff_budget},
                                      {"pass", name(e.pass)},
                                      {"repeats_exactly", e.repeats_exactly},
                                      {"batch_invariant", e.batch_invariant},
                                      {"head_dims", e.head_dims},
                                      {"tilings", tilings},
                                      {"rounds_large_scores", e.rounds_large_scores},
                                      {"products", static_cast<int>(e.products)},
                                      {"takes_e4m3", e.takes_e4m3},
                                      {"takes", features},
                                      {"chunks", e.chunks},
                                      {"divides_rows", e.divides_rows},
                                      {"problems", problems}};
    return json.dump(2) + "\n";
}

Exercise exercise_in(const std::string& stage_json) {
    const auto json = nlohmann::json::parse(stage_json);
    Exercise e;
    static_cast<Stage&>(e) = declaration_in(json);
    for (const auto& problem : json.at("problems")) add_problem(e, parse_case(problem));
    return e;
}

std::string section(const std::string& markdown, const std::string& heading) {
    const std::string title = "## " + heading + "\n", text = "\n" + markdown;
    const std::size_t at = text.find("\n" + title);
    if (at == text.npos) return "";
    const std::size_t begin = text.find_first_not_of('\n', at + 1 + title.size());
    if (begin == text.npos) return "";
    std::size_t end = text.find("\n## ", begin - 1);
    end = end == text.npos ? text.size() : end;
    const std::size_t last = text.find_last_not_of('\n', end - 1);
    return begin > last ? "" : text.substr(begin, last + 1 - begin);
}

std::vector<Exercise> all_exercises() {
    std::vector<Exercise> all;
    for (const fs::path& folder : exercise_folders()) all.push_back(read_exercise(folder));
    std::ranges::stable_sort(all, {}, [](const Exercise& e) { return reading_order(stage_of(e)); });
    return all;
}

Stage stage_of(const Exercise& exercise) {
    const Stage* known = find_stage(exercise.number);
    return known != nullptr ? *known : Stage{.number = exercise.number};
}

Exercise load_exercise(const std::string& word) {
    const bool is_number = !word.empty() && word.size() <= 3 &&
                           std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
    const auto means = [&](const std::string& folder) {  // "04_split_q", "split_q" or a number
        return (is_number && std::stoi(word) == std::stoi(folder)) || word == folder ||
               word == folder.substr(3);
    };
    std::vector<std::string> known;
    for (const fs::path& folder : exercise_folders()) {
        const std::string name = folder.filename().string();
        known.push_back(name.substr(3));
        if (means(name)) return read_exercise(folder);
    }
    for (const Stage& stage : stages()) {
        if (stage.parent < 0 && means(stage.folder()))
            throw BadUsage(
                fmt::format("{} has no parent to start from, so it is not an exercise", stage.folder()));
    }
    throw BadUsage(fmt::format("there is no exercise '{}'{}; {} lists them", word, did_you_mean(word, known),
                               lab_command({"start"})));
}

const Stage& parent_of(const Exercise& e) {
    const Stage* parent = find_stage(e.parent);
    if (parent == nullptr) throw CannotRun(fmt::format("the parent of {} is not here", e.folder()));
    return *parent;
}

fs::path start_of(const Exercise& e) {
    const fs::path own = source_folder() / "stages" / e.folder() / "start.cu";
    return fs::exists(own) ? own : fs::path(parent_of(e).source);
}

std::string starting_kernel(const Exercise& e) {
    const fs::path start = start_of(e);
    std::string kernel = kernel_text(start);
    // The first comment is of the kernel that it starts from.
    const std::size_t code = kernel.find("\n\n");
    kernel.replace(
        0, code,
        fmt::format("// Stage {:02}: {}. To be {}; see TASK.md.", e.number, e.name,
                    start.filename() == "start.cu" ? "completed" : "made of " + parent_of(e).folder()));
    // So is the declaration at the end. Its text may have a ");" of its own, but not at the end of a line.
    const std::size_t begin = kernel.rfind("LADDER_STAGE("), end = kernel.find(");\n", begin);
    if (begin == kernel.npos || end == kernel.npos)
        throw CannotRun(fmt::format("{} declares no stage", start.string()));
    const std::string declaration = kernel.substr(begin, end - begin);
    const std::size_t open = declaration.find('(') + 1;
    const std::string host_side = declaration.substr(open, declaration.find(',') - open);
    // The tiles are those of the code that stays.
    const std::size_t tiles = declaration.find(".tilings"), end_of_tiles = declaration.find("})", tiles) + 2;
    std::string more;
    if (e.pass == Pass::backward) more += ", .pass = Pass::backward";
    if (e.diff_budget != 80) more += fmt::format(", .diff_budget = {}", e.diff_budget);
    if (!e.repeats_exactly) more += ", .repeats_exactly = false";
    if (!e.batch_invariant) more += ", .batch_invariant = false";
    if (e.rounds_large_scores) more += ", .rounds_large_scores = true";
    for (const std::string function : {"workspace_bytes", "counter_bytes"}) {
        const std::size_t at = declaration.find("." + function + " = ");
        if (at != declaration.npos)
            more += ", " + declaration.substr(at, declaration.find_first_of(",)", at) - at);
    }
    kernel.replace(
        begin, end + 2 - begin,
        fmt::format("LADDER_STAGE({}, Dims, .number = {}, .name = \"{}\", .parent = {},\n"
                    "             {},\n             .change = \"{}\",\n             .shows_in = \"{}\"{});",
                    host_side, e.number, e.name, e.parent, declaration.substr(tiles, end_of_tiles - tiles),
                    e.change, e.shows_in, more));
    return kernel;
}

std::vector<MustMove> what_must_move(const Exercise& e) {
    const auto device = open_device(Backend::cpu);
    const Stage& parent = parent_of(e);
    std::vector<MustMove> moves, of_refused;
    std::set<std::string> seen;
    for (const Case& c : counted_problems(e)) {
        if (!parent.has_head_dim(c.shape.d)) continue;
        const Work work = count_work(*device, parent, c, make_inputs(c));
        const bool refused = !work.why_not.empty();
        for (const Claim& claim : claims(e.folder(), c, device->sm_count(), work, work)) {
            if (claim.of_parent || claim.holds()) continue;  // a refused problem counts as no work
            if (refused)
                of_refused.push_back({c, claim, true});
            else if (seen.insert(claim.counter).second)
                moves.push_back({c, claim});
        }
    }
    for (MustMove& move : of_refused)
        if (seen.insert(move.claim.counter).second) moves.push_back(std::move(move));
    return moves;
}

StudentFolder start_exercise(const Exercise& e, const fs::path& path) {
    std::string advice = "; name another folder with --dir";
    if (const fs::path state = path / ".lab" / "exercise.json"; fs::exists(state)) {
        const std::string there = path.string();
        advice = fmt::format(" and holds an exercise: go on with {}, or start it over with {}{}",
                             lab_command({"check", there}), lab_command({"reset", there}), advice);
    }
    require_new_folder(path, advice);
    const std::vector<MustMove> moves = what_must_move(e);
    const std::string kernel = starting_kernel(e), task = task_text(e, moves, path);
    StudentFolder folder{fs::absolute(path).lexically_normal(), e.number, 0};
    std::error_code error;
    fs::create_directories(folder.products(), error);
    if (error) throw BadUsage(fmt::format("cannot make {}: {}", path.string(), error.message()));
    OutputFile(folder.kernel()).write(kernel);
    OutputFile(folder.path / "TASK.md").write(task);
    OutputFile(folder.path / "prediction.md").write(prediction_text(e, moves, path));
    save(folder);
    return folder;
}

StudentFolder open_student_folder(const fs::path& path) {
    StudentFolder folder{fs::absolute(path).lexically_normal()};
    const fs::path state = folder.products() / "exercise.json";
    if (!fs::exists(state))
        throw BadUsage(fmt::format("{} is not an exercise: make one with {}", path.string(),
                                   lab_command({"start", "N", "--dir", path.string()})));
    try {
        const auto json = read_json(state);
        json.at("stage").get_to(folder.stage);
        json.at("hints").get_to(folder.hints);
        folder.solved = json.value("solved", false);
    } catch (const nlohmann::json::exception&) {
        throw BadUsage(fmt::format("cannot read {}", state.string()));
    }
    return folder;
}

std::vector<StudentFolder> student_folders(const fs::path& parent) {
    std::vector<std::pair<fs::file_time_type, StudentFolder>> found;
    std::error_code none;
    const auto add = [&](const fs::path& path) {
        const fs::path state = path / ".lab" / "exercise.json";
        if (!fs::exists(state, none)) return;
        try {
            found.emplace_back(fs::last_write_time(state, none), open_student_folder(path));
        } catch (const BadUsage&) {  // damaged: it says so where it is named
        }
    };
    add(parent);
    for (const auto& entry : fs::directory_iterator(parent, none)) add(entry.path());
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<StudentFolder> folders;
    for (auto& [time, folder] : found) folders.push_back(std::move(folder));
    return folders;
}

std::map<std::string, std::string> predictions(const StudentFolder& folder) {
    std::map<std::string, std::string> predicted;
    const fs::path file = folder.path / "prediction.md";
    if (!fs::exists(file)) return predicted;
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
        std::vector<std::string> cells;
        std::istringstream row(line);
        for (std::string cell; std::getline(row, cell, '|');) {
            const std::size_t begin = cell.find_first_not_of(" \t\r"), end = cell.find_last_not_of(" \t\r");
            cells.push_back(begin == cell.npos ? "" : cell.substr(begin, end - begin + 1));
        }
        const bool is_row = cells.size() > 3 && cells[0].empty() && cells[3] != "my prediction" &&
                            cells[3].find_first_not_of(":-") != cells[3].npos;
        if (is_row) predicted[cells[1]] = cells[3];
    }
    return predicted;
}

void save(const StudentFolder& folder) {
    const nlohmann::ordered_json json{
        {"stage", folder.stage}, {"hints", folder.hints}, {"solved", folder.solved}};
    OutputFile(folder.products() / "exercise.json").write(json.dump(2) + "\n");
    ignore_in_git(folder.path);
}

}  // namespace ladder
