#include "harness/features/features.h"
#include "harness/problem/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>

#include "harness/cases/cover.h"
#include "harness/cases/inputs.h"
#include "harness/cases/random.h"
#include "harness/cases/verification_cases.h"

namespace ladder {
namespace {

struct Heads {
    int Hkv, group;
};
constexpr Heads heads_of[] = {{1, 1}, {2, 1}, {1, 3}, {3, 3}, {1, 8}, {2, 2}};

/// What is chosen of a case. Query rows are chosen with the mask, so that every two sizes meet under one.
enum Factor : std::uint8_t { dim, rows, keys, batch, heads, machine, input, scale, layout, dtype, factors };

/// The last: several tiles, more rows than some tiles of keys, and one row in the last slice of 16. In the
/// backward pass a ring may be of query tiles: as many as wrap it twice.
std::vector<int> row_sizes(const Tiling& t, Pass pass) {
    const int wrapping = pass == Pass::forward ? 0 : (2 * t.depth + 2) * t.Br;
    return {1, t.Br - 1, t.Br, t.Br + 1, std::max(3 * std::max(t.Br, t.Bc), wrapping) - 15};
}
constexpr int several = 4;

/// The last three: ragged tiles; as many as wrap a ring twice; more parts than two rounds of a merge take, if
/// each tile is one and a round is as many as a warp has lanes. Where tiles are of so many rows, or in the
/// backward pass, no stage splits the keys: then it is only more than the rest.
std::vector<int> key_sizes(const Tiling& t, Pass pass) {
    const int parts = pass == Pass::forward && t.Br < 128 ? 65 : 17;
    return {1, t.Bc - 1, t.Bc, t.Bc + 1, 3 * t.Bc - 27, (2 * t.depth + 2) * t.Bc, parts * t.Bc + 1};
}
constexpr int one_more = 3, ragged = 4, wrapped = 5, many = 6;

constexpr int full(int size) {
    return 2 * size;
}
constexpr int masked(int size) {
    return 2 * size + 1;
}

/// What has to meet in threes or more: at each of so many head dimensions blocks that wrap their ring; parts
/// of the keys that no row of a query tile sees; a merge of many parts; scores that climb far in fp16; more
/// masked heads than start together.
std::vector<Levels> meetings(int dims) {
    const auto row = [](std::initializer_list<std::pair<int, int>> chosen) {
        Levels levels(factors, -1);
        for (const auto& [factor, level] : chosen) levels[factor] = level;
        return levels;
    };
    std::vector<Levels> list;
    for (int d = 0; d < dims; ++d)
        list.push_back(row({{dim, d}, {rows, masked(one_more)}, {keys, wrapped}, {machine, 1}}));
    list.push_back(row({{rows, masked(several)}, {keys, ragged}, {machine, 3}, {heads, 2}, {batch, 0}}));
    list.push_back(row({{rows, masked(several)}, {keys, one_more}, {machine, 0}, {heads, 0}, {batch, 0}}));
    list.push_back(row({{rows, full(0)}, {keys, many}, {machine, 3}, {heads, 0}, {batch, 0}, {scale, 0}}));
    list.push_back(row({{rows, masked(0)},
                        {keys, many},
                        {machine, 3},
                        {heads, 0},
                        {batch, 0},
                        {input, 2},
                        {scale, 0},
                        {dtype, 0}}));
    list.push_back(row({{rows, masked(several)}, {keys, one_more}, {batch, 2}, {heads, 3}}));
    list.push_back(row({{rows, full(0)}, {keys, ragged}, {machine, 3}, {batch, 2}, {heads, 3}}));
    return list;
}

/// What else has to meet in the backward pass. Groups whose heads add up dK and dV, and tiles that add up dQ,
/// meet inputs and a scale with which these are more than what rounding leaves: not so where each row's
/// weight sits on one key, nor with scale 0.
std::vector<Levels> gradient_meetings(int dims) {
    std::vector<Levels> list = meetings(dims);
    const auto add = [&](int rows_level, int keys_level, int heads_level, int batch_level, int scale_level,
                         int dtype_level) {
        Levels levels(factors, -1);
        for (const auto& [factor, level] : {std::pair{rows, rows_level},
                                            {keys, keys_level},
                                            {heads, heads_level},
                                            {batch, batch_level},
                                            {input, 0},
                                            {scale, scale_level},
                                            {dtype, dtype_level}})
            levels[factor] = level;
        list.push_back(levels);
    };
    add(masked(one_more), one_more, 2, 0, 0, 0);
    add(full(one_more), one_more, 2, 0, 1, 1);
    add(full(0), ragged, 3, 1, 0, 0);
    for (int d = 0; d < dims; ++d) {  // as many query tiles as wrap a ring of them
        add(masked(several), one_more, 0, 0, 0, 1);
        list.back()[dim] = d;
    }
    return list;
}

/// Of cases for a stage with products of 8 bits, every other of normal inputs shows what sums lose, or what
/// outliers cost.
void hard_for_8_bits(std::vector<Case>& cases) {
    for (std::size_t k = 0; k < cases.size(); k += 2) {
        if (cases[k].input == "normal") cases[k].input = k % 4 == 0 ? "same_sign" : "outliers";
    }
}

/// Cases of a pass at these head dimensions, each with its tiling.
std::vector<Case> covered(const std::vector<int>& dims, const std::vector<Tiling>& tilings, Pass pass,
                          Cover how) {
    const auto& inputs = input_kinds();
    const Tiling usual;
    const auto make = [&](const Levels& row, std::size_t seed) {
        const auto d = static_cast<std::size_t>(row[dim]);
        const Tiling& tiling = d < tilings.size() ? tilings[d] : usual;
        const auto [Hkv, group] = heads_of[row[heads]];
        return Case{.shape = {row[batch] + 1, Hkv * group, Hkv, row_sizes(tiling, pass)[row[rows] / 2],
                              key_sizes(tiling, pass)[row[keys]], dims[d]},
                    .pass = pass,
                    .dtype = row[dtype] == 0 ? DType::fp16 : DType::bf16,
                    .causal = row[rows] % 2 == 1,
                    .layout = usual_layouts[row[layout]],
                    .input = inputs[row[input]].name,
                    .seed = seed,
                    .scale = scales[row[scale]],
                    .multiprocessors = machines[row[machine]]};
    };
    // (16 rows, 16 keys) pieces: what a CPU computes.
    const double most = how == Cover::each ? 500 : 700;
    const auto cost = [&](const Levels& row) {
        const Shape s = make(row, 1).shape;
        const double pieces = double(s.B) * s.H * ((s.Nq + 15) / 16) * ((s.Nk + 15) / 16) * s.d / 64;
        return pieces / (most * (s.d == 64 ? 1 : s.d / 128.0 + 0.5));
    };
    const Levels levels{static_cast<int>(dims.size()),
                        2 * several + 2,
                        many + 1,
                        3,
                        std::size(heads_of),
                        std::size(machines),
                        static_cast<int>(inputs.size()) - kinds_for_8_bits,
                        std::size(scales),
                        std::size(usual_layouts),
                        2};
    const auto first = pass == Pass::forward ? meetings(levels[dim]) : gradient_meetings(levels[dim]);
    std::vector<Case> cases;
    for (const Levels& row : cover(levels, how == Cover::each ? 1 : 2, first, cost))
        cases.push_back(make(row, cases.size() + 1));
    return cases;
}

}  // namespace

std::vector<Case> verification_cases(const Stage& stage, Cover cover) {
    std::vector<Case> cases;
    // On one rank a stage whose ranks have two chunks does what one does whose ranks have one chunk.
    const Cover how = stage.chunks == 2 ? Cover::each : cover;
    const auto add = [&](const std::vector<Case>& more) {
        cases.insert(cases.end(), more.begin(), more.end());
    };
    if (how != Cover::all) {
        add(covered(stage.head_dims, stage.tilings, stage.pass, how));
    } else {
        for (std::size_t k = 0; k < stage.head_dims.size(); ++k) {
            const Tiling tiling = k < stage.tilings.size() ? stage.tilings[k] : Tiling();
            add(covered({stage.head_dims[k]}, {tiling}, stage.pass, how));
        }
    }
    for (std::size_t k = 0; k < cases.size(); ++k) {
        std::mt19937_64 random(cases[k].seed);
        for (const FeatureInfo* info : features_for(stage, k)) {
            if (info->vary != nullptr) info->vary(random, stage, k, cases[k]);
            if (info->vary == nullptr) info->draw(random, stage, cases[k]);
        }
    }
    if (stage.products != Products::of_16_bits) hard_for_8_bits(cases);
    if (how != Cover::each) add(corner_cases(stage, how));
    if (takes(stage, Feature::ranks)) add(divided_sequences(stage, cover));
    return cases;
}

}  // namespace ladder
