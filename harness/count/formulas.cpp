#include "harness/count/formulas.h"

#include <algorithm>

namespace ladder::formulas {

std::vector<Case> cases_of(std::initializer_list<std::span<const Shape>> shapes,
                           std::initializer_list<const char*> inputs) {
    std::vector<Case> cases;
    for (const bool causal : {false, true}) {
        for (const char* input : inputs) {
            for (const auto& list : shapes) {
                for (const Shape& shape : list)
                    cases.push_back({.shape = shape, .causal = causal, .input = input});
            }
        }
    }
    return cases;
}

std::vector<Case> packed_in_windows(std::initializer_list<PackedShape> problems, const Window& window) {
    std::vector<Case> cases;
    for (const Window& around : {Window{}, {63, 0}, window}) {
        for (const bool causal : {false, true}) {
            for (const auto& [shape, documents] : problems) {
                Case& c = cases.emplace_back(
                    Case{.shape = shape, .causal = causal, .features = {.window = around}});
                c.features.documents = documents;
            }
        }
    }
    return cases;
}

std::vector<Case> backward(std::vector<Case> cases) {
    for (Case& c : cases) c.pass = Pass::backward;
    return cases;
}

std::vector<Case> joined(std::vector<Case> cases, const std::vector<Case>& more) {
    cases.insert(cases.end(), more.begin(), more.end());
    return cases;
}

int seen_by(const Counted& p, int group, int row) {
    return p.causal ? std::clamp(row / group + 1 + p.shape.Nk - p.shape.Nq, 0, p.shape.Nk) : p.shape.Nk;
}

Visit visit(const Counted& p, int Br, int Bc, int group, int first, int begin, int end, bool all_warps) {
    const int rows = group * p.shape.Nq, Nk = p.shape.Nk;
    const auto seen = [&](int row) { return seen_by(p, group, row); };
    const int taking_part = all_warps ? 4 : std::min(4, (rows - first + Br / 4 - 1) / (Br / 4));
    Visit block;
    block.tiles = end - begin;
    block.warps = taking_part;
    block.queries = std::min(Br, rows - first);
    for (int j = begin; j < end; ++j) {
        block.masked += (j + 1) * Bc > seen(first);
        block.keys += std::min(Bc, Nk - j * Bc);
    }
    for (int row = first; row < first + taking_part * Br / 4; ++row) {
        const bool sees = begin < end && seen(row) > begin * Bc;
        block.padded += sees;
        block.rows += sees && row < rows;
    }
    return block;
}

std::vector<Visit> visits(const Counted& p, int Br, int Bc, int group, Count splits, bool all_warps) {
    const int rows = group * p.shape.Nq;
    const int parts = static_cast<int>(splits);
    std::vector<Visit> blocks;
    for (Count head = 0; head < p.heads() / group; ++head) {
        for (int first = 0; first < rows; first += Br) {
            const int Tc = (seen_by(p, group, first + Br - 1) + Bc - 1) / Bc;
            for (int part = 0; part < parts; ++part) {
                blocks.push_back(
                    visit(p, Br, Bc, group, first, Tc * part / parts, Tc * (part + 1) / parts, all_warps));
            }
        }
    }
    return blocks;
}

Count tiles_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.tiles; });
}

Count masked_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.masked; });
}

Count warp_tiles_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return v.tiles * v.warps; });
}

Count first_tiles_of(const std::vector<Visit>& blocks) {
    return sum(blocks, [](auto& v) { return (v.tiles > 0) * v.warps; });
}

Count KV_bytes_of(const std::vector<Visit>& blocks, const Counted& p) {
    return sum(blocks, [](auto& v) { return v.keys; }) * 2 * p.d() * 2;
}

std::vector<Count> tiles_of_each(const std::vector<Visit>& blocks) {
    std::vector<Count> tiles;
    for (const Visit& block : blocks) tiles.push_back(block.tiles);
    return tiles;
}

Count output_bytes(const Counted& p) {
    if (p.pass == Pass::backward) return (p.rows() + 2 * p.B() * Count(p.shape.Hkv) * p.Nk()) * p.d() * 2;
    return p.rows() * (p.d() * 2 + 4);
}

Count tile_bytes(Count async_copies, Count ldmatrix) {
    return async_copies * 16 + ldmatrix * 32 * 16;
}

Count part_bytes(Count splits, const Counted& p) {
    return splits > 1 ? splits * p.rows() * (p.d() + 2) * 4 : 0;
}

Count splits_of(const Work& work, const Counted& p) {
    return std::max<Count>(1, work.workspace_bytes / (p.rows() * (p.d() + 2) * 4));
}

Count splits_to_fill(const Counted& p, Count unsplit, Count resident) {
    return std::max<Count>(1, std::min(p.Tc(), resident * p.sm_count / unsplit));
}

int wide_Br(const Counted& p) {
    return p.d() <= 128 ? 128 : 64;
}

int wide_Bc(const Counted& p) {
    return p.d() == 64 ? 128 : 64;
}

Count slices(const Counted& p) {
    return wide_Br(p) / 64;
}

}  // namespace ladder::formulas
