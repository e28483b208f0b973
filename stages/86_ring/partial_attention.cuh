// The kernel of stages 86 and 87, part of their namespace: 36's with other last lines. It attends to a part
// of the keys, and merges what comes out with what the rows have of all keys so far.

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// The constants that depend on d.
template <int d>
struct Tile {
    static constexpr int groups = d == 64 ? 3 : 2;  // warpgroups that multiply, of 64 rows each
    static constexpr int threads = 128 * (1 + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : 40;
    static constexpr int consumer_registers = groups == 3 ? 160 : 232;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d <= 128 ? 128 : 64;
    static constexpr bool turns = d <= 128;        // at d = 256 exponentials take a small part of the time
    static constexpr int depth = d == 64 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
};

struct alignas(16) TileIndex {
    int batch, head, tile;
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d>
struct Shared {
    alignas(1024) T Q[Tile<d>::Q_slots][Tile<d>::groups][d / 64][64][64];
    alignas(1024) T K[Tile<d>::depth][d / 64][Tile<d>::Bc][64];  // tile k of the block is in slot k % depth
    alignas(1024) T V[Tile<d>::depth][d / 64][Tile<d>::Bc][64];
    TileIndex tile[Tile<d>::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    Mbarrier Q_full[Tile<d>::Q_slots], Q_empty[Tile<d>::Q_slots];
    Mbarrier K_full[Tile<d>::depth], V_full[Tile<d>::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile<d>::depth], V_empty[Tile<d>::depth];  // phase k / depth: all have read tile k
};

struct Maps {
    TensorMap Q, K, V;
};

/// How a step merges its O, the attention to the keys of one rank, with that of earlier steps.
struct Merge {
    float* O;        // (B, H, rows, d): O of all keys so far. p.L holds their L
    int rows;        // of the rank; a step may compute only the last of them
    bool first;      // no keys so far
    int final_rows;  // rows below this see no more keys after this step: p.O gets their O
};

/// The order in which blocks take the query tiles of all heads: without a mask head by head; with one the
/// longest first, of `section` heads together, whose K and V fit in the L2 cache.
struct TileOrder {
    int Tr, heads, section, total;  // heads = B H, total = Tr heads
    unsigned* taken;                // not counting each block's first; 0 before and after a launch

    /// The n-th of them
    template <bool causal>
    __device__ TileIndex at(const Problem& p, int n) const {
        int i = n % Tr, head = n / Tr;
        if constexpr (causal) {
            const int first = n / (section * Tr) * section, r = n % (section * Tr);
            const int together = min(section, heads - first);
            i = Tr - 1 - r / together;
            head = first + r % together;
        }
        return {head / p.H, head % p.H, i};
    }
};

/// Turns the scores S (64, Bc) of a warpgroup with key tile j into exponents S scale - m, with -inf where
/// masked. Lanes hold rows g and g + 8 of their warp's 16.
template <int d, int Bc = Tile<d>::Bc>
__device__ void shift(const Problem& p, int first_row, int j, bool masked, float (&S)[Bc / 2],
                      const float (&m)[2]) {
    const float scale = p.scale * log2_e;  // exponents and m are in base 2
#pragma unroll
    for (int c = 0; c < Bc / 2; ++c) S[c] = S[c] * scale - m[row_of(c)];
    if (masked) {
        const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        int end[2];  // the first of this lane's columns that the row does not see
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = first_row + 16 * warp + g + 8 * r;
            end[r] = min(p.Nk, p.causal ? row + p.Nk - p.Nq + 1 : p.Nk) - j * Bc - 2 * t;
        }
#pragma unroll
        for (int c = 0; c < Bc / 2; ++c) {
            if (column_of(c) >= end[row_of(c)]) S[c] = -inf;
        }
    }
}

/// The largest exponent of row g + 8 r in this lane.
template <int n>
__device__ float lane_max(const float (&S)[n], int r) {
    float row_max = -inf;
#pragma unroll
    for (int c = 2 * r; c < n; c += 4) row_max = fmaxf(row_max, fmaxf(S[c], S[c + 1]));
    return row_max;
}

/// max(0, the largest exponent in this lane).
template <int n>
__device__ float positive_max(const float (&S)[n]) {
    float row_max[2] = {};
#pragma unroll
    for (int c = 0; c < n; c += 2) row_max[row_of(c)] = max3(row_max[row_of(c)], S[c], S[c + 1]);
    return fmaxf(row_max[0], row_max[1]);
}

/// Raises m to the maximum of its row, and rescales S and l to it; the caller multiplies O by alpha. The
/// first tile sets m, even to less than 0.
template <int n>
__device__ void rescale(bool first, float (&S)[n], float (&alpha)[2], float (&m)[2], float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float rise = lane_max(S, r);
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
        rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
        rise = rise == -inf ? 0.0f : first ? rise : fmaxf(rise, 0.0f);  // no key so far: m stays 0
        alpha[r] = first ? 0.0f : fast_exp2(-rise);
        m[r] += rise;
        l[r] *= alpha[r];
#pragma unroll
        for (int c = 0; c < n; ++c) {
            if (row_of(c) == r) S[c] -= rise;
        }
    }
}

/// S = Q K^T, (64, Bc) for this warpgroup (algorithm 1, line 8). Starts it: S is complete after a wait.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void score(const T (&Q)[d / 64][64][64], const T (&K)[d / 64][Bc][64], float (&S)[Bc / 2]) {
    const Descriptor q = matrix_descriptor(Q), k = matrix_descriptor(K);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < d; c += 16) {
        wgmma<T, Bc, false>(S, q.column<64>(c), k.column<Bc>(c), c > 0);
    }
    wgmma_commit();
}

/// Starts O += P V.
template <class T, int d, int Bc = Tile<d>::Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 4], const T (&V)[d / 64][Bc][64],
                            float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V, Bc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc; k += 16) wgmma<T, d, true>(O, &P[k / 4], v.row(k), true);
    wgmma_commit();
}

/// S becomes P = exp(S - m), l += rowsum(P) over this lane's columns.
template <int n>
__device__ void exponentiate(float (&S)[n], float (&l)[2]) {
#pragma unroll
    for (int c = 0; c < n; ++c) {
        S[c] = fast_exp2(S[c]);
        l[row_of(c)] += S[c];
    }
}

/// P as the A operand of P V: a lane's accumulators of S are its elements of that operand.
template <class T, int n>
__device__ void convert(const float (&S)[n], std::uint32_t (&P)[n / 2]) {
#pragma unroll
    for (int c = 0; c < n / 2; ++c) P[c] = pack<T>(S[2 * c], S[2 * c + 1]);
}

/// Merges O / l and L = m + log(l) of the warp's 16 rows with those of the keys so far, where l is the sum
/// over the four lanes of a row: L' = log(exp(L_before) + exp(L)), and each O is weighted by exp(its L - L').
template <class T, int d>
__device__ void merge_rows(const Problem& p, const Merge& merge, int b, int h, int first_row,
                           const float (&O)[d / 2], const float (&m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + 16 * warp + lane / 4 + 8 * r;
        const std::int64_t index = (std::int64_t{b} * p.H + h) * merge.rows + row;
        const float L_before = merge.first || row >= p.Nq ? -inf : load(&p.L[index]);
        __syncwarp();  // all lanes of the row have read L
        float l = lane_l[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        if (row >= p.Nq) continue;
        const float L = (m[r] + log2f(l)) * ln_2;
        const float larger = fmaxf(L, L_before), top = larger == -inf ? 0.0f : larger;
        const float weight = fast_exp2((L - top) * log2_e),
                    weight_before = fast_exp2((L_before - top) * log2_e);
        const float total = weight + weight_before, inverse = total == 0.0f ? 0.0f : divide(1.0f, total);
        const float scale = l == 0.0f ? 0.0f : divide(weight * inverse, l);
        const float scale_before = weight_before * inverse;
        if (lane % 4 == 0) store(&p.L[index], top + log2f(total) * ln_2);
        float* sum = merge.O + index * d + lane % 4 * 2;
        T* final_O = matrix<T>(p.O, b, h) + row * p.O.row + lane % 4 * 2;
#pragma unroll
        for (int c = 2 * r; c < d / 2; c += 4) {
            float x = O[c] * scale, y = O[c + 1] * scale;
            if (!merge.first) {
                const float2 before = load_pair(&sum[2 * (c - 2 * r)]);
                x += before.x * scale_before, y += before.y * scale_before;
            }
            if (row < merge.final_rows) {
                store_pair(&final_O[2 * (c - 2 * r)], x, y);
            } else {
                store_pair(&sum[2 * (c - 2 * r)], x, y);
            }
        }
    }
}

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies Q, then K and V of each key tile, into three rings.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end merge O and L with those of the steps before.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer that sees the tile multiplies, then arrives at `empty`; for others the producer does.
template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps maps, const TileOrder order, const Merge merge) {
    constexpr int groups = Tile<d>::groups, Br = Tile<d>::Br, Bc = Tile<d>::Bc, depth = Tile<d>::depth;
    constexpr int Q_slots = Tile<d>::Q_slots;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], 128 * groups);  // all threads arrive, since all read `tile`
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1);
            mbarrier_init(&shared.K_empty[slot], groups);
            mbarrier_init(&shared.V_empty[slot], groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    // Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows
    const auto key_tiles = [&](int first_row, int rows) {
        const int end = p.causal ? min(p.Nq, first_row + rows) + p.Nk - p.Nq : p.Nk;
        return first_row >= p.Nq ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
    };
    const int group = uniform(threadIdx.x / 128);
    if (group == 0) {
        release_registers<Tile<d>::producer_registers>();
        if (threadIdx.x > 0) return;
        // Query tile q of this block is number n of all, and k key tiles come before its own.
        for (int k = 0, q = 0, n = blockIdx.x;; ++q) {
            const int Q_slot = q % Q_slots;
            mbarrier_try_wait(&shared.Q_empty[Q_slot], q / Q_slots - 1);
            if (n >= order.total) {
                store(&shared.tile[Q_slot], TileIndex{-1, 0, 0});
                mbarrier_arrive(&shared.Q_full[Q_slot]);
                return;
            }
            const TileIndex tile = order.at<causal>(p, n);
            store(&shared.tile[Q_slot], tile);
            const int b = tile.batch, h = tile.head, i = tile.tile, h_kv = h / (p.H / p.Hkv),
                      Tc = key_tiles(i * Br, Br);
            int own_Tc[groups];
            for (int g = 0; g < groups; ++g) own_Tc[g] = key_tiles(i * Br + 64 * g, 64);
            const auto copy = [&](auto& ring, const TensorMap& map, int j, Mbarrier* full, Mbarrier* empty) {
                const int slot = (k + j) % depth;
                mbarrier_try_wait(&empty[slot], (k + j) / depth - 1);  // tile k + j - depth has been read
                mbarrier_expect(&full[slot], sizeof ring[slot]);
                bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
                for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                    if (j >= own_Tc[g]) mbarrier_arrive(&empty[slot]);
                }
            };
            mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
            for (int g = 0; g < groups; ++g) {
                bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
            }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
            for (int j = 0; j < Tc; ++j) {
                copy(shared.K, maps.K, j, shared.K_full, shared.K_empty);
                copy(shared.V, maps.V, j, shared.V_full, shared.V_empty);
            }
            k += Tc;
            n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
        }
    }

    claim_registers<Tile<d>::consumer_registers>();
    const int g = group - 1;
    const auto wait_turn = [&] {
        if (Tile<d>::turns) named_barrier_sync(1 + g, 256);
    };
    const auto pass_turn = [&] {  // the next warpgroup's
        if (Tile<d>::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const int first_row = i * Br + 64 * g, Tc = key_tiles(first_row, 64),
                  block_Tc = key_tiles(i * Br, Br);
        const int unmasked = min(p.Nk, p.causal ? first_row + p.Nk - p.Nq + 1 : p.Nk);  // keys all rows see
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h, first_row, j, masked);
            shift<d>(p, first_row, j, masked, S, m);
            const bool above = (j == 0) | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == 0, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<T, d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<T, d>(P, shared.V[(k + j) % depth], O);
        };
        if (Tc == 0) {  // no rows
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            k += block_Tc;
            continue;
        }
        start_scores(0);
        wgmma_wait<0>(S);
        release(0, shared.K_empty);
        softmax(0);
        convert<T>(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int j = 1; j < Tc; ++j) {
            wait_turn();
            start_scores(j);
            start_product(j - 1);
            pass_turn();
            wgmma_wait<1>(S);
            release(j, shared.K_empty);
            const bool rises = softmax(j);  // P V of the previous tile may still run
            wgmma_wait<0>(O);
            fence_operand(P);
            release(j - 1, shared.V_empty);
            convert<T>(S, P);
            if (rises) {
#pragma unroll
                for (int c = 0; c < d / 2; ++c) O[c] *= alpha[row_of(c)];
            }
        }
        start_product(Tc - 1);
        // After the last V has arrived: a warpgroup that leaves tiles out waits for none of their phases
        // itself. With its next Q it must know that all of them are complete, since it waits by parity.
        mbarrier_arrive(&shared.Q_empty[Q_slot]);
        for (int j = Tc; j < block_Tc; ++j) wait_turn(), pass_turn();  // for tiles that only others see
        wgmma_wait<0>(O);
        fence_operand(P);
        release(Tc - 1, shared.V_empty);
        merge_rows<T, d>(p, merge, b, h, first_row, O, m, l);
        k += block_Tc;
    }
}

/// Attends to the keys of one step.
template <class T, int d>
void attend(const Problem& p, const Merge& merge) {
    const Maps maps = {
        tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, 64),
        tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
        tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, Tile<d>::Bc),
    };
    const int Tr = ceil_div(p.Nq, Tile<d>::Br), heads = p.B * p.H;
    const double KV_bytes = 4.0 * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    const int section = int(std::clamp((16 << 20) / KV_bytes, 1.0, double(heads)));  // less than half of L2
    const TileOrder order = {Tr, heads, section, Tr * heads, static_cast<unsigned*>(p.workspace)};
    const dim3 grid(std::min(p.sm_count, order.total));
    const auto kernel = p.causal ? attention<T, d, true> : attention<T, d, false>;
    launch(kernel, grid, Tile<d>::threads, sizeof(Shared<T, d>), p, maps, order, merge);
}

/// Bytes of Merge::O for all rows
std::size_t sum_bytes(const Shape& shape) {
    return std::size_t(shape.B) * shape.H * shape.Nq * shape.d * sizeof(float);
}
