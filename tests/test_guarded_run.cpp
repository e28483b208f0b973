/// @file
/// One run of a stage between canaries.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/one_case.h"
#include "tests/answers.h"
#include "tests/catch.h"
#include "tests/fake_device.h"
#ifdef LADDER_HAS_CPU
#    include "simt/fence.h"
#    include "simt/simt.h"
#endif

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("a device runs a stage, and what it wrote comes back") {
    for (const Layout layout : {Layout::bhnd, Layout::bnhd, Layout::mixed}) {
        for (const DType dtype : {DType::fp16, DType::bf16}) {
            const Case c = make_case({2, 4, 2, 37, 65, 64}, dtype, true, layout);
            FakeDevice device([&](const Problem& p) {
                CHECK(p.sm_count == 4);
                CHECK(reinterpret_cast<std::uintptr_t>(p.O.data) % 256 == 0);
                CHECK(reinterpret_cast<std::uintptr_t>(p.L) % 256 == 0);
                CHECK(std::isnan(p.L[0]));
                attend(p, exact);
            });
            const Inputs inputs = make_inputs(c);
            const Outputs outputs = run_stage(device, make_stage(), c, inputs);
            const Answer expected = answer(c);
            CHECK(outputs.O == expected.outputs.O);
            CHECK(outputs.L == expected.outputs.L);
            CHECK(verify(device, make_stage(), c).passed);
            CHECK(device.runs == 3);  // verify() runs the last request alone, too
        }
    }
}

TEST_CASE("a run that writes too much or too little is reported") {
    const Case c = make_case({1, 2, 2, 37, 65, 64});
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            attend(p, exact);
            damage(p);
        });
        const Verdict verdict = verify(device, make_stage(), c);
        CHECK(!verdict.passed);
        CHECK_THROWS_AS(run_stage(device, make_stage(), c, make_inputs(c)), CheckFailed);
        return verdict.report;
    };
    const auto O = [](const Problem& p) { return static_cast<std::uint16_t*>(p.O.data); };
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[2 * 37 * 64] = 0;
                   }),
                   "wrote outside of O: to element 4736 of 4736"));
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[2 * 64 * 64] = 0;
                   }),
                   "wrote outside of O: to element 8192 of"));
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[-1] = 0;
                   }),
                   "wrote outside of O: to element -1 of"));
    CHECK(contains(verdict_of([&](const Problem& p) { p.L[2 * 37] = 0; }),
                   "wrote outside of L: to element 74 of 74"));
    CHECK(
        contains(verdict_of([&](const Problem& p) { p.L[-2] = 0; }), "wrote outside of L: to element -2 of"));
    CHECK(contains(verdict_of([&](const Problem& p) {
                       O(p)[(37 + 36) * 64 + 63] = 0x7fed;
                   }),
                   "O was not written in 1 of 4736 elements\n  first at b=0 h=1 row=36 column=63"));
    CHECK(contains(verdict_of([&](const Problem& p) { p.L[40] = std::bit_cast<float>(0x7fed7fedu); }),
                   "L was not written in 1 of 74 elements"));
}

TEST_CASE(
    "a stage that takes the strides of one tensor for another is reported, and so is what lies between "
    "rows") {
    const Case c = make_case({2, 4, 2, 37, 65, 64}, DType::fp16, true, Layout::mixed);
    const auto forward = [&](const std::function<void(Problem&)>& mistake) {
        FakeDevice device([&](const Problem& p) {
            Problem wrong = p;
            mistake(wrong);
            attend(wrong, exact);
        });
        return verify(device, make_stage(), c);
    };
    const auto strides_of = [](View& of, const View& from) {
        of = {of.data, from.batch, from.head, from.row};
    };
    CHECK(forward([](Problem&) {}).passed);
    CHECK(contains(forward([&](Problem& p) { strides_of(p.O, p.Q); }).report, "wrote "));
    CHECK(contains(forward([&](Problem& p) { strides_of(p.V, p.K); }).report, " is "));
    CHECK(!forward([&](Problem& p) { strides_of(p.K, p.V); }).passed);
    CHECK(!forward([&](Problem& p) { strides_of(p.Q, p.O); }).passed);
    CHECK(!forward([&](Problem& p) { p.Q.row = p.d; }).passed);

    FakeDevice device([&](const Problem& p) {
        attend(p, exact);
        static_cast<std::uint16_t*>(p.O.data)[p.O.row - 1] = 0;
    });
    CHECK(contains(verify(device, make_stage(), c).report, "wrote between the rows of O: to element "));

    const Case of_gradients = gradient_case(c.shape, DType::bf16, true, Layout::mixed);
    const std::vector<std::pair<View Problem::*, View Problem::*>> confused{
        {&Problem::dO, &Problem::O},  {&Problem::O, &Problem::dO}, {&Problem::dQ, &Problem::Q},
        {&Problem::dQ, &Problem::dO}, {&Problem::dK, &Problem::K}, {&Problem::dV, &Problem::V},
        {&Problem::dK, &Problem::dV}, {&Problem::dV, &Problem::dK}};
    for (std::size_t k = 0; k <= confused.size(); ++k) {
        FakeDevice backward([&](const Problem& p) {
            Problem wrong = p;
            if (k < confused.size()) strides_of(wrong.*confused[k].first, p.*confused[k].second);
            differentiate(wrong);
        });
        CAPTURE(k);
        CHECK(verify(backward, gradient_stage(), of_gradients).passed == (k == confused.size()));
    }
}

TEST_CASE("a device runs a stage of the backward pass between canaries") {
    const Case c = gradient_case({2, 4, 2, 37, 65, 64}, DType::bf16, true, Layout::bnhd);
    const Inputs inputs = make_inputs(c);
    const auto element = [](const View& view) { return static_cast<std::uint16_t*>(view.data); };
    const auto verdict_of = [&](const std::function<void(const Problem&)>& damage) {
        FakeDevice device([&](const Problem& p) {
            CHECK(std::isnan(std::bit_cast<float>(element(p.dK)[0] << 16)));
            differentiate(p);
            damage(p);
        });
        return verify(device, gradient_stage(), c);
    };
    FakeDevice device([](const Problem& p) { differentiate(p); });
    const Outputs outputs = run_stage(device, gradient_stage(), c, inputs), expected = gradients(c, inputs);
    CHECK(outputs.dQ == expected.dQ);
    CHECK(outputs.dK == expected.dK);
    CHECK(outputs.dV == expected.dV);
    CHECK((outputs.O.empty() && outputs.L.empty()));
    CHECK(verdict_of([](const Problem&) {}).passed);
    CHECK(contains(verdict_of([&](const Problem& p) { element(p.dK)[2 * 2 * 65 * 64] = 0; }).report,
                   "wrote outside of dK: to element 16640 of 16640"));
    CHECK(contains(verdict_of([&](const Problem& p) { element(p.dV)[-1] = 0; }).report,
                   "wrote outside of dV: to element -1 of"));
    CHECK(contains(verdict_of([&](const Problem& p) { element(p.dQ)[3] = 0x7fed; }).report,
                   "dQ was not written in 1 of"));

    // Two runs that differ in the last bit: only of a stage that says so.
    class Gpu : public FakeDevice {
      public:
        using FakeDevice::FakeDevice;
        Backend backend() const override { return Backend::gpu; }
    };
    int runs = 0;
    Gpu atomic([&](const Problem& p) {
        differentiate(p);
        element(p.dV)[5] ^= ++runs % 2;
    });
    Stage stage = gradient_stage();
    CHECK(contains(verify(atomic, stage, c).report, "a second run changed dV in 1 of"));
    stage.repeats_exactly = false;
    CHECK(verify(atomic, stage, c).passed);
    Gpu sometimes([&, calls = 0](const Problem& p) mutable {
        differentiate(p, ++calls == 2 ? Mistake::no_D : Mistake::none);
    });
    const Verdict second = verify(sometimes, stage, c);
    CHECK(!second.passed);
    CHECK(contains(second.report, "is wrong in"));
    CHECK(contains(second.report, "in a second run: the first passed"));
    Gpu gpu([](const Problem& p) { differentiate(p); });
    CHECK(verify(gpu, stage, c).passed);
    CHECK(gpu.runs == 10);
}

TEST_CASE("a stage that needs too much memory does not start") {
    Stage stage = make_stage();
    stage.workspace_bytes = [](const Shape& s, int sm_count) -> std::size_t {
        return static_cast<std::size_t>(s.Nq) * s.Nk * sm_count;
    };
    const Case c = make_case({1, 1, 1, 1024, 1024, 64});
    FakeDevice device(attend_exactly);
    device.memory = std::size_t{4} << 20;
    std::string message;
    try {
        run_stage(device, stage, c, make_inputs(c));
    } catch (const CannotRun& failure) {
        message = failure.what();
    }
    INFO(message);
    CHECK(contains(message, stage.folder()));
    CHECK(contains(message, "4 MiB of it workspace"));
    CHECK(contains(message, "(4194304 bytes) free"));
    CHECK(device.runs == 0);
    CHECK_THROWS_AS(verify(device, stage, c), CannotRun);
    device.memory = std::size_t{8} << 20;
    CHECK(verify(device, stage, c).passed);
}

TEST_CASE("the workspace starts as NaN at every run") {
    Stage stage = make_stage();
    stage.workspace_bytes = [](const Shape&, int) -> std::size_t { return (std::size_t{16} << 20) + 100; };
    int clean = 0;
    FakeDevice device([&](const Problem& p) {
        auto* bytes = static_cast<unsigned char*>(p.workspace);
        clean +=
            std::all_of(bytes, bytes + (16 << 20) + 100, [](unsigned char byte) { return byte == 0xff; });
        std::fill_n(bytes, (16 << 20) + 100, static_cast<unsigned char>(0));
        attend(p, exact);
    });
    device.kind = Backend::gpu;  // which runs twice
    CHECK(verify(device, stage, make_case({})).passed);
    CHECK(clean == 2);
}

TEST_CASE("counters at the end of the workspace start at 0, and must be 0 again") {
    Stage stage = make_stage();
    stage.workspace_bytes = [](const Shape&, int) -> std::size_t { return 100; };
    stage.counter_bytes = [](const Shape&, int) -> std::size_t { return 12; };
    const auto run_leaving = [&](int place, unsigned char value) {
        FakeDevice device([&](const Problem& p) {
            auto* bytes = static_cast<unsigned char*>(p.workspace);
            CHECK(std::all_of(bytes, bytes + 88, [](unsigned char byte) { return byte == 0xff; }));
            CHECK(std::all_of(bytes + 88, bytes + 100, [](unsigned char byte) { return byte == 0; }));
            bytes[place] = value;
            attend(p, exact);
        });
        return verify(device, stage, make_case({}));
    };
    CHECK(run_leaving(87, 1).passed);
    CHECK(run_leaving(88, 0).passed);
    CHECK(run_leaving(99, 1).report == "left a counter that is not 0 at byte 99 of the workspace");
    CHECK(!run_leaving(88, 1).passed);
}

#ifdef LADDER_HAS_CPU
TEST_CASE("an offset of 32 bits reads and writes other rows of tensors far apart, which is reported") {
    const auto device = open_device(Backend::cpu);
    Stage stage = make_stage();
    stage.tilings = {{64, 64, 1}, {64, 64, 1}};
    int far = 0;
    for (const Case& c : verification_cases(stage, Cover::all)) {
        if (c.layout != Layout::far) continue;
        far += 1;
        CAPTURE(description_of(c));
        static View Problem::*in_32_bits;
        const auto passes = [&](View Problem::*wrong) {
            in_32_bits = wrong;
            Stage kernel = stage;
            kernel.run = [](const Problem& p) {
                const simt::DuringLaunch launch;  // as if a kernel did it
                Problem q = p;
                if (in_32_bits != nullptr) {
                    View& view = q.*in_32_bits;
                    for (std::int64_t* stride : {&view.batch, &view.head})
                        *stride = static_cast<int>(*stride);
                    const std::int64_t rows = in_32_bits == &Problem::O ? p.Nq : p.Nk;
                    view.row = view.row * (rows - 1) % (std::int64_t{1} << 31) / (rows - 1);
                }
                attend(q, exact);
            };
            return verify(*device, kernel, c).passed;
        };
        CHECK(passes(nullptr));
        CHECK(!passes(&Problem::O));
        // In one case rows alone are that far apart, and there are few keys.
        CHECK(passes(&Problem::K) == (c.shape.B * c.shape.H == 1));
    }
    CHECK(far == 3);
}
#endif

}  // namespace
