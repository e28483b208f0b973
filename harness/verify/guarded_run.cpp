#include "harness/verify/guarded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/numbers.h"
#include "harness/device/workspace.h"
#include "harness/features/features.h"
#include "harness/problem/shape.h"
#include "harness/verify/parts.h"
#include "harness/verify/report.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

// Past each end of an output. As long as four 64 x 128 tiles, so that most stray rows of a ragged tile land
// inside.
constexpr std::size_t canary_bytes = 64 * 1024;

/// An output on the device, all of it unwritten_half at first: its rows, canaries around them and what lies
/// between. Where rows are far apart, only what is next to each is looked at. Sizes are in 16-bit words.
class Guarded {
  public:
    Guarded(Device& device, const Case& c, const OutputTensor& tensor)
        : device_(device),
          tensor_(tensor),
          placed_(tensor.placement(c)),
          words_(tensor.has_floats() ? 2 : 1),
          buffer_(device, placed_.span() * words_ * sizeof(std::uint16_t) + 2 * canary_bytes, tensor.name,
                  true) {
        const std::vector<std::uint16_t> unwritten(watched(), unwritten_half);
        for_each_piece([&](std::uint16_t* piece) {
            device.upload(piece, unwritten.data(), unwritten.size() * sizeof(unwritten[0]));
        });
    }

    std::uint16_t* data() const {
        return reinterpret_cast<std::uint16_t*>(static_cast<std::byte*>(buffer_.data()) + canary_bytes);
    }

    /// Copies the elements, row by row. Throws CheckFailed if anything else was touched.
    void download(Outputs& outputs) const {
        std::vector<std::uint16_t> elements, piece(watched());
        elements.reserve(placed_.count() * words_);
        const auto take = [&](std::uint16_t* row) {
            elements.insert(elements.end(), row, row + placed_.d * words_);
            std::fill_n(row, placed_.d * words_, unwritten_half);
        };
        for_each_piece([&](const std::uint16_t* at) {
            device_.download(piece.data(), at, piece.size() * sizeof(piece[0]));
            std::uint16_t* const first = piece.data() + canary();
            if (placed_.is_sparse()) {
                take(first);
            } else {
                placed_.for_each_row([&](std::size_t offset) { take(first + offset * words_); });
            }
            require_unwritten(piece, at + canary() - data());
        });
        if (!tensor_.has_floats()) {
            outputs.*tensor_.elements = std::move(elements);
        } else {
            std::vector<float>& floats = outputs.*tensor_.floats;
            floats.resize(placed_.count());
            std::memcpy(floats.data(), elements.data(), elements.size() * sizeof(elements[0]));
        }
    }

  private:
    /// On either side of a piece.
    std::size_t canary() const {
        return placed_.is_sparse() ? 1024 * words_ : canary_bytes / sizeof(std::uint16_t);
    }
    /// A piece with its canaries: all of the output, or a row.
    std::size_t watched() const {
        return 2 * canary() +
               words_ * (placed_.is_sparse() ? static_cast<std::size_t>(placed_.d) : placed_.span());
    }
    template <class F>
    void for_each_piece(F&& f) const {
        if (!placed_.is_sparse()) return f(data() - canary());
        placed_.for_each_row([&](std::size_t offset) { f(data() + offset * words_ - canary()); });
    }

    /// `first`: the place in the output of the first word after the piece's canary.
    void require_unwritten(const std::vector<std::uint16_t>& piece, std::ptrdiff_t first) const {
        const auto found = std::find_if(piece.begin(), piece.end(),
                                        [](std::uint16_t word) { return word != unwritten_half; });
        if (found == piece.end()) return;
        const auto words = static_cast<std::ptrdiff_t>(words_);
        const auto at =
            (found - piece.begin()) / words - static_cast<std::ptrdiff_t>(canary()) / words + first / words;
        const bool between = at >= 0 && at < static_cast<std::ptrdiff_t>(placed_.span());
        throw CheckFailed(fmt::format("wrote {} {}: to element {} of {}",
                                      between ? "between the rows of" : "outside of", tensor_.name, at,
                                      placed_.span()));
    }

    Device& device_;
    const OutputTensor& tensor_;
    Placement placed_;
    std::size_t words_;  ///< of an element
    Buffer buffer_;
};

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

/// The tensors with strides that a pass reads.
std::vector<Tensor> input_tensors(Pass pass) {
    if (pass == Pass::forward) return {Tensor::Q, Tensor::K, Tensor::V};
    return {Tensor::Q, Tensor::K, Tensor::V, Tensor::O, Tensor::dO};
}

/// Throws CannotRun if the part of one of so many ranks does not fit so many times.
void require_room_of(const Device& device, const Stage& stage, const Case& c, int ranks, int times) {
    const Multiprocessors kept(device, c);
    const std::size_t workspace = Workspace::bytes(device, stage, c.shape, ranks);
    std::size_t inputs = 0, written = workspace;
    const std::size_t L = std::size_t(c.shape.B) * c.shape.H * c.shape.Nq * sizeof(float);
    for (const OutputTensor& tensor : output_tensors(c)) {
        const Placement placed = tensor.placement(c);
        written += tensor.has_floats() ? placed.count() * sizeof(float)
                                       : bytes_of(device, placed) + 2 * canary_bytes;
    }
    for (const Tensor tensor : input_tensors(c.pass)) inputs += bytes_of(device, placement(c, tensor));
    for (const Tensor tensor : tensors_in_e4m3(stage)) inputs += bytes_of(device, placement(c, tensor)) / 2;
    if (c.pass == Pass::backward) inputs += L;
    const std::size_t needed = times * (inputs + written * (1 + device.shadow_bytes()));
    if (const std::size_t there = device.free_memory(); needed > there) {
        throw CannotRun(
            fmt::format("{} on {} needs {} ({} bytes), {} of it workspace; {} has {} ({} bytes) free",
                        stage.folder(), description_of(c), human_bytes(static_cast<double>(needed)), needed,
                        human_bytes(static_cast<double>(workspace)), device.description(),
                        human_bytes(static_cast<double>(there)), there));
    }
}

/// A run of one rank: its outputs between canaries, its workspace, and its problem.
class GuardedProblem {
  public:
    GuardedProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs, int ranks)
        : rounded_(device, stage, c, inputs), workspace_(device, stage, c.shape, ranks) {
        Addresses at = inputs.addresses();
        for (const OutputTensor& tensor : output_tensors(c))
            at.*tensor.address = tensors_.emplace_back(device, c, tensor).data();
        workspace_.poison();
        problem = make_problem(c, at);
        rounded_.put_into(problem);
        problem.workspace = workspace_.data();
        problem.sm_count = device.sm_count();
    }

    /// What the run wrote. Throws CheckFailed if it touched anything else, or left a counter.
    Outputs outputs() const {
        workspace_.check_counters();
        Outputs outputs;
        for (const Guarded& tensor : tensors_) tensor.download(outputs);
        return outputs;
    }

    Problem problem;

  private:
    std::list<Guarded> tensors_;
    RoundedInputs rounded_;
    Workspace workspace_;
};

/// Throws CheckFailed unless a rank wrote what rank 0 wrote, bit for bit.
void require_same(const Case& c, const Outputs& of_0, const Outputs& own, int rank) {
    for (const OutputTensor& tensor : output_tensors(c)) {
        if (std::ranges::equal(tensor.bytes(of_0), tensor.bytes(own))) continue;
        throw CheckFailed(fmt::format("{} of rank {} is not that of rank 0", tensor.name, rank));
    }
}

}  // namespace

void require_room(Device& device, const Stage& stage, const Case& c) {
    Device& last = device.of_rank(c.features.ranks - 1, c.features.ranks);
    const int ranks = c.features.ranks;
    require_room_of(last, stage, part_case(stage, c, 0), ranks, &last == &device ? ranks : 1);
}

Outputs run_guarded(Device& device, const Stage& stage, const Case& c,
                    const std::list<DeviceInputs>& inputs_of_ranks) {
    const Multiprocessors kept(device, c);
    std::list<GuardedProblem> ranks;
    std::vector<Problem> problems;
    for (const DeviceInputs& inputs : inputs_of_ranks) {
        const auto rank = static_cast<int>(problems.size());
        const Case part = part_case(stage, c, rank);
        Device& own = device.of_rank(rank, c.features.ranks);
        problems.push_back(ranks.emplace_back(own, stage, part, inputs, c.features.ranks).problem);
    }
    run_parts(device, stage, problems, c.shape);
    Outputs outputs;
    int rank = 0;
    for (const GuardedProblem& part : ranks) {
        Outputs own = part.outputs();
        if (rank > 0 && !stage.divides_rows) require_same(c, outputs, own, rank);
        add_part(stage, c, rank++, std::move(own), outputs);
    }
    return outputs;
}

Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Inputs& inputs) {
    require_room(device, stage, c);
    Outputs outputs = run_guarded(device, stage, c, inputs_of_ranks(device, stage, c, inputs));
    if (const std::string report = report_unwritten(c, outputs); !report.empty()) throw CheckFailed(report);
    return outputs;
}

}  // namespace ladder
