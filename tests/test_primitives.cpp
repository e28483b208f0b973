/// @file
/// The CPU's instructions against what a real GPU gave: tests/golden/primitives.json.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/primitives.h"
#include "tests/skip.h"

using ladder::Backend;
using primitives::Results;

namespace {

constexpr const char* golden_file = LADDER_SOURCE_DIR "/tests/golden/primitives.json";

Results golden() {
    std::ifstream file(golden_file);
    REQUIRE(file);
    return nlohmann::json::parse(file).at("primitives").get<Results>();
}

float as_float(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/// What two implementations of a primitive may differ by, at an expected value.
float tolerance(const std::string& name, float expected) {
    // Products of 8-bit elements are emulated bit for bit.
    if (name.find("e4m3") != std::string::npos) return 0.0f;
    // 16 products of numbers under 2 and an accumulator under 8, added in fp32 in any order, perhaps
    // truncated.
    if (name.rfind("mma", 0) == 0) return 17 * 72.0f * std::numeric_limits<float>::epsilon();
    // One or two such products behind each other.
    if (name.rfind("wgmma", 0) == 0) return 33 * 136.0f * std::numeric_limits<float>::epsilon();
    // ex2.approx is good to 2 ulp, and flushes what is not a normal number to 0.
    if (name == "exp2")
        return 2 * std::numeric_limits<float>::epsilon() * expected + std::numeric_limits<float>::min();
    return 0.0f;
}

void check_agreement(const Results& expected, const Results& got) {
    for (const auto& [name, words] : got) {
        INFO(name);
        if (expected.count(name) == 0) {
            FAIL_CHECK("tests/golden/primitives.json has no record of '"
                       << name << "': on a GPU run LADDER_GOLDEN=tests/golden/primitives.json "
                       << "build/tests/tests \"[.record]\"");
            continue;
        }
        const auto& wanted = expected.at(name);
        REQUIRE(words.size() == wanted.size());
        for (std::size_t i = 0; i < words.size(); ++i) {
            const float bound = tolerance(name, as_float(wanted[i]));
            INFO("word " << i << ", expected " << std::hex << wanted[i] << ", got " << words[i]);
            if (bound == 0.0f) {
                CHECK(words[i] == wanted[i]);
            } else {
                CHECK(std::abs(as_float(words[i]) - as_float(wanted[i])) <= bound);
            }
        }
    }
}

/// Of Hopper's, those that are on record: not every GPU has them, and not every width of wgmma is.
Results recorded_of(Results results) {
    const Results on_record = golden();
    std::erase_if(results, [&](const auto& result) { return on_record.count(result.first) == 0; });
    return results;
}

}  // namespace

#ifdef LADDER_HAS_CPU

#    include "simt/simt.h"

TEST_CASE("primitives: the CPU's instructions give what a GPU recorded, lane by lane", "[simt]") {
    const auto device = ladder::open_device(Backend::cpu);
    Results got = primitives::run<Backend::cpu>(*device);
    got.merge(recorded_of(primitives::run_hopper<Backend::cpu>(*device)));
    for (const auto& [name, words] : golden()) {
        INFO(name << " is recorded");
        CHECK(got.count(name) == 1);
    }
    check_agreement(golden(), got);
}

TEST_CASE("primitives: Hopper's give what plain formulas say", "[simt]") {
    const auto device = ladder::open_device(Backend::cpu);
    const Results got = primitives::run_hopper<Backend::cpu>(*device);
    CHECK(got.size() == 2 * 4 * 4 + 2 * (4 + 3) + 4 + 5);
    check_agreement(primitives::hopper_by_formula(), got);
}

TEST_CASE("primitives: and so do the ones that sm_75 has instead", "[simt]") {
    const simt::Options saved = simt::options();
    simt::options().compute_capability = 75;
    const auto device = ladder::open_device(Backend::cpu);
    const Results got = primitives::run<Backend::cpu>(*device);
    simt::options() = saved;
    CHECK(got.count("mma_fp16") == 1);
    CHECK(got.count("mma_bf16") == 0);
    check_agreement(golden(), got);
}

#endif

#ifdef LADDER_HAS_GPU

TEST_CASE("primitives: this GPU gives what was recorded", "[gpu]") {
    if (!ladder::test::available(Backend::gpu)) return;
    const auto device = ladder::open_device(Backend::gpu);
    check_agreement(golden(), primitives::run<Backend::gpu>(*device));
    check_agreement(golden(), recorded_of(primitives::run_hopper<Backend::gpu>(*device)));
}

/// Records: LADDER_GOLDEN=tests/golden/primitives.json build/tests/tests "[.record]"
TEST_CASE("primitives: record", "[.record]") {
    const char* path = std::getenv("LADDER_GOLDEN");
    REQUIRE(path != nullptr);
    const auto device = ladder::open_device(Backend::gpu);
    Results results = primitives::run<Backend::gpu>(*device);
    results.merge(primitives::run_hopper<Backend::gpu>(*device));
    // Of wgmma one width: all of them are 3 MB, and differ in nothing but their number of columns.
    std::erase_if(results, [](const auto& result) {
        return result.first.starts_with("wgmma") && !result.first.ends_with("_80");
    });
    const nlohmann::json record = {{"gpu", device->description()},
                                   {"compute_capability", device->compute_capability()},
                                   {"primitives", std::move(results)}};
    std::ofstream(path) << record.dump() << '\n';
}

#endif
