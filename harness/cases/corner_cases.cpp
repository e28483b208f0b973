#include "harness/cases/verification_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "harness/cases/inputs.h"
#include "harness/features/features.h"

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
                         .layout = usual_layouts[residue % std::size(usual_layouts)],
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

/// Offsets of batch entries, heads, rows and keys past 2^31 elements. One of them at a time: a GPU's memory
/// has to hold what lies between.
std::vector<Case> far_apart(int d, Pass pass) {
    std::vector<Case> cases;
    for (const Shape& shape : {Shape{2, 1, 1, 37, 260, d}, {1, 2, 2, 37, 260, d}, {1, 1, 1, 260, 3, d}})
        cases.push_back({.shape = shape, .pass = pass, .causal = true, .layout = Layout::far});
    return cases;
}

/// The same problem with all features that the stage takes, as far as they go with it: once for each choice
/// among those that exclude each other.
std::vector<Case> with_features(const Stage& stage, const Case& plain) {
    std::vector<Case> cases;
    for (const auto& features : feature_choices(stage)) {
        Case c = plain;
        for (const FeatureInfo* info : features) {
            if (info->put_ordinary == nullptr) continue;
            Case with = c;
            info->put_ordinary(with);
            if (why_not_taken(stage, with).empty()) c = with;
        }
        cases.push_back(c);
    }
    return cases;
}

/// Sizes that indices and schedules may outgrow, small in all else.
std::vector<Case> large_sizes(const Stage& stage) {
    const int d = stage.head_dims.front(),
              Bc = stage.tilings.empty() ? Tiling().Bc : stage.tilings.front().Bc;
    const bool forward = stage.pass == Pass::forward;
    const bool has_mask = std::ranges::any_of(all_features(), [&](const FeatureInfo& info) {
        return info.depends_on_row && takes(stage, info.feature);
    });
    std::vector<Case> cases;
    const auto add = [&](const Shape& shape, bool causal, int multiprocessors = 0) {
        const std::size_t k = cases.size();
        for (const Case& c : with_features(stage, {.shape = shape,
                                                  .dtype = k % 2 == 0 ? DType::fp16 : DType::bf16,
                                                  .causal = causal,
                                                  .layout = usual_layouts[k % std::size(usual_layouts)],
                                                  .seed = k + 1,
                                                  .multiprocessors = multiprocessors}))
            cases.push_back(c);
    };
    if (forward) {
        add({1, 12, 1, 700, 40, d}, true);           // packed rows that a rounded reciprocal misplaces
        add({1, 1, 1, 1, 150 * Bc, d}, false, 148);  // a part of the keys for each multiprocessor
        add({2, 75, 75, 1, Bc + 1, d}, false, 170);  // heads for each
        add({1, 2, 2, 1, 40 * Bc, d}, false, 5);  // three parts, the last by a block that then begins others
    } else {
        add({1, 6, 3, 65, 129, d}, true, 148);
        add({3, 3, 3, 65, 129, d}, true);  // a last section of fewer heads; lists of tiles make no sections
        cases.back().features.tiles.clear(), cases.back().causal = true;
        if (has_mask) add({1, 1, 1, 2400, 64, d}, false);  // more query tiles than lanes
    }
    if (takes(stage, Feature::tiles)) add({1, 1, 1, 3, 2400, d}, false);
    if (has_mask && stage.takes != std::vector{Feature::tiles})
        add({1, 1, 1, 65'600, 3, d}, true);  // rows beyond 16 bits
    if (forward &&
        takes(stage, Feature::window)) {  // keys beyond 16 bits, most of which a window alone skips
        const std::size_t before = cases.size();
        add({1, 1, 1, 2, 65'600, d}, true);
        cases.resize(before + 1);
        Case& c = cases.back();
        c.features = {}, c.causal = true;
        info_of(Feature::window).put_ordinary(c);
    }
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
    std::vector<Tiling> done;
    std::optional<Case> largest;  // of the smallest tile
    for (std::size_t k = 0; k < stage.head_dims.size(); ++k) {
        const Tiling t = k < stage.tilings.size() ? stage.tilings[k] : Tiling();
        const int d = stage.head_dims[k];
        const auto none = [&](auto&& same) { return std::none_of(done.begin(), done.end(), same); };
        if (none([&](const Tiling& other) { return modulus(other, stage.pass) == modulus(t, stage.pass); }))
            add(diagonals(d, t, stage.pass));
        for (const FeatureInfo& info : all_features()) {
            if (!done.empty() || !takes(stage, info.feature)) continue;
            if (info.put_on_diagonal != nullptr) {
                std::vector<Case> edges = diagonals(d, t, stage.pass);
                for (std::size_t n = 0; n < edges.size(); ++n)
                    info.put_on_diagonal(modulus(t, stage.pass), n, edges[n]);
                add(edges);
            }
            if (info.corners != nullptr) add(info.corners(stage, d, t));
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
        for (const Case& c : far_apart(d, stage.pass)) add(with_features(stage, c));
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
                         .input = inputs[k / 2 % (inputs.size() - kinds_for_8_bits + 1)].name,
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
