/// @file
/// For whoever wants to know which kernels a stage launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace ladder {

/// One kernel launch on a GPU.
struct Launch {
    const void* kernel;        ///< as CUDA's own functions take it
    std::int64_t blocks;       ///< of the grid
    int threads;               ///< of a block
    std::size_t shared_bytes;  ///< dynamic shared memory of a block
};

/// The CUDA stream that launches of this thread go to: null, the default stream, unless the program that runs
/// stages has set another.
void*& launch_stream();

/// Told of each launch on a GPU before it starts. Empty but while `lab profile` listens.
inline std::function<void(const Launch&)> on_launch;

}  // namespace ladder
