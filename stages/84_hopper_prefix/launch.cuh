// The kernel that merges parts, and the host's side. Part of the namespace of the stages that include it.

constexpr int merge_threads = 128;

/// Merges the parts of all rows, as if each were a key tile: m is the largest m_s, l the sum of exp(m_s - m)
/// l_s, and O likewise. A row has parts of its own keys and of the prefix. A warp per row, a lane for d / 32
/// columns. Parts come 16 at a time: none of their loads waits for another.
template <class T, int d, class Types>
__global__ void __launch_bounds__(merge_threads) merge(const Problem p, int most_blocks) {
    const int warp = (blockIdx.x * merge_threads + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int count = PackedRow::count(p), all = p.B * count, h_kv = warp / all, row = warp % all;
    if (h_kv >= p.Hkv) return;
    const auto [b, h, i] = PackedRow(p, h_kv, row);
    const Line<Tile<d>, typename Types::Mask> line(p, most_blocks);
    const int r = row % count / Tile<d>::Br, k = row % count % Tile<d>::Br;
    const Parts own(p, most_blocks, line, line.tile(p, b + 1, line.before(p, b + 1), h_kv * line.Tr + r));
    if (own.splits == 1 && p.prefix == 0) return;  // it is no part
    const Parts shared(p, most_blocks, line, line.tile(p, 0, 0, h_kv * line.prefix_Tr + row / Tile<d>::Br));
    const int splits = own.splits + (p.prefix > 0 ? shared.splits : 0);
    const Workspace<Tile<d>> from(p, most_blocks);
    wait_for_previous_kernel();  // all parts are written
    float m = -inf, l = 0.0f;
    float2 O[d / 64] = {};  // columns 2 lane and 2 lane + 1 of each 64
    for (int first = 0; first < splits; first += 16) {
        float2 m_l[16], O_s[16][d / 64];
        const float m_old = m;
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const int of_prefix = first + s - own.splits;
            const bool valid = first + s < splits;
            const int part = of_prefix < 0 ? own.row(first + s, k) : shared.row(of_prefix, row % Tile<d>::Br);
            m_l[s] = valid ? load_pair(from.m_l + 2 * part) : float2{-inf, 0.0f};
            m = fmaxf(m, m_l[s].x);
#pragma unroll
            for (int n = 0; n < d / 64; ++n) {
                O_s[s][n] = valid ? load_pair(from.O + std::int64_t{part} * d + 64 * n + 2 * lane) : float2{};
            }
        }
        const float m_used = m == -inf ? 0.0f : m;  // no part has a key: exp(-inf - 0) = 0, not NaN
        const float alpha = fast_exp2(m_old - m_used);
        l *= alpha;
        for (float2& pair : O) pair = {alpha * pair.x, alpha * pair.y};
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            const float alpha_s = fast_exp2(m_l[s].x - m_used);
            l += alpha_s * m_l[s].y;
#pragma unroll
            for (int n = 0; n < d / 64; ++n)
                O[n] = {O[n].x + alpha_s * O_s[s][n].x, O[n].y + alpha_s * O_s[s][n].y};
        }
    }
    const float factor = Types::Sink::add(p, h, m, l);
    const float inverse_l = l == 0.0f ? 0.0f : divide(factor, l);
    T* O_row = matrix<T>(p.O, b, h) + i * p.O.row + 2 * lane;
#pragma unroll
    for (int n = 0; n < d / 64; ++n) {
        store_pair(O_row + 64 * n, O[n].x * inverse_l, O[n].y * inverse_l);
    }
    if (lane == 0) store(p.L + (std::int64_t{b} * p.H + h) * p.Nq + i, (m + log2f(l)) * ln_2);
}

/// One block for each SM. Without a prefix, as many blocks for one query tile as for another, where they are
/// nearly as many as SMs: then all parts of a query tile are equally long, or it has only one.
template <class Tile, class Mask>
int block_count(const Problem& p) {
    const int tiles = p.B * p.Hkv * ceil_div(PackedRow::count(p), Tile::Br);
    const int Tc = ceil_div(Mask::most_keys(p), Tile::Bc), even = tiles * min(Tc, p.sm_count / tiles);
    return p.prefix == 0 && 8 * even >= 7 * p.sm_count ? even : p.sm_count;
}

template <class T, int d, class Types>
void launch_attention(const Problem& p) {
    const int blocks = block_count<Tile<d>, typename Types::Mask>(p);
    launch(attention<T, d, Types>, dim3(blocks), Tile<d>::threads, sizeof(Shared<T, d>), p);
    const dim3 merge_blocks(ceil_div(p.B * p.H * p.Nq, merge_threads / 32));
    launch<Start::early>(merge<T, d, Types>, merge_blocks, merge_threads, 0, p, blocks);
}

std::size_t workspace_bytes(const Shape& s, int sm_count) {  // d does not change Br
    return Workspace<Tile<64>>::rows(s, sm_count) * (s.d + 2) * sizeof(float);
}
