// Times in traces: what a block of Hopper does at once, which place a block gets; and the page that shows it.

#ifdef LADDER_HAS_CPU

#    include "harness/trace/trace.h"

#    include <algorithm>
#    include <map>
#    include <nlohmann/json.hpp>
#    include <set>
#    include <string_view>
#    include <tuple>

#    include "harness/count/counting.h"
#    include "harness/ladder/ladder.h"
#    include "harness/time/profile.h"
#    include "harness/trace/page.h"
#    include "harness/trace/schedule.h"
#    include "harness/trace/shares.h"
#    include "harness/trace/trace_json.h"
#    include "simt/cuda.h"
#    include "simt/simt.h"
#    include "tests/any_stage.h"
#    include "tests/catch.h"
#    include "tests/hopper_cases.h"
#    include "tests/traces.h"

using namespace ladder;
using namespace ladder::test;

TEST_CASE("trace: the same each time, and as counted, though blocks count themselves", "[trace][ladder]") {
    const simt::KeptOptions kept;
    simt::options().workers = 3;
    for (const auto& [name, c] : {std::pair{"one_launch", make_case({1, 1, 1, 1, 700, 64}, false)},
                                  std::pair{"stream_k", make_case({11, 2, 1, 3, 700, 64}, true)},
                                  std::pair{"own_diagonal", make_case({1, 5, 1, 140, 200, 64}, true)},
                                  std::pair{"deterministic", make_case({1, 2, 1, 140, 300, 64}, true)}}) {
        INFO(name);
        const Stage& stage = named(name);
        const auto written = [&, c = c] { return to_json(c, multiprocessors, {trace_of(stage, c)}).dump(); };
        const std::string first = written();
        for (int time = 0; time < 4; ++time) CHECK(written() == first);
        Case counted = c;
        counted.multiprocessors = multiprocessors;
        counted.pass = stage.pass;
        const auto counts = count_work(*open_device(Backend::cpu), stage, counted, make_inputs(counted));
        CHECK(counts.counters == trace_of(stage, c).counters);
    }
}

TEST_CASE("trace: what a block of Hopper does has one time, whatever the order of threads", "[trace]") {
    const simt::KeptOptions kept;
    std::vector<simt::Timeline> recorded;
    simt::options().on_trace = [&](const simt::Launch&, simt::BlockTrace&& record) {
        recorded.push_back(std::move(record.timeline));
    };
    for (const auto order : {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled}) {
        simt::options().order = order;
        simt_cases::run_hopper_kernel(simt_cases::Wrong::nothing);
        simt_cases::run_schedule_kernel(true, false);
        simt_cases::run_schedule_kernel(false, false);
    }
    REQUIRE(recorded.size() == 9);
    for (std::size_t n = 3; n < recorded.size(); ++n) {
        const simt::Timeline &first = recorded[n % 3], &again = recorded[n];
        CAPTURE(n);
        CHECK(again.end == first.end);
        CHECK(again.loads == first.loads);
        CHECK(again.places == first.places);
        CHECK(again.products == first.products);
        for (std::size_t w = 0; w < first.warps.size(); ++w) {
            CAPTURE(w);
            CHECK(again.warps[w].exponentials == first.warps[w].exponentials);
            CHECK(again.warps[w].waits == first.warps[w].waits);
            CHECK(again.warps[w].tiles == first.warps[w].tiles);
        }
        CHECK(again == first);
    }

    const simt::Timeline& loads = recorded[0];
    CHECK(loads.loads.size() == 3);
    CHECK(loads.places.size() == 1);  // of Q and K, which have one mbarrier
    CHECK(loads.places.front().fills.size() == 2);
    CHECK(loads.products.size() == 2 * 2 * 4);
    double before = 0;
    for (const auto& product : loads.products) {
        CHECK(product.issued <= product.started);
        CHECK(product.started >= before);
        before = product.ended;
    }
    for (const auto& place : loads.places) {
        double freed = 0;
        for (const auto& fill : place.fills) {
            CHECK(fill.issued >= freed);
            CHECK(fill.landed > fill.issued);
            CHECK(fill.first_read >= fill.landed);
            CHECK(fill.last_read > fill.first_read);
            CHECK((fill.freed >= fill.last_read || &fill == &place.fills.back()));
            freed = fill.freed;
        }
    }

    // Both warpgroups exponentiate at once unless they take turns; then, in the first of 8 rounds alone.
    const auto exponentials_of_both = [](const simt::Timeline& timeline) {
        double both = 0, all = 0;
        for (const auto& mine : timeline.warps[0].exponentials) {
            all += mine.end - mine.start;
            for (const auto& other : timeline.warps[4].exponentials)
                both += std::max(0.0, std::min(mine.end, other.end) - std::max(mine.start, other.start));
        }
        return both / all;
    };
    CHECK(recorded[1].products.size() == 2 * 8 * (8 + 8));
    CHECK(exponentials_of_both(recorded[1]) < 0.25);
    CHECK(exponentials_of_both(recorded[2]) > 0.9);
}

TEST_CASE("trace: the tensor units have each of the five products of a gradient as long", "[trace]") {
    const Stage &by_keys = named("issue_order"), &roles = named("two_roles");
    for (const auto& [stage, d] : {std::pair{&by_keys, 128}, std::pair{&roles, 256}}) {
        const Case c = make_case({1, 2, 1, 256, 200, d}, true);
        const auto json = to_json(c, multiprocessors, {trace_of(*stage, c)});
        CHECK(json["traces"][0]["pass"] == "backward");
        std::map<std::string, double> clocks;
        std::map<std::string, std::set<std::string>> products;  // by warpgroup
        std::set<std::string> places;
        for (const auto& launch : json["traces"][0]["launches"]) {
            for (const auto& block : launch["blocks"]) {
                if (!block.contains("timeline")) continue;
                for (const auto& lane : block["timeline"]["lanes"]) {
                    const auto name = lane["name"].get<std::string>();
                    if (lane["kind"] == "place") places.insert(name.substr(0, name.rfind(' ')));
                    if (lane["kind"] != "products") continue;
                    for (const auto& span : lane["spans"]) {
                        clocks[span[2]] += span[1].get<double>() - span[0].get<double>();
                        products[name].insert(span[2]);
                    }
                }
            }
        }
        CHECK(clocks.erase("flight") == 1);
        CHECK(clocks.size() == 5);
        for (const auto& [product, time] : clocks) {
            INFO(stage->folder() << ": " << product);
            CHECK(std::abs(time / clocks["scores"] - 1.0) < 1e-5);
        }
        CHECK(places == std::set<std::string>{"K V", "Q dO"});
        if (stage != &roles) continue;  // whose warpgroups have a role each
        CHECK(products["group 1"] == std::set<std::string>{"dQ", "dV", "flight", "scores"});
        CHECK(products["group 2"] == std::set<std::string>{"dK", "dP", "dQ", "flight"});
    }
}

TEST_CASE("trace: blocks that take work from a counter take it in turns", "[trace]") {
    const simt::KeptOptions kept;
    simt::options().blocks_in_turns = 4;
    const auto take = +[](unsigned* counter, unsigned* taken) {
        for (unsigned n = 0; n < 3; ++n)
            taken[3 * simt::builtins.block.x + n] = simt::atomic_inc(counter, 100);
    };
    for (int time = 0; time < 3; ++time) {
        unsigned counter = 0;
        std::vector<unsigned> taken(12);
        simt::launch({.grid = 4, .block = 1}, take, &counter, taken.data());
        CHECK(taken == std::vector<unsigned>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
    }
}

TEST_CASE("trace: a wrong stage has no trace", "[trace]") {
    const simt::KeptOptions kept;
    simt::options().late_copies = true;
    Stage broken = stages().front();
    broken.run = [](const Problem&) { throw CannotRun("it is broken"); };
    CHECK_THROWS_AS(trace_of(broken, make_case({1, 1, 1, 64, 64, 64}, false)), CannotRun);
    CHECK(simt::options().on_trace == nullptr);
}

TEST_CASE("trace: the JSON form has every time in order and every index in range", "[trace]") {
    for (const Stage* stage : stages_of_all_kinds()) {
        INFO(stage->folder());
        const Case c = make_case({1, 3, 3, 300, 300, 64}, true);
        const Trace trace = trace_of(*stage, c);
        const auto json = nlohmann::json::parse(to_json(c, multiprocessors, {trace}).dump());
        CHECK(json["kind"] == "trace");
        CHECK(json["counters"].size() == simt::counter_fields.size());
        const auto& own = json["traces"][0];
        std::vector<std::uint64_t> sum(simt::counter_fields.size());
        std::size_t blocks = 0, visits = 0, barriers = 0;
        for (const auto& launch : own["launches"]) {
            blocks += launch["blocks"].size() + launch["idle_blocks"].get<std::size_t>();
            for (const auto& block : launch["blocks"]) {
                visits += block["visits"].size();
                double before = block["start"];
                for (const auto& phase : block["phases"]) {
                    CHECK(phase["start"] == before);
                    CHECK(phase["end"].get<double>() > before);
                    before = phase["end"];
                    CHECK(phase["visit"].get<int>() < static_cast<int>(block["visits"].size()));
                    for (const auto& work : phase["work"]) {
                        for (std::size_t k = 0; k < sum.size(); ++k) {
                            sum[k] += own["work"].at(work.get<std::size_t>())[k].get<std::uint64_t>();
                        }
                    }
                    for (const auto& rows : phase["rows"]) CHECK(rows["m"].size() == rows["l"].size());
                    CHECK(phase["shares"].size() == phase["work"].size());
                    for (const auto& share : phase["shares"]) {
                        CHECK(share.get<std::size_t>() < own["shares"].size());
                    }
                    barriers += phase["barrier"].get<bool>();
                }
                CHECK(block["end"] == before);
            }
        }
        CHECK(blocks == trace.counters.blocks);
        CHECK(visits == trace.counters.tiles);
        CHECK(barriers == trace.counters.barriers);
        for (std::size_t k = 0; k < sum.size(); ++k) {
            const std::string name = simt::counter_fields[k].name;
            INFO(name);
            CHECK(own["total"][k] == trace.counters.*simt::counter_fields[k].value);
            if (name != "launches" && name != "blocks" && name != "barriers")
                CHECK(own["total"][k] == sum[k]);
        }
    }
}

TEST_CASE("trace: the page holds the JSON, and asks for nothing from elsewhere", "[trace]") {
    const Case c = make_case({1, 1, 1, 64, 64, 64}, false);
    const auto json = to_json(c, multiprocessors, {trace_of(stages().front(), c)});
    const std::string page = explorer_page(json);
    CHECK(page.find(json.dump()) != page.npos);
    for (const char* elsewhere : {"http:", "https:", " src=", "@import", "@TRACES@<", "fetch("}) {
        INFO(elsewhere);
        CHECK(page.find(elsewhere) == page.npos);
    }
}

TEST_CASE("trace: problems have a largest size", "[trace]") {
    CHECK_NOTHROW(require_traceable({1, 4, 4, 1024, 1024, 64}));
    CHECK_THROWS_AS(require_traceable({1, 4, 4, 1024, 1025, 64}), BadUsage);
    CHECK_THROWS_AS(require_traceable({1 << 15, 1 << 15, 1, 1 << 30, 1 << 30, 64}), BadUsage);
}

TEST_CASE("schedule: each block takes the place that is free first, the lowest of several", "[trace]") {
    const Schedule schedule = list_schedule({3, 1, 1, 2}, 2);
    CHECK(schedule.end == 4);
    const std::vector<std::pair<std::size_t, std::uint64_t>> expected{{0, 0}, {1, 0}, {1, 1}, {1, 2}};
    for (std::size_t k = 0; k < expected.size(); ++k) {
        CHECK(std::pair(schedule.slots[k].place, schedule.slots[k].start) == expected[k]);
    }
    CHECK(list_schedule({}, 3).end == 0);
}

TEST_CASE("schedule: blocks per multiprocessor are what the recorded GPU holds", "[trace]") {
    const Profile profile = load_profile(results_folder() / "h200-profile.json");
    int compared = 0;
    for (const auto& row : profile.rows) {
        if (profile.kernels.at(row.folder) != kernel_fingerprint(row.folder)) continue;  // changed since then
        for (const auto& kernel : row.kernels) {
            if (kernel.kernel != "attention") continue;
            INFO(row.folder);
            CHECK(kernel.blocks_per_sm ==
                  blocks_per_multiprocessor(*find_stage(row.stage), kernel.shared_bytes));
            ++compared;
        }
    }
    CHECK(compared > 0);
}

#endif
