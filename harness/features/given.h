/// @file
/// What a call in Python is given besides its tensors, by the names of its arguments. Features read theirs.
/// Plain C++ without dependencies: PyTorch's operators are compiled with it where PyTorch is.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

using Axes = std::array<std::int64_t, 4>;

/// An argument of a call in Python that a feature brings, or a part of one.
struct CallArgument {
    /// Arrays of int32 or fp32; or numbers.
    enum class Kind : std::uint8_t { int32, float32, integer, real };

    const char* name;  ///< "cu_seqlens_q"
    Kind kind;
    const char* array = "";  ///< what a message of the race checker calls it: "rows of documents"
    const char* axes = "";   ///< of an array that one number may stand for: "B Hkv"
    bool is_part = false;    ///< of the argument before it
    /// Its numbers may lie with any strides where it has three axes; otherwise all are next to each other.
    bool may_stride = false;
};

/// Numbers of the caller's: int32, or fp32.
struct Array {
    std::uintptr_t data = 0;
    std::vector<std::int64_t> axes = {};
    bool on_host = true;                     ///< those on a GPU are not read here: that would wait for it
    std::vector<std::int64_t> strides = {};  ///< empty: they are next to each other

    std::int64_t count() const {
        std::int64_t count = 1;
        for (const std::int64_t size : axes) count *= size;
        return count;
    }
    /// Numbers from the first to the last
    std::int64_t span() const {
        if (strides.empty()) return count();
        std::int64_t last = 0;
        for (std::size_t k = 0; k < axes.size(); ++k) last += (axes[k] - 1) * strides[k];
        return last + 1;
    }
    const int* integers() const { return reinterpret_cast<const int*>(data); }
    const float* reals() const { return reinterpret_cast<const float*>(data); }
};

/// Arrays, integers and reals, and the names of all of these in this order. Several integers may have one
/// name.
struct Given {
    bool causal = false;
    Axes Q{}, K{};  ///< those of tensors; K may be a pool: (pages, Hkv, page_size, d)
    std::vector<Array> arrays = {};
    std::vector<std::int64_t> integers = {};
    std::vector<double> reals = {};
    std::vector<std::string> names = {};
    std::int64_t Nk = 0;  ///< of the problem; mask_of() fills it in

    bool has(std::string_view name) const;
    /// Null if it is not given
    const Array* array(std::string_view name) const;
    /// The numbers of an array, or nothing if it is elsewhere or not given.
    std::span<const int> readable(std::string_view name) const;
    std::vector<std::int64_t> list(std::string_view name) const;
    /// The one of this name; 0 if it is not given.
    std::int64_t integer(std::string_view name) const;
    double real(std::string_view name) const;
};

}  // namespace ladder
