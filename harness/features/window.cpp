#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "harness/base/numbers.h"
#include "harness/features/feature.h"
#include "harness/features/work.h"
#include "stages/errors.h"

namespace ladder {
namespace {

/// "LEFT,RIGHT", each the keys that a row sees on that side of its own position, or -1 for all.
Window parse_window(std::string_view text) {
    Window window;
    const std::size_t comma = text.find(',');
    const auto read = [&](std::string_view word, int& keys) {
        return read_number(word, keys) && keys >= -1 && keys < 1 << 30;
    };
    if (comma == text.npos || !read(text.substr(0, comma), window.left) ||
        !read(text.substr(comma + 1), window.right)) {
        throw BadUsage(fmt::format(
            "window '{}': expected LEFT,RIGHT, each a number of keys below 2^30, or -1 for all", text));
    }
    return window;
}

/// One side or both, of any width up to all keys.
void draw_window(std::mt19937_64& random, const Stage&, Case& c) {
    const auto side = [&] {
        return random() % 4 == 0 ? -1 : static_cast<int>(random() % (1 << random() % 12) % c.shape.Nk);
    };
    const int left = side();
    c.features.window = {left, random() % 2 == 0 ? 0 : side()};
}

/// None, one-sided and two-sided ones, of one key, narrower and wider than a tile, and with edges at and next
/// to those of tiles.
void vary_window(std::mt19937_64&, const Stage& stage, std::size_t k, Case& c) {
    const auto dim = std::find(stage.head_dims.begin(), stage.head_dims.end(), c.shape.d);
    const Tiling& t = stage.tilings[dim - stage.head_dims.begin()];
    const Window windows[] = {{},
                              {0, 0},
                              {t.Bc - 1, 0},
                              {t.Bc, 0},
                              {-1, 5},
                              {3, 7},
                              {2 * t.Bc, -1},
                              {t.Br, t.Bc},
                              {t.Bc + 1, t.Br + 1},
                              {20, 0}};
    c.features.window = windows[k % std::size(windows)];
}

std::vector<Case> narrower_windows(const Case& c) {
    std::vector<Case> cases;
    for (int Window::*side : {&Window::left, &Window::right}) {
        const int keys = c.features.window.*side;
        for (const int fewer : {0, keys / 2, keys - 1}) {
            if (fewer >= 0 && fewer < keys) cases.emplace_back(c).features.window.*side = fewer;
        }
    }
    return cases;
}

/// Rows whose first key tile, of those that their neighbours need, hides all keys from them, and whose scores
/// may all be far below 0: what they start from must not be a maximum of 0.
std::vector<Case> window_corners(const Stage& stage, int d, const Tiling& t) {
    Case c{.shape = {1, 1, 1, 2 * t.Br, 2 * t.Br + t.Bc / 2 + 6, d},
           .pass = stage.pass,
           .input = "huge_constant"};
    c.features.window = {0, 0};
    return {c};
}

}  // namespace

FeatureInfo window_feature() {
    auto info = feature_of<&Features::window>(
        Feature::window, "--window", "LEFT,RIGHT",
        "Sliding window, aligned bottom-right: a row sees the key at its position, LEFT keys before it "
        "and RIGHT keys after it; -1: no limit");
    info.text = [](const Features& f) {
        return f.window == Window() ? "" : fmt::format("{},{}", f.window.left, f.window.right);
    };
    info.read = [](Features& f, const std::string& text) { f.window = parse_window(text); };
    info.is_text = false;
    info.in_short = [](const Features& f) { return short_size(f.window.left + f.window.right + 1) + " of "; };
    info.is_kept_alone = true;
    info.fill = [](const Case& c, const void*, Problem& p) { p.window = c.features.window; };
    info.mask = [](const Case& c, int, int, reference::Mask& mask) {
        mask.left = c.features.window.left;
        mask.right = c.features.window.right;
    };
    info.visible_scores = scores_of_rows;
    info.keys = [](const Case& c, double) { return c.shape.B * keys_of_rows(c, 0); };
    info.tell_peers = [](const Case& c, nlohmann::json& features) {
        features["window"] = {c.features.window.left, c.features.window.right};
    };
    info.arguments = {{"window", CallArgument::Kind::integer}};
    info.take = [](const Given& given, Problem& p, Features& f) {
        const auto sides = given.list("window");
        if (sides.size() != 2)
            throw BadUsage(fmt::format("window has {} numbers; expected left and right", sides.size()));
        p.window = f.window = {static_cast<int>(sides[0]), static_cast<int>(sides[1])};
    };
    info.depends_on_row = true;
    info.draw = draw_window;
    info.vary = vary_window;
    info.put_ordinary = [](Case& c) { c.features.window = {40, -1}; };
    info.put_on_diagonal = [](int distances, std::size_t, Case& c) {
        c.features.window.left = distances / 2;
    };
    info.put_small = [](Case& c) { c.features.window = {99, 0}; };
    info.corners = window_corners;
    info.simpler = narrower_windows;
    return info;
}

}  // namespace ladder
