#include "harness/features/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string_view>

#include "harness/base/numbers.h"
#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/work.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {
namespace {

struct Length {
    int rows, keys;
};

/// "512,0,1x512"
std::vector<Length> parse_lengths(std::string_view text) {
    std::vector<Length> lengths;
    for (const std::string_view word : comma_separated(text)) {
        const auto read = [&](std::string_view digits) {
            int length = -1;
            if (!read_number(digits, length) || length < 0) {
                throw BadUsage(fmt::format(
                    "documents '{}': expected lengths A,B,..., each a number of tokens or ROWSxKEYS", text));
            }
            return length;
        };
        const std::size_t cross = word.find('x');
        const int rows = read(word.substr(0, cross));
        lengths.push_back({rows, cross == word.npos ? rows : read(word.substr(cross + 1))});
    }
    return lengths;
}

std::string text_of_lengths(const std::vector<Length>& lengths) {
    std::string text;
    for (const auto& [rows, keys] : lengths)
        text += fmt::format("{}{}{}", text.empty() ? "" : ",", rows,
                            rows == keys ? "" : fmt::format("x{}", keys));
    return text;
}

/// 0, bounds in ascending order, and N. Some are the same.
std::vector<int> random_bounds(std::mt19937_64& random, int N, int count) {
    std::vector<int> bounds{0, N};
    for (int k = 1; k < count; ++k) {
        const int bound = static_cast<int>(random() % (static_cast<std::uint64_t>(N) + 1));
        const int next_to_tile = (bound + 32) / 64 * 64 + static_cast<int>(random() % 3) - 1;
        bounds.push_back(random() % 4 == 0   ? bounds[random() % bounds.size()]
                         : random() % 2 == 0 ? bound
                                             : std::clamp(next_to_tile, 0, N));
    }
    std::sort(bounds.begin(), bounds.end());
    return bounds;
}

}  // namespace

std::vector<reference::Document> documents_of(const Case& c) {
    std::vector<reference::Document> documents;
    if (c.features.documents.empty()) return documents;
    int row = 0, key = 0;
    for (const auto& [rows, keys] : parse_lengths(c.features.documents)) {
        documents.push_back({row, row + rows, key, key + keys});
        row += rows, key += keys;
    }
    return documents;
}

std::vector<int> document_bounds(const Case& c) {
    const auto documents = documents_of(c);
    std::vector<int> bounds;
    if (documents.empty()) return bounds;
    for (const reference::Document& document : documents) bounds.push_back(document.first_row);
    bounds.push_back(c.shape.Nq);
    for (const reference::Document& document : documents) bounds.push_back(document.first_key);
    bounds.push_back(c.shape.Nk);
    return bounds;
}

namespace {

/// They have Nq rows and Nk keys in all.
void require_documents(const Case& c) {
    std::int64_t rows = 0, keys = 0;
    for (const Length& length : parse_lengths(c.features.documents)) rows += length.rows, keys += length.keys;
    if (c.shape.B != 1) throw BadUsage("documents are packed in one sequence: B must be 1");
    if (rows != c.shape.Nq || keys != c.shape.Nk) {
        throw BadUsage(
            fmt::format("documents '{}' have {} rows and {} keys; the problem has Nq = {} and Nk = {}",
                        c.features.documents, rows, keys, c.shape.Nq, c.shape.Nk));
    }
    if (!c.features.columns.empty()) throw BadUsage("packed documents do not go with column bounds");
    if (c.features.has_cache())
        throw BadUsage("packed documents do not go with lengths of requests or pages");
}

/// One document less, or one that is half as long.
std::vector<Case> smaller_documents(const Case& c) {
    std::vector<Case> cases;
    const std::vector<Length> lengths = parse_lengths(c.features.documents);
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        for (const int part : {0, 2}) {
            std::vector<Length> smaller = lengths;
            if (part == 0) smaller.erase(smaller.begin() + static_cast<std::ptrdiff_t>(k));
            if (part != 0) smaller[k] = {lengths[k].rows / part, lengths[k].keys / part};
            Case& other = cases.emplace_back(c);
            other.features.documents = text_of_lengths(smaller);
            other.shape.Nq = other.shape.Nk = 0;
            for (const Length& length : smaller) other.shape.Nq += length.rows, other.shape.Nk += length.keys;
            if (std::min(other.shape.Nq, other.shape.Nk) == 0 || other == c) cases.pop_back();
        }
    }
    return cases;
}

/// For so many rows and keys: of any length, half of the bounds next to those of tiles, some empty.
std::string random_documents(std::mt19937_64& random, int Nq, int Nk) {
    const int count = 1 + static_cast<int>(random() % 8);
    const std::vector<int> rows = random_bounds(random, Nq, count);
    const std::vector<int> keys = Nq == Nk && random() % 2 == 0 ? rows : random_bounds(random, Nk, count);
    std::vector<Length> lengths;
    for (int k = 0; k < count; ++k) lengths.push_back({rows[k + 1] - rows[k], keys[k + 1] - keys[k]});
    return text_of_lengths(lengths);
}

/// Documents or none, which one sequence has: the batch entries become rows and keys of this one.
void pack_at_random(std::mt19937_64& random, const Stage&, Case& c) {
    if (random() % 6 == 0) return;
    c.shape.Nq *= c.shape.B;
    c.shape.Nk *= c.shape.B;
    c.shape.B = 1;
    c.features.documents = random_documents(random, c.shape.Nq, c.shape.Nk);
}

/// More documents than a search of six steps tells apart, and than two warps have lanes.
Case many_documents(int d) {
    Case c{.shape = {.H = 2, .Hkv = 1, .Nq = 0, .Nk = 0, .d = d}, .causal = true, .layout = Layout::bnhd};
    for (int k = 0; k < 70; ++k) {
        const int rows = k % 4, keys = k % 7;
        c.features.documents += fmt::format("{}{}x{}", k == 0 ? "" : ",", rows, keys);
        c.shape.Nq += rows, c.shape.Nk += keys;
    }
    return c;
}

/// Documents of lengths next to those of tiles, of one token and of none, at both ends and between others; of
/// rows and keys that differ, more of either, and none of one. With and without a mask, and in a window.
std::vector<Case> packed_corners(const Stage& stage, int d, const Tiling& t) {
    const int B = std::max(t.Br, t.Bc);
    const std::string edges = fmt::format("0,1,{},{},{},0,{},0", B - 1, B, B + 1, 2 * B + 1);
    const char* const lists[] = {edges.c_str(), "1,1,1,1,1,1", "5x0,70x3,0x7,3x70,1x300,0x0,0x1",
                                 "0x9,9x0,4"};
    std::vector<Case> cases;
    for (const char* documents : lists) {
        for (const Window& window : {Window{}, {t.Bc / 2, -1}, {3, 5}}) {
            for (const bool causal : {false, true}) {
                Case c{.shape = {.H = 2, .Hkv = 1, .d = d},
                       .pass = stage.pass,
                       .causal = causal,
                       .features = {.window = window}};
                c.features.documents = documents;
                c.dtype = causal ? DType::bf16 : DType::fp16;
                c.layout = usual_layouts[cases.size() % std::size(usual_layouts)];
                c.shape.Nq = c.shape.Nk = 0;
                for (const auto& [first_row, end_row, first_key, end_key] : documents_of(c))
                    c.shape.Nq = end_row, c.shape.Nk = end_key;
                cases.push_back(c);
            }
        }
    }
    cases.push_back(many_documents(d));
    return cases;
}

/// Two halves, which differ where rows and keys do.
void pack_two(Case& c) {
    if (c.shape.B != 1) return;
    const int rows = c.shape.Nq / 2, keys = c.shape.Nk / 2;
    c.features.documents = fmt::format("{}x{},{}x{}", rows, keys, c.shape.Nq - rows, c.shape.Nk - keys);
}

/// Where documents of N rows or keys begin: 0, numbers that do not fall, N.
const int* bounds_of(const Given& given, const char* name, const char* what, std::int64_t N) {
    const Array& numbers = *given.array(name);
    if (numbers.axes.size() != 1 || numbers.axes[0] < 2 || numbers.axes[0] > INT_MAX)
        refuse(name, "they are {}; expected (documents + 1)", axes_text(numbers.axes));
    const auto begin = given.readable(name);
    if (!begin.empty()) {
        if (begin.front() != 0) refuse(name, "the first is {}; expected 0", begin.front());
        if (begin.back() != N) refuse(name, "the last is {}; expected {} = {}", begin.back(), what, N);
        require_ascent(name, begin, "length is negative");
    }
    return numbers.integers();
}

/// Without keys the rows are both.
void take_documents(const Given& given, Problem& p, Features& f) {
    const Array* rows = given.array("cu_seqlens_q");
    if (!f.columns.empty()) refuse("cu_seqlens_q", "packed documents do not go with column bounds");
    if (rows == nullptr) refuse("cu_seqlens_k", "they are given without cu_seqlens_q");
    if (given.Q[0] != 1)
        refuse("cu_seqlens_q", "documents are packed in one sequence: B must be 1, and is {}", given.Q[0]);
    const char* const keys = given.has("cu_seqlens_k") ? "cu_seqlens_k" : "cu_seqlens_q";
    p.documents.rows = bounds_of(given, "cu_seqlens_q", "Nq", given.Q[2]);
    p.documents.keys = bounds_of(given, keys, "Nk", given.Nk);
    require_axes("cu_seqlens_k", *given.array(keys), rows->axes);
    p.documents.count = static_cast<int>(rows->axes[0] - 1);
    f.documents = given_numbers;
}

}  // namespace

FeatureInfo documents_feature() {
    auto info = feature_of<&Features::documents>(
        Feature::documents, "--documents", "A,B,...",
        "Documents packed in one sequence: their lengths in tokens, or ROWSxKEYS where these differ");
    info.in_short = [](const Features& f) {
        return fmt::format("{} in ", comma_separated(f.documents).size());
    };
    info.require = require_documents;
    info.excludes = {Feature::columns};
    info.array = "documents";
    info.numbers = document_bounds;
    info.fill = [](const Case& c, const void* numbers, Problem& p) {
        const auto count = static_cast<int>(documents_of(c).size());
        const int* bounds = static_cast<const int*>(numbers);
        p.documents = {bounds, bounds + count + 1, count};
    };
    info.mask = [](const Case& c, int, int, reference::Mask& mask) { mask.documents = documents_of(c); };
    info.visible_scores = scores_of_rows;
    info.tell_peers = [](const Case& c, nlohmann::json& features) {
        features["documents"] = document_bounds(c);
    };
    info.arguments = {{"cu_seqlens_q", CallArgument::Kind::int32, "rows of documents"},
                      {"cu_seqlens_k", CallArgument::Kind::int32, "keys of documents"}};
    info.take = take_documents;
    info.sets_sizes = true;
    info.depends_on_row = true;
    info.draw = pack_at_random;
    info.put_ordinary = pack_two;
    info.corners = packed_corners;
    info.put_small = [](Case& c) { c.features.documents = "200,40,272"; };
    info.simpler = smaller_documents;
    return info;
}

}  // namespace ladder
