#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "harness/features/cache.h"
#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/features.h"
#include "harness/features/patterns.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr int most_rows = 64;  // bits of a word

/// Trees that problems call by a name.
struct TreePattern {
    const char* name;
    bool of_requests;  ///< each has its own: (B, Nq), otherwise (Nq)
    /// The word of row i, whose bits below i are drawn from those of the rows before it.
    std::uint64_t (*ancestors)(std::mt19937_64&, const std::vector<std::uint64_t>& before);
};

const std::vector<TreePattern>& tree_patterns() {
    using TreeWords = std::vector<std::uint64_t>;
    static const std::vector<TreePattern> patterns{
        // What a causal mask alone leaves
        {"chain", false,
         [](std::mt19937_64&, const TreeWords& before) { return before.empty() ? 0 : before.back(); }},
        // Two candidates after each token
        {"binary", false,
         [](std::mt19937_64&, const TreeWords& before) {
             return before.empty() ? 0 : before[(before.size() - 1) / 2];
         }},
        // Any rows before
        {"any_rows", true,
         [](std::mt19937_64& random, const TreeWords& before) {
             return random() & ((std::uint64_t{1} << before.size()) - 1);
         }},
        // A row continues any row before it, half of them one of the last two, or none: then it is a root
        {"drawn", true,
         [](std::mt19937_64& random, const TreeWords& before) {
             const std::uint64_t luck = random(), rows = before.size();
             const std::uint64_t parent =
                 luck % 2 == 0 ? random() % (rows + 1) : rows - std::min(rows, luck / 2 % 2);
             return parent == 0 ? 0 : before[parent - 1];
         }},
    };
    return patterns;
}

const TreePattern& pattern_of(const Case& c) {
    return pattern_named(tree_patterns(), c.features.tree, "tree");
}

std::vector<std::uint64_t> tree_of(const Case& c, int b) {
    const TreePattern& pattern = pattern_of(c);
    const auto entry = static_cast<std::uint64_t>(pattern.of_requests ? c.in_whole(b, 0).first : 0);
    std::mt19937_64 random(c.seed + 1000003 * (entry + 1));
    std::vector<std::uint64_t> words;
    for (int i = 0; i < c.shape.Nq; ++i)
        words.push_back(pattern.ancestors(random, words) | std::uint64_t{1} << i);
    return words;
}

int trees(const Case& c) {
    return pattern_of(c).of_requests ? c.shape.B : 1;
}

/// Halves of words, the lower ones first
std::vector<int> tree_words(const Case& c) {
    std::vector<int> halves;
    for (int b = 0; b < trees(c); ++b) {
        for (const std::uint64_t word : tree_of(c, b))
            halves.insert(halves.end(), {static_cast<int>(word), static_cast<int>(word >> 32)});
    }
    return halves;
}

void require_tree(const Case& c) {
    if (c.shape.Nq > most_rows)
        throw BadUsage(fmt::format("a draft that is a tree has at most {} rows; the problem has Nq = {}",
                                   most_rows, c.shape.Nq));
    if (!c.causal) throw BadUsage("a draft that is a tree needs a causal mask: --causal");
    if (!c.features.columns.empty() || !c.features.documents.empty() || !c.features.tiles.empty())
        throw BadUsage("a draft that is a tree goes with no other mask than a causal one and a window");
}

/// Half of the cases have one, most of these a tree for each request. A draft that is too long for one
/// becomes shorter.
void draw_tree(std::mt19937_64& random, const Stage&, Case& c) {
    constexpr const char* drawn[] = {"drawn", "", "any_rows", "", "drawn", "", "binary", ""};
    c.features.tree = drawn[random() % std::size(drawn)];
    if (c.features.tree.empty()) return;
    c.causal = true;
    if (c.shape.Nq > most_rows) c.shape.Nq = 1 + c.shape.Nq % most_rows;
}

/// Drafts of few rows and of as many as a word has bits, with groups of heads; their keys in one tile, in two
/// tiles, and as the only keys; requests that are shorter than a draft; and in a window that is shorter than
/// a path of the tree, or that begins a word's bits before the draft, or so far before it that rows leave
/// tiles of their own.
std::vector<Case> tree_corners(const Stage& stage, int d, const Tiling& t) {
    std::vector<Case> cases;
    const auto add = [&](int B, int Nq, const std::string& lengths, const char* tree, int left) {
        Case& c = cases.emplace_back();
        c.shape = {.B = B, .H = 6, .Hkv = 2, .Nq = Nq, .Nk = 5 * t.Bc, .d = d};
        c.causal = true;
        c.dtype = cases.size() % 2 == 0 ? DType::bf16 : DType::fp16;
        c.features.lengths = lengths;
        c.features.tree = tree;
        if (takes(stage, Feature::window)) c.features.window.left = left;
        if (takes(stage, Feature::pages)) c.features.page_size = std::array{16, 0, 1}[cases.size() % 3];
        c.layout = usual_layouts[cases.size() % std::size(usual_layouts)];
        c.seed = cases.size();
        c.multiprocessors = std::array{1, 8, 132}[cases.size() % 3];
    };
    for (const int Nq : {1, 2, 7, most_rows - 1, most_rows}) {
        const std::string lengths =
            fmt::format("{},{},{},0,{}", 2 * t.Bc + Nq, 3 * t.Bc + Nq / 2, Nq, Nq / 2);
        for (const char* tree : {"drawn", "binary", "any_rows"}) {
            for (const int left : {-1, 3, 2 * t.Bc - 1}) add(5, Nq, lengths, tree, left);
        }
    }
    add(2, 40, fmt::format("{},{}", 4 * t.Bc, 5 * t.Bc), "chain", -1);
    add(2, 7, fmt::format("{},{}", 4 * t.Bc, 5 * t.Bc), "drawn", -1);
    cases.back().layout = Layout::far;
    cases.back().features.page_size = 0;  // pages are never far
    if (takes(stage, Feature::window))
        add(2, 7, fmt::format("{},{}", 4 * t.Bc, 5 * t.Bc), "chain", most_rows);  // a word before the draft
    return cases;
}

double scores_of_trees(const Case& c) {
    double scores = 0;
    for (int b = 0; b < c.shape.B; ++b) {
        const reference::Mask mask = mask_of(c, b, 0);
        for (int row = 0; row < c.shape.Nq; ++row) scores += mask.visible(row);
    }
    return scores * c.shape.H;
}

/// (Nq) or (B, Nq) words, here in halves: (2 Nq) or (B, 2 Nq). Each has the bit of its row, and none above.
void take_tree(const Given& given, Problem& p, Features& f) {
    const Array& words = *given.array("tree");
    const std::int64_t Nq = given.Q[2];
    if (Nq > most_rows) refuse("tree", "a draft of {} rows; at most {}", Nq, most_rows);
    if (!given.causal) refuse("tree", "it needs causal: the draft is the last keys of a request");
    std::vector<std::int64_t> axes = words.axes;  // of words
    if (!axes.empty()) axes.back() /= 2;
    const bool of_requests = axes.size() == 2, whole = !axes.empty() && words.axes.back() % 2 == 0;
    if (!whole || axes != (of_requests ? std::vector{given.Q[0], Nq} : std::vector{Nq}))
        refuse("tree", "it is of {} words; expected ({}) or ({}, {})", axes_text(axes), Nq, given.Q[0], Nq);
    if (words.data % 8 != 0) refuse("tree", "its words must begin at a multiple of 8 bytes");
    const auto halves = given.readable("tree");
    for (std::size_t k = 0; k < halves.size() / 2; ++k) {
        const std::uint64_t word = std::uint64_t{static_cast<std::uint32_t>(halves[2 * k + 1])} << 32 |
                                   static_cast<std::uint32_t>(halves[2 * k]);
        if (const std::size_t row = k % static_cast<std::size_t>(Nq); word >> row != 1)
            refuse("tree", "the highest bit of row {} is not bit {}, its own", row, row);
    }
    p.tree = reinterpret_cast<const std::uint64_t*>(words.data);
    p.tree_batch_stride = of_requests ? static_cast<int>(Nq) : 0;
    f.tree = given_numbers;
}

}  // namespace

FeatureInfo tree_feature() {
    auto info = feature_of<&Features::tree>(
        Feature::tree, "--tree", "TREE",
        "The rows are a draft that is a tree: of the draft's own keys each sees those of its ancestors");
    info.read = [](Features& f, const std::string& text) {
        f.tree = pattern_named(tree_patterns(), text, "tree").name;
    };
    info.choices = names_of(tree_patterns());
    info.in_short = [](const Features&) { return std::string("tree of "); };
    info.require = require_tree;
    info.excludes = {Feature::columns, Feature::documents, Feature::tiles};
    info.array = "words of a tree";
    info.numbers = tree_words;
    info.fill = [](const Case& c, const void* numbers, Problem& p) {
        p.tree = static_cast<const std::uint64_t*>(numbers);
        p.tree_batch_stride = pattern_of(c).of_requests ? c.shape.Nq : 0;
    };
    info.mask = [](const Case& c, int b, int, reference::Mask& mask) { mask.tree = tree_of(c, b); };
    info.visible_scores = scores_of_trees;
    info.tell_peers = [](const Case& c, nlohmann::json& features) { features["tree"] = tree_words(c); };
    info.arguments = {{"tree", CallArgument::Kind::int32, "words of a tree"}};
    info.take = take_tree;
    info.depends_on_row = true;
    info.is_kept_alone = true;
    info.draw = draw_tree;
    info.corners = tree_corners;
    info.put_small = [](Case& c) {
        c.shape.Nq = 31;
        c.causal = true;
        c.features.tree = "binary";
    };
    info.simpler = [](const Case& c) {
        Case other = c;
        other.features.tree = "chain";
        return std::vector{other};
    };
    info.fit = [](Case& c) {
        if (!c.causal || c.shape.Nq > most_rows) c.features.tree.clear();
    };
    return info;
}

}  // namespace ladder
