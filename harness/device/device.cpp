#include "harness/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/base/numbers.h"
#include "harness/problem/shape.h"

namespace ladder {

// Each back-end's factory, defined where that back-end is built. Both throw CannotRun.
std::unique_ptr<Device> open_cpu_device(Backend backend);  // harness/device/cpu_device.cpp
std::unique_ptr<Device> open_gpu_device();                 // harness/device/gpu_device.cu

std::unique_ptr<Device> open_device(Backend backend) {
    if (backend == Backend::gpu) {
#ifdef LADDER_HAS_GPU
        return open_gpu_device();
#else
        throw CannotRun("this build has no GPU back-end (there was no GPU, or no nvcc)");
#endif
    }
#ifdef LADDER_HAS_CPU
    return open_cpu_device(backend);
#else
    throw CannotRun("this build has no CPU back-end (Boost.Context was not found)");
#endif
}

bool has_device(Backend backend, std::string* why_not) {
    try {
        open_device(backend);
        return true;
    } catch (const CannotRun& reason) {
        if (why_not != nullptr) *why_not = reason.what();
        return false;
    }
}

std::string dotted(int compute_capability) {
    return fmt::format("{}.{}", compute_capability / 10, compute_capability % 10);
}

std::string Device::why_not(const Stage& stage) const {
    const int needed = stage.compute_capability;
    if (backend() != Backend::gpu || needed == 0 || needed == compute_capability()) return "";
    return fmt::format(
        "needs exactly compute capability {}{}; this GPU has {}. --backend cpu runs it anywhere",
        dotted(needed), needed == 90 ? " (Hopper)" : "", dotted(compute_capability()));
}

const Stage& Device::ready(const Stage& stage) const {
    if (const std::string why = why_not(stage); !why.empty()) throw CannotRun(why);
    return with_functions(stage);
}

std::vector<const Stage*> runnable(const std::vector<const Stage*>& stages, const Device& device) {
    std::vector<const Stage*> chosen = stages;
    std::erase_if(chosen, [&](const Stage* stage) { return !device.why_not(*stage).empty(); });
    return chosen;
}

void Device::run_ranks(const Stage&, const std::vector<Problem>&, const Shape&) {
    throw CannotRun(description() + " runs no more than one rank");
}

void Device::fill(void* device, unsigned char byte, std::size_t bytes) {
    const std::vector<unsigned char> chunk(std::min(bytes, std::size_t{16} << 20), byte);
    for (std::size_t first = 0; first < bytes; first += chunk.size())
        upload(static_cast<unsigned char*>(device) + first, chunk.data(),
               std::min(chunk.size(), bytes - first));
}

void require_memory(const Shape& shape, const Device& device, Pass pass) {
    const double tensors = problem_bytes(shape, pass);
    double needed = tensors;
    if (device.backend() != Backend::gpu) {
        // One memory holds it all. First the inputs and, in double precision, those of a head while they are
        // made; then the inputs twice, and the outputs with two copies and their shadow.
        const double query_rows = double(shape.B) * shape.H * shape.Nq;
        const double key_rows = double(shape.B) * shape.Hkv * shape.Nk;
        const double outputs = pass == Pass::forward
                                   ? query_rows * (shape.d * sizeof(std::uint16_t) + sizeof(float))
                                   : (query_rows + 2 * key_rows) * shape.d * sizeof(std::uint16_t);
        const double inputs = tensors - outputs;
        const double head = (double(shape.Nk) + std::max(shape.Nq, shape.Nk)) * shape.d * sizeof(double);
        needed = inputs + std::max(head, inputs + outputs * (3 + double(device.shadow_bytes())));
    }
    if (const auto there = static_cast<double>(device.free_memory()); needed > there) {
        throw BadUsage(fmt::format("{}: Q, K, V, O{} and L take {}, and running on them {}; {} has {} free",
                                   to_string(shape), pass == Pass::forward ? "" : ", their gradients",
                                   human_bytes(tensors), human_bytes(needed), device.description(),
                                   human_bytes(there)));
    }
}

}  // namespace ladder
