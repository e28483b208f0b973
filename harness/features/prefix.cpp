#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "harness/base/numbers.h"
#include "harness/features/cache.h"
#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "stages/errors.h"

namespace ladder {

int shared_keys(const Case& c, int b) {
    if (b == 0) return 0;
    if (c.features.page_size == 0 || c.seed % 2 != 0) return c.features.prefix;
    const int common = std::min(length_of(c, b - 1), length_of(c, b)) - c.features.prefix;
    std::mt19937_64 random(c.seed + static_cast<std::uint64_t>(b));
    const auto pages = random() % (static_cast<std::uint64_t>(common / c.features.page_size) + 1);
    return c.features.prefix + static_cast<int>(pages) * c.features.page_size;
}

int first_sharer(const Case& c, int b) {
    while (shared_keys(c, b) > 0) --b;
    return b;
}

namespace {

/// Last keys of a request that some row does not see: of a draft that is a tree all.
int hidden_keys(const Case& c) {
    return c.causal ? c.shape.Nq - (c.features.tree.empty() ? 1 : 0) : 0;
}

/// The most keys in whole pages that each row of each request sees; at least 0.
int longest_prefix(const Case& c) {
    int keys = c.shape.Nk;
    for (const int length : lengths_of(c)) keys = std::min(keys, length);
    return std::max(0, keys - hidden_keys(c)) / c.features.page_size * c.features.page_size;
}

void require_prefix(const Case& c) {
    const int prefix = c.features.prefix;
    if (c.features.page_size == 0) throw BadUsage("a shared prefix needs pages: --page-size");
    if (c.features.window != Window())
        throw BadUsage("a shared prefix, which every row sees, does not go with a window");
    if (prefix < 0 || prefix % c.features.page_size != 0)
        throw BadUsage(
            fmt::format("a prefix of {} keys is not so many pages of {}", prefix, c.features.page_size));
    if (const int most = longest_prefix(c); prefix > most)
        throw BadUsage(fmt::format("each row must see the prefix of {} keys: at most {}", prefix, most));
}

/// For a case that has pages; some requests get longer.
void draw_prefix(std::mt19937_64& random, const Stage&, Case& c) {
    if (c.features.page_size == 0 || random() % 4 == 0) return;
    Case with_room = c;
    with_room.features.lengths.clear();
    const int pages = longest_prefix(with_room) / c.features.page_size;
    c.features.prefix =
        static_cast<int>(random() % (static_cast<std::uint64_t>(pages) + 1)) * c.features.page_size;
    std::vector<int> lengths = lengths_of(c);
    const int least = c.features.prefix + hidden_keys(c);
    for (int& length : lengths) length = std::max(length, least);
    if (c.features.prefix != 0) c.features.lengths = fmt::format("{}", fmt::join(lengths, ","));
}

/// Prefixes next to the ends of tiles, that a request has nothing after, or as much as its rows need, or
/// tiles; with rows of several requests in a tile, and of one request in several.
/// Last, rows whose number has an inexact reciprocal.
std::vector<Case> prefix_corners(const Stage&, int d, const Tiling& t) {
    std::vector<Case> cases;
    for (const int prefix : {1, t.Bc - 1, t.Bc, t.Bc + 1, 3 * t.Bc}) {
        for (const auto& [B, Nq] : {std::pair{9, 1}, {3, 5}, {2, t.Br + 1}}) {
            Case& c = cases.emplace_back();
            c.shape = {.B = B, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = 5 * t.Bc + std::max(t.Bc, t.Br + 1), .d = d};
            c.causal = Nq > 1;
            c.features = {.lengths = fmt::format("{},{}", prefix + Nq - 1, prefix + Nq + 2 * t.Bc),
                          .page_size = prefix % t.Bc == 0 ? 16 : 1,
                          .prefix = prefix};
            c.layout = usual_layouts[cases.size() % std::size(usual_layouts)];
            c.seed = cases.size();
            c.multiprocessors = std::array{1, 3, 8, 132}[cases.size() % 4];
        }
    }
    cases.push_back(
        {.shape = {3, 2, 1, 41, 61 + t.Bc, d},
         .causal = true,
         .features = {.lengths = fmt::format("{},57,70", 60 + t.Bc), .page_size = 16, .prefix = 16}});
    return cases;
}

std::vector<Case> shorter_prefixes(const Case& c) {
    std::vector<Case> cases{c, c};
    cases[0].features.prefix = 0;
    cases[1].features.prefix = c.features.prefix / c.features.page_size / 2 * c.features.page_size;
    return cases;
}

void fit_prefix(Case& c) {
    if (c.features.page_size == 0) c.features.prefix = 0;
    if (c.features.prefix != 0) c.features.prefix = std::min(c.features.prefix, longest_prefix(c));
}

/// Whole pages that every row sees; of lengths and pages that are on a GPU nothing is known.
void take_prefix(const Given& given, Problem& p, Features& f) {
    const std::int64_t prefix = given.integer("prefix"), size = p.page_size;
    if (prefix == 0) return;
    if (size == 0) refuse("prefix", "it needs pages: block_table");
    if (f.window != Window()) refuse("prefix", "every row sees it, so it does not go with window");
    if (prefix < 0 || prefix % size != 0)
        refuse("prefix", "{} keys are not so many pages of {}", prefix, size);
    std::int64_t keys = given.Nk;
    for (const int length : given.readable("seqused")) keys = std::min<std::int64_t>(keys, length);
    if (given.causal) keys -= given.Q[2] - (f.tree.empty() ? 1 : 0);
    if (prefix > keys)
        refuse("prefix", "each row must see its {} keys; one sees {}", prefix,
               std::max<std::int64_t>(keys, 0));
    const auto table = given.readable("block_table");
    const auto pages = static_cast<std::size_t>(given.Nk / size),
               shared = static_cast<std::size_t>(prefix / size);
    for (std::size_t i = pages; i < table.size(); ++i) {
        if (const std::size_t page = i % pages; page < shared && table[i] != table[page])
            refuse("prefix", "request {} has its page {} elsewhere than request 0", i / pages, page);
    }
    p.prefix = f.prefix = static_cast<int>(prefix);
}

}  // namespace

FeatureInfo prefix_feature() {
    auto info = feature_of<&Features::prefix>(
        Feature::prefix, "--prefix", "N", "The first N keys of all requests are the same, in the same pages");
    info.in_short = [](const Features& f) { return short_size(f.prefix) + " in "; };
    info.require = require_prefix;
    info.excludes = {Feature::window};
    info.fill = [](const Case& c, const void*, Problem& p) { p.prefix = c.features.prefix; };
    info.keys = [](const Case& c, double keys) { return keys - (c.shape.B - 1.0) * c.features.prefix; };
    info.tell_peers = [](const Case& c, nlohmann::json& features) { features["prefix"] = c.features.prefix; };
    info.draw = draw_prefix;
    info.arguments = {{"prefix", CallArgument::Kind::integer}};
    info.take = take_prefix;
    info.corners = prefix_corners;
    info.put_small = [](Case& c) {
        c.features.lengths = "1100,2048,1300,1900";
        c.features.prefix = 1024;
    };
    info.simpler = shorter_prefixes;
    info.fit = fit_prefix;
    return info;
}

}  // namespace ladder
