/// @file
/// Ranks that are threads: what they send arrives, in any order of turns; who fails ends all.

#include <array>
#include <vector>

#include "harness/device/ranks.h"
#include "harness/ladder/ladder.h"
#include "harness/verify/divided_run.h"
#include "harness/verify/verdict.h"
#include "tests/answers.h"
#include "tests/catch.h"
#include "tests/skip.h"

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
        run_ranks(*open_device(Backend::cpu), stage_of(run), numbers.problems, {});
    } catch (const CheckFailed& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("ranks: every rank gets what every other one sent, whoever runs first") {
    if (!ladder::test::available(Backend::cpu)) return;
    const auto device = open_device(Backend::cpu);
    for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
            Numbers numbers(ranks);
            const auto traffic = run_ranks(*device, stage_of(pass_around), numbers.problems, {}, seed);
            for (int r = 0; r < ranks; ++r) {
                CHECK(numbers.sums[r] == 11 * ((1 << ranks) - 1));
                const std::size_t bytes = (ranks - 1) * 2 * sizeof(int);
                CHECK(traffic[r] == Traffic{ranks - 1, bytes, bytes});
            }
        }
    }
}

TEST_CASE("ranks: one that fails ends all, and is named") {
    if (!ladder::test::available(Backend::cpu)) return;
    CHECK(failure_of([](const Problem& p) {
              if (ring()->rank() == 1) throw std::runtime_error("no more paper");
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
          }).find("bytes of rank") != std::string::npos);
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

/// The stages for several GPUs, and what becomes of a case on them.
void check_divided(const Case& c) {
    const Inputs inputs = make_inputs(c);
    const auto device = open_device(Backend::checked);
    for (const Stage& stage : stages()) {
        if (stage.chunks == 0) continue;
        for (const int ranks : {1, 2, 3, 4, 8}) {
            INFO(stage.folder() << " on " << ranks << " ranks, " << c.description());
            const DividedRun run = run_divided(*device, stage, c, inputs, ranks);
            const Verdict verdict = judge(c, inputs, run.outputs);
            CHECK(verdict.report == "");
            const DividedRun other = run_divided(*device, stage, c, inputs, ranks, 1);
            CHECK((run.outputs.O == other.outputs.O && run.outputs.L == other.outputs.L));
            CHECK(run.traffic == other.traffic);
        }
    }
}

TEST_CASE("ranks: stages for several GPUs are right on 1 to 8 of them, ragged, causal or not", "[ranks]") {
    if (!ladder::test::available(Backend::checked)) return;
    check_divided(ladder::test::make_case({1, 2, 1, 203, 203, 64}, DType::fp16, true));
    check_divided(ladder::test::make_case({2, 3, 1, 16, 16, 64}, DType::bf16, true));
    check_divided(ladder::test::make_case({1, 4, 2, 70, 333, 64}, DType::bf16));
    check_divided(ladder::test::make_case({1, 2, 2, 129, 129, 128}, DType::bf16, true));
}

}  // namespace
