// P and what is added to O and l by it.
// Included by kernels of the part inside of their namespace.

/// Starts O += P V.
template <int d, int Bc = Tile<d>::Bc>
__device__ void add_product(const std::uint32_t (&P)[Bc / 8], const e4m3x2 (&V)[d][64], float (&O)[d / 2]) {
    const Descriptor v = matrix_descriptor(V);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc; k += 32) wgmma_e4m3<d>(O, &P[k / 8], v.column<d>(k / 2), true);
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
