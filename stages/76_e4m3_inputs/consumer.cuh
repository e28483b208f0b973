// The products and the softmax of a warpgroup.
// Included by kernels of the part inside of their namespace.

/// What warpgroup g of those that multiply does.
template <class T, int d, class Sizes>
__device__ void consume(const Problem& p, const PanelMaps<d>& maps, Shared<T, d, Sizes>& shared, int g) {
    constexpr int groups = Sizes::groups, Br = Sizes::Br, Bc = Sizes::Bc, depth = Sizes::depth,
                  Q_slots = Sizes::Q_slots;
    claim_registers<Sizes::consumer_registers>();
    const int lane = threadIdx.x % 32;
    const auto wait_turn = [&] {
        if (Sizes::turns) named_barrier_sync(1 + g, 256);
    };
    const auto pass_turn = [&] {  // the next warpgroup's
        if (Sizes::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const int b = tile.batch, h = tile.head, i = tile.tile;
        const int h_kv = b * p.Hkv + h / (p.H / p.Hkv);  // of all
        const float scale_S = load(p.Q_scales + b * p.H + h) * load(p.K_scales + h_kv);
        const int first_row = i * Br + 64 * g, Tc = key_tiles<Bc>(p, first_row, 64),
                  block_Tc = key_tiles<Bc>(p, i * Br, Br);
        const int unmasked = min(p.Nk, p.causal ? first_row + p.Nk - p.Nq + 1 : p.Nk);  // keys all rows see
        const auto release = [&](Mbarrier& empty) {  // after the wait for the product that read the slot
            if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 8];
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
            const bool masked = (j + 1) * Bc > unmasked;
            note_tile<Bc>(b, h, first_row, j, masked);
            shift<d, Bc>(p, p.scale * log2_e * scale_S, first_row, j, masked, S, m);  // in base 2
            const bool above = (j == 0) | (positive_max(S) > limit);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(j == 0, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(first_row + threadIdx.x / 32 % 4 * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            score<d>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            add_product<d, Bc>(P, shared.V[(k + j) % depth], O);
        };
        if (Tc == 0) {  // no rows
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int j = 1; j < block_Tc; ++j) wait_turn(), pass_turn();
            k += block_Tc;
            continue;
        }
        start_scores(0);
        wgmma_wait<0>(S);
        release(shared.K_empty[k % depth]);
        softmax(0);
        convert(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int j = 1; j < Tc; ++j) {
            wait_turn();
            start_scores(j);
            start_product(j - 1);
            pass_turn();
            wgmma_wait<1>(S);
            release(shared.K_empty[(k + j) % depth]);
            const bool rises = softmax(j);  // P V of the previous tile may still run
            wgmma_wait<0>(O);
            fence_operand(P);
            release(shared.V_empty[(k + j - 1) % depth]);
            convert(S, P);
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
        release(shared.V_empty[(k + Tc - 1) % depth]);
        write_rows<T, d>(p, maps.O, b, h, first_row, shared.O[threadIdx.x / 32 - 4], O, m, l,
                         load(p.V_scales + h_kv));
        k += block_Tc;
    }
    if (lane == 0) bulk_wait_read<0>();
}
