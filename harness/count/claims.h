/// @file
/// The claims of each stage, on counted work: what its change must move against its parent, by which formula,
/// and what it must leave alone. Counters, not times: they hold on every machine. The tests hold every stage
/// to them, `lab check` a student's kernel.
///
/// A stage's claims are stages/NN_name/claims.cpp, which includes this header and ends with LADDER_CLAIMS.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/count/formulas.h"
#include "harness/count/work.h"
#include "harness/problem/case.h"

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

/// Takes down what a stage claims on one problem. Counters are named as in simt::counter_fields, or
/// "workspace_bytes".
class Claims {
  public:
    Claims(const formulas::Counted& problem, const Work& parent_work, const Work& child_work)
        : p(problem), parent(parent_work), child(child_work) {}

    const formulas::Counted& p;
    const Work &parent, &child;
    std::vector<Claim> list;

    /// Whether the parent has the head dimension, so that it can be compared with.
    bool has_parent() const { return parent.why_not.empty(); }

    void is(std::string_view counter, std::uint64_t expected);
    void parent_is(std::string_view counter, std::uint64_t expected);
    /// It is the parent's, whatever that is.
    void stays(std::string_view counter);
    /// Every counter that is not named must be the same in both.
    void only_moves(const std::vector<std::string_view>& may_move);
};

/// The key tiles that each block must visit, by the block's number.
struct BlockOrder {
    std::vector<std::uint64_t> parent, stage;
};

/// What a stage claims, and on which problems.
struct StageClaims {
    void (*claim)(Claims&) = nullptr;
    /// Long and short, ragged and not, grouped heads, every head dimension, Nq != Nk, with and without a
    /// mask, and inputs where they matter. In fp16.
    std::vector<Case> cases;
    /// Where the change is the order of the blocks; null elsewhere.
    BlockOrder (*order)(const formulas::Counted&) = nullptr;
    /// Blocks of 128 threads that a multiprocessor has registers for, at d <= 128: what the kernels' launch
    /// bounds promise, or more.
    int resident_blocks = 3;
};

/// Adds the claims of the stage whose folder holds this file. Called by LADDER_CLAIMS when its library is
/// loaded.
bool register_claims(std::string_view file, const StageClaims& claims);

/// Declares the claims of the stage in whose folder it stands: LADDER_CLAIMS(.claim = claim, .cases = ...).
/// What it is given initializes a StageClaims.
#define LADDER_CLAIMS(...) \
    [[maybe_unused]] const bool registered = ladder::register_claims(__FILE__, {__VA_ARGS__})

/// Compiles the claims of these folders, several at once, and loads them. Those that are asked for without it
/// are loaded one by one. Throws CannotRun if a folder has none, CheckFailed if they do not compile.
void load_claims(const std::vector<std::string>& folders);

/// The folders that have claims, in order. Each should be a stage's.
std::vector<std::string> folders_with_claims();

/// The problems on which the claims of the stage in this folder are checked. Throws CannotRun, as the
/// next two, if it has none.
std::vector<Case> claim_cases(const std::string& folder);

/// The claims of a stage on one of its claim_cases(), on a device with so many multiprocessors. Where the
/// parent has not the head dimension (its why_not is set), only what is claimed of the stage alone.
std::vector<Claim> claims(const std::string& folder, const Case& c, int sm_count, const Work& parent,
                          const Work& child);

/// The key tiles that each block must visit, by the block's number, where a stage's change is the order of
/// its blocks and that order is not the parent's; empty elsewhere.
std::vector<std::uint64_t> claimed_tiles_of_blocks(const std::string& folder, const Case& c, int sm_count);

/// StageClaims::resident_blocks, and what that is by default of a folder without claims.
int resident_blocks(const std::string& folder);

}  // namespace ladder
