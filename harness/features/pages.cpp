#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <iterator>
#include <numeric>
#include <utility>

#include "harness/base/numbers.h"
#include "harness/features/cache.h"
#include "harness/features/checks.h"
#include "harness/features/feature.h"
#include "harness/features/features.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {
namespace {

constexpr std::uint16_t unused_slot = 0xffff;  // NaN in either type

int pages_of(int keys, int page_size) {
    return (keys + page_size - 1) / page_size;
}

}  // namespace

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

std::vector<SlotOwner> slot_owners(const Case& c) {
    const std::vector<int> table = block_table(c);
    std::vector<SlotOwner> owners(table.empty() ? c.shape.B : pool_pages(c));
    const int columns = static_cast<int>(std::ssize(table)) / c.shape.B, page = c.features.page_size;
    for (int b = 0; b < c.shape.B; ++b) {
        if (table.empty()) owners[b] = {b, length_of(c, b)};
        for (int j = 0; j < columns; ++j) {
            const int slot = table[std::size_t(b) * columns + j];
            if (slot >= 0) owners[slot] = {first_sharer(c, b), std::min(page, length_of(c, b) - j * page)};
        }
    }
    return owners;
}

std::vector<std::uint16_t> in_slots(const Case& c, const std::vector<std::uint16_t>& dense) {
    const Shape& s = c.shape;
    const bool paged = c.features.page_size > 0;
    const int N = paged ? c.features.page_size : s.Nk, columns = pages_of(s.Nk, N);
    const std::vector<int> table = block_table(c);
    std::vector<std::uint16_t> slots(std::size_t(paged ? pool_pages(c) : s.B) * s.Hkv * N * s.d, unused_slot);
    for (int b = 0; b < s.B; ++b) {
        const int length = length_of(c, b), first = mask_of(c, b, 0).first(0);
        for (int h = 0; h < s.Hkv; ++h) {
            for (int j = first; j < length; ++j) {
                const std::size_t slot = paged ? table[std::size_t(b) * columns + j / N] : b;
                std::copy_n(
                    dense.begin() + ((std::ptrdiff_t{b} * s.Hkv + h) * s.Nk + j) * s.d, s.d,
                    slots.begin() + static_cast<std::ptrdiff_t>(((slot * s.Hkv + h) * N + j % N) * s.d));
            }
        }
    }
    return slots;
}

namespace {

void require_pages(const Case& c) {
    if (const int size = c.features.page_size;
        size < 1 || size > 1 << 16 || !std::has_single_bit(unsigned(size)))
        throw BadUsage(fmt::format("pages of {} keys: expected a power of two up to 65536", size));
    if (c.layout == Layout::far) throw BadUsage("--layout far does not go with pages");
}

void draw_pages(std::mt19937_64& random, const Stage&, Case& c) {
    const auto power = random() % 10;
    if (power < 9 && c.layout != Layout::far) c.features.page_size = 1 << power;
}

/// Pages of more keys than a byte counts, and than a request has.
std::vector<Case> page_corners(const Stage&, int d, const Tiling&) {
    return {{.shape = {2, 2, 1, 3, 600, d},
             .dtype = DType::bf16,
             .causal = true,
             .features = {.lengths = "513,600", .page_size = 512}},
            {.shape = {2, 2, 2, 1, 70, d}, .features = {.lengths = "70,3", .page_size = 4096}}};
}

std::int64_t keys_in_pages(const Given& given) {
    const auto& axes = given.array("block_table")->axes;
    const std::int64_t size = given.K[2];
    if (axes.size() != 2 || axes[0] != given.Q[0] || axes[1] < 1)
        refuse("block_table", "it is {}; expected ({}, pages of a request)", axes_text(axes), given.Q[0]);
    if (size > 1 << 16 || !std::has_single_bit(static_cast<std::uint64_t>(size)))
        refuse("block_table", "a page has {} keys; expected a power of two up to 65536", size);
    if (axes[1] > INT_MAX / size) refuse("block_table", "{} pages are too many", axes[1]);
    return axes[1] * size;
}

/// Of a request's entries, those that its keys need. If its length is on a GPU nothing says which these are.
void take_pages(const Given& given, Problem& p, Features& f) {
    const Array &table = *given.array("block_table"), *lengths = given.array("seqused");
    const auto pages = given.readable("block_table"), keys = given.readable("seqused");
    const auto of_request = static_cast<std::size_t>(table.axes[1]);
    p.block_table = table.integers();
    p.page_size = f.page_size = static_cast<int>(given.K[2]);
    if (lengths != nullptr && !lengths->on_host) return;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        const std::size_t first_key = i % of_request * p.page_size;
        if (keys.empty() || first_key < static_cast<std::size_t>(keys[i / of_request]))
            require_range("block_table", pages.subspan(i, 1), "a page", given.K[0] - 1);
    }
}

}  // namespace

FeatureInfo pages_feature() {
    auto info = feature_of<&Features::page_size>(
        Feature::pages, "--page-size", "N",
        "Store K and V in pages of N keys, a power of two, shuffled by the seed");
    info.in_short = [](const Features& f) { return fmt::format("{}s of ", f.page_size); };
    info.require = require_pages;
    info.array = "block table";
    info.numbers = block_table;
    info.fill = [](const Case& c, const void* numbers, Problem& p) {
        p.block_table = static_cast<const int*>(numbers);
        p.page_size = c.features.page_size;
    };
    info.tell_peers = [](const Case& c, nlohmann::json& features) {
        features["page_size"] = c.features.page_size;
    };
    info.arguments = {{"block_table", CallArgument::Kind::int32, "block table"}};
    info.keys_of_request = keys_in_pages;
    info.take = take_pages;
    info.draw = draw_pages;
    info.corners = page_corners;
    info.put_small = [](Case& c) { c.features.page_size = 16; };
    return info;
}

}  // namespace ladder
