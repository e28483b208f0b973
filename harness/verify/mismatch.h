/// @file
/// Where a tensor is wrong, and what the wrong places have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/problem/case.h"

namespace ladder {

/// A set of indices that a known kind of mistake would get wrong.
struct Region {
    std::string name;
    std::function<bool(int)> contains;
};

/// What the rows of an output are: query rows (O, L, dQ), keys (dK, dV), or one for each head of the whole
/// batch (dsinks).
enum class RowsOf : std::uint8_t { queries, keys, heads };

/// How many rows a head has.
inline int rows_in(const Shape& s, RowsOf rows_of) {
    return rows_of == RowsOf::heads ? 1 : rows_of == RowsOf::keys ? s.Nk : s.Nq;
}

/// The wrong elements of a tensor, kept as what they are
/// along each axis: heads, rows and columns. A few bytes per index, however many elements are wrong.
class Mismatch {
  public:
    /// Query rows, and keys, of a tile of the ladder's kernels. Reports speak of these tiles.
    static constexpr int tile = 64;

    /// `rows` are the query rows, or the keys, that were looked at, ascending; `columns` is d, or 1 for L and
    /// dsinks.
    Mismatch(const Case& c, std::vector<int> rows, int columns, RowsOf rows_of = RowsOf::queries);

    /// The key with the largest score of each row that is looked at, -1 for a row without keys: (B, H, rows).
    /// Without it no pattern is of the rows' maxima.
    void set_peak(std::vector<int> peak) { peak_ = std::move(peak); }

    /// Notes a wrong element. `expected` is NaN where it is not known.
    void add(int b, int h, int row, int column, double expected, double got);

    bool empty() const { return count_ == 0; }

    /// "`what` in 12 of 4736 elements`detail`", then the worst place with its query tile, or key tile, then
    /// the pattern. Empty if nothing is wrong.
    std::string report(const std::string& what, const std::string& detail = "") const;

    /// What the wrong elements have in common, in words: whole heads, the rows of a ragged tile, every row
    /// past the first key tile, those whose maximum rises after it, half of the columns, an error that grows
    /// with the keys that a row sees. Empty if nothing fits.
    std::string pattern() const;

  private:
    struct Fit;
    static Fit fit(const std::vector<int>& indices, const std::vector<bool>& wrong,
                   const std::vector<Region>& regions, const char* one, const char* many);
    std::string heads_in_words() const;
    std::string group_in_words(const std::vector<int>& wrong) const;
    Fit fit_of_rows() const;
    Fit fit_of_rising_rows() const;
    Fit fit_of_keys() const;
    std::string columns_in_words() const;
    bool grows_with_visible_keys() const;

    const Case& case_;
    RowsOf rows_of_;
    bool of_keys_;
    int batches_, heads_;  // B or 1, and H or Hkv
    std::vector<int> rows_;
    std::vector<int> peak_;
    std::vector<bool> wrong_heads_;          // (batches, heads)
    std::vector<bool> wrong_rows_of_heads_;  // (batches, heads, N)
    std::vector<bool> wrong_rows_;           // (N)
    std::vector<bool> wrong_columns_;
    std::vector<double> row_error_;  // (N), the largest of the row
    std::size_t count_ = 0;
    struct {
        int b, h, row, column;
        double expected, got, error;
    } worst_{};
};

}  // namespace ladder
