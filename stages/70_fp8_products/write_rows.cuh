// P in 8 bits, and a warp's rows of O on their way to global memory.
// Included by kernels of the part inside of their namespace.

/// P as the A operand of P V: a lane's accumulators of S are its elements of that operand, which is why the
/// keys of V have another order.
template <int n>
__device__ void convert(const float (&S)[n], std::uint32_t (&P)[n / 4]) {
#pragma unroll
    for (int c = 0; c < n; c += 16) pack_operand_e4m3(&P[c / 4], &S[c]);
}

/// Writes O scale_V / l of the warp's 16 rows to global memory through its O_tile, some panels at a time;
/// and L = m + log(l), where l is the sum over the four lanes of a row.
template <class T, int d, int panels = Tile<d>::O_panels>
__device__ void write_rows(const Problem& p, const TensorMap& map, int b, int h, int first_row,
                           T (&O_tile)[panels][16][64], const float (&O)[d / 2], const float (&m)[2],
                           const float (&lane_l)[2], float scale_V) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float inverse_l[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = lane_l[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        inverse_l[r] = l == 0.0f ? 0.0f : divide(scale_V, l);
        const int row = first_row + 16 * warp + lane / 4 + 8 * r;
        float* L = p.L + (std::int64_t{b} * p.H + h) * p.Nq + row;
        if (row < p.Nq && lane % 4 == 0) store(L, (m[r] + log2f(l)) * ln_2);
    }
#pragma unroll
    for (int panel = 0; panel < d / 64; panel += panels) {
        if (lane == 0) bulk_wait_read<0>();  // the previous store has read the tile
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 64 * panels; c += 16) {
            std::uint32_t x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float* pair = &O[(64 * panel + c) / 2 + 2 * k];
                x[k] = pack<T>(pair[0] * inverse_l[k % 2], pair[1] * inverse_l[k % 2]);
            }
            const int row = a_row(lane), column = c % 64 + a_column(lane);
            stmatrix(&O_tile[c / 64][row][column ^ row % 8 * 8], x);
        }
        fence_proxy_async();
        __syncwarp();  // the warp's rows of O are complete, whichever lane wrote them
        if (lane == 0) {
            bulk_store(&map, O_tile, panel, first_row + 16 * warp, h, b);
            bulk_commit();
        }
    }
}
