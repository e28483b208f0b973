/// @file
/// How a stage gets out of the library that it was compiled to. Apart from the rest of ladder/, since the
/// program that runs students' kernels has no more of it.

#include <dlfcn.h>

#include <mutex>

#include "harness/ladder/library.h"
#include "stages/errors.h"
#include "stages/launch.h"
#include "stages/ring.h"

namespace ladder {
namespace {

/// The stages that libraries registered, in the order in which they were loaded.
std::vector<Stage>& registered() {
    static std::vector<Stage> stages;
    return stages;
}

}  // namespace

const char* name(DType dtype) {
    return dtype == DType::fp16 ? "fp16" : "bf16";
}

const char* name(Pass pass) {
    return pass == Pass::forward ? "forward" : "backward";
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

const char* name(Feature feature) {
    switch (feature) {
        case Feature::window:
            return "a sliding window";
        case Feature::columns:
            return "column bounds";
        case Feature::documents:
            return "packed documents";
        case Feature::lengths:
            return "lengths of requests";
        case Feature::pages:
            return "K and V in pages";
        case Feature::prefix:
            return "a shared prefix";
        case Feature::ranks:
            return "several ranks";
        case Feature::tiles:
            return "lists of tiles";
        default:
            return "dropout";
    }
}

bool register_stage(const Stage& stage) {
    registered().push_back(stage);
    return true;
}

void*& launch_stream() {
    thread_local void* stream = nullptr;
    return stream;
}

Ring*& ring() {
    thread_local Ring* ring = nullptr;
    return ring;
}

Stage load_library(const std::filesystem::path& library) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    registered().clear();
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
        throw CheckFailed("cannot load " + library.string() + ": " + dlerror());
    if (registered().size() != 1) {
        throw CheckFailed("the kernel declares " + std::to_string(registered().size()) +
                          " stages with LADDER_STAGE, not one");
    }
    return registered().front();
}

}  // namespace ladder
