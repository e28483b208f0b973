#include "harness/report/climb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/base/table.h"
#include "harness/problem/shape.h"
#include "harness/report/problem_rows.h"
#include "harness/time/peers.h"

namespace ladder {
namespace {

// --- The data ---------------------------------------------------------------------------------------

// The stages on the way to the last one here whose change shows in a problem of this unit, in that order.
std::vector<const Row*> path(const std::vector<ProblemRows>& problems, const ProblemRows& problem) {
    int last = -1;
    for (const ProblemRows& p : problems) {
        if (counts_bytes(p.first->shape) != counts_bytes(problem.first->shape)) continue;
        for (const Row* row : p.rows) {
            const Row* here = problem.row(row->stage);
            if (row->shows_here && here != nullptr && here->timing) last = std::max(last, row->stage);
        }
    }
    std::vector<const Row*> rows;
    for (const Row* row = problem.row(last); row != nullptr; row = problem.row(row->parent))
        rows.push_back(row);
    std::reverse(rows.begin(), rows.end());
    return rows;
}

std::set<int> numbers(const std::vector<const Row*>& rows) {
    std::set<int> numbers;
    for (const Row* row : rows) numbers.insert(row->stage);
    return numbers;
}

std::string describe(const Row& row) {
    const Shape& s = row.shape;
    const std::string heads =
        s.H == s.Hkv ? fmt::format("{} heads of {}", s.H, s.d) : fmt::format("{} heads over {}", s.H, s.Hkv);
    return fmt::format("{}{}, {} {}, {}, {}", s.B > 1 ? fmt::format("{} x ", s.B) : "", heads,
                       short_size(s.Nk), s.Nq == 1 ? "keys" : "tokens",
                       s.Nq == 1    ? "one query"
                       : row.causal ? "causal mask"
                                    : "no mask",
                       name(row.dtype));
}

Climb make_climb(const Results& results, const ProblemRows& problem, const std::vector<const Row*>& rows,
                 const std::set<int>& shared) {
    const Row& first = *problem.first;
    Climb climb{.name = first.regime,
                .title = problem.short_name(),
                .problem = describe(first),
                .machine = results.hardware.gpu,
                .unit = first.unit,
                .steps = {},
                .yardsticks = {}};
    for (const Row* row : rows) {
        Climb::Step step{.folder = row->folder,
                         .rate = {},
                         .over_parent = {},
                         .shows_here = row->shows_here,
                         .shared = shared.contains(row->stage)};
        if (row->timing && row->verified) step.rate = row->rate;
        if (row->over_parent) step.over_parent = row->over_parent->value;
        climb.steps.push_back(step);
    }
    for (const PeerRow* peer : problem.peers) {
        if (peer->timing && peer->peer != Peers::slow) climb.yardsticks.push_back({peer->peer, peer->rate});
    }
    if (counts_bytes(first.shape) && results.ceilings.copy_gbs)
        climb.yardsticks.push_back({"a copy", *results.ceilings.copy_gbs});
    std::stable_sort(climb.yardsticks.begin(), climb.yardsticks.end(),
                     [](const auto& a, const auto& b) { return a.rate < b.rate; });
    return climb;
}

std::string rate_text(double rate) {
    return fmt::format("{:.{}f}", rate, rate < 10 ? 1 : 0);
}

std::string speedup_text(double speedup) {
    return fmt::format("{:.{}f}x", speedup, speedup < 10 ? 2 : 0);
}

// --- The picture ------------------------------------------------------------------------------------

// In the pixels of a narrow phone, nearly; a page may show it larger.
constexpr double width = 370;
constexpr double letter_width = 6.25, speedup_width = 40;
constexpr double title_end = 40, line_height = 15, row_height = 21, bar_height = 13;

struct Palette {
    const char *page, *text, *faint, *grid, *trunk, *decode, *prefill;
};

// The hues of the notebooks (notebooks/ladder.py); in the dark, lighter.
Palette palette(Theme theme) {
    return theme == Theme::light
               ? Palette{"#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#3b6ea8", "#3a8f5c", "#d07a28"}
               : Palette{"#0d1117", "#e6edf3", "#9198a1", "#3d444d", "#6ca6e8", "#56bd81", "#eb9a4d"};
}

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            default:
                result += c;
        }
    }
    return result;
}

// The elements, line by line. Coordinates have one decimal, so that every compiler writes the same bytes.
class Drawing {
  public:
    void text(double x, double y, const char* classes, const std::string& words) {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, classes,
                            escaped(words));
    }
    void bar(double from, double to, double y, double height, const std::string& classes) {
        svg_ +=
            fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>\n",
                        from, y, to - from, height, classes);
    }
    void line(double x, double from, double to, const char* classes) {
        svg_ += fmt::format("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" class=\"{3}\"/>\n", x, from, to, classes);
    }
    const std::string& svg() const { return svg_; }

  private:
    std::string svg_;
};

// Turns rates into places. All bars fit with their speedups behind them, and all yardsticks.
struct Scale {
    double top = 0;  // the largest rate of all
    double start = 0, per_rate = 0;

    explicit Scale(const Climb& climb) {
        double longest_bar = 0;
        std::size_t longest_name = 0;
        for (const Climb::Step& step : climb.steps) {
            longest_bar = std::max(longest_bar, step.rate.value_or(0));
            longest_name = std::max(longest_name, step.folder.size());
        }
        top = longest_bar;
        for (const Climb::Yardstick& yardstick : climb.yardsticks) top = std::max(top, yardstick.rate);
        start = letter_width * static_cast<double>(longest_name);
        const double room = width - 14 - start;  // half a number of the axis
        per_rate = std::min(room / top, (room - speedup_width) / longest_bar);
    }
    double operator()(double rate) const { return start + per_rate * rate; }

    // 1, 2 or 5 times a power of ten: at most five of them fit
    double tick() const {
        const double power = std::pow(10, std::floor(std::log10(top / 5)));
        for (const double factor : {1, 2, 5}) {
            if (top / (factor * power) <= 5) return factor * power;
        }
        return 10 * power;
    }
};

}  // namespace

std::vector<Climb> climbs(const Results& results) {
    const auto problems = by_problem(results);
    std::set<int> shared;
    bool any = false;
    for (const ProblemRows& problem : problems) {
        const std::set<int> own = numbers(path(problems, problem));
        if (!any) shared = own;
        any = true;
        std::erase_if(shared, [&](int stage) { return !own.contains(stage); });
    }
    std::vector<Climb> climbs;
    for (const char* regime : {"train", "causal", "decode"}) {
        std::vector<const ProblemRows*> candidates;
        for (const ProblemRows& problem : problems) {
            if (problem.first->regime == regime) candidates.push_back(&problem);
        }
        if (candidates.empty()) continue;
        const ProblemRows& problem = *candidates[candidates.size() / 2];
        const Climb climb = make_climb(results, problem, path(problems, problem), shared);
        const bool timed = std::any_of(climb.steps.begin(), climb.steps.end(),
                                       [](const auto& step) { return step.rate.has_value(); });
        if (timed) climbs.push_back(climb);
    }
    return climbs;
}

std::string file_name(const Climb& climb, Theme theme) {
    return fmt::format("{}-{}.svg", climb.name, theme == Theme::light ? "light" : "dark");
}

std::string to_svg(const Climb& climb, Theme theme) {
    const Palette colors = palette(theme);
    const Scale at(climb);
    const auto& yardsticks = climb.yardsticks;
    const double header_end =
        title_end + line_height * static_cast<double>(std::max<std::size_t>(yardsticks.size(), 2));
    const double top = header_end + 8;
    const double bottom = top + row_height * static_cast<double>(climb.steps.size());

    Drawing drawing;
    drawing.text(0, 16, "title", fmt::format("{}: {}", climb.title, climb.unit));
    drawing.text(0, 33, "faint", climb.problem);
    const char* own_branch = climb.unit == "GB/s" ? "decode" : "prefill";
    drawing.bar(0, 9, header_end - line_height - 8.5, 9, own_branch);
    drawing.text(14, header_end - line_height, "faint", "gained by the change");
    drawing.bar(0.5, 8.5, header_end - 8, 8, "lost");
    drawing.text(14, header_end, "faint", "lost by it");
    for (double rate = 0; rate <= at.top; rate += at.tick()) {
        drawing.line(at(rate), top, bottom, "grid");
        drawing.text(at(rate), bottom + 14, "faint middle", fmt::format("{:.0f}", rate));
    }
    for (std::size_t i = 0; i < yardsticks.size(); ++i) {
        const double y = header_end - line_height * static_cast<double>(i);
        const double x = at(yardsticks[i].rate);
        drawing.line(x, y - 10, bottom, "yardstick");
        drawing.text(x - 4, y, "faint end",
                     fmt::format("{} {}", yardsticks[i].name, rate_text(yardsticks[i].rate)));
    }
    for (std::size_t i = 0; i < climb.steps.size(); ++i) {
        const Climb::Step& step = climb.steps[i];
        const double y = top + row_height * static_cast<double>(i) + (row_height - bar_height) / 2;
        const double baseline = y + bar_height - 2.5;
        drawing.text(0, baseline, step.shows_here ? "strong" : "plain", in_words(step.folder));
        if (!step.rate) continue;
        const double end = at(*step.rate),
                     before = step.over_parent ? at(*step.rate / *step.over_parent) : end;
        const char* branch = step.shared ? "trunk" : own_branch;
        drawing.bar(at(0), std::min(before, end), y, bar_height, fmt::format("{} kept", branch));
        if (end > before) drawing.bar(before, end, y, bar_height, branch);
        if (end < before) drawing.bar(end, before, y + 0.5, bar_height - 1, "lost");
        const double behind = std::max(before, end) + 5;
        drawing.text(behind, baseline, step.shows_here ? "strong" : "faint",
                     step.over_parent ? speedup_text(*step.over_parent)
                                      : fmt::format("{} {}", rate_text(*step.rate), climb.unit));
    }
    return fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img">
<title>{2}</title>
<style>
text {{ font: 12px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: {4};
 stroke: {3}; stroke-width: 3px; stroke-linejoin: round; paint-order: stroke }}
.title {{ font-size: 15px; font-weight: 600 }} .strong {{ font-weight: 600 }}
.faint {{ fill: {5}; font-size: 11px }} .middle {{ text-anchor: middle }} .end {{ text-anchor: end }}
.trunk {{ fill: {7} }} .decode {{ fill: {8} }} .prefill {{ fill: {9} }} .kept {{ fill-opacity: 0.4 }}
.lost {{ fill: none; stroke: {5}; stroke-dasharray: 2 2 }}
.grid {{ stroke: {6} }} .yardstick {{ stroke: {5}; stroke-dasharray: 4 3 }}
</style>
{10}</svg>
)",
        width, bottom + 26, escaped(to_words(climb)), colors.page, colors.text, colors.faint, colors.grid,
        colors.trunk, colors.decode, colors.prefill, drawing.svg());
}

std::string to_html(const Climb& climb, const std::string& folder) {
    return fmt::format(
        "<picture>\n<source media=\"(prefers-color-scheme: dark)\" srcset=\"{0}/{1}\">\n"
        "<img width=\"400\" alt=\"{2}\" src=\"{0}/{3}\">\n</picture>\n",
        folder, file_name(climb, Theme::dark), escaped(to_words(climb)), file_name(climb, Theme::light));
}

std::string to_words(const Climb& climb) {
    std::string words = fmt::format("{} in {} on {}:", climb.title, climb.unit, climb.machine);
    for (const Climb::Step& step : climb.steps) {
        words +=
            fmt::format(" {} {}", in_words(step.folder), step.rate ? rate_text(*step.rate) : "not timed");
        if (step.over_parent) words += fmt::format(" ({})", speedup_text(*step.over_parent));
        words += ",";
    }
    for (const Climb::Yardstick& yardstick : climb.yardsticks)
        words += fmt::format(" {} {},", yardstick.name, rate_text(yardstick.rate));
    words.pop_back();
    return words;
}

}  // namespace ladder
