#include "harness/problem/case.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ladder {
namespace {

/// How Layout::mixed has a tensor: the order of its axes, and how many columns more the tensor has that it is
/// a slice of. Each has an order or a slice that its neighbours have not.
struct Mixed {
    Layout order;
    int more_columns;
};
constexpr Mixed mixed[] = {
    {Layout::bhnd, 8},   // Q
    {Layout::bhnd, 0},   // K
    {Layout::bnhd, 0},   // V
    {Layout::bnhd, 16},  // O
    {Layout::bhnd, 24},  // dO
    {Layout::bnhd, 8},   // dQ
    {Layout::bhnd, 16},  // dK
    {Layout::bnhd, 24},  // dV
};

}  // namespace

const std::map<std::string, Layout>& layouts() {
    static const std::map<std::string, Layout> all{
        {"bhnd", Layout::bhnd}, {"bnhd", Layout::bnhd}, {"mixed", Layout::mixed}, {"far", Layout::far}};
    return all;
}

const char* name(Layout layout) {
    for (const auto& [name, known] : layouts()) {
        if (known == layout) return name.c_str();
    }
    return "?";
}

const std::vector<InputKind>& input_kinds() {
    static const std::vector<InputKind> kinds{
        {"normal", "N(0, 1)"},
        {"huge", "scores of about +-1e7, or with even seeds and in the backward pass +-1e4"},
        {"rising", "scores rise along the keys: the running maximum changes at every tile"},
        {"falling", "scores fall along the keys: the first tile keeps the maximum"},
        {"constant", "every key is the same: each row's weights are all 1 / (number of keys)"},
        {"one_hot", "each row's softmax sits on one key"},
        {"huge_constant",
         "every key is the same, with the scores of huge: in half of the rows all are far below 0"},
        {"same_sign", "V is N(4, 1): sums over the keys grow, and what each step cuts off does not cancel"},
        {"outliers",
         "N(0, 1), and to one element in a thousand N(0, 100) is added (FlashAttention-3's test)"},
        {"zeros", "N(0, 1), and zeros: in each tensor every third head, of the others rows 128 to 255"},
        {"biased", "N(0, 1), and in K to each channel of a head N(0, 16) is added, the same for all keys"},
        {"smoothed", "biased, and then the mean of all keys is subtracted from each (K smoothing)"},
    };
    return kinds;
}

View dense_view(void* data, int heads, int N, int d) {
    return {data, std::int64_t{heads} * N * d, std::int64_t{N} * d, d};
}

int pool_pages(const Case& c) {
    const int size = c.features.page_size;
    return c.shape.B * ((c.shape.Nk + size - 1) / size) + 1;
}

Placement placement(const Case& c, Tensor tensor) {
    const Shape& s = c.shape;
    const bool of_keys =
        tensor == Tensor::K || tensor == Tensor::V || tensor == Tensor::dK || tensor == Tensor::dV;
    Placement p{s.B, of_keys ? s.Hkv : s.H, of_keys ? s.Nk : s.Nq, s.d, 0, 0, 0};
    if (c.layout == Layout::far) {
        // The offset of a row passes 2^31 after 256 rows, one head or one batch entry. No two rows meet:
        // those of each head begin at another place between multiples of p.row.
        constexpr std::int64_t place = 4096;
        p.row = static_cast<std::int64_t>(
            std::bit_ceil(std::max<std::uint64_t>(1 << 23, std::uint64_t(place) * s.B * p.heads)));
        p.head = (std::int64_t{1} << 31) + place;
        p.batch = (std::int64_t{1} << 31) + place * p.heads;
        return p;
    }
    if (of_keys && c.features.page_size > 0) {
        p.B = pool_pages(c);
        p.N = c.features.page_size;
    }
    const Mixed how = c.layout == Layout::mixed ? mixed[static_cast<int>(tensor)] : Mixed{c.layout, 0};
    const std::int64_t row = s.d + how.more_columns;
    // Pages hold their keys one after the other, each with all its heads, as caches do.
    const bool heads_first =
        how.order == Layout::bhnd && !(of_keys && c.features.page_size > 0 && c.layout != Layout::mixed);
    p.batch = row * p.heads * p.N;
    p.head = heads_first ? row * p.N : row;
    p.row = heads_first ? row : row * p.heads;
    return p;
}

float Case::softmax_scale() const {
    return scale.value_or(1.0f / std::sqrt(static_cast<float>(shape.d)));
}

}  // namespace ladder
