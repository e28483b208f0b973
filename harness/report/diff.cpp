#include "harness/report/diff.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/ladder/declaration.h"
#include "stages/errors.h"

namespace ladder {
namespace {

enum class Line { header, position, added, removed, context };

// What each line of a unified diff is. The two header lines are told apart by their place, since an added
// line may itself start with "++".
Line classify(const std::string& line, int index) {
    if (index < 2) return Line::header;
    switch (line.empty() ? ' ' : line.front()) {
        case '@':
            return Line::position;
        case '+':
            return Line::added;
        case '-':
            return Line::removed;
        default:
            return Line::context;
    }
}

/// Without what recordings call it, which is no change to the parent.
std::string compared_text(const Stage& stage) {
    std::string text = kernel_text(stage);
    const std::string says = ".formerly = \"" + stage.formerly + "\"";
    if (const auto at = text.rfind(says); !stage.formerly.empty() && at != text.npos) {
        const auto comma = text.rfind(',', at);
        text.erase(comma, at + says.size() - comma);
    }
    return text;
}

}  // namespace

std::string kernel_text(const Stage& stage) {
    if (!std::filesystem::exists(stage.source))
        throw CannotRun(fmt::format("{} is gone: a moment ago it existed", stage.source));
    return kernel_text(std::filesystem::path(stage.source));
}

std::string diff_texts(const std::string& from, const std::string& from_name, const std::string& to,
                       const std::string& to_name, const char* options) {
    const TemporaryFolder folder("ladder-");
    const std::string before = folder.path() / "from", after = folder.path() / "to";
    OutputFile(before).write(from);
    OutputFile(after).write(to);
    const auto result =
        run_process({"diff", options, "--label", from_name, "--label", to_name, before, after});
    if (result.status == 127) throw CannotRun("there is no diff command: install diffutils");
    if (result.status > 1) throw CannotRun(fmt::format("diff failed: {}", result.err));
    return result.out;
}

std::string diff_kernels(const Stage& from, const Stage& to) {
    return diff_texts(kernel_text(from), from.folder() + "/kernel.cu", kernel_text(to),
                      to.folder() + "/kernel.cu");
}

int count_changed_lines(const std::string& unified_diff) {
    std::istringstream lines(unified_diff);
    int count = 0, index = 0;
    for (std::string line; std::getline(lines, line); ++index) count += classify(line, index) == Line::added;
    return count;
}

int count_changed_lines(const Stage& parent, const Stage& stage) {
    return count_changed_lines(diff_texts(compared_text(parent), "", compared_text(stage), "", "-uw"));
}

std::string colour_diff(const std::string& unified_diff) {
    std::istringstream lines(unified_diff);
    std::string coloured;
    int index = 0;
    for (std::string line; std::getline(lines, line); ++index) {
        const char* colour = "";
        switch (classify(line, index)) {
            case Line::header:
                colour = "\x1b[1m";
                break;
            case Line::position:
                colour = "\x1b[36m";
                break;
            case Line::added:
                colour = "\x1b[32m";
                break;
            case Line::removed:
                colour = "\x1b[31m";
                break;
            case Line::context:
                break;
        }
        coloured += *colour == '\0' ? line + "\n" : colour + line + "\x1b[0m\n";
    }
    return coloured;
}

}  // namespace ladder
