#include "harness/features/features.h"

#include <fmt/format.h>

#include <algorithm>

#include "stages/errors.h"

namespace ladder {

// Each is in the file of its name.
FeatureInfo window_feature();
FeatureInfo columns_feature();
FeatureInfo documents_feature();
FeatureInfo lengths_feature();
FeatureInfo pages_feature();
FeatureInfo tiles_feature();
FeatureInfo softcap_feature();
FeatureInfo alibi_feature();
FeatureInfo sinks_feature();
FeatureInfo dropout_feature();
FeatureInfo tree_feature();
FeatureInfo prefix_feature();
FeatureInfo promotion_feature();
FeatureInfo token_scales_feature();
FeatureInfo ranks_feature();

const std::vector<FeatureInfo>& all_features() {
    static const std::vector<FeatureInfo> all{
        window_feature(), columns_feature(), documents_feature(), lengths_feature(),      pages_feature(),
        tiles_feature(),  softcap_feature(), alibi_feature(),     sinks_feature(),        dropout_feature(),
        tree_feature(),   prefix_feature(),  promotion_feature(), token_scales_feature(), ranks_feature()};
    return all;
}

const FeatureInfo& info_of(Feature feature) {
    return *std::ranges::find(all_features(), feature, &FeatureInfo::feature);
}

std::vector<const FeatureInfo*> in_use_of(const Features& features) {
    std::vector<const FeatureInfo*> found;
    for (const FeatureInfo& info : all_features()) {
        if (info.is_in(features)) found.push_back(&info);
    }
    return found;
}

std::vector<Feature> features_of(const Features& features) {
    std::vector<Feature> found;
    for (const FeatureInfo* info : in_use_of(features)) found.push_back(info->feature);
    return found;
}

void require_possible(const Case& c) {
    for (const FeatureInfo* info : in_use_of(c.features)) {
        if (info->require != nullptr) info->require(c);
    }
}

bool takes(const Stage& stage, Feature feature) {
    return std::find(stage.takes.begin(), stage.takes.end(), feature) != stage.takes.end();
}

std::vector<std::vector<const FeatureInfo*>> feature_choices(const Stage& stage) {
    std::vector<std::vector<const FeatureInfo*>> all(1);
    for (const FeatureInfo& info : all_features()) {
        if (!takes(stage, info.feature)) continue;
        const std::size_t before = all.size();
        for (std::size_t k = 0; k < before; ++k) {
            auto with = all[k];
            std::erase_if(with, [&](const FeatureInfo* other) {
                return std::ranges::count(info.excludes, other->feature) > 0 ||
                       (stage.pass == Pass::backward &&
                        std::ranges::count(info.excludes_in_gradients, other->feature) > 0);
            });
            const bool goes_with_all = with.size() == all[k].size();
            with.push_back(&info);
            if (goes_with_all) all[k] = with;
            if (!goes_with_all && std::ranges::find(all, with) == all.end()) all.push_back(with);
        }
    }
    std::erase_if(all, [&, choices = all](const auto& fewer) {
        return std::ranges::any_of(choices, [&](const auto& more) {
            return more.size() > fewer.size() && std::ranges::includes(more, fewer);  // in the list's order
        });
    });
    return all;
}

std::vector<const FeatureInfo*> features_for(const Stage& stage, std::uint64_t number) {
    const auto all = feature_choices(stage);
    return all[std::mt19937_64(number)() % all.size()];
}

std::string why_not_taken(const Stage& stage, const Case& c) {
    const auto in_use = in_use_of(c.features);
    for (const FeatureInfo* info : in_use) {
        if (!takes(stage, info->feature))
            return fmt::format("{} does not take {}", stage.folder(), name(info->feature));
    }
    for (const FeatureInfo* info : in_use) {
        if (info->why_not == nullptr) continue;
        if (const std::string why_not = info->why_not(stage, c); !why_not.empty()) return why_not;
    }
    return "";
}

void require_taken(const Stage& stage, const Case& c) {
    if (const std::string why_not = why_not_taken(stage, c); !why_not.empty()) throw BadUsage(why_not);
}

Problem make_problem(const Case& c, const Addresses& at) {
    const Shape& s = c.shape;
    Problem problem;
    static_cast<Shape&>(problem) = s;
    const auto view = [&](Tensor tensor, void* data) { return placement(c, tensor).at(data); };
    problem.Q = view(Tensor::Q, at.Q);
    problem.K = view(Tensor::K, at.K);
    problem.V = view(Tensor::V, at.V);
    problem.O = view(Tensor::O, at.O);
    problem.L = static_cast<float*>(at.L);
    if (c.pass == Pass::backward) {
        problem.dO = view(Tensor::dO, at.dO);
        problem.dQ = view(Tensor::dQ, at.dQ);
        problem.dK = view(Tensor::dK, at.dK);
        problem.dV = view(Tensor::dV, at.dV);
        problem.dsinks = static_cast<float*>(at.dsinks);
    }
    problem.scale = c.softmax_scale();
    problem.causal = c.causal;
    for (const FeatureInfo* info : in_use_of(c.features)) {
        if (info->fill == nullptr) continue;
        const auto numbers = at.numbers.find(info->feature);
        info->fill(c, numbers == at.numbers.end() ? nullptr : numbers->second, problem);
    }
    problem.dtype = c.dtype;
    return problem;
}

reference::Mask mask_of(const Case& c, int b, int h) {
    reference::Mask mask{.causal = c.causal, .Nq = c.shape.Nq, .Nk = c.shape.Nk};
    for (const FeatureInfo* info : in_use_of(c.features)) {
        if (info->mask != nullptr) info->mask(c, b, h, mask);
    }
    return mask;
}

}  // namespace ladder
