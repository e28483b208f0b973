#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "harness/commands/commands.h"
#include "harness/commands/counting.h"
#include "harness/commands/options.h"
#include "harness/commands/profile_tables.h"
#include "harness/commands/timing_tables.h"
#include "harness/diff.h"
#include "harness/file.h"
#include "harness/timing.h"
#include "reference/tiled.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

struct Options {
    explicit Options(CLI::App& command) {
        command.add_flag("--check", check, "Change nothing; fail if a block is out of date");
    }

    bool check = false;
};

constexpr const char* legend = "\nBold: where the stage's change should show.\n";
constexpr std::string_view opening = "<!-- generated: ", closing = "<!-- end -->";

// Makes the blocks. Counters are live, times and profiles are the recorded ones.
class Generator {
  public:
    // The block of this name, in the README of a stage or, if that is null, in one of the whole ladder.
    std::string block(std::string_view name, const Stage* stage) {
        if (name == "ladder" && stage == nullptr) return ladder_block();
        if (name == "times") return times_block();
        if (name == "headline") return headline_block();
        if (name == "counters" && stage != nullptr) return counters_block(*stage);
        if (name == "measured" && stage != nullptr) return measured_block(*stage);
        if (name == "profile" && stage != nullptr) return profile_block(profiled_, *stage);
        if (name == "occupancy") return occupancy_block(profiled_);
        if (name == "worked_example")
            return fmt::format("```text\n{}```\n", reference::format_steps(reference::worked_example()));
        if (name.starts_with(record)) return record_block(name.substr(record.size()));
        if (name.starts_with(peers)) return peers_block(name.substr(peers.size()), stage, false);
        if (name.starts_with(peer_means)) return peers_block(name.substr(peer_means.size()), stage, true);
        throw BadUsage(fmt::format("there is no generated block '{}' here", name));
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

    std::string times_block() const {
        if (!recorded_) return "No GPU time has been recorded yet.\n";
        std::string text;
        for (const auto& [key, cell] : measurement_facts(*recorded_))
            text += fmt::format("- {}: {}\n", key, cell.text);
        for (const Table& table : rate_tables(*recorded_))
            text += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        return text + legend;
    }

    // FlashAttention-1 against the end of Part I and the last stage for long queries.
    std::string headline_block() const {
        if (!recorded_) return "No GPU time has been recorded yet.\n";
        int last = 0;
        for (const Stage& stage : stages())
            last = stage.shows_in != std::string_view("decode") ? stage.number : last;
        return fmt::format("{}; {}:\n\n{}", recorded_label(*recorded_), libraries(*recorded_),
                           to_markdown(speedup_table(*recorded_, 1, {5, last})));
    }

    std::string counters_block(const Stage& stage) {
        if (!cpu_) cpu_ = open_counting_device();
        const auto changes =
            count_changes(*cpu_, {&stage}, telling_case, [](const std::string&, int, int) {});
        const Change& change = changes.front();
        if (!change.after.why_not.empty()) throw CannotRun(change.after.why_not);
        const std::string problem = fmt::format("Counted on {}:\n\n", change.problem.description());
        if (change.parent == nullptr) return problem + to_markdown(work_table(changes));
        return fmt::format("{}{}\nUnchanged: {}.\n", problem, to_markdown(change_table(change)),
                           unchanged_counters(change));
    }

    std::string measured_block(const Stage& stage) const {
        if (!recorded_) return "No GPU time has been recorded yet.\n";
        return fmt::format("{}:\n\n{}{}", recorded_label(*recorded_),
                           to_markdown(stage_timing_table(*recorded_, stage)), legend);
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
    // file; "peer_means h200-prefill" without the single problems
    static std::string peers_block(std::string_view file, const Stage* stage, bool only_means) {
        const Results results = recorded(file);
        if (results.peers.empty()) throw BadUsage(fmt::format("{}.json has no peers", file));
        std::string text = fmt::format("{}; {}:\n", recorded_label(results), libraries(results));
        for (const Table& table : comparison_tables(results, stage)) {
            if (only_means && !table.key().ends_with("_summary")) continue;
            text += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        }
        return text;
    }

    static Results recorded(std::string_view file) {
        return load_results(results_folder() / fmt::format("{}.json", file));
    }

    static constexpr std::string_view record = "record ", peers = "peers ", peer_means = "peer_means ";

    std::unique_ptr<Device> cpu_;
    std::optional<Results> recorded_ = newest_results(results_folder());
    std::optional<Profile> profiled_ = recorded_profile();
};

// The text with every generated block made anew.
std::string regenerated(const std::string& text, const fs::path& path, Generator& generator,
                        const Stage* stage) {
    std::string result;
    std::size_t at = 0;
    for (std::size_t start; (start = text.find(opening, at)) != text.npos;) {
        const std::size_t name_start = start + opening.size(), name_end = text.find(" -->", name_start);
        const std::size_t end = text.find(closing, start);
        if (name_end == text.npos || end == text.npos) {
            throw BadUsage(fmt::format("{}: a generated block has no {}", path.string(), closing));
        }
        const std::string name = text.substr(name_start, name_end - name_start);
        result += text.substr(at, start - at);
        result += fmt::format("{}{} -->\n{}", opening, name, generator.block(name, stage));
        at = end;
    }
    return result + text.substr(at);
}

struct Page {
    fs::path path;
    const Stage* stage;
};

std::vector<Page> pages() {
    const fs::path root = LADDER_SOURCE_DIR;
    std::vector<Page> list{{root / "README.md", nullptr}, {root / "stages" / "README.md", nullptr}};
    for (const Stage& stage : stages())
        list.push_back({root / "stages" / stage.folder() / "README.md", &stage});
    std::erase_if(list, [](const Page& page) { return !fs::exists(page.path); });
    return list;
}

Document run(const Options& options) {
    Document document;
    Table table("pages", "", {{"page", "page"}, {"state", "generated blocks"}});
    Generator generator;
    int stale = 0;
    for (const auto& [path, stage] : pages()) {
        const std::string text = read_file(path);
        const std::string fresh = regenerated(text, path, generator, stage);
        const bool same = fresh == text;
        if (!same && !options.check) OutputFile(path).write(fresh);
        stale += !same;
        table.add_row({fs::relative(path, LADDER_SOURCE_DIR).string(), same ? Cell("up to date", Tone::good)
                                                                       : options.check
                                                                           ? Cell("out of date", Tone::bad)
                                                                           : Cell("rewritten")});
    }
    document.tables = {table};
    if (options.check && stale > 0)
        document.failure =
            fmt::format("{} of {} pages are out of date; run lab tables", stale, table.rows().size());
    return document;
}

}  // namespace

void add_tables(CLI::App& lab) {
    add_command(lab, "tables", "Rewrite the generated tables of the README files", run)
        ->group("For maintainers");
}

}  // namespace ladder
