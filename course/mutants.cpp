#include "course/mutants.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "harness/base/file.h"
#include "harness/base/table.h"
#include "harness/cases/inputs.h"
#include "harness/count/claims.h"
#include "harness/count/counting.h"
#include "harness/features/features.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

std::string without_space(std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
    return text;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line + "\n");
    return lines;
}

Mutant parse_mutant(const std::string& text) {
    const std::vector<std::string> lines = lines_of(text);
    const auto is_empty = [](const std::string& line) { return without_space(line).empty(); };
    const auto body = std::find_if(lines.begin(), lines.end(), is_empty);
    std::map<std::string, std::string> head;
    std::vector<std::string> hints;
    std::for_each(lines.begin(), body, [&](const std::string& line) {
        const std::size_t colon = line.find(": ");
        const std::string name = line.substr(0, colon);
        if (colon != line.npos && name == "Hint")
            hints.push_back(line.substr(colon + 2, line.size() - colon - 3));
        else if (colon == line.npos || !head.emplace(name, line.substr(colon + 2)).second)
            throw BadUsage(fmt::format("not a line of the head: {}", line));
    });
    const auto take = [&](const char* name) {
        auto field = head.extract(name);
        if (field.empty()) throw BadUsage(fmt::format("the head has no line '{}: ...'", name));
        field.mapped().pop_back();
        return field.mapped();
    };
    Mutant mutant{take("Bug"), take("Symptom"), parse_case(take("Case")), take("Report"), {}, hints, {}};
    if (head.contains("Difficulty")) {
        mutant.difficulty = take("Difficulty");
        const auto& known = difficulties();
        if (std::find(known.begin(), known.end(), mutant.difficulty) == known.end())
            throw BadUsage(fmt::format("there is no Difficulty: {}", mutant.difficulty));
    }
    if (!head.empty())
        throw BadUsage(
            fmt::format("'{}' is none of Bug, Symptom, Difficulty, Hint, Case, Report", head.begin()->first));

    bool inside = false;  // a replacement
    std::for_each(body, lines.end(), [&](const std::string& line) {
        const bool was_inside = std::exchange(inside, !is_empty(line));
        if (!inside) return;
        if (!was_inside) mutant.replacements.emplace_back();
        Replacement& replacement = mutant.replacements.back();
        switch (line.front()) {
            case '-':
                replacement.from += line.substr(1);
                break;
            case '+':
                replacement.to += line.substr(1);
                break;
            case ' ':
                replacement.from += line.substr(1);
                replacement.to += line.substr(1);
                break;
            default:
                throw BadUsage(fmt::format("starts with none of '-', '+' and a space: {}", line));
        }
    });
    if (mutant.replacements.empty()) throw BadUsage("it replaces nothing");
    for (const Replacement& replacement : mutant.replacements) {
        if (is_empty(replacement.from))
            throw BadUsage(fmt::format("nothing says where this goes:\n{}", replacement.to));
    }
    return mutant;
}

/// Lines [first, end) of a kernel.
struct Place {
    std::size_t first, end;
};

/// Where a kernel has these lines, white space aside. `kernel`: its lines, without theirs.
std::vector<Place> places(const std::vector<std::string>& kernel, const std::string& lines) {
    const std::string wanted = without_space(lines);
    std::vector<Place> found;
    for (std::size_t first = 0; first < kernel.size(); ++first) {
        std::string text;
        std::size_t end = first;
        while (end < kernel.size() && text.size() < wanted.size()) text += kernel[end++];
        if (text == wanted && !kernel[first].empty()) found.push_back({first, end});
    }
    return found;
}

fs::path built(const fs::path& kernel, const fs::path& folder) {
    const Compilation c{kernel, name(Backend::checked), folder};
    if (const std::string errors = compile({c}, compiler_limits()).front(); !errors.empty())
        throw CheckFailed(errors);
    return c.library();
}

Limits run_limits() {
    Limits limits;
    limits.cpu_s = 3600;  // of all cases; what bounds one is the limit of a run
    return limits;
}

}  // namespace

const std::vector<std::string>& difficulties() {
    static const std::vector<std::string> names{"easy", "medium", "hard"};
    return names;
}

std::vector<fs::path> mutant_files(const fs::path& stage_folder) {
    std::vector<fs::path> files;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(stage_folder / "mutants", none)) {
        if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

Mutant read_mutant(const fs::path& file) {
    try {
        return parse_mutant(read_file(file));
    } catch (const BadUsage& error) {
        throw BadUsage(fmt::format("{}: {}", file.string(), error.what()));
    }
}

std::string wrong_kernel(const std::string& kernel, const Mutant& mutant) {
    std::vector<std::string> lines = lines_of(kernel), code;
    std::transform(lines.begin(), lines.end(), std::back_inserter(code), without_space);
    std::vector<bool> replaced(lines.size());
    for (const auto& [from, to] : mutant.replacements) {
        const std::vector<Place> found = places(code, from);
        if (found.size() != 1) {
            throw CheckFailed(
                fmt::format("kernel.cu has these lines {} times, not once:\n{}", found.size(), from));
        }
        for (std::size_t i = found.front().first; i < found.front().end; ++i) {
            if (replaced[i]) throw CheckFailed(fmt::format("another replacement has some of\n{}", from));
            replaced[i] = true;
            lines[i] = i == found.front().first ? to : "";
        }
    }
    std::string wrong;
    for (const std::string& line : lines) wrong += line;
    return wrong;
}

bool says(const std::string& report, const std::string& expected) {
    static const std::string either = " | ", between = " ... ";
    const std::size_t other = expected.find(either);
    if (other != expected.npos) {
        return says(report, expected.substr(0, other)) || says(report, expected.substr(other + either.size()));
    }
    std::size_t at = 0;
    for (std::size_t part = 0; part < expected.size();) {
        const std::size_t end = std::min(expected.find(between, part), expected.size());
        const std::size_t found = report.find(expected.substr(part, end - part), at);
        if (found == report.npos) return false;
        at = found + end - part;
        part = end + between.size();
    }
    return true;
}

Verdict verify(Device& device, const Stage& stage, const Mutant& mutant) {
    Case c = mutant.problem;
    c.pass = stage.pass;
    Verdict verdict = verify(device, stage, c);
    if (!verdict.passed || !mutant.report.starts_with("counted")) return verdict;
    const Work work = count_work(device, stage, c, make_inputs(c));
    if (!work.why_not.empty()) throw CannotRun(work.why_not);
    for (const Claim& claim : claims(stage.folder(), c, device.sm_count(), {}, work)) {
        if (claim.of_parent || claim.stays || claim.holds()) continue;
        verdict.report += fmt::format("counted {} {}, not {}\n", with_separators(claim.got),
                                      in_words(claim.counter), with_separators(claim.expected));
    }
    verdict.passed = verdict.report.empty();
    return verdict;
}

bool are_in_order(const std::vector<std::uint64_t>& tiles, const std::vector<std::uint64_t>& copies) {
    if (tiles.size() != copies.size()) return false;
    std::map<std::uint64_t, std::set<std::uint64_t>> copies_of;
    for (std::size_t block = 0; block < tiles.size(); ++block) copies_of[tiles[block]].insert(copies[block]);
    const std::set<std::uint64_t>* fewer = nullptr;
    for (const auto& [visited, counts] : copies_of) {
        if (visited > 0 && counts.size() > 1) return false;
        if (fewer != nullptr && *fewer->rbegin() >= *counts.begin()) return false;
        fewer = &counts;
    }
    return true;
}

CheckedKernel::CheckedKernel(const fs::path& kernel, const fs::path& folder, double run_limit_s)
    : device_(built(kernel, folder), Backend::checked, run_limits(), run_limit_s), stage_(device_.stage()) {
    stage_.source = kernel.string();
}

Verdict CheckedKernel::verify(const Mutant& mutant) {
    Verdict verdict = ladder::verify(device_, stage_, mutant);
    if (!verdict.passed || !mutant.report.starts_with("counted")) return verdict;
    Case c = mutant.problem;
    c.pass = stage_.pass;
    const auto order = claimed_tiles_of_blocks(stage_.folder(), c, device_.sm_count());
    if (order.empty() || are_in_order(order, device_.copies_of_blocks())) return verdict;
    verdict.report = "counted the copies of each block, which are not in the order of the claims\n";
    verdict.passed = false;
    return verdict;
}

}  // namespace ladder
