/// @file
/// How a stage gets out of the library that it was compiled to. Apart from the rest of ladder/, since the
/// program that runs students' kernels has no more of it.

#include <dlfcn.h>

#include <mutex>

#include "harness/ladder/declaration.h"
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

const std::vector<FeatureWords>& feature_words() {
    static const std::vector<FeatureWords> words{
        {Feature::window, "window", "a sliding window"},
        {Feature::columns, "columns", "column bounds"},
        {Feature::documents, "documents", "packed documents"},
        {Feature::lengths, "lengths", "lengths of requests"},
        {Feature::pages, "pages", "K and V in pages"},
        {Feature::prefix, "prefix", "a shared prefix"},
        {Feature::ranks, "ranks", "several ranks"},
        {Feature::tiles, "tiles", "lists of tiles"},
        {Feature::dropout, "dropout", "dropout"},
        {Feature::softcap, "softcap", "a softcap of the scores"},
        {Feature::alibi, "alibi", "ALiBi"},
        {Feature::sinks, "sinks", "attention sinks"},
        {Feature::promotion, "promotion", "promotion"},
        {Feature::tree, "tree", "a draft that is a tree"},
        {Feature::token_scales, "token_scales", "a scale for each token"}};
    return words;
}

const char* word(Feature feature) {
    return feature_words()[static_cast<std::size_t>(feature)].word;
}

const char* name(Feature feature) {
    return feature_words()[static_cast<std::size_t>(feature)].name;
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
