/// @file
/// The problems of regimes and sweeps over caches, and what problems are made of.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/cases/regimes.h"

namespace ladder {

inline Regime::Problem decode(int Nk, int B = 1, int Hkv = 8, int Nq = 1) {
    return {{.B = B, .H = 32, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = 128}, false};
}

/// Each row sees so many keys, its own the last.
inline Regime::Problem in_window(Regime::Problem problem, int keys) {
    problem.features.window = {keys - 1, 0};
    return problem;
}

/// B, H, Hkv, Nq, Nk, d, and whether there is a causal mask
template <std::size_t n>
std::vector<Regime::Problem> problems_of(const int (&sizes)[n][7]) {
    std::vector<Regime::Problem> problems;
    for (const auto& [B, H, Hkv, Nq, Nk, d, causal] : sizes)
        problems.push_back({{.B = B, .H = H, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = d}, causal == 1});
    return problems;
}

constexpr const char* mean_length = "7268";  ///< of ragged_requests()

/// 64 requests with room for 32k keys each, that have 100 to 32k of them, each 2.3 times as many as the one
/// before; or all the mean of it.
Regime::Problem ragged_requests(int page_size,
                                const char* lengths = "100,229,523,1197,2738,6262,14324,32768");

/// 64 requests with the same first keys, of which pages are shared or not, and 256 keys of their own.
Regime::Problem with_prefix(int keys, bool shared);

std::vector<Regime::Problem> page_problems();

/// The rows of a draft, 1 to 16, over requests of uneven lengths, without pages and in pages of 64: what the
/// default stage for caches is chosen by. Spread so that each problem of 1 to 16 rows, groups of 1 to 8
/// heads, 1 to 16 requests and 4k to 64k keys has one of these near (position_of() in
/// harness/time/fastest.h).
std::vector<Regime::Problem> cache_problems();

/// What those lack: 512 and 128k keys, 64 requests, groups of 16, d = 256, and more where the fastest stage
/// changes: few rows of few heads, and one request.
std::vector<Regime::Problem> wide_cache_problems();

/// Problems between those, drawn once, by which no stage is chosen: they say how well one is chosen between
/// recorded problems. Every other one has requests of equal length.
std::vector<Regime::Problem> drawn_cache_problems();

/// Sixteen requests of 64k keys in pages of 64, of which a row sees the last 1k; and as many requests of 1k
/// keys, all of which it sees.
std::vector<Regime::Problem> cache_window_problems();

/// What layers of models ask of a cache in pages of 64, 16 requests of 8k keys: a softcap, ALiBi, sinks, and
/// none, for 1 and 8 rows; then windows of gpt-oss (128 keys, with sinks), Gemma 2 (4k, with a softcap) and
/// Mistral (4k).
std::vector<Regime::Problem> cache_score_problems();

/// Drafts in pages of 64, each with a tree and without: 16 rows of 16 requests of 8k keys, without and with
/// a window of 1k, and 64 rows of one request of 32k keys.
std::vector<Regime::Problem> cache_tree_problems();

/// As many keys in pages of 64 three times, 128k of them, of 16 requests, of 4 and of one: few enough to be
/// rounded to e4m3 on the host.
std::vector<Regime::Problem> paged_e4m3_problems();

/// The same, each with a scale for each token, and then with one for each head.
std::vector<Regime::Problem> e4m3_scale_problems();

}  // namespace ladder
