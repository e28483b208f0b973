#include "harness/count/claims.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>

#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

std::uint64_t value_of(const Work& work, std::string_view counter) {
    if (counter == "workspace_bytes") return work.workspace_bytes;
    if (counter == "messages") return work.messages;
    if (counter == "sent_bytes") return work.sent_bytes;
    if (counter == "exposed_bytes") return work.exposed_bytes;
    if (counter == "busiest_products") return work.busiest_products;
    for (const auto& field : simt::counter_fields) {
        if (counter == field.name) return work.counters.*field.value;
    }
    throw std::logic_error(fmt::format("there is no counter {}", counter));
}

// Filled while libraries of claims are loaded.
std::map<std::string, StageClaims, std::less<>>& registry() {
    static std::map<std::string, StageClaims, std::less<>> instance;
    return instance;
}

fs::path claims_file(const std::string& folder) {
    return stages_folder() / folder / "claims.cpp";
}

const StageClaims& claims_of(const std::string& folder) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (!registry().contains(folder)) load_claims({folder});
    return registry().at(folder);
}

formulas::Counted counted(const Case& c, int sm_count) {
    return {c.shape, c.causal, c.input, sm_count, c.pass, c.features, c.seed};
}

}  // namespace

void Claims::is(std::string_view counter, std::uint64_t expected) {
    list.push_back({.counter = std::string(counter), .expected = expected, .got = value_of(child, counter)});
}

void Claims::parent_is(std::string_view counter, std::uint64_t expected) {
    list.push_back({.counter = std::string(counter),
                    .expected = expected,
                    .got = value_of(parent, counter),
                    .of_parent = true});
}

void Claims::stays(std::string_view counter) {
    list.push_back({.counter = std::string(counter),
                    .expected = value_of(parent, counter),
                    .got = value_of(child, counter),
                    .stays = true});
}

void Claims::only_moves(const std::vector<std::string_view>& may_move) {
    const auto may = [&](std::string_view counter) {
        return std::find(may_move.begin(), may_move.end(), counter) != may_move.end();
    };
    for (const auto& field : simt::counter_fields) {
        // Lines go where the copies go, unless that is the point.
        const bool lines = field.name == std::string_view("copied_lines");
        if (lines && may("async_copies")) continue;
        if (!may(field.name)) stays(field.name);
    }
}

bool register_claims(std::string_view file, const StageClaims& claims) {
    const std::size_t end = file.rfind('/');
    const std::size_t begin = end == file.npos ? file.npos : file.rfind('/', end - 1) + 1;
    if (begin >= file.size()) throw std::logic_error("claims must be compiled with their folder's name");
    registry().insert_or_assign(std::string(file.substr(begin, end - begin)), claims);
    return true;
}

void load_claims(const std::vector<std::string>& folders) {
    std::vector<Compilation> compilations;
    for (const std::string& folder : folders) {
        if (registry().contains(folder)) continue;
        if (!fs::exists(claims_file(folder)))
            throw CannotRun(fmt::format("stages/{} has no claims: it needs a claims.cpp", folder));
        compilations.push_back(compilation_of(claims_file(folder), "claims"));
    }
    const auto errors = compile(compilations, compiler_limits());
    for (std::size_t i = 0; i < compilations.size(); ++i) {
        const fs::path& source = compilations[i].source;
        if (!errors[i].empty())
            throw CheckFailed(fmt::format("{} does not compile:\n{}", source.string(), errors[i]));
        if (dlopen(compilations[i].library().c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
            throw CheckFailed(fmt::format("cannot load the claims of {}: {}", source.string(), dlerror()));
        if (!registry().contains(source.parent_path().filename().string()))
            throw CheckFailed(
                fmt::format("{} declares no claims: LADDER_CLAIMS is missing", source.string()));
    }
}

std::vector<std::string> folders_with_claims() {
    std::vector<std::string> folders;
    for (const auto& entry : fs::directory_iterator(stages_folder())) {
        if (fs::exists(entry.path() / "claims.cpp")) folders.push_back(entry.path().filename().string());
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

std::vector<Case> claim_cases(const std::string& folder) {
    return claims_of(folder).cases;
}

std::vector<Claim> claims(const std::string& folder, const Case& c, int sm_count, const Work& parent,
                          const Work& child) {
    const formulas::Counted p = counted(c, sm_count);
    Claims of_stage(p, parent, child);
    // Traffic that bypasses the counters would make the others worthless.
    of_stage.is("bypassed_bytes", 0);
    of_stage.is("bank_conflicts", 0);
    claims_of(folder).claim(of_stage);
    return std::move(of_stage.list);
}

std::vector<std::uint64_t> claimed_tiles_of_blocks(const std::string& folder, const Case& c, int sm_count) {
    const auto order_of = claims_of(folder).order;
    if (order_of == nullptr) return {};
    const BlockOrder order = order_of(counted(c, sm_count));
    // One head, one query tile or no mask may leave nothing to be ordered anew.
    return order.stage == order.parent ? std::vector<std::uint64_t>() : order.stage;
}

int resident_blocks(const std::string& folder) {
    return fs::exists(claims_file(folder)) ? claims_of(folder).resident_blocks
                                           : StageClaims().resident_blocks;
}

}  // namespace ladder
