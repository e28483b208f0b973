#include "harness/problem/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string_view>
#include <utility>

#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr std::uint16_t unused_slot = 0xffff;  // NaN in either type

/// "100,0,513"
std::vector<int> parse_keys(std::string_view text) {
    std::vector<int> lengths;
    for (std::string_view rest = text;;) {
        const std::string_view word = rest.substr(0, rest.find(','));
        int length = -1;
        if (!read_number(word, length) || length < 0)
            throw BadUsage(fmt::format("lengths '{}': expected A,B,..., each a number of keys", text));
        lengths.push_back(length);
        if (word.size() == rest.size()) return lengths;
        rest.remove_prefix(word.size() + 1);
    }
}

int pages_of(int keys, int page_size) {
    return (keys + page_size - 1) / page_size;
}

void require_lengths(const Case& c) {
    if (c.features.lengths.empty()) return;
    const std::vector<int> lengths = parse_keys(c.features.lengths);
    if (std::ssize(lengths) > c.shape.B)
        throw BadUsage(fmt::format("lengths '{}' are of {} requests; the problem has B = {}",
                                   c.features.lengths, lengths.size(), c.shape.B));
    if (const int most = *std::max_element(lengths.begin(), lengths.end()); most > c.shape.Nk)
        throw BadUsage(
            fmt::format("a request has {} keys; the problem has room for Nk = {}", most, c.shape.Nk));
}

/// The most keys in whole pages that each row of each request sees; at least 0.
int longest_prefix(const Case& c) {
    int keys = c.shape.Nk;
    for (const int length : lengths_of(c)) keys = std::min(keys, length);
    if (c.causal) keys = std::max(0, keys - c.shape.Nq + 1);
    return keys / c.features.page_size * c.features.page_size;
}

}  // namespace

void require_cache(const Case& c) {
    if (const int size = c.features.page_size;
        size != 0 && (size < 1 || size > 1 << 16 || !std::has_single_bit(unsigned(size))))
        throw BadUsage(fmt::format("pages of {} keys: expected a power of two up to 65536", size));
    if (c.features.has_cache() && !c.features.documents.empty())
        throw BadUsage("packed documents do not go with lengths of requests or pages");
    if (c.features.page_size != 0 && c.layout == Layout::far)
        throw BadUsage("--layout far does not go with pages");
    require_lengths(c);
    const int prefix = c.features.prefix;
    if (prefix == 0) return;
    if (c.features.page_size == 0) throw BadUsage("a shared prefix needs pages: --page-size");
    if (prefix < 0 || prefix % c.features.page_size != 0)
        throw BadUsage(
            fmt::format("a prefix of {} keys is not so many pages of {}", prefix, c.features.page_size));
    if (const int most = longest_prefix(c); prefix > most)
        throw BadUsage(fmt::format("each row must see the prefix of {} keys: at most {}", prefix, most));
}

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

int pool_pages(const Case& c) {
    return c.shape.B * pages_of(c.shape.Nk, c.features.page_size) + 1;
}

int shared_keys(const Case& c, int b) {
    if (b == 0) return 0;
    if (c.features.page_size == 0 || c.seed % 2 != 0) return c.features.prefix;
    const int common = std::min(length_of(c, b - 1), length_of(c, b)) - c.features.prefix;
    std::mt19937_64 random(c.seed + static_cast<std::uint64_t>(b));
    const auto pages = random() % (static_cast<std::uint64_t>(common / c.features.page_size) + 1);
    return c.features.prefix + static_cast<int>(pages) * c.features.page_size;
}

std::vector<int> block_table(const Case& c) {
    const int page_size = c.features.page_size;
    if (page_size == 0) return {};
    std::vector<int> pages(pool_pages(c));
    std::iota(pages.begin(), pages.end(), 0);
    std::mt19937_64 random(c.seed);
    for (std::size_t k = pages.size(); k > 1; --k) std::swap(pages[k - 1], pages[random() % k]);
    const int columns = pages_of(c.shape.Nk, page_size);
    std::vector<int> table(static_cast<std::size_t>(c.shape.B) * columns, -1);
    for (int b = 0; b < c.shape.B; ++b) {
        const int shared = shared_keys(c, b) / page_size;
        const auto row = table.begin() + std::ptrdiff_t{b} * columns;
        for (int k = 0; k < pages_of(length_of(c, b), page_size); ++k) {
            row[k] = k < shared ? row[k - columns] : pages.back();
            if (k >= shared) pages.pop_back();
        }
    }
    return table;
}

std::vector<std::uint16_t> in_slots(const Case& c, const std::vector<std::uint16_t>& dense) {
    const Shape& s = c.shape;
    const bool paged = c.features.page_size > 0;
    const int N = paged ? c.features.page_size : s.Nk, columns = pages_of(s.Nk, N);
    const std::vector<int> table = block_table(c);
    std::vector<std::uint16_t> slots(std::size_t(paged ? pool_pages(c) : s.B) * s.Hkv * N * s.d, unused_slot);
    for (int b = 0; b < s.B; ++b) {
        const int length = length_of(c, b);
        for (int h = 0; h < s.Hkv; ++h) {
            for (int j = 0; j < length; ++j) {
                const std::size_t slot = paged ? table[std::size_t(b) * columns + j / N] : b;
                std::copy_n(
                    dense.begin() + ((std::ptrdiff_t{b} * s.Hkv + h) * s.Nk + j) * s.d, s.d,
                    slots.begin() + static_cast<std::ptrdiff_t>(((slot * s.Hkv + h) * N + j % N) * s.d));
            }
        }
    }
    return slots;
}

void fit_cache(Case& c) {
    if (!c.features.lengths.empty()) {
        std::vector<int> lengths = parse_keys(c.features.lengths);
        if (std::ssize(lengths) > c.shape.B) lengths.resize(c.shape.B);
        for (int& length : lengths) length = std::min(length, c.shape.Nk);
        c.features.lengths = fmt::format("{}", fmt::join(lengths, ","));
    }
    if (c.features.prefix != 0) c.features.prefix = std::min(c.features.prefix, longest_prefix(c));
}

void draw_lengths(std::mt19937_64& random, Case& c) {
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

void draw_pages(std::mt19937_64& random, Case& c) {
    const auto power = random() % 10;
    if (power < 9 && c.layout != Layout::far) c.features.page_size = 1 << power;
}

void draw_prefix(std::mt19937_64& random, Case& c) {
    if (c.features.page_size == 0 || random() % 4 == 0) return;
    const Case with_room{
        .shape = c.shape, .causal = c.causal, .features = {.page_size = c.features.page_size}};
    const int pages = longest_prefix(with_room) / c.features.page_size;
    c.features.prefix =
        static_cast<int>(random() % (static_cast<std::uint64_t>(pages) + 1)) * c.features.page_size;
    std::vector<int> lengths = lengths_of(c);
    const int least = c.features.prefix + (c.causal ? c.shape.Nq - 1 : 0);
    for (int& length : lengths) length = std::max(length, least);
    if (c.features.prefix != 0) c.features.lengths = fmt::format("{}", fmt::join(lengths, ","));
}

}  // namespace ladder
