/// @file
/// What ranks of a ring compute and send, step by step. What depends on model time is not claimed.
#pragma once

#include <algorithm>
#include <vector>

#include "../35_tile_scheduler/claims.h"
#include "stages/ring.h"

namespace ladder::formulas {

/// What a rank attends to in one step; nothing if it has no rows
struct RankStep {
    int rows = 0, keys = 0;
    bool causal = false;
};

/// The ranks of a problem whose chunks are dealt out in one of two ways.
class RankPlan {
  public:
    RankPlan(const Counted& problem, int chunks) : p_(problem), chunks_(chunks) {}

    /// Of N rows, those of the rank's chunk number k: 0 for the early one.
    int chunk(int N, int rank, int k) const {
        const int all = chunks_ * p_.features.ranks;
        return chunk_rows(N, all, k == 0 ? rank : all - 1 - rank);
    }
    int part(int N, int rank) const { return chunk(N, rank, 0) + (chunks_ == 2 ? chunk(N, rank, 1) : 0); }
    int source(int rank, int t) const { return (rank - t + p_.features.ranks) % p_.features.ranks; }

    RankStep step(int rank, int t) const {
        const int from = source(rank, t), rows = part(p_.shape.Nq, rank), keys = part(p_.shape.Nk, from);
        if (!p_.causal || from == rank) return {rows, keys, p_.causal};
        if (chunks_ == 1) return from < rank ? RankStep{rows, keys} : RankStep{};
        return from < rank ? RankStep{rows, chunk(p_.shape.Nk, from, 0)}
                           : RankStep{chunk(p_.shape.Nq, rank, 1), keys};
    }

    /// The sum of f(step's problem) over all ranks and steps
    template <class F>
    Count sum(F&& f) const {
        Count total = 0;
        for_each([&](int rank, int t) { total += of_step(rank, t, f); });
        return total;
    }
    /// The same of the rank with the most in each step
    template <class F>
    Count sum_of_busiest(F&& f) const {
        Count total = 0;
        for (int t = 0; t < p_.features.ranks; ++t) {
            Count most = 0;
            for (int rank = 0; rank < p_.features.ranks; ++rank) most = std::max(most, of_step(rank, t, f));
            total += most;
        }
        return total;
    }
    /// What the rank sends that sends the most: all parts of K and V but one
    Count sent_bytes() const {
        Count most = 0;
        for (int rank = 0; rank < p_.features.ranks; ++rank) {
            Count keys = 0;
            for (int t = 0; t + 1 < p_.features.ranks; ++t) keys += part(p_.shape.Nk, source(rank, t));
            most = std::max(most, keys * p_.B() * p_.shape.Hkv * p_.d() * 2 * 2);
        }
        return most;
    }

  private:
    template <class F>
    void for_each(F&& f) const {
        for (int rank = 0; rank < p_.features.ranks; ++rank)
            for (int t = 0; t < p_.features.ranks; ++t) f(rank, t);
    }
    template <class F>
    Count of_step(int rank, int t, F&& f) const {
        const auto [rows, keys, causal] = step(rank, t);
        if (rows == 0) return 0;
        Counted own = p_;
        own.features.ranks = 1;
        own.causal = causal;
        own.shape.Nq = rows, own.shape.Nk = keys;
        return f(own);
    }

    const Counted& p_;
    const int chunks_;
};

inline Count computed_tiles(const Counted& p) {
    return group_tiles(query_tiles(p, true));
}
/// Columns of the products of a step
inline Count product_columns(const Counted& p) {
    const Count Bc = hopper_Bc(p);
    return computed_tiles(p) * (p.d() / 16 * Bc + Bc / 16 * p.d());
}

/// What each rank of a plan does
inline void claim_plan(Claims& c, const RankPlan& plan) {
    const Counted& p = c.p;
    const auto rows = [](const Counted& own) { return own.rows(); };
    c.is("launches", plan.sum([](const Counted&) { return 1; }));
    c.is("tiles", plan.sum(computed_tiles));
    c.is("wgmma_columns", plan.sum(product_columns));
    // L and a row of sums after each step, but for the last, which stores O in 16 bits
    c.is("global_store_bytes", plan.sum(rows) * (4 + 4 * p.d()) - p.rows() * 2 * p.d());
    // Weights of what was and what is new, and the division by l and by the sum of both
    c.is("exponentials", plan.sum([](const Counted& own) {
        return computed_tiles(own) * 64 * hopper_Bc(own) + own.rows() * in_a_quad * 2;
    }));
    c.is("divides",
         plan.sum([](const Counted& own) { return (own.rows() - own.rows_without_keys()) * in_a_quad * 2; }));
    c.is("stmatrix", 0);
    c.is("bulk_stores", 0);
    if (p.features.ranks == 1) return;
    c.is("messages", p.features.ranks - 1);
    c.is("sent_bytes", plan.sent_bytes());
    c.is("busiest_products", plan.sum_of_busiest(product_columns));
}

/// Sequences that 2, 3, 4 and 5 ranks divide, evenly and not, with and without a mask
inline std::vector<Case> cases_on_ranks() {
    std::vector<Case> cases;
    const auto add = [&](const Shape& shape, int ranks, bool causal) {
        cases.push_back({.shape = shape, .causal = causal, .features = {.ranks = ranks}});
    };
    for (const bool causal : {false, true}) {
        add({1, 2, 1, 1024, 1024, 64}, 4, causal);
        add({1, 2, 2, 512, 512, 128}, 2, causal);
        add({2, 3, 1, 203, 203, 64}, 3, causal);
        add({1, 1, 1, 256, 256, 256}, 2, causal);
        add({1, 2, 1, 131, 131, 128}, 5, causal);
    }
    add({1, 2, 1, 70, 333, 64}, 2, false);
    return cases;
}

}  // namespace ladder::formulas
