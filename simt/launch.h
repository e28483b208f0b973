/// @file
/// Launches, and what a kernel says of itself: as much of the back-end as a kernel's file needs to know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simt {

/// Three-dimensional extents and indices, as CUDA's.
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

/// Shape of a launch.
struct Launch {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes = 0;
    bool checked = false;   ///< the kernel is instrumented; check for races
    bool early = false;     ///< on a GPU it may start before the kernel before it has ended
    bool together = false;  ///< all blocks run at once, so that each may wait for any other
};

/// Runs call(parameters) once per thread of every block, and waits. The parameters are `bytes` long, which
/// are no memory to race on. Throws the first Report.
void launch(const Launch& config, void (*call)(const void* parameters), const void* parameters,
            std::size_t bytes);

template <class... Parameters, class... Arguments>
void launch(const Launch& config, void (*kernel)(Parameters...), const Arguments&... arguments) {
    const auto call = [kernel, arguments...] { kernel(arguments...); };
    using Call = decltype(call);
    launch(
        config, [](const void* bound) { (*static_cast<Call*>(bound))(); }, &call, sizeof call);
}

/// A kernel's note that its block, or a warpgroup of it, folds a tile of keys into a tile of query rows.
struct Tile {
    int batch = 0;
    int head = 0;   ///< or the number of the group of heads
    int group = 1;  ///< heads whose query rows alternate in the tile
    int query_tile = 0, key_tile = 0;
    int rows = 0, keys = 0;  ///< of a whole tile
    bool masked = false;
    int threads = 0;  ///< that share it, from a multiple of that number on; 0: all of the block

    bool operator==(const Tile&) const = default;
};

}  // namespace simt
