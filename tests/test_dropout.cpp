/// @file
/// Dropout: its random numbers, its mask, what it does to attention, and who refuses it.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "reference/attention.h"
#include "stages/errors.h"
#include "tests/any_stage.h"
#include "tests/catch.h"
#include "tests/fake_gpu.h"

using namespace ladder;
using namespace ladder::test;

TEST_CASE("dropout: Philox4x32-10 gives the known answers of its authors") {
    using Four = std::array<std::uint32_t, 4>;
    using Two = std::array<std::uint32_t, 2>;
    constexpr std::uint32_t ones = ~0u;
    CHECK(reference::philox({0, 0, 0, 0}, Two{0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(reference::philox({ones, ones, ones, ones}, Two{ones, ones}) ==
          Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(reference::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, Two{0xa4093822, 0x299f31d0}) ==
          Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("dropout: the mask is of the seed and the place alone, and as random as it says") {
    constexpr int N = 512;
    const reference::Dropout dropout{.kept = 230, .seed = 0x123456789abcdef, .batch = 1, .head = 3};
    const std::vector<bool> mask = dropout.mask(N, N);
    const auto kept = [&](int row, int key) { return static_cast<bool>(mask[row * N + key]); };
    CHECK(kept(77, 301) == dropout.keeps(77, 301));

    // Each of the 16 bytes of a counter, each half of the rows and of the keys: chi-square of how many are
    // kept.
    const double share = 230 / 256.0;
    const auto chi_square = [&](int groups, auto&& group_of) {
        std::vector<double> of_kept(groups), all(groups);
        for (int row = 0; row < N; ++row) {
            for (int key = 0; key < N; ++key) {
                all[group_of(row, key)] += 1;
                of_kept[group_of(row, key)] += kept(row, key);
            }
        }
        double sum = 0;
        for (int g = 0; g < groups; ++g)
            sum += std::pow(of_kept[g] - share * all[g], 2) / (share * (1 - share) * all[g]);
        return sum;
    };
    const auto is_usual = [](double chi, int groups) {  // within four deviations of its mean
        return std::abs(chi - groups) < 4 * std::sqrt(2.0 * groups);
    };
    CHECK(is_usual(chi_square(1, [](int, int) { return 0; }), 1));
    CHECK(is_usual(chi_square(16, [](int i, int j) { return j / 8 % 4 * 4 + i / 8 % 2 * 2 + j % 2; }), 16));
    CHECK(is_usual(chi_square(N, [](int i, int) { return i; }), N));
    CHECK(is_usual(chi_square(N, [](int, int j) { return j; }), N));
    CHECK(is_usual(chi_square(64, [](int i, int j) { return i / 64 * 8 + j / 64; }), 64));

    // Two elements of a counter, and of neighbours, are dropped together as often as by chance.
    const auto together = [&](int rows, int keys) {
        int both = 0;
        for (int row = 0; row + rows < N; ++row) {
            for (int key = 0; key + keys < N; ++key) both += !kept(row, key) && !kept(row + rows, key + keys);
        }
        const double pairs = double(N - rows) * (N - keys), chance = (1 - share) * (1 - share);
        return std::abs(both - pairs * chance) / std::sqrt(pairs * chance * (1 - chance));
    };
    for (const auto& [rows, keys] :
         {std::pair{0, 1}, {1, 0}, {8, 0}, {0, 8}, {0, 2}, {16, 0}, {0, 32}, {0, 64}})
        CHECK(together(rows, keys) < 4);

    // Another seed, batch entry or head: another mask, and the same share of elements in common as by chance.
    for (const reference::Dropout& other : {reference::Dropout{230, 0x123456789abcdee, 1, 3},
                                            {230, 0x23456789abcdef, 1, 3},
                                            {230, dropout.seed, 0, 3},
                                            {230, dropout.seed, 1, 2},
                                            {230, dropout.seed, 3, 1}}) {
        const std::vector<bool> its = other.mask(N, N);
        double alike = 0;
        for (int k = 0; k < N * N; ++k) alike += its[k] == mask[k];
        const double chance = share * share + (1 - share) * (1 - share);
        CHECK(std::abs(alike - chance * N * N) < 4 * N * std::sqrt(chance * (1 - chance)));
    }
}

TEST_CASE(
    "dropout: O is the mean of the kept values, L that of all, and the mean over seeds is O without it") {
    constexpr int Nq = 20, Nk = 40;
    using reference::Matrix;
    srand(5);
    const Matrix Q = Matrix::Random(Nq, 8), K = Matrix::Random(Nk, 8), V = Matrix::Random(Nk, 8);
    const reference::Mask none{.causal = true, .Nq = Nq, .Nk = Nk};
    const reference::Result whole = reference::attention(Q, K, V, 1.0, none);
    Matrix mean = Matrix::Zero(Nq, 8);
    constexpr int seeds = 400;
    for (int seed = 0; seed < seeds; ++seed) {
        reference::Mask mask = none;
        mask.dropout = {.kept = 128, .seed = static_cast<std::uint64_t>(seed), .batch = 2, .head = 1};
        const reference::Result result = reference::attention(Q, K, V, 1.0, mask);
        CHECK(result.L == whole.L);
        Matrix O = Matrix::Zero(Nq, 8);
        for (int row = 0; row < Nq; ++row) {
            for (int key = 0; key <= row + Nk - Nq; ++key) {
                const double P = std::exp(Q.row(row).dot(K.row(key)) - whole.L[row]);
                if (mask.dropout.keeps(row, key)) O.row(row) += 2 * P * V.row(key);
            }
        }
        CHECK((result.O - O).cwiseAbs().maxCoeff() < 1e-12);
        mean += result.O / seeds;
    }
    CHECK((mean - whole.O).cwiseAbs().maxCoeff() < 0.1);
}

TEST_CASE("dropout: it is written as it is, and a stage that takes none refuses it by name") {
    const Case c = parse_case("--shape 1,1,1,64,64,64 --dropout 0.1,12345678901");
    CHECK(c.features.dropout == Dropout{230, 12345678901});
    CHECK(parse_case(options_of(c)) == c);
    CHECK(description_of(c).ends_with("normal dropout=0.1015625,12345678901"));
    int taking = 0, refusing = 0;
    for (const Stage& stage : stages()) {
        if (!stage.has_head_dim(64) || !why_not_taken(stage, Case{.shape = c.shape}).empty()) continue;
        const bool taken = takes(stage, Feature::dropout);
        CHECK(why_not_taken(stage, c) == (taken ? "" : stage.folder() + " does not take dropout"));
        (taken ? taking : refusing) += 1;
    }
    CHECK((taking >= 3 && refusing >= 3));
    for (const char* wrong : {"0,1", "1,1", "0.001,1", "0.9999,1", "-0.1,1", "nan,1", "0.1", "0.1,", "0.1,-1",
                              "0.1,1.5", "x,1"}) {
        INFO(wrong);
        Features features;
        CHECK_THROWS_AS(info_of(Feature::dropout).read(features, wrong), BadUsage);
    }
}

TEST_CASE("dropout: timing compares a head with that of its place in the whole problem", "[timing]") {
    FakeGpu gpu;
    const Stage& stage = test::stage_that({.takes = {Feature::dropout}});
    gpu.milliseconds = {{stage.number, 1.0}};
    TimingOptions options = small_options();
    Case& c = options.cases[0].problem;
    c.shape.B = 3, c.shape.H = 4, c.shape.Hkv = 2;  // six key/value heads
    c.features.dropout = {128, 7};
    for (const int heads : {2, 3, 5, 6}) {
        CAPTURE(heads);
        options.max_compared = std::size_t(heads) * c.shape.Nk * c.shape.d;
        const Row row = time_stages(gpu, {stage}, options).rows[0];
        CAPTURE(row.why_not);
        CHECK(row.verified);
    }
}
