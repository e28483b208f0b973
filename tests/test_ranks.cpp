/// @file
/// Ranks that are threads: what they send arrives, in any order of turns; who fails ends all.

#ifdef LADDER_HAS_CPU
#    include <algorithm>
#    include <array>
#    include <optional>
#    include <vector>

#    include "harness/count/counting.h"
#    include "harness/device/ranks.h"
#    include "harness/ladder/ladder.h"
#    include "harness/verify/guarded_run.h"
#    include "harness/verify/one_case.h"
#    include "simt/simt.h"
#    include "tests/answers.h"
#    include "tests/any_stage.h"
#    include "tests/catch.h"
#    include "tests/fake_gpu.h"
#    include "tests/skip.h"

namespace {

using namespace ladder;

/// The host side of a stage that passes numbers around, all of which the ranks add up.
void pass_around(const Problem& p) {
    auto* own = static_cast<int*>(p.K.data);
    auto* slots = static_cast<int*>(p.workspace);  // 2 x (K, V)
    auto& sum = *static_cast<int*>(p.O.data);
    const int* from = own;
    sum = own[0] + 10 * own[1];
    for (int step = 1; step < ring()->ranks(); ++step) {
        int* to = slots + step % 2 * 2;
        ring()->start({Message{from, sizeof(int), to, sizeof(int)},
                       Message{from + 1, sizeof(int), to + 1, sizeof(int)}});
        ring()->wait();
        sum += to[0] + 10 * to[1];
        from = to;
    }
}

struct Numbers {
    explicit Numbers(int ranks) : own(ranks), slots(ranks), sums(ranks, -1) {
        for (int r = 0; r < ranks; ++r) {
            own[r] = {1 << r, 1 << r};
            Problem p;
            p.K.data = own[r].data();
            p.workspace = slots[r].data();
            p.O.data = &sums[r];
            problems.push_back(p);
        }
    }
    std::vector<std::array<int, 2>> own;
    std::vector<std::array<int, 4>> slots;
    std::vector<int> sums;
    std::vector<Problem> problems;
};

Stage stage_of(RunStage run) {
    Stage stage;
    stage.number = 1;
    stage.name = "ring";
    stage.head_dims = {64};
    stage.run = run;
    return stage;
}

std::string failure_of(RunStage run, int ranks = 3) {
    Numbers numbers(ranks);
    try {
        open_device(Backend::cpu)->run_ranks(stage_of(run), numbers.problems, {});
    } catch (const CheckFailed& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("ranks: every rank gets what every other one sent, whoever runs first") {
    if (!ladder::test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    const simt::KeptOptions kept;
    for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
            Numbers numbers(ranks);
            simt::options().seed = seed;
            device->run_ranks(stage_of(pass_around), numbers.problems, {});
            for (int r = 0; r < ranks; ++r) {
                CHECK(numbers.sums[r] == 11 * ((1 << ranks) - 1));
                const std::uint64_t messages = ranks - 1, bytes = messages * 2 * sizeof(int);
                const std::vector<std::uint64_t> nothing(ranks, 0);
                CHECK(device->traffic()[r] == Traffic{messages, bytes, bytes, nothing});
            }
        }
    }
}

TEST_CASE("ranks: one that fails ends all, and is named") {
    if (!ladder::test::available(Backend::cpu)) return;
    CHECK(failure_of([](const Problem& p) {
              if (ring()->rank() == 1) throw CheckFailed("no more paper");
              pass_around(p);
          }) == "rank 1 of 3: no more paper");
}

TEST_CASE("ranks: a message that no rank sends, or of another size, ends all") {
    if (!ladder::test::available(Backend::cpu)) return;
    CHECK(failure_of([](const Problem& p) {
              if (ring()->rank() != 1) pass_around(p);
          }).find("waits for a message that no rank sends or takes") != std::string::npos);
    CHECK(failure_of([](const Problem& p) {
              static int x[4];
              const std::size_t bytes = ring()->rank() == 0 ? 4 : 8;
              const Message m{p.K.data, bytes, x, bytes};
              ring()->start({m, Message{}});
              ring()->wait();
          }).find("bytes, and rank") != std::string::npos);
}

TEST_CASE("ranks: one that sends more messages than the next one expects ends all") {
    if (!ladder::test::available(Backend::cpu)) return;
    CHECK(failure_of([](const Problem&) {
              if (ring()->rank() == 0) {
                  ring()->start({Message{}, Message{}, Message{}});
              } else {
                  ring()->start({Message{}, Message{}});
              }
              ring()->wait();
          }).find("messages, and rank") != std::string::npos);
}

/// The host side of a stage that gathers a number of each rank, twice in the same place.
void gather(const Problem& p) {
    auto* parts = static_cast<int*>(p.workspace);
    auto& sum = *static_cast<int*>(p.O.data);
    sum = 0;
    for (int time = 0; time < 2; ++time) {
        parts[ring()->rank()] = static_cast<int*>(p.K.data)[time] << time;
        ring()->all_gather(parts, sizeof(int));
        for (int r = 0; r < ring()->ranks(); ++r) sum += parts[r] * (r + 1);
    }
}

TEST_CASE("ranks: every rank gathers the parts of all, whoever runs first") {
    if (!ladder::test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    const simt::KeptOptions kept;
    for (const int ranks : {1, 2, 3, 4}) {
        int expected = 0;
        for (int r = 0; r < ranks; ++r) expected += (3 << r) * (r + 1);
        for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
            Numbers numbers(ranks);
            simt::options().seed = seed;
            device->run_ranks(stage_of(gather), numbers.problems, {});
            const std::uint64_t bytes = 2 * (ranks - 1) * sizeof(int);
            for (int r = 0; r < ranks; ++r) {
                CHECK(numbers.sums[r] == expected);
                CHECK(device->traffic()[r] == Traffic{2, bytes, bytes, {0, 0, 0}});
            }
        }
    }
}

TEST_CASE("ranks: one that does not gather, or another size, or during a message, ends all") {
    if (!ladder::test::available(Backend::cpu)) return;
    CHECK(failure_of([](const Problem& p) {
              if (ring()->rank() == 2) throw CheckFailed("no more paper");
              gather(p);
          }) == "rank 2 of 3: no more paper");
    CHECK(failure_of([](const Problem& p) {
              if (ring()->rank() != 1) gather(p);
          }).find("waits for a message that no rank sends or takes") != std::string::npos);
    CHECK(failure_of([](const Problem& p) {
              ring()->all_gather(p.workspace, ring()->rank() == 1 ? 4 : 2);
          }).find("rank 1 gives 4 bytes to all, and rank 0 gives 2") != std::string::npos);
    CHECK(failure_of([](const Problem& p) {
              ring()->start({Message{}});
              gather(p);
          }).find("gathers parts before it has waited") != std::string::npos);
    CHECK(failure_of([](const Problem& p) {
              if (ring()->rank() == 1) {
                  gather(p);
              } else {
                  pass_around(p);
              }
          }).find("waits for a message that no rank sends or takes") != std::string::npos);
}

TEST_CASE("ranks: what is received is NaN until it has been waited for") {
    if (!ladder::test::available(Backend::cpu)) return;
    CHECK(failure_of([](const Problem& p) {
              auto* own = static_cast<int*>(p.K.data);
              auto* to = static_cast<int*>(p.workspace);
              to[0] = 5;
              ring()->start({Message{own, 4, to, 4}, Message{}});
              if (to[0] != -1) throw std::runtime_error("early");
              ring()->wait();
              if (to[0] == -1) throw std::runtime_error("late");
          }) == "");
}

Case divided(const Shape& shape, int ranks, bool causal) {
    Case c = ladder::test::make_case(shape, DType::bf16, causal);
    c.layout = Layout::bhnd;
    c.features.ranks = ranks;
    return c;
}

// Those that divide rows and keys, and those that divide keys alone.
bool divides(const Stage& stage, bool rows) {
    return takes(stage, Feature::ranks) && stage.divides_rows == rows;
}

const Stage& ring_of_chunks(int chunks) {
    return test::first_stage(
        [&](const Stage& stage) { return divides(stage, true) && stage.chunks == chunks; });
}

const Stage& divided_cache() {
    return test::first_stage([](const Stage& stage) { return divides(stage, false); });
}

TEST_CASE("ranks: the parts of a case make the whole, and every rank has its device's memory", "[ranks]") {
    if (!ladder::test::available(Backend::checked)) return;
    const auto device = open_device(Backend::checked);
    for (const Stage& stage : stages()) {
        if (!divides(stage, true)) continue;
        for (const int ranks : {1, 2, 3, 4, 8}) {
            for (const bool causal : {false, true}) {
                // Under a mask lab verify has ranks, in all orders. Gradients of 8 ranks take seconds.
                if ((causal && ranks > 2) || (stage.pass == Pass::backward && ranks == 8)) continue;
                const Case c = divided({1, 2, 1, 137, 137, 64}, ranks, causal);
                INFO(stage.folder() << " " << description_of(c));
                CHECK(verify(*device, stage, c).report == "");
            }
        }
    }
}

TEST_CASE("ranks: a divided cache merges to the whole, on every rank alike", "[ranks]") {
    if (!ladder::test::available(Backend::checked)) return;
    const auto device = open_device(Backend::checked);
    const Stage& stage = divided_cache();
    for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const int Nq : {1, 4, 16}) {
            for (const bool causal : {false, true}) {
                const Case c = divided({1, 8, 2, Nq, 137, 64}, ranks, causal);
                INFO(description_of(c));
                CHECK(verify(*device, stage, c).report == "");
            }
        }
    }
    // Rows without keys, and a mask that ends in the parts of several ranks
    CHECK(verify(*device, stage, divided({2, 2, 1, 16, 11, 128}, 4, true)).report == "");
    CHECK(verify(*device, stage, divided({1, 2, 1, 12, 17, 64}, 8, true)).report == "");
    Stage apart = stage;
    apart.run = [](const Problem& p) {
        const std::vector<std::uint16_t> O(64, ring()->rank() == 2 ? 1 : 0);
        std::copy(O.begin(), O.end(), static_cast<std::uint16_t*>(p.O.data));
        *p.L = 0;
    };
    CHECK(verify(*device, apart, divided({1, 1, 1, 1, 3, 64}, 3, false)).report ==
          "O of rank 2 is not that of rank 0");
}

TEST_CASE("ranks: a divided cache sends rows of O and L, and a ring sends keys", "[ranks]") {
    if (!ladder::test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    const Stage &cache = divided_cache(), &ring = ring_of_chunks(1);
    const auto sent = [&](const Stage& stage, int Nk) {
        const Case c = divided({1, 8, 2, 4, Nk, 64}, 4, false);
        return count_work(*device, stage, c, make_inputs(c)).sent_bytes;
    };
    CHECK(sent(cache, 512) == 3 * 8 * 4 * (64 + 1) * 4);
    CHECK(sent(cache, 1024) == sent(cache, 512));
    CHECK(sent(ring, 512) == 3 * 128 * 2 * 64 * 4);
    CHECK(sent(ring, 1024) == 2 * sent(ring, 512));
}

TEST_CASE("ranks: outputs and traffic are the same whichever rank runs first", "[ranks]") {
    if (!ladder::test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    const simt::KeptOptions kept;
    const Case c = divided({1, 2, 2, 70, 70, 64}, 4, true);
    const Inputs inputs = make_inputs(c);
    for (const Stage& stage : stages()) {
        if (!takes(stage, Feature::ranks) || stage.pass == Pass::backward) continue;
        std::optional<Outputs> first;
        std::vector<Traffic> traffic;
        for (const std::uint64_t seed : {1, 2, 3}) {
            simt::options().seed = seed;
            const Outputs outputs = run_stage(*device, stage, c, inputs);
            if (first) {
                CHECK((outputs.O == first->O && outputs.L == first->L));
                CHECK(device->traffic() == traffic);
            }
            first = outputs;
            traffic = device->traffic();
        }
    }
}

TEST_CASE("ranks: gradients of keys agree bit for bit, whichever rank and block runs first", "[ranks]") {
    if (!ladder::test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    const simt::KeptOptions kept;
    Case c = divided({1, 4, 2, 150, 150, 64}, 3, true);
    c.pass = Pass::backward;
    const Inputs inputs = make_inputs(c);
    const Stage& stage = test::stage_that({.takes = {Feature::ranks}, .pass = Pass::backward});
    std::optional<Outputs> first;
    for (const std::uint64_t seed : {1, 2, 3}) {
        simt::options().seed = seed;
        simt::options().order = simt::Order::shuffled;
        const Outputs outputs = run_stage(*device, stage, c, inputs);
        if (first) CHECK((outputs.dK == first->dK && outputs.dV == first->dV));
        first = outputs;
    }
}

TEST_CASE("ranks: what a stage cannot divide is refused by name", "[ranks]") {
    const Stage &alone = test::stage_that({.lacks = {Feature::ranks}}), &ring = ring_of_chunks(1),
                &zigzag = ring_of_chunks(2), &cache = divided_cache();
    CHECK(why_not_taken(alone, divided({1, 1, 1, 64, 64, 64}, 2, false)) ==
          alone.folder() + " does not take several ranks");
    CHECK(why_not_taken(zigzag, divided({1, 1, 1, 7, 64, 64}, 4, false)) ==
          zigzag.folder() + " cuts a sequence for 4 ranks into 8 chunks: 7 rows are too few");
    CHECK(why_not_taken(ring, divided({1, 1, 1, 64, 65, 64}, 2, true)) ==
          ring.folder() + " takes a causal mask on several ranks for as many keys as query rows alone");
    CHECK(why_not_taken(cache, divided({1, 1, 1, 1, 65, 64}, 2, true)).empty());
    CHECK(why_not_taken(cache, divided({1, 1, 1, 9, 7, 64}, 8, true)) ==
          cache.folder() + " cuts a sequence for 8 ranks into 8 chunks: 7 keys are too few");
    Case strided = divided({1, 1, 1, 64, 64, 64}, 2, true);
    strided.layout = Layout::bnhd;
    CHECK(why_not_taken(zigzag, strided) ==
          zigzag.folder() + " takes K and V in one piece on several ranks: --layout bhnd");
}

TEST_CASE("ranks: they are timed and verified, and their inputs are fetched once", "[timing]") {
    test::FakeGpu gpu;
    const Stage& stage = divided_cache();
    gpu.milliseconds = {{stage.number, 1.0}};
    TimingOptions options = test::small_options(1);
    Case& c = options.cases[0].problem;
    c.shape.Nk = 4000, c.shape.Hkv = 2;  // more bytes than between canaries
    c.features.ranks = 3;
    const Row row = time_stages(gpu, {stage}, options).rows[0];
    CAPTURE(row.why_not);
    CHECK(row.verified);
    const std::size_t K_and_V = 2 * 2 * std::size_t(c.shape.Hkv) * c.shape.Nk * c.shape.d;
    CHECK(gpu.downloaded > K_and_V);
    CHECK(gpu.downloaded < 2 * K_and_V);
    SECTION("a wrong value of one of them") {
        int runs = 0;
        gpu.spoil = [&](const Problem& p) { p.L[0] += ++runs % 3 == 0; };
        const Row wrong = time_stages(gpu, {stage}, options).rows[0];
        CHECK_FALSE(wrong.verified);
        CHECK(wrong.why_not == "L of rank 2 is not that of rank 0");
    }
}

}  // namespace

#endif
