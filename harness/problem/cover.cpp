#include "harness/problem/cover.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace ladder {
namespace {

/// Rows made one by one; each choice in them is the one that brings most that is new.
class Covering {
  public:
    Covering(const Levels& levels, int together, const std::function<double(const Levels&)>& cost)
        : levels_(levels), cost_(cost) {
        // A single is a pair of a level with itself.
        for (int f = 0; f < factors(); ++f) {
            for (int g = f; g < factors(); ++g) {
                if ((f == g) != (together == 1)) continue;
                for (int a = 0; a < levels[f]; ++a) {
                    for (int b = f == g ? a : 0; b < (f == g ? a + 1 : levels[g]); ++b)
                        open_.insert({f, a, g, b});
                }
            }
        }
    }

    /// Fills in what is open of a row, and adds it.
    void add(Levels row) {
        if (!is_feasible(row)) return;
        for (int f = 0; f < factors(); ++f) {
            if (row[f] < 0) row[f] = best_level(row, f);
        }
        for (const Pair& p : pairs_of(row)) used_[p] += 1;
        std::erase_if(open_, [&](const Pair& p) { return holds(row, p); });
        rows.push_back(row);
    }

    /// Until every pair that is feasible has occurred.
    void add_all() {
        while (!open_.empty()) {
            const auto [f, a, g, b] = *open_.begin();
            Levels row(levels_.size(), -1);
            row[f] = a;
            row[g] = b;
            add(row);
            open_.erase({f, a, g, b});
        }
    }

    std::vector<Levels> rows;

  private:
    struct Pair {
        int f, a, g, b;
        auto operator<=>(const Pair&) const = default;
    };

    int factors() const { return static_cast<int>(levels_.size()); }

    static bool holds(const Levels& row, const Pair& p) { return row[p.f] == p.a && row[p.g] == p.b; }

    double cost(Levels row) const {
        std::replace(row.begin(), row.end(), -1, 0);
        return cost_(row);
    }
    bool is_feasible(const Levels& row) const { return cost(row) <= 1; }

    /// What a row holds, of all that is decided in it.
    std::vector<Pair> pairs_of(const Levels& row) const {
        std::vector<Pair> pairs;
        for (int f = 0; f < factors(); ++f) {
            for (int g = f; g < factors(); ++g) {
                if (row[f] >= 0 && row[g] >= 0) pairs.push_back({f, row[f], g, row[g]});
            }
        }
        return pairs;
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
            for (const Pair& p : pairs_of(row)) {
                if (p.f != f && p.g != f) continue;
                open += static_cast<int>(open_.count(p));
                const auto found = used_.find(p);
                used += found == used_.end() ? 0 : found->second;
            }
            const std::tuple value{open, -used * row_cost * (level == 0 ? 0.5 : 1)};
            if (value > best_value) std::tie(best, best_value) = std::tuple(level, value);
        }
        return best;
    }

    const Levels& levels_;
    const std::function<double(const Levels&)>& cost_;
    std::set<Pair> open_;
    std::map<Pair, int> used_;  ///< how often each was chosen
};

}  // namespace

std::vector<Levels> cover(const Levels& levels, int together, const std::vector<Levels>& first,
                          const std::function<double(const Levels&)>& cost) {
    Covering covering(levels, together, cost);
    for (const Levels& row : first) covering.add(row);
    covering.add_all();
    return covering.rows;
}

}  // namespace ladder
