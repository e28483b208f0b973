/// @file
/// The CPU back-end with Hopper's instructions: a small kernel of them, and every report on what may be wrong
/// with it.
#ifdef LADDER_HAS_CPU

#    include <set>

#    include "simt/simt.h"
#    include "tests/catch.h"
#    include "tests/hopper_cases.h"

using Count = std::uint64_t;
using simt::Order;
using simt::Report;
using namespace simt_cases;

namespace {

/// O of the kernel, by a plain formula. All numbers are whole, and small enough for fp16.
std::vector<float> formula() {
    constexpr int rows = 60, keys = 100, d = 64;
    std::vector<float> O(rows * d);
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < keys; ++j) {
            float s = 0.0f;
            for (int c = 0; c < d; ++c)
                s += hopper_element(false, i * d + c) * hopper_element(true, j * d + c);
            for (int c = 0; c < d; ++c) O[i * d + c] += s * hopper_element(true, j * d + c);
        }
    }
    return O;
}

struct Expectation {
    Wrong wrong;
    std::set<Report::Kind> kinds;
    std::vector<std::string> parts;  ///< of the message
};

void check(const Expectation& expected) {
    INFO("wrong: " << static_cast<int>(expected.wrong));
    try {
        run_hopper_kernel(expected.wrong);
        FAIL_CHECK("the kernel ran without a report");
    } catch (const Report& report) {
        INFO(report.what());
        CHECK(expected.kinds.count(report.kind) == 1);
        for (const std::string& part : expected.parts)
            CHECK(std::string(report.what()).find(part) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("hopper: loads, products and stores give what a plain formula says, whatever the order", "[simt]") {
    const simt::KeptOptions kept;
    const std::vector<float> expected = formula();
    simt::Counters first;  // the same in each order
    for (const bool late : {true, false}) {
        for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
            simt::options().order = order;
            simt::options().late_copies = late;
            simt::reset_counters();
            CHECK(run_hopper_kernel(Wrong::nothing) == expected);
            const simt::Counters counted = simt::counters();
            CHECK(counted.bulk_loads == 3);
            CHECK(counted.bulk_stores == 2);
            CHECK(counted.bulk_bytes == 5 * 64 * 128);
            CHECK(counted.global_load_bytes == (60 + 100) * 128);
            CHECK(counted.global_store_bytes == 2 * 60 * 128);
            CHECK(counted.wgmma == 2 * 2 * 4);
            CHECK(counted.wgmma_columns == 64 * 2 * 2 * 4);
            CHECK(counted.stmatrix == 2 * 4 * 4);
            CHECK(counted.named_barriers == 5 * 128);
            CHECK(counted.named_waits == 5 * 128);
            CHECK(counted.registers_moved == 128 * (248 - 24) + 128 * (256 - 248));
            CHECK(counted.bypassed_bytes == 0);
            if (first.launches == 0) first = counted;
            for (const auto& field : simt::counter_fields) {
                INFO(field.name);
                CHECK(counted.*field.value == first.*field.value);
            }
        }
    }
}

TEST_CASE("hopper: P of 8 bits is the next product's A without a shuffle, if V's keys are permuted",
          "[simt]") {
    std::vector<float> expected(64 * 128);
    for (int i = 0; i < 64; ++i) {
        for (int j = 0; j < 128; ++j) {
            float s = 0.0f;
            for (int c = 0; c < 128; ++c)
                s += hopper_element(false, 128 * i + c) * hopper_element(true, 128 * j + c);
            for (int c = 0; c < 128 && s > 0.0f; ++c)
                expected[128 * i + c] += hopper_element(true, 128 * j + c);
        }
    }
    const simt::KeptOptions kept;
    for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
        simt::options().order = order;
        simt::reset_counters();
        CHECK(run_e4m3_kernel(true) == expected);
        CHECK(simt::counters().shuffles == 0);
        CHECK(simt::counters().wgmma == 4 + 4);
        CHECK(simt::counters().wgmma_columns == 128 * (4 + 4));
    }
    CHECK(run_e4m3_kernel(false) != expected);
}

TEST_CASE("hopper: what turns, and the next product ahead, change is counted in the model's time", "[simt]") {
    // Of two warpgroups and 8 rounds: 64 a thread. Both start together, and then go together unless they take
    // turns: the first is ahead by one product, 64 clocks at 16 exponentials each, which it computes beside
    // the other's last one, and the other beside its next one.
    constexpr Count in_round = 2 * 128 * 64, edges = 2 * 64 * 16;
    const simt::KeptOptions kept;
    for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
        const auto count = [&](bool turns, bool ahead) {
            simt::options().order = order;
            simt::reset_counters();
            run_schedule_kernel(turns, ahead);
            CHECK(simt::counters().exponentials == 8 * in_round);
            CHECK(simt::counters().tiles == 2 * 8);  // a warpgroup's own
            CHECK(simt::counters().masked_tiles == 2);
            return simt::counters();
        };
        const simt::Counters together = count(false, false), turns = count(true, false),
                             ahead = count(false, true), both = count(true, true);
        CHECK(together.exponentials_during_products == 8 * edges);
        CHECK(together.exponentials_during_own_products == 0);
        CHECK(together.named_waits == 0);
        // In the first round both wait for the same K. From then on, one exponentiates while the other
        // multiplies.
        CHECK(turns.exponentials_during_products == edges + 7 * in_round);
        CHECK(turns.exponentials_during_own_products == 0);
        CHECK(turns.named_waits == 2 * 128 * 9);
        CHECK(turns.named_stalls == 128);  // the second's first turn
        // The same without turns: each exponentiates beside O += P V of both.
        for (const simt::Counters& c : {ahead, both}) {
            CHECK(c.exponentials_during_products + c.exponentials_during_own_products ==
                  edges + 7 * in_round);
            CHECK(c.exponentials_during_own_products > 3 * in_round);
        }
    }
}

TEST_CASE(
    "hopper: what is wrong with bulk copies, products, barriers and registers is found, whatever the order",
    "[simt][slow]") {
    using Kind = Report::Kind;
    const std::string here = "hopper_cases.cu:";
    const std::vector<Expectation> expectations = {
        {Wrong::no_init_fence, {Kind::missing_fence}, {"bulk_load at " + here, "mbarrier_fence_init"}},
        // The load is under way, or not yet started.
        {Wrong::no_wait_for_load, {Kind::copy_in_flight, Kind::uninitialized}, {here}},
        {Wrong::no_wait_for_readers, {Kind::copy_in_flight, Kind::wrong_phase, Kind::race}, {here}},
        {Wrong::told_too_early,
         {Kind::copy_in_flight},
         {"bulk copy of shared memory (byte 8192) at " + here, "before the wgmma at " + here}},
        {Wrong::too_many_bytes,
         {Kind::deadlock},
         {"(an mbarrier)", "expects 16400 bytes in phase 0", "bring 16384"}},
        {Wrong::too_few_bytes, {Kind::wrong_bytes, Kind::copy_in_flight, Kind::uninitialized}, {here}},
        {Wrong::no_wgmma_fence, {Kind::missing_fence}, {"wgmma at " + here, "no wgmma_fence"}},
        {Wrong::no_second_fence, {Kind::missing_fence}, {"wgmma at " + here, "no wgmma_fence"}},
#    ifndef __clang__  // which keeps arrays in registers of its own: there the NaN in an accumulator must do
        {Wrong::no_product_wait,
         {Kind::registers_in_flight},
         {"reads an accumulator at " + here, "the wgmma at " + here}},
        {Wrong::accumulator_written, {Kind::registers_in_flight}, {"an accumulator at " + here}},
        {Wrong::A_written, {Kind::registers_in_flight}, {"writes a register of A at " + here}},
#    endif
        {Wrong::no_proxy_fence,
         {Kind::missing_fence},
         {"bulk copy of shared memory", "no fence_proxy_async"}},
        {Wrong::no_barrier, {Kind::race, Kind::uninitialized}, {here}},
        {Wrong::no_store_wait,
         {Kind::copy_in_flight},
         {"leaves the kernel before the bulk store at " + here}},
        {Wrong::store_wait_too_late, {Kind::copy_in_flight}, {"before the bulk store at " + here}},
        {Wrong::barrier_count,
         {Kind::deadlock},
         {"named barrier 2 has 128 of 256 threads", "(a named barrier)"}},
        {Wrong::descriptor, {Kind::out_of_bounds}, {"wgmma at " + here, "outside its tile"}},
        {Wrong::generic_operand, {Kind::missing_fence}, {"wgmma of shared memory", "no fence_proxy_async"}},
        {Wrong::copied_operand, {Kind::missing_fence}, {"wgmma of shared memory", "no fence_proxy_async"}},
        {Wrong::one_warp_behind, {Kind::deadlock, Kind::divergence}, {"hopper_cases.cu"}},
        {Wrong::no_released_registers,
         {Kind::deadlock},
         {"(setmaxnreg)", "0 registers of the block are free"}},
    };
    const simt::KeptOptions kept;
    for (const bool late : {true, false}) {
        for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
            simt::options().order = order;
            simt::options().late_copies = late;
            CAPTURE(late, static_cast<int>(order));
            for (const Expectation& expected : expectations) check(expected);
        }
    }
}

namespace {

std::string refusal_of_meeting(int blocks, bool together) {
    try {
        run_meeting_kernel(blocks, together);
        return "none";
    } catch (const Report& report) {
        return report.what();
    }
}

}  // namespace

TEST_CASE("simt: blocks that are launched together may wait for each other, and others may not", "[simt]") {
    const simt::KeptOptions kept;
    simt::options().multiprocessors = 1;
    simt::options().workers = 2;
    for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
        simt::options().order = order;
        CHECK(run_meeting_kernel(5, true) == std::vector<int>(5, 10));
        CHECK(refusal_of_meeting(5, false).find("waits for a count of 5, and it stays 2") !=
              std::string::npos);
    }
    CHECK(refusal_of_meeting(33, true).find("33 blocks together; this device has room for 32 of 1 threads") !=
          std::string::npos);
}

TEST_CASE("hopper: what a kernel that is launched early reads before it waits is found", "[simt]") {
    const simt::KeptOptions kept;
    std::vector<int> sums;
    for (int i = 0; i < 128; ++i) sums.push_back((i + 1) % 128 + 1000);
    for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
        simt::options().order = order;
        simt::reset_counters();
        CHECK(run_early_kernel(64) == sums);  // the input may be read before
        CHECK(simt::counters().launches == 2);
        CHECK(simt::counters().early_launches == 1);
        for (const int waiting : {0, 63}) {
            try {
                run_early_kernel(waiting);
                FAIL_CHECK("the kernel ran without a report");
            } catch (const Report& report) {
                const std::string message = report.what();
                INFO(message);
                CHECK(report.kind == Report::Kind::race);
                CHECK(message.find("by the kernel before, and access at hopper_cases.cu:") !=
                      std::string::npos);
                CHECK(message.find("has not called wait_for_previous_kernel") != std::string::npos);
            }
        }
    }
}

TEST_CASE("hopper: a named barrier where two are needed is found as soon as a warpgroup is delayed",
          "[simt]") {
    const simt::KeptOptions kept;
    std::vector<int> sums;
    for (int thread = 0; thread < 128; ++thread) sums.push_back(28 * 1000 + 8 * ((thread + 1) % 128));
    for (const auto order : {Order::forward, Order::reversed, Order::shuffled, Order::delayed}) {
        simt::options().order = order;
        for (simt::options().seed = 1; simt::options().seed <= 4; simt::options().seed += 1)
            CHECK(run_hand_over_kernel(false) == sums);
    }
    simt::options().order = Order::forward;
    CHECK(run_hand_over_kernel(true) == sums);
    simt::options().order = Order::delayed;
    for (simt::options().seed = 1; simt::options().seed <= 4; simt::options().seed += 1) {
        try {
            run_hand_over_kernel(true);
            FAIL_CHECK("the kernel ran without a report");
        } catch (const Report& report) {
            const std::string message = report.what();
            INFO(message);
            CHECK(report.kind == Report::Kind::wrong_phase);
            CHECK(message.find("arrives twice in one phase of named barrier 1") != std::string::npos);
            const std::string here = "at hopper_cases.cu:";
            const std::size_t first = message.find(here);
            CHECK((first != std::string::npos && message.find(here, first + 1) != std::string::npos));
        }
    }
}

#endif
