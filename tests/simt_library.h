/// @file
/// What the shared library of simt_library.cu has for the tests.
#pragma once

enum class FromLibrary {
    nothing_wrong,  ///< thread i's constant from thread 63 - i, by way of static shared memory
    race_on_static_shared_memory,
    race_on_shared_memory
};

/// Runs a kernel on 64 numbers, and throws what the launch throws.
extern "C" __attribute__((visibility("default"))) void run_from_library(FromLibrary what, int* out);
