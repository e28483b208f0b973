/// @file
/// A stage on one case, in several runs, and several stages on the cases that they share.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "harness/verify/all_cases.h"
#include "harness/verify/one_case.h"
#include "tests/answers.h"
#include "tests/catch.h"
#include "tests/fake_device.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("runs that differ are reported") {
    const Case c = make_case({1, 1, 1, 37, 65, 64});
    int runs = 0;
    FakeDevice device([&](const Problem& p) {
        attend(p, exact);
        if (++runs == 2)
            static_cast<std::uint16_t*>(p.O.data)[5 * 64 + 3] ^= 1;  // the last bit, well within bounds
    });
    device.kind = Backend::gpu;
    const Verdict verdict = verify(device, make_stage(), c);
    CHECK(!verdict.passed);
    CHECK(contains(verdict.report, "a second run changed O in 1 of 2368 elements"));
    CHECK(contains(verdict.report, "row=5 column=3"));
}

TEST_CASE("a request's results are the same bits alone and in a batch, where a stage says so") {
    FakeDevice device([](const Problem& p) {
        attend(p, exact);
        if (p.B == 1) static_cast<std::uint16_t*>(p.O.data)[3] ^= 1;  // well within bounds
    });
    const Case c = make_case({2, 1, 1, 37, 65, 64});
    const Verdict verdict = verify(device, make_stage(), c);
    CHECK(!verdict.passed);
    CHECK(contains(verdict.report, "being alone and not last of its batch changed O in 1 of 2368 elements"));
    Stage divides = make_stage();
    divides.batch_invariant = false;
    CHECK(verify(device, divides, c).passed);
    Stage adds_in_any_order = make_stage();
    adds_in_any_order.repeats_exactly = false;
    CHECK(verify(device, adds_in_any_order, c).passed);
    CHECK(verify(device, make_stage(), make_case({1, 1, 1, 37, 65, 64})).passed);
}

#ifdef LADDER_HAS_CPU
TEST_CASE("a case has its own number of multiprocessors, if the machine is played") {
    class Played : public FakeDevice {
      public:
        using FakeDevice::FakeDevice;
        int sm_count() const override { return simt::options().multiprocessors; }
    };
    Stage stage = make_stage();
    std::vector<int> seen;
    stage.workspace_bytes = [&](const Shape&, int sm_count) -> std::size_t {
        seen.push_back(sm_count);
        return 8;
    };
    Played device([&](const Problem& p) {
        seen.push_back(p.sm_count);
        attend(p, exact);
    });
    const int usual = simt::options().multiprocessors;
    Case c = make_case({1, 1, 1, 5, 5, 64});
    for (const int multiprocessors : {0, 1, 132}) {
        seen.clear();
        c.multiprocessors = multiprocessors;
        CHECK(verify(device, stage, c).passed);
        CHECK(seen.size() > 2);
        for (const int count : seen) CHECK(count == (multiprocessors == 0 ? usual : multiprocessors));
        CHECK(simt::options().multiprocessors == usual);
    }

    FakeDevice gpu(attend_exactly);
    gpu.kind = Backend::gpu;
    CHECK_THROWS_AS(verify(gpu, make_stage(), c), CannotRun);
    CHECK(gpu.runs == 0);
    c.multiprocessors = 0;
    CHECK(verify(gpu, make_stage(), c).passed);
}
#endif

#ifdef LADDER_HAS_CPU
TEST_CASE("all orders of threads must give the same bits") {
    const Case c = make_case({1, 1, 1, 37, 65, 64});
    using simt::Order;
    std::vector<std::pair<Order, std::uint64_t>> seen;
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            seen.emplace_back(simt::options().order, simt::options().seed);
            attend(p, exact);
            damage(p);
        });
        seen.clear();
        Reference reference(c);
        const Verdict verdict = verify(device, make_stage(), reference, Runs::in_all_orders);
        CHECK(simt::options().order == Order::forward);
        return verdict;
    };
    CHECK(verdict_of([](const Problem&) {}).passed);
    REQUIRE(seen.size() == 5);
    CHECK(seen[0].first == Order::forward);
    CHECK(seen[1].first == Order::reversed);
    CHECK(seen[2] == std::pair{Order::shuffled, std::uint64_t{1}});
    CHECK(seen[3] == std::pair{Order::shuffled, std::uint64_t{2}});
    CHECK(seen[4] == std::pair{Order::delayed, std::uint64_t{1}});

    // The last bit, well within bounds.
    const Verdict changed = verdict_of([](const Problem& p) {
        if (simt::options().order == Order::reversed) static_cast<std::uint16_t*>(p.O.data)[3] ^= 1;
    });
    CHECK(!changed.passed);
    CHECK(contains(changed.report, "--order reversed changed O in 1 of 2368 elements"));
    const Verdict late = verdict_of([](const Problem& p) {
        if (simt::options().seed == 2 && simt::options().order == Order::shuffled) p.L[3] += 1e-6f;
    });
    CHECK(contains(late.report, "--order shuffled --order-seed 2 changed L in 1 of 37 elements"));
    const Verdict raced = verdict_of([](const Problem&) {
        if (simt::options().order == Order::shuffled) throw CheckFailed("a race");
    });
    CHECK(!raced.passed);
    CHECK(contains(raced.report, "a race\n"));
    CHECK(contains(raced.report, "--order shuffled --order-seed 1"));
}
#endif

TEST_CASE("what the device says of a kernel passes through") {
    const Case c = make_case({});
    FakeDevice racing([](const Problem&) { throw CheckFailed("a race"); });
    CHECK(verify(racing, make_stage(), c).report == "a race");
    CHECK(!verify(racing, make_stage(), c).passed);
    FakeDevice lacking([](const Problem&) { throw CannotRun("no bf16"); });
    CHECK_THROWS_AS(verify(lacking, make_stage(), c), CannotRun);
}

TEST_CASE("stages share the inputs of a case and what is expected") {
    const Stage small = [] {
        Stage stage = make_stage();
        stage.number = 8;
        stage.head_dims = {64};
        return stage;
    }();
    const Stage both = make_stage();
    const Case shared = make_case({1, 2, 1, 37, 65, 64}), other = make_case({1, 1, 1, 5, 5, 64}),
               wide = make_case({1, 1, 1, 5, 5, 128});
    std::vector<Verification> verifications;
    verifications.emplace_back(&both, std::vector{other, shared, wide});
    verifications.emplace_back(&small, std::vector{shared, wide});

    FakeDevice device(attend_exactly);
    std::vector<std::string> steps;
    verify_all(device, verifications, [&](const std::string& what, int done, int total) {
        CHECK(done == std::ssize(steps));
        CHECK(total == 5);
        steps.push_back(what);
    });
    // Case by case, since each is made but once.
    REQUIRE(steps.size() == 5);
    CHECK(contains(steps[0], both.folder() + ", " + description_of(other)));
    CHECK(contains(steps[1], both.folder() + ", " + description_of(shared)));
    CHECK(contains(steps[2], small.folder() + ", " + description_of(shared)));
    CHECK(contains(steps[3], both.folder() + ", " + description_of(wide)));
    CHECK(verifications[0].passed == 3);
    CHECK(verifications[1].passed == 1);
    CHECK(verifications[1].why_not == "it has no head dimension 128");
    CHECK(device.runs == 4);

    Reference reference(shared);
    CHECK(reference.seconds() == 0);
    CHECK(&reference.expected() == &reference.expected());
    CHECK(&reference.inputs() == &reference.inputs());
    CHECK(reference.inputs().Q == make_inputs(shared).Q);
    CHECK(reference.seconds() > 0);
}

}  // namespace
