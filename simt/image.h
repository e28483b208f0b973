/// @file
/// The program and the libraries that kernels are compiled into, as they lie in memory. Internal to simt/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simt {

/// A piece of memory.
struct Range {
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;

    /// How far behind its first byte; too much for an address before it.
    std::size_t place_of(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin);
    }
    bool contains(const void* address, std::size_t size = 1) const {
        return place_of(address) < bytes && size <= bytes - place_of(address);
    }
};

/// The segment of the program or of a library that holds this address, or nothing: code, constants,
/// variables.
Range segment_of(const void* address);

/// The same, but for variables: what nothing writes once the program runs.
Range constants_at(const void* address);

/// The thread_local variables that the calling thread has (static __shared__ among them), of the program and
/// of each library that it has used some of.
std::vector<Range> thread_local_memory();

/// "kernel.cu:12" for a return address, or the address itself if nothing can say.
std::string source_of(std::uintptr_t caller);

}  // namespace simt
