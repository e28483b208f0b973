/// @file
/// What there is to know of one feature of a problem, kernels aside. Each has a file, and a line in the list
/// of features.cpp; commands, records, inputs, cases, the reference and devices walk over that list.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "harness/base/numbers.h"
#include "harness/features/given.h"
#include "harness/ladder/declaration.h"
#include "harness/problem/case.h"
#include "reference/mask.h"
#include "stages/stage.h"

namespace ladder {

/// What a feature brings that kernels read from memory.
using Numbers = std::variant<std::vector<int>, std::vector<float>>;

/// Where a function is null, there is nothing to say. Those of a Case are asked of cases that have the
/// feature, but for fit(), and for what gives one to a case.
struct FeatureInfo {
    Feature feature;

    // As an option of a command, in the name of a problem, and in a record

    const char* option;  ///< "--page-size"
    const char* type;    ///< of its text, in the option's help
    const char* help;
    std::string (*text)(const Features&) = nullptr;         ///< "16"; empty for none
    void (*read)(Features&, const std::string&) = nullptr;  ///< of such a text. Throws BadUsage.
    void (*clear)(Features&) = nullptr;
    bool is_text = true;                                 ///< in JSON; otherwise a number, or a list of them
    std::vector<std::string> choices = {};               ///< of the text, if these are all
    std::string (*in_short)(const Features&) = nullptr;  ///< in a table of timings: "16s of "

    // What it goes with

    void (*require)(const Case&) = nullptr;  ///< throws BadUsage if the rest of the case does not go with it
    std::vector<Feature> excludes = {};      ///< of those before it in the list: no case has both
    std::vector<Feature> excludes_in_gradients = {};  ///< the same where a stage computes gradients
    /// Why a stage that takes it does not take it in this case; empty if it does.
    std::string (*why_not)(const Stage&, const Case&) = nullptr;
    std::string (*why_not_timed)(const Features&) = nullptr;  ///< the same of commands that time

    // What it is in a run

    const char* array = nullptr;                            ///< "column bounds": the numbers that it brings
    std::function<Numbers(const Case&)> numbers = nullptr;  ///< which are these
    /// Puts it into a problem; the numbers are at `numbers`.
    void (*fill)(const Case&, const void* numbers, Problem&) = nullptr;
    void (*mask)(const Case&, int b, int h, reference::Mask&) = nullptr;
    /// Scores of all heads that are left of it and of the features before it in the list; null if it hides
    /// none.
    double (*visible_scores)(const Case&) = nullptr;
    /// Of so many keys of all requests, those that a kernel has to read.
    double (*keys)(const Case&, double keys) = nullptr;
    void (*tell_peers)(const Case&, nlohmann::json& features) = nullptr;

    // In a call in Python

    std::vector<CallArgument> arguments = {};
    /// Puts what is given of these into the problem, and into the features what a stage has to take. Throws
    /// BadUsage. Asked if any of them is given, in the order of the list.
    void (*take)(const Given&, Problem&, Features&) = nullptr;
    /// The Nk of the problem, where it is not the one of K; asked before take().
    std::int64_t (*keys_of_request)(const Given&) = nullptr;

    // Cases that have it

    bool sets_sizes = false;      ///< its text gives Nq and Nk
    bool depends_on_row = false;  ///< what a row computes depends on which row it is
    bool is_kept_alone = false;   ///< a request of a batch is the same problem as a batch of its own
    /// Draws one or none of it; with `vary`, for verification case number k, or else in the same way.
    void (*draw)(std::mt19937_64&, const Stage&, Case&) = nullptr;
    void (*vary)(std::mt19937_64&, const Stage&, std::size_t k, Case&) = nullptr;
    void (*put_ordinary)(Case&) = nullptr;  ///< one for a case of large sizes
    /// One for case number k of those with a diagonal at each distance from the edge of a tile.
    void (*put_on_diagonal)(int distances, std::size_t k, Case&) = nullptr;
    /// Cases at its boundaries, at this head dimension.
    std::vector<Case> (*corners)(const Stage&, int d, const Tiling&) = nullptr;
    void (*put_small)(Case&) = nullptr;  ///< one for a small problem whose work is counted
    /// The case with less of it, and not none.
    std::vector<Case> (*simpler)(const Case&) = nullptr;
    void (*fit)(Case&) = nullptr;  ///< what is left of it in a case that has become smaller

    const char* word() const {
        return ladder::word(feature);
    }  ///< "pages": its name in JSON and for problems
    bool is_in(const Features& features) const { return !text(features).empty(); }
};

/// One that is a member of Features: a text, a number, or what its file reads and writes itself.
template <auto member>
FeatureInfo feature_of(Feature feature, const char* option, const char* type, const char* help) {
    FeatureInfo info{.feature = feature, .option = option, .type = type, .help = help};
    info.clear = [](Features& f) { f.*member = Features().*member; };
    if constexpr (requires(Features f, std::string text) { f.*member = text; }) {
        info.text = [](const Features& f) { return f.*member; };
        info.read = [](Features& f, const std::string& text) { f.*member = text; };
    } else if constexpr (requires(Features f) { std::to_string(f.*member); }) {
        info.text = [](const Features& f) {
            return f.*member == Features().*member ? "" : fmt::format("{}", f.*member);
        };
        info.read = [](Features& f, const std::string& text) {
            f.*member = number_in<std::remove_cvref_t<decltype(f.*member)>>(text);
        };
        info.is_text = false;
    }
    return info;
}

}  // namespace ladder
