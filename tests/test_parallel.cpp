/// @file
/// A loop on all cores.

#include <vector>

#include "harness/base/parallel.h"
#include "stages/errors.h"
#include "tests/catch.h"

namespace {

using namespace ladder;

TEST_CASE("a loop on all cores does everything once, and passes on what went wrong") {
    std::vector<int> done(1000);
    parallel_for(1000, [&](int i) { done[i] += i; });
    for (int i = 0; i < 1000; ++i) REQUIRE(done[i] == i);
    parallel_for(0, [](int) { FAIL("there is nothing to do"); });
    CHECK_THROWS_AS(parallel_for(100,
                                 [](int i) {
                                     if (i == 50) throw BadUsage("50");
                                 }),
                    BadUsage);
}

}  // namespace
