#include "harness/device/device_problem.h"

namespace ladder {
namespace {

std::size_t elements(int heads, int N, const Case& c) {
    return std::size_t(c.shape.B) * heads * N * c.shape.d;
}

Buffer uploaded(Device& device, const std::vector<std::uint16_t>& tensor, const char* name) {
    Buffer buffer(device, tensor.size() * sizeof(std::uint16_t), name, false);
    device.upload(buffer.data(), tensor.data(), buffer.bytes());
    return buffer;
}

}  // namespace

DeviceInputs::DeviceInputs(Device& device, const Inputs& inputs)
    : Q(uploaded(device, inputs.Q, "Q")),
      K(uploaded(device, inputs.K, "K")),
      V(uploaded(device, inputs.V, "V")) {}

DeviceInputs::DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c)
    : Q(device, elements(c.shape.H, c.shape.Nq, c) * sizeof(std::uint16_t), "Q", false),
      K(device, elements(c.shape.Hkv, c.shape.Nk, c) * sizeof(std::uint16_t), "K", false),
      V(device, elements(c.shape.Hkv, c.shape.Nk, c) * sizeof(std::uint16_t), "V", false) {
    if (c.input != "normal") {
        const Inputs inputs = make_inputs(c);
        device.upload(Q.data(), inputs.Q.data(), Q.bytes());
        device.upload(K.data(), inputs.K.data(), K.bytes());
        device.upload(V.data(), inputs.V.data(), V.bytes());
        return;
    }
    std::uint64_t seed = 3 * c.seed;
    for (const Buffer* tensor : {&Q, &K, &V}) {
        stopwatch.fill_normal(tensor->data(), tensor->bytes() / sizeof(std::uint16_t), c.dtype, seed++);
    }
}

DeviceProblem::DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs)
    : O(device, elements(c.shape.H, c.shape.Nq, c) * sizeof(std::uint16_t), "O", true),
      L(device, std::size_t(c.shape.B) * c.shape.H * c.shape.Nq * sizeof(float), "L", true),
      workspace(device, stage, c.shape),
      problem(make_problem(c, inputs.Q.data(), inputs.K.data(), inputs.V.data(), O.data(),
                           static_cast<float*>(L.data()))) {
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
}

}  // namespace ladder
