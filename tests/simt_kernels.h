/// @file
/// What small kernels of these tests have in common, and how a test's function runs one.
#pragma once

#include <vector>

#include "simt/simt.h"
#include "stages/device.cuh"
#include "tests/simt_array.h"
#include "tests/simt_cases.h"

namespace simt_cases {

/// Shared memory of small kernels.
struct Words {
    int word[256];
};

inline int thread_number() {
    return static_cast<int>(threadIdx.x);
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), int blocks, int threads, Arguments... arguments) {
    ladder::launch(kernel, dim3(blocks), threads, sizeof(Words), arguments...);
}

}  // namespace simt_cases

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
