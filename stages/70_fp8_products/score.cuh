// S = Q K^T of a tile.
// Included by kernels of the part inside of their namespace.

/// S = Q K^T, (64, Bc) for this warpgroup (algorithm 1, line 8). Starts it: S is complete after a wait.
template <int d, int panels, int Bc = Tile<d>::Bc>
__device__ void score(const e4m3x2 (&Q)[panels][64][64], const e4m3x2 (&K)[panels][Bc][64],
                      float (&S)[Bc / 2]) {
    const Descriptor q = matrix_descriptor(Q), k = matrix_descriptor(K);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < d / 2; c += 16) {
        wgmma_e4m3<Bc>(S, q.column<64>(c), k.column<Bc>(c), c > 0);
    }
    wgmma_commit();
}
