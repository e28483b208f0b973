// Gradients under a mask at d = 256: 57's two roles, which ask the types of gradients.cuh. Part of the
// namespace of the stages that include it, after gradients.cuh and launch.cuh. Warpgroup 0 sums up dV; it
// asks the mask and the score, since it computes P. Warpgroup 1 sums up dK; it gets P times the score's
// slope.

/// More named barriers, by what is true when they are complete
enum {
    P_full = 9,          // P has been written, and may be written no more until dS_full
    warpgroup_full = 10  // by warpgroups: what its own warps write is complete
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d, class Types>
struct SharedByRoles {
    alignas(1024) T K[d / 64][64][64];  // then dK
    alignas(1024) T V[d / 64][64][64];  // then dV
    alignas(1024) T Q[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dO[depth][d / 64][Tile<d>::Br][64];
    alignas(1024) T dS[Tile<d>::Br][64];       // rows are queries
    alignas(1024) std::uint32_t P[4][128][4];  // P^T times the slope, as the threads of a warpgroup hold it
    float L[depth][Tile<d>::Br], D[depth][Tile<d>::Br];
    Mbarrier keys_full, full[depth], empty[depth];
    [[no_unique_address]] typename Types::Mask::Shared mask;
    [[no_unique_address]] typename Types::Order::Shared order;
    typename Types::Dropout::template Words<Tile<d>::Br> kept[depth];
};

/// A block computes dK and dV of a key tile, and adds to dQ of each query tile that sees it.
/// - Producer: copies K and V, then Q, dO, L and D of each query tile that sees a key, into a ring.
/// - Warpgroup 0 accumulates dV: P^T from S^T = K Q^T, which it hands over (P_full), and dV += P^T dO.
/// - Warpgroup 1 accumulates dK: dS^T from dP^T = V dO^T and P^T, for both (dS_full), and dK += dS^T Q.
/// - Each multiplies half of the columns of dQ = dS K, and adds them to the sums from its registers.
/// - With dropout, the producer's warps also write the random bits of each query tile to its slot.
/// A slot's life: the producer waits for `empty` and starts the copies; `full` completes when all bytes have
/// arrived; consumers multiply, and all their threads arrive at `empty` after the last product that reads it.
template <class T, int d, class Types>
__global__ void __launch_bounds__(threads, 1)
    gradients_by_roles(const Problem p, const __grid_constant__ Maps maps, const TileOrder order,
                       const typename Types::Mask::Lists lists) {
    using Place = typename Types::Place;
    using Score = typename Types::Score;
    using Dropout = typename Types::Dropout;
    using Order = typename Types::Order;
    static_assert(!Dropout::draws || std::is_same_v<Place, Dense>);  // as in gradients.cuh
    constexpr int Br = Tile<d>::Br, Bc = Tile<d>::Bc;
    constexpr int producers = Dropout::draws ? Bc : 1;  // threads; for each 32 keys a warp draws bits
    using QueryTiles = typename Types::Mask::template QueryTiles<Br, Bc>;
    static_assert(QueryTiles::Visit::rows == Br);
    auto& shared = aligned_shared_memory<SharedByRoles<T, d, Types>>();
    TileIndex tile = order.at(p, Order::template number<d>(p, shared.order));
    if (Order::last_first) tile.tile = order.Tc - 1 - tile.tile;
    const KeyTile own = Place::key_tile(p, tile, Bc);
    if (Place::leaves_out(own)) return;
    const int h_kv = own.head, b = own.batch;
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.keys_full, 1);
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.full[slot], Dropout::draws ? 1 + producers : 1);
            mbarrier_init(&shared.empty[slot], 128 * groups);
        }
        if constexpr (Order::has_turns) {
            for (int g = 0; g < groups; ++g) {
                mbarrier_init(&shared.order.turn[g], 1);
                mbarrier_init(&shared.order.added[g], 128);
            }
        }
        mbarrier_fence_init();
    }
    QueryTiles tiles(p, own, lists, shared.mask);  // of each head of the group, that see a key
    __syncthreads();  // the mbarriers are set up, and what the mask has written is complete
    tiles.complete(shared.mask);
    const int total = tiles.count(own), group = uniform(threadIdx.x / 128);
    auto visit = tiles.visit(own, 0);
    if (group == 0) {
        release_registers<24>();
        const bool loads = threadIdx.x == 0;
        if constexpr (Order::has_turns) {  // of each warpgroup: a thread of a warp that draws no bits
            const int G = threadIdx.x / 32 - groups;
#pragma unroll 1
            for (int k = 0; k < total && G >= 0 && threadIdx.x % 32 == 0; ++k, visit.next()) {
                Order::template wait_turn<d>(p, own, visit, G);
                mbarrier_arrive(&shared.order.turn[G]);
                mbarrier_try_wait(&shared.order.added[G], k);
                Order::template pass_turn<d>(p, own, visit, G);
            }
        }
        if (threadIdx.x >= producers) return;
        if (loads) {
            mbarrier_expect(&shared.keys_full, sizeof shared.K + sizeof shared.V);
            bulk_load(shared.K, &maps.K, own.first, h_kv, b, &shared.keys_full);
            bulk_load(shared.V, &maps.V, own.first, h_kv, b, &shared.keys_full);
        }
#pragma unroll 1  // each step waits: copies of the body would gain nothing
        for (int k = 0; k < total; ++k, visit.next()) {
            if (loads) load_queries<d>(shared, p, maps, b, visit, k);
            if constexpr (Dropout::draws) {
                mbarrier_try_wait(&shared.empty[k % depth], k / depth - 1);  // its bits have been read
                Dropout(p).template draw<Br>(p, own, visit, shared.kept[k % depth]);
                mbarrier_arrive(&shared.full[k % depth]);
            }
        }
        return;
    }

    claim_registers<240>();
    const int G = group - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, t = lane % 4;
    float sum[d / 2] = {};                                  // dV or dK, (64, d)
    const auto add_to_dQ = [&](auto& A, int k, int slot) {  // and waits for all products
        float dQ[64];                                       // (64, 128)
        const Descriptor a = matrix_descriptor(shared.dS), x = matrix_descriptor(shared.K, 64).row(128 * G);
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < Bc; c += 16) wgmma<T, 128, true>(dQ, a.column<64>(c), x.row(c), c > 0);
        wgmma_commit();
        wgmma_wait<0>(dQ);
        fence_operand(A), fence_operand(sum);
        mbarrier_arrive(&shared.empty[slot]);
        const auto queries = visit.queries(0);
        float4* to = Sums<d>(p, b, queries.head).dQ + fragment<d>(queries.row + 16 * warp, 128 * G) + lane;
        if constexpr (Order::has_turns) mbarrier_try_wait(&shared.order.turn[G], k);
#pragma unroll
        for (int c = 0; c < 64; c += 4) {
            atomic_add(to + fragment<d>(0, 2 * c), {dQ[c], dQ[c + 1], dQ[c + 2], dQ[c + 3]});
        }
        if constexpr (Order::has_turns) mbarrier_arrive(&shared.order.added[G]);
        visit.next();
    };
    mbarrier_try_wait(&shared.keys_full, 0);
    if (G == 0) {
        const int key = own.first + 16 * warp + lane / 4;  // and key + 8
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int k = 0; k < total; ++k) {
            const int slot = uniform(k) % depth;
            float S[Br / 2];  // transposed: (64 keys, 64 queries)
            std::uint32_t P[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            wgmma_fence();
            multiply_rows<T, d>(matrix_descriptor(shared.K), matrix_descriptor(shared.Q[slot]), S);
            const auto queries = visit.queries(0);
            const bool masked = tiles.partial(p, own, queries, 0);
            note_tile<64, Br>(b, queries.head, queries.row, own.number, masked);
            const int row = queries.row + 2 * t;  // this lane's first one
            const auto fetched = tiles.fetch(p, queries, masked, 0, queries.row, own.first + 16 * warp);
            const auto columns = [&] { return tiles.columns(p, own, queries, fetched, key, row); };
            Score score(p, b, queries.head);
            score.move_to_keys((key - own.keys.end) - (row - own.rows.end));
            wgmma_wait<0>(S);
            float2 L[8];
            read_columns(shared.L[slot], L);
            const auto kept = Dropout::template read<Br>(shared.kept[slot], 0, threadIdx.x % 128);
            choose(score, [&](const auto& chosen) {
                exponentiate<T, Br>(chosen, masked, columns, kept, 0, L, S, P);
            });
#pragma unroll
            for (int c = 0; c < Br / 2; c += 8) {  // S is P times the slope, without dropout
                store(reinterpret_cast<uint4*>(shared.P[c / 8][threadIdx.x % 128]),
                      {pack<T>(S[c], S[c + 1]), pack<T>(S[c + 2], S[c + 3]), pack<T>(S[c + 4], S[c + 5]),
                       pack<T>(S[c + 6], S[c + 7])});
            }
            named_barrier_arrive(P_full, 128 * groups);
            wgmma_fence();
            add_product<T, d>(P, shared.dO[slot], sum);
            named_barrier_sync(dS_full, 128 * groups);
            add_to_dQ(P, k, slot);
        }
    } else {
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
        for (int k = 0; k < total; ++k) {
            const int slot = uniform(k) % depth;
            float dP[Br / 2];  // transposed: (64 keys, 64 queries)
            std::uint32_t dS[Br / 4];
            mbarrier_try_wait(&shared.full[slot], k / depth);
            wgmma_fence();
            multiply_rows<T, d>(matrix_descriptor(shared.V), matrix_descriptor(shared.dO[slot]), dP);
            wgmma_wait<0>(dP);
            const auto kept = Dropout::template read<Br>(shared.kept[slot], 0, threadIdx.x % 128);
            named_barrier_sync(P_full, 128 * groups);
#pragma unroll
            for (int c = 0; c < Br / 2; c += 8) {
                const uint4 P = load(reinterpret_cast<const uint4*>(shared.P[c / 8][threadIdx.x % 128]));
                const std::uint32_t pairs[4] = {P.x, P.y, P.z, P.w};
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    const int i = c + 2 * n;
                    const float2 D = load_pair(&shared.D[slot][2 * c + n / 2 * 8 + 2 * t]);
                    const float2 x = unpack<T>(pairs[n]);
                    dS[i / 2] =
                        pack<T>(x.x * (kept.drop(dP[i], i) - D.x), x.y * (kept.drop(dP[i + 1], i + 1) - D.y));
                }
            }
            write_transposed(dS, shared.dS);
            fence_proxy_async();
            named_barrier_arrive(dS_full, 128 * groups);  // for the other warpgroup
            named_barrier_sync(warpgroup_full + G, 128);  // for this one
            wgmma_fence();
            add_product<T, d>(dS, shared.Q[slot], sum);
            add_to_dQ(dS, k, slot);
        }
    }
    named_barrier_sync(K_empty, 128 * groups);
    auto& gradient = G == 0 ? shared.V : shared.K;
    write_tile<T, d>(sum, G == 0 ? 1.0f : p.scale, gradient);
    fence_proxy_async();
    named_barrier_sync(warpgroup_full + G, 128);
    if (Place::template store_rows<T, d>(gradient, G == 0 ? p.dV : p.dK, p, own, own.first)) return;
    if (threadIdx.x % 128 == 0) {
        bulk_store(G == 0 ? &maps.dV : &maps.dK, gradient, 0, own.first, h_kv, b);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

template <class T, class Types>
struct KeyTileKernel<T, 256, Types> {
    static auto of_parts(int) { return gradients_by_roles<T, 256, Types>; }
    static constexpr std::size_t shared_bytes = sizeof(SharedByRoles<T, 256, Types>);
};
