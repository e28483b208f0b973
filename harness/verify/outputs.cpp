#include "harness/verify/outputs.h"

#include "harness/features/features.h"
#include "harness/problem/tensors.h"

namespace ladder {

Placement OutputTensor::placement(const Case& c) const {
    const Shape& s = c.shape;
    if (is_L()) return {s.B, s.H, s.Nq, 1, std::int64_t{s.H} * s.Nq, s.Nq, 1};
    return ladder::placement(c, tensor);
}

std::span<const std::byte> OutputTensor::bytes(const Outputs& outputs) const {
    return is_L() ? std::as_bytes(std::span(outputs.L)) : std::as_bytes(std::span(outputs.*elements));
}

const std::vector<OutputTensor>& output_tensors(Pass pass) {
    static const std::vector<OutputTensor> forward{{"O", &Outputs::O, &Addresses::O, Tensor::O, false},
                                                   {"L", nullptr, &Addresses::L, Tensor::O, false}},
        backward{{"dQ", &Outputs::dQ, &Addresses::dQ, Tensor::dQ, false},
                 {"dK", &Outputs::dK, &Addresses::dK, Tensor::dK, true},
                 {"dV", &Outputs::dV, &Addresses::dV, Tensor::dV, true}};
    return pass == Pass::forward ? forward : backward;
}

double WrittenTensor::value(std::size_t index) const {
    if (tensor_.is_L()) return floats_[index];
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
    for (const OutputTensor& tensor : output_tensors(c.pass)) written.emplace_back(c, tensor, outputs);
    return written;
}

}  // namespace ladder
