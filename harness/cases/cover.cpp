#include "harness/cases/cover.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ladder {
namespace {

/// Rows made one by one; each choice in them is the one that brings most that is new.
class Covering {
  public:
    Covering(const Levels& levels, int together, const std::function<double(const Levels&)>& cost)
        : levels_(levels), cost_(cost) {
        for (const int count : levels) {
            first_.push_back(total_);
            total_ += count;
        }
        open_.resize(static_cast<std::size_t>(total_) * total_);
        used_.resize(open_.size());
        // A single is a pair of a level with itself.
        for (int f = 0; f < factors(); ++f) {
            for (int g = f; g < factors(); ++g) {
                if ((f == g) != (together == 1)) continue;
                for (int a = 0; a < levels[f]; ++a) {
                    for (int b = f == g ? a : 0; b < (f == g ? a + 1 : levels[g]); ++b)
                        open_[pair(f, a, g, b)] = true;
                }
            }
        }
        wanted_ = open_;
    }

    /// Fills in what is open of a row, and adds it.
    void add(Levels row) {
        if (!is_feasible(row)) return;
        given_.push_back(row);
        for (int f = 0; f < factors(); ++f) {
            if (row[f] < 0) row[f] = best_level(row, f);
        }
        rows.push_back(row);
        for (int f = 0; f < factors(); ++f) {
            for (int g = f; g < factors(); ++g) {
                const std::size_t p = pair(f, row[f], g, row[g]);
                used_[p] += 1;
                open_[p] = false;
            }
        }
    }

    /// Exchanges levels between rows where that makes them cheaper and every pair still occurs, as far as
    /// these levels are not asked for in them: then the many heads are in the rows with few queries and keys.
    void exchange() {
        std::vector<double> costs;
        for (const Levels& row : rows) costs.push_back(cost(row));
        for (bool again = true; std::exchange(again, false);) {
            for (std::size_t i = 0; i < rows.size(); ++i) {
                for (std::size_t j = 0; j < i; ++j) {
                    for (int f = 0; f < factors(); ++f) again = exchange(i, j, f, costs) || again;
                }
            }
        }
    }

    /// Until every pair that is feasible has occurred.
    void add_all() {
        for (int f = 0; f < factors(); ++f) {
            for (int a = 0; a < levels_[f]; ++a) {
                for (int g = f; g < factors(); ++g) {
                    for (int b = 0; b < levels_[g]; ++b) {
                        if (!open_[pair(f, a, g, b)]) continue;
                        Levels row(levels_.size(), -1);
                        row[f] = a;
                        row[g] = b;
                        add(row);
                        open_[pair(f, a, g, b)] = false;  // nor if it is not feasible
                    }
                }
            }
        }
    }

    std::vector<Levels> rows;

  private:
    int factors() const { return static_cast<int>(levels_.size()); }

    /// The number of a pair: level a of factor f and b of g, f <= g.
    std::size_t pair(int f, int a, int g, int b) const {
        return static_cast<std::size_t>(first_[f] + a) * total_ + first_[g] + b;
    }

    double cost(Levels row) const {
        std::replace(row.begin(), row.end(), -1, 0);
        return cost_(row);
    }
    bool is_feasible(const Levels& row) const { return cost(row) <= 1; }

    /// The pairs that this level of a row is in.
    std::vector<std::size_t> pairs_of(const Levels& row, int f) const {
        std::vector<std::size_t> pairs;
        for (int g = 0; g < factors(); ++g)
            pairs.push_back(g < f ? pair(g, row[g], f, row[f]) : pair(f, row[f], g, row[g]));
        return pairs;
    }

    bool exchange(std::size_t i, std::size_t j, int f, std::vector<double>& costs) {
        if (rows[i][f] == rows[j][f] || given_[i][f] >= 0 || given_[j][f] >= 0) return false;
        Levels a = rows[i], b = rows[j];
        std::swap(a[f], b[f]);
        const double cost_a = cost(a), cost_b = cost(b);
        if (cost_a > 1 || cost_b > 1 || cost_a + cost_b >= costs[i] + costs[j]) return false;
        const auto count = [&](const Levels& row, int change) {
            for (const std::size_t p : pairs_of(row, f)) used_[p] += change;
        };
        const auto is_missed = [&](const Levels& row) {
            const auto pairs = pairs_of(row, f);
            return std::any_of(pairs.begin(), pairs.end(),
                               [&](std::size_t p) { return wanted_[p] && used_[p] == 0; });
        };
        count(rows[i], -1), count(rows[j], -1), count(a, +1), count(b, +1);
        if (is_missed(rows[i]) || is_missed(rows[j])) {
            count(a, -1), count(b, -1), count(rows[i], +1), count(rows[j], +1);
            return false;
        }
        rows[i] = a, rows[j] = b;
        costs[i] = cost_a, costs[j] = cost_b;
        return true;
    }

    /// Of those that are feasible: the level with the most open pairs, then the one whose pairs were used
    /// least, at the same cost. Level 0 is the ordinary one, and may be used twice as often.
    int best_level(Levels row, int f) const {
        int best = 0;
        std::tuple<int, double> best_value{-1, 0};
        for (int level = 0; level < levels_[f]; ++level) {
            row[f] = level;
            const double row_cost = cost(row);
            if (row_cost > 1) continue;
            int open = 0, used = 1;
            for (int g = 0; g < factors(); ++g) {
                if (row[g] < 0) continue;
                const std::size_t p = g < f ? pair(g, row[g], f, level) : pair(f, level, g, row[g]);
                open += open_[p];
                used += used_[p];
            }
            const std::tuple value{open, -used * row_cost * (level == 0 ? 0.5 : 1)};
            if (value > best_value) std::tie(best, best_value) = std::tuple(level, value);
        }
        return best;
    }

    const Levels& levels_;
    const std::function<double(const Levels&)>& cost_;
    std::vector<int> first_;     ///< of each factor, the number of its first level
    int total_ = 0;              ///< levels of all factors
    std::vector<bool> open_;     ///< by pair
    std::vector<bool> wanted_;   ///< those that were open at first
    std::vector<int> used_;      ///< how often each was chosen
    std::vector<Levels> given_;  ///< of each row, what was not chosen
};

}  // namespace

std::vector<Levels> cover(const Levels& levels, int together, const std::vector<Levels>& first,
                          const std::function<double(const Levels&)>& cost) {
    Covering covering(levels, together, cost);
    for (const Levels& row : first) covering.add(row);
    covering.add_all();
    if (together > 1) covering.exchange();
    return covering.rows;
}

}  // namespace ladder
