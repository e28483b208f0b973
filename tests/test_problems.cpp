// The problems that an exercise's kernel is checked on, against those that `lab verify` takes.
#ifdef LADDER_HAS_CPU

#    include <algorithm>
#    include <iterator>
#    include <set>

#    include "course/exercise.h"
#    include "course/problems.h"
#    include "harness/cases/verification_cases.h"
#    include "harness/features/features.h"
#    include "harness/ladder/ladder.h"
#    include "tests/course.h"

using namespace ladder;
using namespace ladder::test;

namespace {

/// Each two that a case has together of its type, layout, input, scale, machine, mask and features.
std::set<std::string> pairs_in(const std::vector<Case>& cases) {
    std::set<std::string> pairs;
    for (const Case& c : cases) {
        if (c.layout == Layout::far) continue;  // more addresses than a submission's process may have
        std::vector<std::string> levels{fmt::format("d {}", c.shape.d),
                                        name(c.dtype),
                                        name(c.layout),
                                        c.input,
                                        fmt::format("scale {}", c.scale.value_or(1)),
                                        fmt::format("{} SMs", c.multiprocessors),
                                        c.causal ? "causal" : "not causal",
                                        c.shape.Hkv > 1 ? "several heads" : "one head",
                                        c.shape.H > c.shape.Hkv ? "grouped" : "not grouped"};
        for (const FeatureInfo& info : all_features()) {
            const std::string text = info.text(c.features);
            const bool is_pattern = info.feature == Feature::columns || info.feature == Feature::tiles;
            levels.push_back(info.word() + std::string(text.empty() ? " none" : is_pattern ? text : ""));
        }
        for (const std::string& one : levels) {
            for (const std::string& other : levels) pairs.insert(one + ", " + other);
        }
    }
    return pairs;
}

/// Those of the first list that the second has not.
std::vector<std::string> missing(const std::vector<Case>& wanted, const std::vector<Case>& got) {
    const std::set<std::string> all = pairs_in(wanted), some = pairs_in(got);
    std::vector<std::string> list;
    std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(list));
    return list;
}

bool any(const std::vector<Case>& cases, const std::function<bool(const Case&)>& has) {
    return std::any_of(cases.begin(), cases.end(), has);
}

}  // namespace

TEST_CASE("course: an exercise's problems reach what the cases of its stage reach", "[course]") {
    const std::vector<std::string> nothing;
    for (const Exercise& e : all_exercises()) {
        const Stage& stage = *find_stage(e.number);
        INFO(stage.folder());
        const bool thorough = e.number == 61;  // of one exercise, for the time that it takes
        CHECK(missing(verification_cases(stage, thorough ? Cover::all : Cover::pairs),
                      edge_problems(e, thorough)) == nothing);
        CHECK(missing(verification_cases(stage, Cover::each), race_problems(e, 1)) == nothing);
        // What is drawn has each feature, in each type, and only what the stage takes.
        std::vector<Case> drawn;
        for (const std::uint64_t seed : {1, 2, 3}) {
            std::vector<Case> seeded = seeded_problems(e, seed);
            seeded.erase(seeded.begin(), seeded.begin() + std::ssize(e.problems));
            drawn.insert(drawn.end(), seeded.begin(), seeded.end());
        }
        for (const Case& c : drawn) CHECK(why_not_taken(stage, c) == "");
        for (const Feature feature : stage.takes) {
            for (const DType dtype : {DType::fp16, DType::bf16}) {
                INFO(name(feature) << " " << name(dtype));
                CHECK(any(drawn, [&](const Case& c) {
                    const auto has = features_of(c.features);
                    return c.dtype == dtype && std::find(has.begin(), has.end(), feature) != has.end();
                }));
            }
        }
    }
}

TEST_CASE("course: work is counted in both types and in several layouts", "[course]") {
    for (const Exercise& e : all_exercises()) {
        INFO(e.folder());
        const std::vector<Case> counted = counted_problems(e);
        CHECK(any(counted, [](const Case& c) { return c.dtype == DType::bf16; }));
        CHECK((takes(e, Feature::ranks) ||
               any(counted, [](const Case& c) { return c.layout == Layout::mixed; })));
    }
}

TEST_CASE("course: a hand-out's exercise has the problems of the whole ladder's", "[course]") {
    for (const Exercise& e : all_exercises()) {
        INFO(e.folder());
        const std::string json = stage_json(e);
        const Exercise handed_out = exercise_in(json);
        CHECK(stage_json(handed_out) == json);
        if (!e.takes.empty()) CHECK(edge_problems(handed_out, false) == edge_problems(e, false));
        CHECK(seeded_problems(handed_out, 7) == seeded_problems(e, 7));
    }
}

#endif
