#include "harness/count/schedule.h"

#include <algorithm>
#include <string_view>

#include "harness/problem/regimes.h"

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
    // What launch bounds promise: two from 11 on for long queries, but for 22, which is about the third.
    const std::string_view shows_in = stage.shows_in;
    const int by_registers = stage.number >= 11 && !is_decoding(shows_in) && shows_in != "narrow" ? 2 : 3;
    return std::min(by_registers, static_cast<int>(shared_memory / (shared_bytes + reserved)));
}

}  // namespace ladder
