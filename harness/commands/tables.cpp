#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>

#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/count/counting.h"
#include "harness/ladder/ladder.h"
#include "harness/report/aarch64.h"
#include "harness/report/chart.h"
#include "harness/report/climb.h"
#include "harness/report/diff.h"
#include "harness/report/errors.h"
#include "harness/report/parts.h"
#include "harness/report/peer_tests.h"
#include "harness/report/profile_tables.h"
#include "harness/report/published.h"
#include "harness/report/python.h"
#include "harness/report/roofline.h"
#include "harness/report/standard.h"
#include "harness/report/timing_tables.h"
#include "harness/time/fastest.h"
#include "harness/time/timing.h"
#include "reference/worked_example.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

struct TablesOptions {
    explicit TablesOptions(Command& command) {
        command.flag("--check", check, "Change nothing; fail if a file is out of date");
    }

    bool check = false;
};

const fs::path root = LADDER_SOURCE_DIR;
constexpr const char* plots_folder = "docs/plots";
constexpr const char* not_recorded = "Not recorded yet.\n";
constexpr const char* legend = "\nBold: where the stage's change should show.\n";
constexpr std::string_view opening = "<!-- generated: ", closing = "<!-- end -->";

// What a file of the source tree should contain. Its path is relative to the root.
struct File {
    fs::path path;
    std::string content;
};

// Whose page it is: a stage's, that of the part with this first number, or one of the whole ladder.
struct Page {
    fs::path path;  // relative to the root
    const Stage* stage = nullptr;
    std::optional<int> part = std::nullopt;
};

// Makes the blocks. Counters are live, times and profiles are the recorded ones.
class Generator {
  public:
    std::string block(std::string_view name, const Page& page) {
        const Stage* stage = page.stage;
        if (name == "ladder" && stage == nullptr) return ladder_block();
        if (name == "part" && page.part) return part_block(*page.part, page);
        if (name == "algorithm" && stage == nullptr) return part_block(0, page);
        if (name == "parts" && stage == nullptr) return parts_block(page);
        if (name == "times") return page.part ? times_of_part_block(*page.part) : times_block();
        if (name == "roofline" && stage == nullptr) return roofline_block(page);
        if (name == "headline") return headline_block();
        if (name == "leave_one_out") return leave_one_out_block();
        if (name == "climbs" && stage == nullptr) return climbs_block(page);
        if (name == "papers") return papers_block(page);
        if (name == "grid") return papers_ ? to_markdown(grid_table(*papers_)) : not_recorded;
        if (name == "standard") return standard_block(page);
        if (name == "errors") return block_of("h200-verify", errors_block);
        if (name == "python") return block_of("h200-python", python_block);
        if (name == "peer_tests") return peer_tests_block(results_folder());
        if (name == "aarch64") return block_of("aarch64", aarch64_block);
        if (name == "counters" && stage != nullptr) return counters_block(*stage);
        if (name == "measured" && stage != nullptr) return measured_block(*stage);
        if (name == "profile" && stage != nullptr) return profile_block(profiled_, *stage);
        if (name == "occupancy") return occupancy_block(profiled_);
        if (name == "published") return published_block();
        if (name.starts_with(worked_example)) return worked_example_block(name.substr(worked_example.size()));
        if (name.starts_with(counters)) return counters_block(numbers_in(name.substr(counters.size())));
        if (name.starts_with(moved)) return moved_block(numbers_in(name.substr(moved.size())));
        if (name.starts_with(record)) return record_block(name.substr(record.size()));
        if (name.starts_with(peers)) return peers_block(name.substr(peers.size()), stage, false);
        if (name.starts_with(peer_means)) return peers_block(name.substr(peer_means.size()), stage, true);
        throw BadUsage(fmt::format("there is no generated block '{}' here", name));
    }

    // All of the recordings; none before the first.
    std::vector<Picture> pictures() {
        std::vector<Picture> all;
        if (recorded_) {
            for (const Climb& climb : climbs(*recorded_)) all.push_back(picture_of(climb));
        }
        if (const auto found = recorded_roofline()) all.push_back(picture_of(*found));
        if (papers_) all.push_back(picture_of(benchmark_chart(*papers_)));
        if (standard_) all.push_back(picture_of(standard_chart(standard(), standard_->hardware.gpu)));
        return all;
    }

  private:
    static std::string ladder_block() {
        Table table("ladder", "",
                    {{"stage", "stage"},
                     {"parent", "parent"},
                     {"change", "the one change"},
                     {"lines", "lines added or changed", Align::right},
                     {"shows_in", "shows in"}});
        for (const Stage& stage : stages()) {
            const Stage* parent = find_stage(stage.parent);
            table.add_row({stage.folder(), parent ? parent->folder() : "", stage.change,
                           parent ? std::to_string(count_changed_lines(*parent, stage)) : "",
                           stage.shows_in});
        }
        return to_markdown(table);
    }

    // What each change of a part gained over its parent, where it should show.
    std::string part_block(int part, const Page& page) const {
        const auto& results = recording_of(part);
        const fs::path stages_folder = fs::path("stages").lexically_relative(page.path.parent_path());
        Table table("part", "",
                    {{"stage", "stage"},
                     {"change", "the one change"},
                     {"lines", "lines", Align::right},
                     {"gain", "over its parent", Align::right}});
        for (const Stage& stage : stages()) {
            if (part_of(stage.number) != part) continue;
            const Stage* parent = find_stage(stage.parent);
            const fs::path lesson = (stages_folder / stage.folder() / "README.md").lexically_normal();
            table.add_row({fmt::format("[{}]({})", title_of(stage), lesson.string()), stage.change,
                           parent != nullptr ? std::to_string(count_changed_lines(*parent, stage)) : "",
                           results ? speedups_where_it_shows(*results, stage) : ""});
        }
        if (!results) return to_markdown(table);
        return fmt::format("{}:\n\n{}", recorded_label(*results), to_markdown(table));
    }

    // What each part teaches and reaches.
    std::string parts_block(const Page& page) const {
        const Results none;
        const Results& results = recorded_ ? *recorded_ : none;
        return to_markdown(parts_table(results, page.path.parent_path().string()));
    }

    // The stages of a part where their changes should show, beside the stage that it starts from and the
    // peers.
    std::string times_of_part_block(int part) const {
        const auto& results = recording_of(part);
        const Results own = results ? of_part(*results, part) : Results();
        if (own.rows.empty()) return not_recorded;
        std::string text = fmt::format("{}; {}:\n", recorded_label(own), libraries(own));
        for (const Table& table : rate_tables(own))
            text += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        return text + legend;
    }

    std::optional<Roofline> recorded_roofline() const {
        return recorded_ && profiled_ ? roofline(*recorded_, *profiled_) : std::nullopt;
    }

    std::string roofline_block(const Page& page) const {
        const auto found = recorded_roofline();
        return found ? centered(picture_of(*found), page) : not_recorded;
    }

    std::string times_block() const {
        if (!recorded_) return not_recorded;
        std::string text;
        for (const auto& [key, cell] : measurement_facts(*recorded_))
            text += fmt::format("- {}: {}\n", key, cell.text);
        for (const Table& table : rate_tables(*recorded_))
            text += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        return text + legend;
    }

    // FlashAttention-1 against FlashAttention-2's algorithm and the last stage for long queries that was
    // measured.
    std::string headline_block() const {
        if (!recorded_) return not_recorded;
        int last = 0;
        for (const Stage& stage : stages()) {
            if (stage.pass == Pass::forward && !is_ablation(stage.number) && !is_decoding(stage.shows_in) &&
                stage.has_head_dim(128) && recorded_->kernels.count(stage.folder()) > 0)
                last = stage.number;
        }
        return fmt::format("{}; {}:\n\n{}", recorded_label(*recorded_), libraries(*recorded_),
                           to_markdown(speedup_table(*recorded_, 1, {5, last})));
    }

    // What each change of 05 gained where it came, and what 05 gains by it when it has all the others.
    std::string leave_one_out_block() const {
        const std::vector<LeftOut> changes{{2, 90}, {3, 92}, {4, 91}, {5, 4}};
        if (!ablations_) return not_recorded;
        return fmt::format("{}:\n\n{}", recorded_label(*ablations_),
                           to_markdown(leave_one_out_table(*ablations_, 5, changes)));
    }

    // The plots, on a part's page of what it is about; there is room for one on a phone, and for two side by
    // side elsewhere.
    std::string climbs_block(const Page& page) const {
        if (!recorded_) return not_recorded;
        std::string pictures;
        for (const Climb& climb : climbs(*recorded_)) {
            const bool of_part = std::any_of(climb.steps.begin(), climb.steps.end(), [&](const auto& step) {
                return part_of(std::stoi(step.folder)) == page.part;
            });
            if (!page.part || of_part) pictures += to_html(picture_of(climb), plots_from(page));
        }
        if (pictures.empty()) return not_recorded;
        return fmt::format("<p align=\"center\">\n{}</p>\n", pictures);
    }

    static std::string plots_from(const Page& page) {
        return fs::path(plots_folder).lexically_relative(page.path.parent_path()).string();
    }

    static std::string centered(const Picture& picture, const Page& page) {
        return fmt::format("<p align=\"center\">\n{}</p>\n", to_html(picture, plots_from(page)));
    }

    // The figure of the papers, and its numbers.
    std::string papers_block(const Page& page) const {
        if (!papers_) return not_recorded;
        const std::string reasons = peer_reasons(*papers_);
        return fmt::format("{}; {}.\n\n{}\n{}{}", recorded_label(*papers_), libraries(*papers_),
                           centered(picture_of(benchmark_chart(*papers_)), page),
                           to_markdown(rates_by_problem(*papers_)),
                           reasons.empty() ? "" : fmt::format("\nNot timed: {}.\n", reasons));
    }

    // FlashAttention-1 against standard attention.
    std::string standard_block(const Page& page) {
        if (!standard_) return not_recorded;
        const auto& rows = standard();
        const std::string bytes = standard_bytes_
                                      ? fmt::format("; bytes moved: {} on {}", standard_bytes_->profiler,
                                                    machine_label(*standard_bytes_))
                                      : "; bytes moved: not recorded yet";
        return fmt::format("{}{}.\n\n{}\n{}\n{}\n{}", recorded_label(*standard_), bytes,
                           centered(picture_of(standard_chart(rows, standard_->hardware.gpu)), page),
                           crossovers(rows), to_markdown(standard_times(rows)),
                           to_markdown(standard_bytes(rows)));
    }

    const std::vector<StandardRow>& standard() {
        if (standard_rows_.empty())
            standard_rows_ = standard_rows(*standard_, standard_bytes_, counting_device());
        return standard_rows_;
    }

    static std::string block_of(const char* name, std::string (*block)(const fs::path&)) {
        const fs::path file = file_of(name);
        return fs::exists(file) ? block(file) : not_recorded;
    }

    /// The plain back-end: what it counts the race checker counts too, which claims hold, and it is faster.
    Device& counting_device() {
        if (!cpu_) cpu_ = open_first({Backend::cpu});
        return *cpu_;
    }

    std::vector<Change> counted(const std::vector<const Stage*>& stages,
                                const std::function<Case(const Stage&)>& problem_of) {
        auto changes =
            count_changes(counting_device(), stages, problem_of, [](const std::string&, int, int) {});
        for (const Change& change : changes) {
            if (!change.after.why_not.empty()) throw CannotRun(change.after.why_not);
        }
        return changes;
    }

    static std::string change_block(const Change& change) {
        return fmt::format("Counted on {}:\n\n{}\nUnchanged: {}.\n", change.problem.description(),
                           to_markdown(change_table(change)), unchanged_counters(change));
    }

    std::string counters_block(const Stage& stage) {
        const auto changes = counted({&stage}, telling_case);
        if (changes.front().parent != nullptr) return change_block(changes.front());
        return fmt::format("Counted on {}:\n\n{}", changes.front().problem.description(),
                           to_markdown(work_table(changes)));
    }

    // "counters 1 5": the second stage against the first, whatever lies between, on the problem of the second
    std::string counters_block(const std::vector<int>& numbers) {
        std::vector<const Stage*> stages;
        for (const int number : numbers) stages.push_back(find_stage(number));
        const Case problem = telling_case(*stages.at(1));
        const auto changes = counted(stages, [&](const Stage&) { return problem; });
        return change_block({stages[1], stages[0], problem, changes[0].after, changes[1].after});
    }

    // "moved 0 1 5": what HBM and L2 moved for these stages
    std::string moved_block(const std::vector<int>& numbers) const {
        if (!profiled_) return "Not profiled yet.\n";
        return fmt::format("{}, {} on {}:\n\n{}", long_name(profiled_->rows.front()), profiled_->profiler,
                           machine_label(*profiled_), to_markdown(moved_table(*profiled_, numbers)));
    }

    // What others report, beside the recordings.
    std::string published_block() const {
        if (!recorded_ || !profiled_) return not_recorded;
        const Results prefill = recorded("h200-prefill"), few_heads = recorded("h200-causal-small");
        return fmt::format("{}; {}:\n\n{}", recorded_label(*recorded_), libraries(*recorded_),
                           to_markdown(published_table({*recorded_, prefill, few_heads, *profiled_})));
    }

    // "worked_example", "worked_example scores", "worked_example row 0"
    static std::string worked_example_block(std::string_view part) {
        using namespace reference;
        const WorkedExample e = reference::worked_example();
        const std::map<std::string_view, std::string (*)(const WorkedExample&)> parts{
            {"", format_steps},           {" inputs", format_inputs},   {" scores", format_scores},
            {" weights", format_weights}, {" outputs", format_outputs}, {" merge", format_merge}};
        constexpr std::string_view row = " row ";
        std::string text;
        if (const auto found = parts.find(part); found != parts.end()) {
            text = found->second(e);
        } else if (part.starts_with(row)) {
            text = format_row(e, numbers_in(part.substr(row.size())).at(0));
        } else {
            throw BadUsage(fmt::format("the worked example has no part '{}'", part));
        }
        return fmt::format("```text\n{}```\n", text);
    }

    std::string measured_block(const Stage& stage) const {
        const auto& results = recording_of(stage.number);
        if (!results) return not_recorded;
        const Table table = stage_timing_table(*results, stage);
        if (table.rows().empty()) return not_recorded;
        return fmt::format("{}:\n\n{}{}", recorded_label(*results), to_markdown(table), legend);
    }

    // "record h200-8k": the tables of docs/results/h200-8k.json, whatever its date
    static std::string record_block(std::string_view file) {
        const Results results = recorded(file);
        const bool sweep = !results.rows.empty() && is_sweep(results.rows.front().regime);
        std::string text = recorded_label(results) + ":\n";
        for (const Table& table : sweep ? comparison_tables(results) : rate_tables(results))
            text += "\n" + to_markdown(table);
        return text;
    }

    // "peers h200-prefill": the stage of the page, or in that of the ladder all, against the peers of that
    // file, and "peers h200-prefill 26" that stage; "peer_means ..." without the single problems
    static std::string peers_block(std::string_view words, const Stage* stage, bool only_means) {
        const std::string_view file = words.substr(0, words.find(' '));
        if (file != words) stage = find_stage(numbers_in(words.substr(file.size())).at(0));
        const Results results = recorded(file);
        if (results.peers.empty()) throw BadUsage(fmt::format("{}.json has no peers", file));
        std::string text = fmt::format("{}; {}:\n", recorded_label(results), libraries(results));
        constexpr std::size_t beside_each_other = 4;  // stages: more than fit on a terminal
        for (const Table& table : comparison_tables(results, stage, beside_each_other)) {
            if (only_means && !table.key().ends_with("_summary")) continue;
            text += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        }
        return text;
    }

    // Of the stage with this number
    const std::optional<Results>& recording_of(int number) const {
        return is_ablation(number) ? ablations_ : recorded_;
    }

    static fs::path file_of(std::string_view name) { return results_folder() / fmt::format("{}.json", name); }

    static Results recorded(std::string_view file) { return load_results(file_of(file)); }

    static std::optional<Results> recorded_if_there(std::string_view file) {
        return fs::exists(file_of(file)) ? std::optional(recorded(file)) : std::nullopt;
    }

    // "1 5" as {1, 5}
    static std::vector<int> numbers_in(std::string_view text) {
        std::istringstream words{std::string(text)};
        std::vector<int> numbers;
        for (int number; words >> number;) numbers.push_back(number);
        if (numbers.empty()) throw BadUsage(fmt::format("no numbers in '{}'", text));
        return numbers;
    }

    static constexpr std::string_view record = "record ", peers = "peers ", peer_means = "peer_means ",
                                      counters = "counters ", moved = "moved ",
                                      worked_example = "worked_example";

    std::unique_ptr<Device> cpu_;
    std::optional<Results> recorded_ = newest_results(results_folder());
    std::optional<Results> ablations_ = recorded_if_there("h200-leave-one-out");
    std::optional<Profile> profiled_ = recorded_profile();
    std::optional<Results> papers_ = recorded_if_there("h200-papers");
    std::optional<Results> standard_ = recorded_if_there("h200-standard");
    std::optional<Profile> standard_bytes_ = recorded_profile("h200-standard-bytes");
    std::vector<StandardRow> standard_rows_;
};

// The text with every generated block made anew.
std::string regenerated(const std::string& text, const Page& page, Generator& generator) {
    std::string result;
    std::size_t at = 0;
    for (std::size_t start; (start = text.find(opening, at)) != text.npos;) {
        const std::size_t name_start = start + opening.size(), name_end = text.find(" -->", name_start);
        const std::size_t end = text.find(closing, start);
        if (name_end == text.npos || end == text.npos) {
            throw BadUsage(fmt::format("{}: a generated block has no {}", page.path.string(), closing));
        }
        const std::string name = text.substr(name_start, name_end - name_start);
        result += text.substr(at, start - at);
        result += fmt::format("{}{} -->\n{}", opening, name, generator.block(name, page));
        at = end;
    }
    return result + text.substr(at);
}

// The pages, each with its blocks made anew.
std::vector<File> pages(Generator& generator) {
    std::vector<File> files;
    const fs::path ladder = "stages";
    std::vector<Page> all{{"README.md"}, {ladder / "README.md"}};
    for (const char* name : {"results.md", "benchmark.md", "standard_attention.md", "claimed_and_measured.md",
                             "flash_attention_1_and_2.md", "worked_example.md", "python.md"})
        all.push_back({fs::path("docs") / name});
    for (const auto& [part, name] : part_pages()) all.push_back({ladder / name, nullptr, part});
    for (const Stage& stage : stages()) all.push_back({ladder / stage.folder() / "README.md", &stage});
    for (const Page& page : all) {
        if (fs::exists(root / page.path))
            files.push_back({page.path, regenerated(read_file(root / page.path), page, generator)});
    }
    return files;
}

// The data of the pictures, a line for each.
File plotted(const std::vector<Picture>& pictures) {
    std::vector<std::string> lines;
    for (const Picture& picture : pictures) lines.push_back(picture.data);
    return {fs::path(plots_folder) / "pictures.json", fmt::format("[\n{}\n]\n", fmt::join(lines, ",\n"))};
}

// Makes the plots of their data.
void draw() {
    const auto python = run_process({root / "tests" / "find_python.sh", "matplotlib"});
    if (python.status != 0) throw CannotRun("no Python here has matplotlib, which draws the plots");
    const auto drawn =
        run_process({python.out.substr(0, python.out.find('\n')), root / plots_folder / "draw.py"});
    if (drawn.status != 0) throw CannotRun("the plots could not be drawn: " + drawn.err);
}

Document run(const TablesOptions& options) {
    Document document;
    Table table("files", "", {{"file", "file"}, {"state", "what is generated"}});
    int stale = 0;
    const auto add = [&](const fs::path& path, bool same) {
        stale += !same;
        table.add_row({path.string(), same            ? Cell("up to date", Tone::good)
                                      : options.check ? Cell("out of date", Tone::bad)
                                                      : Cell("rewritten")});
    };
    Generator generator;
    const auto pictures = generator.pictures();
    std::vector<File> files = pages(generator);
    if (!pictures.empty()) files.push_back(plotted(pictures));
    files.push_back({"stages/fastest.json", fastest_json(gather_times(results_folder()))});
    for (const auto& [path, content] : files) {
        const bool same = fs::exists(root / path) && read_file(root / path) == content;
        if (!same && !options.check) OutputFile(root / path).write(content);
        add(path, same);
    }
    bool redraw = false;
    for (const Picture& picture : pictures) {
        for (const std::string& plot : file_names(picture)) {
            const fs::path path = fs::path(plots_folder) / plot;
            const bool same = fs::exists(root / path) && is_shown(picture, read_file(root / path));
            redraw = redraw || !same;
            add(path, same);
        }
    }
    if (redraw && !options.check) draw();
    document.tables = {table};
    if (options.check && stale > 0)
        document.failure =
            fmt::format("out of date: {} of {}; run lab tables", stale, counted(table.rows().size(), "file"));
    return document;
}

}  // namespace

void add_tables(CommandLine& lab) {
    add_command<TablesOptions>(lab, "tables", "Rewrite the generated tables and plots of the README files",
                               run)
        .group("For maintainers");
}

}  // namespace ladder
