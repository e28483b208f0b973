/// @file
/// The claims of each stage, on counted work: what its change must move against its parent, by which formula,
/// and what it must leave alone. Counters, not times: they hold on every machine. The tests hold every stage
/// to them, `lab check` a student's kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/count/counting.h"
#include "harness/verify/verify.h"

namespace ladder {

/// What is claimed of one counter on one problem, and what was counted.
struct Claim {
    std::string counter;  ///< as in simt::counter_fields, or "workspace_bytes"
    std::uint64_t expected = 0;
    std::uint64_t got = 0;
    bool of_parent = false;  ///< claimed of the parent; of the stage otherwise
    bool stays = false;      ///< all that is claimed is that it is the parent's

    bool holds() const { return got == expected; }
};

/// The problems on which a stage's claims are checked: long and short, ragged and not, grouped heads, every
/// head dimension, Nq != Nk, with and without a mask, and inputs where they matter. In fp16.
std::vector<Case> claim_cases(int stage);

/// The claims of a stage on one of its claim_cases(), on a device with so many multiprocessors. Where the
/// parent has not the head dimension (its why_not is set), only what is claimed of the stage alone.
std::vector<Claim> claims(int stage, const Case& c, int sm_count, const Work& parent, const Work& child);

/// The key tiles that each block must visit, by the block's number, where a stage's change is the order of
/// its blocks and that order is not the parent's; empty elsewhere.
std::vector<std::uint64_t> claimed_tiles_of_blocks(int stage, const Case& c, int sm_count);

}  // namespace ladder
