/// @file
/// What the Python package calls, in C++: one stage on tensors where they lie, and the questions that `lab`
/// answers, as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/features/given.h"
#include "harness/problem/features.h"
#include "stages/append.h"
#include "stages/stage.h"

namespace ladder {
struct FeatureInfo;
}

namespace ladder::python {

/// A tensor of the caller's: (B, heads, N, d), with strides in elements.
struct Tensor {
    std::uintptr_t data = 0;
    Axes axes{};
    Axes strides{};
};

/// What a call is of besides its tensors: which keys a row sees, how scores become O, and where keys lie.
struct Mask {
    Problem problem;      ///< all but its tensors and sizes
    Features features;    ///< what a stage has to take for it; a text only says that there is one
    std::int64_t Nk = 0;  ///< of K and V in a pool; 0 for others

    /// Numbers that kernels read.
    struct Numbers {
        const char* name;
        std::uintptr_t data;
        std::size_t bytes;
    };
    std::vector<Numbers> numbers = {};

    /// (B, Hkv, Nk, d) of such K, which may be a pool: (pages, Hkv, page_size, d).
    Axes keys(const Axes& Q, const Axes& K) const { return Nk == 0 ? K : Axes{Q[0], K[1], Nk, K[3]}; }
};

/// The mask of a call. Throws BadUsage if what is given does not fit Q and K, or does not go together. Every
/// number that lies in the host's memory is looked at here, and nowhere later.
Mask mask_of(Given given);

/// An argument of a call, and the feature that brings it; null for scales of tensors in e4m3.
struct NamedArgument : CallArgument {
    const FeatureInfo* feature = nullptr;
};
const std::vector<NamedArgument>& arguments();
/// Throws BadUsage if there is none of this name.
const NamedArgument& argument(std::string_view name);

/// A stage, compiled and loaded for one back-end.
class Kernel {
  public:
    /// `word`: a number, a name or a folder (see select_stage()). Throws BadUsage if there is none such,
    /// CannotRun if it or its back-end cannot run here, CheckFailed if it does not compile.
    Kernel(const std::string& word, const std::string& backend);

    bool is_forward() const { return stage_->pass == Pass::forward; }
    bool repeats_exactly() const { return stage_->repeats_exactly; }
    std::string folder() const { return stage_->folder(); }

    // Axes of K and V are (B, Hkv, Nk, d), whether they lie in pages or not: see Mask::keys().

    /// The head dimension at which it computes for Q, K and V of these axes: theirs, or the next that the
    /// stage has, for which a caller of forward() or backward() adds columns of zeros. Throws BadUsage if
    /// none is as large, or if the axes do not fit together.
    std::int64_t width(const Axes& Q, const Axes& K, const Axes& V) const;

    /// Bytes of workspace that a call on a GPU needs for Q and K of these axes; a CPU's calls bring their
    /// own.
    std::size_t workspace_bytes(const Axes& Q, const Axes& K);

    /// O (B, H, Nq, d) and L (B, H, Nq), contiguous fp32, of Q, K and V, which no one copies. On a GPU the
    /// call is queued in `stream` and returns; on a CPU it is over. Throws BadUsage if the tensors do not fit
    /// together or the stage, CannotRun and CheckFailed as Device::run().
    void forward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O, std::uintptr_t L,
                 DType dtype, const Mask& mask, std::optional<double> scale, std::uintptr_t workspace,
                 std::uintptr_t stream);

    /// dQ, dK and dV, and with sinks dsinks (H), fp32, in the same way, of O and L that a forward pass has
    /// left.
    void backward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O, std::uintptr_t L,
                  const Tensor& dO, const Tensor& dQ, const Tensor& dK, const Tensor& dV,
                  std::uintptr_t dsinks, DType dtype, const Mask& mask, std::optional<double> scale,
                  std::uintptr_t workspace, std::uintptr_t stream);

  private:
    struct Sizes {
        Axes Q{}, K{}, V{};
        Shape shape;
        std::size_t workspace_bytes = 0, counter_bytes = 0;  ///< of the workspace the last are counters
    };
    Sizes sizes(const Axes& Q, const Axes& K, const Axes& V);
    Problem problem(const Sizes& sizes, const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O,
                    std::uintptr_t L, DType dtype, const Mask& mask, std::optional<double> scale,
                    std::uintptr_t workspace) const;
    /// K and V have `slots`: their own axes, or those of a pool.
    void run(const Sizes& sizes, const Problem& problem, const Axes& slots,
             const std::vector<Mask::Numbers>& numbers, std::uintptr_t stream) const;

    const Stage* stage_;
    Backend backend_;
    std::mutex mutex_;
    Sizes last_;  ///< of the last call, since the next one is often of the same sizes
};

/// The stage for Q and K of these axes, ready to run. `word` as for Kernel; without one it is what
/// DefaultStages finds among those that run on this back-end. A kernel of one's own is loaded as it is now,
/// and again when its kernel.cu has changed.
Kernel& kernel_of(bool forward, const std::optional<std::string>& word, const std::string& backend,
                  const Axes& Q, const Axes& K, const Mask& mask, bool exactly = false);

/// Writes new rows to a cache and rotates Q: see stages/append.h, whose kernel is compiled when it is first
/// needed. On a GPU the launch is queued in `stream`; on a CPU it is over. Throws BadUsage, before anything
/// is written, if numbers in the CPU's memory lead out of the cache or the angles, or two rows to one place,
/// or are no scales.
void append(const Append& a, const std::string& backend, std::uintptr_t stream);

/// Where sources and compiled kernels are: see use_folders(). Before all else, and once.
void start(const std::string& sources, const std::string& build);

/// A call on the CPU has ended since end_calls_if() has answered so.
struct Interrupted : std::exception {
    const char* what() const noexcept override { return "the call was interrupted"; }
};

/// What the main thread asks after Ctrl-C, while its call computes on the CPU.
void end_calls_if(std::function<bool()> asked);

/// Why stages cannot run on a back-end here; empty if they can.
std::string why_not(const std::string& backend);

/// Whether the dropout of a mask keeps each element of P, (B, H, Nq, Nk) in the CPU's memory.
void dropout_mask(const Axes& P, const Mask& mask, std::uintptr_t kept);

/// Waits for all that this process has queued on the GPU.
void synchronize();

/// Compiles what is not up to date of these stages, as many at once as there are cores.
void prepare(const std::vector<std::string>& words, const std::string& backend);

/// The stage that runs where none is named for a problem with these sizes B, H, Hkv, Nq, Nk and d, and these
/// options of `lab verify`; as a folder's name. `exactly`: of those whose results are the same bits each
/// time. A head dimension that no stage has is computed at the next that one has. Throws BadUsage if there is
/// none.
std::string default_stage(bool forward, const std::array<std::int64_t, 6>& sizes, const std::string& options,
                          const std::string& backend, bool exactly = false);

/// Each of these is JSON. `words` names stages as on lab's command line; `options` are a case of theirs, as
/// on `lab verify`'s.
std::string list_stages(const std::vector<std::string>& words);
/// Without options of the stage's own cases, of which `quick` takes few.
std::string verify(const std::vector<std::string>& words, const std::string& backend,
                   const std::optional<std::string>& options, bool quick);
std::string count(const std::string& word, const std::string& options);
/// The cases of a stage that verify() takes, but for those with a Feature: options, and what a call of the
/// case is given.
std::string cases(const std::string& word, bool quick);
/// Fills Q, K and V, dense (B, heads, N, d) in the CPU's memory, with the inputs of a case.
void fill_inputs(const std::string& options, std::uintptr_t Q, std::uintptr_t K, std::uintptr_t V);
/// The verdict on O (B, H, Nq, d) and L (B, H, Nq), fp32, of such Q, K and V; on `sampled_rows` query rows of
/// each head if it is not 0.
std::string judge(const std::string& options, std::uintptr_t Q, std::uintptr_t K, std::uintptr_t V,
                  std::uintptr_t O, std::uintptr_t L, int sampled_rows);
/// Throws CannotRun without a GPU.
std::string time(const std::string& word, const std::string& options);

}  // namespace ladder::python
