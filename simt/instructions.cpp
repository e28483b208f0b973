/// @file
/// What each instruction does, lane by lane: the executable specification of the CUDA layer.
/// Compiled without instrumentation, so that only the kernel's own accesses reach the race checker by
/// themselves.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <type_traits>

#include "simt/block.h"
#include "simt/product.h"

namespace simt {
namespace {

#define SIMT_CALLER reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

constexpr std::uint32_t full_warp = 0xffffffffu;

struct MatrixOperands {
    std::uint32_t* r;
    const void* row;
};

/// Passes over shared memory that ldmatrix needs beyond one per matrix: rows of one matrix that lie in the
/// same 16 bytes of the 128 that shared memory serves at a time have to take turns.
std::uint64_t bank_conflicts(void* const (&operands)[32]) {
    std::uint64_t extra = 0;
    for (int k = 0; k < 4; ++k) {
        std::array<std::uintptr_t, 8> rows;
        unsigned banks = 0;
        for (int i = 0; i < 8; ++i) {
            const auto& own = *static_cast<const MatrixOperands*>(operands[8 * k + i]);
            rows[i] = reinterpret_cast<std::uintptr_t>(own.row) / 16;
            banks |= 1u << rows[i] % 8;
        }
        if (banks == 0xff) continue;  // each row in another one
        std::array<int, 8> passes{};  // of each bank
        for (int i = 0; i < 8; ++i) {
            const bool again = std::find(rows.begin(), rows.begin() + i, rows[i]) != rows.begin() + i;
            passes[rows[i] % 8] += !again;
        }
        extra += *std::max_element(passes.begin(), passes.end()) - 1;
    }
    return extra;
}

template <bool transposed>
void ldmatrix_body(void* const (&operands)[32], std::uint32_t) {
    std::uint16_t element[4][8][8];  // matrix, row, column
    for (int i = 0; i < 32; ++i) {
        std::memcpy(element[i / 8][i % 8], static_cast<MatrixOperands*>(operands[i])->row, 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        std::uint32_t* r = static_cast<MatrixOperands*>(operands[lane])->r;
        for (int k = 0; k < 4; ++k) {
            const std::uint32_t low = transposed ? element[k][2 * t][g] : element[k][g][2 * t];
            const std::uint32_t high = transposed ? element[k][2 * t + 1][g] : element[k][g][2 * t + 1];
            r[k] = low | high << 16;
        }
    }
    running_block->tally.ldmatrix += 1;
    running_block->tally.bank_conflicts += bank_conflicts(operands);
}

struct MmaOperands {
    float* d;
    const std::uint32_t* a;
    std::uint32_t b0, b1;
};

/// Many at once, so that the compiler may use vector registers.
template <class T, int rows, int columns>
void convert(const std::uint16_t (&bits)[rows][columns], float (&values)[rows][columns]) {
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) values[i][j] = value_of(T{bits[i][j]});
    }
}

/// D += A B for the columns first_k .. first_k + depth - 1 of A.
template <int depth>
void multiply(const float (&A)[16][16], const float (&B)[16][8], int first_k, float (&D)[16][8]) {
    for (int i = 0; i < 16; i += 4) multiply_rows<depth>(&A[i][first_k], 16, B[first_k], 8, D[i], 8, true);
}

template <class T>
void mma_body(void* const (&operands)[32], std::uint32_t) {
    std::uint16_t A_bits[16][16], B_bits[16][8];
    float A[16][16], B[16][8], D[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        const auto& [d, a, b0, b1] = *static_cast<const MmaOperands*>(operands[lane]);
        const auto split = [](std::uint32_t bits, std::uint16_t& low, std::uint16_t& high) {
            low = static_cast<std::uint16_t>(bits);
            high = static_cast<std::uint16_t>(bits >> 16);
        };
        split(a[0], A_bits[g][2 * t], A_bits[g][2 * t + 1]);
        split(a[1], A_bits[g + 8][2 * t], A_bits[g + 8][2 * t + 1]);
        split(a[2], A_bits[g][2 * t + 8], A_bits[g][2 * t + 9]);
        split(a[3], A_bits[g + 8][2 * t + 8], A_bits[g + 8][2 * t + 9]);
        split(b0, B_bits[2 * t][g], B_bits[2 * t + 1][g]);
        split(b1, B_bits[2 * t + 8][g], B_bits[2 * t + 9][g]);
        D[g][2 * t] = d[0];
        D[g][2 * t + 1] = d[1];
        D[g + 8][2 * t] = d[2];
        D[g + 8][2 * t + 1] = d[3];
    }
    convert<T>(A_bits, A);
    convert<T>(B_bits, B);
    if (options().compute_capability >= 80) {
        multiply<16>(A, B, 0, D);
    } else {  // two m16n8k8
        multiply<8>(A, B, 0, D);
        multiply<8>(A, B, 8, D);
    }
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        float* d = static_cast<MmaOperands*>(operands[lane])->d;
        d[0] = D[g][2 * t];
        d[1] = D[g][2 * t + 1];
        d[2] = D[g + 8][2 * t];
        d[3] = D[g + 8][2 * t + 1];
    }
    running_block->tally.mma += 1;
    running_block->tally.mma_during_copies += running_block->warp_has_copies_in_flight();
}

struct ShuffleOperands {
    void* value;
    std::size_t bytes;
    int source_lane;
};

void shuffle_body(void* const (&operands)[32], std::uint32_t mask) {
    std::array<std::array<std::byte, 16>, 32> sent{};
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        const auto& own = *static_cast<const ShuffleOperands*>(operands[lane]);
        std::memcpy(sent[lane].data(), own.value, own.bytes);
    }
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        const auto& own = *static_cast<const ShuffleOperands*>(operands[lane]);
        std::memcpy(own.value, sent[own.source_lane & 31].data(), own.bytes);
    }
    running_block->tally.shuffles += 1;
}

struct VoteOperands {
    bool mine;
    bool any;
};

void vote_body(void* const (&operands)[32], std::uint32_t mask) {
    const auto each = [&](auto f) {
        for (int lane = 0; lane < 32; ++lane) {
            if ((mask >> lane & 1) != 0) f(*static_cast<VoteOperands*>(operands[lane]));
        }
    };
    bool any = false;
    each([&](const VoteOperands& lane) { any = any || lane.mine; });
    each([&](VoteOperands& lane) { lane.any = any; });
    running_block->tally.votes += 1;
}

void sync_warp_body(void* const (&)[32], std::uint32_t) {
    running_block->tally.warp_syncs += 1;
}

// Functions of their own, so that all others' turns are short of variables: see Block::meet.
[[noreturn, gnu::noinline]] void fail_on_row(const char* what, Site site) {
    running_block->fail(Report::Kind::misaligned,
                        fmt::format("{} of a row that is not 16-byte aligned, at {}", what, to_string(site)));
}
[[noreturn, gnu::noinline]] void fail_on_type(Site site) {
    running_block->fail(Report::Kind::unsupported,
                        fmt::format("mma of bf16 at {} needs sm_80", to_string(site)));
}

/// A GPU's loads and stores take no address that is not a multiple of what they move.
void require_alignment(Block& block, const char* what, const void* address, std::size_t bytes,
                       std::uintptr_t caller) {
    if (reinterpret_cast<std::uintptr_t>(address) % bytes == 0) return;
    block.fail(Report::Kind::misaligned,
               fmt::format("{} of {} bytes at an address that is no multiple of them, at {}", what, bytes,
                           source_of(caller)));
}

}  // namespace

void load(const void* address, void* value, std::size_t bytes) {
    Block& block = *running_block;
    const auto caller = SIMT_CALLER;
    require_alignment(block, "load", address, bytes, caller);
    block.check(address, bytes, false, Via::wrapper, caller);
    block.record_access(address, bytes, false);
    (block.in_shared_memory(address) ? block.tally.shared_exchange_bytes : block.tally.global_load_bytes) +=
        bytes;
    std::memcpy(value, address, bytes);
}

void store(void* address, const void* value, std::size_t bytes) {
    Block& block = *running_block;
    const auto caller = SIMT_CALLER;
    require_alignment(block, "store", address, bytes, caller);
    block.check(address, bytes, true, Via::wrapper, caller);
    block.record_access(address, bytes, true);
    (block.in_shared_memory(address) ? block.tally.shared_exchange_bytes : block.tally.global_store_bytes) +=
        bytes;
    std::memcpy(address, value, bytes);
}

void* shared_memory() {
    return running_block->shared_memory();
}

void copy_async(void* shared, const void* global, bool valid, bool evict_first) {
    running_block->start_copy(shared, global, valid, evict_first, SIMT_CALLER);
}

void copy_commit() {
    running_block->commit_copies();
}

void copy_wait(int pending_groups) {
    running_block->wait_for_groups(pending_groups, SIMT_CALLER);
}

void copy_wait() {
    running_block->wait_for_copies(SIMT_CALLER);
}

void mbarrier_init(void* barrier, int arrivals) {
    running_block->init_mbarrier(barrier, arrivals, SIMT_CALLER);
}

void mbarrier_arrive(void* barrier) {
    running_block->arrive(barrier, false, SIMT_CALLER);
}

void mbarrier_arrive_behind_copies(void* barrier) {
    running_block->arrive(barrier, true, SIMT_CALLER);
}

void mbarrier_wait(void* barrier, int phase, Site site) {
    running_block->wait_for_phase(barrier, phase, site, SIMT_CALLER);
}

unsigned atomic_inc(unsigned* counter, unsigned most) {
    Block& block = *running_block;
    block.tally.atomics += 1;
    // Blocks of other workers do it too: one at a time, and in the order in which the checker sees them.
    static std::mutex mutex;
    const auto caller = SIMT_CALLER;
    return block.atomic([&] {
        const auto checked = block.check(counter, sizeof *counter, true, Via::atomic, caller);
        const auto lock = block.is_checked() ? std::unique_lock<std::mutex>() : std::unique_lock(mutex);
        const unsigned count = *counter;
        *counter = count >= most ? 0 : count + 1;
        return count;
    });
}

void atomic_add(float* sum, float x) {
    Block& block = *running_block;
    block.tally.atomics += 1;
    // In no turn: whoever adds up floats with atomics gets one of many sums, on a GPU, too.
    block.check(sum, sizeof *sum, true, Via::addition, SIMT_CALLER);
    add(*sum, x);
}

void raise_count(unsigned* count) {
    Block& block = *running_block;
    block.tally.atomics += 1;
    block.fence();
    {
        const auto checked = block.check(count, sizeof *count, true, Via::release, SIMT_CALLER);
        std::atomic_ref(*count).fetch_add(1);
    }
    block.raised();
}

void wait_for_count(const unsigned* count, unsigned value, Site site) {
    running_block->wait_for_count(count, value, site, SIMT_CALLER);
}

void fence() {
    running_block->fence();
}

void ldmatrix(std::uint32_t (&r)[4], const void* row, bool transposed, Site site) {
    Block& block = *running_block;
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) fail_on_row("ldmatrix", site);
    block.check(row, 16, false, Via::wrapper, SIMT_CALLER);
    block.record_matrix_row(row, transposed);
    block.tally.shared_tile_bytes += 16;
    MatrixOperands operands{r, row};
    if (transposed) {
        block.meet(Op::ldmatrix_transposed, full_warp, &operands, ldmatrix_body<true>, site);
    } else {
        block.meet(Op::ldmatrix, full_warp, &operands, ldmatrix_body<false>, site);
    }
}

template <class T>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Site site) {
    if (std::is_same_v<T, bf16> && options().compute_capability < 80) fail_on_type(site);
    MmaOperands operands{d, a, b0, b1};
    running_block->meet(Op::mma, full_warp, &operands, mma_body<T>, site);
}
template void mma<fp16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t, Site);
template void mma<bf16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t, Site);

template <class T>
std::uint32_t pack(float low, float high) {
    return round_to<T>(low).bits | std::uint32_t{round_to<T>(high).bits} << 16;
}
template std::uint32_t pack<fp16>(float, float);
template std::uint32_t pack<bf16>(float, float);

void shuffle(std::uint32_t mask, void* value, std::size_t bytes, int source_lane, Site site) {
    ShuffleOperands operands{value, bytes, source_lane};
    running_block->meet(Op::shuffle, mask, &operands, shuffle_body, site);
}

bool any(std::uint32_t mask, bool mine, Site site) {
    VoteOperands operands{mine, false};
    running_block->meet(Op::vote, mask, &operands, vote_body, site);
    return operands.any;
}

void sync_warp(std::uint32_t mask, Site site) {
    running_block->meet(Op::sync_warp, mask, nullptr, sync_warp_body, site);
}

void sync_block(Site site) {
    running_block->sync(site);
}

float exp2(float x) {
    running_block->note_exponential();
    return std::exp2(x);
}

float divide(float a, float b) {
    running_block->tally.divides += 1;
    return a / b;
}

void note_tile(const Tile& tile) {
    running_block->note_tile(tile);
}

void note_row(int row, float m, float l) {
    running_block->note_row(row, m, l);
}

}  // namespace simt
