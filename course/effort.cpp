#include "course/effort.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
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

/// The words of a source, but for those of comments and strings.
std::set<std::string> names_in(const std::string& source) {
    static const std::regex string(R"("(?:[^"\\]|\\.)*")");
    std::set<std::string> names;
    std::istringstream lines(source);
    for (std::string line; std::getline(lines, line);) {
        line = std::regex_replace(line, string, "");
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
/// line, and what a rank may ask of its ring, with the comment before them.
std::vector<NewFunction> declared_in(const std::string& header) {
    static const std::regex function(R"(^(?:    virtual )?[A-Za-z_][^=;()]*[ &]([a-z_]\w*)\()");
    static const std::regex type(R"(^(?:struct|class|enum class|using) ([A-Za-z]\w*))");
    std::vector<NewFunction> found;
    std::istringstream lines(read_file(source_folder() / "stages" / header));
    std::string comment, of_group;  // one comment is for all declarations up to the next empty line
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        const std::size_t text = line.find_first_not_of(' ');
        if (text == line.npos) of_group.clear();
        if (text != line.npos && line.compare(text, 4, "/// ") == 0) {
            comment += (comment.empty() ? "" : " ") + line.substr(text + 4);
            continue;
        }
        if (line.starts_with("template") || line.starts_with("#")) continue;
        if (std::regex_search(line, match, function) || std::regex_search(line, match, type)) {
            const std::string name = match[1];
            if (!comment.empty()) of_group = first_sentence(comment);
            const bool known =
                std::ranges::any_of(found, [&](const NewFunction& other) { return other.name == name; });
            if (!known) found.push_back({name, "stages/" + header, of_group});
        }
        comment.clear();
    }
    return found;
}

/// What is declared in the layer, but for what notes work for the counters: it has no part in a kernel's own.
const std::vector<NewFunction>& declared_in_layer() {
    static const std::vector<NewFunction> declared = [] {
        std::vector<NewFunction> all;
        for (const char* header : layer)
            for (NewFunction& function : declared_in(header))
                if (!function.name.starts_with("note_")) all.push_back(std::move(function));
        return all;
    }();
    return declared;
}

/// What the kernel `end` calls of the layer and `start` does not. All is new of a header that `start` does
/// not include: a variable of its own may have the name.
std::vector<NewFunction> new_functions(const std::string& start, const std::string& end) {
    const std::set<std::string> before = names_in(start), after = names_in(end);
    std::vector<NewFunction> found;
    for (const NewFunction& function : declared_in_layer()) {
        const auto includes = [&](const std::string& kernel) {
            return function.header == "stages/device.cuh" || kernel.find(function.header) != kernel.npos;
        };
        if (after.contains(function.name) && includes(end) &&
            !(before.contains(function.name) && includes(start)))
            found.push_back(function);
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
    if (e.solved_here) {
        const Stage& stage = *find_stage(e.number);
        const std::string start = kernel_text(start_of(e)), end = kernel_text(stage);
        effort.lines = count_changed_lines(diff_texts(start, "", end, "", "-uw"));
        effort.functions = new_functions(start, end);
    } else {
        std::istringstream written(
            section(read_file(source_folder() / "stages" / e.folder() / "exercise.md"), "Effort"));
        written >> effort.lines;
        const std::set<std::string> names{std::istream_iterator<std::string>(written), {}};
        std::ranges::copy_if(declared_in_layer(), std::back_inserter(effort.functions),
                             [&](const NewFunction& function) { return names.contains(function.name); });
    }
    return effort;
}

std::string effort_section(const Effort& effort) {
    std::string text = fmt::format("\n## Effort\n\n{}\n", effort.lines);
    for (const NewFunction& function : effort.functions) text += function.name + "\n";
    return text;
}

}  // namespace ladder
