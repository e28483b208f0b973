#include "harness/features/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/patterns.h"
#include "harness/problem/shape.h"

namespace ladder {
namespace {

/// The four bounds of a key.
struct FourBounds {
    int LTS, LTE, UTS = 0, UTE = 0;
};

/// Cuts 0 .. Nk into pieces, as documents or questions are packed: where each piece begins, and Nk. Half of
/// them are as long as the mean, the others of any length below twice that.
std::vector<int> cuts(std::mt19937_64& random, int Nk, int pieces) {
    const int mean = std::max(1, Nk / pieces);
    std::vector<int> begin{0};
    while (begin.back() < Nk) {
        const int length = random() % 2 == 0 ? mean : 1 + static_cast<int>(random() % (2 * mean));
        begin.push_back(std::min(Nk, begin.back() + length));
    }
    return begin;
}

/// Bounds of one head by pattern. Masks are drawn over positions: of row i that is i + Nk - Nq.
class Pattern {
  public:
    Pattern(const Case& c, std::uint64_t head)
        : c_(c), Nq_(c.shape.Nq), Nk_(c.shape.Nk), random_(c.seed + 1000003 * head) {}

    std::vector<FourBounds> draw() {
        std::vector<FourBounds> bounds(Nk_, {Nq_, Nq_});
        if (c_.features.columns == "documents") {
            packed(bounds, 8, [&](FourBounds& b, int, int begin, int end) {
                b.LTS = row_at(end);
                b.UTE = row_at(begin);
            });
        } else if (c_.features.columns == "prefix") {
            packed(bounds, 8, [&](FourBounds& b, int key, int begin, int end) {
                const int prefix = begin + (end - begin) / 4;  // whose keys all rows of the document see
                b.LTS = row_at(end);
                b.UTE = row_at(key < prefix ? begin : key);
            });
        } else if (c_.features.columns == "shared_question") {
            packed(bounds, 4, [&](FourBounds& b, int key, int begin, int end) {
                const int answer = std::max(1, (end - begin) / 5);  // the question and four answers
                const int part = (key - begin) / answer;
                b.LTS = row_at(part == 0 ? end : std::min(end, begin + (part + 1) * answer));
                b.UTE = row_at(key);
            });
        } else if (c_.features.columns == "global_window") {
            const int global = std::max(1, Nk_ / 64), window = std::max(1, Nk_ / 16);
            for (int key = global; key < Nk_; ++key)  // the first tokens see all, and all see them
                bounds[key] = {std::max(row_at(key + window), row_at(global)), Nq_, row_at(global),
                               row_at(key - window + 1)};
        } else if (c_.features.columns == "eviction") {
            for (int key = 0; key < Nk_; ++key) {
                bounds[key].LTS = row_at(key + 1 + below(Nk_ - key));
                bounds[key].UTE = row_at(key);
            }
        } else {
            for (FourBounds& b : bounds) b = random_bounds();
        }
        return bounds;
    }

  private:
    /// A row, half of the time next to the edge of a tile.
    int some_row() {
        const int row = below(Nq_ + 1);
        return below(2) == 0 ? row : std::clamp((row + 32) / 64 * 64 + below(3) - 1, 0, Nq_);
    }
    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(std::max(1, n))); }
    /// The first row at or after a position.
    int row_at(int position) const { return std::clamp(position - Nk_ + Nq_, 0, Nq_); }

    /// Sets the bounds of each key of each piece [begin, end).
    template <class Set>
    void packed(std::vector<FourBounds>& bounds, int pieces, Set set) {
        const std::vector<int> begin = cuts(random_, Nk_, pieces);
        for (std::size_t k = 0; k + 1 < begin.size(); ++k) {
            for (int key = begin[k]; key < begin[k + 1]; ++key) set(bounds[key], key, begin[k], begin[k + 1]);
        }
    }

    /// Runs of keys with the same bounds, so that tiles are hidden, full and neither; of an interval empty,
    /// whole, reversed or past the end, now and then.
    FourBounds random_bounds() {
        if (left_ == 0) {
            left_ = 1 + below(150);
            const auto interval = [&](int& start, int& end) {
                start = some_row(), end = some_row();
                const int kind = below(6);
                if (kind < 3 && start > end) std::swap(start, end);
                if (kind == 3) start = end = below(2) * Nq_;
                if (kind == 4 && below(2) == 0) start = 0, end = Nq_ + below(3);
            };
            interval(run_.LTS, run_.LTE);
            interval(run_.UTS, run_.UTE);
        }
        left_ -= 1;
        return run_;
    }

    const Case& c_;
    const int Nq_, Nk_;
    std::mt19937_64 random_;
    FourBounds run_{};
    int left_ = 0;  // keys of the run
};

}  // namespace

const std::vector<ColumnPattern>& column_patterns() {
    static const std::vector<ColumnPattern> patterns{
        {"documents", "documents packed in one sequence: a row sees its own", 2, 1, MaskOf::all_heads},
        {"prefix", "documents whose first quarter is seen by all of their rows, the rest up to the diagonal",
         2, 1, MaskOf::all_heads},
        {"shared_question", "a question and four answers, which see the question and themselves", 2, 1,
         MaskOf::all_heads},
        {"global_window",
         "a window of 1/16 of the keys on both sides; the first 1/64 see and are seen by all", 4, 4,
         MaskOf::all_heads},
        {"eviction", "each key is dropped at a row of its own, drawn", 2, 1, MaskOf::all_heads},
        {"query_heads", "runs of keys with any bounds, of each query head its own", 4, 2,
         MaskOf::query_heads},
        {"random", "runs of keys with any bounds, of each key/value head its own", 4, 4, MaskOf::key_heads},
    };
    return patterns;
}

const ColumnPattern& column_pattern(std::string_view name) {
    return pattern_named(column_patterns(), name, "column bounds");
}

std::vector<int> make_columns(const Case& c) {
    const ColumnPattern& pattern = column_pattern(c.features.columns);
    const int heads = pattern.heads(c.shape), count = pattern.bounds(c);
    std::vector<int> all;
    for (int head = 0; head < c.shape.B * heads; ++head) {
        for (const FourBounds& b : Pattern(c, pattern.mask_of == MaskOf::all_heads ? 0 : head).draw()) {
            all.push_back(b.LTS);
            if (count == 2) all.push_back(c.causal ? b.LTE : b.UTE);
            if (count == 4) all.insert(all.end(), {b.LTE, b.UTS, b.UTE});
        }
    }
    return all;
}

std::vector<reference::HiddenRows> hidden_rows(const Case& c, int b, int h) {
    std::vector<reference::HiddenRows> hidden;
    if (c.features.columns.empty()) return hidden;
    const ColumnPattern& pattern = column_pattern(c.features.columns);
    const int heads = pattern.heads(c.shape), count = pattern.bounds(c), Nq = c.shape.Nq;
    const std::vector<int> all = make_columns(c);
    const int* own = all.data() + std::size_t(b * heads + h / (c.shape.H / heads)) * c.shape.Nk * count;
    for (int key = 0; key < c.shape.Nk; ++key, own += count) {
        if (count == 1) hidden.push_back({{own[0], 0}, {Nq, 0}});
        if (count == 2 && c.causal) hidden.push_back({{own[0], 0}, {own[1], 0}});
        if (count == 2 && !c.causal) hidden.push_back({{own[0], 0}, {Nq, own[1]}});
        if (count == 4) hidden.push_back({{own[0], own[2]}, {own[1], own[3]}});
    }
    return hidden;
}

double scores_of_columns(const Case& c) {
    const auto [B, H, Hkv, Nq, Nk, d] = c.shape;
    const auto rows_before = [](std::int64_t row, int N) { return std::clamp<std::int64_t>(row, 0, N); };
    const int heads = c.features.columns.empty() ? 1 : column_pattern(c.features.columns).heads(c.shape);
    const int right = c.causal ? 0 : c.features.window.right;
    double scores = 0;
    for (int b = 0; b < B; ++b) {
        for (int head = 0; head < heads; ++head) {
            const auto hidden = hidden_rows(c, b, head * (H / heads));
            double own = 0;
            for (int key = 0; key < Nk; ++key) {
                // The rows whose window the key is in, less those that it hides from.
                const std::int64_t at = std::int64_t{key} - Nk + Nq;
                const std::int64_t begin = right < 0 ? 0 : rows_before(at - right, Nq);
                const std::int64_t end =
                    c.features.window.left < 0 ? Nq : rows_before(at + c.features.window.left + 1, Nq);
                const auto within = [&](int first, int last) {
                    return std::max<std::int64_t>(
                        0, std::min<std::int64_t>(end, last) - std::max<std::int64_t>(begin, first));
                };
                own += static_cast<double>(std::max<std::int64_t>(0, end - begin));
                if (hidden.empty()) continue;
                const auto& [first, last] = hidden[key];
                own -= static_cast<double>(within(first[0], last[0]) + within(first[1], last[1]) -
                                           within(std::max(first[0], first[1]), std::min(last[0], last[1])));
            }
            scores += own * (H / heads);
        }
    }
    return scores;
}

namespace {

void put_columns(Case& c, const std::string& pattern) {
    c.features.columns = pattern;
}

/// (B, heads, Nk, bounds), each bound a row or Nq.
void take_columns(const Given& given, Problem& p, Features& f) {
    const Array& columns = *given.array("columns");
    const auto& axes = columns.axes;
    const Axes& Q = given.Q;
    if (axes.size() != 4 || axes[0] != Q[0] || axes[1] < 1 || Q[1] % axes[1] != 0 || axes[2] != given.Nk ||
        (axes[3] != 1 && axes[3] != 2 && axes[3] != 4)) {
        refuse("columns", "they are {}; expected ({}, a divisor of {} heads, {}, 1, 2 or 4 bounds)",
               axes_text(axes), Q[0], Q[1], given.Nk);
    }
    require_range("columns", given.readable("columns"), "a bound", Q[2]);
    p.columns = {columns.integers(), static_cast<int>(axes[1]), static_cast<int>(axes[3])};
    f.columns = given_numbers;
}

/// Keys with one bound, two and four: with a causal mask and without, two are not the same ones.
std::vector<Case> columns_corners(const Stage& stage, int d, const Tiling& t) {
    std::vector<Case> cases;
    for (const char* pattern : {"documents", "query_heads"}) {
        for (const bool causal : {false, true}) {
            cases.push_back({.shape = {1, 2, 1, t.Br + 6, t.Bc + 30, d},
                             .pass = stage.pass,
                             .causal = causal,
                             .features = {.columns = pattern}});
        }
    }
    return cases;
}

}  // namespace

FeatureInfo columns_feature() {
    auto info = pattern_feature<&Features::columns, column_patterns, column_pattern, put_columns>(
        Feature::columns, "--columns",
        "Column bounds, drawn from the seed: for each key, query rows that do not see it (FlashMask)");
    info.why_not_timed = [](const Features& f) {
        return why_pattern_not_timed("--columns", column_pattern(f.columns), "bounds");
    };
    info.array = "column bounds";
    info.numbers = make_columns;
    info.fill = [](const Case& c, const void* numbers, Problem& p) {
        const ColumnPattern& pattern = column_pattern(c.features.columns);
        p.columns = {static_cast<const int*>(numbers), pattern.heads(c.shape), pattern.bounds(c)};
    };
    info.mask = [](const Case& c, int b, int h, reference::Mask& mask) {
        mask.hidden = hidden_rows(c, b, h);
    };
    info.visible_scores = scores_of_columns;
    info.tell_peers = [](const Case& c, nlohmann::json& features) {  // LTS, LTE, UTS and UTE of each key
        features["columns"] = nlohmann::json::array();
        for (const auto& [begin, end] : hidden_rows(c, 0, 0))
            features["columns"].push_back({begin[0], end[0], begin[1], end[1]});
    };
    info.arguments = {{"columns", CallArgument::Kind::int32, "column bounds"}};
    info.take = take_columns;
    info.put_on_diagonal = [](int, std::size_t, Case& c) { c.features.columns = "random"; };
    info.corners = columns_corners;
    info.put_small = [](Case& c) {  // gradients are counted without them
        if (c.pass == Pass::forward) c.features.columns = "documents";
    };
    return info;
}

}  // namespace ladder
