/// @file
/// lab grade: one submission, or a class of them.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "course/commands/commands.h"
#include "course/fence/sandbox.h"
#include "course/fence/tokens.h"
#include "course/grade.h"
#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/process.h"
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

    /// What class_report.py makes of the grades.
    Printout report() const {
        const fs::path csv = options_.csv.empty() ? out_ / "grades.csv" : fs::path(options_.csv);
        nlohmann::json request{
            {"title", fmt::format("Stage {:02}, {}", exercise_.number, in_words(exercise_.name))},
            {"points", rubric_.points},
            {"parent", tokens_in(starting_kernel(exercise_))},
            {"out", out_},
            {"csv", csv},
            {"said", said_},
            {"ladder", nlohmann::json::object()}};
        for (const fs::path& submission : submissions_) {
            std::string why_not;
            request["submissions"].push_back({{"name", name_of(submission)},
                                              {"result", result_of(submission)},
                                              {"report", report_of(submission, ".md")},
                                              {"modified", time_of_kernel(submission)},
                                              {"tokens", tokens_in(kernel_of(submission, why_not))}});
        }
        for (const Stage& stage : stages()) {
            if (fs::exists(stage.source))
                request["ladder"]["stages/" + stage.folder()] = tokens_in(kernel_text(stage));
        }
        constexpr auto replace = nlohmann::json::error_handler_t::replace;
        const auto said = nlohmann::json::parse(
            ask_python("course/class_report.py", request.dump(-1, ' ', false, replace)));
        for (const auto& [file, text] : said.at("files").items())
            OutputFile(file).write(text.get<std::string>());

        std::vector<Column> columns{{"submission", "submission"}};
        for (const auto& [key, points] : rubric_.points) columns.push_back({key, key, Align::right});
        columns.push_back({"total", "total", Align::right});
        columns.push_back({"modified", "modified"});
        Printout printout;
        printout.facts = {{"exercise", exercise_.folder()},
                          {"submissions", Cell::count(submissions_.size())},
                          {"graded now", Cell::count(static_cast<std::uint64_t>(newly_))}};
        printout.tables = {table_of("grades", "", columns, said.at("grades"))};
        if (!said.at("similar").empty())
            printout.tables.push_back(table_of("similar",
                                               "These share most of their change (a note, in no grade)",
                                               {{"submission", "submission"},
                                                {"other", "with"},
                                                {"own", "sequences", Align::right},
                                                {"share", "shared", Align::right},
                                                {"share_of_other", "of the other", Align::right}},
                                               said.at("similar")));
        printout.notes = said.at("notes");
        if (const std::uint64_t missing = said.at("missing"); missing > 0)
            printout.failure = counted(missing, "submission") + " could not be graded; run it again";
        return printout;
    }

  private:
    /// What counts of a kernel's tokens; literals are all the same. Of one that has none (see tokens_of()),
    /// nothing.
    static std::vector<std::string> tokens_in(const std::string& source) {
        std::vector<std::string> tokens;
        try {
            for (const Token& token : tokens_of(source))
                tokens.emplace_back(token.kind == Token::Kind::literal ? "\"" : token.text);
        } catch (const UnreadableToken&) {
        }
        return tokens;
    }

    static Table table_of(const std::string& key, const std::string& title,
                          const std::vector<Column>& columns, const nlohmann::json& rows) {
        const std::map<std::string, Tone> tones{
            {"faint", Tone::faint}, {"strong", Tone::strong}, {"bad", Tone::bad}};
        Table table(key, title, columns);
        for (const auto& row : rows) {
            std::vector<Cell> cells;
            for (const auto& cell : row) {
                const auto& value = cell.at(0);
                cells.emplace_back(value.is_null()             ? Value()
                                   : value.is_number_integer() ? Value(value.get<std::int64_t>())
                                   : value.is_number()         ? Value(value.get<double>())
                                                               : Value(value.get<std::string>()),
                                   cell.at(1).get<std::string>(),
                                   cell.size() > 2 ? tones.at(cell.at(2)) : Tone::plain);
            }
            table.add_row(std::move(cells));
        }
        return table;
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

Printout run(const GradeOptions& options) {
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
    Printout printout;
    printout.facts = {
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
            printout.listings.push_back({"report_" + s.key, s.title + ": " + s.output, "", nullptr});
    }
    printout.tables = {table};
    if (grade.over_parent) {
        printout.facts.emplace_back(
            "times the parent's speed",
            Cell(Value(*grade.over_parent), fmt::format("{:.2f}", *grade.over_parent)));
    }
    if (!grade.why_not_timed.empty())
        printout.notes.push_back("not on the leaderboard: " + grade.why_not_timed);
    return printout;
}

}  // namespace

void add_grade(CommandLine& lab) {
    add_course_command<GradeOptions>(lab, "grade", run);
}

}  // namespace ladder
