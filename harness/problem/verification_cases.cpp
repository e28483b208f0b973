#include "harness/problem/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "harness/problem/cache.h"
#include "harness/problem/columns.h"
#include "harness/problem/cover.h"
#include "harness/problem/documents.h"
#include "harness/problem/inputs.h"
#include "harness/problem/random.h"
#include "harness/problem/tiles.h"

namespace ladder {
namespace {

struct Heads {
    int Hkv, group;
};
constexpr Heads heads_of[] = {{1, 1}, {2, 1}, {1, 3}, {3, 3}, {1, 8}, {2, 2}};
constexpr int machines[] = {0, 1, 3, 132};  // 0: what the CPU back-end plays anyway, 8
constexpr std::optional<float> scales[] = {std::nullopt, -0.3f, 0.0f};
constexpr Layout layouts_of[] = {Layout::bnhd, Layout::bhnd, Layout::mixed};

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

/// Windows for a stage that takes them: none, one-sided and two-sided ones, of one key, narrower and wider
/// than a tile, and with edges at and next to those of tiles.
Window window_of(const Tiling& t, std::size_t k) {
    const Window windows[] = {{},
                              {0, 0},
                              {t.Bc - 1, 0},
                              {t.Bc, 0},
                              {-1, 5},
                              {3, 7},
                              {2 * t.Bc, -1},
                              {t.Br, t.Bc},
                              {t.Bc + 1, t.Br + 1},
                              {20, 0}};
    return windows[k % std::size(windows)];
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
                    .layout = layouts_of[row[layout]],
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
                        static_cast<int>(inputs.size()) - 2,  // the last: see hard_for_8_bits()
                        std::size(scales),
                        std::size(layouts_of),
                        2};
    const auto first = pass == Pass::forward ? meetings(levels[dim]) : gradient_meetings(levels[dim]);
    std::vector<Case> cases;
    for (const Levels& row : cover(levels, how == Cover::each ? 1 : 2, first, cost))
        cases.push_back(make(row, cases.size() + 1));
    return cases;
}

/// What a diagonal's distance from the edge of a tile repeats with: the keys of a tile, in the backward pass
/// also its rows.
int modulus(const Tiling& t, Pass pass) {
    return pass == Pass::forward ? t.Bc : std::max(t.Br, t.Bc);
}

/// Under a mask, every distance of the diagonal from the edge of a tile: Nk - Nq has every residue. Two rows
/// and a tile of keys before those that not every row sees are all that it takes. Every fourth has a group of
/// heads that are more rows than a tile, if a kernel packs them.
std::vector<Case> diagonals(int d, const Tiling& t, Pass pass) {
    constexpr int groups[] = {5, 7, 2, 6, 3, 8};
    std::vector<Case> cases;
    const int residues = modulus(t, pass);
    for (int residue = 0; residue < residues; ++residue) {
        const int group = residue % 4 == 3 ? groups[residue / 4 % std::size(groups)] : 1;
        const int Nq = group == 1 ? 2 : t.Br / group + 2;
        cases.push_back({.shape = {1, group, 1, Nq, Nq + residues + residue, d},
                         .pass = pass,
                         .dtype = residue % 2 == 0 ? DType::fp16 : DType::bf16,
                         .causal = true,
                         .layout = layouts_of[residue % std::size(layouts_of)],
                         .seed = static_cast<std::uint64_t>(residue) + 1});
    }
    return cases;
}

/// Warpgroups that share a tile may take turns at the tiles that they go through: so many of these that the
/// last turn is not that of the warpgroup before the first, and more than a ring holds.
std::vector<Case> uneven_turns(int d, const Tiling& t, Pass pass) {
    const bool forward = pass == Pass::forward;
    const int shared = forward ? t.Br : t.Bc, other = forward ? t.Bc : t.Br;
    if (shared < 128) return {};
    const int tiles = 8 % (shared / 64) == 0 ? 9 : 8;
    std::vector<Case> cases;
    for (const bool causal : {false, true}) {
        Case& c = cases.emplace_back();
        c.shape = {1, 1, 1, shared, tiles * other - 5, d};
        if (!forward) std::swap(c.shape.Nq, c.shape.Nk);
        c.pass = pass;
        c.causal = causal;
    }
    return cases;
}

/// More heads than a scheduler orders the tiles of together, if that is as many as have 16 MiB of K and V,
/// which an L2 holds besides all else; and two query tiles, since those of one head have no order.
Case many_bytes(int d, const Tiling& t) {
    constexpr int heads = 4, bytes = 16 << 20;
    return {.shape = {2, heads / 2, heads / 2, t.Br + 1, bytes / (4 * d * heads) + 1, d}, .causal = true};
}

/// Documents of lengths next to those of tiles, of one token and of none, at both ends and between others; of
/// rows and keys that differ, more of either, and none of one. With and without a mask, and in a window.
std::vector<Case> packed_corners(int d, const Tiling& t, Pass pass) {
    const int B = std::max(t.Br, t.Bc);
    const std::string edges = fmt::format("0,1,{},{},{},0,{},0", B - 1, B, B + 1, 2 * B + 1);
    const char* const lists[] = {edges.c_str(), "1,1,1,1,1,1", "5x0,70x3,0x7,3x70,1x300,0x0,0x1",
                                 "0x9,9x0,4"};
    std::vector<Case> cases;
    for (const char* documents : lists) {
        for (const Window& window : {Window{}, {t.Bc / 2, -1}, {3, 5}}) {
            for (const bool causal : {false, true}) {
                Case c{.shape = {.H = 2, .Hkv = 1, .d = d},
                       .pass = pass,
                       .causal = causal,
                       .features = {.window = window}};
                c.features.documents = documents;
                c.dtype = causal ? DType::bf16 : DType::fp16;
                c.layout = layouts_of[cases.size() % std::size(layouts_of)];
                c.shape.Nq = c.shape.Nk = 0;
                for (const auto& [first_row, end_row, first_key, end_key] : documents_of(c))
                    c.shape.Nq = end_row, c.shape.Nk = end_key;
                cases.push_back(c);
            }
        }
    }
    return cases;
}

/// Requests of lengths next to those of tiles, of one key and of none, first, last and between others; and
/// rows of a draft that see none of its keys. On machines whose blocks take one tile, several requests or a
/// part of one, also in long shares; in pages below, at and above the size of a tile.
std::vector<Case> cache_corners(int d, const Tiling& t, bool in_pages) {
    const std::string edges = fmt::format("0,1,{},{},0,{},{},2", t.Bc - 1, t.Bc, t.Bc + 1, 2 * t.Bc),
                      one_long = fmt::format("0,1,{},0", 9 * t.Bc + 5), all_long = std::to_string(9 * t.Bc);
    constexpr int page_sizes[] = {16, 1, 256, 64, 2, 128};
    std::vector<Case> cases;
    for (const auto& [B, lengths] : {std::pair{8, edges}, {4, one_long}, {3, "0,0,0"}, {4, all_long}}) {
        for (const int multiprocessors : {1, 3, 8, 132}) {
            for (const int Nq : {1, 5}) {
                Case& c = cases.emplace_back();
                c.shape = {.B = B, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = 9 * t.Bc + 7, .d = d};
                c.causal = Nq > 1;
                c.dtype = Nq > 1 ? DType::bf16 : DType::fp16;
                c.features.lengths = lengths;
                c.layout = layouts_of[cases.size() % std::size(layouts_of)];
                c.seed = cases.size();
                c.multiprocessors = multiprocessors;
                if (in_pages) c.features.page_size = page_sizes[cases.size() % std::size(page_sizes)];
            }
        }
    }
    return cases;
}

/// Prefixes next to the ends of tiles, that a request has nothing after, or as much as its rows need, or
/// tiles; with rows of several requests in a tile, and of one request in several.
std::vector<Case> prefix_corners(int d, const Tiling& t) {
    std::vector<Case> cases;
    for (const int prefix : {1, t.Bc - 1, t.Bc, t.Bc + 1, 3 * t.Bc}) {
        for (const auto& [B, Nq] : {std::pair{9, 1}, {3, 5}, {2, t.Br + 1}}) {
            Case& c = cases.emplace_back();
            c.shape = {.B = B, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = 5 * t.Bc + std::max(t.Bc, t.Br + 1), .d = d};
            c.causal = Nq > 1;
            c.features = {.lengths = fmt::format("{},{}", prefix + Nq - 1, prefix + Nq + 2 * t.Bc),
                          .page_size = prefix % t.Bc == 0 ? 16 : 1,
                          .prefix = prefix};
            c.layout = layouts_of[cases.size() % std::size(layouts_of)];
            c.seed = cases.size();
            c.multiprocessors = std::array{1, 3, 8, 132}[cases.size() % 4];
        }
    }
    return cases;
}

/// Offsets of batch entries, heads and rows past 2^31 elements. Either two batch entries or two heads: a
/// GPU's memory has to hold what lies between.
std::vector<Case> far_apart(int d, Pass pass) {
    std::vector<Case> cases;
    for (const auto& [B, heads] : {std::pair{2, 1}, {1, 2}}) {
        cases.push_back(
            {.shape = {B, heads, heads, 37, 260, d}, .pass = pass, .causal = true, .layout = Layout::far});
    }
    return cases;
}

/// What takes sizes of its own, so that levels of factors do not bring it about. Each at the first head
/// dimension that has these tiles, where it is cheapest.
std::vector<Case> corners(const Stage& stage, Cover how) {
    std::vector<Case> cases;
    const auto add = [&](const std::vector<Case>& more) {
        cases.insert(cases.end(), more.begin(), more.end());
    };
    const bool takes_window = takes(stage, Feature::window);
    std::vector<Tiling> done;
    std::optional<Case> largest;  // of the smallest tile
    for (std::size_t k = 0; k < stage.head_dims.size(); ++k) {
        const Tiling t = k < stage.tilings.size() ? stage.tilings[k] : Tiling();
        const int d = stage.head_dims[k];
        const auto none = [&](auto&& same) { return std::none_of(done.begin(), done.end(), same); };
        if (none([&](const Tiling& other) { return modulus(other, stage.pass) == modulus(t, stage.pass); }))
            add(diagonals(d, t, stage.pass));
        if (takes(stage, Feature::columns) && done.empty()) {
            std::vector<Case> edges = diagonals(d, t, stage.pass);
            for (Case& c : edges) c.features.columns = "random";
            add(edges);
        }
        if (takes(stage, Feature::documents) && done.empty()) add(packed_corners(d, t, stage.pass));
        if (takes(stage, Feature::lengths) && done.empty())
            add(cache_corners(d, t, takes(stage, Feature::pages)));
        if (takes(stage, Feature::tiles) && done.empty()) {
            std::vector<Case> edges = diagonals(d, t, stage.pass);
            for (std::size_t n = 0; n < edges.size(); ++n) {
                edges[n].features.tiles = tile_patterns()[n % tile_patterns().size()].name;
                edges[n].causal = false;
            }
            add(edges);
        }
        if (takes(stage, Feature::prefix) && done.empty()) add(prefix_corners(d, t));
        if (takes_window && done.empty()) {
            std::vector<Case> edges = diagonals(d, t, stage.pass);
            for (Case& c : edges) c.features.window.left = modulus(t, stage.pass) / 2;
            add(edges);
        }
        if (none([&](const Tiling& other) { return other.Br == t.Br && other.Bc == t.Bc; }))
            add(uneven_turns(d, t, stage.pass));
        done.push_back(t);
        if (stage.pass == Pass::forward && t.Br >= 128 && t.depth > 1 &&
            (!largest || t.Br + 1 < largest->shape.Nq))
            largest = many_bytes(d, t);
    }
    if (largest) cases.push_back(*largest);
    if (how == Cover::all && !stage.head_dims.empty()) add(far_apart(stage.head_dims.front(), stage.pass));
    return cases;
}

/// A sequence that 2, 3, 4 and 8 ranks divide: chunks of a row each; ragged ones of grouped heads under a
/// mask; of several tiles; and without a mask more keys than rows. Or a cache of as many parts: with less
/// than a key for each of 16 rows, with a tile and more, and under a mask that crosses several parts. Every
/// kind of input but the last, and scale.
std::vector<Case> divided(const Stage& stage, Cover how) {
    std::vector<Case> cases;
    const auto& inputs = input_kinds();
    const auto add = [&](const Shape& shape, int ranks, bool causal) {
        const std::size_t k = cases.size();
        cases.push_back({.shape = shape,
                         .pass = stage.pass,
                         .dtype = k % 2 == 0 ? DType::bf16 : DType::fp16,
                         .causal = causal,
                         .features = {.ranks = ranks},
                         .input = inputs[k / 2 % (inputs.size() - 1)].name,
                         .seed = k + 1,
                         .scale = scales[k / 5 % std::size(scales)],
                         .multiprocessors = machines[k % std::size(machines)]});
    };
    for (std::size_t k = 0; k < stage.head_dims.size(); ++k) {
        const int d = stage.head_dims[k], Br = stage.tilings[k].Br, Bc = stage.tilings[k].Bc;
        for (const int P : {2, 3, 4, 8}) {
            if (k > 0 && P > 3) continue;
            if (!stage.divides_rows) {
                add({1, 8, 2, 1, 70 * P + 5, d}, P, true);
                add({2, 4, 1, 16, 2 * P + 1, d}, P, true);
                if (how == Cover::each) continue;
                add({1, 3, 3, 5, P, d}, P, false);
                add({1, 6, 2, 7, (Bc + 9) * P + 1, d}, P, true);
                add({2, 4, 1, 33, 17 * P + 3, d}, P, false);
                continue;
            }
            add({P < 8 ? 2 : 1, 2, 1, 2 * P, 2 * P, d}, P, true);  // of 8 each head takes a second
            add({1, P < 8 ? 3 : 2, 1, 45 * P - 2, 45 * P - 2, d}, P, true);
            if (how == Cover::each) continue;
            add({1, 4, 2, 2 * P + 1, 70 * P + 5, d}, P, false);
            add({1, 1, 1, 45 * P + 1, 17 * P, d}, P, false);
            if (P < 4) add({1, 2, 2, 2 * P * (Br + 1) + 1, 2 * P * (Br + 1) + 1, d}, P, true);
        }
    }
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
    if (takes(stage, Feature::window)) {
        for (std::size_t k = 0; k < cases.size(); ++k) {
            const auto dim = std::find(stage.head_dims.begin(), stage.head_dims.end(), cases[k].shape.d);
            cases[k].features.window = window_of(stage.tilings[dim - stage.head_dims.begin()], k);
        }
    }
    if (takes(stage, Feature::columns)) {  // most of any bounds, also under a causal mask or in a window
        const auto& patterns = column_patterns();
        for (std::size_t k = 0; k < cases.size(); ++k)
            cases[k].features.columns = k % 8 == 0 ? "" : patterns[std::min(k % 8, patterns.size()) - 1].name;
    }
    if (takes(stage, Feature::tiles)) {  // most of any tiles
        const auto& patterns = tile_patterns();
        for (std::size_t k = 0; k < cases.size(); ++k) {
            if (k % 8 == 0) continue;
            cases[k].features.tiles = patterns[std::min(k % 8, patterns.size()) - 1].name;
            cases[k].causal = false;
        }
    }
    if (takes(stage, Feature::dropout)) {
        constexpr int kept[] = {230, 128, 1, 255, 256};
        for (std::size_t k = 0; k < cases.size(); ++k) {
            if (const int of_256 = kept[k % std::size(kept)]; of_256 < 256)
                cases[k].features.dropout = {of_256, k * 0x123456789 + 1};
        }
    }
    if (stage.products != Products::of_16_bits) hard_for_8_bits(cases);
    if (takes(stage, Feature::documents)) {
        for (Case& c : cases) {
            std::mt19937_64 random(c.seed);
            pack_at_random(random, c);
        }
    }
    for (Case& c : cases) {
        std::mt19937_64 random(c.seed);
        if (takes(stage, Feature::lengths)) draw_lengths(random, c);
        if (takes(stage, Feature::pages)) draw_pages(random, c);
        if (takes(stage, Feature::prefix)) draw_prefix(random, c);
    }
    if (how != Cover::each) add(corners(stage, how));
    if (takes(stage, Feature::ranks)) add(divided(stage, cover));
    return cases;
}

}  // namespace ladder
