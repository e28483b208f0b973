#include "course/grade.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "course/fence/sandbox.h"
#include "course/speed.h"
#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/table.h"
#include "harness/time/results.h"
#include "simt/simt.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

constexpr std::size_t most_source = 1 << 20;

/// Of all points, what a right kernel can have whose work has not moved as claimed.
constexpr double part_until_exact = 0.2;

/// A file or folder of the system's, closed with its owner.
struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) close(number);
    }
};

std::string rubric_text(const Rubric& rubric) {
    std::string text = fmt::format("{} {} {}", rubric.seed, rubric.run_limit_s, rubric.limit_s);
    for (const auto& [key, points] : rubric.points) text += fmt::format(" {} {}", key, points);
    return text;
}

double rounded(double score) {
    return std::round(score * 100) / 100;
}

std::string output_of(const Criterion& c) {
    if (!c.why_not.empty()) return "not examined: " + c.why_not;
    std::string text =
        c.total == 1 ? (c.all() ? "yes\n" : "no\n") : fmt::format("{} of {}\n", c.passed, c.total);
    constexpr std::size_t shown = 3, longest = 4000;
    for (std::size_t k = 0; k < std::min(shown, c.reports.size()); ++k) text += "\n" + c.reports[k];
    if (c.reports.size() > shown)
        text += fmt::format("\n... and {} more like these\n", c.reports.size() - shown);
    if (text.size() > longest) text = text.substr(0, longest) + "\n...";
    // What a compiler quotes may be any bytes; JSON takes text.
    for (char& character : text) {
        const auto byte = static_cast<unsigned char>(character);
        if ((byte < 32 && byte != '\n' && byte != '\t') || byte > 126) character = '?';
    }
    return text;
}

}  // namespace

std::string kernel_of(const fs::path& folder, std::string& why_not) {
    struct stat info {};
    if (lstat(folder.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
        why_not = "it is a link to a folder, not a folder: the files in it may be another student's";
        return "";
    }
    const Descriptor in{open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (fstatat(in.number, "kernel.cu", &info, AT_SYMLINK_NOFOLLOW) != 0) {
        why_not = errno == ENOENT ? "there is no kernel.cu"
                                  : fmt::format("kernel.cu cannot be read: {}", std::strerror(errno));
        return "";
    }
    // What is no ordinary file is not opened: a device or a pipe may do something then.
    const Descriptor file{S_ISREG(info.st_mode)
                              ? openat(in.number, "kernel.cu", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                              : -1};
    if (!S_ISREG(info.st_mode) ||
        (file.number >= 0 && (fstat(file.number, &info) != 0 || !S_ISREG(info.st_mode)))) {
        why_not = "kernel.cu is no ordinary file";
        return "";
    }
    if (file.number < 0) {
        why_not = "kernel.cu cannot be read: no permission?";
        return "";
    }
    std::string text(most_source + 1, '\0');
    std::size_t bytes = 0;
    for (ssize_t n = 1; n > 0 && bytes < text.size();
         bytes += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
        n = read(file.number, text.data() + bytes, text.size() - bytes);
    text.resize(bytes);
    if (bytes <= most_source) return text;
    why_not = "kernel.cu is larger than 1 MiB";
    return "";
}

double Grade::total() const {
    double sum = 0;
    for (const Score& s : scores) sum += s.score;
    return rounded(sum);
}

double Grade::most() const {
    double sum = 0;
    for (const Score& s : scores) sum += s.most;
    return rounded(sum);
}

Rubric load_rubric(const fs::path& path) {
    const auto json = read_json(path);
    Rubric rubric;
    const auto bad = [&](const std::string& why) {
        throw BadUsage(fmt::format("cannot use {}: {}", path.string(), why));
    };
    try {
        for (const auto& [key, value] : json.items()) {
            if (key == "stage") {
                rubric.stage = value.get<int>();
            } else if (key == "seed") {
                rubric.seed = value.get<std::uint64_t>();
            } else if (key == "run_limit_s") {
                rubric.run_limit_s = value.get<double>();
            } else if (key == "limit_s") {
                rubric.limit_s = value.get<double>();
            } else if (key == "points") {
                for (const auto& [criterion, points] : value.items()) {
                    if (!rubric.points.contains(criterion))
                        bad(fmt::format("there is no criterion '{}'", criterion));
                    rubric.points[criterion] = points.get<double>();
                    if (!(rubric.points[criterion] >= 0))
                        bad(fmt::format("'{}' has less than 0 points", criterion));
                }
            } else {
                bad(fmt::format("there is no '{}'", key));
            }
        }
    } catch (const nlohmann::json::exception& error) {
        bad(error.what());
    }
    if (!(rubric.run_limit_s > 0)) bad("run_limit_s must be above 0");
    if (!(rubric.limit_s > 0)) bad("limit_s must be above 0");
    return rubric;
}

std::vector<Score> scores(const CheckResult& result, const Rubric& rubric) {
    double all = 0;
    for (const auto& [key, points] : rubric.points) all += points;
    const std::string moved_words = "each counter that the change moves is exact on every problem";
    const bool looked_at = result["moved"].why_not.empty();
    std::vector<Score> list;
    for (const Criterion& c : result.criteria) {
        Score score{c.key, c.title, 0, rubric.points.at(c.key), output_of(c)};
        const double part = c.total > 0 ? double(c.passed) / c.total : 0;
        const auto counts_once = [&](const std::string& what) {
            if (looked_at) score.output += "\nCounts once " + what + ".\n";
        };
        if (c.key == "builds") {
            score.score = score.most * part;
        } else if (!result.right()) {
            counts_once("the results are right: all of correct, edges and races");
        } else if (result.exact) {
            score.score = score.most * part;
        } else if (c.key == "moved") {
            const double most = std::max(0.0, part_until_exact * all - list.front().score);
            score.score = std::min(score.most * part, most);
            score.output +=
                fmt::format("\nThis counts in full once {}; until then all points are at most {:g}.\n",
                            moved_words, part_until_exact * all);
        } else {
            counts_once(moved_words);
        }
        score.score = rounded(score.score);
        list.push_back(score);
    }
    return list;
}

std::string fingerprint(const Exercise& exercise, const fs::path& folder, const Rubric& rubric) {
    std::string why_not;
    const std::string kernel = kernel_of(folder, why_not);
    return text_fingerprint(
        fmt::format("{}\n{}\n{}\n{}", exercise.number, rubric_text(rubric), why_not, kernel));
}

Grade grade_submission(const Exercise& exercise, const fs::path& folder, const Rubric& rubric,
                       const OnStep& on_step, bool leaderboard) {
    Grade grade;
    grade.fingerprint = fingerprint(exercise, folder, rubric);
    const TemporaryFolder work("ladder-grade-");
    let_sandbox_through(work.path());
    const fs::path kernel = work.path() / "kernel.cu";

    std::string why_not;
    OutputFile(kernel).write(kernel_of(folder, why_not));
    // On one worker, so that the first of several failures is always the same.
    const simt::KeptOptions kept;
    simt::options().workers = 1;
    const CheckOptions options{.seed = rubric.seed,
                               .untrusted = true,
                               .thorough = true,
                               .run_limit_s = rubric.run_limit_s,
                               .limit_s = rubric.limit_s};
    CheckResult result = check_kernel(exercise, kernel, work.path(), options, on_step);
    if (!why_not.empty()) result.criteria.front().reports = {why_not};

    grade.scores = scores(result, rubric);
    if (leaderboard) {
        const bool right = std::all_of(grade.scores.begin(), grade.scores.end(), [](const Score& s) {
            return (s.key != "correct" && s.key != "edges" && s.key != "races") || s.score >= s.most;
        });
        const Speed speed = right ? time_student(exercise, kernel, work.path(), true, on_step)
                                  : Speed{std::nullopt, "it is not right yet"};
        grade.over_parent = speed.over_parent();
        if (speed.wrong()) {
            grade.why_not_timed = "wrong results on the GPU";
        } else if (!grade.over_parent) {
            grade.why_not_timed = speed.results ? "it or its parent does not run on this GPU" : speed.why_not;
        }
    }
    return grade;
}

std::string gradescope_json(const Grade& grade) {
    nlohmann::ordered_json tests = nlohmann::ordered_json::array();
    int number = 0;
    for (const Score& s : grade.scores) {
        tests.push_back({{"name", s.title},
                         {"number", std::to_string(++number)},
                         {"score", s.score},
                         {"max_score", s.most},
                         {"output", s.output},
                         {"visibility", "visible"},
                         {"extra_data", {{"criterion", s.key}}}});
        // What is worth nothing has all its points whatever it does.
        if (s.most > 0) tests.back()["status"] = s.score >= s.most ? "passed" : "failed";
    }
    nlohmann::ordered_json json{{"score", grade.total()},
                                {"output", fmt::format("{:g} of {:g} points", grade.total(), grade.most())},
                                {"visibility", "visible"},
                                {"stdout_visibility", "hidden"},
                                {"tests", tests},
                                {"extra_data", {{"fingerprint", grade.fingerprint}}}};
    if (grade.over_parent) {
        json["leaderboard"] = nlohmann::ordered_json::array({{{"name", "times the parent's speed"},
                                                              {"value", rounded(*grade.over_parent)},
                                                              {"order", "desc"}}});
    }
    return json.dump(2) + "\n";
}

std::string time_of_kernel(const fs::path& folder) {
    struct stat info {};
    const Descriptor in{open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (fstatat(in.number, "kernel.cu", &info, AT_SYMLINK_NOFOLLOW) != 0) return "";
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(info.st_mtime));
}

std::optional<Grade> read_gradescope(const fs::path& path) {
    try {
        const auto json = read_json(path);
        Grade grade;
        json.at("extra_data").at("fingerprint").get_to(grade.fingerprint);
        for (const auto& test : json.at("tests")) {
            grade.scores.push_back({test.at("extra_data").at("criterion"), test.at("name"), test.at("score"),
                                    test.at("max_score"), test.at("output")});
        }
        return grade;
    } catch (const std::exception&) {  // another file, or none
        return std::nullopt;
    }
}

}  // namespace ladder
