/// @file
/// Stages for tests that need one of a kind and not that very one, found by what they declare, so that these
/// tests know no number and no folder. A test that is about one stage asks for it by its name.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/case.h"
#include "tests/catch.h"

namespace ladder::test {

/// The first stage, by number, for which this holds.
template <class Holds>
const Stage& first_stage(const Holds& holds) {
    const auto found = std::find_if(stages().begin(), stages().end(), holds);
    REQUIRE(found != stages().end());
    return *found;
}

/// The stage of this name, which it keeps when its number changes.
inline const Stage& named(std::string_view name) {
    CAPTURE(name);
    return first_stage([&](const Stage& stage) { return stage.name == name; });
}

/// "04_split_q" of "split_q"
inline std::string folder_of(std::string_view name) {
    return named(name).folder();
}

/// A stage of the algorithm and its parent, for tests that need any two.
inline const Stage& child() {
    return named("split_q");
}

inline const Stage& parent() {
    return *find_stage(child().parent);
}

/// What a test needs of a stage.
struct Needs {
    std::vector<Feature> takes = {}, lacks = {};
    Pass pass = Pass::forward;
};

/// The first stage that meets the needs.
inline const Stage& stage_that(const Needs& needs) {
    return first_stage([&](const Stage& stage) {
        const auto is_taken = [&](Feature feature) { return takes(stage, feature); };
        return stage.pass == needs.pass && std::ranges::all_of(needs.takes, is_taken) &&
               std::ranges::none_of(needs.lacks, is_taken);
    });
}

/// Whether the stage of this name is the stage or is among those from which it comes: whether it has its
/// change.
inline bool follows(const Stage& stage, std::string_view name) {
    const Stage* at = &stage;
    while (at != nullptr && at->name != name) at = find_stage(at->parent);
    return at != nullptr;
}

/// The first number of two digits that no stage has.
inline int free_number() {
    int number = 10;
    while (find_stage(number) != nullptr) ++number;
    return number;
}

/// The first two stages, and where parts arrive without instructions of one GPU alone, on 16-bit inputs of
/// any kind: with two kernels and with one, copies of every kind, sums by atomics, and those that warps or
/// blocks merge.
inline std::vector<const Stage*> stages_of_all_kinds() {
    std::vector<const Stage*> all{&stages()[0], &stages()[1]};
    for (const Stage& stage : stages()) {
        if (is_last_of_part(stage) && stage.compute_capability == 0 && stage.takes.empty() &&
            stage.products == Products::of_16_bits)
            all.push_back(&stage);
    }
    return all;
}

}  // namespace ladder::test
