#include "harness/device/workspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/device/ranks.h"

namespace ladder {
namespace {

std::size_t ask(const std::function<std::size_t(const Shape&, int)>& bytes, const Device& device,
                const Shape& shape) {
    return bytes ? bytes(shape, device.sm_count()) : 0;
}

}  // namespace

std::size_t Workspace::bytes(const Device& device, const Stage& stage, const Shape& shape, int ranks) {
    const RingToCome of_ranks(ranks);
    return ask(device.ready(stage).workspace_bytes, device, shape);
}

std::size_t Workspace::counter_bytes(const Device& device, const Stage& stage, const Shape& shape) {
    return ask(device.ready(stage).counter_bytes, device, shape);
}

Workspace::Workspace(Device& device, const Stage& stage, const Shape& shape, int ranks)
    : device_(device),
      buffer_(device, bytes(device, stage, shape, ranks), "workspace", true),
      counters_(buffer_.bytes() - counter_bytes(device, stage, shape)) {
    fill(counters_, buffer_.bytes(), 0);
}

void Workspace::poison() {
    fill(0, counters_, 0xff);
}

void Workspace::fill(std::size_t first, std::size_t end, unsigned char byte) {
    if (first < end) device_.fill(static_cast<unsigned char*>(data()) + first, byte, end - first);
}

void Workspace::check_counters() const {
    std::vector<unsigned char> counters(buffer_.bytes() - counters_);
    if (counters.empty()) return;
    device_.download(counters.data(), static_cast<unsigned char*>(data()) + counters_, counters.size());
    const auto first = std::find_if(counters.begin(), counters.end(), [](auto byte) { return byte != 0; });
    if (first == counters.end()) return;
    throw CheckFailed(fmt::format("left a counter that is not 0 at byte {} of the workspace",
                                  counters_ + static_cast<std::size_t>(first - counters.begin())));
}

}  // namespace ladder
