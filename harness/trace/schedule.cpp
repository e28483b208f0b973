#include "harness/trace/schedule.h"

#include <algorithm>

#include "harness/count/claims.h"

namespace ladder {

Schedule list_schedule(const std::vector<std::uint64_t>& lengths, std::size_t places) {
    std::vector<std::uint64_t> free_at(places);
    Schedule schedule;
    for (const std::uint64_t length : lengths) {
        const auto first = std::min_element(free_at.begin(), free_at.end());
        schedule.slots.push_back({static_cast<std::size_t>(first - free_at.begin()), *first});
        *first += length;
    }
    schedule.end = *std::max_element(free_at.begin(), free_at.end());
    return schedule;
}

int blocks_per_multiprocessor(const Stage& stage, std::size_t shared_bytes) {
    constexpr std::size_t shared_memory = 228 * 1024, reserved = 1024;  // for each block
    return std::min(resident_blocks(stage.folder()),
                    static_cast<int>(shared_memory / (shared_bytes + reserved)));
}

}  // namespace ladder
