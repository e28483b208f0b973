/// @file
/// Dropout whose mask is never stored: each element's random byte follows from a seed and its place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace reference {

/// Philox4x32-10: four random words of a counter and a key. Source: J. K. Salmon et al., "Parallel Random
/// Numbers: As Easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Which probabilities of a head are kept; these are multiplied by 256 / kept.
struct Dropout {
    int kept = 256;  ///< of 256: those whose byte is below it
    std::uint64_t seed = 0;
    int batch = 0, head = 0;

    bool is_none() const { return kept == 256; }
    bool keeps(int row, int key) const;
    /// (Nq, Nk): whether each element is kept.
    std::vector<bool> mask(int Nq, int Nk) const;
};

}  // namespace reference
