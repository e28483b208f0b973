/// @file
/// The list of features, and what walks over it: cases in words, in JSON, and as kernels and the reference
/// get them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/features/feature.h"
#include "stages/stage.h"

namespace ladder {

/// All of them, in the order in which they are written.
const std::vector<FeatureInfo>& all_features();

const FeatureInfo& info_of(Feature feature);

/// Those that a problem has.
std::vector<const FeatureInfo*> in_use_of(const Features& features);
std::vector<Feature> features_of(const Features& features);

/// {"--window", "1023,0", "--page-size", "16"}
std::vector<std::string> options_of(const Features& features);

/// " window=1023,0 columns=documents documents=512,300 lengths=512,300 pages=16 tiles=causal
/// softcap=30 alibi=geometric sinks=drawn dropout=0.1015625,5 tree=drawn ranks=2"; empty for none
std::string in_words(const Features& features);

/// Adds those that a problem has to an object, each under its word.
void add_json(nlohmann::json& object, const Features& features);
Features features_in(const nlohmann::json& object);

/// "B=1 H=2 Hkv=1 Nq=37 Nk=65 d=64 fp16 causal bnhd rising"; "fp16 backward causal" for the gradients
std::string description_of(const Case& c);
/// "--shape 1,2,1,37,65,64 --causal --layout bnhd --input rising": the options of `lab verify` that are this
/// case; the pass is the stage's
std::string options_of(const Case& c);
/// The case of such options: parse_case(options_of(c)) is c, its pass aside. Throws BadUsage.
Case parse_case(const std::string& options);

/// Throws BadUsage unless what a case has goes together, and with its sizes.
void require_possible(const Case& c);

/// Whether a stage declares that it takes this.
bool takes(const Stage& stage, Feature feature);

/// The features that a stage takes, as many at once as go with each other: one list, or one for each choice
/// among those that exclude each other.
std::vector<std::vector<const FeatureInfo*>> feature_choices(const Stage& stage);

/// What a stage takes and a case may have at once, in the order of the list; this number chooses where
/// features exclude each other.
std::vector<const FeatureInfo*> features_for(const Stage& stage, std::uint64_t number);

/// Why a stage takes no such problem: "04_split_q does not take a sliding window"; or why its ranks cannot
/// divide it. Empty if it does.
std::string why_not_taken(const Stage& stage, const Case& c);

/// Throws BadUsage with why_not_taken().
void require_taken(const Stage& stage, const Case& c);

/// Where the tensors of a case are; L is (B, H, Nq).
struct Addresses {
    void *Q = nullptr, *K = nullptr, *V = nullptr, *O = nullptr, *L = nullptr;
    void *dO = nullptr, *dQ = nullptr, *dK = nullptr, *dV = nullptr;  ///< of the backward pass alone
    void* dsinks = nullptr;                                           ///< of that, (H)
    std::map<Feature, const void*> numbers = {};  ///< FeatureInfo::numbers of those that the case has
};

/// The case as kernels get it, with its tensors there in the case's layout. workspace and sm_count are for
/// the run to fill in.
Problem make_problem(const Case& c, const Addresses& at);

/// Which keys the rows of a query head of a case see.
reference::Mask mask_of(const Case& c, int b, int h);

}  // namespace ladder
