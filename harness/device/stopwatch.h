/// @file
/// What a device must be able to do, besides running stages, in order to be timed and profiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// The GPU and the code that it ran. Architectures are compute capabilities times ten: 90 for sm_90.
struct Hardware {
    std::string gpu;      ///< "NVIDIA H200"
    int sm_count = 0;     ///< multiprocessors
    int device_arch = 0;  ///< of the GPU
    int binary_arch = 0;  ///< of the machine code that the driver loaded
    int ptx_arch = 0;     ///< of the PTX which that machine code was made from
    std::string driver;   ///< "580.159.04"
    std::string toolkit;  ///< "13.0": the CUDA toolkit that compiled the kernels
};

/// The best rates seen on the machine in the same run; empty where they could not be measured.
struct Ceilings {
    std::optional<double> bf16_tflops;  ///< cuBLAS GEMM, 8192^3, N(0, 1) inputs
    std::optional<double> fp16_tflops;  ///< the same in fp16
    std::optional<double> copy_gbs;  ///< device-to-device copy, bytes read plus bytes written, in 1e9 bytes/s
};

/// What a multiprocessor has for its blocks.
struct Multiprocessor {
    int threads = 0;
    int blocks = 0;
    int shared_bytes = 0;
    int reserved_shared_bytes = 0;  ///< of each block, for the system
};

/// One kernel launch.
struct KernelProfile {
    std::string kernel;       ///< "attention"
    std::int64_t blocks = 0;  ///< of the grid
    int threads = 0;          ///< of a block
    int registers = 0;        ///< of a thread
    int local_bytes = 0;      ///< of a thread: what does not fit its registers, spills above all
    int shared_bytes = 0;     ///< of a block, static and dynamic
    int blocks_per_sm = 0;    ///< that fit a multiprocessor
    int warps_per_sm = 0;     ///< of these blocks
    std::string limited_by;   ///< why no more fit: "registers", or several with commas
    /// By the names of harness/time/nsight.py. What could not be measured is not there.
    std::map<std::string, double> metrics;
};

/// What keeps one more block from the multiprocessor. `blocks_without_shared` would fit if the kernel took no
/// dynamic shared memory.
std::string limit_of(const KernelProfile& kernel, int blocks_without_shared, const Multiprocessor& sm);

/// "attention", of "void (anonymous namespace)::attention<__half, 128>(ladder::Problem)"
std::string kernel_base_name(std::string demangled);

/// What a device must be able to do, besides running stages, in order to be timed. The GPU is the only one
/// that can.
class Stopwatch {
  public:
    virtual ~Stopwatch() = default;

    virtual Hardware hardware() const = 0;
    /// Measures them; takes about a second.
    virtual Ceilings ceilings() = 0;
    /// Fills device memory with `count` N(0, 1) values of the type, the same for the same seed.
    virtual void fill_normal(void* memory, std::size_t count, DType dtype, std::uint64_t seed) = 0;
    /// Milliseconds on the device of one run that starts with none of its inputs in the L2 cache.
    virtual double time(const Stage& stage, const Problem& problem) = 0;
    /// The same of one run on all ranks, from when all can start to when the last has ended. See
    /// Device::run_ranks().
    virtual double time_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole);
};

/// A stopwatch that also sees the kernels which a stage launches.
class KernelObserver : public Stopwatch {
  public:
    /// Runs the stage once, which is all that a profiler around this process gets to see. Throws as
    /// Device::run().
    virtual std::vector<KernelProfile> observe(const Stage& stage, const Problem& problem) = 0;
};

}  // namespace ladder
