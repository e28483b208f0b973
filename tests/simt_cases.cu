#include "tests/simt_kernels.h"

namespace simt_cases {
namespace {

using namespace ladder;

// ---------------------------------------------------------------------------------------------------------------
// Threads that do not stay together

__global__ void divergent_warp_instruction_kernel() {
    if (thread_number() < 16) {
        __shfl_xor_sync(~0u, 1, 1);
    } else {
        __syncwarp();
    }
}

__global__ void divergent_barrier_kernel() {
    if (thread_number() < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

__global__ void divergent_vote_kernel() {
    if (thread_number() < 16) {
        __any_sync(~0u, 1);
    } else {
        __any_sync(~0u, 0);
    }
}

__global__ void vote_of_some_kernel() {
    if (thread_number() != 7) __any_sync(~0u, 1);  // lane 7 does not ask the others
}

__global__ void left_out_of_vote_kernel() {
    __any_sync(0xffffu, 1);
}

__global__ void left_out_of_mask_kernel() {
    __shfl_xor_sync(0xffu, 1, 1);
}

__global__ void deadlock_after_return_kernel() {
    if (thread_number() == 5) return;
    __syncwarp();
}

__global__ void deadlock_two_barriers_kernel() {
    if (thread_number() < 32) {
        __syncthreads();
    } else {
        __syncwarp(thread_number() == 40 ? 1u << 8 : ~0u);  // the others wait for lane 8 too
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Races

__global__ void missing_barrier_kernel(int* out) {
    auto& shared = shared_memory<Words>();
    store(&shared.word[thread_number()], 0);
    __syncthreads();
    store(&shared.word[thread_number()], thread_number());
    store(&out[thread_number()], load(&shared.word[(thread_number() + 32) % 64]));
}

__global__ void missing_barrier_after_read_kernel(int* out) {
    auto& shared = shared_memory<Words>();
    store(&shared.word[thread_number()], thread_number());
    __syncthreads();
    store(&out[thread_number()], load(&shared.word[(thread_number() + 32) % 64]));
    store(&shared.word[thread_number()], 0);
}

__global__ void missing_warp_sync_kernel(int* out) {
    auto& shared = shared_memory<Words>();
    store(&shared.word[thread_number()], 0);
    __syncthreads();
    store(&shared.word[thread_number()], thread_number());
    store(&out[thread_number()], load(&shared.word[thread_number() ^ 1]));
}

__global__ void shuffle_as_barrier_kernel(int* out) {
    auto& shared = shared_memory<Words>();
    store(&shared.word[thread_number()], 0);
    __syncthreads();
    store(&shared.word[thread_number()], thread_number());
    __shfl_xor_sync(~0u, 1, 1);
    store(&out[thread_number()], load(&shared.word[thread_number() ^ 1]));
}

__global__ void same_value_writes_kernel(int* out) {
    store(&out[0], 7);
}

__global__ void race_between_blocks_kernel(int* out) {
    if (thread_number() == 0) store(&out[0], static_cast<int>(blockIdx.x));
}

/// How the blocks of a launch tell the last of them what they wrote; all but the first are broken.
enum class Hand {
    over,
    without_fence,
    without_barrier,
    behind_others_fences,
    without_second_fence,
    to_every_block,
    past_a_plain_count
};

/// out: a number of each thread of 8 blocks, then their sum. Leaves the count at 0.
template <Hand hand>
__global__ void hand_over_kernel(int* out, unsigned* count) {
    auto& last = shared_memory<int>();
    store(&out[32 * blockIdx.x + thread_number()], thread_number() + 1);
    if (hand == Hand::behind_others_fences && thread_number() > 0) __threadfence();
    if (hand != Hand::without_barrier) __syncthreads();
    if (thread_number() == 0) {
        if (hand != Hand::without_fence && hand != Hand::behind_others_fences) __threadfence();
        unsigned before = 0;
        if (hand == Hand::past_a_plain_count) {
            before = load(count);
            store(count, before + 1);
        } else {
            before = atomicInc(count, 7);
        }
        store(&last, int{before == 7});
        if (hand != Hand::without_second_fence) __threadfence();
    }
    __syncthreads();
    if (hand != Hand::to_every_block && load(&last) == 0) return;
    if (thread_number() != 31) return;  // not the one that counted
    int sum = 0;
    for (int i = 0; i < 8 * 32; ++i) sum += load(&out[i]);
    store(&out[8 * 32], sum);
}

__global__ void atomic_on_shared_memory_kernel() {
    auto& count = shared_memory<unsigned>();
    if (thread_number() == 0) store(&count, 0u);
    __syncthreads();
    atomicInc(&count, 100);
}

__global__ void unwritten_shared_memory_kernel(int* out) {
    store(&out[thread_number()], load(&shared_memory<Words>().word[thread_number()]));
}

__global__ void unwritten_static_shared_memory_kernel(int* out) {
    __shared__ int words[64];
    if (thread_number() < 63) words[thread_number()] = 1;
    __syncthreads();
    out[thread_number()] = words[thread_number()];
}

// ---------------------------------------------------------------------------------------------------------------
// Addresses

__global__ void read_past_the_end_kernel(const int* in, int* out) {
    store(&out[thread_number()], load(&in[thread_number() + 1]));
}

__global__ void shared_memory_past_the_end_kernel() {
    store(&shared_memory<Words>().word[256 + thread_number()], 1);
}

__global__ void write_to_an_input_kernel(int* in) {
    in[thread_number()] = 1;
}

__global__ void misaligned_store_kernel(float* out) {
    store_pair(out + 1, 1.0f, 2.0f);
}

__global__ void nothing_kernel() {}

__global__ void bf16_mma_kernel() {
    float d[4] = {};
    const std::uint32_t a[4] = {};
    mma<bf16>(d, a, 0, 0);
}

// ---------------------------------------------------------------------------------------------------------------
// Correct kernels

__global__ void static_shared_reversal_kernel(int* out) {
    __shared__ int words[64];
    words[thread_number()] = thread_number();
    __syncthreads();
    out[thread_number()] = words[63 - thread_number()];
}

__global__ void warp_exchange_with_syncwarp_kernel(int* out) {
    auto& shared = shared_memory<Words>();
    for (int round = 0; round < 3; ++round) {
        store(&shared.word[thread_number()], thread_number());
        __syncwarp();
        store(&out[thread_number()], load(&shared.word[thread_number() ^ 1]));
        __syncwarp();
    }
}

__global__ void partial_masks_kernel(int* out) {
    const bool odd = thread_number() % 2 == 1;
    const int sent = odd ? 100 + thread_number() : thread_number();
    store(&out[thread_number()], __shfl_xor_sync(odd ? 0xaaaaaaaau : 0x55555555u, sent, 2));
}

__global__ void votes_kernel(int* out) {
    const int lane = thread_number(), quarter = lane / 8;
    const int of_quarter = __any_sync(0xffu << 8 * quarter, lane == 13 || lane == 26);
    const int of_all = __any_sync(~0u, lane == 13), of_none = __any_sync(~0u, 0);
    store(&out[lane], of_quarter + 10 * of_all + 100 * of_none);
}

__global__ void early_exit_then_barrier_kernel(int* out) {
    if (thread_number() >= 32) return;
    auto& shared = shared_memory<Words>();
    store(&shared.word[thread_number()], thread_number());
    __syncthreads();
    store(&out[thread_number()], load(&shared.word[31 - thread_number()]));
}

__global__ void block_numbers_kernel(int* out) {
    const int number = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    store(&out[number], static_cast<int>(blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z));
}

__global__ void plain_accesses_kernel(const int* in, int* out) {
    out[thread_number()] = in[thread_number()] + 1;
}

__global__ void conflicting_ldmatrix_kernel(int* out, int stride_bytes) {
    auto* bytes = reinterpret_cast<unsigned char*>(&shared_memory<int[4096]>());
    for (int i = thread_number(); i < 4096; i += 32) store(reinterpret_cast<int*>(bytes) + i, i);
    __syncwarp();
    std::uint32_t r[4];
    ldmatrix(r, bytes + thread_number() * stride_bytes);
    store(&out[thread_number()], static_cast<int>(r[0]));
}

}  // namespace

SIMT_CASE_WITHOUT_OUTPUT(divergent_warp_instruction, 32)
SIMT_CASE_WITHOUT_OUTPUT(divergent_barrier, 64)
SIMT_CASE_WITHOUT_OUTPUT(left_out_of_mask, 32)
SIMT_CASE_WITHOUT_OUTPUT(divergent_vote, 32)
SIMT_CASE_WITHOUT_OUTPUT(vote_of_some, 32)
SIMT_CASE_WITHOUT_OUTPUT(left_out_of_vote, 32)
SIMT_CASE_WITHOUT_OUTPUT(deadlock_after_return, 32)
SIMT_CASE_WITHOUT_OUTPUT(deadlock_two_barriers, 64)
SIMT_CASE(missing_barrier, 1, 64)
SIMT_CASE(missing_barrier_after_read, 1, 64)
SIMT_CASE(missing_warp_sync, 1, 32)
SIMT_CASE(shuffle_as_barrier, 1, 32)
SIMT_CASE(same_value_writes, 1, 64)
SIMT_CASE(race_between_blocks, 2, 32)
SIMT_CASE(unwritten_shared_memory, 1, 32)
SIMT_CASE(unwritten_static_shared_memory, 1, 64)
SIMT_CASE_WITHOUT_OUTPUT(shared_memory_past_the_end, 32)
SIMT_CASE_WITHOUT_OUTPUT(bf16_mma, 32)
SIMT_RESULT(static_shared_reversal, 1, 64)
SIMT_RESULT(warp_exchange_with_syncwarp, 1, 32)
SIMT_RESULT(partial_masks, 1, 32)
SIMT_RESULT(votes, 1, 32)
SIMT_RESULT(early_exit_then_barrier, 1, 64)

template <Hand hand>
std::vector<int> results_of_hand() {
    Array<int> out(8 * 32 + 1);
    Array<unsigned> count(1);
    std::vector<int> sums;
    for (int i = 0; i < 2; ++i) {
        out.data()[8 * 32] = 0;
        launch(hand_over_kernel<hand>, dim3(8), 32, sizeof(int), out.data(), count.data());
        sums.push_back(out.data()[8 * 32]);
    }
    sums.push_back(static_cast<int>(*count.data()));
    return sums;
}

std::vector<int> hand_over() {
    return results_of_hand<Hand::over>();
}
#define SIMT_HAND(how)                \
    void hand_over_##how() {          \
        results_of_hand<Hand::how>(); \
    }
SIMT_HAND(without_fence)
SIMT_HAND(without_barrier)
SIMT_HAND(behind_others_fences)
SIMT_HAND(without_second_fence)
SIMT_HAND(to_every_block)
SIMT_HAND(past_a_plain_count)
SIMT_CASE_WITHOUT_OUTPUT(atomic_on_shared_memory, 32)

void read_past_the_end() {
    Array<int> in(32, false), out(32);
    run(read_past_the_end_kernel, 1, 32, in.data(), out.data());
}

void write_to_an_input() {
    Array<int> in(32, false);
    run(write_to_an_input_kernel, 1, 32, in.data());
}

void misaligned_store() {
    Array<float> out(4);
    run(misaligned_store_kernel, 1, 1, out.data());
}

void too_much_shared_memory() {
    launch(nothing_kernel, dim3(1), 32, simt::options().most_shared_bytes + 1);
}

std::vector<int> block_numbers() {
    Array<int> out(2 * 3 * 4);
    launch(block_numbers_kernel, dim3(2, 3, 4), 1, 0, out.data());
    return out.first(2 * 3 * 4);
}

std::vector<int> plain_accesses() {
    Array<int> in(32, false), out(32);
    run(plain_accesses_kernel, 1, 32, in.data(), out.data());
    return out.first(32);
}

std::vector<int> conflicting_ldmatrix(int stride_bytes) {
    Array<int> out(32);
    launch(conflicting_ldmatrix_kernel, dim3(1), 32, 4096 * sizeof(int), out.data(), stride_bytes);
    return out.first(32);
}

}  // namespace simt_cases
