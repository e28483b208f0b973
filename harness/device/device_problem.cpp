#include "harness/device/device_problem.h"

namespace ladder {
namespace {

std::size_t elements(int heads, int N, const Case& c) {
    return std::size_t(c.shape.B) * heads * N * c.shape.d;
}

}  // namespace

DeviceInputs::DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c)
    : Q(device, elements(c.shape.H, c.shape.Nq, c) * sizeof(std::uint16_t), "Q", false),
      K(device, elements(c.shape.Hkv, c.shape.Nk, c) * sizeof(std::uint16_t), "K", false),
      V(device, elements(c.shape.Hkv, c.shape.Nk, c) * sizeof(std::uint16_t), "V", false) {
    std::uint64_t seed = 3 * c.seed;
    for (const Buffer* tensor : {&Q, &K, &V}) {
        stopwatch.fill_normal(tensor->data(), tensor->bytes() / sizeof(std::uint16_t), c.dtype, seed++);
    }
}

DeviceProblem::DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs)
    : O(device, elements(c.shape.H, c.shape.Nq, c) * sizeof(std::uint16_t), "O", true),
      L(device, std::size_t(c.shape.B) * c.shape.H * c.shape.Nq * sizeof(float), "L", true),
      workspace(device, stage, c.shape) {
    const Shape& s = c.shape;
    static_cast<Shape&>(problem) = s;
    problem.Q = make_view(inputs.Q.data(), c.layout, s.H, s.Nq, s.d);
    problem.K = make_view(inputs.K.data(), c.layout, s.Hkv, s.Nk, s.d);
    problem.V = make_view(inputs.V.data(), c.layout, s.Hkv, s.Nk, s.d);
    problem.O = make_view(O.data(), c.layout, s.H, s.Nq, s.d);
    problem.L = static_cast<float*>(L.data());
    problem.scale = c.softmax_scale();
    problem.causal = c.causal;
    problem.dtype = c.dtype;
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
}

}  // namespace ladder
