// V, whose keys are to lie along the rows.
// Included by kernels of the part inside of their namespace.

/// Transposes a warp's share of a panel of V: 16 columns at a time become 16 rows. To ldmatrix, two adjacent
/// columns are one 16-bit element: lane 4 g + t gets columns 2 g and 2 g + 1 of keys 2 t and 2 t + 1, and in
/// the next register those of keys 2 t + 8 and 2 t + 9. A column's bytes of both are four keys in the order
/// of key_at. Lanes with g < 4 take column 2 g first, others 2 g + 1: any 8 rows that stmatrix writes
/// together differ modulo 8, so that their pieces lie in different banks.
template <int columns, int Bc>
__device__ void transpose(int warp, const e4m3x2 (&rows)[Bc][64], e4m3x2 (*V)[64]) {
    const int lane = threadIdx.x % 32;
    const unsigned first = lane < 16 ? 0x6420 : 0x7531, second = first ^ 0x1111;  // a column's bytes
    const int row = lane % 8 * 2 + (lane / 4 % 2 ^ lane / 8 % 2);  // of 16, the one that stmatrix writes
#pragma unroll 1                                                   // few registers are left to these warps
    for (int c = 8 * (warp - 1); c < columns / 2; c += 8 * transposing_warps) {
        int to[] = {64 * row + (lane / 16 ^ row % 8) * 8};  // keys 0 to 15 of that row, or 16 to 31
        fence_operand(to);  // to nvcc: addresses are computed from it anew, since they would fill registers
        std::uint32_t r[Bc / 32][4];
#pragma unroll
        for (int n = 0; n < Bc / 32; ++n) ldmatrix_transposed(r[n], &rows[32 * n + lane][c ^ lane % 8 * 8]);
        __syncwarp();  // to ptxas: all reads start before the first result is written
#pragma unroll
        for (int n = 0; n < Bc / 32; ++n) {
            stmatrix(V[2 * c] + (16 * n ^ to[0]),
                     {__byte_perm(r[n][0], r[n][1], first), __byte_perm(r[n][0], r[n][1], second),
                      __byte_perm(r[n][2], r[n][3], first), __byte_perm(r[n][2], r[n][3], second)});
        }
    }
}
