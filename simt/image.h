/// @file
/// The program and the libraries that kernels are compiled into, and their sources. Internal to simt/.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "simt/cuda.h"
#include "simt/simt.h"

namespace simt {

/// A piece of memory.
struct Range {
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;

    /// How far past its first byte; too much for an address before it.
    std::size_t place_of(const void* address) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin);
    }
    bool contains(const void* address, std::size_t size = 1) const {
        return place_of(address) < bytes && size <= bytes - place_of(address);
    }
    bool operator==(const Range&) const = default;
};

/// The segment of the program or of a library that holds this address, or nothing.
Range segment_of(const void* address);

/// The same, but for variables: what nothing writes once the program runs.
Range constants_at(const void* address);

/// The calling thread's thread_local variables (static __shared__ among them), of each of these.
std::vector<Range> thread_local_memory();

/// Where an instruction was called: a return address.
struct Caller {
    std::uintptr_t address = 0;
    static Caller of(const void* code) { return {reinterpret_cast<std::uintptr_t>(code)}; }
};

/// "kernel.cu:12"; of a caller, the address itself if nothing can say.
std::string to_string(Site site);
std::string to_string(Caller caller);

/// A report whose text is formatted.
template <class... Arguments>
Report report(Report::Kind kind, fmt::format_string<const Arguments&...> text,
              const Arguments&... arguments) {
    return Report(kind, fmt::format(text, arguments...));
}

}  // namespace simt

/// @cond
// So do they print; Doxygen does not know fmt.
template <class Place>
requires std::same_as<Place, simt::Site> || std::same_as<Place, simt::Caller>
struct fmt::formatter<Place> {
    constexpr auto parse(format_parse_context& context) { return context.begin(); }
    auto format(Place place, format_context& context) const {
        const std::string text = simt::to_string(place);
        return std::copy(text.begin(), text.end(), context.out());
    }
};
/// @endcond
