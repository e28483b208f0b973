#include <numeric>

#include "tests/simt_kernels.h"

namespace simt_cases {
namespace {

using namespace ladder;

// ---------------------------------------------------------------------------------------------------------------
// Asynchronous copies

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

__global__ void misaligned_copy_kernel(const int* in) {
    copy_async(&shared_memory<Words>().word[1], in, true);
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

}  // namespace

std::vector<int> run_ring(void (*kernel)(const int*, int*)) {
    Array<int> in(8 * 512, false), out(128);
    std::iota(in.data(), in.data() + 8 * 512, 0);
    launch(kernel, dim3(1), 128, sizeof(Ring), static_cast<const int*>(in.data()), out.data());
    return out.first(128);
}

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
SIMT_CASE_WITH_INPUT(mma_among_copies, 64)

void misaligned_copy() {
    Array<int> in(32, false);
    run(misaligned_copy_kernel, 1, 32, in.data());
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

}  // namespace simt_cases
