#include "harness/device/device_problem.h"

#include <fmt/format.h>

#include "harness/ladder/ladder.h"

namespace ladder {
namespace {

Buffer uploaded(Device& device, const auto& tensor, const char* name) {
    Buffer buffer(device, tensor.size() * sizeof(tensor[0]), name, false);
    if (buffer.bytes() > 0) device.upload(buffer.data(), tensor.data(), buffer.bytes());
    return buffer;
}

/// Memory for the tensors of a case; of those that its pass has not, nothing.
class Room {
  public:
    Room(Device& device, const Case& c, bool writable) : device_(device), case_(c), writable_(writable) {}

    Buffer of_queries(const char* name, bool there = true) const {
        return tensor(name, case_.shape.H, case_.shape.Nq, there);
    }
    Buffer of_keys(const char* name, bool there = true) const {
        return tensor(name, case_.shape.Hkv, case_.shape.Nk, there);
    }
    Buffer L(bool there) const {
        const Shape& s = case_.shape;
        return {device_, there ? std::size_t(s.B) * s.H * s.Nq * sizeof(float) : 0, "L", writable_};
    }

  private:
    Buffer tensor(const char* name, int heads, int N, bool there) const {
        const std::size_t elements = std::size_t(case_.shape.B) * heads * N * case_.shape.d;
        return {device_, there ? elements * sizeof(std::uint16_t) : 0, name, writable_};
    }

    Device& device_;
    const Case& case_;
    const bool writable_;
};

bool is_backward(const Case& c) {
    return c.pass == Pass::backward;
}

}  // namespace

DeviceInputs::DeviceInputs(Device& device, const Inputs& inputs)
    : Q(uploaded(device, inputs.Q, "Q")),
      K(uploaded(device, inputs.K, "K")),
      V(uploaded(device, inputs.V, "V")),
      dO(uploaded(device, inputs.dO, "dO")),
      O(uploaded(device, inputs.O, "O")),
      L(uploaded(device, inputs.L, "L")) {}

DeviceInputs::DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c)
    : Q(Room(device, c, false).of_queries("Q")),
      K(Room(device, c, false).of_keys("K")),
      V(Room(device, c, false).of_keys("V")),
      dO(Room(device, c, false).of_queries("dO", is_backward(c))),
      O(Room(device, c, true).of_queries("O", is_backward(c))),
      L(Room(device, c, true).L(is_backward(c))) {
    if (c.input != "normal") {
        const Inputs inputs = make_inputs(c);
        device.upload(Q.data(), inputs.Q.data(), Q.bytes());
        device.upload(K.data(), inputs.K.data(), K.bytes());
        device.upload(V.data(), inputs.V.data(), V.bytes());
        if (!is_backward(c)) return;
        device.upload(dO.data(), inputs.dO.data(), dO.bytes());
        device.upload(O.data(), inputs.O.data(), O.bytes());
        device.upload(L.data(), inputs.L.data(), L.bytes());
        return;
    }
    const auto fill = [&](const Buffer& tensor, std::uint64_t seed) {
        stopwatch.fill_normal(tensor.data(), tensor.bytes() / sizeof(std::uint16_t), c.dtype, seed);
    };
    fill(Q, 3 * c.seed);
    fill(K, 3 * c.seed + 1);
    fill(V, 3 * c.seed + 2);
    if (!is_backward(c)) return;
    fill(dO, 1000 + c.seed);
    const Stage* stage = last_forward(device, c.shape.d);
    if (stage == nullptr)
        throw CannotRun(
            fmt::format("no stage computes O and L for it on {} at d = {}", device.description(), c.shape.d));
    Case forward = c;
    forward.pass = Pass::forward;
    const Workspace workspace(device, *stage, c.shape);
    Problem problem = make_problem(forward, addresses());
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
    device.run(*stage, problem);
}

Addresses DeviceInputs::addresses() const {
    return {.Q = Q.data(),
            .K = K.data(),
            .V = V.data(),
            .O = O.data(),
            .L = static_cast<float*>(L.data()),
            .dO = dO.data()};
}

const Stage* last_forward(const Device& device, int d) {
    const Stage* last = nullptr;
    for (const Stage& stage : stages()) {
        if (stage.pass == Pass::forward && !is_ablation(stage.number) && stage.has_head_dim(d) &&
            device.why_not(stage).empty())
            last = &stage;
    }
    return last;
}

DeviceProblem::DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs)
    : O(Room(device, c, true).of_queries("O", !is_backward(c))),
      L(Room(device, c, true).L(!is_backward(c))),
      dQ(Room(device, c, true).of_queries("dQ", is_backward(c))),
      dK(Room(device, c, true).of_keys("dK", is_backward(c))),
      dV(Room(device, c, true).of_keys("dV", is_backward(c))),
      workspace(device, stage, c.shape) {
    Addresses at = inputs.addresses();
    if (is_backward(c)) {
        at.dQ = dQ.data();
        at.dK = dK.data();
        at.dV = dV.data();
    } else {
        at.O = O.data();
        at.L = static_cast<float*>(L.data());
    }
    problem = make_problem(c, at);
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
}

}  // namespace ladder
