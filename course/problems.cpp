#include "course/problems.h"

#include <algorithm>
#include <random>

#include "harness/cases/random.h"
#include "harness/cases/verification_cases.h"
#include "harness/count/claims.h"
#include "harness/problem/case.h"

namespace ladder {
namespace {

int below(std::mt19937_64& random, int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
}

/// What a free draw may miss, at one head dimension: its size, type, layout and machine are drawn.
std::vector<Case> templates(std::mt19937_64& random, int d, const Tiling& t) {
    const auto draw = [&](int Nq, int Nk, bool causal, const char* input) {
        Case c{.shape = {1, 1 + below(random, 2), 1, Nq, Nk, d}, .causal = causal, .input = input};
        c.dtype = below(random, 2) == 0 ? DType::fp16 : DType::bf16;
        c.layout = below(random, 2) == 0 ? Layout::bhnd : Layout::bnhd;
        c.seed = random() % 1000;
        c.multiprocessors = below(random, 2) == 0 ? 0 : 132;
        return c;
    };
    const auto several_tiles = [&] { return 2 * t.Bc + 1 + below(random, 2 * t.Bc); };
    std::vector<Case> cases;
    for (const bool causal : {false, true})
        cases.push_back(draw(1 + below(random, 2 * t.Br), several_tiles(), causal, "rising"));
    const int Nk = 1 + below(random, 2 * t.Bc);
    cases.push_back(draw(Nk + 1 + below(random, 2 * t.Br), Nk, true, "normal"));
    return cases;
}

/// Without those that take more addresses than a submission's process may have.
std::vector<Case> within_limits(std::vector<Case> cases) {
    std::erase_if(cases, [](const Case& c) { return c.layout == Layout::far; });
    return cases;
}

}  // namespace

std::vector<Case> own_problems(const Exercise& e, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Case> cases = e.problems;
    for (Case& c : cases) {
        const std::uint64_t drawn = 1 + random() % 1000;
        if (c.seed == Case().seed) c.seed = drawn;
    }
    return cases;
}

std::vector<Case> seeded_problems(const Exercise& e, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Case> cases = own_problems(e, seed);
    const auto add = [&](Case c) {
        c.pass = e.pass;
        draw_features(1000 * seed + cases.size(), e, c);
        cases.push_back(std::move(c));
    };
    for (std::size_t k = 0; k < e.head_dims.size(); ++k) {
        const Tiling tiling = k < e.tilings.size() ? e.tilings[k] : Tiling();
        for (const Case& c : templates(random, e.head_dims[k], tiling)) add(c);
    }
    for (int k = 0; k < 8; ++k) add(random_case(random, e.head_dims, k));
    return within_limits(std::move(cases));
}

std::vector<Case> edge_problems(const Exercise& e, bool thorough) {
    return within_limits(verification_cases(e, thorough ? Cover::all : Cover::pairs));
}

std::vector<Case> counted_problems(const Exercise& e) {
    std::vector<Case> cases = claim_cases(e.folder());
    constexpr Layout of_tensors[] = {Layout::bhnd, Layout::bnhd, Layout::mixed};
    for (std::size_t k = 0; k < cases.size(); ++k) {
        Case& c = cases[k];
        if (k % 2 == 1) c.dtype = DType::bf16;
        if (c.features.ranks == 1) c.layout = of_tensors[k / 2 % std::size(of_tensors)];
    }
    return cases;
}

std::vector<Case> race_problems(const Exercise& e, std::uint64_t seed) {
    std::vector<Case> cases = verification_cases(e, Cover::each);
    for (const Case& c : own_problems(e, seed)) cases.push_back(c);
    return cases;
}

}  // namespace ladder
