/// @file
/// When and where blocks run, as a model: counted work instead of measured time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// Where one block runs.
struct Slot {
    std::size_t place = 0;    ///< from 0
    std::uint64_t start = 0;  ///< in the unit of the lengths
};

/// Where all blocks of a launch run, by their number, and when the last one ends.
struct Schedule {
    std::vector<Slot> slots;
    std::uint64_t end = 0;
};

/// List scheduling: blocks of these lengths start in the order of their number, each at the place that is
/// free first, the lowest of several.
Schedule list_schedule(const std::vector<std::uint64_t>& lengths, std::size_t places);

/// Blocks of 128 threads with this much dynamic shared memory that a multiprocessor of an H200 holds: what it
/// has registers for (resident_blocks() of the stage's claims), if its 228 KiB of shared memory have room for
/// them.
int blocks_per_multiprocessor(const Stage& stage, std::size_t shared_bytes);

}  // namespace ladder
