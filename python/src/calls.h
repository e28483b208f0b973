/// @file
/// What the Python package calls, in C++: one stage on tensors where they lie, and the questions that `lab`
/// answers, as JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "stages/stage.h"

namespace ladder::python {

/// A tensor of the caller's: (B, heads, N, d), with strides in elements.
struct Tensor {
    std::uintptr_t data = 0;
    std::array<std::int64_t, 4> axes{};
    std::array<std::int64_t, 4> strides{};
};

/// Which keys a row sees.
struct Mask {
    bool causal = false;
    Window window;
};

/// A stage, compiled and loaded for one back-end.
class Kernel {
  public:
    /// `word`: a number, a name or a folder (see select_stage()). Throws BadUsage if there is none such,
    /// CannotRun if it or its back-end cannot run here, CheckFailed if it does not compile.
    Kernel(const std::string& word, const std::string& backend);

    bool is_forward() const { return stage_->pass == Pass::forward; }
    bool repeats_exactly() const { return stage_->repeats_exactly; }
    std::string folder() const { return stage_->folder(); }

    /// The head dimension at which it computes for Q, K and V of these axes: theirs, or the next that the
    /// stage has, for which a caller of forward() or backward() adds columns of zeros. Throws BadUsage if
    /// none is as large, or if the axes do not fit together.
    std::int64_t width(const std::array<std::int64_t, 4>& Q, const std::array<std::int64_t, 4>& K,
                       const std::array<std::int64_t, 4>& V) const;

    /// Bytes of workspace that a call on a GPU needs for Q and K of these axes; a CPU's calls bring their
    /// own.
    std::size_t workspace_bytes(const std::array<std::int64_t, 4>& Q, const std::array<std::int64_t, 4>& K);

    /// O (B, H, Nq, d) and L (B, H, Nq), contiguous fp32, of Q, K and V, which no one copies. On a GPU the
    /// call is queued in `stream` and returns; on a CPU it is over. Throws BadUsage if the tensors do not fit
    /// together or the stage, CannotRun and CheckFailed as Device::run().
    void forward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O, std::uintptr_t L,
                 DType dtype, Mask mask, std::optional<double> scale, std::uintptr_t workspace,
                 std::uintptr_t stream);

    /// dQ, dK and dV, in the same way, of O and L that a forward pass has left.
    void backward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O, std::uintptr_t L,
                  const Tensor& dO, const Tensor& dQ, const Tensor& dK, const Tensor& dV, DType dtype,
                  Mask mask, std::optional<double> scale, std::uintptr_t workspace, std::uintptr_t stream);

  private:
    using Axes = std::array<std::int64_t, 4>;
    struct Sizes {
        Axes Q{}, K{}, V{};
        Shape shape;
        std::size_t workspace_bytes = 0, counter_bytes = 0;  ///< of the workspace the last are counters
    };
    Sizes sizes(const Axes& Q, const Axes& K, const Axes& V);
    Problem problem(const Sizes& sizes, const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O,
                    std::uintptr_t L, DType dtype, Mask mask, std::optional<double> scale,
                    std::uintptr_t workspace) const;
    void run(const Sizes& sizes, const Problem& problem, std::uintptr_t stream) const;

    const Stage* stage_;
    Backend backend_;
    std::mutex mutex_;
    Sizes last_;  ///< of the last call, since the next one is often of the same sizes
};

/// The stage for Q and K of these axes, ready to run. `word` as for Kernel; without one it is what
/// DefaultStages finds among those that run on this back-end. A kernel of one's own is loaded as it is now,
/// and again when its kernel.cu has changed.
Kernel& kernel_of(bool forward, const std::optional<std::string>& word, const std::string& backend,
                  const std::array<std::int64_t, 4>& Q, const std::array<std::int64_t, 4>& K, Mask mask,
                  bool exactly = false);

/// Where sources and compiled kernels are: see use_folders(). Before all else, and once.
void start(const std::string& sources, const std::string& build);

/// Why stages cannot run on a back-end here; empty if they can.
std::string why_not(const std::string& backend);

/// Waits for all that this process has queued on the GPU.
void synchronize();

/// Compiles what is not up to date of these stages, as many at once as there are cores.
void prepare(const std::vector<std::string>& words, const std::string& backend);

/// The stage that runs for Q and K of these axes where none is named, as a folder's name. `exactly`: of those
/// whose results are the same bits each time. A head dimension that no stage has is computed at the next that
/// one has. Throws BadUsage if there is none.
std::string default_stage(bool forward, const std::array<std::int64_t, 4>& Q,
                          const std::array<std::int64_t, 4>& K, Mask mask, const std::string& backend,
                          bool exactly = false);

/// Each of these is JSON. `words` names stages as on lab's command line.
std::string list_stages(const std::vector<std::string>& words);
/// `shape`: "B,H,Hkv,Nq,Nk,d", or empty for the stage's own cases, of which `quick` takes few.
std::string verify(const std::vector<std::string>& words, const std::string& backend,
                   const std::string& shape, Mask mask, DType dtype, bool quick);
std::string count(const std::string& word, const std::string& shape, Mask mask, DType dtype);
/// The cases of a stage that verify() takes, but for those with a Feature: options of `lab verify`, and what
/// a call of the case is given.
std::string cases(const std::string& word, bool quick);
/// Fills Q, K and V, dense (B, heads, N, d) in the CPU's memory, with the inputs of a case.
void fill_inputs(const std::string& options, std::uintptr_t Q, std::uintptr_t K, std::uintptr_t V);
/// The verdict on O (B, H, Nq, d) and L (B, H, Nq), fp32, of such Q, K and V; on `sampled_rows` query rows of
/// each head if it is not 0. `options` give the shape, type, mask and scale.
std::string judge(const std::string& options, std::uintptr_t Q, std::uintptr_t K, std::uintptr_t V,
                  std::uintptr_t O, std::uintptr_t L, int sampled_rows);
/// Throws CannotRun without a GPU.
std::string time(const std::string& word, const std::string& shape, Mask mask, DType dtype);

}  // namespace ladder::python
