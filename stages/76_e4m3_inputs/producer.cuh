// The mbarriers of a block, and what its producer and transposing warps do.
// Included by kernels of the part inside of their namespace.

/// Sets up the mbarriers of the rings.
template <class T, int d, class Sizes>
__device__ void begin(Shared<T, d, Sizes>& shared) {
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Sizes::Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            mbarrier_init(&shared.Q_empty[slot], Sizes::threads - 32);  // all that read `tile` arrive
        }
        for (int slot = 0; slot < Sizes::depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], transposing_warps);
            mbarrier_init(&shared.K_empty[slot], Sizes::groups);
            mbarrier_init(&shared.V_empty[slot], Sizes::groups);
        }
        for (int slot = 0; slot < Sizes::V_slots; ++slot) {
            mbarrier_init(&shared.rows_full[slot], 1);
            mbarrier_init(&shared.rows_empty[slot], transposing_warps);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
}

/// Key tiles that these rows see; if they see none, one that is masked; 0 if there are no rows.
template <int Bc>
__device__ int key_tiles(const Problem& p, int first_row, int rows) {
    const int end = p.causal ? min(p.Nq, first_row + rows) + p.Nk - p.Nq : p.Nk;
    return first_row >= p.Nq ? 0 : max(1, ceil_div(min(p.Nk, end), Bc));
}

/// What the producer's warpgroup does: one thread copies, and its other warps transpose.
template <bool causal, class T, int d, class Sizes>
__device__ void produce(const Problem& p, const PanelMaps<d>& maps, const TileOrder& order,
                        Shared<T, d, Sizes>& shared) {
    constexpr int groups = Sizes::groups, Br = Sizes::Br, Bc = Sizes::Bc, depth = Sizes::depth;
    constexpr int Q_slots = Sizes::Q_slots, V_slots = Sizes::V_slots, panels = ceil_div(d, 128);
    release_registers<Sizes::producer_registers>();
    const int warp = uniform(threadIdx.x / 32);
    for (int k = 0, q = 0; warp > 0; ++q) {  // transposes the tiles that the producer's thread copies
        mbarrier_try_wait(&shared.Q_full[q % Q_slots], q / Q_slots);
        const TileIndex tile = load(&shared.tile[q % Q_slots]);
        if (tile.batch < 0) return;
        mbarrier_arrive(&shared.Q_empty[q % Q_slots]);
        const int first_row = tile.tile * Br, end = uniform(k + key_tiles<Bc>(p, first_row, Br));
        // Warp 1 + g releases the tiles that warpgroup g does not see.
        const int seen = warp > groups ? end : k + key_tiles<Bc>(p, first_row + 64 * (warp - 1), 64);
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (; k < end; ++k) {
            const int slot = k % depth;
            mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);  // tile k - depth has been read
#pragma unroll 1  // a copy for each panel would keep addresses of its own
            for (int panel = 0; panel < panels; ++panel) {
                const int n = panels * k + panel, rows_slot = n % V_slots;
                mbarrier_try_wait(&shared.rows_full[rows_slot], n / V_slots);
                transpose<d / panels>(warp, shared.V_rows[rows_slot], shared.V[slot] + 128 * panel);
                fence_proxy_async();  // for wgmma, what stmatrix has written
                __syncwarp();         // all lanes have read and written
                if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.rows_empty[rows_slot]);
            }
            if (threadIdx.x % 32 > 0) continue;
            mbarrier_arrive(&shared.V_full[slot]);
            if (k >= seen) mbarrier_arrive(&shared.V_empty[slot]);
        }
    }
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
                  Tc = key_tiles<Bc>(p, i * Br, Br);
        int own_Tc[groups];
        for (int g = 0; g < groups; ++g) own_Tc[g] = key_tiles<Bc>(p, i * Br + 64 * g, 64);
        const auto copy = [&](auto& ring, const TensorMap& map, int slots, int number, int j, Mbarrier* full,
                              Mbarrier* empty) {
            const int slot = number % slots;                      // of this copy, by its number in the ring
            mbarrier_try_wait(&empty[slot], number / slots - 1);  // number - slots has been read
            mbarrier_expect(&full[slot], sizeof ring[slot]);
            bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);
        };
        mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
        for (int g = 0; g < groups; ++g) {
            bulk_load(shared.Q[Q_slot][g], &maps.Q, i * Br + 64 * g, h, b, &shared.Q_full[Q_slot]);
        }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (int j = 0; j < Tc; ++j) {
            copy(shared.K, maps.K, depth, k + j, j, shared.K_full, shared.K_empty);
            for (int g = 0; g < groups; ++g) {  // one that does not see the tile does not wait for it
                if (j >= own_Tc[g]) mbarrier_arrive(&shared.K_empty[(k + j) % depth]);
            }
            for (int panel = 0; panel < panels; ++panel) {
                copy(shared.V_rows, maps.V[panel], V_slots, panels * (k + j) + panel, j, shared.rows_full,
                     shared.rows_empty);
            }
        }
        k += Tc;
        n = gridDim.x + atomicInc(order.taken, order.total - 1);  // the last block's request wraps to 0
    }
}
