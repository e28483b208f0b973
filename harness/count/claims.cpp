#include "harness/count/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "stages/errors.h"

namespace ladder {
namespace {

std::uint64_t value_of(const Work& work, std::string_view counter) {
    if (counter == "workspace_bytes") return work.workspace_bytes;
    for (const auto& field : simt::counter_fields) {
        if (counter == field.name) return work.counters.*field.value;
    }
    throw std::logic_error(fmt::format("there is no counter {}", counter));
}

// Filled during static initialization, so it must not be a plain global itself.
std::map<std::string, StageClaims, std::less<>>& registry() {
    static std::map<std::string, StageClaims, std::less<>> instance;
    return instance;
}

const StageClaims& claims_of(const std::string& folder) {
    const auto found = registry().find(folder);
    if (found == registry().end())
        throw CannotRun(fmt::format("stages/{} has no claims: it needs a claims.cpp", folder));
    return found->second;
}

formulas::Counted counted(const Case& c, int sm_count) {
    return {c.shape, c.causal, c.input, sm_count};
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

std::vector<std::string> folders_with_claims() {
    std::vector<std::string> folders;
    for (const auto& [folder, claims] : registry()) folders.push_back(folder);
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
    const auto found = registry().find(folder);
    return (found == registry().end() ? StageClaims() : found->second).resident_blocks;
}

}  // namespace ladder
