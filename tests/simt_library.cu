/// @file
/// Kernels of a shared library that the tests open while they run.

#include "tests/simt_library.h"

#include "stages/device.cuh"

namespace {

using namespace ladder;

constexpr int constants[8] = {3, 1, 4, 1, 5, 9, 2, 6};

template <bool with_barrier>
__global__ void static_shared_kernel(int* out) {
    __shared__ int words[64];
    const int thread = static_cast<int>(threadIdx.x);
    words[thread] = 0;
    __syncthreads();
    words[thread] = load(&constants[thread % 8]);
    if (with_barrier) __syncthreads();
    out[thread] = words[63 - thread];
}

__global__ void shared_kernel(int* out) {
    auto& words = shared_memory<int[64]>();
    const int thread = static_cast<int>(threadIdx.x);
    store(&words[thread], 0);
    __syncthreads();
    store(&words[thread], load(&constants[thread % 8]));
    store(&out[thread], load(&words[63 - thread]));
}

}  // namespace

void run_from_library(FromLibrary what, int* out) {
    switch (what) {
        case FromLibrary::nothing_wrong:
            return launch(static_shared_kernel<true>, dim3(1), 64, 0, out);
        case FromLibrary::race_on_static_shared_memory:
            return launch(static_shared_kernel<false>, dim3(1), 64, 0, out);
        case FromLibrary::race_on_shared_memory:
            return launch(shared_kernel, dim3(1), 64, 64 * sizeof(int), out);
    }
}
