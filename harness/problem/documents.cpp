#include "harness/problem/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

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
    for (std::string_view rest = text;;) {
        const std::string_view word = rest.substr(0, rest.find(','));
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
        if (word.size() == rest.size()) return lengths;
        rest.remove_prefix(word.size() + 1);
    }
}

std::string text_of(const std::vector<Length>& lengths) {
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

void require_documents(const Case& c) {
    if (c.features.documents.empty()) return;
    std::int64_t rows = 0, keys = 0;
    for (const Length& length : parse_lengths(c.features.documents)) rows += length.rows, keys += length.keys;
    if (c.shape.B != 1) throw BadUsage("documents are packed in one sequence: B must be 1");
    if (rows != c.shape.Nq || keys != c.shape.Nk) {
        throw BadUsage(
            fmt::format("documents '{}' have {} rows and {} keys; the problem has Nq = {} and Nk = {}",
                        c.features.documents, rows, keys, c.shape.Nq, c.shape.Nk));
    }
    if (!c.features.columns.empty()) throw BadUsage("packed documents do not go with column bounds");
}

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

std::vector<Case> smaller_documents(const Case& c) {
    std::vector<Case> cases;
    const auto lengths =
        c.features.documents.empty() ? std::vector<Length>() : parse_lengths(c.features.documents);
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        for (const int part : {0, 2}) {
            std::vector<Length> smaller = lengths;
            if (part == 0) smaller.erase(smaller.begin() + static_cast<std::ptrdiff_t>(k));
            if (part != 0) smaller[k] = {lengths[k].rows / part, lengths[k].keys / part};
            Case& other = cases.emplace_back(c);
            other.features.documents = text_of(smaller);
            other.shape.Nq = other.shape.Nk = 0;
            for (const Length& length : smaller) other.shape.Nq += length.rows, other.shape.Nk += length.keys;
            if (std::min(other.shape.Nq, other.shape.Nk) == 0 || other == c) cases.pop_back();
        }
    }
    return cases;
}

std::string random_documents(std::mt19937_64& random, int Nq, int Nk) {
    const int count = 1 + static_cast<int>(random() % 8);
    const std::vector<int> rows = random_bounds(random, Nq, count);
    const std::vector<int> keys = Nq == Nk && random() % 2 == 0 ? rows : random_bounds(random, Nk, count);
    std::vector<Length> lengths;
    for (int k = 0; k < count; ++k) lengths.push_back({rows[k + 1] - rows[k], keys[k + 1] - keys[k]});
    return text_of(lengths);
}

}  // namespace ladder
