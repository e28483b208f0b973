#include "harness/device/device_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/base/parallel.h"
#include "harness/features/cache.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/tensors.h"
#include "simt/e4m3.h"

namespace ladder {
namespace {

Buffer uploaded(Device& device, const Case& c, Tensor tensor, const std::vector<std::uint16_t>& dense,
                const char* name) {
    const Placement placed = placement(c, tensor);
    Buffer buffer(device, dense.empty() ? 0 : placed.span() * sizeof(std::uint16_t), name, false);
    if (buffer.bytes() > 0) upload(device, buffer.data(), placed, dense.data());
    return buffer;
}

Buffer uploaded_keys(Device& device, const Case& c, Tensor tensor, const std::vector<std::uint16_t>& dense,
                     const char* name) {
    return uploaded(device, c, tensor, c.features.has_cache() ? in_slots(c, dense) : dense, name);
}

template <class X>
Buffer uploaded(Device& device, const std::vector<X>& dense, const char* name) {
    Buffer buffer(device, dense.size() * sizeof(X), name, false);
    if (buffer.bytes() > 0) device.upload(buffer.data(), dense.data(), buffer.bytes());
    return buffer;
}

/// Of those that the case has.
std::map<Feature, Buffer> uploaded_numbers(Device& device, const Case& c) {
    std::map<Feature, Buffer> buffers;
    for (const FeatureInfo* info : in_use_of(c.features)) {
        if (info->numbers == nullptr) continue;
        std::visit(
            [&](const auto& numbers) {
                buffers.emplace(info->feature, uploaded(device, numbers, info->array));
            },
            info->numbers(c));
    }
    return buffers;
}

/// Memory for the tensors of a case; of those that its pass has not, nothing.
class Room {
  public:
    Room(Device& device, const Case& c, bool writable) : device_(device), case_(c), writable_(writable) {}

    Buffer of(Tensor tensor, const char* name, bool there = true) const {
        const std::size_t elements = there ? placement(case_, tensor).span() : 0;
        return {device_, elements * sizeof(std::uint16_t), name, writable_};
    }
    Buffer L(bool there) const {
        const Shape& s = case_.shape;
        return {device_, there ? std::size_t(s.B) * s.H * s.Nq * sizeof(float) : 0, "L", writable_};
    }

  private:
    Device& device_;
    const Case& case_;
    const bool writable_;
};

bool is_backward(const Case& c) {
    return c.pass == Pass::backward;
}

/// The opposite of upload().
std::vector<std::uint16_t> downloaded(Device& device, const void* data, const Placement& placed) {
    const auto* at = static_cast<const std::uint16_t*>(data);
    std::vector<std::uint16_t> dense(placed.count()), image(placed.is_sparse() ? 0 : placed.span());
    device.download(image.data(), at, image.size() * sizeof(image[0]));
    auto to = dense.begin();
    placed.for_each_row([&](std::size_t offset) {
        if (image.empty()) device.download(&*to, at + offset, placed.d * sizeof(*to));
        if (!image.empty()) std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(offset), placed.d, to);
        to += placed.d;
    });
    return dense;
}

}  // namespace

template <class Element>
void upload(Device& device, void* data, const Placement& placed, const Element* dense) {
    constexpr auto no_number = static_cast<Element>(-1);  // NaN in each type
    const std::size_t row_bytes = placed.d * sizeof(Element);
    auto* at = static_cast<Element*>(data);
    if (placed.is_sparse()) {
        placed.for_each_row([&](std::size_t offset) {
            device.upload(at + offset, dense, row_bytes);
            dense += placed.d;
        });
        return;
    }
    if (placed.row == placed.d && placed.span() == placed.count()) {
        device.upload(at, dense, placed.span() * sizeof(Element));
        return;
    }
    std::vector<Element> image(placed.span(), no_number);
    placed.for_each_row([&](std::size_t offset) {
        std::memcpy(image.data() + offset, dense, row_bytes);
        dense += placed.d;
    });
    device.upload(at, image.data(), image.size() * sizeof(Element));
}
template void upload(Device&, void*, const Placement&, const std::uint16_t*);
template void upload(Device&, void*, const Placement&, const std::uint8_t*);

DeviceInputs::DeviceInputs(Device& device, const Case& c, const Inputs& inputs)
    : Q(uploaded(device, c, Tensor::Q, inputs.Q, "Q")),
      K(uploaded_keys(device, c, Tensor::K, inputs.K, "K")),
      V(uploaded_keys(device, c, Tensor::V, inputs.V, "V")),
      dO(uploaded(device, c, Tensor::dO, inputs.dO, "dO")),
      O(uploaded(device, c, Tensor::O, inputs.O, "O")),
      L(uploaded(device, inputs.L, "L")),
      numbers(uploaded_numbers(device, c)) {}

DeviceInputs::DeviceInputs(Device& device, Stopwatch& stopwatch, const Case& c)
    : Q(Room(device, c, false).of(Tensor::Q, "Q")),
      K(Room(device, c, false).of(Tensor::K, "K")),
      V(Room(device, c, false).of(Tensor::V, "V")),
      dO(Room(device, c, false).of(Tensor::dO, "dO", is_backward(c))),
      O(Room(device, c, true).of(Tensor::O, "O", is_backward(c))),
      L(Room(device, c, true).L(is_backward(c))),
      numbers(uploaded_numbers(device, c)) {
    if (c.input != "normal") {
        const Inputs inputs = make_inputs(c);
        const auto place = [&](const Buffer& to, Tensor tensor, const std::vector<std::uint16_t>& from) {
            upload(device, to.data(), placement(c, tensor), from.data());
        };
        place(Q, Tensor::Q, inputs.Q);
        place(K, Tensor::K, in_slots(c, inputs.K));
        place(V, Tensor::V, in_slots(c, inputs.V));
        if (!is_backward(c)) return;
        place(dO, Tensor::dO, inputs.dO);
        place(O, Tensor::O, inputs.O);
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
    const Stage* stage = last_forward(device, c);
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
    Addresses at{.Q = Q.data(),
                 .K = K.data(),
                 .V = V.data(),
                 .O = O.data(),
                 .L = static_cast<float*>(L.data()),
                 .dO = dO.data()};
    for (const auto& [feature, buffer] : numbers) at.numbers[feature] = buffer.data();
    return at;
}

namespace {

struct InE4m3 {
    Tensor tensor;
    const char *name, *scales;
    Buffer DeviceInputs::*of_16_bits;
    View Problem::*view;
    const float* Problem::*scales_of;
    View Problem::*token_scales = nullptr;
};
const InE4m3 all_in_e4m3[] = {
    {Tensor::Q, "Q", "scales of Q", &DeviceInputs::Q, &Problem::Q, &Problem::Q_scales},
    {Tensor::K, "K", "scales of K", &DeviceInputs::K, &Problem::K, &Problem::K_scales,
     &Problem::K_token_scales},
    {Tensor::V, "V", "scales of V", &DeviceInputs::V, &Problem::V, &Problem::V_scales,
     &Problem::V_token_scales}};

/// Of dense rows, those of tokens: their numbers, and a scale of each row, NaN where it has none.
std::vector<float> round_rows(const Case& c, const std::vector<std::uint16_t>& dense,
                              std::vector<std::uint8_t>& numbers) {
    const int d = c.shape.d;
    std::vector<float> scales(dense.size() / d);
    with_type(c.dtype, [&](auto type) {
        parallel_for(static_cast<int>(scales.size()), [&](int row) {
            const auto* from = reinterpret_cast<const decltype(type)*>(dense.data()) + std::size_t(row) * d;
            float largest = 0;
            for (int i = 0; i < d; ++i) {
                const auto x = static_cast<float>(from[i]);
                largest = std::isnan(x) ? x : std::max(largest, std::abs(x));
                if (std::isnan(x)) break;
            }
            const E4m3Scale scale(largest);
            scales[row] = std::isnan(largest) ? largest : scale.scale;
            for (int i = 0; i < d; ++i) {
                const float x = static_cast<float>(from[i]) * (std::isnan(largest) ? largest : scale.inverse);
                numbers[std::size_t(row) * d + i] = simt::round_to<simt::e4m3>(x).bits;
            }
        });
    });
    return scales;
}

/// Scales of K's or V's tokens: those of a head side by side, or as (B, N, Hkv), in pages as well.
Placement scales_of_tokens(const Case& c, Tensor tensor) {
    Placement scales = placement(c, tensor);
    const bool by_token = c.layout == Layout::bnhd || (c.layout == Layout::mixed && tensor == Tensor::V);
    scales.d = 1;
    scales.batch = std::int64_t{scales.heads} * scales.N;
    scales.head = by_token ? 1 : scales.N;
    scales.row = by_token ? scales.heads : 1;
    return scales;
}

RoundedInputs::Rounded in_e4m3(Device& device, const Case& c, const InE4m3& one, const Buffer& of_16_bits) {
    const Placement of_16 = placement(c, one.tensor);
    const auto dense = downloaded(device, of_16_bits.data(), of_16);
    Placement placed = of_16;
    if (placed.row % 16 != 0) placed.batch *= 2, placed.head *= 2, placed.row *= 2;
    std::vector<std::uint8_t> numbers(dense.size());
    const auto uploaded_numbers = [&] {
        Buffer buffer(device, placed.span(), one.name, false);
        upload(device, buffer.data(), placed, numbers.data());
        return buffer;
    };
    if (c.features.token_scales && one.token_scales != nullptr) {
        const std::vector<float> scales = round_rows(c, dense, numbers);
        const Placement of_scales = scales_of_tokens(c, one.tensor);
        std::vector<float> image(scales.size());
        auto from = scales.begin();
        of_scales.for_each_row([&](std::size_t offset) { image[offset] = *from++; });
        RoundedInputs::Rounded rounded{uploaded_numbers(), uploaded(device, image, one.scales), {}, {}};
        rounded.view = placed.at(rounded.numbers.data());
        rounded.token_scales = of_scales.at(rounded.scales.data());
        return rounded;
    }
    std::vector<SlotOwner> owners = slot_owners(c);
    if (one.tensor == Tensor::Q) {
        owners.resize(placed.B);
        for (int b = 0; b < placed.B; ++b) owners[b] = {b, placed.N};
    }
    const auto owner_of = [&](int head) {
        return owners[head / placed.heads].request * placed.heads + head % placed.heads;
    };
    const int heads = placed.B * placed.heads;
    std::vector<float> largest_of(heads), scale_of(std::size_t(c.shape.B) * placed.heads);
    const std::size_t size = std::size_t(placed.N) * placed.d;  // of a head
    with_type(c.dtype, [&](auto type) {
        const auto head_at = [&](int head) {
            return reinterpret_cast<const decltype(type)*>(dense.data() + head * size);
        };
        parallel_for(heads, [&](int head) {
            const auto* from = head_at(head);
            const std::size_t own = std::size_t(owners[head / placed.heads].keys) * placed.d;
            float largest = 0;  // of numbers: what is NaN has no request
            for (std::size_t i = 0; i < own; ++i)
                largest = std::max(largest, std::abs(static_cast<float>(from[i])));
            largest_of[head] = largest;
        });
        for (int head = 0; head < heads; ++head)
            scale_of[owner_of(head)] = std::max(scale_of[owner_of(head)], largest_of[head]);
        parallel_for(heads, [&](int head) {
            const auto* from = head_at(head);
            const E4m3Scale scale(scale_of[owner_of(head)]);
            for (std::size_t i = 0; i < size; ++i) {
                const auto number = simt::round_to<simt::e4m3>(static_cast<float>(from[i]) * scale.inverse);
                numbers[head * size + i] = number.bits;
            }
        });
    });
    for (int k = std::ssize(scale_of); k-- > 0;) {
        const int b = k / placed.heads, owner = one.tensor == Tensor::Q ? b : first_sharer(c, b);
        scale_of[k] = E4m3Scale(scale_of[owner * placed.heads + k % placed.heads]).scale;
    }
    Buffer placed_numbers = uploaded_numbers();
    const View view = placed.at(placed_numbers.data());
    return {std::move(placed_numbers), uploaded(device, scale_of, one.scales), view, {}};
}

}  // namespace

std::vector<Tensor> tensors_in_e4m3(const Stage& stage) {
    if (stage.takes_e4m3) return {Tensor::Q, Tensor::K, Tensor::V};
    if (stage.products == Products::of_8_bit_cache) return {Tensor::K, Tensor::V};
    return {};
}

RoundedInputs::RoundedInputs(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs) {
    for (const Tensor tensor : tensors_in_e4m3(stage)) {
        const InE4m3& one = *std::ranges::find(all_in_e4m3, tensor, &InE4m3::tensor);
        rounded.emplace(tensor, in_e4m3(device, c, one, inputs.*one.of_16_bits));
    }
}

void RoundedInputs::put_into(Problem& problem) const {
    for (const InE4m3& one : all_in_e4m3) {
        const auto found = rounded.find(one.tensor);
        if (found == rounded.end()) continue;
        const Rounded& tensor = found->second;
        problem.*one.view = tensor.view;
        if (tensor.token_scales.data != nullptr) {
            problem.*one.token_scales = tensor.token_scales;
        } else {
            problem.*one.scales_of = static_cast<const float*>(tensor.scales.data());
        }
    }
}

const Stage* last_forward(const Device& device, const Case& c) {
    Case forward = c;
    forward.pass = Pass::forward;
    const Stage* last = nullptr;
    for (const Stage& stage : stages()) {
        if (stage.pass != Pass::forward || is_experiment(stage) || stage.products != Products::of_16_bits ||
            !stage.has_head_dim(c.shape.d) || !why_not_taken(stage, forward).empty() ||
            !device.why_not(stage).empty())
            continue;
        // One made for this problem, and not for one with more features
        if (last == nullptr || stage.takes.size() <= last->takes.size()) last = &stage;
    }
    return last;
}

DeviceProblem::DeviceProblem(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs,
                             int ranks)
    : O(Room(device, c, true).of(Tensor::O, "O", !is_backward(c))),
      L(Room(device, c, true).L(!is_backward(c))),
      dQ(Room(device, c, true).of(Tensor::dQ, "dQ", is_backward(c))),
      dK(Room(device, c, true).of(Tensor::dK, "dK", is_backward(c))),
      dV(Room(device, c, true).of(Tensor::dV, "dV", is_backward(c))),
      dsinks(device, is_backward(c) && !c.features.sinks.empty() ? c.shape.H * sizeof(float) : 0, "dsinks",
             true),
      rounded(device, stage, c, inputs),
      workspace(device, stage, c.shape, ranks) {
    require_taken(stage, c);
    Addresses at = inputs.addresses();
    if (is_backward(c)) {
        at.dQ = dQ.data();
        at.dK = dK.data();
        at.dV = dV.data();
        at.dsinks = dsinks.data();
    } else {
        at.O = O.data();
        at.L = static_cast<float*>(L.data());
    }
    problem = make_problem(c, at);
    rounded.put_into(problem);
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
}

}  // namespace ladder
