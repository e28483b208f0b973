#include "harness/problem/cases.h"

#include <algorithm>

namespace ladder {
namespace {

// Everything that decides a case, but for the head dimension and the type.
struct Idea {
    int B, H, Hkv, Nq, Nk;
    bool causal;
    Layout layout = Layout::bhnd;
    const char* input = "normal";
    std::optional<float> scale = {};
};

constexpr Layout bhnd = Layout::bhnd, bnhd = Layout::bnhd;
constexpr bool full = false, causal = true;

/// One case for each idea.
std::vector<Idea> quick_ideas() {
    return {
        {1, 1, 1, 1, 1, full},                          // a single key
        {1, 2, 2, 64, 64, full, bnhd},                  // exactly one tile
        {2, 2, 2, 97, 127, full, bhnd},                 // ragged tiles, a batch
        {1, 2, 2, 130, 130, causal, bnhd},              // a diagonal across three tiles
        {1, 1, 1, 37, 150, causal, bhnd},               // the diagonal starts past the first key tile
        {1, 1, 1, 150, 37, causal, bhnd},               // rows without keys, a whole tile of them
        {1, 8, 2, 37, 65, full, bnhd},                  // grouped queries
        {1, 4, 1, 65, 65, causal, bhnd},                // one key/value head for all
        {1, 1, 1, 1, 257, full, bhnd, "normal", 0.3f},  // decoding; a scale of the caller's
        {1, 1, 1, 65, 200, full, bhnd, "huge"},         //
        {1, 1, 1, 130, 130, causal, bhnd, "rising"},    //
        {1, 1, 1, 65, 200, full, bhnd, "falling"},      //
        {1, 1, 1, 65, 97, full, bhnd, "constant"},      // weighs every key alike: padding shows
        {1, 2, 1, 65, 200, causal, bnhd, "one_hot"},    //
    };
}

/// What the quick ones leave out: every ragged size, both ways of Nq != Nk, every input with
/// and without a mask.
std::vector<Idea> more_ideas() {
    std::vector<Idea> ideas;
    for (const int N : {37, 63, 64, 65, 127, 257}) {
        ideas.push_back({1, 1, 1, N, N, full});
        ideas.push_back({1, 1, 1, N, N, causal});
    }
    for (const auto& [Nq, Nk] : {std::pair{1, 37}, {65, 1}, {127, 64}}) {
        ideas.push_back({1, 2, 1, Nq, Nk, full, bnhd});
    }
    for (const auto& [Nq, Nk] : {std::pair{65, 1}, {64, 127}, {127, 64}, {200, 97}}) {
        ideas.push_back({1, 2, 1, Nq, Nk, causal, bnhd});
    }
    ideas.push_back({2, 4, 1, 37, 97, causal, bnhd});
    ideas.push_back({2, 8, 1, 1, 97, full, bhnd});
    ideas.push_back({1, 1, 1, 200, 37, causal, bnhd});  // tiles of 128 query rows without a key
    // A maximum of 0 for the first keys loses their P in fp16, and one of theirs for the last overflows it.
    ideas.push_back({1, 1, 1, 450, 450, causal, bhnd, "rising"});
    ideas.push_back({2, 9, 3, 130, 70, causal, bhnd});  // more heads than start together, and no multiple
    for (const char* input : {"huge", "rising", "falling", "constant", "one_hot"}) {
        ideas.push_back({1, 1, 1, 97, 193, full, bhnd, input});
        ideas.push_back({1, 1, 1, 193, 193, causal, bhnd, input});
    }
    ideas.push_back({1, 1, 1, 1, 1025, full});
    ideas.push_back({1, 1, 1, 65, 1025, causal});
    ideas.push_back({1, 1, 1, 1025, 65, full});
    // A scale turns the order of scores, or makes them all alike; masked keys keep out of both.
    ideas.push_back({1, 2, 1, 65, 150, full, bhnd, "normal", -0.3f});
    ideas.push_back({1, 2, 1, 150, 193, causal, bhnd, "normal", -0.3f});
    ideas.push_back({1, 2, 1, 150, 193, causal, bhnd, "normal", 0.0f});
    return ideas;
}

/// For d = 256 alone, where blocks may take several query tiles: of one key tile, of three, and in two groups
/// of heads.
std::vector<Idea> crowded_ideas() {
    return {{2, 9, 1, 1, 37, full}, {2, 9, 1, 1, 150, full}, {1, 25, 1, 129, 129, causal}};
}

}  // namespace

std::vector<Case> verification_cases(const Stage& stage, bool quick) {
    const std::vector<int>& dims = stage.head_dims;
    std::vector<Case> cases;
    const auto add = [&](const Idea& i, int d, bool even) {
        cases.push_back({.shape = {i.B, i.H, i.Hkv, i.Nq, i.Nk, d},
                         .dtype = even ? DType::fp16 : DType::bf16,
                         .causal = i.causal,
                         .layout = i.layout,
                         .input = i.input,
                         .seed = cases.size() + 1,
                         .scale = i.scale});
    };
    std::vector<Idea> ideas = quick_ideas();
    if (quick && !dims.empty()) {
        for (std::size_t k = 0; k < ideas.size(); ++k) add(ideas[k], dims[k / 2 % dims.size()], k % 2 == 0);
    }
    if (quick || dims.empty()) return cases;

    const std::vector<Idea> more = more_ideas();
    ideas.insert(ideas.end(), more.begin(), more.end());
    // Both types at every head dimension, and each idea in one type at one dimension and in the other at the
    // next.
    for (std::size_t n = 0; n < dims.size(); ++n) {
        for (std::size_t k = 0; k < ideas.size(); ++k) add(ideas[k], dims[n], (n + k) % 2 == 0);
    }
    add({1, 1, 1, 1025, 1025, causal}, dims.front(), true);
    if (dims.back() == 256) {
        for (const Idea& idea : crowded_ideas()) add(idea, 256, true);
    }
    return cases;
}

}  // namespace ladder
