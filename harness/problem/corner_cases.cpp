#include "harness/problem/corner_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "harness/problem/documents.h"
#include "harness/problem/inputs.h"
#include "harness/problem/tiles.h"

namespace ladder {
namespace {

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

/// Offsets of batch entries, heads, rows and keys past 2^31 elements. One of them at a time: a GPU's memory
/// has to hold what lies between.
std::vector<Case> far_apart(int d, Pass pass) {
    std::vector<Case> cases;
    for (const Shape& shape : {Shape{2, 1, 1, 37, 260, d}, {1, 2, 2, 37, 260, d}, {1, 1, 1, 260, 3, d}})
        cases.push_back({.shape = shape, .pass = pass, .causal = true, .layout = Layout::far});
    return cases;
}

/// The same problem with all features that the stage takes, as far as they go with it.
Case with_features(const Stage& stage, Case c) {
    const auto has = [&](Feature feature) { return takes(stage, feature); };
    if (has(Feature::window)) c.features.window = {40, -1};
    if (has(Feature::columns)) c.features.columns = "query_heads";
    if (has(Feature::dropout)) c.features.dropout = {200, 0xfedcba9876543210};
    if (has(Feature::tiles)) c.features.tiles = "query_heads", c.causal = false;
    if (has(Feature::lengths)) c.features.lengths = std::to_string(c.shape.Nk);
    if (has(Feature::documents) && c.shape.B == 1) {
        const int rows = c.shape.Nq / 2, keys = c.shape.Nk / 2;
        c.features.documents = fmt::format("{}x{},{}x{}", rows, keys, c.shape.Nq - rows, c.shape.Nk - keys);
    }
    return c;
}

/// Sizes that indices and schedules may outgrow, small in all else.
std::vector<Case> large_sizes(const Stage& stage) {
    const int d = stage.head_dims.front(),
              Bc = stage.tilings.empty() ? Tiling().Bc : stage.tilings.front().Bc;
    const bool forward = stage.pass == Pass::forward;
    const bool has_mask = takes(stage, Feature::window) || takes(stage, Feature::documents) ||
                          takes(stage, Feature::columns) || takes(stage, Feature::dropout) ||
                          takes(stage, Feature::tiles);
    std::vector<Case> cases;
    const auto add = [&](const Shape& shape, bool causal, int multiprocessors = 0) {
        const std::size_t k = cases.size();
        cases.push_back(with_features(stage, {.shape = shape,
                                              .dtype = k % 2 == 0 ? DType::fp16 : DType::bf16,
                                              .causal = causal,
                                              .layout = layouts_of[k % std::size(layouts_of)],
                                              .seed = k + 1,
                                              .multiprocessors = multiprocessors}));
    };
    if (forward) {
        add({1, 12, 1, 700, 40, d}, true);           // packed rows that a rounded reciprocal misplaces
        add({1, 1, 1, 1, 150 * Bc, d}, false, 148);  // a part of the keys for each multiprocessor
        add({2, 75, 75, 1, Bc + 1, d}, false, 170);  // heads for each
    } else {
        add({1, 6, 3, 65, 129, d}, true, 148);
        add({3, 3, 3, 65, 129, d}, true);  // a last section of fewer heads; lists of tiles make no sections
        cases.back().features.tiles.clear(), cases.back().causal = true;
        if (has_mask) add({1, 1, 1, 2400, 64, d}, false);  // more query tiles than lanes
    }
    if (takes(stage, Feature::tiles)) {
        add({1, 1, 1, 3, 2400, d}, false);
    } else if (has_mask) {
        add({1, 1, 1, 65'600, 3, d}, true);  // rows beyond 16 bits
    }
    if (takes(stage, Feature::window)) {  // keys beyond 16 bits, most of which a window alone skips
        add({1, 1, 1, 2, 65'600, d}, true);
        cases.back().features = {.window = cases.back().features.window};
    }
    return cases;
}

/// More documents than a search of six steps tells apart, and than two warps have lanes.
Case many_documents(int d) {
    Case c{.shape = {.H = 2, .Hkv = 1, .Nq = 0, .Nk = 0, .d = d}, .causal = true, .layout = Layout::bnhd};
    for (int k = 0; k < 70; ++k) {
        const int rows = k % 4, keys = k % 7;
        c.features.documents += fmt::format("{}{}x{}", k == 0 ? "" : ",", rows, keys);
        c.shape.Nq += rows, c.shape.Nk += keys;
    }
    return c;
}

/// More requests than two warps have lanes; pages of more keys than a byte counts, and than a request has;
/// rows of a prefix whose number has an inexact reciprocal.
std::vector<Case> large_caches(const Stage& stage, int d, int Bc) {
    std::vector<Case> cases{
        {.shape = {70, 2, 1, 1, Bc + 1, d}, .features = {.lengths = fmt::format("1,{},0,{},5", Bc, Bc + 1)}}};
    if (!takes(stage, Feature::pages)) return cases;
    cases.front().features.page_size = 16;
    cases.push_back({.shape = {2, 2, 1, 3, 600, d},
                     .dtype = DType::bf16,
                     .causal = true,
                     .features = {.lengths = "513,600", .page_size = 512}});
    cases.push_back({.shape = {2, 2, 2, 1, 70, d}, .features = {.lengths = "70,3", .page_size = 4096}});
    if (!takes(stage, Feature::prefix)) return cases;
    const std::string lengths = fmt::format("{},57,70", 60 + Bc);
    cases.push_back({.shape = {3, 2, 1, 41, 61 + Bc, d},
                     .causal = true,
                     .features = {.lengths = lengths, .page_size = 16, .prefix = 16}});
    return cases;
}

/// Heads of zeros, and blocks of 128 rows, whose scale no element gives.
Case zeros(int d) {
    return {.shape = {1, 3, 3, 140, 150, d}, .layout = Layout::mixed, .input = "zeros"};
}

}  // namespace

std::vector<Case> corner_cases(const Stage& stage, Cover how) {
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
        if (takes(stage, Feature::documents) && done.empty()) {
            add(packed_corners(d, t, stage.pass));
            add({many_documents(d)});
        }
        if (takes(stage, Feature::lengths) && done.empty()) {
            add(cache_corners(d, t, takes(stage, Feature::pages)));
            add(large_caches(stage, d, t.Bc));
        }
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
    if (stage.head_dims.empty()) return cases;
    const int d = stage.head_dims.front();
    if (stage.products != Products::of_16_bits) add({zeros(d)});
    add(large_sizes(stage));
    if (how == Cover::all) {
        for (const Case& c : far_apart(d, stage.pass)) add({with_features(stage, c)});
    }
    for (Case& c : cases) c.pass = stage.pass;
    return cases;
}

std::vector<Case> divided_sequences(const Stage& stage, Cover how) {
    std::vector<Case> cases;
    const auto& inputs = input_kinds();
    const auto add = [&](const Shape& shape, int ranks, bool causal) {
        const std::size_t k = cases.size();
        cases.push_back({.shape = shape,
                         .pass = stage.pass,
                         .dtype = k % 2 == 0 ? DType::bf16 : DType::fp16,
                         .causal = causal,
                         .features = {.ranks = ranks},
                         .input = inputs[k / 2 % (inputs.size() - 2)].name,
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
    if (how == Cover::each) return cases;
    // More ranks than a byte has bits; chunks of 128 and of 129 keys
    const int d = stage.head_dims.front(), ragged = 11 * stage.chunks + 3, chunks = 257 * stage.chunks;
    add({1, 2, 1, stage.divides_rows ? ragged : 1, ragged, d}, 11, true);
    add({1, 1, 1, stage.divides_rows ? chunks : 1, chunks, d}, 2, true);
    return cases;
}

}  // namespace ladder
