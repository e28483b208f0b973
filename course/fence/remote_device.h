/// @file
/// A student's kernel in a process of its own, as a Device. What verifies and counts the
/// ladder's stages verifies and counts it: inputs and canaries go there, outputs come back, and they are
/// judged here.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/limited_process.h"
#include "harness/device/device.h"

namespace ladder {

/// Limits are in seconds of processors, so that what else a machine does changes no verdict. By the clock a
/// run may take this many times as long.
inline constexpr double clock_over_processors = 4;

/// A CPU back-end with one stage's library, in a process of its own (runner.cpp). A process that crashes,
/// hangs or ends costs the run that it was in (CheckFailed); the next allocation starts another.
class RemoteDevice final : public Device {
  public:
    /// `run_limit_s`: seconds of processors that one run may take. Nothing takes longer than to the limits'
    /// deadline.
    RemoteDevice(std::filesystem::path library, Backend backend, Limits limits, double run_limit_s);
    ~RemoteDevice() override;

    /// The stage as the kernel declares it. Throws CheckFailed if the library does not load, or has not
    /// exactly one.
    Stage stage();

    Backend backend() const override { return backend_; }
    std::string description() const override { return local_->description() + ", in a process of its own"; }
    int sm_count() const override;
    int compute_capability() const override;
    std::size_t free_memory() const override;
    void* allocate(std::size_t bytes, const char* name, bool writable) override;
    void release(void* memory) override;
    void upload(void* device, const void* host, std::size_t bytes) override;
    void download(void* host, const void* device, std::size_t bytes) override;
    /// Also throws CheckFailed if kernels stored less than O and L: whatever wrote them, it was no kernel.
    void run(const Stage& stage, const Problem& problem) override;
    simt::Counters counters() const override { return counters_; }
    void run_ranks(const Stage& stage, const std::vector<Problem>& problems, const Shape& whole) override;
    std::vector<Traffic> traffic() const override { return traffic_; }

    /// The asynchronous copies to shared memory that each block of the last run started, by the block's
    /// number. With several launches, of the last.
    const std::vector<std::uint64_t>& copies_of_blocks() const { return copies_of_blocks_; }

    /// Runs that took too long, so far.
    int hangs() const { return hangs_; }

    /// Seconds of processors that the program has used so far, if it has not ended.
    double processor_s() const;

    /// What the program wrote to its standard output and errors.
    std::string output() const;

  private:
    struct Connection;

    void start();
    void require_alive();
    /// Ends the process and throws CheckFailed: with what went wrong, or if that is empty with how it ended.
    [[noreturn]] void fail(const std::string& what);
    struct Turn;
    /// Waits until the socket is ready for POLLIN or POLLOUT. Ends the process if that takes too long.
    void await(short event, const Turn& turn);
    void send(const void* data, std::size_t bytes);
    void receive(void* data, std::size_t bytes);
    /// What came of a run that stores so many bytes at least.
    void receive_outcome(const Stage& stage, std::uint64_t least, const char* what);
    template <class T>
    void send_value(const T& value) {
        send(&value, sizeof value);
    }
    template <class T>
    T receive_value() {
        T value;
        receive(&value, sizeof value);
        return value;
    }

    std::filesystem::path library_;
    Backend backend_;
    Limits limits_;
    double run_limit_s_;
    std::unique_ptr<Device> local_;  ///< whose sizes it reports
    std::unique_ptr<Connection> connection_;
    int hangs_ = 0;
    int generation_ = 0;  ///< of the process
    std::map<void*, int> allocations_;
    std::string last_output_;
    simt::Counters counters_;
    std::vector<Traffic> traffic_;
    std::vector<std::uint64_t> copies_of_blocks_;
};

}  // namespace ladder
