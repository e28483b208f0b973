// Copies the key tiles that some row of a block sees, all of which both warpgroups multiply by, and intervals
// of rows only with those that an end of one crosses.
#include "claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

/// The last has more key tiles than a warp classifies at a time, or, for its first query tile under a causal
/// mask, exactly as many.
constexpr Shape long_shapes[] = {
    {1, 2, 1, 500, 500, 64}, {1, 1, 1, 300, 430, 128}, {2, 2, 2, 400, 300, 64}, {1, 1, 1, 130, 4098, 64}};
constexpr Shape crowded[] = {{3, 2, 1, 200, 130, 64}, {2, 3, 3, 130, 200, 128}};

LADDER_CLAIMS(.claim = claim_columns,
              .cases = joined(joined(cases_of({usual_shapes, ending_shapes}), hidden_by_gaps()),
                              with_columns(cases_of({long_shapes, usual_shapes, crowded, long_shapes,
                                                     ending_shapes}))),
              .resident_blocks = 1);

}  // namespace
