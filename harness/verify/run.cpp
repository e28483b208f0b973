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

/// An output on the device: one allocation, all of it unwritten_half at first, with canaries around the
/// `count` elements.
template <class T>
class Guarded {
  public:
    Guarded(Device& device, std::size_t count, const char* name)
        : device_(device), name_(name), count_(count), buffer_(device, bytes(count), name, true) {
        const std::vector<std::uint16_t> words(bytes(count) / sizeof(std::uint16_t), unwritten_half);
        device.upload(buffer_.data(), words.data(), bytes(count));
    }

    static std::size_t bytes(std::size_t count) { return count * sizeof(T) + 2 * canary_bytes; }

    T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(buffer_.data()) + canary_bytes); }

    /// The elements. Throws CheckFailed if a canary was touched.
    std::vector<T> download() const {
        std::vector<std::uint16_t> words(bytes(count_) / sizeof(std::uint16_t));
        device_.download(words.data(), buffer_.data(), bytes(count_));
        constexpr std::ptrdiff_t canary = canary_bytes / sizeof(std::uint16_t);
        const auto touched = [](std::uint16_t word) { return word != unwritten_half; };
        auto i = std::find_if(words.begin(), words.begin() + canary, touched);
        if (i == words.begin() + canary) i = std::find_if(words.end() - canary, words.end(), touched);
        if (i != words.end()) {
            const auto bytes_in = static_cast<double>(i - words.begin() - canary) * sizeof(std::uint16_t);
            throw CheckFailed(fmt::format("wrote outside of {}: to element {:.0f} of {}", name_,
                                          std::floor(bytes_in / sizeof(T)), count_));
        }
        std::vector<T> elements(count_);
        std::memcpy(elements.data(), words.data() + canary, count_ * sizeof(T));
        return elements;
    }

  private:
    Device& device_;
    const char* name_;
    std::size_t count_;
    Buffer buffer_;
};

/// Rows of L: (B, H, Nq).
std::size_t query_rows(const Case& c) {
    return static_cast<std::size_t>(c.shape.B) * c.shape.H * c.shape.Nq;
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
    static const std::vector<OutputTensor> forward{{"O", &Outputs::O, &Addresses::O, false}},
        backward{{"dQ", &Outputs::dQ, &Addresses::dQ, false},
                 {"dK", &Outputs::dK, &Addresses::dK, true},
                 {"dV", &Outputs::dV, &Addresses::dV, true}};
    return pass == Pass::forward ? forward : backward;
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
    std::size_t outputs = 0, written = workspace;
    for (const OutputTensor& tensor : output_tensors(c.pass)) {
        outputs += tensor.size(c.shape) * sizeof(std::uint16_t);
        written += Guarded<std::uint16_t>::bytes(tensor.size(c.shape));
    }
    if (c.pass == Pass::forward) {
        outputs += query_rows(c) * sizeof(float);
        written += Guarded<float>::bytes(query_rows(c));
    }
    const std::size_t inputs = static_cast<std::size_t>(problem_bytes(c.shape, c.pass)) - outputs;
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
        at.*tensor.address = tensors.emplace_back(device, tensor.size(c.shape), tensor.name).data();
    std::optional<Guarded<float>> L;
    if (forward) at.L = L.emplace(device, query_rows(c), "L").data();
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
