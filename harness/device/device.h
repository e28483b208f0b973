/// @file
/// Where a stage runs: memory and execution of one back-end, as one interface.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simt/counters.h"
#include "stages/errors.h"
#include "stages/stage.h"

namespace ladder {

/// What one of several ranks did.
struct Traffic {
    std::uint64_t messages = 0;                ///< that it sent: of K and V together, or to all others
    std::uint64_t bytes = 0;                   ///< of these
    std::uint64_t exposed_bytes = 0;           ///< of these, bytes of messages during which it ran no kernel
    std::vector<std::uint64_t> products = {};  ///< of its kernels in each step, as Counters::wgmma_columns

    bool operator==(const Traffic&) const = default;
};

/// One back-end's memory and execution.
class Device {
  public:
    virtual ~Device() = default;

    virtual Backend backend() const = 0;
    /// "NVIDIA H200", or "CPU (2 workers)"
    virtual std::string description() const = 0;
    /// Multiprocessors. The CPU back-ends report a fixed number so that counts do not depend on the machine.
    virtual int sm_count() const = 0;
    /// 90 for compute capability 9.0
    virtual int compute_capability() const = 0;
    /// Bytes that an allocation could get now.
    virtual std::size_t free_memory() const = 0;
    /// Bytes of memory that each byte of writable memory takes in addition: what a race checker knows of
    /// it.
    virtual std::size_t shadow_bytes() const { return 0; }

    /// Device memory, 256-byte aligned. `name` is what a race report calls it; a kernel that writes to
    /// memory with writable == false is reported. Throws CannotRun when there is not enough.
    virtual void* allocate(std::size_t bytes, const char* name, bool writable) = 0;
    virtual void release(void* memory) = 0;
    virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
    /// Sets every byte.
    virtual void fill(void* device, unsigned char byte, std::size_t bytes);
    virtual void download(void* host, const void* device, std::size_t bytes) = 0;

    /// Why the stage cannot run here, whatever the problem: what it needs, and what there is. Empty if it
    /// can.
    std::string why_not(const Stage& stage) const;

    /// The stage with its functions, as this device runs it: its kernel compiled for this back-end, now if it
    /// was not. Throws CannotRun with why_not(), CheckFailed if it does not compile.
    const Stage& ready(const Stage& stage) const;

    /// Runs the stage and waits for it. Throws CannotRun when the device lacks what the stage needs
    /// (bf16 on sm_75, shared memory), CheckFailed when the kernel fails (race, deadlock, device error).
    virtual void run(const Stage& stage, const Problem& problem) = 0;

    /// What the last run() counted, on all ranks together; zeros on a GPU.
    virtual simt::Counters counters() const { return {}; }

    /// The device with the memory of this one of several ranks: this device, unless each has a GPU of its
    /// own. Throws CannotRun if there are fewer GPUs.
    virtual Device& of_rank([[maybe_unused]] int rank, [[maybe_unused]] int ranks) { return *this; }
    /// Runs the stage on all ranks of a ring, of which problem r is rank r's part, and waits for them.
    /// `whole` has the Nq and Nk of all. If a rank fails, all end. Throws as run(), naming the rank.
    virtual void run_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole);
    /// What each rank of the last run_ranks() did.
    virtual std::vector<Traffic> traffic() const { return {}; }

  private:
    /// ready() for a stage that can run here. By itself, a device runs stages that have their functions
    /// already.
    virtual const Stage& with_functions(const Stage& stage) const { return stage; }
};

/// Memory on a device, released with its owner.
class Buffer {
  public:
    Buffer(Device& device, std::size_t bytes, const char* name, bool writable)
        : device_(&device),
          data_(bytes > 0 ? device.allocate(bytes, name, writable) : nullptr),
          bytes_(bytes) {}
    Buffer(Buffer&& other) noexcept
        : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
        if (data_ != nullptr) device_->release(data_);
    }

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    Device* device_;
    void* data_;
    std::size_t bytes_;
};

/// Opens a back-end. Throws CannotRun, saying what is missing, if this build or machine does not have it.
std::unique_ptr<Device> open_device(Backend backend);

/// Whether open_device would succeed; fills `why_not` (one line) if it would not.
bool has_device(Backend backend, std::string* why_not = nullptr);

/// In a catch block or a terminate handler: what was thrown, in words, whatever its type.
std::string what_was_thrown();

/// "9.0", of the compute capability 90
std::string dotted(int compute_capability);

/// Those of the stages that can run on the device: see Device::why_not.
std::vector<const Stage*> runnable(const std::vector<const Stage*>& stages, const Device& device);

/// Throws BadUsage if the tensors alone exceed the device's free memory, whatever the stage.
void require_memory(const Shape& shape, const Device& device, Pass pass = Pass::forward);

}  // namespace ladder
