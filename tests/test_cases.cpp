/// @file
/// The cases that a stage is verified on, and problems drawn at random.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "harness/cases/cover.h"
#include "harness/cases/inputs.h"
#include "harness/cases/random.h"
#include "harness/cases/verification_cases.h"
#include "harness/features/cache.h"
#include "harness/features/documents.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "tests/answers.h"
#include "tests/catch.h"

namespace {

using namespace ladder;
using namespace ladder::test;

TEST_CASE("a covering holds every two levels together, as far as that is feasible") {
    const Levels levels{3, 2, 5, 4};
    const auto feasible = [](const Levels& row) { return row[2] + row[3] < 6; };
    const auto cost = [&](const Levels& row) { return feasible(row) ? (1 + row[0]) / 3.0 : 2; };
    const std::vector<Levels> rows = cover(levels, 2, {{2, 1, -1, 3}}, cost);
    CHECK(rows.size() <= 26);  // 4 x 5 is the least
    REQUIRE(!rows.empty());
    CHECK((rows[0][0] == 2 && rows[0][1] == 1 && rows[0][3] == 3));
    const auto some = [&](std::size_t f, int a, std::size_t g, int b) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const Levels& row) { return row[f] == a && row[g] == b; });
    };
    for (std::size_t f = 0; f < levels.size(); ++f) {
        for (std::size_t g = f + 1; g < levels.size(); ++g) {
            for (int a = 0; a < levels[f]; ++a) {
                for (int b = 0; b < levels[g]; ++b) CHECK(some(f, a, g, b) == (f != 2 || a + b < 6));
            }
        }
    }
    for (const Levels& row : rows) CHECK(feasible(row));
    CHECK(cover(levels, 1, {}, cost).size() <= 6);
    // What costs more is chosen less often where either will do.
    const auto count = [&](int level) {
        return std::count_if(rows.begin(), rows.end(), [=](const Levels& row) { return row[0] == level; });
    };
    CHECK(count(1) > count(2));
}

TEST_CASE("the verification cases cover what they promise") {
    Stage stage = make_stage();
    stage.tilings = {{64, 64, 1}, {16, 64, 2}};
    const std::vector<Case> each = verification_cases(stage, Cover::each),
                            pairs = verification_cases(stage, Cover::pairs),
                            all = verification_cases(stage, Cover::all);
    CHECK(each.size() <= 14);
    CHECK(pairs.size() <= 96 + 64 + 3);  // a diagonal for each key of a tile, and large sizes
    CHECK(all.size() <= 190 + 64 + 3 + 3);
    const auto tiling = [&](const Case& c) { return stage.tilings[c.shape.d == 64 ? 0 : 1]; };

    /// An idea, and whether a case has it.
    struct Idea {
        std::string name;
        std::function<bool(const Case&)> has;
    };
    std::vector<std::vector<Idea>> factors{
        {{"fp16", [](const Case& c) { return c.dtype == DType::fp16; }},
         {"bf16", [](const Case& c) { return c.dtype == DType::bf16; }}},
        {{"bnhd", [](const Case& c) { return c.layout == Layout::bnhd; }},
         {"bhnd", [](const Case& c) { return c.layout == Layout::bhnd; }},
         {"mixed", [](const Case& c) { return c.layout == Layout::mixed; }}},
        {{"mask", [](const Case& c) { return c.causal; }},
         {"no mask", [](const Case& c) { return !c.causal; }}},
        {{"usual scale", [](const Case& c) { return !c.scale; }},
         {"scale < 0", [](const Case& c) { return c.scale && *c.scale < 0; }},
         {"scale 0", [](const Case& c) { return c.scale == 0.0f; }}},
        {{"one row", [](const Case& c) { return c.shape.Nq == 1; }},
         {"a row less", [&](const Case& c) { return c.shape.Nq == tiling(c).Br - 1; }},
         {"one tile", [&](const Case& c) { return c.shape.Nq == tiling(c).Br; }},
         {"a row more", [&](const Case& c) { return c.shape.Nq == tiling(c).Br + 1; }},
         {"several", [&](const Case& c) { return c.shape.Nq > 2 * tiling(c).Br; }}},
        {{"one key", [](const Case& c) { return c.shape.Nk == 1; }},
         {"a key less", [&](const Case& c) { return c.shape.Nk == tiling(c).Bc - 1; }},
         {"one tile of keys", [&](const Case& c) { return c.shape.Nk == tiling(c).Bc; }},
         {"a key more", [&](const Case& c) { return c.shape.Nk == tiling(c).Bc + 1; }},
         {"wrapped twice", [&](const Case& c) { return c.shape.Nk > 2 * tiling(c).depth * tiling(c).Bc; }}}};
    std::vector<Idea> batches, groups, machines, inputs;
    for (const int n : {1, 2, 3})
        batches.push_back({fmt::format("B {}", n), [=](const Case& c) { return c.shape.B == n; }});
    for (const int n : {1, 2, 3, 8})
        groups.push_back(
            {fmt::format("group {}", n), [=](const Case& c) { return c.shape.H == n * c.shape.Hkv; }});
    for (const int n : {0, 1, 3, 132})
        machines.push_back({fmt::format("{} sms", n), [=](const Case& c) { return c.multiprocessors == n; }});
    for (std::size_t k = 0; k + kinds_for_8_bits < input_kinds().size(); ++k) {
        const char* const name = input_kinds()[k].name;
        inputs.push_back({name, [name](const Case& c) { return c.input == name; }});
    }
    for (const auto& more : {batches, groups, machines, inputs}) factors.push_back(more);

    const auto some = [](const std::vector<Case>& cases, auto&& predicate) {
        return std::any_of(cases.begin(), cases.end(), predicate);
    };
    for (std::size_t f = 0; f < factors.size(); ++f) {
        for (const Idea& one : factors[f]) {
            CAPTURE(one.name);
            CHECK(some(each, one.has));
            for (std::size_t g = f + 1; g < factors.size(); ++g) {
                for (const Idea& other : factors[g]) {
                    CAPTURE(other.name);
                    CHECK(some(pairs, [&](const Case& c) { return one.has(c) && other.has(c); }));
                    for (const int d : stage.head_dims)
                        CHECK(some(all, [&](const Case& c) {
                            return c.shape.d == d && one.has(c) && other.has(c);
                        }));
                }
            }
        }
    }
    // In threes: every two sizes under a mask, and what no two ideas bring about.
    for (const Idea& rows : factors[4]) {
        for (const Idea& keys : factors[5]) {
            CAPTURE(rows.name, keys.name);
            CHECK(some(pairs, [&](const Case& c) { return c.causal && rows.has(c) && keys.has(c); }));
        }
    }
    CHECK(some(pairs, [&](const Case& c) {
        return c.causal && c.multiprocessors == 132 && c.shape.Nq > c.shape.Nk &&
               c.shape.Nk > 2 * tiling(c).Bc;
    }));
    CHECK(some(pairs, [&](const Case& c) {
        return c.shape.B * c.shape.H == 1 && c.multiprocessors == 132 && c.shape.Nk > 32 * tiling(c).Bc;
    }));
}

TEST_CASE("what takes sizes of its own is among the cases: diagonals, groups, turns, many bytes, offsets") {
    Stage stage = make_stage();
    stage.tilings = {{192, 128, 4}, {128, 64, 2}};
    const auto some = [](const std::vector<Case>& cases, auto&& predicate) {
        return std::any_of(cases.begin(), cases.end(), predicate);
    };
    for (const Pass pass : {Pass::forward, Pass::backward}) {
        stage.pass = pass;
        const std::vector<Case> pairs = verification_cases(stage, Cover::pairs),
                                all = verification_cases(stage, Cover::all);
        CAPTURE(name(pass));
        for (std::size_t k = 0; k < 2; ++k) {
            const Tiling& t = stage.tilings[k];
            const int modulus = pass == Pass::forward ? t.Bc : std::max(t.Br, t.Bc);
            const auto fits = [&](const Case& c) { return c.shape.d == stage.head_dims[k]; };
            for (int residue = 0; residue < modulus; ++residue) {
                CAPTURE(t.Br, t.Bc, residue);
                CHECK(some(pairs, [&](const Case& c) {
                    const int distance = c.shape.Nk - c.shape.Nq;
                    return fits(c) && c.causal && distance >= modulus && distance % modulus == residue;
                }));
            }
            for (const int group : {2, 3, 5, 6, 7, 8}) {
                CAPTURE(group);
                CHECK(some(pairs, [&](const Case& c) {
                    return fits(c) && c.causal && c.shape.H == group * c.shape.Hkv && c.shape.Nq > 1 &&
                           c.shape.Nq * group > t.Br && c.shape.Nk > 2 * t.Bc;
                }));
            }
            const int warpgroups = (pass == Pass::forward ? t.Br : t.Bc) / 64;
            for (const bool causal : {false, true}) {
                CHECK((warpgroups == 1 || some(pairs, [&](const Case& c) {
                           const int shared = pass == Pass::forward ? c.shape.Nq : c.shape.Nk,
                                     other = pass == Pass::forward ? c.shape.Nk : c.shape.Nq,
                                     tile = pass == Pass::forward ? t.Bc : t.Br;
                           const int tiles = (other + tile - 1) / tile;
                           return fits(c) && c.causal == causal && shared == 64 * warpgroups && tiles >= 8 &&
                                  tiles > t.depth && tiles % warpgroups != 0;
                       })));
            }
        }
        const auto has_many_bytes = [&](const Case& c) {
            const Shape& s = c.shape;
            const double bytes = 4.0 * s.Nk * s.d * s.Hkv / s.H;
            return c.causal && s.B * s.H > int(double(16 << 20) / bytes) && s.Nq > (s.d == 64 ? 192 : 128);
        };
        CHECK(some(pairs, has_many_bytes) == (pass == Pass::forward));
        CHECK(some(all, [](const Case& c) { return c.layout == Layout::far && c.shape.B > 1; }));
        CHECK(some(all, [](const Case& c) { return c.layout == Layout::far && c.shape.Hkv > 1; }));
        CHECK(some(all, [](const Case& c) {
            return c.layout == Layout::far &&
                   (c.shape.Nk - 1) * placement(c, Tensor::K).row >= std::int64_t{1} << 31;
        }));
    }
}

TEST_CASE("sizes that indices and schedules may outgrow are among the cases of each stage that meets them") {
    for (const Stage& stage : stages()) {
        std::vector<Case> all;
        if (stage.chunks != 2) all = corner_cases(stage, Cover::all);
        if (takes(stage, Feature::ranks)) {
            for (const Case& c : divided_sequences(stage, Cover::all)) all.push_back(c);
        }
        const auto some = [&](const char* what, bool applies, const std::function<bool(const Case&)>& is) {
            INFO(stage.folder() << ": " << what);
            CHECK((!applies || std::any_of(all.begin(), all.end(), is)));
        };
        const auto has = [&](Feature feature) { return takes(stage, feature); };
        const bool forward = stage.pass == Pass::forward, alone = stage.chunks == 0;
        const bool has_mask = has(Feature::window) || has(Feature::columns) || has(Feature::documents) ||
                              has(Feature::tiles) || has(Feature::dropout);
        const int Bc = stage.tilings.front().Bc;
        constexpr int bits_16 = 1 << 16;
        some("more than 32 documents", has(Feature::documents),
             [](const Case& c) { return documents_of(c).size() > 64; });
        some("more than 32 requests", has(Feature::lengths),
             [](const Case& c) { return c.shape.B > 64 && lengths_of(c).size() > 64; });
        for (const Tensor tensor : {Tensor::Q, Tensor::K}) {
            some("offsets of rows past 2^31", alone, [&](const Case& c) {
                const Placement p = placement(c, tensor);
                return (p.N - 1) * p.row > INT32_MAX;
            });
        }
        for (const Feature feature : stage.takes) {
            some(name(feature),
                 feature != Feature::ranks && feature != Feature::pages &&
                     feature != Feature::prefix,  // pages are never far
                 [&](const Case& c) {
                     const std::vector<Feature> of_case = features_of(c.features);
                     return c.layout == Layout::far &&
                            std::find(of_case.begin(), of_case.end(), feature) != of_case.end();
                 });
        }
        some("rows beyond 16 bits", has_mask && !has(Feature::tiles),
             [](const Case& c) { return c.shape.Nq > bits_16; });
        some("keys beyond 16 bits", forward && has(Feature::window),
             [](const Case& c) { return c.shape.Nk > bits_16 && c.features.window != Window(); });
        some("packed rows beyond 8192", forward && alone, [](const Case& c) {
            return c.shape.H / c.shape.Hkv * c.shape.Nq > 8192 && c.shape.H > c.shape.Hkv;
        });
        some("pages of more than 256 keys", has(Feature::pages),
             [](const Case& c) { return c.features.page_size > 256 && c.shape.Nk > 256; });
        some("seeds of 64 bits", has(Feature::dropout),
             [](const Case& c) { return c.features.dropout.seed >> 56 != 0; });
        some("heads of zeros", stage.products != Products::of_16_bits,
             [](const Case& c) { return c.input == "zeros"; });
        some("a smaller last section", !forward && alone, [](const Case& c) {
            return c.causal && c.shape.B * c.shape.Hkv == 9 && c.shape.Nk > 64 && c.multiprocessors == 0;
        });
        some("more than 8 ranks", has(Feature::ranks), [](const Case& c) { return c.features.ranks > 8; });
        some("chunks of 128 and 129 keys", has(Feature::ranks),
             [&](const Case& c) { return c.features.ranks == 2 && c.shape.Nk == 257 * stage.chunks; });
        for (const auto& [feature, pattern] :
             {std::pair{Feature::columns, &Features::columns}, {Feature::tiles, &Features::tiles}}) {
            some("a mask for each query head", has(feature), [p = pattern](const Case& c) {
                return c.features.*p == "query_heads" && c.shape.H > c.shape.Hkv;
            });
        }
        some("more than 32 query tiles", has_mask && !forward,
             [](const Case& c) { return c.shape.Nq > 32 * 64 && c.shape.Nk > 32; });
        some("lists of more than 32 tiles", has(Feature::tiles) && forward,
             [](const Case& c) { return c.shape.Nk > 32 * 64 && !c.features.tiles.empty(); });
        some("more than 132 multiprocessors", forward && alone,
             [&](const Case& c) { return c.multiprocessors > 132 && c.shape.Nk >= c.multiprocessors * Bc; });
        some("more heads than 132", forward && alone,
             [](const Case& c) { return c.multiprocessors > 132 && c.shape.B * c.shape.H > 132; });
        some("rows with an inexact reciprocal after a prefix", has(Feature::prefix),
             [](const Case& c) { return c.features.prefix > 0 && c.shape.Nq == 41 && c.shape.B > 1; });
    }
}

TEST_CASE(
    "stages with the same tilings have their cases in common where they have a head dimension in common") {
    Stage narrow = make_stage(), wide = make_stage();
    narrow.head_dims = {64};
    wide.head_dims = {64, 128, 256};
    std::set<std::string> all;
    for (const Case& c : verification_cases(wide, Cover::all)) {
        CAPTURE(description_of(c));
        CHECK(all.insert(description_of(c)).second);  // each once
    }
    for (const Stage& stage : {narrow, make_stage()}) {
        for (const Case& c : verification_cases(stage, Cover::all)) CHECK(all.contains(description_of(c)));
    }
}

TEST_CASE("random problems are problems, and a failing one shrinks to what makes it fail") {
    std::mt19937_64 random(7);
    std::vector<Case> drawn;
    for (int k = 0; k < 40; ++k) {
        drawn.push_back(random_case(random, {64, 128}, k));
        CAPTURE(description_of(drawn.back()));
        CHECK_NOTHROW(validate(drawn.back().shape));
        CHECK_NOTHROW(make_inputs(drawn.back()));
    }
    for (const auto& [name, layout] : layouts()) {
        CAPTURE(name);
        CHECK(std::any_of(drawn.begin(), drawn.end(),
                          [layout = layout](const Case& c) { return c.layout == layout; }));
    }
    const auto fails = [](const Case& c) {
        return c.shape.Nk > 37 && c.shape.H >= 2 * c.shape.Hkv && c.causal;
    };
    const auto failing = std::find_if(drawn.begin(), drawn.end(), fails);
    REQUIRE(failing != drawn.end());
    const Case smallest = shrink(*failing, fails);
    CHECK(options_of(smallest) == fmt::format("--shape 1,2,1,1,38,{} --causal", smallest.shape.d));
}

}  // namespace
