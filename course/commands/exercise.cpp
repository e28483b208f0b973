/// @file
/// lab start, check, hint and reset: a stage as an exercise, for the one who solves it.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "course/check.h"
#include "course/commands/commands.h"
#include "course/exercise.h"
#include "course/speed.h"
#include "harness/base/file.h"
#include "harness/base/progress.h"
#include "harness/base/terminal.h"
#include "harness/ladder/ladder.h"
#include "harness/report/diff.h"
#include "harness/report/timing_tables.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct StartOptions {
    explicit StartOptions(Command& command) {
        command.option("STAGE", stage, "The stage to implement: a number or a name").required();
        command.option("--dir", folder, "The folder to make (default: my)").type_name("DIR");
    }
    std::string stage, folder = "my";
};

/// [DIR]
struct FolderOptions {
    explicit FolderOptions(Command& command) {
        command.option("DIR", folder,
                       "The folder that lab start made (default: the current folder if it is one, else my)");
    }
    std::string path() const {
        return !folder.empty() ? folder : fs::exists(".lab/exercise.json") ? "." : "my";
    }
    std::string folder;
};

struct CheckCommandOptions : FolderOptions {
    explicit CheckCommandOptions(Command& command) : FolderOptions(command) {
        command.option("--seed", seed, "Seed of the random shapes and numbers (default 1)").type_name("N");
        command.flag("--watch", watch, "Check again whenever kernel.cu changes, until interrupted");
    }
    std::uint64_t seed = 1;
    bool watch = false;
};

Document start(const StartOptions& options) {
    const Exercise exercise = load_exercise(options.stage);
    if (exercise.parent < 0) throw BadUsage(fmt::format("{} has no parent to start from", exercise.folder()));
    const StudentFolder folder = start_exercise(exercise, options.folder);
    Document document;
    document.facts = {{"exercise", exercise.folder()},
                      {"starts from", parent_of(exercise).folder()},
                      {"folder", folder.path.string()}};
    document.notes = {
        fmt::format("read {}/TASK.md, write your prediction into prediction.md, edit kernel.cu",
                    options.folder),
        fmt::format("then: lab check {}    stuck: lab hint {}", options.folder, options.folder)};
    return document;
}

Cell outcome(const Criterion& c) {
    if (!c.why_not.empty()) return {Value(), c.why_not, Tone::faint};
    return {Value(c.all()),
            c.total == 1 ? (c.all() ? "yes" : "no") : fmt::format("{} of {}", c.passed, c.total),
            c.all() ? Tone::good : Tone::bad};
}

/// Each counter that moves: the parent's, the one predicted, the one counted. Empty without a prediction.
Table compare_predictions(const StudentFolder& folder, const CheckResult& result, const std::string& parent) {
    const auto predicted = predictions(folder);
    Table table("predictions", "Predicted and counted",
                {{"counter", "counter"},
                 {"of_parent", parent, Align::right},
                 {"predicted", "predicted", Align::right},
                 {"counted", "counted", Align::right},
                 {"problem", "on", Align::left, true}});
    for (const MovedCounter& moved : result.moved) {
        const auto said = predicted.find(in_words(moved.counter));
        if (said == predicted.end()) continue;
        std::string digits = said->second;
        std::erase(digits, ',');
        const bool right = moved.counted && digits == std::to_string(*moved.counted);
        table.add_row({{Value(moved.counter), in_words(moved.counter)},
                       Cell::count(moved.of_parent),
                       {Value(said->second), said->second, right ? Tone::good : Tone::plain},
                       moved.counted ? Cell::count(*moved.counted) : Cell(),
                       moved.problem});
    }
    return table;
}

/// Once it is solved there is nothing left to give away.
void open_up(const Exercise& exercise, const StudentFolder& folder, Document& document) {
    if (!exercise.solved_here) {
        document.notes.emplace_back("passed; the lesson and the solution are your instructor's to show");
        return;
    }
    const Stage& stage = *find_stage(exercise.number);
    const fs::path lesson = source_folder() / "stages" / exercise.folder() / "README.md";
    const std::string diff = diff_texts(read_file(folder.kernel()), "yours/kernel.cu", kernel_text(stage),
                                        stage.folder() + "/kernel.cu");
    OutputFile(folder.path / "solution.diff").write(diff);
    document.notes.push_back(
        fmt::format("passed; the lesson, with the measurement and its questions: {}", lesson.string()));
    document.notes.push_back(
        fmt::format("from your kernel to the ladder's: {} ({})", (folder.path / "solution.diff").string(),
                    diff.empty() ? "they are the same" : counted(count_changed_lines(diff), "line")));
}

Document check_once(const StudentFolder& folder, const CheckCommandOptions& options) {
    const Exercise exercise = load_exercise(std::to_string(folder.stage));
    CheckResult result;
    Speed speed;
    {
        const ProgressLine progress;
        result = check_kernel(exercise, folder.kernel(), folder.products(), {.seed = options.seed},
                              std::cref(progress));
        if (result.passed())
            speed = time_student(exercise, folder.kernel(), folder.products(), false, std::cref(progress));
    }
    Document document;
    document.facts = {{"exercise", exercise.folder()}, {"kernel", folder.kernel().string()}};
    document.data = {{"passed", result.passed() && !speed.wrong()}};
    Table table("criteria", "", {{"criterion", "criterion"}, {"passed", "outcome"}});
    for (const Criterion& c : result.criteria) table.add_row({{Value(c.key), c.title}, outcome(c)});
    document.tables = {table};
    const Table predicted = compare_predictions(folder, result, parent_of(exercise).folder());
    if (!predicted.rows().empty())
        document.tables.push_back(predicted);
    else if (!result.moved.empty())
        document.notes.push_back("prediction.md has no number yet: predict first, and the check compares");
    // In the order in which they explain each other: a race is why results are wrong.
    for (const char* key : {"builds", "races", "correct", "edges", "moved", "unmoved"}) {
        const Criterion& c = result[key];
        if (c.all()) continue;
        if (document.failure.empty()) document.failure = "not yet: " + c.title;
        if (c.reports.empty()) continue;
        // One broken idea fails many cases alike; the first few tell.
        const std::size_t shown = c.key == "moved" || c.key == "unmoved" ? 8 : 2;
        std::string text = c.title + ": not yet\n";
        for (std::size_t k = 0; k < std::min(shown, c.reports.size()); ++k) text += "\n" + c.reports[k];
        if (text.back() != '\n') text += "\n";
        if (c.reports.size() > shown)
            text +=
                fmt::format("\n... and {} like these\n", counted(c.reports.size() - shown, "more report"));
        document.listings.push_back({"report_" + c.key, text, "", nullptr});
    }
    document.notes.insert(document.notes.end(), result.notes.begin(), result.notes.end());
    if (speed.results) {
        document.facts.emplace_back("timed on", speed.results->hardware.gpu);
        document.tables.push_back(regime_table(*speed.results));
    }
    if (speed.wrong()) document.failure = "right on the CPU, wrong on the GPU";
    if (document.failure.empty()) open_up(exercise, folder, document);
    if (!speed.why_not.empty()) document.notes.push_back("not timed: " + speed.why_not);
    return document;
}

Document check(const CheckCommandOptions& options) {
    const StudentFolder folder = open_student_folder(options.path());
    if (!options.watch) return check_once(folder, options);
    for (fs::file_time_type seen{};;) {
        std::error_code error;
        const auto written = fs::last_write_time(folder.kernel(), error);
        if (!error && written != seen) {
            seen = written;
            std::string text;
            try {
                const Document document = check_once(folder, options);
                text = to_terminal(document, false, terminal_width(STDOUT_FILENO)) +
                       (document.failure.empty() ? "" : "lab: " + document.failure + "\n");
            } catch (const BadUsage& failure) {  // an editor may take the file away for a moment
                text = std::string(failure.what()) + "\n";
            }
            std::cout << "\n--- " << folder.kernel().string() << "\n" << text << std::flush;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
}

Document hint(const FolderOptions& options) {
    StudentFolder folder = open_student_folder(options.path());
    const Exercise exercise = load_exercise(std::to_string(folder.stage));
    const int count = static_cast<int>(exercise.hints.size());
    if (count == 0) throw CannotRun(fmt::format("there are no hints for {}", exercise.folder()));
    const bool all_given = folder.hints >= count;
    if (!all_given) folder.hints += 1;
    save(folder);
    Document document;
    document.facts = {{"hint", fmt::format("{} of {} for {}", folder.hints, count, exercise.folder())}};
    document.listings.push_back(
        {"hint", exercise.hints[static_cast<std::size_t>(folder.hints - 1)] + "\n", "", nullptr, true});
    if (all_given) document.notes.emplace_back("that was the last hint; lab check says what is still wrong");
    return document;
}

Document reset(const FolderOptions& options) {
    const StudentFolder folder = open_student_folder(options.path());
    const Exercise exercise = load_exercise(std::to_string(folder.stage));
    fs::path kept;
    if (fs::exists(folder.kernel())) {
        for (int n = 1; kept.empty() || fs::exists(kept); ++n)
            kept = folder.path / fmt::format("kernel.{}.cu", n);
        std::error_code error;
        fs::rename(folder.kernel(), kept, error);
        if (error) throw BadUsage(fmt::format("cannot keep {}: {}", kept.string(), error.message()));
    }
    OutputFile(folder.kernel()).write(starting_kernel(exercise));
    StudentFolder fresh = folder;
    fresh.hints = 0;
    save(fresh);
    Document document;
    document.facts = {{"exercise", exercise.folder()}, {"kernel", folder.kernel().string()}};
    if (!kept.empty()) document.notes.push_back("what you had is kept in " + kept.string());
    return document;
}

}  // namespace

void add_exercise(CommandLine& lab) {
    add_course_command(lab, "start", start);
    add_course_command(lab, "check", check);
    add_course_command(lab, "hint", hint);
    add_course_command(lab, "reset", reset);
}

}  // namespace ladder
