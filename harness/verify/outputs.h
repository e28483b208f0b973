/// @file
/// What a stage writes: the output tensors of a case, element by element.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "harness/base/parallel.h"
#include "harness/features/features.h"
#include "harness/problem/case.h"
#include "harness/verify/mismatch.h"
#include "stages/stage.h"

namespace ladder {

/// What a stage wrote: 16-bit tensors (B, heads, N, d), whatever the layout of the case, L (B, H, Nq) and
/// dsinks (H).
struct Outputs {
    std::vector<std::uint16_t> O = {};
    std::vector<float> L = {};
    std::vector<std::uint16_t> dQ = {}, dK = {},
                               dV = {};  ///< of the backward pass, which leaves O and L empty
    std::vector<float> dsinks = {};      ///< of that of a problem with sinks
};

/// One of the tensors that a pass computes, (batches, heads, N, columns): L and dsinks in fp32 with one
/// column, and the others in 16 bits with d columns.
struct OutputTensor {
    const char* name;                               ///< "O" and "L", or "dQ", "dK", "dV" and "dsinks"
    std::vector<std::uint16_t> Outputs::*elements;  ///< null where it has floats
    std::vector<float> Outputs::*floats;            ///< dense; null where it has elements
    void* Addresses::*address;
    Tensor tensor;   ///< whose layout it has
    RowsOf rows_of;  ///< of keys: it has the heads and rows of K, and not those of Q

    bool has_floats() const { return floats != nullptr; }
    bool is_L() const { return floats == &Outputs::L; }
    int batches(const Shape& s) const { return rows_of == RowsOf::heads ? 1 : s.B; }
    int heads(const Shape& s) const { return rows_of == RowsOf::keys ? s.Hkv : s.H; }
    int rows(const Shape& s) const { return rows_in(s, rows_of); }
    int columns(const Shape& s) const { return has_floats() ? 1 : s.d; }
    /// Where it has its elements in a device's memory.
    Placement placement(const Case& c) const;
    std::span<const std::byte> bytes(const Outputs& outputs) const;
};
/// Those of a case. A sample of another problem has no dsinks, which are sums over its batch.
const std::vector<OutputTensor>& output_tensors(const Case& c);

/// Outputs start as this NaN. No arithmetic makes it: as fp16, as bf16 and, twice over, as fp32 it is quiet
/// and has a payload that no CPU or GPU computes. So an element that was never written differs from one
/// computed as NaN.
inline constexpr std::uint16_t unwritten_half = 0x7fed;

/// One tensor as a stage wrote it. Refers to the case and the outputs.
class WrittenTensor {
  public:
    WrittenTensor(const Case& c, const OutputTensor& tensor, const Outputs& outputs)
        : case_(c),
          tensor_(tensor),
          halves_(tensor.has_floats() ? nullptr : (outputs.*tensor.elements).data()),
          floats_(tensor.has_floats() ? (outputs.*tensor.floats).data() : nullptr) {}

    const OutputTensor& tensor() const { return tensor_; }
    double value(std::size_t index) const;
    bool is_finite(std::size_t index) const {
        if (tensor_.has_floats()) return std::isfinite(floats_[index]);
        const std::uint16_t exponent = case_.dtype == DType::fp16 ? 0x7c00 : 0x7f80;
        return (halves_[index] & exponent) != exponent;
    }
    /// Whether an element is still what it was before the stage ran.
    bool is_unwritten(std::size_t index) const {
        if (!tensor_.has_floats()) return halves_[index] == unwritten_half;
        return std::bit_cast<std::uint32_t>(floats_[index]) == unwritten_half * 0x10001u;
    }
    bool has_bits_of(const WrittenTensor& other, std::size_t index) const {
        if (!tensor_.has_floats()) return halves_[index] == other.halves_[index];
        return std::bit_cast<std::uint32_t>(floats_[index]) ==
               std::bit_cast<std::uint32_t>(other.floats_[index]);
    }
    /// Copies a row of one of its (batches, heads).
    void read_row(int head, int row, double* values) const;

    /// Where it is wrong, for a report: where wrong(index, row) holds; there it should be expected(index,
    /// row), NaN where that is not known.
    template <class Wrong, class Wanted>
    Mismatch where(Wrong&& wrong, Wanted&& expected) const {
        const int heads = tensor_.heads(case_.shape), columns = tensor_.columns(case_.shape);
        std::vector<int> rows(tensor_.rows(case_.shape));
        std::iota(rows.begin(), rows.end(), 0);
        Mismatch found = mismatch(rows);
        const auto for_each_wrong = [&](int head, auto&& f) {
            std::size_t index = std::size_t(head) * rows.size() * columns;
            for (const int row : rows) {
                for (int column = 0; column < columns; ++column, ++index) {
                    if (wrong(index, row)) f(index, row, column);
                }
            }
        };
        // Nearly always nothing is, so that this takes all the time. Not bool, of which 8 share a byte.
        std::vector<char> any(tensor_.batches(case_.shape) * heads);
        parallel_for(static_cast<int>(any.size()), [&](int head) {
            for_each_wrong(head, [&](std::size_t, int, int) { any[head] = true; });
        });
        for (int head = 0; head < std::ssize(any); ++head) {
            if (!any[head]) continue;
            for_each_wrong(head, [&](std::size_t index, int row, int column) {
                found.add(head / heads, head % heads, row, column, expected(index, row), value(index));
            });
        }
        return found;
    }
    /// A report of nothing wrong yet in these rows of each head.
    Mismatch mismatch(const std::vector<int>& rows) const {
        return {case_, rows, tensor_.columns(case_.shape), tensor_.rows_of};
    }

  private:
    const Case& case_;
    const OutputTensor& tensor_;
    const std::uint16_t* halves_;
    const float* floats_;
};

/// All tensors of a case, in the order of output_tensors().
std::vector<WrittenTensor> written_tensors(const Case& c, const Outputs& outputs);

}  // namespace ladder
