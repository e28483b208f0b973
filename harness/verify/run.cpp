#include "harness/verify/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <list>
#include <optional>

#include "harness/device/workspace.h"
#include "harness/problem/shape.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

// Outputs start as this NaN. No arithmetic makes it: as fp16, as bf16 and, twice over, as fp32 it is quiet
// and has a payload that no CPU or GPU computes. So an element that was never written differs from one
// computed as NaN.
constexpr std::uint16_t unwritten_half = 0x7fed;
constexpr std::uint32_t unwritten_word = 0x7fed7fed;

// Past each end of an output. As long as four 64 x 128 tiles, so that most stray rows of a ragged tile land
// inside.
constexpr std::size_t canary_bytes = 64 * 1024;

/// An output on the device, all of it unwritten_half at first: its rows, canaries around them and what lies
/// between. Where rows are far apart, only what is next to each is looked at.
template <class T>
class Guarded {
  public:
    Guarded(Device& device, const Placement& placed, const char* name)
        : device_(device), name_(name), placed_(placed), buffer_(device, bytes(placed), name, true) {
        std::vector<T> unwritten(watched());
        std::fill_n(reinterpret_cast<std::uint16_t*>(unwritten.data()), unwritten.size() * halves,
                    unwritten_half);
        for_each_piece([&](T* piece) { device.upload(piece, unwritten.data(), watched() * sizeof(T)); });
    }

    static std::size_t bytes(const Placement& placed) { return placed.span() * sizeof(T) + 2 * canary_bytes; }

    T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(buffer_.data()) + canary_bytes); }

    /// The elements, row by row. Throws CheckFailed if anything else was touched.
    std::vector<T> download() const {
        std::vector<T> elements, piece(watched());
        elements.reserve(placed_.count());
        const auto take = [&](T* row) {
            elements.insert(elements.end(), row, row + placed_.d);
            std::fill_n(reinterpret_cast<std::uint16_t*>(row), placed_.d * halves, unwritten_half);
        };
        for_each_piece([&](const T* at) {
            device_.download(piece.data(), at, watched() * sizeof(T));
            T* const first = piece.data() + canary();
            if (placed_.is_sparse()) {
                take(first);
            } else {
                placed_.for_each_row([&](std::size_t offset) { take(first + offset); });
            }
            require_unwritten(piece, at + canary() - data());
        });
        return elements;
    }

  private:
    static constexpr std::size_t halves = sizeof(T) / sizeof(std::uint16_t);

    /// Elements on either side of a piece.
    std::size_t canary() const { return placed_.is_sparse() ? 1024 : canary_bytes / sizeof(T); }
    /// Elements of a piece with its canaries: all of the output, or a row.
    std::size_t watched() const {
        return 2 * canary() + (placed_.is_sparse() ? static_cast<std::size_t>(placed_.d) : placed_.span());
    }
    template <class F>
    void for_each_piece(F&& f) const {
        if (!placed_.is_sparse()) return f(data() - canary());
        placed_.for_each_row([&](std::size_t offset) { f(data() + offset - canary()); });
    }

    /// `first`: the place in the output of the first element behind the piece's canary.
    void require_unwritten(const std::vector<T>& piece, std::ptrdiff_t first) const {
        const auto* halves_of_piece = reinterpret_cast<const std::uint16_t*>(piece.data());
        const auto* end = halves_of_piece + piece.size() * halves;
        const auto* found =
            std::find_if(halves_of_piece, end, [](std::uint16_t half) { return half != unwritten_half; });
        if (found == end) return;
        const auto at = (found - halves_of_piece) / static_cast<std::ptrdiff_t>(halves) -
                        static_cast<std::ptrdiff_t>(canary()) + first;
        const bool between = at >= 0 && at < static_cast<std::ptrdiff_t>(placed_.span());
        throw CheckFailed(
            between
                ? fmt::format("wrote between the rows of {}: to element {} of {}", name_, at, placed_.span())
                : fmt::format("wrote outside of {}: to element {} of {}", name_, at, placed_.span()));
    }

    Device& device_;
    const char* name_;
    Placement placed_;
    Buffer buffer_;
};

/// L is dense: (B, H, Nq).
Placement placement_of_L(const Case& c) {
    const Shape& s = c.shape;
    return {s.B, s.H, s.Nq, 1, std::int64_t{s.H} * s.Nq, s.Nq, 1};
}

/// Bytes of a device's memory that a tensor needs: of a sparse one that the CPU has, the pages that are
/// touched.
std::size_t bytes_of(const Device& device, const Placement& placed) {
    constexpr std::size_t page = 4096;
    const std::size_t all = placed.span() * sizeof(std::uint16_t);
    if (device.backend() == Backend::gpu || !placed.is_sparse()) return all;
    return placed.count() / placed.d * 2 * page;
}

/// Gives a CPU back-end the case's multiprocessors until the end of its scope. A GPU has its own.
class Multiprocessors {
  public:
    Multiprocessors(const Device& device, const Case& c) {
        if (c.multiprocessors == 0) return;
        if (device.backend() == Backend::gpu) {
            throw CannotRun(fmt::format("{} has {} multiprocessors, and no other number of them",
                                        device.description(), device.sm_count()));
        }
#ifdef LADDER_HAS_CPU
        simt::options().multiprocessors = c.multiprocessors;
#endif
    }

#ifdef LADDER_HAS_CPU
  private:
    const simt::KeptOptions kept_;
#endif
};

}  // namespace

const std::vector<OutputTensor>& output_tensors(Pass pass) {
    static const std::vector<OutputTensor> forward{{"O", &Outputs::O, &Addresses::O, Tensor::O, false}},
        backward{{"dQ", &Outputs::dQ, &Addresses::dQ, Tensor::dQ, false},
                 {"dK", &Outputs::dK, &Addresses::dK, Tensor::dK, true},
                 {"dV", &Outputs::dV, &Addresses::dV, Tensor::dV, true}};
    return pass == Pass::forward ? forward : backward;
}

/// The tensors with strides that a pass reads.
std::vector<Tensor> input_tensors(Pass pass) {
    if (pass == Pass::forward) return {Tensor::Q, Tensor::K, Tensor::V};
    return {Tensor::Q, Tensor::K, Tensor::V, Tensor::O, Tensor::dO};
}

bool is_unwritten(std::uint16_t stored) {
    return stored == unwritten_half;
}
bool is_unwritten(float stored) {
    return std::bit_cast<std::uint32_t>(stored) == unwritten_word;
}

void require_room(const Device& device, const Stage& stage, const Case& c) {
    const Multiprocessors kept(device, c);
    const std::size_t workspace = Workspace::bytes(device, stage, c.shape);
    std::size_t inputs = 0, written = workspace;
    for (const OutputTensor& tensor : output_tensors(c.pass))
        written += bytes_of(device, placement(c, tensor.tensor)) + 2 * canary_bytes;
    for (const Tensor tensor : input_tensors(c.pass)) inputs += bytes_of(device, placement(c, tensor));
    const std::size_t L = placement_of_L(c).count() * sizeof(float);
    (c.pass == Pass::forward ? written : inputs) += L;
    const std::size_t needed = inputs + written * (1 + device.shadow_bytes());
    if (const std::size_t there = device.free_memory(); needed > there) {
        throw CannotRun(
            fmt::format("{} on {} needs {} ({} bytes), {} of it workspace; {} has {} ({} bytes) free",
                        stage.folder(), c.description(), human_bytes(static_cast<double>(needed)), needed,
                        human_bytes(static_cast<double>(workspace)), device.description(),
                        human_bytes(static_cast<double>(there)), there));
    }
}

Outputs run_guarded(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs) {
    const Multiprocessors kept(device, c);
    const bool forward = c.pass == Pass::forward;
    Addresses at = inputs.addresses();
    std::list<Guarded<std::uint16_t>> tensors;
    for (const OutputTensor& tensor : output_tensors(c.pass))
        at.*tensor.address = tensors.emplace_back(device, placement(c, tensor.tensor), tensor.name).data();
    std::optional<Guarded<float>> L;
    if (forward) at.L = L.emplace(device, placement_of_L(c), "L").data();
    Workspace workspace(device, stage, c.shape);
    workspace.poison();

    Problem problem = make_problem(c, at);
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
    device.run(stage, problem);
    workspace.check_counters();
    Outputs outputs;
    auto written = tensors.begin();
    for (const OutputTensor& tensor : output_tensors(c.pass))
        outputs.*tensor.elements = (written++)->download();
    if (forward) outputs.L = L->download();
    return outputs;
}

}  // namespace ladder
