// The random words of dropout, in both passes. Part of the namespace of the stages that include it.

/// Philox4x32-10: four random words of counter c. The halves of the key are x and y.
__device__ uint4 philox(uint4 c, std::uint32_t x, std::uint32_t y) {
#pragma unroll
    for (int round = 0; round < 10; ++round, x += 0x9E3779B9, y += 0xBB67AE85) {  // the key changes, too
        const std::uint64_t even = 0xD2511F53ull * c.x, odd = 0xCD9E8D57ull * c.z;
        c = {std::uint32_t(odd >> 32) ^ c.y ^ x, std::uint32_t(odd), std::uint32_t(even >> 32) ^ c.w ^ y,
             std::uint32_t(even)};
    }
    return c;
}
