/// @file
/// What each instruction does, lane by lane: the executable specification of the CUDA layer. Compiled without
/// instrumentation, so that only the kernel's own accesses reach the race checker by themselves.

#include <cmath>
#include <type_traits>

#include "simt/block.h"
#include "simt/hopper.h"
#include "simt/product.h"

namespace simt {
namespace {

/// Element i of those that a lane has in registers, two in each.
std::uint16_t half_of(const std::uint32_t* r, int i) {
    return static_cast<std::uint16_t>(r[i / 2] >> 16 * (i % 2));
}

/// What a lane brings to ldmatrix, which writes its registers, or stmatrix, which reads them.
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
    for (int i = 0; i < 32; ++i)
        std::memcpy(element[i / 8][i % 8], static_cast<MatrixOperands*>(operands[i])->row, 16);
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        std::uint32_t* r = static_cast<MatrixOperands*>(operands[lane])->r;
        for (int k = 0; k < 4; ++k) {
            const std::uint32_t low = transposed ? element[k][2 * t][g] : element[k][g][2 * t];
            const std::uint32_t high = transposed ? element[k][2 * t + 1][g] : element[k][g][2 * t + 1];
            r[k] = low | high << 16;
        }
    }
    running_block->context.tally.ldmatrix += 1;
    running_block->context.tally.bank_conflicts += bank_conflicts(operands);
}

template <bool transposed>
void stmatrix_body(void* const (&all)[32], std::uint32_t) {
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MatrixOperands*>(all[lane]);
        const int g = lane / 4, t = lane % 4;
        // Half i % 2 of register i / 2: element (g, 2t + i % 2) of matrix i / 2.
        for (int i = 0; i < 8; ++i) {
            const int row = transposed ? 2 * t + i % 2 : g, column = transposed ? g : 2 * t + i % 2;
            const std::uint16_t half = half_of(own.r, i);
            auto* named = const_cast<void*>(static_cast<const MatrixOperands*>(all[8 * (i / 2) + row])->row);
            std::memcpy(static_cast<std::uint16_t*>(named) + column, &half, 2);
        }
    }
    running_block->context.tally.stmatrix += 1;
}

struct MmaOperands {
    float* d;
    const std::uint32_t* a;
    std::uint32_t b[2];
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
        const auto& [d, a, b] = *static_cast<const MmaOperands*>(operands[lane]);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) A_bits[row_of(lane, i)][column_of(lane, i)] = half_of(a, i);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            B_bits[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = half_of(b, i);
            D[row_of(lane, i)][column_of(lane, i)] = d[i];
        }
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
        float* d = static_cast<MmaOperands*>(operands[lane])->d;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) d[i] = D[row_of(lane, i)][column_of(lane, i)];
    }
    running_block->context.tally.mma += 1;
    running_block->context.tally.mma_during_copies += running_block->copies.warp_has_some_in_flight();
}

/// Element i of those that a lane has in registers, four in each.
float e4m3_of(const std::uint32_t* r, int i) {
    return value_of(e4m3{static_cast<std::uint8_t>(r[i / 4] >> 8 * (i % 4))});
}

void mma_e4m3_body(void* const (&operands)[32], std::uint32_t) {
    constexpr int columns = AlignedColumns::columns;
    std::array<AlignedRow, 16> A;
    std::array<AlignedColumns, 8 / columns> B;
    float D[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& [d, a, b] = *static_cast<const MmaOperands*>(operands[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 16; ++i) A[g + i / 4 % 2 * 8].set(4 * t + i % 4 + i / 8 * 16, e4m3_of(a, i));
        for (int i = 0; i < 8; ++i)
            B[g / columns].set(4 * t + i % 4 + i / 4 * 16, g % columns, e4m3_of(b, i));
        for (int i = 0; i < 4; ++i) D[row_of(lane, i)][column_of(lane, i)] = d[i];
    }
    for (int row = 0; row < 16; ++row) {
        for (int j = 0; j < 8; j += columns) add_products_in_halves(A[row], B[j / columns], &D[row][j]);
    }
    for (int lane = 0; lane < 32; ++lane) {
        float* d = static_cast<MmaOperands*>(operands[lane])->d;
        for (int i = 0; i < 4; ++i) d[i] = D[row_of(lane, i)][column_of(lane, i)];
    }
    running_block->context.tally.mma += 1;
}

// Each is one object, whose address says which instruction a lane executes.
constexpr WarpInstruction ldmatrix_instruction[]{{"ldmatrix", ldmatrix_body<false>},
                                                 {"ldmatrix_transposed", ldmatrix_body<true>}};
constexpr WarpInstruction stmatrix_instruction[]{{"stmatrix", stmatrix_body<false>},
                                                 {"stmatrix_transposed", stmatrix_body<true>}};
template <class T>
constexpr WarpInstruction mma_instruction{"mma", mma_body<T>};
constexpr WarpInstruction mma_e4m3_instruction{"mma_e4m3", mma_e4m3_body};

/// What load() and store() have in common: they are checked, recorded and counted.
void access(const char* what, const void* address, std::size_t bytes, bool write,
            std::uint64_t Counters::*global_bytes, Caller caller) {
    Context& context = running_block->context;
    if (!is_aligned(address, bytes)) {
        context.fail(Report::Kind::misaligned,
                     "{} of {} bytes at an address that is no multiple of them, at {}", what, bytes, caller);
    }
    context.check(address, bytes, write, Via::wrapper, caller);
    context.recorder.access(context.thread(), address, bytes, write);
    const bool is_shared = context.shared.contains(address);
    context.tally.*(is_shared ? &Counters::shared_exchange_bytes : global_bytes) += bytes;
}

/// A lane's part of ldmatrix or stmatrix, before its warp meets: its row.
void access_row(const char* what, const void* row, bool write, Site site, Caller caller) {
    Context& context = running_block->context;
    if (!is_aligned(row, 16))
        context.fail(Report::Kind::misaligned, "{} of a row that is not 16-byte aligned, at {}", what, site);
    context.check(row, 16, write, Via::wrapper, caller);
    context.tally.shared_tile_bytes += 16;
}

}  // namespace

void load(const void* address, void* value, std::size_t bytes) {
    access("load", address, bytes, false, &Counters::global_load_bytes, SIMT_CALLER);
    std::memcpy(value, address, bytes);
}

void store(void* address, const void* value, std::size_t bytes) {
    running_block->masked_tiles.move(running_block->context.thread());
    access("store", address, bytes, true, &Counters::global_store_bytes, SIMT_CALLER);
    std::memcpy(address, value, bytes);
}

void ldmatrix(std::uint32_t (&r)[4], const void* row, bool transposed, Site site) {
    Context& context = running_block->context;
    access_row("ldmatrix", row, false, site, SIMT_CALLER);
    context.recorder.read_row(context.thread(), row, transposed);
    MatrixOperands operands{r, row};
    running_block->meetings.meet(ldmatrix_instruction[transposed], full_warp, &operands, site);
}

void stmatrix(const void* row, const std::uint32_t (&r)[4], bool transposed, Site site) {
    Context& context = running_block->context;
    access_row("stmatrix", row, true, site, SIMT_CALLER);
    context.recorder.access(context.thread(), row, 16, true);
    MatrixOperands operands{const_cast<std::uint32_t*>(r), row};
    running_block->meetings.meet(stmatrix_instruction[transposed], full_warp, &operands, site);
}

template <class T>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Site site) {
    if (std::is_same_v<T, bf16> && options().compute_capability < 80)
        running_block->context.fail(Report::Kind::unsupported, "mma of bf16 at {} needs sm_80", site);
    MmaOperands operands{d, a, {b0, b1}};
    running_block->meetings.meet(mma_instruction<T>, full_warp, &operands, site);
}
template void mma<fp16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t, Site);
template void mma<bf16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t, Site);

void mma_e4m3(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, Site site) {
    MmaOperands operands{d, a, {b0, b1}};
    running_block->meetings.meet(mma_e4m3_instruction, full_warp, &operands, site);
}

template <class T>
std::uint32_t pack(float low, float high) {
    return round_to<T>(low).bits | std::uint32_t{round_to<T>(high).bits} << 16;
}
template std::uint32_t pack<fp16>(float, float);
template std::uint32_t pack<bf16>(float, float);

void shuffle(std::uint32_t mask, void* value, std::size_t bytes, int source_lane, Site site) {
    struct Operands {
        void* value;
        std::size_t bytes;
        int source_lane;
    } operands{value, bytes, source_lane};
    static constexpr WarpInstruction instruction{
        "shuffle", [](void* const(&all)[32], std::uint32_t lanes) {
            std::array<std::array<std::byte, 16>, 32> sent{};
            for_each_lane(lanes, [&](int lane) {
                const auto& own = *static_cast<const Operands*>(all[lane]);
                std::memcpy(sent[lane].data(), own.value, own.bytes);
            });
            for_each_lane(lanes, [&](int lane) {
                const auto& own = *static_cast<const Operands*>(all[lane]);
                std::memcpy(own.value, sent[own.source_lane & 31].data(), own.bytes);
            });
            running_block->context.tally.shuffles += 1;
        }};
    running_block->meetings.meet(instruction, mask, &operands, site);
}

std::uint32_t ballot(std::uint32_t mask, bool mine, Site site) {
    static constexpr WarpInstruction instruction{
        "vote", [](void* const(&all)[32], std::uint32_t lanes) {
            std::uint32_t votes = 0;
            for_each_lane(lanes, [&](int lane) { votes |= *static_cast<std::uint32_t*>(all[lane]) << lane; });
            for_each_lane(lanes, [&](int lane) { *static_cast<std::uint32_t*>(all[lane]) = votes; });
            running_block->context.tally.votes += 1;
        }};
    std::uint32_t vote = mine;
    running_block->meetings.meet(instruction, mask, &vote, site);
    return vote;
}

void sync_warp(std::uint32_t mask, Site site) {
    static constexpr WarpInstruction instruction{
        "__syncwarp", [](void* const(&)[32], std::uint32_t lanes) {
            Context& context = running_block->context;
            context.tally.warp_syncs += 1;
            if (!context.is_checked) return;
            int threads[32];
            std::size_t count = 0;
            for_each_lane(lanes, [&](int lane) { threads[count++] = 32 * context.warp() + lane; });
            context.clocks.meet(std::span(threads, count));
        }};
    running_block->meetings.meet(instruction, mask, nullptr, site);
}

float exp2(float x) {
    Context& context = running_block->context;
    context.tally.exponentials += 1;
    context.time.exponential(context.thread());
    return std::exp2(x);
}

float tanh(float x) {
    Context& context = running_block->context;
    context.tally.exponentials += 1;
    context.time.exponential(context.thread());
    return std::tanh(x);
}

float divide(float a, float b) {
    running_block->context.tally.divides += 1;
    return a / b;
}

void copy_async(void* shared, const void* global, bool valid, bool evict_first, int bytes) {
    running_block->masked_tiles.move(running_block->context.thread());
    running_block->copies.start(shared, global, valid, evict_first, bytes, SIMT_CALLER);
}

// Which object each of the others comes to.
// clang-format off
void copy_commit() { running_block->copies.commit(); }
void copy_wait(int pending) { running_block->copies.wait_for_groups(pending, SIMT_CALLER); }
void copy_wait() { running_block->copies.wait_for_all(SIMT_CALLER); }
void mbarrier_init(void* barrier, int arrivals) { running_block->mbarriers.init(barrier, arrivals, SIMT_CALLER); }
void mbarrier_arrive(void* barrier) { running_block->mbarriers.arrive(barrier, false, SIMT_CALLER); }
void mbarrier_arrive_after_copies(void* barrier) { running_block->mbarriers.arrive(barrier, true, SIMT_CALLER); }
void mbarrier_wait(void* barrier, int phase, Site site) { running_block->mbarriers.wait(barrier, phase, site, SIMT_CALLER); }
unsigned atomic_inc(unsigned* counter, unsigned most) { return running_block->atomics.increment(counter, most, SIMT_CALLER); }
void atomic_add(float* sums, const float* x, int count) { running_block->atomics.add_to(sums, x, count, SIMT_CALLER); }
void raise_count(unsigned* count) { running_block->atomics.raise(count, SIMT_CALLER); }
void wait_for_count(const unsigned* count, unsigned n, Site site) { running_block->atomics.wait_for(count, n, site, SIMT_CALLER); }
void fence() { running_block->atomics.fence(); }
void sync_block(Site site) { running_block->barrier.sync(site); }
void* shared_memory() { return running_block->context.shared.data(); }
// clang-format on

void note_tile(const Tile& tile) {
    Context& context = running_block->context;
    const int thread = context.thread(), sharing = tile.threads == 0 ? context.threads : tile.threads;
    const bool is_first = thread % sharing == 0;
    running_block->masked_tiles.note_tile(thread, thread - thread % sharing, tile.rows * tile.keys / sharing);
    if (is_first) {
        context.tally.tiles += 1;
        context.tally.masked_tiles += tile.masked;
    }
    if (context.recorder.is_on()) context.time.note(thread, tile);
    context.recorder.note_tile(thread, tile, is_first);
}

void note_row(int row, float m, float l) {
    running_block->context.recorder.note_row(running_block->context.thread(), row, m, l);
}

}  // namespace simt
