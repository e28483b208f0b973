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

Window random_window(std::mt19937_64& random, const Case& c) {
    const auto side = [&] {
        return random() % 4 == 0 ? -1 : static_cast<int>(random() % (1 << random() % 12) % c.shape.Nk);
    };
    return {side(), random() % 2 == 0 ? 0 : side()};
}

void pack_at_random(std::mt19937_64& random, Case& c) {
    if (random() % 6 == 0) return;
    c.shape.Nq *= c.shape.B;
    c.shape.Nk *= c.shape.B;
    c.shape.B = 1;
    c.features.documents = random_documents(random, c.shape.Nq, c.shape.Nk);
}

std::string random_columns(std::mt19937_64& random) {
    const std::size_t k = random() % (2 * column_patterns().size());  // half of the time the last, any bounds
    return k == 0 ? "" : column_patterns()[std::min(k, column_patterns().size()) - 1].name;
}

void draw_tiles(std::mt19937_64& random, Case& c) {
    const std::size_t k = random() % (2 * tile_patterns().size());  // half of the time the last, any tiles
    if (k == 0) return;
    c.features.tiles = tile_patterns()[std::min(k, tile_patterns().size()) - 1].name;
    c.causal = false;
}

Dropout random_dropout(std::mt19937_64& random) {
    const int kept = 1 + static_cast<int>(random() % 256);
    return kept == 256 ? Dropout() : Dropout{kept, random()};
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
