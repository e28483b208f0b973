/// @file
/// Two launches: the prefix for the rows of all requests, and then each one's own keys.
#pragma once

#include "../81_pages/claims.h"

namespace ladder::formulas {

/// The requests without the prefix, and one request with the queries of all in tiles of so many rows, whose
/// keys are the prefix.
inline Counters work_of_both(const Counted& p, int grid, int Bc, int prefix_Br) {
    Counted all = p;
    all.shape.B = 1;
    all.shape.Nq = p.shape.B * p.shape.Nq;
    all.shape.Nk = p.features.prefix;
    all.causal = false;
    all.features.lengths.clear();
    std::vector<int> own = keys_of_requests(p);
    for (int& keys : own) keys -= p.features.prefix;

    Counters work = work_of_line(p, own, grid, Bc, lookups_of_pages(Bc), true);
    for (const auto& [counter, count] :
         work_of_line(all, {p.features.prefix}, grid, Bc, lookups_of_pages(Bc), false, prefix_Br))
        work[counter] += count;
    work["global_store_bytes"] += p.rows() * (p.d() * 2 + 4);  // O in fp32, m and l
    return work;
}

/// Tiles of prefix_Br rows for the prefix; parts have room for as many.
inline void claim_prefix(Claims& c, int prefix_Br) {
    const Counted& p = c.p;
    const int Bc = paged_Bc(p), grid = paged_grid(p);
    const bool twice = p.features.prefix > 0;
    const Counters work = twice ? work_of_both(p, grid, Bc, prefix_Br)
                                : work_of_line(p, keys_of_requests(p), grid, Bc, lookups_of_pages(Bc));
    for (const auto& [counter, count] : work) c.is(counter, count);
    c.is("launches", twice ? 2 : 1);
    c.is("workspace_bytes", p.rows() * (p.d() + 2) * 4 + line_bytes(p, grid, prefix_Br));
}

/// Prefixes of a page, of a tile, next to one and of all keys; with groups that fill a tile with one request,
/// a part of it, or more; and drafts whose first row sees one key after the prefix.
inline std::vector<Case> prefixed_cases() {
    const struct {
        Shape shape;
        const char* lengths;
        int page_size, prefix;
    } problems[] = {{{8, 8, 2, 1, 1024, 64}, "1000,128,128,129,300,127,301,1024", 1, 127},
                    {{3, 4, 4, 1, 700, 128}, "700,512,600", 256, 512},
                    {{20, 2, 2, 1, 200, 64}, "", 8, 136},
                    {{2, 6, 2, 9, 500, 128}, "500,72", 64, 64},
                    {{2, 20, 1, 1, 640, 256}, "320,640", 64, 320},
                    {{70, 2, 1, 1, 200, 64}, "200,64,130,64,65", 64, 64},
                    {{1, 4, 2, 3, 3000, 64}, "", 16, 2000}};
    std::vector<Case> cases;
    for (const bool causal : {false, true}) {
        for (const auto& [shape, lengths, page_size, prefix] : problems)
            cases.push_back({.shape = shape,
                             .causal = causal,
                             .features = {.lengths = lengths, .page_size = page_size, .prefix = prefix}});
    }
    return cases;
}

}  // namespace ladder::formulas
