/// @file
/// Several GPUs of this machine that send to each other through NCCL, which is loaded when it is first
/// needed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "harness/device/cuda_calls.h"
#include "harness/device/ranks.h"

namespace ladder {

/// GPUs 0 to P - 1 as P ranks, each with a stream for its kernels and one for its messages.
class NcclGroup {
  public:
    /// Throws CannotRun if there is no NCCL.
    explicit NcclGroup(int ranks);
    ~NcclGroup();

    int ranks() const { return static_cast<int>(members_.size()); }
    cudaStream_t stream(int rank) const;

    /// Lets no kernel of any rank start before all ranks have come so far.
    void align();
    /// Runs run_stage(problem) on the host for each rank, with its GPU, stream and ring: that starts its
    /// kernels. Throws as Turns::run().
    void start(const std::function<void(const Problem&)>& run_stage, const std::vector<Problem>& problems,
               const Shape& whole);
    /// Waits for all kernels and messages. If one failed, ends the others' and throws CheckFailed.
    void finish();
    std::vector<Traffic> traffic() const { return traffic_; }

  private:
    friend class NcclRing;
    struct Member;
    void send_all();
    void gather_all();
    void abort();

    std::vector<std::unique_ptr<Member>> members_;
    std::vector<Traffic> traffic_;
};

}  // namespace ladder
