/// @file
/// What the CPU back-end counts while it runs a kernel.
#pragma once

#include <array>
#include <cstdint>

namespace simt {

/// Work of one or more launches. All are exact, and none depends on the order in which threads ran; those in
/// the model's time do on that of blocks, if these take their tiles from a counter.
struct Counters {
    std::uint64_t launches = 0;               ///< kernels started
    std::uint64_t early_launches = 0;         ///< of these, ones that may start before the last has ended
    std::uint64_t cooperative_launches = 0;   ///< of these, ones whose blocks all run at once
    std::uint64_t blocks = 0;                 ///< thread blocks
    std::uint64_t global_load_bytes = 0;      ///< bytes requested from global memory (not HBM traffic)
    std::uint64_t evict_first_bytes = 0;      ///< of these, bytes whose lines leave the L2 cache first
    std::uint64_t global_store_bytes = 0;     ///< bytes sent to global memory
    std::uint64_t shared_exchange_bytes = 0;  ///< shared memory read or written by load() and store()
    std::uint64_t shared_tile_bytes = 0;      ///< shared memory of copies, ldmatrix and stmatrix
    std::uint64_t barriers = 0;               ///< __syncthreads, once per block
    std::uint64_t warp_syncs = 0;             ///< __syncwarp, once per warp
    std::uint64_t mbarrier_arrivals = 0;      ///< arrivals at mbarriers, once per thread that arrives
    std::uint64_t mbarrier_waits = 0;         ///< waits for a phase of an mbarrier, once per thread
    std::uint64_t shuffles = 0;               ///< warp shuffles, once per warp
    std::uint64_t votes = 0;                  ///< warp votes, once per warp
    std::uint64_t atomics = 0;                ///< on global memory, once per thread; in no count of bytes
    std::uint64_t fences = 0;                 ///< __threadfence, once per thread
    std::uint64_t mma = 0;                ///< m16n8k16 products (two m16n8k8 are one; e4m3: k32), per warp
    std::uint64_t mma_during_copies = 0;  ///< of these, those with copies of their warp's in flight
    std::uint64_t ldmatrix = 0;           ///< ldmatrix.x4, once per warp
    std::uint64_t bank_conflicts = 0;     ///< extra passes over shared memory that ldmatrix needed
    std::uint64_t async_copies = 0;       ///< 16-byte asynchronous copies, once per thread
    std::uint64_t copied_lines = 0;       ///< pairs of 128-byte lines, global and shared, that these connect
    std::uint64_t copies_left_in_flight = 0;  ///< copies that a wait leaves pending, at each wait
    std::uint64_t bulk_loads = 0;             ///< bulk copies to shared memory
    std::uint64_t bulk_stores = 0;            ///< and from there
    std::uint64_t bulk_adds = 0;              ///< and those that add to memory
    std::uint64_t bulk_bytes = 0;             ///< of all three; of boxes with what lies outside of the tensor
    std::uint64_t wgmma = 0;                  ///< products of a warpgroup, once per warpgroup
    std::uint64_t wgmma_columns = 0;          ///< N of each, which is 2048 N FLOPs (e4m3: 4096 N)
    std::uint64_t wgmma_left_in_flight = 0;   ///< products that a wait leaves pending, at each wait
    std::uint64_t stmatrix = 0;               ///< stmatrix.x4, once per warp
    std::uint64_t named_barriers = 0;         ///< arrivals at named barriers, once per thread
    std::uint64_t named_waits = 0;            ///< of these, those that wait for the others
    std::uint64_t registers_moved = 0;        ///< that setmaxnreg gives to a thread or takes from it
    std::uint64_t exponentials = 0;           ///< exp2, once per thread
    std::uint64_t divides = 0;                ///< divisions, once per thread
    std::uint64_t tiles = 0;  ///< key tiles visited, per visit of a block, or of a warpgroup with own rows
    std::uint64_t masked_tiles = 0;  ///< of these, the ones whose scores were masked

    // By the model of a multiprocessor's time (simt/time_model.h), of blocks with Hopper's instructions:
    std::uint64_t exponentials_during_products = 0;      ///< while another warpgroup's product is computed
    std::uint64_t exponentials_during_own_products = 0;  ///< while one of the same warpgroup is
    std::uint64_t mbarrier_stalls = 0;                   ///< waits at mbarriers that are not over at once
    std::uint64_t named_stalls = 0;                      ///< the same at named barriers
    std::uint64_t bypassed_bytes = 0;  ///< traffic that no wrapper counted (checked back-end); must be 0

    Counters& operator+=(const Counters& other);
    bool operator==(const Counters&) const = default;
};

/// A counter with its name, for tables and JSON.
struct CounterField {
    const char* name;
    std::uint64_t Counters::*value;
    bool in_model_time = false;  ///< so it depends on which block took which tile, if they take them
};

/// Every counter, in the order in which tables show them.
inline constexpr std::array<CounterField, 44> counter_fields{{
    {"launches", &Counters::launches},
    {"early_launches", &Counters::early_launches},
    {"cooperative_launches", &Counters::cooperative_launches},
    {"blocks", &Counters::blocks},
    {"global_load_bytes", &Counters::global_load_bytes},
    {"evict_first_bytes", &Counters::evict_first_bytes},
    {"global_store_bytes", &Counters::global_store_bytes},
    {"shared_exchange_bytes", &Counters::shared_exchange_bytes},
    {"shared_tile_bytes", &Counters::shared_tile_bytes},
    {"barriers", &Counters::barriers},
    {"warp_syncs", &Counters::warp_syncs},
    {"mbarrier_arrivals", &Counters::mbarrier_arrivals},
    {"mbarrier_waits", &Counters::mbarrier_waits},
    {"shuffles", &Counters::shuffles},
    {"votes", &Counters::votes},
    {"atomics", &Counters::atomics},
    {"fences", &Counters::fences},
    {"mma", &Counters::mma},
    {"mma_during_copies", &Counters::mma_during_copies},
    {"ldmatrix", &Counters::ldmatrix},
    {"bank_conflicts", &Counters::bank_conflicts},
    {"async_copies", &Counters::async_copies},
    {"copied_lines", &Counters::copied_lines},
    {"copies_left_in_flight", &Counters::copies_left_in_flight},
    {"bulk_loads", &Counters::bulk_loads},
    {"bulk_stores", &Counters::bulk_stores},
    {"bulk_adds", &Counters::bulk_adds},
    {"bulk_bytes", &Counters::bulk_bytes},
    {"wgmma", &Counters::wgmma},
    {"wgmma_columns", &Counters::wgmma_columns},
    {"wgmma_left_in_flight", &Counters::wgmma_left_in_flight},
    {"stmatrix", &Counters::stmatrix},
    {"named_barriers", &Counters::named_barriers},
    {"named_waits", &Counters::named_waits},
    {"registers_moved", &Counters::registers_moved},
    {"exponentials", &Counters::exponentials},
    {"divides", &Counters::divides},
    {"tiles", &Counters::tiles},
    {"masked_tiles", &Counters::masked_tiles},
    {"exponentials_during_products", &Counters::exponentials_during_products, true},
    {"exponentials_during_own_products", &Counters::exponentials_during_own_products, true},
    {"mbarrier_stalls", &Counters::mbarrier_stalls, true},
    {"named_stalls", &Counters::named_stalls, true},
    {"bypassed_bytes", &Counters::bypassed_bytes},
}};

inline Counters& Counters::operator+=(const Counters& other) {
    for (const auto& field : counter_fields) this->*field.value += other.*field.value;
    return *this;
}

/// The work between two moments, the later one first.
inline Counters operator-(Counters after, const Counters& before) {
    for (const auto& field : counter_fields) after.*field.value -= before.*field.value;
    return after;
}

}  // namespace simt
