// An attention forward of Hopper's instructions, which the tests run on the CPU back-end, race-checked: a
// warp that copies by tensor maps, warpgroups that take turns at wgmma, blocks that stay and take query tiles
// from a counter. It is no stage of the ladder.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

constexpr float threshold = 8.0f;  // P stays below 2^8, which fp16 holds

/// All that depends on d.
template <int d>
struct Tile {
    static constexpr int groups = d == 64 ? 3 : 2;  // consumer warpgroups, of 64 rows each
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d <= 128 ? 128 : 64;
    static constexpr int depth = d == 64 ? 4 : 2;  // places of K and V in shared memory
    static constexpr int Q_places = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 ? 1 : 2;  // of 64 columns that are stored together
    static constexpr bool turns = d <= 128;           // one group multiplies while another exponentiates
    static constexpr int threads = 128 * (groups + 1);
    static constexpr int producer_registers = groups == 3 ? 32 : 40;
    static constexpr int consumer_registers = groups == 3 ? 160 : 232;
};

template <class T, int d, class Tile = Tile<d>>
struct Shared {
    alignas(1024) T Q[Tile::Q_places][Tile::groups][d / 64][64][64];  // panels of 64 columns
    alignas(1024) T K[Tile::depth][d / 64][Tile::Bc][64];
    alignas(1024) T V[Tile::depth][d / 64][Tile::Bc][64];
    alignas(1024) T O[Tile::groups * 4][Tile::O_panels][16][64];
    Mbarrier Q_there[Tile::Q_places], Q_read[Tile::Q_places];
    Mbarrier K_there[Tile::depth], K_read[Tile::depth];
    Mbarrier V_there[Tile::depth], V_read[Tile::depth];
    int4 tile[Tile::Q_places];  // the query tile whose Q it is: b, h, i; none if i < 0
};

struct Maps {
    TensorMap Q, K, V, O;
};

/// The query tiles in the order in which blocks take them: without a mask head by head; with one the longest
/// first, of as many heads together as the L2 cache has room for.
struct Order {
    int Tr, section, total, heads, H;  // heads = B H
    unsigned* counter;                 // of tiles that were taken behind the first of each block
};

struct Where {
    int b, h, i;
};

template <bool causal>
__device__ Where where(const Order& o, int t) {
    Where w;
    int head;
    if constexpr (causal) {
        const int s = t / (o.section * o.Tr), r = t % (o.section * o.Tr);
        const int in = min(o.section, o.heads - s * o.section);
        w.i = o.Tr - 1 - r / in;
        head = s * o.section + r % in;
    } else {
        head = t / o.Tr;
        w.i = t % o.Tr;
    }
    w.b = head / o.H;
    w.h = head % o.H;
    return w;
}

template <class T, int d, bool causal>
__global__ void __launch_bounds__(Tile<d>::threads, 1)
    attention(const Problem p, const __grid_constant__ Maps maps, const Order order) {
    using Tile = ::Tile<d>;
    constexpr int groups = Tile::groups, Br = Tile::Br, Bc = Tile::Bc, places = Tile::depth,
                  Q_places = Tile::Q_places;
    auto& shared = aligned_shared_memory<Shared<T, d>>();
    const int group = uniform(threadIdx.x / 128);  // 0 produces
    if (threadIdx.x == 0) {
        for (int n = 0; n < Q_places; ++n) {
            mbarrier_init(&shared.Q_there[n], 1);
            mbarrier_init(&shared.Q_read[n], 4 * groups);  // once per warp: all of its lanes read `tile`
        }
        for (int n = 0; n < places; ++n) {
            mbarrier_init(&shared.K_there[n], 1);
            mbarrier_init(&shared.V_there[n], 1);
            mbarrier_init(&shared.K_read[n], groups);
            mbarrier_init(&shared.V_read[n], groups);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    const auto tiles =
        [&](int i) {  // Tc: key tiles that query tile i sees; where it sees none, one that is masked
            const int diagonal = p.causal ? i * Br + p.Nk - p.Nq : p.Nk;
            return max(1, ceil_div(min(p.Nk, diagonal + Br), Bc));
        };

    if (group == 0) {
        release_registers<Tile::producer_registers>();
        if (threadIdx.x == 0) {
            int n = 0, q = 0;
            for (int t = blockIdx.x;; ++q) {
                const int place = q % Q_places;
                mbarrier_try_wait(&shared.Q_read[place], q / Q_places - 1);
                if (t >= order.total) {
                    store(&shared.tile[place], make_int4(0, 0, -1, 0));
                    mbarrier_arrive(&shared.Q_there[place]);
                    break;
                }
                const Where w = where<causal>(order, t);
                const int Tc = tiles(w.i), h_kv = w.h / (p.H / p.Hkv);
                t = gridDim.x + atomicInc(order.counter, order.total - 1);
                store(&shared.tile[place], make_int4(w.b, w.h, w.i, 0));
                mbarrier_expect(&shared.Q_there[place], sizeof shared.Q[place]);
                for (int g = 0; g < groups; ++g)
                    bulk_load(shared.Q[place][g], &maps.Q, w.i * Br + 64 * g, w.h, w.b,
                              &shared.Q_there[place]);
                const auto load = [&](auto& ring, const TensorMap* map, Mbarrier* there, Mbarrier* read,
                                      int j) {
                    const int place = n % places;
                    mbarrier_try_wait(&read[place], n / places - 1);
                    mbarrier_expect(&there[place], sizeof ring[place]);
                    bulk_load(ring[place], map, j * Bc, h_kv, w.b, &there[place]);
                };
#pragma unroll 1
                for (int j = Tc - 1; j >= 0; --j, ++n) {
                    load(shared.K, &maps.K, shared.K_there, shared.K_read, j);
                    load(shared.V, &maps.V, shared.V_there, shared.V_read, j);
                }
            }
        }
    } else {
        claim_registers<Tile::consumer_registers>();
        const int g = group - 1, thread = threadIdx.x % 128, warp = thread / 32, lane = threadIdx.x % 32;
        const auto my_turn = [&] {
            if (Tile::turns) named_barrier_sync(1 + g, 256);
        };
        const auto your_turn = [&] {
            if (Tile::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
        };
        if (Tile::turns && g == groups - 1) named_barrier_arrive(1, 256);  // the first turn is group 0's
        const float scale = p.scale * log2_e;
        const auto has_read = [&](Mbarrier* read) {
            if (thread == 0) mbarrier_arrive(read);
        };
        float S[Bc / 2], O[d / 2], m[2] = {}, l[2] = {}, alpha[2];
        bool seen[2] = {};
        std::uint32_t P[Bc / 4];

        const auto score = [&](int n, int q) {
            n = uniform(n), q = uniform(q);
            mbarrier_try_wait(&shared.K_there[n % places], n / places);
            my_turn();
            const std::uint64_t Q = matrix_descriptor(shared.Q[q % Q_places][g], 0, 1024),
                                K = matrix_descriptor(shared.K[n % places], 0, 1024);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < d; k += 16) {
                wgmma<T, Bc, false>(S, Q + (k / 64 * 64 * 128 + k % 64 * 2) / 16,
                                    K + (k / 64 * Bc * 128 + k % 64 * 2) / 16, k > 0);
            }
            wgmma_commit();
        };
        const auto add_product = [&](int n) {
            n = uniform(n);
            mbarrier_try_wait(&shared.V_there[n % places], n / places);
            const std::uint64_t V = matrix_descriptor(shared.V[n % places], Bc * 128, 1024);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < Bc; k += 16) {
                wgmma<T, d, true>(O, &P[k / 4], V + k * 128 / 16, true);
            }
            wgmma_commit();
        };
        // S becomes P; m, l and alpha follow if a score exceeds m by much. Says whether O must.
        const auto softmax = [&](const Where& w, int j) -> bool {
            const int group_row = w.i * Br + 64 * g, first_row = group_row + 16 * warp + lane / 4;
            const int last = p.causal ? min(p.Nk - 1, group_row + p.Nk - p.Nq)
                                      : p.Nk - 1;  // what the group's first row sees
            const bool masked = (j + 1) * Bc > last + 1;
            note_tile<Bc>(w.b, w.h, group_row, j, masked);
            bool above = !(seen[0] & seen[1]);
#pragma unroll
            for (int c = 0; c < Bc / 2; ++c) S[c] = S[c] * scale - m[c / 2 % 2];
            if (masked) {
                int keys[2];  // that rows g and g + 8 see, from this lane's first on
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    keys[r] = (causal ? min(p.Nk, first_row + 8 * r + p.Nk - p.Nq + 1) : p.Nk) - j * Bc -
                              2 * (lane % 4);
                }
#pragma unroll
                for (int c = 0; c < Bc / 2; ++c) {
                    if (c % 2 + c / 4 * 8 >= keys[c / 2 % 2]) S[c] = -inf;
                }
            }
            float top[2] = {-inf, -inf};
#pragma unroll
            for (int c = 0; c < Bc / 2; ++c) top[c / 2 % 2] = fmaxf(top[c / 2 % 2], S[c]);
            above |= (top[0] > threshold) | (top[1] > threshold);
            above = __any_sync(~0u, above);
            if (above) {
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    float rise = top[r];
                    rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 1));
                    rise = fmaxf(rise, __shfl_xor_sync(~0u, rise, 2));
                    const bool fresh = !seen[r];
                    seen[r] = seen[r] || rise != -inf;
                    rise = rise == -inf ? 0.0f : fresh ? rise : fmaxf(rise, 0.0f);
                    alpha[r] = fresh ? 0.0f : fast_exp2(-rise);
                    m[r] += rise;
                    l[r] *= alpha[r];
#pragma unroll
                    for (int c = 0; c < Bc / 2; ++c)
                        if (c / 2 % 2 == r) S[c] -= rise;
                }
            }
#pragma unroll
            for (int c = 0; c < Bc / 2; ++c) {
                S[c] = fast_exp2(S[c]);
                l[c / 2 % 2] += S[c];
            }
            note_lane_sums(group_row + 16 * warp, m, l);
            return above;
        };
        const auto convert = [&] {
#pragma unroll
            for (int c = 0; c < Bc / 4; ++c) P[c] = pack<T>(S[2 * c], S[2 * c + 1]);
        };
        // L = m + log(l); l becomes 1 / l
        const auto finish = [&](const Where& w) {
            const int first_row = w.i * Br + 64 * g + 16 * warp + lane / 4;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                l[r] += __shfl_xor_sync(~0u, l[r], 1);
                l[r] += __shfl_xor_sync(~0u, l[r], 2);
                const int row = first_row + 8 * r;
                if (row < p.Nq && lane % 4 == 0)
                    store(&p.L[(std::int64_t{w.b} * p.H + w.h) * p.Nq + row], (m[r] + log2f(l[r])) * ln_2);
                l[r] = l[r] == 0.0f ? 0.0f : divide(1.0f, l[r]);
            }
        };
        const auto write = [&](const Where& w, const float(&inverse_l)[2]) {
            auto& O_tile = shared.O[4 * g + warp];
#pragma unroll
            for (int panel = 0; panel < d / 64; panel += Tile::O_panels) {
                if (lane == 0) bulk_wait_read<0>();
                __syncwarp();
#pragma unroll
                for (int c = 4 * panel; c < 4 * (panel + Tile::O_panels); ++c) {
                    std::uint32_t x[4];
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        x[k] = pack<T>(O[8 * c + 2 * k] * inverse_l[k % 2],
                                       O[8 * c + 2 * k + 1] * inverse_l[k % 2]);
                    const int row = lane % 16, column = 16 * c % 64 + lane / 16 * 8;
                    stmatrix(&O_tile[c / 4 - panel][row][column ^ row % 8 * 8], x);
                }
                fence_proxy_async();
                __syncwarp();
                if (lane == 0) {
                    bulk_store(&maps.O, O_tile, panel, w.i * Br + 64 * g + 16 * warp, w.h, w.b);
                    bulk_commit();
                }
            }
        };

        // the next query tile, when its Q is there
        int n = 0, q = 0;
        const auto take = [&] {
            mbarrier_try_wait(&shared.Q_there[q % Q_places], q / Q_places);
            const int4 tile = load(&shared.tile[q % Q_places]);
            return Where{uniform(tile.x), uniform(tile.y), uniform(tile.z)};
        };
        const auto has_scored = [&](int n, bool last) {
            has_read(&shared.K_read[n % places]);
            if (last) {
                __syncwarp();
                if (lane == 0) mbarrier_arrive(&shared.Q_read[q % Q_places]);
            }
        };
        // The first key tile that this group sees, of the block's; n counts on to the one before
        const auto skip = [&](int i) {
            int j = tiles(i) - 1;
            if constexpr (causal && Br - 64 >= Bc) {
                const int mine = max(1, ceil_div(min(p.Nk, i * Br + 64 * g + p.Nk - p.Nq + 64), Bc));
#pragma unroll 1
                for (; j >= mine; --j) {
                    ++n;
                    my_turn();
                    your_turn();
                    mbarrier_try_wait(&shared.K_there[n % places], n / places);
                    has_read(&shared.K_read[n % places]);
                    mbarrier_try_wait(&shared.V_there[n % places], n / places);
                    has_read(&shared.V_read[n % places]);
                }
            }
            return j;
        };
        Where w = take();
        n = -1;
        int j = skip(w.i);
        ++n;
        score(n, q);
        your_turn();
        wgmma_wait<0>(S);
        has_scored(n, j == 0);
        softmax(w, j);
        convert();
        for (;;) {
#pragma unroll
            for (int k = 0; k < d / 2; ++k) O[k] = 0.0f;
#pragma unroll 1
            while (--j >= 0) {
                score(n + 1, q);
                add_product(n);
                your_turn();
                wgmma_wait<1>(S);
                has_scored(n + 1, j == 0);
                const bool rescaled = softmax(w, j);
                wgmma_wait<0>(O);
                hold(P);
                has_read(&shared.V_read[n % places]);
                convert();
                if (rescaled) {
#pragma unroll
                    for (int c = 0; c < d / 2; ++c) O[c] *= alpha[c / 2 % 2];
                }
                ++n;
            }
            ++q;
            const Where next = take();
            if (next.i < 0) break;
            const int n_last = n;
            j = skip(next.i);
            score(n + 1, q);
            add_product(n_last);
            your_turn();
            wgmma_wait<1>(S);
            has_scored(n + 1, j == 0);
            finish(w);
            const float inverse_l[2] = {l[0], l[1]};
            m[0] = m[1] = l[0] = l[1] = 0.0f;
            seen[0] = seen[1] = false;
            softmax(next, j);
            wgmma_wait<0>(O);
            hold(P);
            has_read(&shared.V_read[n_last % places]);
            convert();
            write(w, inverse_l);
            w = next;
            ++n;
        }
        add_product(n);
        finish(w);
        wgmma_wait<0>(O);
        write(w, l);
        if (lane == 0) bulk_wait_read<0>();
    }
}

template <class T, int d, bool causal>
void run(const Problem& p) {
    using Tile = ::Tile<d>;
    const Maps maps = {tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, 64),
                       tensor_map<T, d>(p.K, p.B, p.Hkv, p.Nk, Tile::Bc),
                       tensor_map<T, d>(p.V, p.B, p.Hkv, p.Nk, Tile::Bc),
                       tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Tile::O_panels)};
    Order order;
    order.Tr = ceil_div(p.Nq, Tile::Br);
    order.heads = p.B * p.H;
    order.H = p.H;
    order.total = order.Tr * order.heads;
    const long long head_bytes = 4LL * p.Nk * d * p.Hkv / p.H;  // of K and V, per query head
    order.section = int(std::min<long long>(
        order.heads, std::max<long long>(1, (32LL << 20) / std::max<long long>(1, head_bytes))));
    order.counter = static_cast<unsigned*>(p.workspace);
    launch(attention<T, d, causal>, dim3(std::min(p.sm_count, order.total)), Tile::threads,
           sizeof(Shared<T, d>), p, maps, order);
}

template <class T, int d>
void forward(const Problem& p) {
    p.causal ? run<T, d, true>(p) : run<T, d, false>(p);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}

using Dims = HeadDims<64, 128, 256>;
LADDER_STAGE(forward, Dims, .number = 30, .name = "hopper_forward", .parent = 26,
             .change = "Hopper's instructions", .shows_in = "wide", .workspace_bytes = counter_bytes,
             .counter_bytes = counter_bytes);

}  // namespace
