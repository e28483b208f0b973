#include "stages/stage.h"

#include <dlfcn.h>

#include <algorithm>

#include "stages/errors.h"

namespace ladder {
namespace {

// Filled during static initialization, so it must not be a plain global itself.
std::vector<Stage>& registry() {
    static std::vector<Stage> instance;
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
    auto& stages = registry();
    const auto by_number = [](const Stage& a, const Stage& b) { return a.number < b.number; };
    auto place = std::lower_bound(stages.begin(), stages.end(), stage, by_number);
    if (place == stages.end() || place->number != stage.number) place = stages.insert(place, stage);
    place->forwards[static_cast<std::size_t>(backend)] = forward;
    return true;
}

const std::vector<Stage>& stages() {
    return registry();
}

const Stage* find_stage(int number) {
    for (const Stage& stage : stages()) {
        if (stage.number == number) return &stage;
    }
    return nullptr;
}

Stage load_stage(const std::string& library) {
    // It stays for good, since the stage's functions are in it.
    void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) throw BadUsage("cannot load " + library + ": " + dlerror());
    const auto ask = reinterpret_cast<decltype(&ladder_stage)>(dlsym(loaded, "ladder_stage"));
    const Stage* const found = ask == nullptr ? nullptr : ask();
    if (found == nullptr) throw BadUsage(library + " has no stage: lab check builds those that have one");
    Stage stage = *found;
    stage.name = "yours";
    return stage;
}

}  // namespace ladder
