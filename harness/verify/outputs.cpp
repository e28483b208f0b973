#include "harness/verify/outputs.h"

#include "harness/features/features.h"
#include "harness/problem/tensors.h"

namespace ladder {

Placement OutputTensor::placement(const Case& c) const {
    const Shape& s = c.shape;
    if (has_floats()) return {batches(s), heads(s), rows(s), 1, std::int64_t{heads(s)} * rows(s), rows(s), 1};
    return ladder::placement(c, tensor);
}

std::span<const std::byte> OutputTensor::bytes(const Outputs& outputs) const {
    return has_floats() ? std::as_bytes(std::span(outputs.*floats))
                        : std::as_bytes(std::span(outputs.*elements));
}

const std::vector<OutputTensor>& output_tensors(const Case& c) {
    using enum RowsOf;
    static const std::vector<OutputTensor> forward{
        {"O", &Outputs::O, nullptr, &Addresses::O, Tensor::O, queries},
        {"L", nullptr, &Outputs::L, &Addresses::L, Tensor::O, queries}};
    static const std::vector<OutputTensor> backward{
        {"dQ", &Outputs::dQ, nullptr, &Addresses::dQ, Tensor::dQ, queries},
        {"dK", &Outputs::dK, nullptr, &Addresses::dK, Tensor::dK, keys},
        {"dV", &Outputs::dV, nullptr, &Addresses::dV, Tensor::dV, keys}};
    static const std::vector<OutputTensor> of_sinks = [] {
        auto all = backward;
        all.push_back({"dsinks", nullptr, &Outputs::dsinks, &Addresses::dsinks, Tensor::dQ, heads});
        return all;
    }();
    if (c.pass == Pass::forward) return forward;
    return c.features.sinks.empty() || !c.sampled.empty() ? backward : of_sinks;
}

double WrittenTensor::value(std::size_t index) const {
    if (tensor_.has_floats()) return floats_[index];
    return with_type(case_.dtype, [&](auto type) {
        return static_cast<double>(static_cast<float>(std::bit_cast<decltype(type)>(halves_[index])));
    });
}

void WrittenTensor::read_row(int head, int row, double* values) const {
    const auto columns = static_cast<std::size_t>(tensor_.columns(case_.shape));
    const std::size_t first = (std::size_t(head) * tensor_.rows(case_.shape) + row) * columns;
    for (std::size_t k = 0; k < columns; ++k) values[k] = value(first + k);
}

std::vector<WrittenTensor> written_tensors(const Case& c, const Outputs& outputs) {
    std::vector<WrittenTensor> written;
    for (const OutputTensor& tensor : output_tensors(c)) written.emplace_back(c, tensor, outputs);
    return written;
}

}  // namespace ladder
