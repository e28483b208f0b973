#include "tests/hopper_cases.h"

#include "simt/simt.h"
#include "stages/hopper.cuh"
#include "tests/simt_array.h"

namespace simt_cases {
namespace {

using namespace ladder;

constexpr int rows = 60, keys = 100, d = 64;

struct Tiles {
    alignas(1024) fp16 Q[64][d];
    alignas(1024) fp16 K[64][d];
    alignas(1024) fp16 O[64][d];
    Mbarrier there, read;
};

struct Maps {
    TensorMap Q, K, O;
};

template <Wrong wrong>
__global__ void hopper_kernel(const __grid_constant__ Maps maps) {
    auto& shared = aligned_shared_memory<Tiles>();
    const int group = uniform(static_cast<int>(threadIdx.x) / 128);
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.there, 1);
        mbarrier_init(&shared.read, 1);
        if (wrong != Wrong::no_init_fence) mbarrier_fence_init();
    }
    __syncthreads();
    if (group == 0) {
        if (wrong != Wrong::no_released_registers) release_registers<24>();
        if (thread != 0) return;
        for (int j = 0; j < 2; ++j) {
            if (wrong != Wrong::no_wait_for_readers) mbarrier_try_wait(&shared.read, j - 1);
            int bytes = sizeof shared.K + (j == 0 ? sizeof shared.Q : 0);
            bytes += wrong == Wrong::too_many_bytes ? 16 : 0;
            bytes -= wrong == Wrong::too_few_bytes ? sizeof shared.K : 0;
            mbarrier_expect(&shared.there, bytes);
            if (j == 0) bulk_load(shared.Q, &maps.Q, 0, 0, 0, &shared.there);
            bulk_load(shared.K, &maps.K, 64 * j, 0, 0, &shared.there);
        }
        return;
    }
    claim_registers<256>();
    float S[32], O[32];
    std::uint32_t P[16];
    for (float& x : O) x = 0.0f;
    for (int j = 0; j < 2; ++j) {
        if (wrong != Wrong::no_wait_for_load) mbarrier_try_wait(&shared.there, j);
        if ((wrong == Wrong::nothing || wrong == Wrong::generic_operand) && j == 1) {
            if (thread < 64) store(&shared.K[thread][0], load(&shared.K[thread][0]));
            named_barrier_sync(3, 128);
            if (wrong == Wrong::nothing) fence_proxy_async();  // by those that read
        }
        if (wrong == Wrong::copied_operand && j == 0) {
            if (thread < 64) copy_async(&shared.K[thread][0], static_cast<const fp16*>(nullptr), false);
            fence_proxy_async();
            copy_wait();
            named_barrier_sync(3, 128);
        }
        const Descriptor Q = matrix_descriptor(shared.Q);
        const Descriptor K = matrix_descriptor(shared.K).row(wrong == Wrong::descriptor ? 8 : 0);
        if (wrong != Wrong::no_wgmma_fence) wgmma_fence();
        for (int k = 0; k < d; k += 16) {
            if (wrong == Wrong::one_warp_behind && j == 1 && k == 48 && warp == 3) continue;
            wgmma<fp16, 64, false>(S, Q.column<64>(k), K.column<64>(k), k > 0);
        }
        wgmma_commit();
        if (wrong != Wrong::no_product_wait) wgmma_wait<0>(S);
        for (int c = 0; c < 16; ++c) P[c] = pack<fp16>(S[2 * c], S[2 * c + 1]);
        if (wrong != Wrong::no_second_fence) wgmma_fence();
        for (int k = 0; k < 64; k += 16) wgmma<fp16, d, true>(O, &P[k / 4], K.row(k), true);
        wgmma_commit();
        if (wrong == Wrong::accumulator_written) O[thread % 32] *= 2.0f;
        if (wrong == Wrong::A_written) P[thread % 16] = 0;
        const auto tell = [&] {
            if (thread == 0) mbarrier_arrive(&shared.read);
        };
        if (wrong == Wrong::told_too_early) {
            tell();
            mbarrier_try_wait(&shared.there, 1);
        }
        wgmma_wait<0>(O);
        fence_operand(P);
        if (wrong != Wrong::told_too_early) tell();
    }
    for (int round = 0; round < 2; ++round) {
        for (int c = 0; c < 4; ++c) {
            std::uint32_t x[4];
            for (int k = 0; k < 4; ++k) x[k] = pack<fp16>(O[8 * c + 2 * k], O[8 * c + 2 * k + 1]);
            const int row = 16 * warp + a_row(lane), column = 16 * c + a_column(lane);
            stmatrix(&shared.O[row][column ^ row % 8 * 8], x);
        }
        if (wrong != Wrong::no_proxy_fence) fence_proxy_async();
        if (wrong != Wrong::no_barrier) named_barrier_sync(2, wrong == Wrong::barrier_count ? 256 : 128);
        if (thread == 0) {
            bulk_store(&maps.O, shared.O, 0, 0, 0, 0);
            bulk_commit();
            if (round == 0 && wrong != Wrong::store_wait_too_late) bulk_wait<0>();  // O is stored twice
            if (round == 1 && wrong != Wrong::no_store_wait) bulk_wait_read<0>();
        }
        named_barrier_sync(2, 128);
    }
}

template <Wrong wrong>
std::vector<float> run() {
    Array<fp16> Q(rows * d, false), K(keys * d, false), O(rows * d);
    for (int i = 0; i < rows * d; ++i) Q.data()[i] = simt::round_to<fp16>(hopper_element(false, i));
    for (int i = 0; i < keys * d; ++i) K.data()[i] = simt::round_to<fp16>(hopper_element(true, i));
    const auto map = [](fp16* data, int N) {
        return tensor_map<fp16, d>({data, N * d, N * d, d}, 1, 1, N, 64);
    };
    const Maps maps{map(Q.data(), rows), map(K.data(), keys), map(O.data(), rows)};
    launch(hopper_kernel<wrong>, dim3(1), 256, sizeof(Tiles), maps);
    std::vector<float> result;
    for (const fp16 x : O.first(rows * d)) result.push_back(simt::value_of(x));
    return result;
}

template <int first = 0>
std::vector<float> run_if(Wrong wrong) {
    constexpr int count = static_cast<int>(Wrong::no_released_registers) + 1;
    if constexpr (first < count) {
        if (wrong == static_cast<Wrong>(first)) return run<static_cast<Wrong>(first)>();
        return run_if<first + 1>(wrong);
    } else {
        return {};
    }
}

struct Operands {
    alignas(1024) fp16 Q[2][64][64];  // panels of 64 columns
    alignas(1024) fp16 KV[2][128][64];
};

template <bool turns, bool ahead>
__global__ void schedule_kernel() {
    auto& shared = aligned_shared_memory<Operands>();
    const int thread = static_cast<int>(threadIdx.x), group = thread / 128;
    for (int i = thread; i < static_cast<int>(sizeof shared / sizeof(uint4)); i += 256)
        store(reinterpret_cast<uint4*>(&shared) + i, uint4{});
    fence_proxy_async();
    __syncthreads();
    const Descriptor Q = matrix_descriptor(shared.Q), K = matrix_descriptor(shared.KV),
                     V = matrix_descriptor(shared.KV, 128);
    float S[64], O[64] = {};
    std::uint32_t P[32];
    const auto score = [&] {
        for (int k = 0; k < 128; k += 16) {
            wgmma<fp16, 128, false>(S, Q.column<64>(k), K.column<128>(k), k > 0);
        }
        wgmma_commit();
    };
    const auto add_product = [&] {
        for (int k = 0; k < 128; k += 16) wgmma<fp16, 128, true>(O, &P[k / 4], V.row(k), true);
        wgmma_commit();
    };
    const auto exponentiate = [&] {
        for (float& x : S) x = fast_exp2(x);
    };
    if (turns && group == 1) named_barrier_arrive(1, 256);  // the first turn is group 0's
    for (int j = 0; j <= 8; ++j) {
        if (j < 8) note_tile<128>(0, 0, 64 * group, j, j == 7);
        if (turns) named_barrier_sync(1 + group, 256);
        wgmma_fence();
        if (ahead && j < 8) score();
        if (j > 0) add_product();
        if (!ahead && j < 8) score();
        if (turns && (j < 8 || group == 0)) named_barrier_arrive(2 - group, 256);
        if (ahead && 0 < j && j < 8) {
            wgmma_wait<1>(S);
        } else {
            wgmma_wait<0>(S);
        }
        if (j < 8) exponentiate();
        wgmma_wait<0>(O);
        fence_operand(P);
        for (int c = 0; c < 32; ++c) P[c] = pack<fp16>(S[2 * c], S[2 * c + 1]);
    }
}

struct ByteTiles {
    alignas(1024) std::uint32_t Q[64][32];  // 128 elements of a row
    alignas(1024) std::uint32_t K[128][32];
    alignas(1024) std::uint32_t V[128][32];  // transposed: 128 keys of a row
};

template <bool permuted>
__global__ void e4m3_kernel(float* O_out) {
    auto& shared = aligned_shared_memory<ByteTiles>();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const auto fill = [&](auto& tile, auto element) {
        for (int i = thread; i < static_cast<int>(sizeof tile / 4); i += 128) {
            const int row = i / 32, word = i % 32;
            const auto at = [&](int e) { return element(row, 4 * word + e); };
            store(&tile[row][word ^ row % 8 * 4], pack_e4m3(at(0), at(1), at(2), at(3)));
        }
    };
    fill(shared.Q, [](int row, int column) { return hopper_element(false, 128 * row + column); });
    fill(shared.K, [](int row, int column) { return hopper_element(true, 128 * row + column); });
    fill(shared.V, [](int column, int position) {
        const int key = permuted ? position / 16 * 16 + key_at(position % 16) : position;
        return hopper_element(true, 128 * key + column);
    });
    fence_proxy_async();
    __syncthreads();
    const Descriptor Q = matrix_descriptor(shared.Q), K = matrix_descriptor(shared.K),
                     V = matrix_descriptor(shared.V);
    float S[64], O[64];
    std::uint32_t P[16];
    wgmma_fence();
    for (int k = 0; k < 64; k += 16) wgmma_e4m3<128>(S, Q.column<64>(k), K.column<128>(k), k > 0);
    wgmma_commit();
    wgmma_wait<0>(S);
    for (float& s : S) s = s > 0.0f ? 1.0f : 0.0f;
    for (int j = 0; j < 4; ++j) pack_operand_e4m3(&P[4 * j], &S[16 * j]);
    wgmma_fence();
    for (int j = 0; j < 4; ++j) wgmma_e4m3<128>(O, &P[4 * j], V.column<128>(16 * j), j > 0);
    wgmma_commit();
    wgmma_wait<0>(O);
    fence_operand(P);
    for (int c = 0; c < 64; ++c) {
        const int row = 16 * warp + lane / 4 + 8 * row_of(c), column = 2 * (lane % 4) + column_of(c);
        store(&O_out[128 * row + column], O[c]);
    }
}

/// Of two warpgroups, one reads what the other writes, in 8 rounds. Each says so when all of it has done so,
/// goes on, and waits for the other.
template <bool one_barrier>
__global__ void hand_over_kernel(int* sums) {
    __shared__ int tile[128];
    constexpr int full = 1, empty = one_barrier ? full : 2, rounds = 8;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const bool reads = threadIdx.x < 128;
    const auto meet = [&] { named_barrier_sync(reads ? 3 : 4, 128); };
    int sum = 0;
    for (int j = 0; j < rounds; ++j) {
        if (reads || j > 0) named_barrier_sync(reads ? full : empty, 256);
        if (reads) {
            sum += load(&tile[(thread + 1) % 128]);
        } else {
            store(&tile[thread], 1000 * j + thread);
        }
        meet();
        if (!reads || j + 1 < rounds) named_barrier_arrive(reads ? empty : full, 256);
        meet();
    }
    if (reads) store(&sums[thread], sum);
}

__global__ void number_kernel(int* numbers) {
    let_next_kernel_start();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    store(&numbers[i], i);
}

__global__ void early_kernel(const int* thousand, int* numbers, int* sums, int waiting) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), input = load(thousand);
    if (static_cast<int>(threadIdx.x) < waiting) wait_for_previous_kernel();
    __syncthreads();  // which is no wait for others
    store(&sums[i], load(&numbers[(i + 1) % 128]) + input);
}

__global__ void meeting_kernel(unsigned* count, int* numbers, int* sums) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    store(&numbers[block], block);
    raise_count(count);
    wait_for_count(count, gridDim.x);
    int sum = 0;
    for (int i = 0; i < blocks; ++i) sum += load(&numbers[i]);
    store(&sums[block], sum);
}

}  // namespace

std::vector<int> run_meeting_kernel(int blocks, bool together) {
    Array<int> numbers(blocks), sums(blocks);
    Array<unsigned> count(1);
    *count.data() = 0;
    if (together) {
        launch<Start::together>(meeting_kernel, dim3(blocks), 1, 0, count.data(), numbers.data(),
                                sums.data());
    } else {
        launch(meeting_kernel, dim3(blocks), 1, 0, count.data(), numbers.data(), sums.data());
    }
    return sums.first(blocks);
}

std::vector<int> run_early_kernel(int waiting) {
    Array<int> numbers(128), sums(128), thousand(1, false);
    *thousand.data() = 1000;
    launch(number_kernel, dim3(2), 64, 0, numbers.data());
    launch<Start::early>(early_kernel, dim3(2), 64, 0, thousand.data(), numbers.data(), sums.data(), waiting);
    return sums.first(128);
}

std::vector<int> run_hand_over_kernel(bool one_barrier) {
    Array<int> sums(128);
    launch(one_barrier ? hand_over_kernel<true> : hand_over_kernel<false>, dim3(1), 256, 0, sums.data());
    return sums.first(128);
}

std::vector<float> run_e4m3_kernel(bool permuted) {
    Array<float> O(64 * 128);
    launch(permuted ? e4m3_kernel<true> : e4m3_kernel<false>, dim3(1), 128, sizeof(ByteTiles), O.data());
    return O.first(64 * 128);
}

void run_schedule_kernel(bool turns, bool ahead) {
    const auto kernel = turns   ? ahead ? schedule_kernel<true, true> : schedule_kernel<true, false>
                          : ahead ? schedule_kernel<false, true>
                                : schedule_kernel<false, false>;
    launch(kernel, dim3(1), 256, sizeof(Operands));
}

float hopper_element(bool is_K, int i) {
    auto x = static_cast<std::uint32_t>(2 * i + is_K + 1) * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    return static_cast<float>((x >> 20) % 3) - 1.0f;
}

std::vector<float> run_hopper_kernel(Wrong wrong) {
    return run_if(wrong);
}

}  // namespace simt_cases
