/// @file
/// The GPU: memory, execution and time on the first CUDA device, or on several.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <cxxabi.h>
#ifdef LADDER_HAS_CUBLAS
#    include <cublas_v2.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "harness/base/numbers.h"
#include "harness/base/process.h"
#include "harness/base/statistics.h"
#include "harness/device/cuda_calls.h"
#include "harness/device/device.h"
#include "harness/device/nccl_group.h"
#include "harness/device/stopwatch.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "stages/launch.h"

namespace ladder {
namespace {

/// "13.0", of CUDA's 13000
std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// The last step of splitmix64: a counter in, 64 random bits out.
__device__ std::uint64_t random_bits(std::uint64_t counter) {
    std::uint64_t z = counter * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

__device__ void assign(__half& to, float value) {
    to = __float2half_rn(value);
}
__device__ void assign(__nv_bfloat16& to, float value) {
    to = __float2bfloat16_rn(value);
}

/// x[i] = the i-th of the seed's N(0, 1) numbers, by Box and Muller.
template <class T>
__global__ void normal_numbers(T* x, std::size_t count, std::uint64_t seed) {
    const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
    for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const std::uint64_t bits = random_bits((seed << 40) + i + 1);
        const float radius = float((bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
        const float angle = float(bits & 0xffffff) * 0x1p-24f;    // [0, 1)
        assign(x[i], sqrtf(-2 * logf(radius)) * cospif(2 * angle));
    }
}

/// Reads words, all 0, so that the L2 cache holds the last of them.
__global__ void read_all(uint4* words, std::size_t count) {
    const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
    unsigned sum = 0;
    for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const uint4 word = words[i];
        sum |= word.x | word.y | word.z | word.w;
    }
    if (sum != 0) words->x = 0;  // never, but so the words are needed
}

/// What timing a call takes. Reading `flush`, several times the L2 cache, empties the cache. (Writing it
/// would fill the cache with lines that have yet to go to memory, at the expense of the call.) It is read as
/// often as the host needs to queue the whole call after it, so that the events bracket the GPU's work and
/// not the host's launches.
struct Clock {
    Clock(Device& device, std::size_t bytes) : flush(device, bytes, "flush", true) {
        check(cudaMemset(flush.data(), 0, flush.bytes()), "clear memory");
    }

    void flush_cache(int sm_count, cudaStream_t stream = nullptr) const {
        read_all<<<8 * sm_count, 256, 0, stream>>>(static_cast<uint4*>(flush.data()),
                                                   flush.bytes() / sizeof(uint4));
        check(cudaGetLastError(), "flush the cache");
    }

    Event start, stop;
    Buffer flush;
    int flushes = 1;
};

/// A failure with the name of the stage that it happened in.
template <class F>
void in_stage(const Stage& stage, F f) {
    try {
        f();
    } catch (const CannotRun& reason) {
        throw CannotRun(stage.folder() + ": " + reason.what());
    } catch (const CheckFailed& failure) {
        throw CheckFailed(stage.folder() + ": " + failure.what());
    }
}

/// The kernel's name in the source; older toolkits do not tell.
std::string name_of([[maybe_unused]] const void* kernel) {
#if CUDART_VERSION >= 12030
    const char* mangled = nullptr;
    check(cudaFuncGetName(&mangled, kernel), "ask for a kernel's name");
    const std::unique_ptr<char, void (*)(void*)> demangled(
        abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), std::free);
    return kernel_base_name(demangled ? demangled.get() : mangled);
#else
    return "kernel";
#endif
}

/// Tells f of every launch while it lives, and the profiler that it should look.
class Listening {
  public:
    template <class F>
    explicit Listening(F f) {
        on_launch = f;
        check(cudaProfilerStart(), "start the profiler");
    }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    ~Listening() {
        cudaProfilerStop();
        on_launch = nullptr;
    }
};

class GpuDevice final : public Device, public KernelObserver {
  public:
    explicit GpuDevice(int gpu = 0) : gpu_(gpu) {
        int driver = 0;
        const cudaError_t error = cudaGetDeviceCount(&count_);
        cudaDriverGetVersion(&driver);  // 0 without a driver
        if (driver == 0) throw CannotRun("there is no NVIDIA driver");
        if (error == cudaErrorInsufficientDriver) {
            throw CannotRun("the NVIDIA driver is for CUDA " + version(driver) +
                            ", older than this build's CUDA " + version(CUDART_VERSION));
        }
        if (error == cudaErrorNoDevice || (error == cudaSuccess && count_ == 0))
            throw CannotRun("there is no CUDA device");
        if (error != cudaSuccess)
            throw CannotRun(std::string("CUDA does not start: ") + cudaGetErrorString(error));
        if (const cudaError_t opened = cudaGetDeviceProperties(&properties_, gpu); opened != cudaSuccess) {
            throw CannotRun(std::string("the CUDA device does not open: ") + cudaGetErrorString(opened));
        }
        const cudaError_t loaded = cudaFuncGetAttributes(&code_, normal_numbers<__half>);
        if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorInvalidDeviceFunction) {
            const auto arch = std::to_string(compute_capability());
            throw CannotRun("this build has no code for the GPU's compute capability " +
                            dotted(compute_capability()) +
                            ": rebuild with -DCMAKE_CUDA_ARCHITECTURES=" + arch);
        }
        if (loaded != cudaSuccess)
            throw CannotRun(std::string("the CUDA device does not open: ") + cudaGetErrorString(loaded));
    }

    Backend backend() const override { return Backend::gpu; }
    std::string description() const override { return properties_.name; }
    int sm_count() const override { return properties_.multiProcessorCount; }
    int compute_capability() const override { return properties_.major * 10 + properties_.minor; }

    std::size_t free_memory() const override {
        const CurrentGpu current(gpu_);
        std::size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "ask for free memory");
        return free;
    }

    void* allocate(std::size_t bytes, const char* name, bool) override {
        const CurrentGpu current(gpu_);
        void* memory = nullptr;
        const cudaError_t error = cudaMalloc(&memory, bytes);
        if (error == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // otherwise the next launch would seem to have failed
            throw CannotRun(std::string(name) + " needs " + human_bytes(double(bytes)) + "; the GPU has " +
                            human_bytes(double(free_memory())) + " free");
        }
        check(error, std::string("allocate ") + name);
        return memory;
    }
    void release(void* memory) override { cudaFree(memory); }

    void upload(void* device, const void* host, std::size_t bytes) override {
        check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
    }
    void fill(void* device, unsigned char byte, std::size_t bytes) override {
        const CurrentGpu current(gpu_);
        check(cudaMemset(device, byte, bytes), "fill memory");
    }
    void download(void* host, const void* device, std::size_t bytes) override {
        check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
    }

    const Stage& with_functions(const Stage& stage) const override { return load_stage(stage, Backend::gpu); }

    void run(const Stage& stage, const Problem& problem) override {
        in_stage(stage, [&] {
            run_of(stage, problem)(problem);
            check(cudaGetLastError(), "launch");
            check(cudaDeviceSynchronize(), "run");
        });
    }

    Device& of_rank(int rank, int ranks) override {
        if (ranks > count_) {
            throw CannotRun(std::to_string(ranks) + " ranks need a GPU each, and there " +
                            (count_ == 1 ? "is 1" : "are " + std::to_string(count_)));
        }
        if (rank == gpu_) return *this;
        auto& other = others_[rank];
        if (!other) other = std::make_unique<GpuDevice>(rank);
        return *other;
    }

    void run_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) override {
        in_stage(stage, [&] {
            NcclGroup& group = group_of(problems.size());
            for (int rank = 0; rank < group.ranks(); ++rank) {
                const CurrentGpu current(rank);
                check(cudaDeviceSynchronize(), "prepare");
            }
            start_and_finish(group, stage, problems, whole, [] {});
        });
    }
    std::vector<Traffic> traffic() const override {
        return group_ ? group_->traffic() : std::vector<Traffic>();
    }

    Hardware hardware() const override {
        return {.gpu = properties_.name,
                .sm_count = sm_count(),
                .device_arch = compute_capability(),
                .binary_arch = code_.binaryVersion,
                .ptx_arch = code_.ptxVersion,
                .driver = driver_version(),
                .toolkit = version(CUDART_VERSION)};
    }

    void fill_normal(void* memory, std::size_t count, DType dtype, std::uint64_t seed) override {
        const int blocks = 8 * sm_count();
        if (dtype == DType::fp16) {
            normal_numbers<<<blocks, 256>>>(static_cast<__half*>(memory), count, seed);
        } else {
            normal_numbers<<<blocks, 256>>>(static_cast<__nv_bfloat16*>(memory), count, seed);
        }
        check(cudaGetLastError(), "fill a tensor");
    }

    double time(const Stage& stage, const Problem& problem) override {
        double milliseconds = 0;
        in_stage(stage, [&] { milliseconds = time_cold([&, f = run_of(stage, problem)] { f(problem); }); });
        return milliseconds;
    }

    double time_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) override {
        double milliseconds = 0;
        in_stage(stage, [&] { milliseconds = time_cold_ranks(stage, problems, whole); });
        return milliseconds;
    }

    std::vector<KernelProfile> observe(const Stage& stage, const Problem& problem) override {
        std::vector<KernelProfile> kernels;
        the_clock().flush_cache(sm_count());  // what the profiler sees starts with none of its inputs there
        const Listening listening([&](const Launch& launch) { kernels.push_back(profile_of(launch)); });
        run(stage, problem);
        return kernels;
    }

    Ceilings ceilings() override {
        return {.bf16_tflops = compute_capability() < 80 ? std::nullopt : gemm_tflops(DType::bf16),
                .fp16_tflops = gemm_tflops(DType::fp16),
                .copy_gbs = copy_gbs()};
    }

  private:
    /// That of so many ranks, kept until another number of them is asked for.
    NcclGroup& group_of(std::size_t ranks) {
        if (!group_ || group_->ranks() != int(ranks)) {
            group_.reset();
            group_ = std::make_unique<NcclGroup>(int(ranks));
        }
        return *group_;
    }

    /// If a rank fails, waits for what the others have started.
    template <class F>
    void start_and_finish(NcclGroup& group, const Stage& stage, const std::vector<Problem>& problems,
                          const Shape& whole, F when_all_started) {
        try {
            group.start(run_of(stage, problems[0]), problems, whole);
            when_all_started();
        } catch (...) {
            try {
                group.finish();
            } catch (const CheckFailed&) {  // the first failure tells
            }
            throw;
        }
        group.finish();
    }

    /// The longest of the ranks' times, which start together.
    double time_cold_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) {
        NcclGroup& group = group_of(problems.size());
        const int ranks = group.ranks();
        const auto for_each_rank = [&](auto f) {
            for (int rank = 0; rank < ranks; ++rank) {
                const CurrentGpu current(rank);
                f(static_cast<GpuDevice&>(of_rank(rank, ranks)), group.stream(rank));
            }
        };
        for (int& flushes = the_clock().flushes;; flushes *= 2) {
            for_each_rank([](GpuDevice& gpu, cudaStream_t) {
                gpu.the_clock();
                check(cudaDeviceSynchronize(), "prepare");
            });
            for_each_rank([&](GpuDevice& gpu, cudaStream_t stream) {
                for (int i = 0; i < flushes; ++i) gpu.the_clock().flush_cache(gpu.sm_count(), stream);
            });
            group.align();
            for_each_rank([](GpuDevice& gpu, cudaStream_t stream) { gpu.the_clock().start.record(stream); });
            bool host_was_late = false;
            start_and_finish(group, stage, problems, whole, [&] {
                for_each_rank([&](GpuDevice& gpu, cudaStream_t stream) {
                    gpu.the_clock().stop.record(stream);
                    host_was_late |= gpu.the_clock().start.has_happened();
                });
            });
            double longest = 0;
            for_each_rank([&](GpuDevice& gpu, cudaStream_t) {
                longest = std::max(longest, gpu.the_clock().stop.milliseconds_since(gpu.the_clock().start));
            });
            if (!host_was_late || flushes >= 64) return longest;
        }
    }

    RunStage run_of(const Stage& stage, const Problem& problem) const {
        if (problem.dtype == DType::bf16 && compute_capability() < 80) {
            throw CannotRun("bf16 needs compute capability 8.0; this GPU has " +
                            dotted(compute_capability()));
        }
        return ready(stage).run;
    }

    /// What the launch takes of a multiprocessor.
    KernelProfile profile_of(const Launch& launch) const {
        cudaFuncAttributes code{};
        check(cudaFuncGetAttributes(&code, launch.kernel), "ask for a kernel's attributes");
        const auto blocks_per_sm = [&](std::size_t shared_bytes) {
            int blocks = 0;
            check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel, launch.threads,
                                                                shared_bytes),
                  "ask for a kernel's occupancy");
            return blocks;
        };
        KernelProfile kernel;
        kernel.kernel = name_of(launch.kernel);
        kernel.blocks = launch.blocks;
        kernel.threads = launch.threads;
        kernel.registers = code.numRegs;
        kernel.local_bytes = int(code.localSizeBytes);
        kernel.shared_bytes = int(code.sharedSizeBytes + launch.shared_bytes);
        kernel.blocks_per_sm = blocks_per_sm(launch.shared_bytes);
        kernel.warps_per_sm = kernel.blocks_per_sm * ((launch.threads + 31) / 32);
        kernel.limited_by = limit_of(kernel, blocks_per_sm(0),
                                     {.threads = properties_.maxThreadsPerMultiProcessor,
                                      .blocks = properties_.maxBlocksPerMultiProcessor,
                                      .shared_bytes = int(properties_.sharedMemPerMultiprocessor),
                                      .reserved_shared_bytes = int(properties_.reservedSharedMemPerBlock)});
        return kernel;
    }

    Clock& the_clock() {
        if (!clock_)
            clock_.emplace(*this, std::max<std::size_t>(std::size_t(4) * properties_.l2CacheSize, 256 << 20));
        return *clock_;
    }

    /// Milliseconds of f, which launches kernels, with the L2 cache full of something else.
    template <class F>
    double time_cold(F f) {
        Clock& clock = the_clock();
        for (;; clock.flushes *= 2) {
            for (int i = 0; i < clock.flushes; ++i) clock.flush_cache(sm_count());
            clock.start.record();
            f();
            check(cudaGetLastError(), "launch");
            clock.stop.record();
            const bool host_was_late = clock.start.has_happened();
            const double milliseconds = clock.stop.milliseconds_since(clock.start);
            // What waits for the GPU itself is late however long the queue.
            if (!host_was_late || clock.flushes >= 64) return milliseconds;
        }
    }

    template <class F>
    double median_ms(int repeats, F f) {
        std::vector<double> times;
        for (int i = 0; i < 3; ++i) time_cold(f);
        for (int i = 0; i < repeats; ++i) times.push_back(time_cold(f));
        std::sort(times.begin(), times.end());
        return percentile(times, 0.5);
    }

    std::optional<double> copy_gbs() {
        try {
            const std::size_t bytes = std::min<std::size_t>(std::size_t(4) << 30, free_memory() / 4);
            const Buffer from(*this, bytes, "copy source", false), to(*this, bytes, "copy target", true);
            fill_normal(from.data(), bytes / sizeof(std::uint16_t), DType::fp16, 1);
            const auto copy = [&] {
                check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice), "copy");
            };
            return 2 * double(bytes) / median_ms(10, copy) * 1e-6;
        } catch (const CannotRun&) {
            return std::nullopt;
        }
    }

    std::optional<double> gemm_tflops([[maybe_unused]] DType dtype) {
#ifdef LADDER_HAS_CUBLAS
        constexpr int n = 8192;
        cublasHandle_t handle = nullptr;
        const auto checked = [](cublasStatus_t status) {
            if (status != CUBLAS_STATUS_SUCCESS) throw CannotRun(cublasGetStatusString(status));
        };
        std::optional<double> tflops;
        try {
            checked(cublasCreate(&handle));
            constexpr std::size_t count = std::size_t(n) * n, bytes = count * sizeof(std::uint16_t);
            const Buffer A(*this, bytes, "A", false), B(*this, bytes, "B", false), C(*this, bytes, "C", true);
            fill_normal(A.data(), count, dtype, 1);
            fill_normal(B.data(), count, dtype, 2);
            const float one = 1, zero = 0;
            const auto type = dtype == DType::fp16 ? CUDA_R_16F : CUDA_R_16BF;
            const auto multiply = [&] {
                checked(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, A.data(), type, n,
                                     B.data(), type, n, &zero, C.data(), type, n, CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT));
            };
            tflops = 2.0 * n * n * n / median_ms(20, multiply) * 1e-9;
        } catch (const CannotRun&) {  // a ceiling less, and no reason not to time
        }
        if (handle != nullptr) cublasDestroy(handle);
        return tflops;
#else
        return std::nullopt;
#endif
    }

    static std::string driver_version() {
        const auto asked = run_process({"nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"});
        if (asked.status == 0 && !asked.out.empty()) return asked.out.substr(0, asked.out.find('\n'));
        int driver = 0;
        cudaDriverGetVersion(&driver);
        return "for CUDA " + version(driver);
    }

    const int gpu_;
    int count_ = 0;  ///< of all GPUs
    std::map<int, std::unique_ptr<GpuDevice>> others_;
    std::unique_ptr<NcclGroup> group_;
    cudaDeviceProp properties_{};
    cudaFuncAttributes code_{};
    std::optional<Clock> clock_;  // made when it is first needed
};

}  // namespace

std::unique_ptr<Device> open_gpu_device() {
    return std::make_unique<GpuDevice>();
}

}  // namespace ladder
