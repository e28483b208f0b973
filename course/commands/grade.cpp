/// @file
/// lab grade: one submission, or a class of them.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <thread>

#include "course/commands/commands.h"
#include "course/fence/sandbox.h"
#include "course/grade.h"
#include "course/similarity.h"
#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/progress.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/report/diff.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct GradeOptions {
    explicit GradeOptions(Command& command) {
        command.option("DIR", folder, "A submission, with kernel.cu, or a folder of submissions").required();
        command.option("--stage", stage, "The exercise (default: the rubric's)").type_name("N");
        command.option("--rubric", rubric, "Points and seed, as JSON").type_name("FILE");
        command.option("--gradescope", gradescope, "Write one submission's grade in Gradescope's format")
            .type_name("FILE");
        command.flag("--leaderboard", leaderboard,
                     "With --gradescope: also time a right kernel on this GPU, for the leaderboard alone");
        command
            .option("--out", out,
                    "Write each submission's grade into this folder; grades already there are kept")
            .type_name("DIR");
        command.option("--csv", csv, "Write a table of all grades (default: grades.csv in --out)")
            .type_name("FILE");
        command.flag("--weaker-sandbox", weaker_sandbox,
                     "Grade even if the sandbox is incomplete, and say what it lacks");
        command.option("--jobs", jobs, "Submissions at a time (default: one per core)").type_name("N");
    }
    std::string folder, stage, rubric, gradescope, out, csv;
    int jobs = 0;
    bool leaderboard = false, weaker_sandbox = false;
};

Exercise exercise_of(const GradeOptions& options, const Rubric& rubric) {
    if (!options.stage.empty()) return load_exercise(options.stage);
    if (rubric.stage) return load_exercise(std::to_string(*rubric.stage));
    throw BadUsage("which exercise? Name it with --stage, or in the rubric");
}

/// The entries of a folder that another person filled, but for hidden ones and plain files. A link that leads
/// nowhere is one: its owner must be told.
std::vector<fs::path> submissions_in(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        std::error_code none;
        const bool link = fs::is_symlink(entry.symlink_status(none));
        const fs::file_type type = entry.status(none).type();
        const bool leads_nowhere = link && type != fs::file_type::regular && type != fs::file_type::directory;
        if ((type == fs::file_type::directory || leads_nowhere) &&
            !entry.path().filename().string().starts_with("."))
            found.push_back(fs::absolute(entry.path()));
    }
    if (error) throw BadUsage(fmt::format("cannot read {}: {}", printable(folder.string()), error.message()));
    std::sort(found.begin(), found.end());
    return found;
}

/// What a submission is called in every table and file.
std::string name_of(const fs::path& submission) {
    return printable(submission.filename().string());
}

/// A class: each submission by a process of its own, so many at a time.
class ClassGrader {
  public:
    ClassGrader(const GradeOptions& options, const Exercise& exercise, const Rubric& rubric)
        : options_(options), exercise_(exercise), rubric_(rubric), out_(fs::absolute(options.out)) {
        std::error_code error;
        const fs::path folder = fs::canonical(options.folder), out = fs::weakly_canonical(out_);
        if (std::mismatch(folder.begin(), folder.end(), out.begin(), out.end()).first == folder.end()) {
            throw BadUsage(fmt::format("--out {} is in the class's folder, where it would be a submission",
                                       printable(options.out)));
        }
        let_sandbox_through(work_.path());
        fs::create_directories(out_, error);
        if (error) throw BadUsage(fmt::format("cannot make {}: {}", options.out, error.message()));
        submissions_ = submissions_in(options.folder);
        if (submissions_.empty())
            throw BadUsage(fmt::format("{} has neither kernel.cu nor folders", printable(options.folder)));
    }

    /// Grades those that have no grade yet, or that changed since.
    void grade() {
        const ProgressLine progress;
        const std::size_t jobs = options_.jobs > 0 ? static_cast<std::size_t>(options_.jobs)
                                                   : std::max(1u, std::thread::hardware_concurrency());
        std::map<std::string, std::unique_ptr<LimitedProcess>> running;
        const int total = static_cast<int>(submissions_.size());
        int done = 0;
        for (const fs::path& submission : submissions_) {
            const auto known = read_gradescope(result_of(submission));
            if (known && known->fingerprint == fingerprint(exercise_, submission, rubric_)) {
                done += 1;
                continue;
            }
            newly_ += 1;
            const std::string name = name_of(submission);
            progress("grade " + name, done, total);
            running[name] = start(submission);
            while (running.size() >= jobs) done += collect(running);
        }
        while (!running.empty()) done += collect(running);
    }

    Document report() const {
        Table table("grades", "", columns());
        std::string csv = "submission";
        for (const auto& [key, points] : rubric_.points) csv += "," + key;
        csv += ",total,of,modified\n";
        int missing = 0;
        std::vector<std::string> notes;
        for (const fs::path& submission : submissions_) {
            const std::string name = name_of(submission);
            const auto grade = read_gradescope(result_of(submission));
            std::vector<Cell> row{name};
            csv += quoted(name);
            for (const auto& [key, points] : rubric_.points) {
                Cell cell(Value(), "-", Tone::faint);
                if (grade) {
                    for (const Score& s : grade->scores) {
                        if (s.key == key) cell = {Value(s.score), fmt::format("{:g}", s.score)};
                    }
                }
                csv += "," + (grade ? cell.text : "");
                row.push_back(cell);
            }
            row.push_back(grade
                              ? Cell{Value(grade->total()), fmt::format("{:g}", grade->total()), Tone::strong}
                              : Cell(Value(), "not graded", Tone::bad));
            csv += grade ? fmt::format(",{:g},{:g}", grade->total(), grade->most()) : ",,";
            const std::string modified = time_of_kernel(submission);
            csv += "," + modified + "\n";
            row.emplace_back(modified);
            table.add_row(row);
            if (grade)
                OutputFile(report_of(submission, ".md")).write(markdown_report(exercise_, name, *grade));
            missing += !grade;
            if (const auto said = said_.find(name); !grade && said != said_.end())
                notes.push_back(said->second);
        }
        const std::vector<Similarity> similar = similarity();
        const fs::path file = options_.csv.empty() ? out_ / "grades.csv" : fs::path(options_.csv);
        OutputFile(file).write(csv);
        Document document;
        document.facts = {{"exercise", exercise_.folder()},
                          {"submissions", Cell::count(submissions_.size())},
                          {"graded now", Cell::count(static_cast<std::uint64_t>(newly_))}};
        document.tables = {table};
        document.notes = {fmt::format("all grades: {}; two files each, for Gradescope and for students: {}",
                                      file.string(), out_.string())};
        describe(similar, document);
        document.notes.insert(document.notes.end(), notes.begin(), notes.end());
        if (missing > 0)
            document.failure = counted(missing, "submission") + " could not be graded; run it again";
        return document;
    }

  private:
    /// Which submissions share at least half of what they changed with another, or with a stage.
    std::vector<Similarity> similarity() const {
        const std::string start = starting_kernel(exercise_);
        std::vector<OwnCode> own, ladder;
        for (const fs::path& submission : submissions_) {
            std::string why_not;
            own.push_back(own_code(name_of(submission), kernel_of(submission, why_not), start));
        }
        for (const Stage& stage : stages()) {
            if (fs::exists(stage.source))
                ladder.push_back(own_code("stages/" + stage.folder(), kernel_text(stage), start));
        }
        constexpr double least = 0.5;
        return similarities(own, ladder, least);
    }

    /// Writes all of them down, and shows the first of those that share most.
    void describe(const std::vector<Similarity>& similar, Document& document) const {
        constexpr double shown_from = 0.8;
        constexpr std::size_t most_shown = 10;
        Table table("similar", "These share most of their change (a note, in no grade)",
                    {{"submission", "submission"},
                     {"other", "with"},
                     {"own", "sequences", Align::right},
                     {"share", "shared", Align::right},
                     {"share_of_other", "of the other", Align::right}});
        const auto percent = [](double share) {
            return Cell{Value(share), fmt::format("{:.0f}%", 100 * share)};
        };
        std::string csv = "submission,with,sequences,shared,shared_of_other\n";
        for (const Similarity& one : similar) {
            csv += fmt::format("{},{},{},{:.2f},{:.2f}\n", quoted(one.submission), quoted(one.other), one.own,
                               one.share(), one.share_of_other());
            if (one.share() < shown_from || table.rows().size() >= most_shown) continue;
            table.add_row({one.submission, one.other, Cell::count(one.own), percent(one.share()),
                           percent(one.share_of_other())});
        }
        const fs::path file = out_ / "similarity.csv";
        OutputFile(file).write(csv);
        if (!table.rows().empty()) document.tables.push_back(table);
        document.notes.push_back(fmt::format(
            "how much of a change submissions share: {}; a short change leaves few ways to write it, so "
            "read both",
            file.string()));
    }

    std::vector<Column> columns() const {
        std::vector<Column> all{{"submission", "submission"}};
        for (const auto& [key, points] : rubric_.points) all.push_back({key, key, Align::right});
        all.push_back({"total", "total", Align::right});
        all.push_back({"modified", "modified"});
        return all;
    }

    static std::string quoted(std::string name) {
        // A spreadsheet must not take a name for a formula, neither after blanks nor in wide letters.
        const std::string_view begin =
            std::string_view(name).substr(std::min(name.find_first_not_of(' '), name.size()));
        for (const char* formula : {"=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"}) {
            if (!begin.starts_with(formula)) continue;
            name.insert(0, "'");
            break;
        }
        std::string text = "\"";
        for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
        return text + "\"";
    }

    fs::path result_of(const fs::path& submission) const { return report_of(submission, ".json"); }

    fs::path report_of(const fs::path& submission, const char* extension) const {
        std::string name = name_of(submission);
        constexpr std::size_t longest = 200;  // of a file's 255, some are for what is added to it
        if (name.size() > longest) name = name.substr(0, longest - 20) + "..." + text_fingerprint(name);
        return out_ / (name + extension);
    }

    std::unique_ptr<LimitedProcess> start(const fs::path& submission) const {
        std::vector<std::string> command{fs::read_symlink("/proc/self/exe").string(),
                                         "grade",
                                         submission.string(),
                                         "--stage",
                                         std::to_string(exercise_.number),
                                         "--gradescope",
                                         result_of(submission).string()};
        if (options_.weaker_sandbox) command.emplace_back("--weaker-sandbox");
        if (!options_.rubric.empty())
            command.insert(command.end(), {"--rubric", fs::absolute(options_.rubric).string()});
        Limits limits = compiler_limits();
        limits.cpu_s = 600;
        limits.memory = std::size_t{16} << 30;
        limits.temporary = work_.path();
        return std::make_unique<LimitedProcess>(command, limits);
    }

    /// Waits until one has ended, and says how many did. Whether there is a grade says whether it worked.
    int collect(std::map<std::string, std::unique_ptr<LimitedProcess>>& running) {
        for (;;) {
            int ended = 0;
            for (auto one = running.begin(); one != running.end();) {
                if (one->second->running()) {
                    ++one;
                } else {
                    const std::string how = one->second->wait(0);
                    if (!how.empty()) said_[one->first] = one->first + ": " + why(how, one->second->output());
                    one = running.erase(one);
                    ended += 1;
                }
            }
            if (ended > 0) return ended;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }

    /// Why there is no grade: how `lab grade` ended, and its last words.
    static std::string why(const std::string& how, const std::string& output) {
        const std::string said = output.substr(0, output.find_last_not_of('\n') + 1);
        return how + ", " + printable(said.substr(said.rfind('\n') + 1).substr(0, 300));
    }

    const GradeOptions& options_;
    const Exercise& exercise_;
    const Rubric& rubric_;
    fs::path out_;
    const TemporaryFolder work_{"ladder-class-"};  ///< where each has a folder, and leaves none
    std::vector<fs::path> submissions_;
    std::map<std::string, std::string> said_;  ///< by those without a grade
    int newly_ = 0;
};

Document run(const GradeOptions& options) {
    const Rubric rubric = options.rubric.empty() ? Rubric{} : load_rubric(options.rubric);
    const Exercise exercise = exercise_of(options, rubric);
    if (exercise.parent < 0)
        throw BadUsage(fmt::format("{} is not an exercise: it has no parent", exercise.folder()));
    if (options.leaderboard && options.gradescope.empty())
        throw BadUsage("--leaderboard goes with --gradescope, which is where it is written");
    if (std::string why_not; options.leaderboard && !has_device(Backend::gpu, &why_not))
        throw CannotRun("--leaderboard needs a GPU: " + why_not);
    std::error_code error;
    // In a class, a link that leads nowhere is a submission, too.
    const bool is_submission =
        !options.gradescope.empty() && fs::exists(fs::symlink_status(options.folder, error));
    if (!is_submission && !fs::is_directory(options.folder, error))
        throw BadUsage(fmt::format("there is no folder {}", printable(options.folder)));
    if (const std::string missing = missing_in_sandbox(); !missing.empty() && !options.weaker_sandbox) {
        throw CannotRun(fmt::format(
            "submissions are untrusted code, and the sandbox for them needs {}. On a machine that "
            "has nothing to lose, --weaker-sandbox grades without",
            missing));
    }
    const bool is_one = fs::exists(fs::symlink_status(fs::path(options.folder) / "kernel.cu", error));
    if (!is_one && options.gradescope.empty() && !submissions_in(options.folder).empty()) {
        if (options.out.empty()) throw BadUsage("a folder of submissions needs --out, for the grades");
        ClassGrader grader(options, exercise, rubric);
        grader.grade();
        return grader.report();
    }
    if (!options.out.empty() || !options.csv.empty())
        throw BadUsage("--out and --csv are for a folder of submissions; one takes --gradescope");

    std::optional<OutputFile> file;
    if (!options.gradescope.empty()) file.emplace(options.gradescope);
    Grade grade;
    {
        const ProgressLine progress;
        grade = grade_submission(exercise, options.folder, rubric, std::cref(progress), options.leaderboard);
    }
    if (file) file->write(gradescope_json(grade));
    Document document;
    document.facts = {
        {"exercise", exercise.folder()},
        {"submission", printable(options.folder)},
        {"sandbox", describe_sandbox()},
        {"total", {Value(grade.total()), fmt::format("{:g} of {:g}", grade.total(), grade.most())}}};
    Table table("criteria", "",
                {{"criterion", "criterion"}, {"score", "score", Align::right}, {"most", "of", Align::right}});
    for (const Score& s : grade.scores) {
        table.add_row(
            {{Value(s.key), s.title},
             {Value(s.score), fmt::format("{:g}", s.score), s.score >= s.most ? Tone::good : Tone::bad},
             {Value(s.most), fmt::format("{:g}", s.most)}});
        if (s.score < s.most)
            document.listings.push_back({"report_" + s.key, s.title + ": " + s.output, "", nullptr});
    }
    document.tables = {table};
    if (grade.over_parent) {
        document.facts.emplace_back(
            "times the parent's speed",
            Cell(Value(*grade.over_parent), fmt::format("{:.2f}", *grade.over_parent)));
    }
    if (!grade.why_not_timed.empty())
        document.notes.push_back("not on the leaderboard: " + grade.why_not_timed);
    return document;
}

}  // namespace

void add_grade(CommandLine& lab) {
    add_course_command<GradeOptions>(lab, "grade", run);
}

}  // namespace ladder
