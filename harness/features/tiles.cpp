#include "harness/features/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/patterns.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr int tile_side = 64;  // query rows and keys of a tile
constexpr std::uint64_t all_bits = ~std::uint64_t{0};

/// The lowest so many bits.
std::uint64_t lowest_bits(std::int64_t count) {
    return count <= 0 ? 0 : count >= tile_side ? all_bits : (std::uint64_t{1} << count) - 1;
}

/// The tiles of one head by pattern. Row i is at the position i + Nk - Nq of the keys, as under a causal
/// mask.
class TileDrawing {
  public:
    TileDrawing(const Case& c, std::uint64_t head)
        : Nq_(c.shape.Nq), Nk_(c.shape.Nk), random_(c.seed + 1000003 * head) {}

    reference::Tiles draw(std::string_view name) {
        const int Tr = (Nq_ + tile_side - 1) / tile_side, Tc = (Nk_ + tile_side - 1) / tile_side;
        for (int i = 0; i < Tr; ++i) {
            const bool nothing = below(6) == 0;  // is seen by a random query tile
            for (int j = 0; j < Tc; ++j) {
                const std::uint64_t luck = random_();
                const int key = j * tile_side;
                if (name == "quarter") {
                    add(i, j, [&](int) { return luck % 4 == 0 ? all_bits : 0; });
                } else if (name == "causal") {
                    add(i, j, [&](int row) { return lowest_bits(position(row) + 1 - key); });
                } else if (name == "diagonal_and_random") {
                    const bool before = key + tile_side <= position(i * tile_side),
                               seen = !before || luck % 4 == 0;
                    add(i, j, [&](int row) { return seen ? lowest_bits(position(row) + 1 - key) : 0; });
                } else if (name ==
                           "dilated") {  // every other key of the last eighth, the row's own among them
                    add(i, j, [&](int row) {
                        const std::uint64_t own = position(row) % 2 == 0 ? all_bits / 3 : all_bits / 3 * 2;
                        const std::int64_t end = position(row) + 1 - key;
                        return own & lowest_bits(end) & ~lowest_bits(end - std::max(1, Nk_ / 8));
                    });
                } else if (nothing || luck % 8 < 3) {
                    add(i, j, [&](int) { return 0; });
                } else if (luck % 8 < 5) {
                    add(i, j, [&](int) { return all_bits; });
                } else {  // a partial tile whose rows see all, none, one, a half, or any keys
                    add(i, j, [&](int) {
                        const std::uint64_t word = random_(), one = std::uint64_t{1} << below(tile_side);
                        const std::uint64_t words[] = {all_bits,       0,   one, all_bits << 32,
                                                       all_bits >> 32, word};
                        return words[below(6)];
                    });
                }
            }
        }
        return std::move(tiles_);
    }

  private:
    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
    std::int64_t position(int row) const { return std::int64_t{row} + Nk_ - Nq_; }

    /// The next tile, of which `keys` says what a row sees: hidden if that is nothing for all rows that
    /// exist, full if it is all.
    void add(int i, int j, const std::function<std::uint64_t(int row)>& keys) {
        std::vector<std::uint64_t> words(tile_side);
        bool hidden = true, full = true;
        for (int row = i * tile_side; row < std::min(Nq_, i * tile_side + tile_side); ++row) {
            const std::uint64_t seen = keys(row) & lowest_bits(Nk_ - j * tile_side);
            words[row % tile_side] = seen;
            hidden = hidden && seen == 0;
            full = full && seen == all_bits;
        }
        const int number = static_cast<int>(tiles_.bits.size()) / tile_side;
        tiles_.kinds.push_back(hidden ? reference::Tiles::hidden : full ? reference::Tiles::full : number);
        if (!hidden && !full) tiles_.bits.insert(tiles_.bits.end(), words.begin(), words.end());
    }

    const int Nq_, Nk_;
    std::mt19937_64 random_;
    reference::Tiles tiles_;
};

reference::Tiles drawn_head(const Case& c, int head) {
    return TileDrawing(c, static_cast<std::uint64_t>(head)).draw(c.features.tiles);
}

/// Batch entries and heads that have lists of their own.
int list_batches(const Case& c) {
    return tile_pattern(c.features.tiles).mask_of == MaskOf::all_heads ? 1 : c.shape.B;
}
int list_heads(const Case& c) {
    return heads_with_masks(tile_pattern(c.features.tiles).mask_of, c.shape);
}

/// The lists of a case, part by part.
struct DrawnLists {
    struct List {
        std::vector<int> first{0}, tiles;
    } full, partial;
    std::vector<std::uint64_t> bits;

    explicit DrawnLists(const Case& c) {
        const int Tr = (c.shape.Nq + tile_side - 1) / tile_side,
                  Tc = (c.shape.Nk + tile_side - 1) / tile_side;
        for (int head = 0; head < list_batches(c) * list_heads(c); ++head) {
            const reference::Tiles tiles = drawn_head(c, head);
            bits.insert(bits.end(), tiles.bits.begin(), tiles.bits.end());
            for (int i = 0; i < Tr; ++i) {
                for (int j = 0; j < Tc; ++j) {
                    const int kind = tiles.kinds[i * Tc + j];
                    if (kind == reference::Tiles::full) full.tiles.push_back(j);
                    if (kind >= 0) partial.tiles.push_back(j);
                }
                for (List* list : {&full, &partial})
                    list->first.push_back(static_cast<int>(list->tiles.size()));
            }
        }
    }
};

}  // namespace

const std::vector<TilePattern>& tile_patterns() {
    static const std::vector<TilePattern> patterns{
        {"quarter", "a quarter of all tiles, drawn", MaskOf::all_heads},
        {"causal", "tiles up to the diagonal: a causal mask", MaskOf::all_heads},
        {"diagonal_and_random", "the tiles of the diagonal, and a quarter of those before it, drawn",
         MaskOf::all_heads},
        {"dilated", "every other key of the last eighth of them", MaskOf::all_heads},
        {"query_heads", "any tiles with any bits, of each query head its own", MaskOf::query_heads},
        {"random", "any tiles with any bits, of each key/value head its own", MaskOf::key_heads},
    };
    return patterns;
}

const TilePattern& tile_pattern(std::string_view name) {
    return pattern_named(tile_patterns(), name, "tile lists");
}

reference::Tiles tiles_of(const Case& c, int b, int h) {
    if (c.features.tiles.empty()) return {};
    const int heads = list_heads(c);
    return drawn_head(c, b % list_batches(c) * heads + h / (c.shape.H / heads));
}

std::vector<int> make_tile_lists(const Case& c) {
    if (c.features.tiles.empty()) return {};
    const DrawnLists lists(c);
    std::vector<int> all;
    for (const std::uint64_t word : lists.bits)
        all.insert(all.end(), {static_cast<int>(word), static_cast<int>(word >> 32)});
    for (const auto& list : {lists.full, lists.partial}) {
        all.insert(all.end(), list.first.begin(), list.first.end());
        all.insert(all.end(), list.tiles.begin(), list.tiles.end());
    }
    return all;
}

TileLists tile_lists(const Case& c, const void* at) {
    if (c.features.tiles.empty()) return {};
    const DrawnLists lists(c);
    const auto* bits = static_cast<const std::uint64_t*>(at);
    const int* first = reinterpret_cast<const int*>(bits + lists.bits.size());
    const int* partial = first + lists.full.first.size() + lists.full.tiles.size();
    return {.full = {first, first + lists.full.first.size()},
            .partial = {partial, partial + lists.partial.first.size()},
            .bits = bits,
            .batches = list_batches(c),
            .heads = list_heads(c)};
}

namespace {

/// Of all heads, those that the lists leave.
double scores_of_tiles(const Case& c) {
    const int heads = list_batches(c) * list_heads(c), Tc = (c.shape.Nk + tile_side - 1) / tile_side;
    double scores = 0;
    for (int head = 0; head < heads; ++head) {
        const reference::Tiles tiles = drawn_head(c, head);
        for (std::size_t k = 0; k < tiles.kinds.size(); ++k) {
            const int rows = std::min(tile_side, c.shape.Nq - static_cast<int>(k) / Tc * tile_side);
            if (tiles.kinds[k] == reference::Tiles::full) scores += double(rows) * tile_side;
        }
        for (const std::uint64_t word : tiles.bits) scores += std::popcount(word);
    }
    return scores * (c.shape.B * c.shape.H / heads);
}

/// The kind of each tile, row by row of tiles, and the words of partial ones as halves of 32 bits; of all
/// heads.
void tell_peers_tiles(const Case& c, nlohmann::json& features) {
    const reference::Tiles tiles = tiles_of(c, 0, 0);
    auto halves = nlohmann::json::array();
    for (const std::uint64_t word : tiles.bits) halves.push_back({word & 0xffffffff, word >> 32});
    features["tiles"] = {{"kinds", tiles.kinds}, {"bits", halves}};
}

/// Instead of a causal mask.
void put_tiles(Case& c, const std::string& pattern) {
    c.features.tiles = pattern;
    if (!pattern.empty()) c.causal = false;
}

void require_no_other_mask(const Case& c) {
    if (c.causal || c.features.window != Window() || !c.features.columns.empty() ||
        !c.features.documents.empty() || c.features.has_cache())
        throw BadUsage("tile lists are the whole mask: they do not go with another one");
}

/// Rows that see no key of the first key tiles of their lists, and whose scores may all be far below 0: what
/// they start from must not be a maximum of 0.
std::vector<Case> tiles_corners(const Stage& stage, int d, const Tiling&) {
    return {{.shape = {1, 1, 1, 128, 384, d},
             .pass = stage.pass,
             .features = {.tiles = "quarter"},
             .input = "huge_constant"}};
}

/// Lists for `count` query tiles: where each begins, and key tiles that ascend and end at Nk keys at most.
TileList take_list(const Given& given, const char* name, const char* of_first, std::int64_t count) {
    const Array &first = *given.array(of_first), &tiles = *given.array(name);
    require_axes(name, first, {count + 1});
    if (tiles.axes.size() != 1) refuse(name, "its tiles are {}; expected one axis", axes_text(tiles.axes));
    const auto begin = given.readable(of_first), listed = given.readable(name);
    if (first.on_host && tiles.on_host) {
        if (begin.front() != 0 || begin.back() != tiles.axes[0])
            refuse(name, "the lists are from {} to {}; expected 0 to {}", begin.front(), begin.back(),
                   tiles.axes[0]);
        require_ascent(name, begin, "list has a negative length");
        for (std::size_t r = 0; r + 1 < begin.size(); ++r) {
            for (int k = begin[r], least = 0; k < begin[r + 1]; least = listed[k++] + 1) {
                if (listed[k] < least || std::int64_t{listed[k]} * tile_side >= given.Nk)
                    refuse(name, "query tile {} has key tile {}; expected {} to {}", r, listed[k], least,
                           (given.Nk - 1) / tile_side);
            }
        }
    }
    return {first.integers(), tiles.integers()};
}

/// That no query tile has a key tile in both lists, and that no row sees a key past Nk.
void require_one_mask(const Given& given) {
    const auto first = given.readable("full_first"), full = given.readable("full_tiles"),
               partial_first = given.readable("partial_first"), partial = given.readable("partial_tiles"),
               bits = given.readable("bits");
    for (std::size_t r = 0; r + 1 < first.size(); ++r) {
        for (int k = first[r]; k < first[r + 1]; ++k) {
            if ((std::int64_t{full[k]} + 1) * tile_side > given.Nk)
                refuse("full_tiles", "tile {} ends past Nk = {}: it must be a partial one", full[k],
                       given.Nk);
            if (const auto own = partial.subspan(partial_first[r], partial_first[r + 1] - partial_first[r]);
                std::binary_search(own.begin(), own.end(), full[k]))
                refuse("full_tiles", "query tile {} has key tile {} in both lists", r, full[k]);
        }
    }
    for (std::size_t k = 0; k < bits.size(); ++k) {
        const std::int64_t keys =
            given.Nk - std::int64_t{partial[k / 128]} * tile_side - static_cast<int>(k % 2) * 32;  // of 32
        if (keys < 32 && static_cast<unsigned>(bits[k]) >> std::max<std::int64_t>(keys, 0) != 0)
            refuse("bits", "row {} of partial tile {} sees a key past Nk = {}", k / 2 % 64, k / 128,
                   given.Nk);
    }
}

void take_tiles(const Given& given, Problem& p, Features& f) {
    const auto axes = given.list("tiles");
    const auto parts = {"full_first", "full_tiles", "partial_first", "partial_tiles", "bits"};
    for (const char* part : parts) {
        if (axes.size() != 4 || !given.has(part))
            refuse("tiles", "expected 4 axes and the arrays {}", fmt::join(parts, ", "));
    }
    const Axes& Q = given.Q;
    if (given.causal || f.window != Window() || !f.columns.empty() || !f.documents.empty())
        refuse("tiles", "lists of tiles are the whole mask: they do not go with another one");
    if ((axes[0] != 1 && axes[0] != Q[0]) || axes[1] < 1 || Q[1] % axes[1] != 0 || axes[2] != Q[2] ||
        axes[3] != given.Nk) {
        refuse("tiles", "they are of {}; expected ({}{}, a divisor of {} heads, {}, {})", axes_text(axes),
               Q[0] == 1 ? "" : "1 or ", Q[0], Q[1], Q[2], given.Nk);
    }
    const std::int64_t lists = axes[0] * axes[1] * ((Q[2] + tile_side - 1) / tile_side);
    p.tiles.full = take_list(given, "full_tiles", "full_first", lists);
    p.tiles.partial = take_list(given, "partial_tiles", "partial_first", lists);
    const Array& bits = *given.array("bits");
    require_axes("bits", bits, {given.array("partial_tiles")->axes[0], tile_side, 2});
    if (bits.data % 8 != 0) refuse("bits", "they must begin at a multiple of 8 bytes");
    if (std::all_of(parts.begin(), parts.end(), [&](const char* part) { return given.array(part)->on_host; }))
        require_one_mask(given);
    p.tiles.bits = reinterpret_cast<const std::uint64_t*>(bits.data);
    p.tiles.batches = static_cast<int>(axes[0]);
    p.tiles.heads = static_cast<int>(axes[1]);
    f.tiles = given_numbers;
}

}  // namespace

FeatureInfo tiles_feature() {
    auto info = pattern_feature<&Features::tiles, tile_patterns, tile_pattern, put_tiles>(
        Feature::tiles, "--tiles",
        "Lists of full and partial key tiles for each query tile, drawn by the seed: the whole mask");
    info.require = require_no_other_mask;
    info.excludes = {Feature::window, Feature::columns, Feature::documents};
    info.why_not_timed = [](const Features& f) {
        return why_pattern_not_timed("--tiles", tile_pattern(f.tiles), "lists");
    };
    info.array = "tile lists";
    info.numbers = make_tile_lists;
    info.fill = [](const Case& c, const void* numbers, Problem& p) { p.tiles = tile_lists(c, numbers); };
    info.mask = [](const Case& c, int b, int h, reference::Mask& mask) { mask.tiles = tiles_of(c, b, h); };
    info.visible_scores = scores_of_tiles;
    info.tell_peers = tell_peers_tiles;
    info.arguments = {{"tiles", CallArgument::Kind::integer}};
    info.take = take_tiles;
    for (const auto& [name, array] : {std::pair("full_first", "first tiles of lists"),
                                      {"full_tiles", "tiles of lists"},
                                      {"partial_first", "first tiles of lists"},
                                      {"partial_tiles", "tiles of lists"},
                                      {"bits", "bits of tiles"}})
        info.arguments.push_back({name, CallArgument::Kind::int32, array, "", true});
    info.put_on_diagonal = [](int, std::size_t k, Case& c) {
        put_tiles(c, tile_patterns()[k % tile_patterns().size()].name);
    };
    info.corners = tiles_corners;
    info.put_small = [](Case& c) { c.features.tiles = "diagonal_and_random"; };
    return info;
}

}  // namespace ladder
