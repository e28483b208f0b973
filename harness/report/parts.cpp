#include "harness/report/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "harness/base/file.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/regimes.h"
#include "harness/report/problem_rows.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

std::vector<const Stage*> stages_of(int part) {
    std::vector<const Stage*> own;
    for (const Stage& stage : stages()) {
        if (part_of(stage.number) == part) own.push_back(&stage);
    }
    return own;
}

// The stage that the part starts from: its first one's parent, or the first of all.
const Stage* start_of(int part) {
    const auto own = stages_of(part);
    if (own.empty()) return nullptr;
    const Stage* parent = find_stage(own.front()->parent);
    return parent != nullptr ? parent : own.front();
}

bool descends_from(const Stage& stage, const Stage& ancestor) {
    const Stage* at = &stage;
    while (at != nullptr && at->number != ancestor.number) at = find_stage(at->parent);
    return at != nullptr;
}

struct Opening {
    std::string title, first_sentence;
};

// How a part's page begins: "# Decoding: 10 to 17", and then what it teaches.
Opening opening_of(const fs::path& page) {
    const std::string text = read_file(stages_folder() / page);
    const std::size_t line_end = text.find('\n');
    const std::size_t start = text.find_first_not_of('\n', line_end);
    const std::size_t paragraph_end = std::min(text.find("\n\n", start), text.size());
    std::string paragraph = text.substr(start, paragraph_end - start);
    std::replace(paragraph.begin(), paragraph.end(), '\n', ' ');
    return {text.substr(2, line_end - 2), paragraph.substr(0, paragraph.find(". "))};
}

}  // namespace

Table parts_table(const Results& results, const std::string& folder) {
    Table table("parts", "",
                {{"part", "part"},
                 {"start", "starts from"},
                 {"teaches", "what it teaches"},
                 {"gain", "what it reaches"},
                 {"peer", "of FlashAttention-2's speed", Align::right}});
    const auto problems = by_problem(results);
    for (const auto& [part, page] : part_pages()) {
        const auto own = stages_of(part);
        if (own.empty()) continue;
        const Stage& start = *start_of(part);
        const bool is_chain = std::all_of(
            own.begin(), own.end(), [&](const Stage* stage) { return descends_from(*stage, *own.front()); });
        std::string gain, peer;
        // What the first rung of another pass starts from computes something else.
        const int compared = start.pass == own.front()->pass ? start.number : own.front()->number;
        for (const char* regime : {"train", "decode", "backward"}) {
            const ProblemRows* problem = telling_problem(problems, regime);
            const Row* first = problem != nullptr ? problem->row(compared) : nullptr;
            const Row* last = nullptr;
            for (const Stage* stage : own) {
                const bool in_its_field = is_decoding(stage->shows_in) == is_decoding(regime);
                const Row* row = problem != nullptr ? problem->row(stage->number) : nullptr;
                const bool leads_on = is_chain && in_its_field && !is_for_order(*stage);
                if (leads_on && row != nullptr && row->timing) last = row;
            }
            if (first == nullptr || last == nullptr || !first->timing) continue;
            const char* separator = gain.empty() ? "" : ", ";
            gain += fmt::format("{}{:02} over {:02}: {:.2f}x ({})", separator, last->stage, first->stage,
                                first->timing->median_ms / last->timing->median_ms, problem->short_name());
            if (const PeerRow* row = problem->peer("FlashAttention-2"); row != nullptr && row->timing)
                peer += fmt::format("{}{:.2f}x", separator, row->timing->median_ms / last->timing->median_ms);
        }
        const auto [title, teaches] = opening_of(page);
        const fs::path link = fs::path("stages").lexically_relative(folder) / page;
        table.add_row({fmt::format("[{}]({})", title, link.lexically_normal().string()),
                       &start == own.front() ? std::string() : fmt::format("{:02}", start.number), teaches,
                       gain, peer});
    }
    return table;
}

std::string title_of(const Stage& stage) {
    const fs::path lesson = stages_folder() / stage.folder() / "README.md";
    if (!fs::exists(lesson)) return in_words(stage.folder());
    const std::string text = read_file(lesson);
    return text.substr(2, text.find_first_of(":\n") - 2);
}

Results of_part(const Results& results, int part) {
    const Stage* start = start_of(part);
    std::set<std::string> units;
    for (const Row& row : results.rows) {
        if (row.shows_here && part_of(row.stage) == part) units.insert(row.unit);
    }
    const auto stages = stages_of(part);
    const auto elsewhere = [&](const Measurement& row) {
        return !units.contains(row.unit) || (!stages.empty() && row.pass != stages.front()->pass);
    };
    Results own = results;
    std::erase_if(own.rows, [&](const Row& row) {
        const bool is_own = part_of(row.stage) == part || (start != nullptr && row.stage == start->number);
        return !is_own || elsewhere(row);
    });
    std::erase_if(own.peers, elsewhere);
    return own;
}

}  // namespace ladder
