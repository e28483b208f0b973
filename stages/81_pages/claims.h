/// @file
/// Pages that lanes look up, and two blocks on a multiprocessor.
#pragma once

#include "../80_own_lengths/claims.h"

namespace ladder::formulas {

/// Keys of a tile, half as many at d = 128 as the parent's
inline int paged_Bc(const Counted& p) {
    return p.d() > 64 ? 64 : 128;
}
/// Up to d = 128 two blocks for each multiprocessor
inline int paged_grid(const Counted& p) {
    return grid_of(p, paged_Bc(p), p.d() > 128 ? 1 : 2);
}

/// What a share of a query tile does beyond, with tiles of Bc keys: an entry of the block table for each key,
/// which a shuffle for each key that a thread copies tells. K and V have elements of so many bytes.
inline auto lookups_of_pages(int Bc, int bytes = 2) {
    return [Bc, bytes](const Counted& own, const Visit& piece, int begin) {
        ShareExtras extras;
        const Count copied_at_a_time = 128 * 16 / (bytes * own.d());
        extras.shuffles = piece.tiles * warps * (Bc / copied_at_a_time);
        for (int j = begin; j < begin + static_cast<int>(piece.tiles); ++j) {
            // 128 lanes look at a key each; of tiles of 64 keys, half of these keys are of the next tile
            if (own.features.page_size != 0)
                extras.load_bytes += Count(std::min(128, own.shape.Nk - j * Bc)) * 4;
        }
        return extras;
    };
}

/// Pages of one key, below, at and above the size of a tile; without pages; pages that requests share.
inline std::vector<Case> paged_cases() {
    constexpr int page_sizes[] = {16, 0, 1, 256, 128, 32};
    std::vector<Case> cases = cases_with_lengths();
    for (std::size_t k = 0; k < cases.size(); ++k) {
        cases[k].features.page_size = page_sizes[k % std::size(page_sizes)];
        cases[k].seed = k + 1;
    }
    return cases;
}

}  // namespace ladder::formulas
