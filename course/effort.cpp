#include "course/effort.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "harness/base/file.h"
#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// What the parts of the CUDA layer that every stage may include are called, in stages/.
constexpr const char* layer[]{"device.cuh", "hopper.cuh", "ring.h"};

/// The words of a source, but for those of comments.
std::set<std::string> names_in(const std::string& source) {
    std::set<std::string> names;
    std::istringstream lines(source);
    for (std::string line; std::getline(lines, line);) {
        line.erase(std::min(line.find("//"), line.size()));
        std::string name;
        for (const char c : line + " ") {
            if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
                name += c;
            } else {
                names.insert(std::exchange(name, ""));
            }
        }
    }
    return names;
}

/// The first sentence of a comment in Doxygen's form, in one line.
std::string first_sentence(std::string comment) {
    const std::size_t end = comment.find(". ");
    if (end != comment.npos) comment.erase(end);
    while (!comment.empty() && (comment.back() == '.' || comment.back() == ':' || comment.back() == ' '))
        comment.pop_back();
    return comment;
}

/// What a header of the layer declares, each name once: functions, types and aliases at the beginning of a
/// line, with the comment before them.
std::vector<NewFunction> declared_in(const std::string& header) {
    static const std::regex function(R"(^(?:__device__|__host__|inline)[^=;]*?\b([a-z_]\w*)\()");
    static const std::regex type(R"(^(?:struct|enum class|using) ([A-Za-z]\w*))");
    std::vector<NewFunction> found;
    std::istringstream lines(read_file(source_folder() / "stages" / header));
    std::string comment;
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (line.starts_with("/// ")) {
            comment += (comment.empty() ? "" : " ") + line.substr(4);
            continue;
        }
        if (line.starts_with("template") || line.starts_with("#")) continue;
        if (std::regex_search(line, match, function) || std::regex_search(line, match, type)) {
            const std::string name = match[1];
            const auto known = std::find_if(found.begin(), found.end(),
                                            [&](const NewFunction& other) { return other.name == name; });
            if (known == found.end())
                found.push_back({name, "stages/" + header, first_sentence(comment)});
            else if (known->meaning.empty())
                known->meaning = first_sentence(comment);
        }
        comment.clear();
    }
    return found;
}

/// What is declared in the layer and has one of these names.
std::vector<NewFunction> of_layer(const std::set<std::string>& names) {
    static const std::vector<NewFunction> declared = [] {
        std::vector<NewFunction> all;
        for (const char* header : layer)
            for (NewFunction& function : declared_in(header)) all.push_back(std::move(function));
        return all;
    }();
    std::vector<NewFunction> found;
    for (const NewFunction& function : declared) {
        // What notes work for the counters has no part in a kernel's own.
        if (names.contains(function.name) && !function.name.starts_with("note_")) found.push_back(function);
    }
    return found;
}

}  // namespace

std::string Effort::difficulty() const {
    if (lines > 80) return "project";
    if (lines > 40 || functions.size() > 4) return "hard";
    return lines > 20 || on_hopper || !functions.empty() ? "medium" : "easy";
}

Effort effort_of(const Exercise& e) {
    const Stage& parent = parent_of(e);
    Effort effort;
    effort.on_hopper = parent.compute_capability != 0;
    std::set<std::string> names;
    if (e.solved_here) {
        const Stage& stage = *find_stage(e.number);
        const std::string start = kernel_text(start_of(e)), end = kernel_text(stage);
        effort.lines = count_changed_lines(diff_texts(start, "", end, "", "-uw"));
        names = names_in(end);
        for (const std::string& name : names_in(start)) names.erase(name);
    } else {
        std::istringstream written(
            section(read_file(source_folder() / "stages" / e.folder() / "exercise.md"), "Effort"));
        written >> effort.lines;
        for (std::string name; written >> name;) names.insert(name);
    }
    effort.functions = of_layer(names);
    return effort;
}

std::string effort_section(const Effort& effort) {
    std::string text = fmt::format("\n## Effort\n\n{}\n", effort.lines);
    for (const NewFunction& function : effort.functions) text += function.name + "\n";
    return text;
}

}  // namespace ladder
