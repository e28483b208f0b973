/// @file
/// Yardsticks: the attention of other libraries, timed beside the stages and in their own process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/base/process.h"
#include "harness/problem/case.h"

namespace ladder {

/// The back-ends of PyTorch's scaled_dot_product_attention, run by harness/time/peers.py. Whatever fails
/// there (no PyTorch, a program that dies, hangs or answers nonsense) throws CannotRun.
class Peers {
  public:
    /// Fused ones first: "FlashAttention-2", "cuDNN", "unfused".
    static const std::vector<std::string>& names();
    /// The one of them that is slow on purpose: sweeps and plots leave it out.
    static constexpr const char* slow = "unfused";

    /// harness/time/peers.py under $LADDER_PYTHON, or else python3.
    static std::vector<std::string> command();

    /// Starts the program and waits for its greeting. No answer may take longer than `limit_s` seconds.
    explicit Peers(const std::vector<std::string>& command = Peers::command(), double limit_s = 120);

    /// The GPU that they run on: "NVIDIA H200".
    const std::string& device() const { return device_; }
    /// What they are made of: "PyTorch" -> "2.11.0+cu130".
    const std::map<std::string, std::string>& libraries() const { return libraries_; }

    /// Makes N(0, 1) inputs of the case and warms up. Returns for each name why that peer cannot run, in one
    /// line, empty if it can.
    std::vector<std::string> prepare(const Case& c, const std::vector<std::string>& names);
    /// Milliseconds on the device of one call, measured as Stopwatch::time() does.
    double time(const std::string& name);
    /// Gives the device's memory back.
    void release();

  private:
    Coprocess program_;
    double limit_s_;
    std::string device_;
    std::map<std::string, std::string> libraries_;
};

}  // namespace ladder
