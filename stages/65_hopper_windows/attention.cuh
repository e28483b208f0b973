// The forward pass under any mask: stage 36, whose mask, place, score, sink and dropout are types. Part of
// the namespace of the stages that include it. A type of each kind stands in a file of its own in this
// folder.

/// The constants that depend on d and on the types.
template <int d, class Types>
struct Sizes {
    static constexpr int groups = d == 64 ? Types::Mask::most_groups : 2;  // warpgroups that multiply 64 rows
    static constexpr int first = Types::Dropout::template warpgroups<d>;   // the first of them
    static constexpr int drawers = Types::Dropout::template warps<d>;
    static constexpr int threads = 128 * (first + groups);
    static constexpr int producer_registers = groups == 3 ? 32 : drawers > 0 ? 56 : 40;
    static constexpr int consumer_registers =
        (65536 / threads / 8 * 8 * (first + groups) - producer_registers * first) / groups;
    static constexpr int Br = 64 * groups;
    static constexpr int Bc = d <= 128 ? 128 : 64;
    static constexpr int pieces = Types::Mask::template pieces<Bc>;  // of a key tile; each lies together
    static constexpr bool turns = d <= 128;        // at d = 256 exponentials take a small part of the time
    static constexpr int depth = d == 64 ? 4 : 2;  // slots of K and V: stages of the pipeline
    static constexpr int Q_slots = d <= 128 ? 2 : 1;
    static constexpr int O_panels = d == 64 || drawers > 0 ? 1 : 2;  // panels that a warp stores at a time
};

/// Tiles are panels of 64 columns: rows of 128 bytes, in the swizzle of tensor maps and wgmma.
template <class T, int d, class Types, class Tile = Sizes<d, Types>>
struct Shared {
    alignas(1024) T Q[Tile::Q_slots][Tile::groups][d / 64][64][64];
    alignas(1024) T K[Tile::depth][d / 64][Tile::Bc][64];  // tile k of the block is in slot k % depth
    alignas(1024) T V[Tile::depth][d / 64][Tile::Bc][64];
    alignas(1024) T O[4 * Tile::groups][Tile::O_panels][16][64];  // rows that a warp is about to store
    typename Types::Mask::template Words<Tile> with_K[Tile::depth];
    typename Types::Dropout::template Words<Tile::Br, Tile::Bc> with_V[Tile::depth];
    TileIndex tile[Tile::Q_slots];  // the tile that Q belongs to; no tiles are left if batch < 0
    typename Types::Place place[Tile::Q_slots];
    Mbarrier Q_full[Tile::Q_slots], Q_empty[Tile::Q_slots];
    Mbarrier K_full[Tile::depth], V_full[Tile::depth];    // phase k / depth: tile k has arrived
    Mbarrier K_empty[Tile::depth], V_empty[Tile::depth];  // phase k / depth: all have read tile k
};

/// A box of K or V is a key tile; or a panel of a piece of it, each panel by a map of its own.
template <int boxes>
struct Maps {
    TensorMap Q, O, K[boxes], V[boxes];
};

template <int d, class Types>
constexpr int boxes = Sizes<d, Types>::pieces == 1 ? 1 : d / 64;

/// The order in which blocks take the query tiles of all heads: head by head; or the longest first, as under
/// a causal mask, of `section` heads together, whose K and V fit in the L2 cache.
struct TileOrder {
    int Tr, heads, section, total;  // heads = B H, total = Tr heads
    bool longest_first;
    unsigned* taken;  // not counting each block's first; 0 before and after a launch

    /// The n-th of them
    __device__ TileIndex at(const Problem& p, int n) const {
        int i = n % Tr, head = n / Tr;
        if (longest_first) {
            const int first = n / (section * Tr) * section, r = n % (section * Tr);
            const int together = min(section, heads - first);
            i = Tr - 1 - r / together;
            head = first + r % together;
        }
        return {head / p.H, head % p.H, i};
    }
};

/// Writes O / l of the warp's 16 rows to global memory through its O_tile, some panels at a time; and
/// L = m + log(l), where l is the sum over the four lanes of a row. p is the place's part of `packed`.
template <class T, int d, class Types, int panels>
__device__ void write_rows(const Problem& packed, const typename Types::Place& place, const Problem& p,
                           const TensorMap& map, int b, int h, int first_row, T (&O_tile)[panels][16][64],
                           const float (&O)[d / 2], const float (&lane_m)[2], const float (&lane_l)[2]) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float inverse_l[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float l = lane_l[r], m = lane_m[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        const float factor = Types::Sink::add(packed, h, m, l);
        inverse_l[r] = l == 0.0f ? 0.0f : factor * Types::Dropout::inverse(packed, l);
        const int row = first_row + 16 * warp + lane / 4 + 8 * r;
        float* L = packed.L + (std::int64_t{b} * packed.H + h) * packed.Nq + place.first_row + row;
        if (row < p.Nq && lane % 4 == 0) store(L, (m + log2f(l)) * ln_2);
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
        const int row = first_row + 16 * warp;
        if (place.shares_box(packed, row)) {
            T* rows = matrix<T>(packed.O, b, h) + (place.first_row + row) * packed.O.row + 64 * panel;
#pragma unroll 1  // rare: short code matters more than its speed
            for (int n = lane; n < 8 * panels * (p.Nq - row); n += 32) {
                const int r = n / (8 * panels), x = n / 8 % panels, column = n % 8 * 8;
                store(reinterpret_cast<uint4*>(rows + r * packed.O.row + 64 * x + column),
                      load(reinterpret_cast<const uint4*>(&O_tile[x][r][column ^ r % 8 * 8])));
            }
        } else if (lane == 0) {
            bulk_store(&map, O_tile, panel, place.first_row + row, h, b);
            bulk_commit();
        }
    }
}

/// A block computes query tile after query tile. Warp specialization: one thread copies, warpgroups multiply.
/// - Producer: takes a query tile from a counter; copies Q, then K and V of the key tiles that it sees.
/// - Consumers, a warpgroup for 64 rows: start S = Q K^T of key tile j, then O += P V of tile j - 1, which
///   runs during the softmax of tile j; at the end write O and L.
/// - Turns: barrier 1 + g lets warpgroup g start products; meanwhile the others take exponentials.
/// - Drawers, with dropout: warps that write the random bits of a key tile to the slot of its V.
/// A slot's life: the producer waits for `empty` and starts the copy; `full` completes when all bytes have
/// arrived; a consumer multiplies, or skips a key tile that it does not see, and then arrives at `empty`.
template <class T, int d, class Types>
__global__ void __launch_bounds__(Sizes<d, Types>::threads, 1)
    attention(const Problem packed, const __grid_constant__ Maps<boxes<d, Types>> maps,
              const TileOrder order) {
    using Tile = Sizes<d, Types>;
    using Mask = typename Types::Mask;
    using Place = typename Types::Place;
    constexpr int groups = Tile::groups, Br = Tile::Br, Bc = Tile::Bc, depth = Tile::depth;
    constexpr int Q_slots = Tile::Q_slots, pieces = Tile::pieces, drawers = Tile::drawers;
    // Where each thread reads words in a slot, each releases it; otherwise one of a warpgroup does.
    constexpr bool each_releases = Mask::reads_words || drawers > 0;
    constexpr int releases = each_releases ? 128 * groups : groups;
    auto& shared = aligned_shared_memory<Shared<T, d, Types>>();
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Q_slots; ++slot) {
            mbarrier_init(&shared.Q_full[slot], 1);
            // All threads arrive, since all read `tile`; drawers only where they follow words, too: otherwise
            // V_full says enough of them.
            mbarrier_init(&shared.Q_empty[slot], 128 * groups + (Mask::reads_words ? 32 * drawers : 0));
        }
        for (int slot = 0; slot < depth; ++slot) {
            mbarrier_init(&shared.K_full[slot], 1);
            mbarrier_init(&shared.V_full[slot], 1 + 32 * drawers);
            mbarrier_init(&shared.K_empty[slot], releases + (Mask::reads_words ? 32 * drawers : 0));
            mbarrier_init(&shared.V_empty[slot], releases);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the mbarriers are set up
    const auto place_of = [&](int Q_slot) {
        if constexpr (!std::is_empty_v<Place>) return load(&shared.place[Q_slot]);
        return Place();
    };
    const int group = uniform(threadIdx.x / 128);
    if (group < Tile::first) {
        release_registers<Tile::producer_registers>();
        if constexpr (drawers > 0) {
            if (uniform(threadIdx.x / 32) >= 4 * Tile::first - drawers) {
                const typename Types::Dropout dropout(packed);
                for (int k = 0, q = 0;; ++q) {
                    mbarrier_try_wait(&shared.Q_full[q % Q_slots], q / Q_slots);
                    const TileIndex tile = load(&shared.tile[q % Q_slots]);
                    if (tile.batch < 0) return;
                    const Place place = place_of(q % Q_slots);
                    typename Mask::template Visits<Tile> visits(place.problem_of(packed), tile, 0);
                    for (int j = visits.all.begin; j < visits.all.end; ++j, ++k) {
                        const int slot = k % depth;
                        if constexpr (Mask::reads_words) {
                            mbarrier_try_wait(&shared.K_full[slot], k / depth);
                            visits.read(shared.with_K[slot], j);
                            mbarrier_arrive(&shared.K_empty[slot]);
                        }
                        mbarrier_try_wait(&shared.V_empty[slot], k / depth - 1);  // tile k - depth
                        dropout.template draw<drawers, Bc>(packed, place.entry(tile.batch), tile.head,
                                                           tile.tile * Br, shared.with_V[slot].dropped,
                                                           [&](int n) { return visits.first_key(j, n); });
                        mbarrier_arrive(&shared.V_full[slot]);
                    }
                    if (Mask::reads_words) mbarrier_arrive(&shared.Q_empty[q % Q_slots]);
                }
            }
        }
        const int lane = Mask::lanes == 1 ? 0 : threadIdx.x;  // of those that look for key tiles
        if (threadIdx.x >= Mask::lanes) return;
        const auto next = [&] {  // the last block's request wraps to 0
            const int n = lane == 0 ? gridDim.x + atomicInc(order.taken, order.total - 1) : 0;
            return Mask::lanes == 1 ? n : uniform(n);
        };
        // Query tile q of this block is number n of all, and k key tiles come before its own.
        for (int k = 0, q = 0, n = blockIdx.x;; ++q) {
            TileIndex tile;
            Place place;
            for (; n < order.total; n = next()) {  // past numbers without a tile
                tile = order.at(packed, n);
                if (place.find(packed, Br, tile)) break;
            }
            const int Q_slot = q % Q_slots;
            if (lane == 0) mbarrier_try_wait(&shared.Q_empty[Q_slot], q / Q_slots - 1);
            if (n >= order.total) {
                if (lane > 0) return;
                store(&shared.tile[Q_slot], TileIndex{-1, 0, 0});
                mbarrier_arrive(&shared.Q_full[Q_slot]);
                return;
            }
            const Problem& p = place.problem_of(packed);
            const int b = tile.batch, h = tile.head, h_kv = h / (p.H / p.Hkv), first_row = tile.tile * Br;
            tile.visits = Mask::template count<Tile>(p, tile, lane);
            if (lane == 0) {
                store(&shared.tile[Q_slot], tile);
                if constexpr (!std::is_empty_v<Place>) store(&shared.place[Q_slot], place);
                mbarrier_expect(&shared.Q_full[Q_slot], sizeof shared.Q[Q_slot]);
                for (int g = 0; g < groups; ++g) {
                    bulk_load(shared.Q[Q_slot][g], &maps.Q, place.first_row + first_row + 64 * g, h, b,
                              &shared.Q_full[Q_slot]);
                }
            }
            Mask::template for_each_visit<Tile>(p, tile, lane, [&](const auto& visit) {
                const int slot = k % depth, phase = k / depth - 1;  // of tile k - depth, which has been read
                k += 1;
                if (lane > 0) return;
                const auto copy = [&](auto& to, const auto& map, Mbarrier* full) {
                    if constexpr (pieces == 1) {
                        bulk_load(to, &map[0], place.first_key + visit.first_key(0), h_kv, b, full);
                    } else {
                        for (int x = 0; x < pieces; ++x) {
                            for (int c = 0; c < d / 64; ++c)
                                bulk_load(&to[c][Bc / pieces * x], &map[c],
                                          place.first_key + visit.first_key(x), h_kv, b, full);
                        }
                    }
                };
                mbarrier_try_wait(&shared.K_empty[slot], phase);
                const int bytes = visit.write(shared.with_K[slot]);
                mbarrier_expect(&shared.K_full[slot], sizeof shared.K[slot] + bytes);
                copy(shared.K[slot], maps.K, &shared.K_full[slot]);
                visit.copy(shared.with_K[slot], bytes, &shared.K_full[slot]);
                mbarrier_try_wait(&shared.V_empty[slot], phase);
                mbarrier_expect(&shared.V_full[slot], sizeof shared.V[slot]);
                copy(shared.V[slot], maps.V, &shared.V_full[slot]);
            });
            n = next();
        }
    }

    claim_registers<Tile::consumer_registers>();
    const int g = group - Tile::first, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const auto wait_turn = [&] {
        if (Tile::turns) named_barrier_sync(1 + g, 256);
    };
    const auto pass_turn = [&] {  // the next warpgroup's
        if (Tile::turns) named_barrier_arrive(1 + (g + 1) % groups, 256);
    };
    if (g == groups - 1) pass_turn();  // the first turn is warpgroup 0's
    for (int k = 0, q = 0;; ++q) {
        const int Q_slot = q % Q_slots;
        mbarrier_try_wait(&shared.Q_full[Q_slot], q / Q_slots);
        const TileIndex tile = load(&shared.tile[Q_slot]);
        if (tile.batch < 0) break;
        const Place place = place_of(Q_slot);
        const Problem& p = place.problem_of(packed);
        const int b = tile.batch, h = tile.head, first_row = tile.tile * Br + 64 * g;
        const int row = first_row + 16 * warp + lane / 4;  // and row + 8: those of this lane
        typename Mask::template Visits<Tile> visits(p, tile, g);
        typename Types::Score score_of(p, b, h);
        k -= visits.all.begin;                              // key tile j is number k + j
        const auto release = [&](int j, Mbarrier* empty) {  // after the wait for the product that read it
            if (each_releases || threadIdx.x % 128 == 0) mbarrier_arrive(&empty[(k + j) % depth]);
        };
        float S[Bc / 2], O[d / 2] = {}, alpha[2], m[2] = {}, l[2] = {};
        std::uint32_t P[Bc / 4];
        bool seen[2] = {};                 // has the row seen a key?
        const auto softmax = [&](int j) {  // turns S into P; returns whether O must be rescaled
#pragma unroll
            for (int n = 0; n < pieces; ++n) {
                constexpr int values = Bc / 2 / pieces;
                score_of.move_to(p, row, visits.first_key(j, n) + lane % 4 * 2);
                choose(score_of, [&](const auto& chosen) {
#pragma unroll
                    for (int c = 0; c < values; ++c) {
                        float& s = S[values * n + c];
                        s = chosen.exponent(s, m[row_of(c)], c);
                    }
                    chosen.template correct<values>(&S[values * n]);
                });
            }
#pragma unroll
            for (int n = 0; n < pieces; ++n) {
                const bool masked = visits.is_partial(j, n);
                const int number = visits.first_key(j, n) / (Bc / pieces);
                note_tile<Bc / pieces>(b, h, place.first_row + first_row, number, masked);
                if (masked) visits.hide(p, shared.with_K[(k + j) % depth], row, j, n, S);
            }
            if (Mask::hides_by_words) release(j, shared.K_empty);
            const bool above = !seen[0] | !seen[1] | (positive_max(S) > threshold);
            const bool rises = __any_sync(~0u, above);
            if (rises) rescale(seen, S, alpha, m, l);
            exponentiate(S, l);
            note_lane_sums(place.first_row + first_row + warp * 16, m, l);
            return rises;
        };
        const auto start_scores = [&](int j) {
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            visits.read(shared.with_K[(k + j) % depth], j);
            score<T, d, Bc>(shared.Q[Q_slot][g], shared.K[(k + j) % depth], S);
        };
        const auto start_product = [&](int j) {
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            Types::Dropout::drop(shared.with_V[(k + j) % depth], 4 * g + warp, P);
            add_product<T, d, Bc>(P, shared.V[(k + j) % depth], O);
        };
        const auto skip = [&](int j) {  // a key tile that only others see
            mbarrier_try_wait(&shared.K_full[(k + j) % depth], (k + j) / depth);
            mbarrier_try_wait(&shared.V_full[(k + j) % depth], (k + j) / depth);
            if (!each_releases)
                named_barrier_sync(4 + g, 128);  // all of the warpgroup know that they arrived
            release(j, shared.K_empty);
            release(j, shared.V_empty);
        };
        int j = visits.own.begin;
        if (j == visits.own.end) {  // no rows; or they see nothing: O and l stay as they are
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int n = visits.all.begin; n < visits.all.end; ++n) {
                if (n > visits.all.begin) wait_turn(), pass_turn();
                skip(n);
            }
            if (first_row >= p.Nq) {
                k += visits.all.end;
                continue;
            }
        } else {
            for (int n = visits.all.begin; n < j; ++n) skip(n), wait_turn(), pass_turn();
            start_scores(j);
            visits.prefetch(p, row);
            wgmma_wait<0>(S);
            if (!Mask::hides_by_words) release(j, shared.K_empty);
            softmax(j);
            convert<T>(S, P);
#pragma unroll 1  // a long body: copies of it would only fill the instruction cache
            for (++j; j < visits.own.end; ++j) {
                wait_turn();
                start_scores(j);
                start_product(j - 1);
                pass_turn();
                visits.prefetch(p, row);
                wgmma_wait<1>(S);
                if (!Mask::hides_by_words) release(j, shared.K_empty);
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
            start_product(j - 1);
            mbarrier_arrive(&shared.Q_empty[Q_slot]);
            for (int n = j; n < visits.all.end; ++n)
                wait_turn(), pass_turn();  // for tiles that only others see
            wgmma_wait<0>(O);
            fence_operand(P);
            release(j - 1, shared.V_empty);
            for (int n = j; n < visits.all.end; ++n) skip(n);
        }
        write_rows<T, d, Types>(packed, place, p, maps.O, b, h, first_row, shared.O[4 * g + warp], O, m, l);
        k += visits.all.end;
    }
    if (lane == 0) bulk_wait_read<0>();
}

/// The host side; `taken` is a counter in the workspace.
template <class T, int d, class Types>
void launch_attention(const Problem& p, void* taken) {
    using Tile = Sizes<d, Types>;
    Maps<boxes<d, Types>> maps;
    maps.Q = tensor_map<T, d>(p.Q, p.B, p.H, p.Nq, 64);
    maps.O = tensor_map<T, d>(p.O, p.B, p.H, p.Nq, 16, Tile::O_panels);
    for (int c = 0; c < boxes<d, Types>; ++c) {
        const auto map = [&](View X) {
            constexpr int columns = Tile::pieces == 1 ? d : 64;
            X.data = static_cast<T*>(X.data) + columns * c;
            return tensor_map<T, columns>(X, p.B, p.Hkv, p.Nk, Tile::Bc / Tile::pieces);
        };
        maps.K[c] = map(p.K), maps.V[c] = map(p.V);
    }
    const int Tr = Types::Place::tiles(p, Tile::Br), heads = p.B * p.H;
    // As many heads as have 16 MB of K and V together; their keys are those of a group of query heads.
    const std::int64_t L2 = (std::int64_t{16} << 20) * p.H, KV_bytes = std::int64_t{4} * p.Nk * d * p.Hkv;
    const int section = int(std::clamp<std::int64_t>(L2 / KV_bytes, 1, heads));
    const TileOrder order = {
        Tr, heads, section, Tr * heads, Types::Mask::longest_first(p), static_cast<unsigned*>(taken)};
    const dim3 grid(std::min(p.sm_count, order.total));
    launch(attention<T, d, Types>, grid, Tile::threads, sizeof(Shared<T, d, Types>), p, maps, order);
}

std::size_t counter_bytes(const Shape&, int) {
    return sizeof(unsigned);
}
