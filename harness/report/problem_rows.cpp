#include "harness/report/problem_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/numbers.h"
#include "harness/features/features.h"
#include "harness/problem/shape.h"

namespace ladder {

const Row* ProblemRows::row(int stage) const {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Row* r) { return r->stage == stage; });
    return found == rows.end() ? nullptr : *found;
}

const PeerRow* ProblemRows::peer(const std::string& name) const {
    const auto found =
        std::find_if(peers.begin(), peers.end(), [&](const PeerRow* r) { return r->peer == name; });
    return found == peers.end() ? nullptr : *found;
}

std::string ProblemRows::short_name() const {
    const Features& features = first->features;
    std::string seen;
    for (const FeatureInfo* info : in_use_of(features)) {
        if (info->in_short != nullptr) seen += info->in_short(features);
    }
    return fmt::format("{} {}{}{}", first->regime, seen, short_size(first->shape.Nk),
                       features.ranks == 1 ? "" : fmt::format(" on {}", features.ranks));
}

std::vector<ProblemRows> by_problem(const Results& results) {
    std::vector<ProblemRows> problems;
    const auto find = [&](const Measurement& row) {
        return std::find_if(problems.begin(), problems.end(),
                            [&](const ProblemRows& p) { return same_problem(*p.first, row); });
    };
    for (const Row& row : results.rows) {
        if (const auto problem = find(row); problem == problems.end()) {
            problems.push_back({&row, {&row}, {}});
        } else {
            problem->rows.push_back(&row);
        }
    }
    for (const PeerRow& row : results.peers) {
        if (const auto problem = find(row); problem != problems.end()) problem->peers.push_back(&row);
    }
    return problems;
}

std::vector<std::string> peer_names(const Results& results) {
    std::vector<std::string> names;
    for (const PeerRow& row : results.peers) {
        if (std::find(names.begin(), names.end(), row.peer) == names.end()) names.push_back(row.peer);
    }
    return names;
}

}  // namespace ladder
