#include "harness/verify/mismatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "harness/features/features.h"
#include "reference/attention.h"

namespace ladder {
namespace {

/// The share of a set that has to be wrong for the set to be called wrong: a wrong element can be right by
/// accident.
bool mostly(std::size_t wrong, std::size_t all) {
    return wrong > 0 && 4 * wrong >= 3 * all;
}

std::vector<int> indices_up_to(std::size_t n) {
    std::vector<int> indices(n);
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
}

std::size_t count(const std::vector<bool>& set) {
    return static_cast<std::size_t>(std::count(set.begin(), set.end(), true));
}

}  // namespace

/// Sets of indices that coincide and fit best, by name.
struct Mismatch::Fit {
    std::vector<std::string> names;
    std::size_t size = 0;  ///< of the set

    std::string in_words() const;
};

Mismatch::Mismatch(const Case& c, std::vector<int> rows, int columns, RowsOf rows_of)
    : case_(c),
      rows_of_(rows_of),
      of_keys_(rows_of == RowsOf::keys),
      batches_(rows_of == RowsOf::heads ? 1 : c.shape.B),
      heads_(of_keys_ ? c.shape.Hkv : c.shape.H),
      rows_(std::move(rows)),
      wrong_heads_(static_cast<std::size_t>(batches_) * heads_),
      wrong_rows_of_heads_(wrong_heads_.size() * rows_in(c.shape, rows_of)),
      wrong_rows_(rows_in(c.shape, rows_of)),
      wrong_columns_(columns),
      row_error_(wrong_rows_.size()) {}

void Mismatch::add(int b, int h, int row, int column, double expected, double got) {
    double error = std::abs(expected - got);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (count_++ == 0 || error > worst_.error) worst_ = {b, h, row, column, expected, got, error};
    wrong_heads_[static_cast<std::size_t>(b) * heads_ + h] = true;
    wrong_rows_of_heads_[(static_cast<std::size_t>(b) * heads_ + h) * wrong_rows_.size() + row] = true;
    wrong_rows_[row] = true;
    wrong_columns_[column] = true;
    row_error_[row] = std::max(row_error_[row], error);
}

std::string Mismatch::report(const std::string& what, const std::string& detail) const {
    if (count_ == 0) return "";
    const std::size_t all = wrong_heads_.size() * rows_.size() * wrong_columns_.size();
    const bool has_columns = wrong_columns_.size() > 1;
    std::string place = fmt::format("b={} {}={} {}={}{}, {} tile {}", worst_.b, of_keys_ ? "h_kv" : "h",
                                    worst_.h, of_keys_ ? "key" : "row", worst_.row,
                                    has_columns ? fmt::format(" column={}", worst_.column) : "",
                                    of_keys_ ? "key" : "query", worst_.row / tile);
    if (rows_of_ == RowsOf::heads) place = fmt::format("h={}", worst_.h);
    return fmt::format("{} in {} of {} elements{}\n  {} at {}: {}got {:.6g}{}", what, count_, all, detail,
                       std::isfinite(worst_.error) ? "worst" : "first", place,
                       std::isnan(worst_.expected) ? "" : fmt::format("expected {:.6g}, ", worst_.expected),
                       worst_.got, pattern().empty() ? "" : "\n  pattern: " + pattern());
}

std::string Mismatch::pattern() const {
    Fit fit = rows_of_ == RowsOf::heads ? Fit() : of_keys_ ? fit_of_keys() : fit_of_rows();
    // A set of rows is the same in each head, and those whose maximum rises are others in each.
    std::size_t rows_of_heads = count(wrong_heads_) * count(wrong_rows_);
    if (const Fit rising = fit_of_rising_rows(); !rising.names.empty()) {
        const std::size_t all_heads = fit.size * count(wrong_heads_);
        if (!fit.names.empty() && all_heads == rising.size) {
            fit.names.push_back(rising.names.front());
        } else if (fit.names.empty() || rising.size < all_heads) {
            fit = rising;
            rows_of_heads = rising.size;
        }
    }
    const std::size_t box = rows_of_heads * count(wrong_columns_);
    const bool dense = mostly(count_, box);
    const std::string heads = heads_in_words(), rows = fit.in_words(), columns = columns_in_words();

    std::vector<std::string> parts;
    if (!heads.empty() && rows.empty() && columns.empty() && dense) {
        parts.push_back("whole heads: " + heads);
    } else {
        for (const std::string& part : {heads, rows, columns}) {
            if (!part.empty()) parts.push_back(part);
        }
    }
    if (grows_with_visible_keys()) parts.push_back("the error grows with the number of keys that a row sees");
    if (parts.empty()) {
        const std::size_t all = wrong_heads_.size() * rows_.size() * wrong_columns_.size();
        return mostly(count_, all) ? "everything is wrong" : "";
    }
    if (!dense) parts.push_back(fmt::format("{:.2g}% of these elements", 100.0 * count_ / box));
    return fmt::format("{}", fmt::join(parts, "; "));
}

/// The tightest regions that hold every wrong index and are mostly wrong; empty if there is none, or if
/// everything is wrong. Regions that coincide for this shape are all named.
Mismatch::Fit Mismatch::fit(const std::vector<int>& indices, const std::vector<bool>& wrong,
                            const std::vector<Region>& regions, const char* one, const char* many) {
    const auto is_wrong = [&](int index) { return wrong[static_cast<std::size_t>(index)]; };
    const auto all_wrong = static_cast<std::size_t>(std::count_if(indices.begin(), indices.end(), is_wrong));
    if (all_wrong == indices.size()) return {};

    const auto first = std::find_if(indices.begin(), indices.end(), is_wrong);
    const auto last = std::find_if(indices.rbegin(), indices.rend(), is_wrong);
    const auto range = [&](int index) { return *first <= index && index <= *last; };
    const Region fallback{
        *first == *last ? fmt::format("{} {}", one, *first) : fmt::format("{} {}..{}", many, *first, *last),
        range};

    const auto tightest = [&](const std::vector<Region>& candidates) {
        Fit best{{}, indices.size()};  // a region of every index says nothing
        for (const Region& region : candidates) {
            const auto size =
                static_cast<std::size_t>(std::count_if(indices.begin(), indices.end(), region.contains));
            const bool holds_all = std::all_of(indices.begin(), indices.end(), [&](int index) {
                return !is_wrong(index) || region.contains(index);
            });
            if (!holds_all || !mostly(all_wrong, size) || size > best.size || size == indices.size())
                continue;
            if (size < best.size) best.names.clear();
            best.size = size;
            best.names.push_back(region.name);
        }
        return best;
    };
    const Fit best = tightest(regions);
    return best.names.empty() ? tightest({fallback}) : best;
}

std::string Mismatch::Fit::in_words() const {
    return names.empty() ? "" : fmt::format("only {}", fmt::join(names, ", that is, "));
}

std::string Mismatch::heads_in_words() const {
    std::vector<int> batches, heads;
    for (int b = 0; b < batches_; ++b) {
        const auto first = wrong_heads_.begin() + std::ptrdiff_t{b} * heads_;
        if (std::find(first, first + heads_, true) != first + heads_) batches.push_back(b);
    }
    for (int h = 0; h < heads_; ++h) {
        bool wrong = false;
        for (int b = 0; b < batches_; ++b)
            wrong = wrong || wrong_heads_[static_cast<std::size_t>(b) * heads_ + h];
        if (wrong) heads.push_back(h);
    }
    if (batches.size() * heads.size() != count(wrong_heads_)) return "";
    const bool every_batch = batches.size() == static_cast<std::size_t>(batches_);
    const bool every_head = heads.size() == static_cast<std::size_t>(heads_);
    std::string text;
    if (!every_batch) text += fmt::format("only b = {}", fmt::join(batches, ", "));
    if (!every_head)
        text += fmt::format("{}{} = {}", every_batch ? "only " : ", ", of_keys_ ? "h_kv" : "h",
                            fmt::join(heads, ", "));
    if (every_batch && !every_head && !of_keys_) text += group_in_words(heads);
    if (!every_batch && every_head && batches.front() > 0) text += " (batch stride?)";
    return text;
}

/// What wrong heads have in common in their groups; empty if that is nothing.
std::string Mismatch::group_in_words(const std::vector<int>& wrong) const {
    const int H = case_.shape.H, Hkv = case_.shape.Hkv, group = H / Hkv;
    if (group == 1) return "";
    const auto are = [&](auto&& expected) {
        for (int h = 0; h < H; ++h) {
            if (expected(h) != std::binary_search(wrong.begin(), wrong.end(), h)) return false;
        }
        return true;
    };
    // The heads that another key/value head than their own answers.
    if (Hkv > 1 &&
        (are([&](int h) { return h % Hkv != h / group; }) || are([&](int h) { return h >= group; }) ||
         are([&](int h) { return std::min(h, Hkv - 1) != h / group; })))
        return " (GQA mapping?)";
    if (are([&](int h) { return h % group != 0; })) return ", all but the first of each group";
    if (are([&](int h) { return h % group == 0; })) return ", the first of each group";
    if (are([&](int h) { return h % group == group - 1; })) return ", the last of each group";
    return "";
}

Mismatch::Fit Mismatch::fit_of_rows() const {
    const Shape& s = case_.shape;
    const reference::Mask mask = mask_of(case_, 0, 0);  // with column bounds other heads may see other keys
    const int query_tail = s.Nq / tile * tile, key_tail = s.Nk / tile * tile;
    std::vector<Region> regions{
        {"the rows of the last, ragged query tile",
         [=](int i) { return query_tail < s.Nq && i >= query_tail; }},
        {"the rows of the first query tile", [](int i) { return i < tile; }},
        {"every row past the first query tile", [](int i) { return i >= tile; }},
        {"the rows without keys", [=](int i) { return mask.visible(i) == 0; }},
        {"every row past the first key tile", [=](int i) { return mask.visible(i) > tile; }},
        {"the rows that see the last, ragged key tile",
         [=](int i) { return key_tail < s.Nk && mask.visible(i) > key_tail; }},
        {"the rows that see only part of a key tile (mask?)",
         [=](int i) { return mask.visible(i) % tile != 0; }},
        {"rows 0..7 of every 16 (fragment rows?)", [](int i) { return i % 16 < 8; }},
        {"rows 8..15 of every 16 (fragment rows?)", [](int i) { return i % 16 >= 8; }},
    };
    for (int warp = 0; warp < 4; ++warp) {
        regions.push_back({fmt::format("rows {}..{} of every 64 (warp {}?)", 16 * warp, 16 * warp + 15, warp),
                           [=](int i) { return i % 64 / 16 == warp; }});
    }
    return fit(rows_, wrong_rows_, regions, "row", "rows");
}

// Of the heads that are wrong. A kernel that does not rescale is wrong in these rows.
Mismatch::Fit Mismatch::fit_of_rising_rows() const {
    if (peak_.empty() || rows_of_ != RowsOf::queries) return {};
    std::size_t all = 0, rising = 0, wrong = 0;
    for (std::size_t head = 0; head < wrong_heads_.size(); ++head) {
        if (!wrong_heads_[head]) continue;
        for (std::size_t k = 0; k < rows_.size(); ++k) {
            const bool rises = peak_[head * rows_.size() + k] >= tile;
            const bool is_wrong = wrong_rows_of_heads_[head * wrong_rows_.size() + rows_[k]];
            if (is_wrong && !rises) return {};
            all += 1, rising += rises, wrong += is_wrong;
        }
    }
    if (rising == all || !mostly(wrong, rising)) return {};
    return {{"the rows whose maximum rises after the first key tile (rescale?)"}, rising};
}

Mismatch::Fit Mismatch::fit_of_keys() const {
    const int tail = case_.shape.Nk / tile * tile, Nk = case_.shape.Nk;
    std::vector<Region> regions{
        {"the keys of the last, ragged key tile", [=](int j) { return tail < Nk && j >= tail; }},
        {"the keys of the first key tile", [](int j) { return j < tile; }},
        {"every key past the first key tile", [](int j) { return j >= tile; }},
        {"keys 0..7 of every 16 (fragment rows?)", [](int j) { return j % 16 < 8; }},
        {"keys 8..15 of every 16 (fragment rows?)", [](int j) { return j % 16 >= 8; }},
    };
    for (int warp = 0; warp < 4; ++warp) {
        regions.push_back({fmt::format("keys {}..{} of every 64 (warp {}?)", 16 * warp, 16 * warp + 15, warp),
                           [=](int j) { return j % 64 / 16 == warp; }});
    }
    return fit(rows_, wrong_rows_, regions, "key", "keys");
}

std::string Mismatch::columns_in_words() const {
    return fit(indices_up_to(wrong_columns_.size()), wrong_columns_,
               {{"even columns", [](int c) { return c % 2 == 0; }},
                {"odd columns", [](int c) { return c % 2 == 1; }},
                {"columns 0..7 of every 16 (fragment columns?)", [](int c) { return c % 16 < 8; }},
                {"columns 8..15 of every 16 (fragment columns?)", [](int c) { return c % 16 >= 8; }}},
               "column", "columns")
        .in_words();
}

// Rows are ascending, and so is the number of keys that they see: compare the quarters.
bool Mismatch::grows_with_visible_keys() const {
    if (rows_of_ != RowsOf::queries || !case_.causal || !mostly(count(wrong_rows_), rows_.size()) ||
        rows_.size() < 16)
        return false;
    std::array<double, 4> mean{};
    const std::size_t quarter = rows_.size() / 4;
    for (std::size_t q = 0; q < 4; ++q) {
        for (std::size_t k = 0; k < quarter; ++k) mean[q] += row_error_[rows_[q * quarter + k]] / quarter;
    }
    return std::isfinite(mean[3]) && mean[0] < mean[1] && mean[1] < mean[2] && mean[2] < mean[3] &&
           mean[3] > 3 * mean[0];
}

}  // namespace ladder
