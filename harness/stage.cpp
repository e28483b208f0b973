#include "harness/stage.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ladder {
namespace {

struct Registry {
    std::vector<Stage> stages;
    std::map<std::pair<Backend, int>, Forward> forwards;
};

// Filled during static initialization, so it must not be a plain global itself.
Registry& registry() {
    static Registry instance;
    return instance;
}

}  // namespace

const char* name(DType dtype) {
    return dtype == DType::fp16 ? "fp16" : "bf16";
}

const char* name(Backend backend) {
    switch (backend) {
        case Backend::cpu:
            return "cpu";
        case Backend::checked:
            return "checked";
        default:
            return "gpu";
    }
}

std::string Stage::folder() const {
    const std::string digits = std::to_string(number);
    return (digits.size() < 2 ? "0" + digits : digits) + "_" + name;
}

bool Stage::has_head_dim(int d) const {
    return std::find(head_dims.begin(), head_dims.end(), d) != head_dims.end();
}

bool register_stage(Backend backend, const Stage& stage, Forward forward) {
    auto& [stages, forwards] = registry();
    forwards[{backend, stage.number}] = forward;
    if (find_stage(stage.number) == nullptr) {
        const auto by_number = [](const Stage& a, const Stage& b) { return a.number < b.number; };
        stages.insert(std::upper_bound(stages.begin(), stages.end(), stage, by_number), stage);
    }
    return true;
}

const std::vector<Stage>& stages() {
    return registry().stages;
}

const Stage* find_stage(int number) {
    for (const Stage& stage : stages()) {
        if (stage.number == number) return &stage;
    }
    return nullptr;
}

Forward find_forward(Backend backend, int number) {
    const auto& forwards = registry().forwards;
    const auto found = forwards.find({backend, number});
    return found == forwards.end() ? nullptr : found->second;
}

}  // namespace ladder
