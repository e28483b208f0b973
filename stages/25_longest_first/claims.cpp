// Does the same work, and starts the longest blocks of many heads first.
#include "harness/count/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// Query tiles of a head, and the heads that start together: 2^n.
struct LongestFirst {
    Count Tr, group = 1, groups;

    explicit LongestFirst(const Counted& p) : Tr((p.Nq() + wide_Br(p) - 1) / wide_Br(p)) {
        while (p.causal && group < p.H() && Tr * group < 3 * Count(p.sm_count)) group *= 2;
        groups = (p.H() + group - 1) / group;
    }
};

void claim(Claims& c) {
    const Counted& p = c.p;
    c.only_moves({"blocks"});
    // Under a mask heads start in groups of 2^n. Where they do not fill them, blocks have nothing to do.
    const LongestFirst line(p);
    c.parent_is("blocks", p.heads() * line.Tr);
    c.is("blocks", p.B() * line.Tr * line.groups * line.group);
}

// Under a mask group by group, and in a group from the last query tile of all its heads to the first.
BlockOrder order(const Counted& p) {
    const auto head_by_head = visits(p, wide_Br(p), wide_Bc(p));
    const std::vector<Count> parent = tiles_of_each(head_by_head);
    if (!p.causal) return {parent, parent};
    const LongestFirst line(p);
    std::vector<Count> tiles;
    for (Count batch = 0; batch < p.B(); ++batch) {
        for (Count group = 0; group < line.groups; ++group) {
            for (Count i = line.Tr; i-- > 0;) {
                for (Count h = group * line.group; h < (group + 1) * line.group; ++h) {
                    const Count block = (batch * p.H() + h) * line.Tr + i;
                    tiles.push_back(h < p.H() ? parent[block] : 0);
                }
            }
        }
    }
    return {parent, tiles};
}

LADDER_CLAIMS(.claim = claim, .cases = cases_of({usual_shapes, wide_shapes}), .order = order,
              .resident_blocks = 2);

}  // namespace
