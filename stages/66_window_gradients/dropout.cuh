// Dropout of P: the warps that do not multiply compute the random bytes of a tile, as stage 64 defines them,
// and write a bit for each element, in the order of S^T's fragments. Part of the namespace of the stages that
// include it.

struct Dropout {
    static constexpr bool draws = true;
    template <int Br>
    struct Words {
        std::uint32_t bits[Br / 64][256];  // for each thread that multiplies: 32 elements of 64 queries
    };
    struct Kept {
        std::uint32_t bits;
        /// value, element c of S^T or dP^T; or 0 if dropout drops it, that is, if its bit is 0.
        __device__ float drop(float value, int c) const {
            const int n = c % 32 / 8 * 2 + c % 2;  // its counter is the n-th
            return bits >> (n / 4 * 16 + n % 4 + c / 4 % 2 * 8 + c / 2 % 2 * 4) & 1 ? value : 0.0f;
        }
    };

    int x, y;  // the halves of the seed

    __device__ explicit Dropout(const Problem& p)
        : x(uniform(int(p.dropout.seed))), y(uniform(int(p.dropout.seed >> 32))) {}

    template <int Br>
    __device__ static Kept read(const Words<Br>& words, int half, int thread) {
        return {load(&words.bits[half][thread])};
    }
    /// What is kept counts 256 / kept times.
    __device__ static float share(const Problem& p) { return p.dropout.kept * 0x1p-8f; }
    __device__ static float log2_share(const Problem& p) { return log2f(share(p)); }

    /// Writes the mask of a visit's queries and 32 keys for each warp: 1 for kept elements. For 64 queries a
    /// lane takes four counters, two of every 16 and key 2 t of 32. Four lanes get half a word each.
    template <int Br, class Visit>
    __device__ void draw(const Problem& p, const KeyTile& own, const Visit& visit, Words<Br>& words) const {
        const int q = threadIdx.x % 4, half = threadIdx.x / 4 % 2, t = threadIdx.x / 8 % 4,
                  keys = threadIdx.x / 32;
        const std::uint32_t rest = (256 - p.dropout.kept) * 0x01010101u;  // in each byte
        std::uint32_t bits[2] = {};                                       // for two warps
#pragma unroll 1  // few registers are left to these warps
        for (int n = 0; n < Br / 16; ++n) {
            const auto queries = visit.queries(n / 4 * 64 / Visit::rows);
            const std::uint32_t row =
                queries.row + n / 4 * 64 % Visit::rows + half * 32 + n / 2 % 2 * 16 + 2 * q + n % 2;
            // New in each call, by uniform: otherwise products of the key stay in registers, and too few are
            // left.
            const std::uint32_t key = uniform(own.first) + 32 * keys + 2 * t;
            const uint4 four =
                philox({key, row, std::uint32_t(queries.head), std::uint32_t(own.batch)}, x, y);
            const std::uint32_t random[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int c = 0; c < 4; ++c) {  // kept if the sum of a random byte and rest does not carry
                const std::uint32_t r = random[c], sum = (r & 0x7f7f7f7f) + (rest & 0x7f7f7f7f);
                const std::uint32_t bit = ~((r & rest) | ((r | rest) & sum)) & 0x80808080;
                bits[c / 2] = c % 2 == 0 ? (bits[c / 2] >> 1 & 0x77777777) | bit >> 4 : bits[c / 2] | bit;
            }
            for (int c = 0; c < 4 && n % 4 == 3; ++c) {  // the lane's two bytes: 0 and 2, or 1 and 3
                const std::uint32_t two = bits[c / 2] >> c % 2 * 8 & 0xff00ff;
                std::uint32_t* word = &words.bits[n / 4][64 * keys + c / 2 * 32 + 8 * t + c % 2 * 4 + q];
                store(reinterpret_cast<std::uint16_t*>(word) + half, std::uint16_t(two | two >> 8));
            }
        }
    }
};
