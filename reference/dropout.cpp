#include "reference/dropout.h"

namespace reference {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0],
                            b = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return counter;
}

bool Dropout::keeps(int row, int key) const {
    // 16 elements, of two rows and eight keys, share a counter, that of the first: bit 3 of the row and bits
    // 0, 3 and 4 of the key number their bytes.
    const auto i = static_cast<std::uint32_t>(row), j = static_cast<std::uint32_t>(key);
    const auto words =
        philox({j & ~25u, i & ~8u, static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint32_t byte = i / 8 % 2 * 2 + j % 2;
    return static_cast<int>(words[j / 8 % 4] >> 8 * byte & 255) < kept;
}

std::vector<bool> Dropout::mask(int Nq, int Nk) const {
    std::vector<bool> kept_ones;
    for (int row = 0; row < Nq; ++row) {
        for (int key = 0; key < Nk; ++key) kept_ones.push_back(keeps(row, key));
    }
    return kept_ones;
}

}  // namespace reference
