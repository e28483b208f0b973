/// @file
/// Linked with one student's kernel, as nvcc compiled it, into a library that load_stage() loads. The kernel
/// registers itself here and not in lab, where the solution may have its number.

#include "stages/stage.h"

namespace ladder {
namespace {

std::vector<Stage>& registered() {
    static std::vector<Stage> stages;
    return stages;
}

}  // namespace

bool register_stage(Backend backend, const Stage& stage, Forward forward) {
    registered().push_back(stage);
    registered().back().forwards[static_cast<std::size_t>(backend)] = forward;
    return true;
}

extern "C" const Stage* ladder_stage() {
    return registered().size() == 1 ? &registered().front() : nullptr;
}

}  // namespace ladder
