/// @file
/// The CPU back-end: every report on a kernel that is broken in that way, and correct kernels under every
/// order.
#ifdef LADDER_HAS_CPU

#    include <dlfcn.h>
#    include <sys/wait.h>
#    include <unistd.h>

#    include <algorithm>
#    include <cstdlib>
#    include <cstring>
#    include <functional>
#    include <numeric>
#    include <set>

#    include "simt/fence.h"
#    include "simt/simt.h"
#    include "tests/catch.h"
#    include "tests/simt_cases.h"
#    include "tests/simt_library.h"

using simt::Report;

namespace {

/// Sets options for one test.
struct WithOptions {
    simt::Options saved = simt::options();
    ~WithOptions() { simt::options() = saved; }
};

/// What a kernel is reported for; fails the test if it is not.
Report report_of(void (*run)()) {
    try {
        run();
    } catch (const Report& report) {
        return report;
    }
    FAIL("the kernel ran without a report");
    throw std::logic_error("unreachable");
}

void check(void (*run)(), Report::Kind kind, const std::vector<std::string>& parts) {
    const Report report = report_of(run);
    INFO(report.what());
    CHECK(report.kind == kind);
    for (const std::string& part : parts) CHECK(std::string(report.what()).find(part) != std::string::npos);
}

void check_one_of(void (*run)(), const std::set<Report::Kind>& kinds) {
    const Report report = report_of(run);
    INFO(report.what());
    CHECK(kinds.count(report.kind) == 1);
}

std::vector<int> iota(int count, int first = 0) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

}  // namespace

using namespace simt_cases;

TEST_CASE("simt: lanes that execute different instructions are reported with both places", "[simt]") {
    check(divergent_warp_instruction, Report::Kind::divergence,
          {"lane 0 executes shuffle at simt_cases.cu:", "lane 16 executes __syncwarp at simt_cases.cu:"});
    check(divergent_barrier, Report::Kind::divergence, {"divergent __syncthreads", "simt_cases.cu:"});
    check(left_out_of_mask, Report::Kind::divergence, {"lane 8 ", "leaves it out", "simt_cases.cu:"});
    check(divergent_vote, Report::Kind::divergence,
          {"lane 0 executes vote at simt_cases.cu:", "lane 16 executes vote at simt_cases.cu:"});
    check(left_out_of_vote, Report::Kind::divergence,
          {"lane 16 executes vote", "leaves it out", "simt_cases.cu:"});
}

TEST_CASE("simt: threads that wait for ever are reported with who waits where", "[simt]") {
    check(deadlock_after_return, Report::Kind::deadlock,
          {"threads 0-4, 6-31 wait at simt_cases.cu:", "(__syncwarp)", "threads 5 have left the kernel"});
    check(vote_of_some, Report::Kind::deadlock,
          {"threads 0-6, 8-31 wait at simt_cases.cu:", "(vote)", "threads 7 have left the kernel"});
    check(
        deadlock_two_barriers, Report::Kind::deadlock,
        {"threads 0-31 wait at", "(__syncthreads)", "threads 32-39, 41-63 wait at", "threads 40 have left"});
}

TEST_CASE("simt: races are found, whatever the order", "[simt]") {
    const WithOptions restore;
    for (const auto order :
         {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
        simt::options().order = order;
        check(missing_barrier, Report::Kind::race,
              {"no barrier between them", "simt_cases.cu:", "shared memory"});
        check(missing_barrier_after_read, Report::Kind::race,
              {"read at", "write at", "no barrier between them"});
        check(missing_warp_sync, Report::Kind::race, {"no __syncwarp or barrier between them"});
        check(shuffle_as_barrier, Report::Kind::race, {"no __syncwarp or barrier between them"});
        check(same_value_writes, Report::Kind::race, {"the array (byte 0): write at", ", write at"});
        check(race_between_blocks, Report::Kind::race,
              {"of another block", "blocks of one launch have no order"});
    }
}

TEST_CASE("simt: blocks have no order without fences around an atomic", "[simt]") {
    const WithOptions restore;
    for (const int workers : {1, 3}) {
        for (const auto order :
             {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
            simt::options().workers = workers;
            simt::options().order = order;
            constexpr int sum = 8 * (32 * 33 / 2);
            CHECK(hand_over() == std::vector<int>{sum, sum, 0});
            const auto race = Report::Kind::race;
            const std::vector<std::string> written_first{"write at", "of another block, read at"};
            // Without the barrier the last block may also read what another worker's has yet to write.
            const std::vector<std::string> either_first{"write at", "read at", "of another block, "};
            check(hand_over_without_fence, race, written_first);
            check(hand_over_without_barrier, race, workers == 1 ? written_first : either_first);
            check(hand_over_behind_others_fences, race, written_first);
            check(hand_over_without_second_fence, race, written_first);
            check(hand_over_to_every_block, race, {"of another block"});
            check(hand_over_past_a_plain_count, race, {"of another block"});
        }
    }
    check(atomic_on_shared_memory, Report::Kind::unsupported, {"atomic on shared memory", "simt_cases.cu:"});
}

TEST_CASE("simt: reads of unwritten shared memory are found", "[simt]") {
    check(unwritten_shared_memory, Report::Kind::uninitialized,
          {"before anything wrote it", "simt_cases.cu:"});
    check(unwritten_static_shared_memory, Report::Kind::uninitialized,
          {"static shared memory", "by thread 63"});
}

TEST_CASE("simt: asynchronous copies land late, and what touches them before is found", "[simt]") {
    const auto in_flight = Report::Kind::copy_in_flight;
    check(missing_copy_wait, in_flight, {"read of shared memory", "the asynchronous copy at copy_cases.cu:"});
    check(copy_over_a_tile_in_use, Report::Kind::race, {"read at", "write at", "between them"});
    check(wait_for_too_few_groups, in_flight, {"read of shared memory (byte 636)"});
    check(wait_without_a_commit, in_flight, {"read of shared memory", "was waited for"});
    check(refill_before_the_warp_has_read, in_flight, {"read of shared memory", "was waited for"});
}

TEST_CASE("simt: what a copy in flight writes or reads is nobody's to write, whatever the order", "[simt]") {
    const WithOptions restore;
    const auto in_flight = Report::Kind::copy_in_flight;
    const std::string before = "before the asynchronous copy at copy_cases.cu:";
    for (const bool late : {true, false}) {
        for (const auto order :
             {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
            simt::options().order = order;
            simt::options().late_copies = late;
            for (const auto& twice :
                 {two_copies_to_one_place, two_groups_to_one_place, mbarrier_two_copies_to_one_place}) {
                check(twice, in_flight, {"copy to shared memory (byte ", before});
            }
            // The first warp's may have landed, for that warp.
            check_one_of(copies_of_two_warps_to_one_place, {in_flight, Report::Kind::race});
            check(store_over_a_copy, in_flight, {"write of shared memory (byte ", before});
            check(store_to_what_a_copy_reads, in_flight, {"write of the array (byte ", before});
            CHECK(copy_again_behind_the_wait() == iota(32, 4));
        }
    }
    simt::options().compute_capability = 75;  // where a copy is over when it has been started
    CHECK_NOTHROW(two_copies_to_one_place());
}

TEST_CASE("simt: groups of copies land in order, early or late, and what a wait leaves is counted",
          "[simt]") {
    const WithOptions restore;
    for (const bool late : {true, false}) {
        for (const int capability : {80, 75}) {
            simt::options().late_copies = late;
            simt::options().compute_capability = capability;
            simt::reset_counters();
            const auto sums = ring_of_copies();
            for (int i = 0; i < 32; ++i) CHECK(sums[i] == 8 * (127 - i));
            CHECK(simt::counters().async_copies == 8 * 32);
            // Each tile anew, though from and to the same lines.
            CHECK(simt::counters().copied_lines == 8 * 4);
            CHECK(simt::counters().copies_left_in_flight == 7 * 32);  // the last wait leaves none
        }
    }
}

TEST_CASE("simt: mbarriers order the warps that use them as they say, and let them run ahead", "[simt]") {
    const WithOptions restore;
    for (const bool late : {true, false}) {
        for (const auto order :
             {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
            for (const int seed : {1, 2, 3}) {
                simt::options() = {
                    .order = order, .seed = static_cast<std::uint64_t>(seed), .late_copies = late};
                simt::reset_counters();
                const auto sums = ring_with_mbarriers();
                for (int i = 0; i < 128; ++i) CHECK(sums[i] == 8 * (511 - i) + 512 * (8 * 7 / 2));
                // Each thread says that it has copied and each warp that it has read; each thread waits for
                // both.
                CHECK(simt::counters().mbarrier_arrivals == 8 * (128 + 4));
                CHECK(simt::counters().mbarrier_waits == 8 * (128 + 128));
                CHECK(simt::counters().barriers == 1);

                std::vector<int> reversed = iota(128);
                std::reverse(reversed.begin(), reversed.end());
                CHECK(copies_told_by_a_barrier() == reversed);
                CHECK(copies_told_by_an_mbarrier() == reversed);
                CHECK(lane_tells_by_an_mbarrier() == std::vector<int>(128, 7));
            }
        }
    }
}

TEST_CASE("simt: what is missing around an mbarrier is found, whatever the order", "[simt]") {
    const WithOptions restore;
    for (const auto order :
         {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
        for (const int seed : {1, 2, 3}) {
            simt::options().order = order;
            simt::options().seed = static_cast<std::uint64_t>(seed);
            CAPTURE(static_cast<int>(order), seed);
            check(mbarrier_not_waited_for, Report::Kind::race,
                  {"write at", "read at", "the mbarrier of that copy was not waited for"});
            check(mbarrier_with_copies_in_flight, Report::Kind::copy_in_flight,
                  {"read of shared memory", "the asynchronous copy at copy_cases.cu:"});
            // A copy may be under way, may not have been started, or has landed for those who waited.
            check_one_of(mbarrier_missing_wait,
                         {Report::Kind::copy_in_flight, Report::Kind::uninitialized, Report::Kind::race});
            check_one_of(mbarrier_wait_at_another,
                         {Report::Kind::copy_in_flight, Report::Kind::uninitialized, Report::Kind::race});
            check(mbarrier_refill_too_early, Report::Kind::race, {"read at", "write at"});
            check(mbarrier_arrival_without_syncwarp, Report::Kind::race, {"read at", "write at"});
            check_one_of(mbarrier_without_a_barrier_behind_init,
                         {Report::Kind::race, Report::Kind::uninitialized});
            check(mbarrier_never_initialized, Report::Kind::uninitialized,
                  {"before mbarrier_init", "copy_cases.cu:"});
            check(mbarrier_set_up_twice, Report::Kind::wrong_phase, {"mbarrier_init at copy_cases.cu:"});
            check(mbarrier_wrong_phase, Report::Kind::wrong_phase, {"asks at copy_cases.cu:", "for phase 2"});
            check(mbarrier_missing_arrival, Report::Kind::deadlock, {"(an mbarrier)", "copy_cases.cu:"});
            for (const auto& both : {mbarrier_and_copy_wait, mbarrier_and_copy_group})
                check(both, Report::Kind::unsupported, {"a copy of thread", "mbarrier", "copy_cases.cu:"});
        }
    }
}

TEST_CASE("simt: bad addresses are found", "[simt]") {
    check(read_past_the_end, Report::Kind::out_of_bounds, {"read of 4 bytes", "simt_cases.cu:"});
    check(shared_memory_past_the_end, Report::Kind::out_of_bounds, {"write of 4 bytes", "simt_cases.cu:"});
    check(write_to_an_input, Report::Kind::read_only, {"the array", "input", "simt_cases.cu:"});
    check(misaligned_copy, Report::Kind::misaligned, {"16-byte aligned", "copy_cases.cu:"});
    check(misaligned_store, Report::Kind::misaligned, {"store of 8 bytes", "simt_cases.cu:"});
}

TEST_CASE("simt: what the device lacks is refused", "[simt]") {
    const WithOptions restore;
    check(too_much_shared_memory, Report::Kind::unsupported, {"bytes of shared memory per block"});
    CHECK_NOTHROW(bf16_mma());
    simt::options().compute_capability = 75;
    check(bf16_mma, Report::Kind::unsupported, {"bf16", "sm_80", "simt_cases.cu:"});
    check([] { ring_with_mbarriers(); }, Report::Kind::unsupported, {"mbarrier", "sm_80", "copy_cases.cu:"});
}

TEST_CASE("simt: after a report the next launch runs", "[simt]") {
    for (int i = 0; i < 3; ++i) {
        CHECK_THROWS_AS(deadlock_after_return(), Report);
        CHECK_THROWS_AS(missing_barrier(), Report);
        CHECK(early_exit_then_barrier()[31] == 0);
    }
}

TEST_CASE("simt: kernels of a library that is opened later are run and checked as the program's own",
          "[simt]") {
    void* library = dlopen(SIMT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    INFO((library == nullptr ? dlerror() : ""));
    REQUIRE(library != nullptr);
    static const auto run = reinterpret_cast<decltype(&run_from_library)>(dlsym(library, "run_from_library"));
    REQUIRE(run != nullptr);
    static std::vector<int> out(64);
    simt::register_allocation(out.data(), out.size() * sizeof(int), "the array", true);

    run(FromLibrary::nothing_wrong, out.data());
    CHECK(std::vector<int>(out.begin(), out.begin() + 8) == std::vector<int>{6, 2, 9, 5, 1, 4, 1, 3});
    check([] { run(FromLibrary::race_on_static_shared_memory, out.data()); }, Report::Kind::race,
          {"static shared memory", "read at simt_library.cu:22 by", "write at simt_library.cu:20 by"});
    check([] { run(FromLibrary::race_on_shared_memory, out.data()); }, Report::Kind::race,
          {"race on shared memory", "read at simt_library.cu:31 by", "write at simt_library.cu:30 by"});

    simt::forget_allocation(out.data());
    CHECK(dlclose(library) == 0);
}

TEST_CASE("simt: device memory is out of the host's reach but for launches", "[simt]") {
    const std::size_t bytes = simt::fence_unit();
    auto* memory = static_cast<int*>(std::aligned_alloc(bytes, bytes));
    memory[5] = 7;
    simt::fence(memory, bytes, "O");
    const auto raise = [](int* counts) { counts[0] += 1; };
    const auto launch = [&] { simt::launch({1, 32}, static_cast<void (*)(int*)>(raise), memory); };
    const auto said = [&](const std::function<void()>& host_side) -> std::string {
        try {
            simt::run_host_side(reinterpret_cast<const void*>(&report_of), host_side);
        } catch (const Report& report) {
            CHECK(report.kind == Report::Kind::host_access);
            return report.what();
        }
        return "";
    };
    memory[0] = 0;
    CHECK(said([&] { launch(), launch(); }) == "");
    CHECK(memory[0] == 64);
    for (int i = 0; i < 2; ++i) {  // it goes on after a report
        const std::string read = said([&] { launch(), (void)*static_cast<volatile int*>(memory + 5); });
        INFO(read);
        CHECK(read.find(" device memory at code address 0x") != std::string::npos);
        CHECK(read.find(": O (byte 20), outside of a launch") != std::string::npos);
        CHECK(said([&] { std::memset(memory, 0, bytes); }).find("O (byte ") != std::string::npos);
    }
    CHECK_THROWS_AS(simt::run_host_side(nullptr, [] { throw std::bad_alloc(); }), std::bad_alloc);
    CHECK(memory[0] == 128);
    CHECK(memory[5] == 7);
    simt::forget_fence(memory);
    std::free(memory);
}

#    ifdef __x86_64__  // elsewhere the quotient is 0
TEST_CASE("simt: an integer that is divided by zero is reported", "[simt]") {
    const auto kernel = static_cast<void (*)(int*, int)>([](int* out, int by) { out[0] = 7 / by; });
    int out = 0;
    volatile int zero = 0;
    const auto said = [&](const std::function<void()>& run) -> std::string {
        try {
            simt::run_host_side(reinterpret_cast<const void*>(&report_of), run);
        } catch (const Report& report) {
            CHECK(report.kind == Report::Kind::division_by_zero);
            return report.what();
        }
        return "";
    };
    for (int i = 0; i < 2; ++i) {  // it goes on after a report
        CHECK(said([&] {
                  simt::launch({1, 32}, kernel, &out, 0);
              }).find(": an integer is divided by zero") != std::string::npos);
        CHECK(said([&] { out = 7 / zero; }).find(": host code divides an integer by zero") !=
              std::string::npos);
        CHECK(said([&] { simt::launch({1, 32}, kernel, &out, 2); }) == "");
        CHECK(out == 3);
    }
}
#    endif

TEST_CASE("simt: a launch ends when it is asked to", "[simt]") {
    const WithOptions restore;
    std::atomic<bool> stop{true};
    simt::options().stop = &stop;
    const auto kernel = static_cast<void (*)(int*)>([](int* out) { out[0] = 1; });
    int out = 0;
    CHECK_THROWS_AS(simt::launch({1, 32}, kernel, &out), simt::Stopped);
    CHECK(out == 0);
    stop = false;
    simt::launch({1, 32}, kernel, &out);
    CHECK(out == 1);
}

TEST_CASE("simt: correct kernels give the same under every order, seed and number of workers", "[simt]") {
    const WithOptions restore;
    for (const int workers : {1, 3}) {
        for (const auto order :
             {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
            for (const int seed : {1, 2}) {
                simt::options() = {
                    .order = order, .seed = static_cast<std::uint64_t>(seed), .workers = workers};
                std::vector<int> reversed = iota(64);
                std::reverse(reversed.begin(), reversed.end());
                CHECK(static_shared_reversal() == reversed);

                const auto exchanged = warp_exchange_with_syncwarp();
                for (int i = 0; i < 32; ++i) CHECK(exchanged[i] == (i ^ 1));

                const auto among = partial_masks();
                for (int i = 0; i < 32; ++i) CHECK(among[i] == (i ^ 2) + (i % 2 == 1 ? 100 : 0));

                const auto voted = votes();
                for (int i = 0; i < 32; ++i) CHECK(voted[i] == 10 + (i / 8 == 13 / 8 || i / 8 == 26 / 8));

                const auto early = early_exit_then_barrier();
                for (int i = 0; i < 32; ++i) CHECK(early[i] == 31 - i);

                const auto numbers = block_numbers();
                for (int i = 0; i < 24; ++i) CHECK(numbers[i] == i % 2 + 10 * (i / 2 % 3) + 100 * (i / 6));
            }
        }
    }
}

TEST_CASE("simt: a child of fork runs kernels on threads of its own", "[simt]") {
    const WithOptions restore;
    simt::options().workers = 3;
    const auto numbers = block_numbers();
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);  // instead of a wait without an end
        _exit(block_numbers() == numbers && block_numbers() == numbers ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(block_numbers() == numbers);
}

TEST_CASE("simt: counters count", "[simt]") {
    simt::reset_counters();
    warp_exchange_with_syncwarp();
    simt::Counters counted = simt::counters();
    CHECK(counted.launches == 1);
    CHECK(counted.blocks == 1);
    CHECK(counted.warp_syncs == 6);
    CHECK(counted.shared_exchange_bytes == 3 * 32 * 2 * 4);
    CHECK(counted.global_store_bytes == 3 * 32 * 4);
    CHECK(counted.bypassed_bytes == 0);

    simt::reset_counters();
    static_shared_reversal();
    CHECK(simt::counters().barriers == 1);

    simt::reset_counters();
    partial_masks();
    CHECK(simt::counters().shuffles == 2);

    simt::reset_counters();
    votes();
    CHECK(simt::counters().votes == 4 + 2);
    CHECK(simt::counters().shuffles == 0);

    simt::reset_counters();
    hand_over();
    CHECK(simt::counters().atomics == 2 * 8);
    CHECK(simt::counters().fences == 2 * 8 * 2);
    CHECK(simt::counters().global_store_bytes == 2 * (8 * 32 + 1) * 4);
}

TEST_CASE("simt: products are told apart by whether copies of their warp are in flight", "[simt]") {
    const WithOptions restore;
    for (const int capability : {80, 75}) {  // on sm_75 they are done when they are started, and count alike
        simt::options().compute_capability = capability;
        simt::reset_counters();
        mma_among_copies();
        CHECK(simt::counters().mma == 2 * 4);
        CHECK(simt::counters().mma_during_copies == 2);
    }
}

TEST_CASE("simt: the work of each block, whatever the order", "[simt]") {
    const WithOptions restore;
    for (const auto order :
         {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed}) {
        simt::options().order = order;
        simt::options().workers = 1;
        std::vector<int> numbers;
        std::vector<std::uint64_t> stored(24);
        simt::options().on_block = [&](std::uint64_t number, const simt::Counters& work) {
            CHECK(work.blocks == 1);
            numbers.push_back(static_cast<int>(number));
            stored[number] = work.global_store_bytes;
        };
        block_numbers();
        CHECK(stored == std::vector<std::uint64_t>(24, 4));
        if (order == simt::Order::forward) CHECK(numbers == iota(24));
        if (order == simt::Order::reversed) CHECK((numbers.front() == 23 && numbers.back() == 0));
        CHECK(std::set<int>(numbers.begin(), numbers.end()).size() == 24);
    }
}

TEST_CASE("simt: the audit sees traffic that no wrapper counted", "[simt]") {
    simt::reset_counters();
    const auto result = plain_accesses();
    CHECK(result == std::vector<int>(32, 1));
    CHECK(simt::counters().bypassed_bytes == 32 * (4 + 4));
    CHECK(simt::counters().global_load_bytes == 0);
}

TEST_CASE("simt: bank conflicts of ldmatrix follow from the rows' addresses", "[simt]") {
    const auto conflicts = [](int stride) {
        simt::reset_counters();
        conflicting_ldmatrix(stride);
        CHECK(simt::counters().ldmatrix == 1);
        return simt::counters().bank_conflicts;
    };
    CHECK(conflicts(16) == 0);       // eight rows fill the 128 bytes that shared memory serves at a time
    CHECK(conflicts(32) == 4 * 1);   // every other 16 bytes: two passes for each of the four matrices
    CHECK(conflicts(128) == 4 * 7);  // all eight rows in the same 16 bytes
    CHECK(conflicts(144) == 0);      // the padded row of a 64-column tile
    CHECK(conflicts(272) == 0);      // of a 128-column tile
}

#endif
