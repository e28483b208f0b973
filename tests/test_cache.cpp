/// @file
/// Requests with lengths of their own, and K and V in pages: where keys are, and who refuses them.

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>

#include "harness/cases/inputs.h"
#include "harness/cases/random.h"
#include "harness/device/device_problem.h"
#include "harness/features/cache.h"
#include "harness/features/features.h"
#include "harness/features/work.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "simt/e4m3.h"
#include "stages/errors.h"
#include "tests/any_stage.h"
#include "tests/catch.h"

using namespace ladder;

namespace {

Case cached(int B, int Nk, const std::string& lengths, int page_size, std::uint64_t seed = 1) {
    Case c{.shape = {.B = B, .H = 2, .Hkv = 2, .Nq = 3, .Nk = Nk, .d = 64}, .seed = seed};
    c.features = {.lengths = lengths, .page_size = page_size};
    return c;
}

}  // namespace

TEST_CASE("cache: a row sees the keys that its request has, bottom-right under a mask", "[problem]") {
    for (const bool causal : {false, true}) {
        Case c = cached(4, 9, "5,0,9,1", 0);
        c.causal = causal;
        double scores = 0;
        for (int b = 0; b < 4; ++b) {
            const int length = std::vector{5, 0, 9, 1}[b];
            const reference::Mask mask = mask_of(c, b, 0);
            for (int row = 0; row < 3; ++row) {
                int seen = 0;
                for (int key = 0; key < length; ++key) seen += !causal || key <= row + length - 3;
                CHECK(mask.visible(row) == seen);
                CHECK(mask.first(row) == 0);
                scores += 2 * seen;
            }
        }
        if (!causal) CHECK(flops(c.shape, causal, Pass::forward, c.features) == 4 * scores * 64);
        CHECK(parse_case(options_of(c)) == c);
    }
    // Of 36 rows of K and of V each head has 15; there are 12 of Q and O.
    CHECK(unavoidable_bytes(cached(4, 9, "", 0).shape, Pass::forward, {.lengths = "5,0,9,1"}) ==
          2.0 * 2 * (12 + 15) * 64 * 2);
    // A prefix is read once: 2 requests of 9 keys with 4 in common have 14 between them
    CHECK(unavoidable_bytes(cached(2, 9, "", 4).shape, Pass::forward, {.page_size = 4, .prefix = 4}) ==
          unavoidable_bytes(cached(2, 7, "", 4).shape, Pass::forward));
    CHECK(lengths_of(cached(5, 9, "5,0", 0)) == std::vector<int>{5, 0, 5, 0, 5});
}

TEST_CASE("cache: each key is in the slot that the block table says, and all other slots are NaN",
          "[problem]") {
    int shared = 0;
    for (const int page_size : {1, 2, 4, 8, 16}) {
        for (const std::uint64_t seed : {1, 2, 4}) {  // the last one with a prefix
            Case c = cached(4, 21, seed == 4 ? "20,21,16,18" : "20,21,0,13", page_size, seed);
            if (seed == 4) c.features.prefix = 16;
            const Inputs inputs = make_inputs(c);
            const std::vector<std::uint16_t> pool = in_slots(c, inputs.K);
            const std::vector<int> table = block_table(c);
            const int columns = (21 + page_size - 1) / page_size;
            REQUIRE(table.size() == std::size_t(4 * columns));
            REQUIRE(placement(c, Tensor::K).count() == pool.size());
            std::set<std::pair<int, int>> taken;  // page and slot
            for (int b = 0; b < 4; ++b) {
                const int length = lengths_of(c)[b];
                for (int k = 0; k < c.features.prefix / page_size; ++k)
                    CHECK(table[b * columns + k] == table[k]);
                for (int j = 0; j < length; ++j) {
                    const int page = table[b * columns + j / page_size];
                    REQUIRE((page >= 0 && page < pool_pages(c)));
                    const bool is_new = taken.emplace(page, j % page_size).second;
                    CHECK(is_new == (j >= shared_keys(c, b)));
                    shared += !is_new;
                    for (int h = 0; h < 2; ++h) {
                        const std::size_t slot = (std::size_t(page) * 2 + h) * page_size + j % page_size;
                        CHECK(std::equal(pool.begin() + slot * 64, pool.begin() + (slot + 1) * 64,
                                         inputs.K.begin() + ((b * 2 + h) * 21 + j) * 64));
                    }
                }
                for (int k = (length + page_size - 1) / page_size; k < columns; ++k)
                    CHECK(table[b * columns + k] == -1);
            }
            const auto numbers = std::count_if(pool.begin(), pool.end(), [](auto x) { return x != 0xffff; });
            CHECK(numbers == std::ptrdiff_t(taken.size()) * 2 * 64);
        }
    }
    CHECK(shared > 0);
    // A page holds its keys one after the other, each with all its heads.
    const Placement pages = placement(cached(4, 21, "", 8), Tensor::V);
    CHECK(pages.B == 4 * 3 + 1);
    CHECK(pages.head == 64);
    CHECK(pages.row == 2 * 64);
    CHECK(pages.batch == 8 * 2 * 64);
}

#ifdef LADDER_HAS_CPU
TEST_CASE("cache: in e4m3 each request has scales of its own, but those that share pages have one",
          "[problem]") {
    const auto device = open_device(Backend::cpu);
    Stage of_cache = test::child();
    of_cache.products = Products::of_8_bit_cache;
    int shared = 0;
    for (const int page_size : {0, 1, 8}) {
        for (const std::uint64_t seed : {1, 2}) {
            Case c = cached(4, 21, "20,21,0,13", page_size, seed);
            c.input = "outliers";
            const Inputs inputs = make_inputs(c);
            const DeviceInputs on_device(*device, c, inputs);
            const bool stale = seed == 2;  // slots that no request has hold another's numbers, not NaN
            for (const Buffer* buffer : {&on_device.K, &on_device.V}) {
                auto* numbers = static_cast<std::uint16_t*>(buffer->data());
                for (std::size_t n = 0; stale && n < buffer->bytes() / 2; ++n)
                    if (numbers[n] == 0xffff) numbers[n] = 0x7000;
            }
            Problem p;
            const RoundedInputs rounded(*device, of_cache, c, on_device);
            rounded.put_into(p);
            const std::vector<int> table = block_table(c);
            const auto number_at = [&](int b, int h, int j, int column) {
                const int page =
                    page_size == 0 ? b : table[b * ((21 + page_size - 1) / page_size) + j / page_size];
                const int slot = page_size == 0 ? j : j % page_size;
                const auto* numbers = static_cast<const simt::e4m3*>(p.K.data);
                return simt::value_of(numbers[page * p.K.batch + h * p.K.head + slot * p.K.row + column]);
            };
            for (int b = 0; b < 4; ++b) {
                const int length = length_of(c, b), first = first_sharer(c, b);
                shared += first < b;
                for (int h = 0; h < 2; ++h) {
                    const float scale = p.K_scales[2 * b + h];
                    CHECK(scale == p.K_scales[2 * first + h]);
                    if (length > 0 && first == b && b > 0) CHECK(scale != p.K_scales[2 * (b - 1) + h]);
                    float largest = 0;
                    for (int j = 0; j < length; ++j) {
                        for (int column = 0; column < 64; ++column) {
                            const float exact = static_cast<float>(std::bit_cast<Eigen::half>(
                                            inputs.K[((b * 2 + h) * 21 + j) * 64 + column])),
                                        number = number_at(b, h, j, column);
                            if (std::abs(number * scale - exact) > std::abs(exact) / 16 + scale / 512)
                                FAIL_CHECK(number << " times " << scale << " is not " << exact);
                            largest = std::max(largest, std::abs(number));
                        }
                    }
                    if (length > 0 && first == b && (b == 3 || first_sharer(c, b + 1) != b))
                        CHECK(largest == 448);
                    if (page_size == 0 && length < 21 && !stale)
                        CHECK(std::isnan(number_at(b, h, length, 0)));
                }
            }
        }
    }
    CHECK(shared > 0);
}

TEST_CASE("cache: in e4m3 each token may have a scale of its own, by head or by token", "[problem]") {
    const auto device = open_device(Backend::cpu);
    Stage of_cache = test::child();
    of_cache.products = Products::of_8_bit_cache;
    for (const int page_size : {0, 8}) {
        for (const Layout layout : {Layout::bhnd, Layout::bnhd, Layout::mixed}) {
            Case c = cached(4, 21, "20,21,0,13", page_size, 3);
            c.layout = layout;
            c.input = "outliers";
            c.features.token_scales = true;
            CHECK(parse_case(options_of(c)) == c);
            const Inputs inputs = make_inputs(c);
            const DeviceInputs on_device(*device, c, inputs);
            const RoundedInputs rounded(*device, of_cache, c, on_device);
            Problem p;
            rounded.put_into(p);
            REQUIRE((p.K_scales == nullptr && p.V_scales == nullptr));
            CHECK((p.V_token_scales.head == 1) == (layout != Layout::bhnd));
            CHECK((p.K_token_scales.head == 1) == (layout == Layout::bnhd));
            const std::vector<int> table = block_table(c);
            std::size_t numbers = 0;
            for (int b = 0; b < 4; ++b) {
                for (int h = 0; h < 2; ++h) {
                    for (int j = 0; j < length_of(c, b); ++j) {
                        const int page = page_size == 0 ? b : table[b * 3 + j / 8];
                        const int slot = page_size == 0 ? j : j % 8;
                        const auto of = [&](const View& x) {
                            return page * x.batch + h * x.head + slot * x.row;
                        };
                        const float scale =
                            static_cast<const float*>(p.V_token_scales.data)[of(p.V_token_scales)];
                        float largest = 0;
                        for (int column = 0; column < 64; ++column) {
                            const auto exact = static_cast<float>(
                                std::bit_cast<Eigen::half>(inputs.V[((b * 2 + h) * 21 + j) * 64 + column]));
                            const float number =
                                simt::value_of(static_cast<const simt::e4m3*>(p.V.data)[of(p.V) + column]);
                            if (std::abs(number * scale - exact) > std::abs(exact) / 16 + scale / 512)
                                FAIL_CHECK(number << " times " << scale << " is not " << exact);
                            largest = std::max(largest, std::abs(number));
                        }
                        CHECK(largest == 448);
                        ++numbers;
                    }
                }
            }
            if (page_size != 0) continue;  // pages may be shared
            const auto* scales = static_cast<const float*>(p.V_token_scales.data);
            CHECK(std::count_if(scales, scales + 4 * 2 * 21, [](float x) { return x > 0; }) ==
                  static_cast<std::ptrdiff_t>(numbers));  // the others are NaN
        }
    }
    CHECK_THROWS_WITH(parse_case("--shape 1,1,1,1,8,64 --scales head"), "scales 'head': expected token");
}
#endif

TEST_CASE("cache: in a window, keys that no row sees are NaN and are not counted", "[problem]") {
    Case c = cached(4, 21, "20,21,0,13", 4);
    c.features.window = {3, 0};  // of 3 rows: 6 keys of each request
    for (const int page_size : {0, 4}) {
        c.features.page_size = page_size;
        const std::vector<std::uint16_t> slots = in_slots(c, make_inputs(c).K);
        CHECK(std::ranges::count_if(slots, [](auto x) { return x != 0xffff; }) == 3 * 6 * 2 * 64);
    }
    CHECK(unavoidable_bytes(c.shape, Pass::forward, c.features) ==
          unavoidable_bytes(c.shape, Pass::forward, {.lengths = "6,6,0,6"}));
    c.features.prefix = 4;
    CHECK_THROWS_WITH(require_possible(c),
                      "a shared prefix, which every row sees, does not go with a window");
}

TEST_CASE("cache: lengths and pages are checked, and random ones always fit", "[problem]") {
    for (const char* wrong : {"", "1,", ",1", "a", "-1", "4", "1,1,1", "99999999999"})
        CHECK_THROWS_AS(parse_case(std::string("--shape 2,1,1,1,3,64 --lengths ") + wrong), BadUsage);
    for (const char* wrong : {"", "a", "-1", "3", "24", "131072"})
        CHECK_THROWS_AS(parse_case(std::string("--shape 2,1,1,1,3,64 --page-size ") + wrong), BadUsage);
    for (const char* wrong :
         {"--prefix 8", "--page-size 8 --prefix 4", "--page-size 8 --prefix -8", "--page-size 8 --prefix 32",
          "--page-size 8 --prefix 16 --lengths 24,15", "--page-size 8 --prefix 24 --causal"})
        CHECK_THROWS_AS(parse_case(std::string("--shape 2,1,1,3,25,64 ") + wrong), BadUsage);
    CHECK_NOTHROW(parse_case("--shape 2,1,1,3,26,64 --page-size 8 --prefix 24 --causal"));
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,3,3,64 --documents 3 --lengths 3"), BadUsage);
    CHECK_THROWS_AS(parse_case("--shape 1,1,1,3,3,64 --layout far --page-size 1"), BadUsage);
    std::mt19937_64 random(1);
    int empty = 0, prefixes = 0;
    for (int k = 0; k < 200; ++k) {
        Case c = random_case(random, {64}, k);
        const auto draw = [&](Feature feature) { info_of(feature).draw(random, stages().front(), c); };
        draw(Feature::lengths);
        draw(Feature::pages);
        for (const int length : lengths_of(c)) empty += length == 0;
        if (k % 2 == 0) draw(Feature::prefix);
        prefixes += c.features.prefix != 0;
        CHECK_NOTHROW(require_possible(c));
        c.shape.B = (c.shape.B + 1) / 2;
        c.shape.Nk = (c.shape.Nk + 1) / 2;
        for (const Feature feature : {Feature::lengths, Feature::prefix}) info_of(feature).fit(c);
        CHECK_NOTHROW(require_possible(c));
    }
    CHECK(empty > 20);
    CHECK(prefixes > 20);
}

TEST_CASE("cache: a stage that takes none refuses it by name", "[problem]") {
    const Case c = cached(2, 7, "3,4", 4);
    const Stage &plain = test::stage_that({.lacks = {Feature::lengths}}),
                &lengths = test::stage_that({.takes = {Feature::lengths}, .lacks = {Feature::pages}}),
                &pages = test::stage_that(
                    {.takes = {Feature::lengths, Feature::pages}, .lacks = {Feature::prefix}}),
                &prefix = test::stage_that({.takes = {Feature::pages, Feature::prefix}});
    CHECK(why_not_taken(plain, c) == plain.folder() + " does not take lengths of requests");
    CHECK(why_not_taken(lengths, c) == lengths.folder() + " does not take K and V in pages");
    CHECK(why_not_taken(pages, c).empty());
    CHECK(description_of(c).ends_with("normal lengths=3,4 pages=4"));
    Case prefixed = cached(2, 7, "", 4);
    prefixed.features.prefix = 4;
    CHECK(why_not_taken(pages, prefixed) == pages.folder() + " does not take a shared prefix");
    CHECK(why_not_taken(prefix, prefixed).empty());
    CHECK(parse_case(options_of(prefixed)) == prefixed);
    CHECK(description_of(prefixed).ends_with("normal pages=4 prefix=4"));
}
