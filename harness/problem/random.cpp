#include "harness/problem/random.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "harness/problem/cache.h"
#include "harness/problem/columns.h"
#include "harness/problem/documents.h"
#include "harness/problem/inputs.h"
#include "harness/problem/tiles.h"

namespace ladder {
namespace {

/// (16 rows, 16 keys) pieces of all heads: what a CPU computes.
double pieces(const Shape& s) {
    return double(s.B) * s.H * ((s.Nq + 15) / 16) * ((s.Nk + 15) / 16) * s.d / 64;
}
constexpr double most_pieces = 500;

/// What may be simpler in a case, each by itself: halves of sizes before single steps, and all that is not
/// the default.
std::vector<Case> simpler(const Case& c) {
    std::vector<Case> list;
    const auto add = [&](auto&& change) {
        Case other = c;
        change(other);
        if (!(other == c)) list.push_back(other);
    };
    for (int Shape::*size : {&Shape::B, &Shape::Nk, &Shape::Nq}) {
        if (!c.features.documents.empty()) break;  // whose lengths these are
        for (const int smaller : {1, (c.shape.*size + 1) / 2, c.shape.*size - 1})
            add([&](Case& other) {
                other.shape.*size = std::max(1, smaller);
                fit_cache(other);
            });
    }
    const int group = c.shape.H / c.shape.Hkv;
    for (const auto& [Hkv, heads] : {std::pair{1, 1},
                                     {c.shape.Hkv, 1},
                                     {1, group},
                                     {c.shape.Hkv - 1, group},
                                     {c.shape.Hkv, group - 1}}) {
        add([&, Hkv = std::max(1, Hkv), heads = std::max(1, heads)](Case& other) {
            other.shape.Hkv = Hkv;
            other.shape.H = Hkv * heads;
        });
    }
    add([](Case& other) { other.causal = false; });
    add([](Case& other) { other.features.window = {}; });
    add([](Case& other) { other.features.columns.clear(); });
    add([](Case& other) { other.features.tiles.clear(); });
    add([](Case& other) { other.features.dropout = {}; });
    if (!c.features.tiles.empty())
        add([](Case& other) { other.features.tiles = tile_patterns().front().name; });
    add([](Case& other) { other.features.documents.clear(); });
    add([](Case& other) { other.features.lengths.clear(); });
    add([](Case& other) { other.features.page_size = other.features.prefix = 0; });
    for (const int pages : {0, c.features.prefix / std::max(1, c.features.page_size) / 2})
        add([=](Case& other) { other.features.prefix = pages * other.features.page_size; });
    for (const Case& other : smaller_documents(c)) list.push_back(other);
    if (!c.features.columns.empty())
        add([](Case& other) { other.features.columns = column_patterns().front().name; });
    for (int Window::*side : {&Window::left, &Window::right}) {
        for (const int smaller : {0, c.features.window.*side / 2, c.features.window.*side - 1}) {
            if (smaller >= 0 && smaller < c.features.window.*side)
                add([=](Case& other) { other.features.window.*side = smaller; });
        }
    }
    for (const Layout plainer : {Layout::bhnd, Layout::bnhd, Layout::mixed}) {
        if (plainer < c.layout) add([=](Case& other) { other.layout = plainer; });
    }
    add([](Case& other) { other.input = "normal"; });
    add([](Case& other) { other.scale.reset(); });
    add([](Case& other) { other.multiprocessors = 0; });
    add([](Case& other) { other.dtype = DType::fp16; });
    add([](Case& other) { other.seed = 1; });
    return list;
}

/// One side or both, of any width up to all keys.
void draw_window(std::mt19937_64& random, Case& c) {
    const auto side = [&] {
        return random() % 4 == 0 ? -1 : static_cast<int>(random() % (1 << random() % 12) % c.shape.Nk);
    };
    const int left = side();
    c.features.window = {left, random() % 2 == 0 ? 0 : side()};
}

/// The name of a pattern, or none; half of the time one of the last two, any mask.
std::string draw_pattern(std::mt19937_64& random, const auto& patterns) {
    const std::size_t n = patterns.size(), k = random() % (2 * n);
    return k == 0 ? "" : patterns[k < n ? k - 1 : n - 1 - k % 2].name;
}

void draw_columns(std::mt19937_64& random, Case& c) {
    c.features.columns = draw_pattern(random, column_patterns());
}

/// Instead of a causal mask.
void draw_tiles(std::mt19937_64& random, Case& c) {
    c.features.tiles = draw_pattern(random, tile_patterns());
    if (!c.features.tiles.empty()) c.causal = false;
}

void draw_dropout(std::mt19937_64& random, Case& c) {
    const int kept = 1 + static_cast<int>(random() % 256);
    if (kept < 256) c.features.dropout = {kept, random()};
}

/// As many as the sequence has chunks for.
void draw_ranks(std::mt19937_64& random, const Stage& stage, Case& c) {
    constexpr int drawn[] = {1, 2, 3, 4, 5, 7, 8, 9, 11};
    const int rows = stage.divides_rows ? std::min(c.shape.Nq, c.shape.Nk) : c.shape.Nk;
    c.features.ranks = std::clamp(rows / stage.chunks, 1, drawn[random() % std::size(drawn)]);
    if (c.features.ranks == 1) return;
    c.layout = Layout::bhnd;
    if (c.causal && stage.divides_rows) c.shape.Nq = c.shape.Nk = rows;
}

}  // namespace

Case random_case(std::mt19937_64& random, const std::vector<int>& head_dims, int k) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
    const auto one_of = [&](const auto& list) {
        return list[static_cast<std::size_t>(below(std::size(list)))];
    };
    // As many small sizes as large ones, and every other near a multiple of what tiles are made of.
    const auto size = [&](int most) {
        const int n = 1 + below(2 << below(most));
        return below(2) == 0 ? n : std::max(1, (n + 15) / 16 * 16 + below(3) - 1);
    };
    Case c;
    c.shape.d = head_dims[static_cast<std::size_t>(k) % head_dims.size()];
    const auto draw = [&](auto&& change) {  // what is not too large
        Case drawn = c;
        do {
            drawn = c;
            change(drawn.shape);
        } while (pieces(drawn.shape) > most_pieces);
        c = drawn;
    };
    draw([&](Shape& s) {
        s.Nq = size(9);
        s.Nk = size(12);
    });
    draw([&](Shape& s) {
        s.B = 1 + below(4);
        s.Hkv = 1 + below(below(4) + 1);
        s.H = s.Hkv * (1 + below(1 << below(4)));
    });
    c.dtype = k / static_cast<int>(head_dims.size()) % 2 == 0 ? DType::fp16 : DType::bf16;
    c.causal = below(2) == 1;
    constexpr Layout drawn_layouts[] = {Layout::bhnd,  Layout::bhnd,  Layout::bnhd,  Layout::bnhd,
                                        Layout::mixed, Layout::mixed, Layout::mixed, Layout::far};
    c.layout = one_of(drawn_layouts);
    c.input = below(2) == 0 ? "normal" : one_of(input_kinds()).name;
    c.seed = random() % 1000;
    constexpr std::optional<float> drawn_scales[] = {std::nullopt, std::nullopt, std::nullopt, 1.0f,
                                                     0.1f,         -0.25f,       -0.1f,        0.0f};
    c.scale = one_of(drawn_scales);
    constexpr int drawn_machines[] = {0, 1, 2, 3, 8, 40, 108, 132};
    c.multiprocessors = one_of(drawn_machines);
    return c;
}

void draw_features(std::uint64_t seed, const Stage& stage, Case& c) {
    // Each feature from a generator of its own: what else a stage takes does not change it.
    const auto draw = [&](Feature feature, auto&& change) {
        std::mt19937_64 random(seed + 0x9e3779b97f4a7c15 * (1 + static_cast<std::uint64_t>(feature)));
        if (takes(stage, feature)) change(random, c);
    };
    draw(Feature::documents, pack_at_random);
    draw(Feature::tiles, draw_tiles);
    draw(Feature::window, draw_window);
    draw(Feature::columns, draw_columns);
    draw(Feature::dropout, draw_dropout);
    draw(Feature::lengths, draw_lengths);
    draw(Feature::pages, draw_pages);
    draw(Feature::prefix, draw_prefix);
    draw(Feature::ranks, [&](std::mt19937_64& random, Case& other) { draw_ranks(random, stage, other); });
}

void pack_at_random(std::mt19937_64& random, Case& c) {
    if (random() % 6 == 0) return;
    c.shape.Nq *= c.shape.B;
    c.shape.Nk *= c.shape.B;
    c.shape.B = 1;
    c.features.documents = random_documents(random, c.shape.Nq, c.shape.Nk);
}

Case shrink(Case c, const std::function<bool(const Case&)>& fails) {
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (const Case& other : simpler(c)) {
            if (!fails(other)) continue;
            c = other;
            smaller = true;
            break;
        }
    }
    return c;
}

}  // namespace ladder
