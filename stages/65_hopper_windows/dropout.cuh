// Dropout of P: warps that do not multiply compute the mask of a tile, a bit for each element, from random
// bytes that stage 64 defines. It lies in V's slot and is applied to P during the next scores. Part of the
// namespace of the stages that include it.

struct Dropout {
    template <int d>
    static constexpr int warpgroups = d == 128 ? 2 : 1;  // that do not multiply: elsewhere two have no room
    template <int d>
    static constexpr int warps = d == 128 ? 4 : 3;  // a share for each scheduler, if there is room
    template <int Br, int Bc>
    struct Words {
        std::uint32_t dropped[Br * Bc / 1024][32];  // for 16 rows and 64 keys, and a lane
    };

    std::uint32_t x, y;  // the halves of the seed

    __device__ explicit Dropout(const Problem& p)
        : x(uniform(int(p.dropout.seed))), y(uniform(int(p.dropout.seed >> 32))) {}

    /// Writes the mask of a tile of P whose first row is `first_row`: a bit is set if its element is dropped.
    /// For 16 rows and 64 keys, from key_of(n) on, a lane serves the same lane of a warp that multiplies: 32
    /// elements, which have two counters, and a byte each.
    template <int warps, int Bc, int words, class KeyOf>
    __device__ void draw(const Problem& p, int batch, int head, int first_row, std::uint32_t (&to)[words][32],
                         KeyOf key_of) const {
        const std::uint32_t lane = threadIdx.x % 32, h = uniform(head), b = uniform(batch);
        const std::uint32_t rest = (256 - p.dropout.kept) * 0x01010101u;  // in each byte
#pragma unroll 1  // few registers are left to these warps
        for (int n = threadIdx.x / 32 % warps; n < words; n += warps) {
            const std::uint32_t row = first_row + n / (Bc / 64) * 16 + lane / 4;
            const std::uint32_t key = key_of(n % (Bc / 64)) + lane % 4 * 2;
            // Two chains: one goes on while the other waits.
            const uint4 first = philox({key, row, h, b}, x, y), second = philox({key + 32, row, h, b}, x, y);
            const std::uint32_t random[8] = {first.x,  first.y,  first.z,  first.w,
                                             second.x, second.y, second.z, second.w};
            std::uint32_t bits = 0;
#pragma unroll
            for (int c = 0; c < 8; ++c) {  // bit 7 - c of each byte: the sum of a random one and rest carries
                const std::uint32_t r = random[c], sum = (r & 0x7f7f7f7f) + (rest & 0x7f7f7f7f);
                bits |= ((r & rest) | ((r | rest) & sum)) >> c & 0x80808080 >> c;
            }
            store(&to[n][lane], bits);
        }
    }

    /// Sets the dropped elements of a warp's P (16, Bc) to 0.
    template <class W, int n>
    __device__ static void drop(const W& words, int warp, std::uint32_t (&P)[n]) {
        std::uint32_t bits = 0;
#pragma unroll
        for (int c = 0; c < n; ++c) {
            if (c % 16 == 0) bits = load(&words.dropped[warp * (n / 16) + c / 16][threadIdx.x % 32]);
            P[c] &= ~mask_of_signs(bits << c / 2 % 8, c % 2);
        }
    }

    /// What is kept counts 256 / kept times.
    __device__ static float inverse(const Problem& p, float l) {
        return divide(256.0f, l * p.dropout.kept);
    }
};
