#include "harness/cases/cache_problems.h"

#include <cstdint>
#include <random>
#include <string>

namespace ladder {

Regime::Problem ragged_requests(int page_size, const char* lengths) {
    Regime::Problem problem = decode(32 << 10, 64);
    problem.features = {.lengths = lengths, .page_size = page_size};
    return problem;
}

Regime::Problem with_prefix(int keys, bool shared) {
    Regime::Problem problem = decode(keys + 256, 64);
    problem.features = {.lengths = std::to_string(keys + 256), .page_size = 16, .prefix = shared ? keys : 0};
    return problem;
}

std::vector<Regime::Problem> page_problems() {
    std::vector<Regime::Problem> problems;
    for (const int page_size : {0, 1, 8, 16, 64, 128, 256}) {
        problems.push_back(ragged_requests(page_size));
        problems.push_back(ragged_requests(page_size, mean_length));
        for (const int Nq : {1, 4}) {
            Regime::Problem& problem = problems.emplace_back(decode(64 << 10, 4, 8, Nq));
            problem.features = {.lengths = "65536", .page_size = page_size};
        }
    }
    return problems;
}

namespace {

// The keys of so many requests, from few to nearly all of Nk, in no order: one in the middle of each of as
// many equal ranges, but off the ends of tiles and pages. Numbers of requests are powers of two.
std::string spread_lengths(int B, int Nk) {
    std::string lengths;
    for (int b = 0; b < B; ++b) {
        const int range = (5 * b + B / 2) % B;
        lengths += (b == 0 ? "" : ",") + std::to_string(Nk / B * range + Nk / B / 2 - 3 * range - 5);
    }
    return lengths;
}

}  // namespace

std::vector<Regime::Problem> cache_problems() {
    const int sizes[][7] = {
        {1, 8, 8, 1, 16384, 128, 0},   {1, 8, 8, 1, 65536, 128, 0},    {4, 8, 8, 1, 4096, 128, 0},
        {16, 8, 8, 1, 65536, 128, 0},  {8, 8, 8, 2, 16384, 128, 0},    {1, 8, 8, 4, 4096, 128, 0},
        {1, 8, 8, 8, 16384, 128, 0},   {16, 8, 8, 16, 65536, 128, 0},  {16, 32, 8, 1, 4096, 128, 0},
        {16, 32, 8, 1, 65536, 128, 0}, {16, 32, 8, 2, 16384, 128, 0},  {1, 32, 8, 4, 4096, 128, 0},
        {16, 32, 8, 8, 8192, 128, 0},  {1, 32, 8, 16, 16384, 128, 0},  {1, 8, 1, 1, 16384, 128, 0},
        {1, 64, 8, 1, 65536, 128, 0},  {1, 8, 1, 2, 4096, 128, 0},     {8, 8, 1, 4, 16384, 128, 0},
        {1, 8, 1, 4, 65536, 128, 0},   {16, 64, 8, 4, 16384, 128, 0},  {8, 64, 8, 8, 65536, 128, 0},
        {1, 8, 1, 16, 4096, 128, 0},   {1, 64, 8, 16, 65536, 128, 0},  {4, 8, 1, 16, 65536, 128, 0},
        {16, 64, 8, 16, 4096, 128, 0}, {16, 64, 8, 16, 16384, 128, 0}, {1, 32, 8, 1, 65536, 64, 0},
        {16, 32, 8, 1, 4096, 64, 0},   {1, 32, 8, 8, 65536, 64, 0},    {16, 32, 8, 8, 4096, 64, 0}};
    std::vector<Regime::Problem> problems;
    for (const int page_size : {0, 64}) {
        for (Regime::Problem problem : problems_of(sizes)) {
            problem.features = {.lengths = spread_lengths(problem.shape.B, problem.shape.Nk),
                                .page_size = page_size};
            problems.push_back(problem);
        }
    }
    return problems;
}

namespace {

// The keys of so many requests, each drawn from 1 to Nk, but for the first, which has half of Nk.
std::string drawn_lengths(int B, int Nk) {
    std::mt19937_64 random(std::uint64_t(B) << 32 | std::uint64_t(Nk));
    std::string lengths = std::to_string(Nk / 2 - 5);
    for (int b = 1; b < B; ++b) lengths += "," + std::to_string(1 + random() % std::uint64_t(Nk));
    return lengths;
}

}  // namespace

std::vector<Regime::Problem> wide_cache_problems() {
    const int sizes[][7] = {
        {16, 32, 8, 1, 512, 128, 0},   {64, 8, 1, 4, 512, 128, 0},     {64, 64, 8, 8, 512, 128, 0},
        {1, 32, 8, 16, 512, 128, 0},   {1, 8, 1, 1, 131072, 128, 0},   {1, 32, 8, 4, 131072, 128, 0},
        {4, 64, 8, 1, 131072, 128, 0}, {1, 64, 8, 16, 131072, 128, 0}, {4, 8, 8, 16, 131072, 128, 0},
        {64, 8, 8, 1, 4096, 128, 0},   {64, 32, 8, 1, 16384, 128, 0},  {64, 32, 8, 4, 4096, 128, 0},
        {64, 64, 8, 16, 2048, 128, 0}, {64, 8, 1, 16, 16384, 128, 0},  {1, 8, 1, 8, 65536, 128, 0},
        {1, 8, 1, 2, 16384, 128, 0},   {1, 16, 2, 4, 65536, 128, 0},   {1, 32, 8, 8, 16384, 128, 0},
        {1, 32, 8, 2, 16384, 128, 0},  {4, 32, 8, 16, 16384, 128, 0},  {4, 32, 8, 4, 16384, 128, 0},
        {8, 8, 1, 8, 16384, 128, 0},   {8, 8, 1, 2, 65536, 128, 0},    {2, 64, 8, 2, 16384, 128, 0},
        {16, 8, 8, 8, 4096, 128, 0},   {1, 16, 1, 1, 16384, 128, 0},   {1, 16, 1, 4, 65536, 128, 0},
        {8, 32, 2, 16, 4096, 128, 0},  {16, 32, 8, 4, 4096, 64, 0},    {1, 32, 8, 4, 16384, 64, 0},
        {1, 8, 1, 8, 16384, 64, 0},    {16, 64, 8, 2, 16384, 64, 0},   {16, 32, 8, 1, 8192, 256, 0},
        {16, 32, 8, 8, 8192, 256, 0},  {1, 64, 8, 4, 65536, 256, 0}};
    std::vector<Regime::Problem> problems;
    for (const int page_size : {0, 64}) {
        for (Regime::Problem problem : problems_of(sizes)) {
            problem.features = {.lengths = drawn_lengths(problem.shape.B, problem.shape.Nk),
                                .page_size = page_size};
            problems.push_back(problem);
        }
    }
    return problems;
}

std::vector<Regime::Problem> drawn_cache_problems() {
    const int sizes[][7] = {
        {4, 8, 2, 1, 3353, 64, 0},       {55, 64, 8, 8, 49775, 64, 0},   {8, 8, 8, 1, 1343, 64, 16},
        {22, 64, 8, 8, 9690, 64, 256},   {2, 3, 1, 9, 21855, 64, 64},    {18, 20, 4, 1, 25293, 64, 64},
        {1, 64, 8, 4, 30964, 64, 16},    {1, 8, 1, 1, 107057, 64, 16},   {37, 8, 4, 15, 119685, 64, 256},
        {2, 128, 8, 1, 574, 128, 0},     {10, 56, 8, 1, 868, 128, 0},    {2, 16, 2, 5, 12086, 128, 0},
        {6, 16, 8, 1, 26341, 128, 0},    {9, 16, 2, 1, 27146, 128, 0},   {27, 56, 8, 1, 27594, 128, 0},
        {10, 16, 8, 13, 80520, 128, 0},  {23, 8, 1, 1, 995, 128, 256},   {52, 64, 8, 3, 1547, 128, 16},
        {32, 4, 2, 7, 2275, 128, 16},    {29, 7, 1, 1, 2456, 128, 256},  {6, 5, 1, 15, 2615, 128, 64},
        {13, 128, 8, 9, 10148, 128, 64}, {4, 16, 8, 1, 15133, 128, 64},  {4, 64, 8, 1, 17102, 128, 16},
        {28, 64, 4, 8, 23766, 128, 16},  {38, 24, 8, 6, 32953, 128, 16}, {26, 3, 1, 6, 35905, 128, 256},
        {1, 7, 1, 1, 44138, 128, 64},    {14, 64, 8, 4, 54847, 128, 16}, {19, 1, 1, 1, 115495, 128, 16}};
    std::vector<Regime::Problem> problems;
    for (const auto& [B, H, Hkv, Nq, Nk, d, page_size] : sizes) {
        const bool equal = problems.size() % 2 == 1;
        problems.push_back({{.B = B, .H = H, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = d}, false});
        problems.back().features = {.lengths = equal ? std::to_string(Nk) : drawn_lengths(B, Nk),
                                    .page_size = page_size};
    }
    return problems;
}

std::vector<Regime::Problem> cache_window_problems() {
    std::vector<Regime::Problem> problems{in_window(decode(64 << 10, 16), 1 << 10), decode(1 << 10, 16)};
    for (Regime::Problem& problem : problems) {
        problem.features.lengths = std::to_string(problem.shape.Nk);
        problem.features.page_size = 64;
    }
    return problems;
}

std::vector<Regime::Problem> cache_score_problems() {
    std::vector<Regime::Problem> problems;
    const auto add = [&](const Shape& shape, const Features& features) {
        problems.push_back({shape, shape.Nq > 1});
        problems.back().features = features;
        problems.back().features.lengths = std::to_string(shape.Nk);
        problems.back().features.page_size = 64;
    };
    for (const int Nq : {1, 8}) {
        const Shape shape = decode(8 << 10, 16, 8, Nq).shape;
        for (const Features& features : {Features{.softcap = 50}, Features{.alibi = "geometric"},
                                         Features{.sinks = "drawn"}, Features()})
            add(shape, features);
    }
    add({16, 64, 8, 1, 8192, 64}, {.window = {127, 0}, .sinks = "drawn"});
    add({16, 16, 8, 1, 8192, 256}, {.window = {4095, 0}, .softcap = 50});
    add({16, 32, 8, 1, 32768, 128}, {.window = {4095, 0}});
    return problems;
}

std::vector<Regime::Problem> paged_e4m3_problems() {
    std::vector<Regime::Problem> problems{decode(8 << 10, 16), decode(32 << 10, 4), decode(128 << 10, 1)};
    for (Regime::Problem& problem : problems) {
        problem.features.lengths = std::to_string(problem.shape.Nk);
        problem.features.page_size = 64;
    }
    return problems;
}

std::vector<Regime::Problem> e4m3_scale_problems() {
    std::vector<Regime::Problem> problems;
    for (Regime::Problem problem : paged_e4m3_problems()) {
        for (const bool of_tokens : {true, false}) {
            problem.features.token_scales = of_tokens;
            problems.push_back(problem);
        }
    }
    return problems;
}

std::vector<Regime::Problem> cache_tree_problems() {
    std::vector<Regime::Problem> problems;
    const auto add = [&](const Shape& shape, int left) {
        for (const char* tree : {"binary", ""}) {
            problems.push_back({shape, true});
            Features& features = problems.back().features;
            features.window.left = left;
            features.lengths = std::to_string(shape.Nk);
            features.page_size = 64;
            features.tree = tree;
        }
    };
    add(decode(8 << 10, 16, 8, 16).shape, -1);
    add(decode(32 << 10, 1, 8, 64).shape, -1);
    add(decode(8 << 10, 16, 8, 16).shape, 1023);
    return problems;
}

}  // namespace ladder
