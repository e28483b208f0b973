/// @file
/// How the warps of a block merge, and then the parts of a query tile.
#pragma once

#include "harness/count/claims.h"

namespace ladder::formulas {

/// What is done behind the last key tile: once for each query tile that a block has keys of,
/// and, where a query tile has parts, once for each of its rows.
struct Ends {
    const Counted& p;
    Count warp_merges = 0, with_keys_here = 0, divides = 0;
    Count merged_rows = 0, parts_of_rows = 0, rounds_of_rows = 0;

    explicit Ends(const Counted& problem) : p(problem) {}

    void warps_merge(const Visit& v) {
        warp_merges += 1;
        with_keys_here += v.padded;
        divides += v.rows * in_a_quad * warps;
    }
    void parts_merge(Count rows, Count rows_with_keys, Count parts) {
        merged_rows += rows;
        parts_of_rows += rows * parts;
        rounds_of_rows += rows * ((parts + 15) / 16);
        divides += rows_with_keys * 32;
    }
    /// Four warps write O, m and l; each reads m and l of all of them twice, and a quarter of their O.
    Count exchange_bytes() const {
        return warp_merges * warps * 32 * 16 * (p.d() / 8 + 1 + 2 * warps + p.d() / 8);
    }
    /// Each warp weighs the four for each row that has keys. A lane of the merge weighs 16 parts and the sum
    /// so far.
    Count exponentials() const {
        return with_keys_here * in_a_quad * warps * warps + rounds_of_rows * 32 * 17;
    }
    /// Each lane of the merge reads the L of each part, and 32 lanes read its O.
    Count load_bytes() const { return parts_of_rows * (32 * 4 + p.d() * 4); }
};

/// What these pieces of work, of tiles of Bc keys, and their ends come to; with so many atomics, and the rows
/// of Q that are read.
inline void claim_ends(Claims& c, const Ends& ends, const std::vector<Visit>& pieces, int Bc, Count atomics,
                       Count queries) {
    const Counted& p = c.p;
    const Count tiles = tiles_of(pieces);
    c.is("shared_exchange_bytes", ends.exchange_bytes() + atomics * (1 + warps * 32));
    c.is("shuffles", tiles * warps * 2 * 4);
    c.is("exponentials", tiles * 16 * (Bc + in_a_quad * warps) + ends.exponentials());
    c.is("divides", ends.divides);
    c.is("global_load_bytes", KV_bytes_of(pieces, p) + queries * p.d() * 2 + ends.load_bytes());
}

}  // namespace ladder::formulas
