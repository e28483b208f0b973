#include "tests/simt_cases.h"

#include <numeric>

#include "simt/simt.h"
#include "stages/device.cuh"
#include "tests/simt_array.h"

namespace simt_cases {
namespace {

using namespace ladder;

struct Words {
    int word[256];
};

int thread_number() {
    return static_cast<int>(threadIdx.x);
}

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

__global__ void missing_copy_wait_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Words>();
    copy_async(&shared.word[4 * thread_number()], in + 4 * thread_number(), true);
    __syncthreads();
    store(&out[thread_number()], load(&shared.word[thread_number()]));
}

__global__ void wait_for_too_few_groups_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Words>();
    for (int group = 0; group < 2; ++group) {
        copy_async(&shared.word[128 * group + 4 * thread_number()], in + 4 * thread_number(), true);
        copy_commit();
    }
    copy_wait<1>();
    __syncwarp();
    store(&out[thread_number()], load(&shared.word[thread_number()]));        // of the first group: there
    store(&out[thread_number()], load(&shared.word[128 + thread_number()]));  // of the second: not yet
}

__global__ void wait_without_a_commit_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Words>();
    copy_async(&shared.word[4 * thread_number()], in + 4 * thread_number(), true);
    copy_wait<0>();
    __syncwarp();
    store(&out[thread_number()], load(&shared.word[thread_number()]));
}

/// Passes 8 groups of 128 words through a ring of 2 places, and adds them up.
__device__ void pass_through_a_ring(const int* in, int* out, bool wait_for_readers) {
    auto& shared = shared_memory<Words>();
    const auto start = [&](int group) {
        if (group < 8)
            copy_async(&shared.word[128 * (group % 2) + 4 * thread_number()], in + 4 * thread_number(), true);
        copy_commit();
    };
    for (int group = 0; group < 2; ++group) start(group);
    int sum = 0;
    for (int group = 0; group < 8; ++group) {
        copy_wait<1>();
        __syncwarp();
        sum += load(&shared.word[128 * (group % 2) + 127 - thread_number()]);
        if (wait_for_readers) __syncwarp();
        start(group + 2);
    }
    store(&out[thread_number()], sum);
}

__global__ void refill_before_the_warp_has_read_kernel(const int* in, int* out) {
    pass_through_a_ring(in, out, false);
}

__global__ void ring_of_copies_kernel(const int* in, int* out) {
    pass_through_a_ring(in, out, true);
}

__global__ void copy_over_a_tile_in_use_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Words>();
    copy_async(&shared.word[4 * thread_number()], in + 4 * thread_number(), true);
    copy_wait();
    __syncthreads();
    store(&out[thread_number()], load(&shared.word[thread_number()]));
    copy_async(&shared.word[4 * thread_number()], in + 4 * thread_number(), true);  // others still read
    copy_wait();
}

/// Nobody says which of two copies in flight lands last, not even the thread that started both.
__global__ void two_copies_to_one_place_kernel(const int* in, int*) {
    auto& shared = shared_memory<Words>();
    for (int i = 0; i < 2; ++i) copy_async(&shared.word[4 * thread_number()], in + 4 * i, true);
    copy_wait();
}

__global__ void two_groups_to_one_place_kernel(const int* in, int*) {
    auto& shared = shared_memory<Words>();
    for (int i = 0; i < 3; ++i) {
        copy_async(&shared.word[4 * thread_number() + 128 * (i % 2)], in + 4 * i, true);
        copy_commit();
        if (i == 1) copy_wait<2>();  // one group too many may be under way
    }
    copy_wait();
}

__global__ void copies_of_two_warps_to_one_place_kernel(const int* in, int*) {
    auto& shared = shared_memory<Words>();
    if (thread_number() < 32) copy_async(&shared.word[4 * thread_number()], in, true);
    __syncthreads();
    if (thread_number() >= 32) copy_async(&shared.word[4 * (thread_number() - 32)], in, true);
    copy_wait();
}

__global__ void store_over_a_copy_kernel(const int* in, int*) {
    auto& shared = shared_memory<Words>();
    copy_async(&shared.word[4 * thread_number()], in + 4 * thread_number(), true);
    store(&shared.word[4 * thread_number()], 1);  // the thread's own copy
    copy_wait();
}

__global__ void store_to_what_a_copy_reads_kernel(const int*, int* out) {
    auto& shared = shared_memory<Words>();
    copy_async(&shared.word[4 * thread_number()], out + 4 * thread_number(), true);
    store(&out[4 * thread_number()], 1);
    copy_wait();
}

__global__ void copy_again_behind_the_wait_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Words>();
    for (int i = 0; i < 2; ++i) {
        copy_async(&shared.word[4 * thread_number()], in + 4 * (thread_number() + i), true);
        copy_wait();
    }
    __syncwarp();
    store(&out[thread_number()], load(&shared.word[thread_number()]));
}

// ---------------------------------------------------------------------------------------------------------------
// mbarriers

/// A ring of two places for tiles of four words per thread.
struct Ring {
    int word[2][512];
    Mbarrier there[2], read[2];
};

/// What is left out of, or wrong in, pass_through_mbarriers.
enum class Without {
    nothing,
    wait,
    own_wait,
    wait_for_readers,
    syncwarp,
    barrier,
    init,
    one_init,
    phase,
    arrival
};

/// Each of four warps copies its part of eight tiles, and adds up what another warp's thread has copied. It
/// says when a tile is there and when its warp has read it, so that warps need not be in step.
__device__ void pass_through_mbarriers(const int* in, int* out, Without without) {
    constexpr int tiles = 8;
    auto& shared = shared_memory<Ring>();
    const int thread = thread_number(), warp = thread / 32;
    if (thread == 0 && without != Without::init) {
        for (int place = 0; place < 2; ++place) {
            mbarrier_init(&shared.there[place], 128);
            mbarrier_init(&shared.read[place], 4);
            if (without == Without::one_init) mbarrier_init(&shared.read[place], 4);
        }
    }
    if (without != Without::barrier) __syncthreads();
    const auto copy = [&](int j) {
        if (j >= tiles) return;
        if (without != Without::wait_for_readers) mbarrier_wait(&shared.read[j % 2], j / 2 - 1);
        copy_async(&shared.word[j % 2][4 * thread], in + 512 * j + 4 * thread, true);
        mbarrier_arrive_after_copies(&shared.there[j % 2]);
    };
    copy(0);
    int sum = 0;
    for (int j = 0; j < tiles; ++j) {
        copy(j + 1);
        if (without == Without::own_wait) {
            mbarrier_wait(&shared.there[(j + 1) % 2], (j + 1) / 2 - 1);  // the other place's
        } else if (without != Without::wait) {
            mbarrier_wait(&shared.there[j % 2], j / 2 + (without == Without::phase ? 2 : 0));
        }
        sum += load(&shared.word[j % 2][511 - thread]);
        for (int step = 0; step < warp; ++step) __syncwarp();
        // Lane 0 speaks for all.
        if (without != Without::syncwarp) __syncwarp();
        if (thread % 32 == 0 && (without != Without::arrival || warp != 2))
            mbarrier_arrive(&shared.read[j % 2]);
    }
    store(&out[thread], sum);
}

template <Without without>
__global__ void mbarrier_kernel(const int* in, int* out) {
    pass_through_mbarriers(in, out, without);
}

/// Reads what another thread has copied, without a wait. A barrier says that all copies have been started,
/// and so with 128 arrivals that all have landed, but for whoever waited.
template <int arrivals>
__global__ void mbarrier_without_a_wait_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Ring>();
    const int thread = thread_number();
    if (thread == 0) mbarrier_init(&shared.there[0], arrivals);
    __syncthreads();
    copy_async(&shared.word[0][4 * thread], in + 4 * thread, true);
    mbarrier_arrive_after_copies(&shared.there[0]);
    __syncthreads();
    store(&out[thread], load(&shared.word[0][511 - thread]));
}

template <bool by_mbarrier>
__global__ void copies_told_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Ring>();
    const int thread = thread_number();
    if (thread == 0) {
        mbarrier_init(&shared.there[0], 32);
        mbarrier_init(&shared.read[0], 1);
    }
    __syncthreads();
    if (thread < 32) {
        copy_async(&shared.word[0][4 * thread], in + 4 * thread, true);
        mbarrier_arrive_after_copies(&shared.there[0]);
        mbarrier_wait(&shared.there[0], 0);
        if (by_mbarrier && thread == 0) mbarrier_arrive(&shared.read[0]);
    }
    if (!by_mbarrier) {
        __syncthreads();
    } else if (thread >= 32) {
        mbarrier_wait(&shared.read[0], 0);
    }
    store(&out[thread], load(&shared.word[0][127 - thread]));
}

__global__ void mbarrier_two_copies_to_one_place_kernel(const int* in, int*) {
    auto& shared = shared_memory<Ring>();
    const int thread = thread_number();
    if (thread == 0) {
        mbarrier_init(&shared.there[0], 128);
        mbarrier_init(&shared.there[1], 128);
    }
    __syncthreads();
    for (int i = 0; i < 2; ++i) {
        copy_async(&shared.word[0][4 * thread], in + 4 * thread, true);
        mbarrier_arrive_after_copies(&shared.there[i]);
    }
    mbarrier_wait(&shared.there[1], 0);
}

/// Lane 0 arrives behind what it wrote itself: no __syncwarp is needed for that.
__global__ void lane_tells_by_an_mbarrier_kernel(const int*, int* out) {
    auto& shared = shared_memory<Ring>();
    const int thread = thread_number();
    if (thread == 0) mbarrier_init(&shared.there[0], 1);
    __syncthreads();
    if (thread == 0) {
        store(&shared.word[0][0], 7);
        mbarrier_arrive(&shared.there[0]);
    }
    mbarrier_wait(&shared.there[0], 0);
    store(&out[thread], load(&shared.word[0][0]));
}

template <bool in_a_group>
__global__ void mbarrier_and_wait_kernel(const int* in, int* out) {
    auto& shared = shared_memory<Ring>();
    const int thread = thread_number();
    if (thread >= 32) return;
    if (thread == 0) mbarrier_init(&shared.there[0], 32);
    __syncwarp();
    copy_async(&shared.word[0][4 * thread], in + 4 * thread, true);
    if (in_a_group) copy_commit();
    mbarrier_arrive_after_copies(&shared.there[0]);
    copy_wait();
    store(&out[thread], load(&shared.word[0][4 * thread]));
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

__global__ void misaligned_copy_kernel(const int* in) {
    copy_async(&shared_memory<Words>().word[1], in, true);
}

__global__ void misaligned_store_kernel(float* out) {
    store(reinterpret_cast<float2*>(out + 1), {1.0f, 2.0f});
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

/// Four products for each of two warps: before its copies, with those of the other warp in flight, with its
/// own in flight, and behind its wait.
__global__ void mma_among_copies_kernel(const int* in, int*) {
    auto& shared = shared_memory<Words>();
    float d[4] = {};
    const std::uint32_t a[4] = {};
    const auto copy = [&] { copy_async(&shared.word[4 * thread_number()], in + 4 * thread_number(), true); };
    mma<fp16>(d, a, 0, 0);
    __syncthreads();
    if (thread_number() < 32) copy();
    __syncthreads();
    if (thread_number() >= 32) mma<fp16>(d, a, 0, 0);
    __syncthreads();
    if (thread_number() < 32) mma<fp16>(d, a, 0, 0);
    if (thread_number() == 40) copy();  // one lane's is enough
    if (thread_number() >= 32) mma<fp16>(d, a, 0, 0);
    copy_wait();
    mma<fp16>(d, a, 0, 0);
    if (thread_number() < 32) mma<fp16>(d, a, 0, 0);
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

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), int blocks, int threads, Arguments... arguments) {
    launch(kernel, dim3(blocks), threads, sizeof(Words), arguments...);
}

}  // namespace

std::vector<int> run_ring(void (*kernel)(const int*, int*)) {
    Array<int> in(8 * 512, false), out(128);
    std::iota(in.data(), in.data() + 8 * 512, 0);
    launch(kernel, dim3(1), 128, sizeof(Ring), static_cast<const int*>(in.data()), out.data());
    return out.first(128);
}

#define SIMT_CASE(name, blocks, threads)                 \
    void name() {                                        \
        Array<int> out(256);                             \
        run(name##_kernel, blocks, threads, out.data()); \
    }
#define SIMT_CASE_WITHOUT_OUTPUT(name, threads) \
    void name() {                               \
        run(name##_kernel, 1, threads);         \
    }
#define SIMT_CASE_WITH_INPUT(name, threads)                    \
    void name() {                                              \
        Array<int> in(256, false), out(256);                   \
        run(name##_kernel, 1, threads, in.data(), out.data()); \
    }
#define SIMT_RESULT(name, blocks, threads)               \
    std::vector<int> name() {                            \
        Array<int> out(256);                             \
        run(name##_kernel, blocks, threads, out.data()); \
        return out.first(threads);                       \
    }

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
SIMT_CASE_WITH_INPUT(missing_copy_wait, 64)
SIMT_CASE_WITH_INPUT(wait_for_too_few_groups, 32)
SIMT_CASE_WITH_INPUT(wait_without_a_commit, 32)
SIMT_CASE_WITH_INPUT(refill_before_the_warp_has_read, 32)
SIMT_CASE_WITH_INPUT(copy_over_a_tile_in_use, 64)
SIMT_CASE_WITH_INPUT(two_copies_to_one_place, 32)
SIMT_CASE_WITH_INPUT(two_groups_to_one_place, 32)
SIMT_CASE_WITH_INPUT(copies_of_two_warps_to_one_place, 64)
SIMT_CASE_WITH_INPUT(store_over_a_copy, 32)
SIMT_CASE_WITH_INPUT(store_to_what_a_copy_reads, 32)
SIMT_CASE_WITHOUT_OUTPUT(shared_memory_past_the_end, 32)
SIMT_CASE_WITHOUT_OUTPUT(bf16_mma, 32)
SIMT_RESULT(static_shared_reversal, 1, 64)
SIMT_RESULT(warp_exchange_with_syncwarp, 1, 32)
SIMT_RESULT(partial_masks, 1, 32)
SIMT_RESULT(votes, 1, 32)
SIMT_CASE_WITH_INPUT(mma_among_copies, 64)
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

void misaligned_copy() {
    Array<int> in(32, false);
    run(misaligned_copy_kernel, 1, 32, in.data());
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

std::vector<int> ring_of_copies() {
    Array<int> in(128, false), out(32);
    std::iota(in.data(), in.data() + 128, 0);
    run(ring_of_copies_kernel, 1, 32, in.data(), out.data());
    return out.first(32);
}

std::vector<int> copy_again_behind_the_wait() {
    Array<int> in(256, false), out(32);
    std::iota(in.data(), in.data() + 256, 0);
    run(copy_again_behind_the_wait_kernel, 1, 32, in.data(), out.data());
    return out.first(32);
}

std::vector<int> lane_tells_by_an_mbarrier() {
    return run_ring(lane_tells_by_an_mbarrier_kernel);
}
std::vector<int> ring_with_mbarriers() {
    return run_ring(mbarrier_kernel<Without::nothing>);
}
std::vector<int> copies_told_by_a_barrier() {
    return run_ring(copies_told_kernel<false>);
}
std::vector<int> copies_told_by_an_mbarrier() {
    return run_ring(copies_told_kernel<true>);
}
void mbarrier_not_waited_for() {
    run_ring(mbarrier_without_a_wait_kernel<128>);
}
void mbarrier_two_copies_to_one_place() {
    run_ring(mbarrier_two_copies_to_one_place_kernel);
}
void mbarrier_with_copies_in_flight() {
    run_ring(mbarrier_without_a_wait_kernel<129>);
}
void mbarrier_missing_wait() {
    run_ring(mbarrier_kernel<Without::wait>);
}
void mbarrier_wait_at_another() {
    run_ring(mbarrier_kernel<Without::own_wait>);
}
void mbarrier_refill_too_early() {
    run_ring(mbarrier_kernel<Without::wait_for_readers>);
}
void mbarrier_arrival_without_syncwarp() {
    run_ring(mbarrier_kernel<Without::syncwarp>);
}
void mbarrier_without_a_barrier_behind_init() {
    run_ring(mbarrier_kernel<Without::barrier>);
}
void mbarrier_never_initialized() {
    run_ring(mbarrier_kernel<Without::init>);
}
void mbarrier_set_up_twice() {
    run_ring(mbarrier_kernel<Without::one_init>);
}
void mbarrier_wrong_phase() {
    run_ring(mbarrier_kernel<Without::phase>);
}
void mbarrier_missing_arrival() {
    run_ring(mbarrier_kernel<Without::arrival>);
}
void mbarrier_and_copy_wait() {
    run_ring(mbarrier_and_wait_kernel<false>);
}
void mbarrier_and_copy_group() {
    run_ring(mbarrier_and_wait_kernel<true>);
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
