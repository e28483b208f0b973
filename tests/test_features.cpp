/// @file
/// The list of features: each once, and what it writes it reads.

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "harness/cases/random.h"
#include "harness/cases/verification_cases.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "tests/any_stage.h"
#include "tests/catch.h"

using namespace ladder;

TEST_CASE("features: each has one row, under the name that stages declare it by", "[problem]") {
    std::set<Feature> listed;
    std::set<std::string> options;
    for (const FeatureInfo& info : all_features()) {
        CHECK(listed.insert(info.feature).second);
        CHECK(options.insert(info.option).second);
        CHECK(&info_of(info.feature) == &info);
    }
    REQUIRE(feature_words().size() == listed.size());
    for (const FeatureWords& words : feature_words()) {
        CHECK(listed.contains(words.feature));
        CHECK(word(words.feature) == std::string(words.word));
        CHECK(name(words.feature) == std::string(words.name));
    }
}

TEST_CASE("features: options and records read what they write, and none is left of a cleared one",
          "[problem]") {
    for (const FeatureInfo& info : all_features()) {
        INFO(info.word());
        std::mt19937_64 random(1);
        int drawn = 0;
        std::vector<Stage> taking;
        std::ranges::copy_if(stages(), std::back_inserter(taking),
                             [&](const Stage& stage) { return takes(stage, info.feature); });
        if (taking.empty()) taking.emplace_back(stages().front()).takes = {info.feature};
        for (const Stage& stage : taking) {
            for (int k = 0; k < 20; ++k) {
                Case c{.shape = {.B = 1, .Nq = 70, .Nk = 300}, .features = {.page_size = 16}};
                if (info.feature != Feature::prefix) c.features.page_size = 0;
                info.draw(random, stage, c);
                Features read;
                if (info.is_in(c.features)) info.read(read, info.text(c.features)), ++drawn;
                Features all = c.features;
                if (info.feature == Feature::prefix) read.page_size = 16, read.lengths = c.features.lengths;
                CHECK(read == all);
                auto json = nlohmann::json::object();
                add_json(json, all);
                CHECK(json.contains(info.word()) == info.is_in(all));
                CHECK(features_in(json) == all);
                info.clear(all);
                CHECK(!info.is_in(all));
            }
        }
        CHECK(drawn > 5);
    }
}

TEST_CASE("features: a stage that takes some that exclude each other has cases of each, and of no two",
          "[problem]") {
    for (const std::string name : {"any_mask", "any_mask_gradients"}) {
        const Stage& stage = test::named(name);
        std::vector<Case> cases = verification_cases(stage, Cover::pairs);
        std::mt19937_64 random(1);
        for (int k = 0; k < 100; ++k) {
            cases.push_back(random_case(random, stage.head_dims, k));
            cases.back().pass = stage.pass;
            draw_features(random(), stage, cases.back());
        }
        std::map<Feature, int> count;
        for (const Case& c : cases) {
            INFO(description_of(c));
            CHECK_NOTHROW(require_possible(c));
            CHECK(why_not_taken(stage, c) == "");
            for (const Feature feature : features_of(c.features)) count[feature] += 1;
        }
        for (const Feature feature : stage.takes) {
            INFO(word(feature));
            CHECK(count[feature] > 40);
        }
    }
}
