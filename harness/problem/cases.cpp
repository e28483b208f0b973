#include "harness/problem/cases.h"

#include <array>
#include <utility>

namespace ladder {
namespace {

// Everything that decides a case, but for the head dimension and the type.
struct Idea {
    int B, H, Hkv, Nq, Nk;
    bool causal;
    Layout layout = Layout::bhnd;
    const char* input = "normal";
    std::optional<float> scale = {};
    int multiprocessors = 0;  ///< 0 leaves them open
};

constexpr Layout bhnd = Layout::bhnd, bnhd = Layout::bnhd;
constexpr bool full = false, masked = true;

/// One case for each idea. Those with a causal mask, with more keys than query rows, and with heads to pack
/// all meet machines that are smaller and larger than they are.
std::vector<Idea> quick_ideas() {
    return {
        {1, 1, 1, 1, 1, full, bhnd, "normal", {}, 132},        // a single key, nearly all shares empty
        {1, 2, 2, 64, 64, full, bnhd},                         // exactly one tile
        {2, 2, 2, 97, 127, full, bnhd, "normal", {}, 3},       // ragged tiles, a batch
        {1, 2, 2, 130, 130, masked, bnhd, "normal", {}, 132},  // a diagonal across three tiles
        {1, 1, 1, 37, 150, masked, bnhd},                      // the diagonal starts past the first key tile
        {1, 1, 1, 150, 37, masked, bnhd, "normal", {}, 1},     // rows without keys, a whole tile of them
        {1, 8, 2, 37, 65, full, bnhd, "normal", {}, 3},        // grouped queries
        {1, 4, 1, 65, 65, masked, bnhd},                       // one key/value head for all
        {1, 1, 1, 1, 257, full, bhnd, "normal", 0.3f},         // decoding; a scale of the caller's
        {1, 1, 1, 65, 200, full, bhnd, "huge", {}, 1},         //
        {1, 1, 1, 130, 130, masked, bhnd, "rising"},           //
        {1, 1, 1, 65, 200, full, bhnd, "falling", {}, 132},    //
        {1, 1, 1, 65, 97, full, bhnd, "constant"},             // weighs every key alike: padding shows
        {1, 2, 1, 65, 200, masked, bhnd, "one_hot", {}, 3},    //
    };
}

/// What the quick ones leave out: every ragged size, both ways of Nq != Nk, every input with
/// and without a mask.
std::vector<Idea> more_ideas() {
    std::vector<Idea> ideas;
    for (const int N : {37, 63, 64, 65, 127, 257}) {
        ideas.push_back({1, 1, 1, N, N, full});
        ideas.push_back({1, 1, 1, N, N, masked});
    }
    for (const auto& [Nq, Nk] : {std::pair{1, 37}, {65, 1}, {127, 64}}) {
        ideas.push_back({1, 2, 1, Nq, Nk, full, bnhd});
    }
    for (const auto& [Nq, Nk] : {std::pair{65, 1}, {64, 127}, {127, 64}, {200, 97}}) {
        ideas.push_back({1, 2, 1, Nq, Nk, masked, bnhd});
    }
    ideas.push_back({2, 4, 1, 37, 97, masked, bnhd});
    ideas.push_back({2, 8, 1, 1, 97, full, bhnd, "normal", {}, 132});
    ideas.push_back({1, 1, 1, 200, 37, masked, bnhd});  // tiles of 128 query rows without a key
    // A maximum of 0 for the first keys loses their P in fp16, and one of theirs for the last overflows it.
    ideas.push_back({1, 1, 1, 450, 450, masked, bhnd, "rising"});
    ideas.push_back({2, 9, 3, 130, 70, masked, bhnd});  // more heads than start together, and no multiple
    for (const char* input : {"huge", "rising", "falling", "constant", "one_hot"}) {
        ideas.push_back({1, 1, 1, 97, 193, full, bhnd, input});
        ideas.push_back({1, 1, 1, 193, 193, masked, bhnd, input});
    }
    ideas.push_back({1, 1, 1, 1, 1025, full, bhnd, "normal", {}, 3});
    ideas.push_back({1, 1, 1, 65, 1025, masked});
    ideas.push_back({1, 1, 1, 1025, 65, full});
    // A scale turns the order of scores, or makes them all alike; masked keys keep out of both.
    ideas.push_back({1, 2, 1, 65, 150, full, bhnd, "normal", -0.3f});
    ideas.push_back({1, 2, 1, 150, 193, masked, bhnd, "normal", -0.3f});
    ideas.push_back({1, 2, 1, 150, 193, masked, bhnd, "normal", 0.0f});
    return ideas;
}

/// For d = 256 alone, where blocks may take several query tiles: of one key tile, of three, and in two groups
/// of heads.
std::vector<Idea> crowded_ideas() {
    return {{2, 9, 1, 1, 37, full}, {2, 9, 1, 1, 150, full}, {1, 25, 1, 129, 129, masked}};
}

/// Multiprocessors of the machines that the CPU back-ends play in turn; 0 for their own.
constexpr std::array machines{0, 1, 3, 132};

}  // namespace

std::vector<Case> verification_cases(const Stage& stage, bool quick) {
    const std::vector<int>& dims = stage.head_dims;
    std::vector<Case> cases;
    // Nothing of a case may depend on the stage: stages that have it share what is expected.
    const auto add = [&](const Idea& i, int d, bool even, std::size_t seed, int multiprocessors) {
        cases.push_back({.shape = {i.B, i.H, i.Hkv, i.Nq, i.Nk, d},
                         .dtype = even ? DType::fp16 : DType::bf16,
                         .causal = i.causal,
                         .layout = i.layout,
                         .input = i.input,
                         .seed = seed,
                         .scale = i.scale,
                         .multiprocessors = multiprocessors});
    };
    std::vector<Idea> ideas = quick_ideas();
    if (quick && !dims.empty()) {
        for (std::size_t k = 0; k < ideas.size(); ++k)
            add(ideas[k], dims[k / 2 % dims.size()], k % 2 == 0, k + 1, ideas[k].multiprocessors);
    }
    if (quick || dims.empty()) return cases;

    const std::vector<Idea> more = more_ideas();
    ideas.insert(ideas.end(), more.begin(), more.end());
    // Both types at every head dimension, and each idea in one type at one dimension and in the other at the
    // next, on another machine.
    for (std::size_t n = 0; n < dims.size(); ++n) {
        for (std::size_t k = 0; k < ideas.size(); ++k) {
            const int own = ideas[k].multiprocessors, turn = machines[(k / 2 + n) % machines.size()];
            add(ideas[k], dims[n], (n + k) % 2 == 0, k + 1, own != 0 ? own : turn);
        }
    }
    add({1, 1, 1, 1025, 1025, masked}, dims.front(), true, 1, 0);
    // Shares of query tiles so small that some hold no key that their rows see.
    add({1, 6, 2, 300, 300, masked, bhnd}, dims.front(), true, 1, 132);
    if (dims.back() == 256) {
        for (const Idea& idea : crowded_ideas()) add(idea, 256, true, 1, 0);
    }
    return cases;
}

}  // namespace ladder
