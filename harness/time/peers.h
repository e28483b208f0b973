/// @file
/// Yardsticks: the attention of other libraries, timed in turn with the stages and in their own process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/base/process.h"
#include "harness/problem/case.h"

namespace ladder {

/// Attention as Python's libraries have it, run by harness/time/peers.py. Whatever fails there (no PyTorch, a
/// program that dies, hangs or answers nonsense) throws CannotRun.
class Peers {
  public:
    /// Back-ends of PyTorch's scaled_dot_product_attention: "FlashAttention-2", "cuDNN", "unfused"; and
    /// "FlashAttention-3" and "FlashAttention-4", which have packages of their own.
    static const std::vector<std::string>& usual();
    /// Those that are timed only if they are asked for: "efficient", the memory-efficient back-end, "flex",
    /// flex_attention compiled to a Triton kernel, which takes seconds for each problem, and "FlashInfer",
    /// which has a package of its own, with a few query rows.
    static const std::vector<std::string>& further();
    /// What a user asks for: "all" for `usual` and further(), "cuDNN,flex" for these; only by its name
    /// "FlashAttention-3-FP8", which multiplies in 8 bits. Throws BadUsage.
    static std::vector<std::string> named(const std::string& words, const std::vector<std::string>& usual);
    /// The one of them that is slow on purpose: sweeps and plots leave it out.
    static constexpr const char* slow = "unfused";

    /// harness/time/peers.py under $LADDER_PYTHON, or else python3.
    static std::vector<std::string> command();

    /// Starts the program and waits for its greeting. No answer may take longer than `limit_s` seconds.
    explicit Peers(const std::vector<std::string>& command = Peers::command(), double limit_s = 300);

    /// The GPU that they run on: "NVIDIA H200".
    const std::string& device() const { return device_; }
    /// What they are made of: "PyTorch" -> "2.11.0+cu130", "fa3-fwd" -> "0.0.3".
    const std::map<std::string, std::string>& libraries() const { return libraries_; }
    /// By name, why a peer is not there at all: "FlashAttention-3" -> "the package .. is not installed".
    const std::map<std::string, std::string>& missing() const { return missing_; }

    /// Makes N(0, 1) inputs of the case and warms up. In the backward pass O is computed once, and what is
    /// timed is the gradients alone. Returns for each name why that peer cannot run, in one line, empty if it
    /// can.
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
    std::map<std::string, std::string> missing_;
};

}  // namespace ladder
