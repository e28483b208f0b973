#include "course/handout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "course/effort.h"
#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// The stages whose kernels hold the solution of one of these: they, and what was made from them. The
/// gradients' kernels, which have no parent among the algorithm's, are made of its tiles.
std::set<int> hidden_stages(const std::vector<Exercise>& exercises) {
    std::set<int> hidden;
    for (const Exercise& e : exercises) hidden.insert(e.number);
    const bool of_the_algorithm = std::any_of(exercises.begin(), exercises.end(),
                                              [](const Exercise& e) { return is_core(stage_of(e)); });
    for (const Stage& stage : stages()) {  // parents come before their children
        const bool made_of_them = stage.parent < 0 ? stage.pass == Pass::backward && of_the_algorithm
                                                   : hidden.contains(stage.parent);
        if (made_of_them) hidden.insert(stage.number);
    }
    return hidden;
}

/// Copies files, and says so if it cannot.
class Copier {
  public:
    Copier(fs::path from, fs::path to) : from_(std::move(from)), to_(std::move(to)) {}

    void file(const fs::path& name) {
        const fs::path source = from_ / name, target = to_ / name;
        std::error_code error;
        fs::create_directories(target.parent_path(), error);
        if (!error) fs::copy_file(source, target, error);
        if (error) throw BadUsage(fmt::format("cannot write {}: {}", target.string(), error.message()));
        files += 1;
    }
    void write(const fs::path& name, const std::string& content) {
        std::error_code error;
        fs::create_directories((to_ / name).parent_path(), error);
        OutputFile(to_ / name).write(content);
        files += 1;
    }
    /// All files of a folder, those that start with a dot and Python's leavings aside.
    void folder(const fs::path& name) {
        for (auto entry = fs::recursive_directory_iterator(from_ / name); entry != fs::end(entry); ++entry) {
            const std::string last = entry->path().filename().string();
            if (last.starts_with(".") || last == "__pycache__") {
                entry.disable_recursion_pending();
                continue;
            }
            if (entry->is_regular_file()) file(fs::relative(entry->path(), from_));
        }
    }

    int files = 0;

  private:
    fs::path from_, to_;
};

/// A page in `folder` whose links to files that are not there, or not below `top`, have become their words;
/// where these are a file's path, they say that only the whole ladder has it. What is code stays.
std::string without_dead_links(const std::string& page, const fs::path& folder, const fs::path& top) {
    static const std::regex code_or_link(R"(`[^`]*`|\[([^\]]*)\]\(([^)#\s]+)[^)]*\))");
    std::string result, prose;
    const auto end_of_prose = [&] {  // a link may go on in the next line
        auto rest = prose.cbegin();
        for (std::sregex_iterator found(rest, prose.cend(), code_or_link), end; found != end; ++found) {
            const std::smatch& match = *found;
            const std::string target = match[2];
            const bool is_here =
                fs::exists(folder / target) &&
                *(folder / target).lexically_relative(top).lexically_normal().begin() != "..";
            const bool leads = target.empty() || target.find(':') != target.npos || is_here;
            result.append(rest, match[0].first);
            const std::string words = match[1];
            const bool is_path = words.find('/') != words.npos && words.find(' ') == words.npos;
            result += leads ? match[0].str() : words + (is_path ? " of the whole ladder" : "");
            rest = match[0].second;
        }
        result.append(rest, prose.cend());
        prose.clear();
    };
    bool in_code = false;
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
        const bool is_fence = line.starts_with("```");
        if (is_fence) in_code = !in_code;
        if (!is_fence && !in_code && !line.starts_with("    ")) {
            prose += line + "\n";
        } else {
            end_of_prose();
            result += line + "\n";
        }
    }
    end_of_prose();
    return result;
}

/// A notebook whose Markdown has become that of such a page.
std::string notebook_without_dead_links(const std::string& notebook, const fs::path& folder,
                                        const fs::path& top) {
    auto json = nlohmann::ordered_json::parse(notebook);
    for (auto& cell : json.at("cells")) {
        if (cell.at("cell_type") != "markdown") continue;
        std::string page;
        for (const auto& line : cell.at("source")) page += line.get<std::string>();
        cell["source"] = without_dead_links(page, folder, top);
    }
    return json.dump(1) + "\n";
}

std::string readme(const std::vector<Exercise>& exercises) {
    std::string list, first = std::to_string(exercises.front().number);
    for (const Exercise& e : exercises)
        list += fmt::format("| {:02} | {} | {} |\n", e.number, parent_of(e).folder(), e.change);
    return fmt::format(fmt::runtime(read_file(source_folder() / "course" / "handout_readme.txt")), list,
                       first);
}

}  // namespace

Handout write_handout(const std::vector<Exercise>& exercises, const fs::path& folder) {
    const std::set<int> hidden = hidden_stages(exercises);
    for (const Exercise& e : exercises) {
        if (!e.solved_here)
            throw CannotRun(fmt::format("this is a hand-out itself: {} is not in it", e.folder()));
        if (e.parent < 0) throw BadUsage(fmt::format("{} has no parent to start from", e.folder()));
        if (hidden.contains(e.parent)) {
            throw BadUsage(
                fmt::format("{} starts from {}, which would be hidden: hand it out when that one is solved",
                            e.folder(), parent_of(e).folder()));
        }
    }
    require_new_folder(folder);

    Handout handout;
    Copier copy(source_folder(), folder);
    for (const char* file : {"lab",
                             "CMakeLists.txt",
                             "CMakePresets.json",
                             "LICENSE",
                             ".gitattributes",
                             ".gitignore",
                             "stages/device.cuh",
                             "stages/hopper.cuh",
                             "stages/stage.h",
                             "stages/errors.h",
                             "stages/launch.h",
                             "stages/ring.h",
                             "stages/README.md",
                             "docs/explorer.md",
                             "docs/glossary.md",
                             "docs/troubleshooting.md",
                             "docs/worked_example.md",
                             "docs/one_mma.md",
                             "docs/one_descriptor.md",
                             "docs/course/labs/README.md",
                             "notebooks/01_online_softmax.ipynb",
                             "notebooks/ladder.py"})
        copy.file(file);
    for (const char* name :
         {"harness", "course", "explorer", "simt", "reference", "docs/plots", ".devcontainer"})
        copy.folder(name);
    for (const Part& part : parts()) copy.file(fs::path("stages") / part.page);
    // The pictures of the lessons handed out: "04-split-q.svg" is of stage 04, "20s-..." of a part.
    const fs::path figures = fs::path("docs") / "figures";
    for (const auto& entry : fs::directory_iterator(source_folder() / figures)) {
        const std::string name = entry.path().filename().string();
        const int number = name.find('-') == 2 ? std::stoi(name) : -1;
        if (entry.path().extension() == ".svg" && !hidden.contains(number)) copy.file(figures / name);
    }
    for (const Stage& stage : stages()) {
        if (hidden.contains(stage.number)) {
            handout.hidden.push_back(stage.folder());
        } else {
            copy.folder(fs::path("stages") / stage.folder());
            handout.kept.push_back(stage.folder());
        }
    }
    for (const Exercise& e : exercises) {
        const fs::path place = fs::path("stages") / e.folder();
        // The complaint is the lesson's, and the lesson is not there.
        copy.write(place / "exercise.md", read_file(source_folder() / place / "exercise.md") +
                                              "\n## The complaint\n\n" + e.complaint + "\n" +
                                              effort_section(effort_of(e)));
        copy.write(place / "stage.json", stage_json(e));
        for (const char* file : {"claims.cpp", "claims.h"}) {  // what a check holds the student's kernel to
            if (fs::exists(source_folder() / place / file)) copy.file(place / file);
        }
        const fs::path sheet = fs::path("docs/course/labs") / (e.folder() + ".md");
        if (fs::exists(source_folder() / sheet)) copy.file(sheet);
        handout.exercises.push_back(e.folder());
    }
    // The guide's example is the smallest stage; here it is the first of these.
    std::string guide = read_file(source_folder() / "docs" / "course" / "students.md");
    const Exercise& first = exercises.front();
    for (const auto& [from, to] :
         {std::pair{std::string("lab start 2\n"), fmt::format("lab start {}\n", first.number)},
          {"lab count 1\n", fmt::format("lab count {}\n", first.parent)}}) {
        if (const std::size_t at = guide.find(from); at != guide.npos) guide.replace(at, from.size(), to);
    }
    copy.write("STUDENTS.md", guide);
    copy.write("README.md", readme(exercises));
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        const fs::path extension = entry.path().extension();
        if (extension != ".md" && extension != ".ipynb") continue;
        const auto without = extension == ".md" ? without_dead_links : notebook_without_dead_links;
        const std::string page = read_file(entry.path());
        OutputFile(entry.path()).write(without(page, entry.path().parent_path(), folder));
    }
    handout.files = copy.files;
    return handout;
}

}  // namespace ladder
