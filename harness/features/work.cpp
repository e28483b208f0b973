#include "harness/features/work.h"

#include <algorithm>
#include <cstdint>

#include "harness/features/features.h"

namespace ladder {

double visible_scores(const Case& c) {
    const auto [B, H, Hkv, Nq, Nk, d] = c.shape;
    const auto in_use = in_use_of(c.features);
    const auto last = std::find_if(in_use.rbegin(), in_use.rend(),
                                   [](const FeatureInfo* info) { return info->visible_scores != nullptr; });
    if (last != in_use.rend()) return (*last)->visible_scores(c);
    const double square = std::min(Nq, Nk);  // of scores that the mask halves, bottom-right
    return double(B) * H * (c.causal ? square * Nk - square * square / 2 : double(Nq) * Nk);
}

double scores_of_rows(const Case& c) {
    const reference::Mask mask = mask_of(c, 0, 0);
    double scores = 0;
    for (int row = 0; row < c.shape.Nq; ++row) scores += mask.visible(row);
    return double(c.shape.B) * c.shape.H * scores;
}

double keys_of_rows(const Case& c, int b) {
    const reference::Mask mask = mask_of(c, b, 0);
    return std::max(0, mask.end(c.shape.Nq - 1) - mask.first(0));
}

double flops(const Shape& shape, bool causal, Pass pass, const Features& features) {
    const double scores = visible_scores({.shape = shape, .causal = causal, .features = features});
    return (pass == Pass::forward ? 1 : 2.5) * 4 * scores * shape.d;
}

double unavoidable_bytes(const Shape& shape, Pass pass, const Features& features, const Stage& stage) {
    const Case c{.shape = shape, .features = features};
    const double query_rows = double(shape.B) * shape.H * shape.Nq;
    double keys = double(shape.B) * shape.Nk;
    for (const FeatureInfo* info : in_use_of(features)) {
        if (info->keys != nullptr) keys = info->keys(c, keys);
    }
    const double key_rows = shape.Hkv * keys;
    double bytes = (pass == Pass::forward ? 4 : 8) * (query_rows + key_rows) * shape.d;  // of 16-bit elements
    if (stage.takes_e4m3) bytes -= query_rows * shape.d;
    if (stage.takes_e4m3 || stage.products == Products::of_8_bit_cache) bytes -= 2 * key_rows * shape.d;
    if (features.token_scales) bytes += 2 * key_rows * sizeof(float);
    return bytes;
}

bool counts_bytes(const Shape& shape) {
    const std::int64_t Nq = shape.Nq;
    return Nq == 1 || (Nq * shape.H <= std::int64_t{64} * shape.Hkv && 16 * Nq <= shape.Nk);
}

}  // namespace ladder
