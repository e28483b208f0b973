/// @file
/// lab start, check, hint and reset: a stage as an exercise, for the one who solves it.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "course/check.h"
#include "course/commands/commands.h"
#include "course/effort.h"
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
        command.option("STAGE", stage,
                       "The stage to implement: a number or a name; without one, the list of exercises and "
                       "which of them you have solved");
        command.option("--dir", folder, "The folder to make (default: my, or if that is taken my-STAGE)")
            .type_name("DIR");
    }
    std::string stage, folder;
};

/// [DIR]
struct FolderOptions {
    explicit FolderOptions(Command& command) {
        command.option(
            "DIR", folder,
            "The folder that lab start made (default: the current folder if it is one, else the one "
            "in it that you last worked on)");
    }
    StudentFolder open() const {
        if (!folder.empty()) return open_student_folder(folder);
        const std::vector<StudentFolder> here = student_folders(".");
        return fs::exists(".lab/exercise.json") || here.empty()
                   ? open_student_folder(here.empty() ? "my" : ".")
                   : here.front();
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

/// As a user would name it from here: "my", "../there/my".
std::string short_path(const fs::path& path) {
    std::error_code error;
    const fs::path near = fs::proximate(path, error).lexically_normal();
    return (error || near.string().size() > path.string().size() ? path : near).string();
}

/// The exercise to go on with: the first after this one in the order of the list that is not solved, else the
/// first of all, and at the very beginning a small one. Null if all are solved.
const Exercise* next_exercise(const std::vector<Exercise>& all, const std::set<int>& solved, int after) {
    const auto may_be_next = [&](const Exercise& e) {
        return solved.empty() ? effort_of(e).difficulty() == "easy" : !solved.contains(e.number);
    };
    const auto last = std::ranges::find(all, after, &Exercise::number);
    auto next = std::find_if(last, all.end(), may_be_next);
    if (next == all.end()) next = std::ranges::find_if(all, may_be_next);
    return next == all.end() ? nullptr : &*next;
}

/// Of the solved ones, the last in the order of the list; 0 if none is.
int last_solved(const std::vector<Exercise>& all, const std::set<int>& solved) {
    int last = 0;
    for (const Exercise& e : all)
        if (solved.contains(e.number)) last = e.number;
    return last;
}

std::set<int> solved_in(const std::vector<StudentFolder>& folders) {
    std::set<int> solved;
    for (const StudentFolder& folder : folders)
        if (folder.solved) solved.insert(folder.stage);
    return solved;
}

Printout list() {
    const std::vector<Exercise> all = all_exercises();
    const std::vector<StudentFolder> folders = student_folders(".");
    const std::set<int> solved = solved_in(folders);
    Printout printout;
    Table table("exercises", "",
                {{"exercise", "exercise"},
                 {"from", "from"},
                 {"change", "the change", Align::left, true},
                 {"lines", "lines", Align::right},
                 {"hours", "hours", Align::right},
                 {"difficulty", "difficulty"},
                 {"yours", "yours"}});
    int part_before = -1;
    for (const Exercise& e : all) {
        const Part part = part_of(stage_of(e));
        if (part.first != part_before) table.add_heading(part.title);
        part_before = part.first;
        const Effort effort = effort_of(e);
        Cell yours;
        for (const StudentFolder& folder : folders) {
            if (folder.stage == e.number && (folder.solved || yours.text.empty()))
                yours = {(folder.solved ? "solved in " : "begun in ") + short_path(folder.path),
                         folder.solved ? Tone::good : Tone::plain};
        }
        table.add_row({e.folder(), fmt::format("{:02}", e.parent), e.change,
                       Cell::count(static_cast<unsigned>(effort.lines)),
                       Cell::count(static_cast<unsigned>(effort.hours())), effort.difficulty(), yours});
    }
    printout.tables = {table};
    printout.data = {{"solved", static_cast<std::int64_t>(solved.size())}};
    printout.notes = {
        fmt::format("{} of {} solved here. Lines are those that the ladder's own solution changes; "
                    "hours are estimated from them: two, and one for each ten lines.",
                    solved.size(), counted(all.size(), "exercise"))};
    if (const Exercise* next = next_exercise(all, solved, last_solved(all, solved)))
        printout.notes.push_back(
            fmt::format("next: {}", lab_command({"start", std::to_string(next->number)})));
    return printout;
}

/// "my", unless that is something else already.
fs::path default_folder(int stage) {
    std::error_code none;
    if (fs::is_empty("my", none) || !fs::exists("my", none)) return "my";
    for (const StudentFolder& folder : student_folders("my"))
        if (folder.stage == stage) return "my";
    return fmt::format("my-{}", stage);
}

Printout start(const StartOptions& options) {
    if (options.stage.empty()) {
        if (!options.folder.empty()) throw BadUsage("--dir goes with a stage");
        return list();
    }
    const Exercise exercise = load_exercise(options.stage);
    if (exercise.parent < 0) throw BadUsage(fmt::format("{} has no parent to start from", exercise.folder()));
    const fs::path path = options.folder.empty() ? default_folder(exercise.number) : fs::path(options.folder);
    const StudentFolder folder = start_exercise(exercise, path);
    Printout printout;
    printout.facts = {{"exercise", exercise.folder()},
                      {"starts from", parent_of(exercise).folder()},
                      {"folder", folder.path.string()}};
    printout.notes = {fmt::format("read {}/TASK.md, write your prediction into prediction.md, edit kernel.cu",
                                  path.string()),
                      fmt::format("then: {}    stuck: {}", lab_command({"check", path.string()}),
                                  lab_command({"hint", path.string()}))};
    return printout;
}

Cell outcome(const Criterion& c) {
    if (!c.why_not.empty()) return {Value(), c.why_not, Tone::faint};
    return {Value(c.all()),
            c.total == 1 ? (c.all() ? "yes" : "no") : fmt::format("{} of {}", c.passed, c.total),
            c.all() ? Tone::good : Tone::bad};
}

/// Each counter that was predicted: the parent's, the prediction and whether it is right, and the one
/// counted. Empty without a prediction.
Table compare_predictions(const StudentFolder& folder, const CheckResult& result, const std::string& parent) {
    const auto predicted = predictions(folder);
    Table table("predictions", "Predicted and counted",
                {{"counter", "counter"},
                 {"of_parent", parent, Align::right},
                 {"predicted", "predicted", Align::right},
                 {"is_right", "prediction"},
                 {"counted", "counted", Align::right},
                 {"problem", "on", Align::left, true}});
    for (const MovedCounter& moved : result.moved) {
        const auto said = predicted.find(in_words(moved.counter));
        if (said == predicted.end()) continue;
        std::string digits = said->second;
        std::erase(digits, ',');
        const bool right = digits == std::to_string(moved.expected);
        table.add_row(
            {{Value(moved.counter), in_words(moved.counter)},
             moved.of_parent ? Cell::count(*moved.of_parent) : Cell(Value(), "refused", Tone::faint),
             said->second,
             {Value(right), right ? "right" : "wrong", right ? Tone::good : Tone::bad},
             moved.counted ? Cell::count(*moved.counted) : Cell(),
             moved.problem});
    }
    return table;
}

/// The rows of prediction.md that no counter answers.
std::vector<std::string> not_compared(const StudentFolder& folder, const CheckResult& result) {
    std::vector<std::string> rows;
    for (const auto& row : predictions(folder)) {
        const auto is_it = [&](const MovedCounter& moved) { return in_words(moved.counter) == row.first; };
        if (std::none_of(result.moved.begin(), result.moved.end(), is_it))
            rows.push_back(fmt::format("\"{}\"", row.first));
    }
    return rows;
}

/// Once it is solved there is nothing left to give away.
void open_up(const Exercise& exercise, const StudentFolder& folder, Printout& printout) {
    if (!exercise.solved_here) {
        printout.notes.emplace_back("passed; the lesson and the solution are your instructor's to show");
        return;
    }
    const Stage& stage = *find_stage(exercise.number);
    const fs::path lesson = source_folder() / "stages" / exercise.folder() / "README.md";
    const std::string diff = diff_texts(read_file(folder.kernel()), "yours/kernel.cu", kernel_text(stage),
                                        stage.folder() + "/kernel.cu");
    OutputFile(folder.path / "solution.diff").write(diff);
    printout.notes.push_back(
        fmt::format("passed; the lesson, with the measurement and its questions: {}", lesson.string()));
    printout.notes.push_back(
        fmt::format("from your kernel to the ladder's: {} ({})", (folder.path / "solution.diff").string(),
                    diff.empty() ? "they are the same" : counted(count_changed_lines(diff), "line")));
}

/// What to do after a pass: the next exercise, and those that start from what was solved.
std::vector<std::string> what_is_next(const StudentFolder& folder) {
    const std::vector<Exercise> all = all_exercises();
    const std::set<int> solved = solved_in(student_folders(folder.path.parent_path()));
    const Exercise* next = next_exercise(all, solved, folder.stage);
    if (next == nullptr) return {"all exercises are solved; the list: " + lab_command({"start"})};
    std::vector<std::string> notes{fmt::format("next: {} ({}: {}); all exercises: {}",
                                               lab_command({"start", std::to_string(next->number)}),
                                               next->folder(), next->change, lab_command({"start"}))};
    std::vector<std::string> others;
    for (const Exercise& e : all)
        if (e.parent == folder.stage && &e != next && !solved.contains(e.number))
            others.push_back(e.folder());
    if (!others.empty())
        notes.push_back(
            fmt::format("{:02} is also where these start: {}", folder.stage, fmt::join(others, ", ")));
    return notes;
}

/// The lines of the kernel that a report of the race checker names; empty for other reports. Two with the
/// same lines tell of the same.
std::string places_in(const std::string& report) {
    static const std::regex place(R"(^  (\S*kernel\.cu:\d+)  )");
    std::string places;
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (std::regex_search(line, match, place)) places += match[1].str() + " ";
    }
    return places;
}

/// What is wrong, in the order in which it explains itself. A race is why results are wrong, so it comes
/// before all else, and once: what else it breaks refers to it.
void add_reports(const CheckResult& result, Printout& printout) {
    std::set<std::string> raced;
    std::size_t others = 0;
    for (const char* key : {"races", "correct", "edges", "moved", "unmoved"}) {
        for (const std::string& report : result[key].reports) {
            const std::string places = places_in(report);
            if (places.empty() || !raced.insert(places).second) continue;
            if (raced.size() > 1) {
                others += 1;
                continue;
            }
            printout.listings.push_back(
                {"race", "Mend this first:\n\n" + report, "", nullptr, Lines::wrapped, true});
        }
    }
    if (others > 0)
        printout.listings.back().text += fmt::format(
            "\n{} between other lines, which may have the same cause\n", counted(others, "more report"));
    for (const char* key : {"builds", "races", "correct", "edges", "moved", "unmoved"}) {
        const Criterion& c = result[key];
        if (c.all()) continue;
        if (printout.failure.empty()) printout.failure = "not yet: " + c.title;
        std::vector<std::string> reports;
        for (const std::string& report : c.reports)
            if (c.key == "builds" || places_in(report).empty()) reports.push_back(report);
        const std::size_t by_race = c.reports.size() - reports.size();
        if (c.reports.empty() || (c.key == "races" && reports.empty())) continue;
        // One broken idea fails many cases alike; the first few tell, and after a race one does.
        const std::size_t most = c.key == "moved" || c.key == "unmoved" ? 8 : 2;
        const std::size_t shown = raced.empty() ? most : c.key == "edges" ? 0 : 1;
        std::string text = c.title + ": not yet\n";
        for (std::size_t k = 0; k < std::min(shown, reports.size()); ++k) text += "\n" + reports[k];
        if (text.back() != '\n') text += "\n";
        if (reports.size() > shown)
            text += fmt::format("\n{}{}{}\n", shown > 0 ? "... and " : "",
                                counted(reports.size() - shown, shown > 0 ? "more report" : "report"),
                                shown > 0 ? " like these" : ", which the race may explain");
        if (by_race > 0) text += fmt::format("\n{}: see the first lines\n", counted(by_race, "more report"));
        printout.listings.push_back(
            {"report_" + c.key, text, "", nullptr, c.key == "builds" ? Lines::kept : Lines::wrapped});
    }
}

Printout check_once(const StudentFolder& folder, const CheckCommandOptions& options) {
    const Exercise exercise = load_exercise(std::to_string(folder.stage));
    CheckOptions how{.seed = options.seed};
    how.predicted.emplace();
    for (const auto& [counter, value] : predictions(folder)) how.predicted->insert(counter);
    CheckResult result;
    Speed speed;
    {
        const ProgressLine progress;
        result = check_kernel(exercise, folder.kernel(), folder.products(), how, std::cref(progress));
        if (result.passed())
            speed = time_student(exercise, folder.kernel(), folder.products(), false, std::cref(progress));
    }
    Printout printout;
    printout.facts = {{"exercise", exercise.folder()}, {"kernel", folder.kernel().string()}};
    printout.data = {{"passed", result.passed() && !speed.wrong()}};
    Table table("criteria", "", {{"criterion", "criterion"}, {"passed", "outcome"}});
    for (const Criterion& c : result.criteria) table.add_row({{Value(c.key), c.title}, outcome(c)});
    printout.tables = {table};
    const Table predicted = compare_predictions(folder, result, parent_of(exercise).folder());
    if (!predicted.rows().empty())
        printout.tables.push_back(predicted);
    else if (!result.moved.empty())
        printout.notes.push_back("prediction.md has no number yet: predict first, and the check compares");
    add_reports(result, printout);
    if (const auto rows = not_compared(folder, result); !rows.empty() && !result.moved.empty())
        printout.notes.push_back(fmt::format(
            "prediction.md also predicts {}: no counter that the change moves, so compare it yourself",
            fmt::join(rows, ", ")));
    printout.notes.insert(printout.notes.end(), result.notes.begin(), result.notes.end());
    if (speed.results) {
        printout.facts.emplace_back("timed on", speed.results->hardware.gpu);
        printout.tables.push_back(regime_table(*speed.results));
    }
    if (speed.wrong()) printout.failure = "right on the CPU, wrong on the GPU";
    StudentFolder now = open_student_folder(folder.path);  // a hint may have been given meanwhile
    now.solved = now.solved || printout.failure.empty();
    save(now);
    if (printout.failure.empty()) open_up(exercise, folder, printout);
    if (!speed.why_not.empty()) printout.notes.push_back("not timed: " + speed.why_not);
    if (printout.failure.empty())
        for (std::string& note : what_is_next(folder)) printout.notes.push_back(std::move(note));
    return printout;
}

Printout check(const CheckCommandOptions& options) {
    const StudentFolder folder = options.open();
    if (!options.watch) return check_once(folder, options);
    for (fs::file_time_type seen{};;) {
        std::error_code error;
        const auto written = fs::last_write_time(folder.kernel(), error);
        if (!error && written != seen) {
            seen = written;
            std::string text;
            try {
                const Printout printout = check_once(folder, options);
                text = to_terminal(printout, false, terminal_width(STDOUT_FILENO)) +
                       (printout.failure.empty() ? "" : "lab: " + printout.failure + "\n");
            } catch (const BadUsage& failure) {  // an editor may take the file away for a moment
                text = std::string(failure.what()) + "\n";
            }
            std::cout << "\n--- " << folder.kernel().string() << "\n" << text << std::flush;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
}

Printout hint(const FolderOptions& options) {
    StudentFolder folder = options.open();
    const Exercise exercise = load_exercise(std::to_string(folder.stage));
    const int count = static_cast<int>(exercise.hints.size());
    if (count == 0) throw CannotRun(fmt::format("there are no hints for {}", exercise.folder()));
    const bool all_given = folder.hints >= count;
    if (!all_given) folder.hints += 1;
    save(folder);
    Printout printout;
    printout.facts = {{"hint", fmt::format("{} of {} for {}", folder.hints, count, exercise.folder())}};
    printout.listings.push_back({"hint", exercise.hints[static_cast<std::size_t>(folder.hints - 1)] + "\n",
                                 "", nullptr, Lines::prose});
    if (all_given)
        printout.notes.push_back(fmt::format("that was the last hint; {} says what is still wrong",
                                             lab_command({"check", short_path(folder.path)})));
    return printout;
}

Printout reset(const FolderOptions& options) {
    const StudentFolder folder = options.open();
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
    Printout printout;
    printout.facts = {{"exercise", exercise.folder()}, {"kernel", folder.kernel().string()}};
    if (!kept.empty()) printout.notes.push_back("what you had is kept in " + kept.string());
    return printout;
}

}  // namespace

void add_exercise(CommandLine& lab) {
    add_course_command(lab, "start", start);
    add_course_command(lab, "check", check);
    add_course_command(lab, "hint", hint);
    add_course_command(lab, "reset", reset);
}

}  // namespace ladder
