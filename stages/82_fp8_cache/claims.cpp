// Moves half the bytes of K and V, and tells where both have a key. Threads store Q, and each loads the
// scales of K and V for a share. A lane reads m and l of a part.
#include "../81_pages/claims.h"

using namespace ladder;
using namespace ladder::formulas;

namespace {

void claim(Claims& c) {
    const int Bc = c.p.d() > 128 ? 64 : 128, grid = grid_of(c.p, Bc, 2, true);
    Count Q_bytes = 0, scale_bytes = 0;
    const auto extras_of = [&, lookups = lookups_of_pages(Bc, 1)](const Counted& own, const Visit& piece,
                                                                  int begin) {
        if (piece.tiles > 0) Q_bytes += 16 * own.d() * 2;
        scale_bytes += 2 * 4 * warps * 32;
        ShareExtras extras = lookups(own, piece, begin);
        extras.shuffles *= 2;
        return extras;
    };
    const LineForm form = {.parts_at_a_time = c.p.d() > 128 ? 16 : 32, .divides = true};
    Counters work = work_of_line(c.p, keys_of_requests(c.p), grid, Bc, extras_of, false, 16, form);
    work["evict_first_bytes"] /= 2;
    work["global_load_bytes"] += scale_bytes - work["evict_first_bytes"];
    work["shared_exchange_bytes"] += Q_bytes;
    for (const auto& [counter, count] : work) c.is(counter, count);
    c.is("workspace_bytes", line_bytes(c.p, grid));
    if (c.p.d() != 128) {  // which tiles are visited does not depend on the number of blocks
        for (const char* counter : {"tiles", "masked_tiles", "mma"}) c.stays(counter);
    }
}

LADDER_CLAIMS(.claim = claim,
              .cases = joined(cases_of({decode_shapes, usual_shapes, wide_shapes}), paged_cases()));

}  // namespace
