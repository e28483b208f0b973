/// @file
/// The CPU back-ends as a Device: plain, and race-checked.

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <typeinfo>

#include <sys/mman.h>
#include <unistd.h>

#include "harness/device/device.h"
#include "harness/device/ranks.h"
#include "harness/ladder/library.h"
#include "simt/fence.h"
#include "simt/simt.h"

namespace ladder {
namespace {

/// Memory of more bytes than that takes as many as are touched, and no 32-bit offset leads out of it: neither
/// one that has become negative nor one that has begun again at 0.
constexpr std::size_t large = std::size_t{1} << 32;
static_assert(sizeof(std::size_t) == 8);

void* allocate_large(std::size_t bytes) {
    void* memory = mmap(nullptr, large + bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory) + large;
}

class CpuDevice final : public Device {
  public:
    explicit CpuDevice(Backend backend) : backend_(backend) {}

    Backend backend() const override { return backend_; }
    std::string description() const override {
        return backend_ == Backend::checked ? "CPU, race-checked" : "CPU";
    }
    int sm_count() const override { return simt::options().multiprocessors; }
    int compute_capability() const override { return simt::options().compute_capability; }
    // What the kernel would give back from its caches counts too, so not sysconf's free pages.
    std::size_t free_memory() const override {
        std::ifstream info("/proc/meminfo");
        std::string key;
        for (std::size_t kib = 0; info >> key >> kib; info.ignore(16, '\n')) {
            if (key == "MemAvailable:") return kib * 1024;
        }
        return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
               static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    }
    // See Shadow in simt/checker.h: 64 bytes for a line of 16, and 48 for each 2 of those that were not
    // written as one.
    std::size_t shadow_bytes() const override { return backend_ == Backend::checked ? 64 / 16 + 48 / 2 : 0; }

    void* allocate(std::size_t bytes, const char* name, bool writable) override {
        const std::size_t unit = simt::fence_unit(), rounded = (bytes + unit - 1) / unit * unit;
        void* memory = bytes > large ? allocate_large(rounded) : std::aligned_alloc(unit, rounded);
        if (memory == nullptr) throw CannotRun("not enough memory for " + std::to_string(bytes) + " bytes");
        if (bytes > large) large_[memory] = rounded;
        simt::register_allocation(memory, bytes, name, writable);
        simt::fence(memory, rounded, name);
        return memory;
    }
    void release(void* memory) override {
        simt::forget_fence(memory);
        simt::forget_allocation(memory);
        const auto found = large_.find(memory);
        if (found == large_.end()) return std::free(memory);
        munmap(static_cast<std::byte*>(memory) - large, large + found->second);
        large_.erase(found);
    }
    void upload(void* device, const void* host, std::size_t bytes) override {
        std::memcpy(device, host, bytes);
    }
    void download(void* host, const void* device, std::size_t bytes) override {
        std::memcpy(host, device, bytes);
    }

    const Stage& with_functions(const Stage& stage) const override { return load_stage(stage, backend_); }

    void run(const Stage& stage, const Problem& problem) override {
        if (problem.dtype == DType::bf16 && compute_capability() < 80) {
            throw CannotRun("bf16 needs compute capability 8.0");
        }
        const RunStage run_stage = ready(stage).run;
        simt::reset_counters();
        in_words(stage, [&] {
            simt::run_host_side(reinterpret_cast<const void*>(run_stage), [&] { run_stage(problem); });
        });
    }

    // Of the ranks' threads one runs at a time, but device memory is within reach of all of them: what a
    // stage's host side touches shows where it runs alone.
    void run_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) override {
        const RunStage run_stage = ready(stage).run;
        simt::reset_counters();
        const auto run_one = [&](const Problem& problem) { in_words(stage, [&] { run_stage(problem); }); };
        traffic_ = run_in_memory(run_one, problems, whole, simt::options().seed);
    }
    std::vector<Traffic> traffic() const override { return traffic_; }

    simt::Counters counters() const override { return simt::counters(); }

  private:
    /// Calls f, which runs the stage, with what it throws in our words.
    template <class F>
    static void in_words(const Stage& stage, F f) {
        simt::options().additions_in_order = stage.repeats_exactly;
        try {
            f();
        } catch (const simt::Report& report) {
            if (report.kind == simt::Report::Kind::unsupported) throw CannotRun(report.what());
            throw CheckFailed(with_named_lines(report.what(), stage.source));
        } catch (const CheckFailed&) {
            throw;
        } catch (const CannotRun&) {
            throw;
        } catch (const std::bad_alloc&) {
            throw;
        } catch (...) {
            throw CheckFailed("the kernel or its host side threw " + what_was_thrown());
        }
    }

    Backend backend_;
    std::vector<Traffic> traffic_;
    std::map<void*, std::size_t> large_;  ///< what allocate_large() gave, and its bytes
};

}  // namespace

std::string what_was_thrown() {
    const std::exception_ptr thrown = std::current_exception();
    const std::type_info* type = abi::__cxa_current_exception_type();
    if (!thrown || type == nullptr) return "an unknown exception";
    const std::unique_ptr<char, decltype(&std::free)> type_name(
        abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr), &std::free);
    const std::string what = type_name ? type_name.get() : type->name();
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        return what + ": " + error.what();
    } catch (...) {
        return "an exception of type " + what;
    }
}

std::unique_ptr<Device> open_cpu_device(Backend backend) {
    return std::make_unique<CpuDevice>(backend);
}

}  // namespace ladder
