// Each rank sends all parts of K and V but one, and in fp32 as many of dK and dV, all but the last during
// kernels. On one rank the kernel is the parent's, and so are its products.
#include "../50_wgmma_gradients/claims.h"
#include "../86_ring/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

constexpr Count Bc = GradientTiles::Bc;

Count whole_tiles(Count keys) {
    return (keys + Bc - 1) / Bc * Bc;
}

/// What each rank's two chunks of rows meet in each step
class GradientPlan {
  public:
    explicit GradientPlan(const Counted& problem) : p_(problem), plan_(problem, 2) {}

    /// Rows of chunk c, of Nq, or keys: one rank has all in its early chunk.
    int chunk(int N, int rank, int c) const {
        if (p_.features.ranks == 1) return c == 0 ? N : 0;
        return plan_.chunk(N, rank, c);
    }
    int part(int N, int rank) const { return chunk(N, rank, 0) + chunk(N, rank, 1); }
    int source(int rank, int t) const { return plan_.source(rank, t); }

    /// The rank's chunk as a problem with the keys that its rows see of those of a step. Its rows or its keys
    /// may be none.
    Counted step(int rank, int t, int c) const {
        const int from = source(rank, t), own_keys = part(p_.shape.Nk, from),
                  early = chunk(p_.shape.Nk, from, 0);
        Counted own = p_;
        own.features.ranks = 1;
        own.causal = p_.causal && from == rank;
        own.shape.Nq = chunk(p_.shape.Nq, rank, c);
        own.shape.Nk = !p_.causal    ? own_keys
                       : c == 0      ? (from > rank ? 0 : early)
                       : from < rank ? early
                                     : own_keys;
        return own;
    }
    /// The sum of f over the launches of a rank's step
    template <class F>
    Count of_step(int rank, int t, F&& f) const {
        Count total = 0;
        for (int c = 0; c < 2; ++c) {
            const Counted own = step(rank, t, c);
            if (own.shape.Nq > 0 && own.shape.Nk > 0) total += f(own);
        }
        return total;
    }
    template <class F>
    Count sum(F&& f) const {
        Count total = 0;
        for (int rank = 0; rank < p_.features.ranks; ++rank)
            for (int t = 0; t < p_.features.ranks; ++t) total += of_step(rank, t, f);
        return total;
    }
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
    /// The sum of f(rows) over all chunks
    template <class F>
    Count sum_of_chunks(F&& f) const {
        Count total = 0;
        for (int rank = 0; rank < p_.features.ranks; ++rank)
            for (int c = 0; c < 2; ++c)
                if (const int rows = chunk(p_.shape.Nq, rank, c); rows > 0) total += f(Count(rows));
        return total;
    }
    /// Bytes of dK and dV in fp32 of the keys of a rank
    Count sums_bytes(int rank) const {
        return 2 * p_.B() * Count(p_.shape.Hkv) * whole_tiles(Count(part(p_.shape.Nk, rank))) * p_.d() * 4;
    }

  private:
    const Counted& p_;
    const RankPlan plan_;
};

void claim(Claims& c) {
    const Counted& p = c.p;
    const GradientPlan plan(p);
    const Count d = p.d(), Br = GradientTiles{p}.Br(), key_heads = p.B() * Count(p.shape.Hkv),
                P = Count(p.features.ranks);
    const auto padded = [&](Count rows) { return (rows + Br - 1) / Br * Br; };
    const auto visited = [](const Counted& own) { return GradientTiles{own}.visited(); };
    const Count tiles = plan.sum(visited);
    const auto columns = [&](const Counted& own) { return visited(own) * 5 * Br * Bc * d / 1024; };
    c.is("tiles", tiles * 2);
    c.is("wgmma_columns", plan.sum(columns));
    c.is("bulk_adds", tiles * 2);
    c.is("bulk_stores", 0);
    c.is("stmatrix", tiles * 8 * Br / 16);
    // Of each chunk L, prepare() and dQ; of each step its kernels and add_parts(); what comes home; dK and dV
    const Count adds = P + (P > 1);
    c.is("launches", plan.sum_of_chunks([](Count) { return 3; }) +
                         plan.sum([](const Counted&) { return 1; }) + P * (adds + 2));
    Count key_sums = 0;  // each step's of all ranks, and those that come home
    for (int rank = 0; rank < p.features.ranks; ++rank) key_sums += adds * plan.sums_bytes(rank);
    const Count parts =
        plan.sum([&](const Counted& own) { return 2 * key_heads * whole_tiles(own.Nk()) * d * 4; });
    c.is("global_store_bytes",
         plan.sum_of_chunks([&](Count rows) { return p.heads() * (rows + padded(rows) * (d + 2)) * 4; }) +
             tiles * Br * d * 4 + parts + key_sums + output_bytes(p));
    // Of the rank with the most rows and keys: sums of dQ with L and D, slots of K and V, two sums of dK and
    // dV that travel, two parts of a step and what waits at home, and L of both chunks
    const Count rows = Count(plan.part(p.shape.Nq, 0)), keys = Count(plan.part(p.shape.Nk, 0));
    c.is("workspace_bytes", p.heads() * padded(rows + 128) * (d + 2) * 4 +
                                4 * key_heads * (keys + 1) * d * 2 +
                                5 * 2 * key_heads * whole_tiles(keys + 1) * d * 4 + p.heads() * rows * 4);
    if (p.features.ranks == 1) {
        return c.only_moves({"workspace_bytes", "launches", "blocks", "global_load_bytes",
                             "global_store_bytes", "bulk_stores", "stmatrix", "bulk_loads", "bulk_bytes",
                             "shared_tile_bytes", "barriers", "named_barriers", "named_waits",
                             "registers_moved", "mbarrier_arrivals", "mbarrier_waits", "shuffles",
                             // By the model of time:
                             "exponentials_during_products", "exponentials_during_own_products",
                             "mbarrier_stalls", "named_stalls"});
    }
    c.is("messages", P == 2 ? 2 : P + 1);  // of two ranks, none in step 1: there are no sums to send yet
    Count sent = 0, exposed = 0;           // of the rank with the most
    for (int rank = 0; rank < p.features.ranks; ++rank) {
        Count bytes = 0;
        for (int t = 0; t + 1 < p.features.ranks; ++t) {
            bytes += 2 * key_heads * Count(plan.part(p.shape.Nk, plan.source(rank, t))) * d * 2;
            bytes += plan.sums_bytes(plan.source(rank, t + 1));
        }
        sent = std::max(sent, bytes);
        exposed = std::max(exposed, plan.sums_bytes(plan.source(rank, p.features.ranks - 1)));
    }
    c.is("sent_bytes", sent);
    c.is("exposed_bytes", exposed);
    c.is("busiest_products", plan.sum_of_busiest(columns));
}

std::vector<Case> on_ranks() {
    std::vector<Case> cases;
    for (const Case& c : cases_on_ranks())
        if (c.shape.d <= 128) cases.push_back(c);
    return backward(cases);
}

LADDER_CLAIMS(.claim = claim, .cases = joined(backward(cases_of({usual_shapes})), on_ranks()),
              .resident_blocks = 1);

}  // namespace
