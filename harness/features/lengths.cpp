#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "harness/base/numbers.h"
#include "harness/features/cache.h"
#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "stages/errors.h"

namespace ladder {
namespace {

/// "100,0,513"
std::vector<int> parse_keys(std::string_view text) {
    std::vector<int> lengths;
    for (const std::string_view word : comma_separated(text)) {
        int& length = lengths.emplace_back(-1);
        if (!read_number(word, length) || length < 0)
            throw BadUsage(fmt::format("lengths '{}': expected A,B,..., each a number of keys", text));
    }
    return lengths;
}

}  // namespace

std::vector<int> lengths_of(const Case& c) {
    if (c.features.lengths.empty()) return {};
    const std::vector<int> some = parse_keys(c.features.lengths);
    std::vector<int> lengths(c.shape.B);
    for (std::size_t b = 0; b < lengths.size(); ++b) lengths[b] = some[b % some.size()];
    return lengths;
}

int length_of(const Case& c, int b) {
    return c.features.lengths.empty() ? c.shape.Nk : lengths_of(c)[b];
}

namespace {

void require_lengths(const Case& c) {
    const std::vector<int> lengths = parse_keys(c.features.lengths);
    if (std::ssize(lengths) > c.shape.B)
        throw BadUsage(fmt::format("lengths '{}' are of {} requests; the problem has B = {}",
                                   c.features.lengths, lengths.size(), c.shape.B));
    if (const int most = *std::max_element(lengths.begin(), lengths.end()); most > c.shape.Nk)
        throw BadUsage(
            fmt::format("a request has {} keys; the problem has room for Nk = {}", most, c.shape.Nk));
}

/// Of any size, half of them next to the ends of pages and tiles, some 0.
void draw_lengths(std::mt19937_64& random, const Stage&, Case& c) {
    if (random() % 6 == 0) return;
    std::vector<int> lengths(c.shape.B);
    for (int& length : lengths) {
        length = static_cast<int>(random() % (static_cast<std::uint64_t>(c.shape.Nk) + 1));
        const int edge = (length + 8) / 16 * 16 + static_cast<int>(random() % 3) - 1;
        if (random() % 2 == 0) length = std::clamp(edge, 0, c.shape.Nk);
        if (random() % 8 == 0) length = static_cast<int>(random() % 2);
    }
    c.features.lengths = fmt::format("{}", fmt::join(lengths, ","));
}

/// Requests of lengths next to those of tiles, of one key and of none, first, last and between others; and
/// rows of a draft that see none of its keys. On machines whose blocks take one tile, several requests or a
/// part of one, also in long shares; in pages below, at and above the size of a tile.
std::vector<Case> length_corners(const Stage& stage, int d, const Tiling& t) {
    const std::string edges = fmt::format("0,1,{},{},0,{},{},2", t.Bc - 1, t.Bc, t.Bc + 1, 2 * t.Bc),
                      one_long = fmt::format("0,1,{},0", 9 * t.Bc + 5), all_long = std::to_string(9 * t.Bc);
    constexpr int page_sizes[] = {16, 1, 256, 64, 2, 128};
    std::vector<Case> cases;
    for (const auto& [B, lengths] : {std::pair{8, edges}, {4, one_long}, {3, "0,0,0"}, {4, all_long}}) {
        for (const int multiprocessors : {1, 3, 8, 132}) {
            for (const int Nq : {1, 5}) {
                Case& c = cases.emplace_back();
                c.shape = {.B = B, .H = 4, .Hkv = 2, .Nq = Nq, .Nk = 9 * t.Bc + 7, .d = d};
                c.causal = Nq > 1;
                c.dtype = Nq > 1 ? DType::bf16 : DType::fp16;
                c.features.lengths = lengths;
                c.layout = usual_layouts[cases.size() % std::size(usual_layouts)];
                c.seed = cases.size();
                c.multiprocessors = multiprocessors;
                if (takes(stage, Feature::pages))
                    c.features.page_size = page_sizes[cases.size() % std::size(page_sizes)];
            }
        }
    }
    Case& many = cases.emplace_back();  // more requests than two warps have lanes
    many.shape = {70, 2, 1, 1, t.Bc + 1, d};
    many.features.lengths = fmt::format("1,{},0,{},5", t.Bc, t.Bc + 1);
    if (takes(stage, Feature::pages)) many.features.page_size = 16;
    return cases;
}

void fit_lengths(Case& c) {
    if (c.features.lengths.empty()) return;
    std::vector<int> lengths = parse_keys(c.features.lengths);
    if (std::ssize(lengths) > c.shape.B) lengths.resize(c.shape.B);
    for (int& length : lengths) length = std::min(length, c.shape.Nk);
    c.features.lengths = fmt::format("{}", fmt::join(lengths, ","));
}

/// Each request is a problem of its own.
double scores_of_requests(const Case& c) {
    Case own{.shape = c.shape, .causal = c.causal, .features = {.window = c.features.window}};
    own.shape.B = 1;
    double scores = 0;
    for (const int length : lengths_of(c)) {
        own.shape.Nk = length;
        scores += visible_scores(own);
    }
    return scores;
}

double keys_of_requests(const Case& c, double) {
    double keys = 0;
    for (int b = 0; b < c.shape.B; ++b) keys += keys_of_rows(c, b);
    return keys;
}

void put_small_requests(Case& c) {
    c.shape = {.B = 15, .H = 8, .Hkv = 2, .Nq = 1, .Nk = 2048, .d = 64};
    c.features.lengths = "100,2048,300,900";
}

}  // namespace

FeatureInfo lengths_feature() {
    auto info = feature_of<&Features::lengths>(
        Feature::lengths, "--lengths", "A,B,...",
        "Number of keys of each request, up to Nk; the list is repeated for further requests");
    info.in_short = [](const Features& f) {
        return fmt::format("{} in ", comma_separated(f.lengths).size());
    };
    info.require = require_lengths;
    info.array = "lengths";
    info.numbers = lengths_of;
    info.fill = [](const Case&, const void* numbers, Problem& p) {
        p.lengths = static_cast<const int*>(numbers);
    };
    info.mask = [](const Case& c, int b, int, reference::Mask& mask) { mask.Nk = length_of(c, b); };
    info.visible_scores = scores_of_requests;
    info.keys = keys_of_requests;
    info.tell_peers = [](const Case& c, nlohmann::json& features) { features["lengths"] = lengths_of(c); };
    info.draw = draw_lengths;
    info.put_ordinary = [](Case& c) { c.features.lengths = std::to_string(c.shape.Nk); };
    info.arguments = {{"seqused", CallArgument::Kind::int32, "lengths", "B"}};
    info.take = [](const Given& given, Problem& p, Features& f) {
        const Array& lengths = *given.array("seqused");
        require_axes("seqused", lengths, {given.Q[0]});
        require_range("seqused", given.readable("seqused"), "a length", given.Nk);
        p.lengths = lengths.integers();
        f.lengths = given_numbers;
    };
    info.corners = length_corners;
    info.put_small = put_small_requests;
    info.fit = fit_lengths;
    return info;
}

}  // namespace ladder
