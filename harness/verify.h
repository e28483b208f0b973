/// @file
/// Inputs, one run of a stage on a device, and the verdict on what it wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/device.h"
#include "harness/stage.h"

namespace ladder {

/// Memory order of Q, K, V and O.
enum class Layout : std::uint8_t {
    bhnd,  ///< (B, H, N, d)
    bnhd   ///< (B, N, H, d)
};
const char* name(Layout layout);

/// The (B, heads, N, d) tensor at `data` in this memory order.
View make_view(void* data, Layout layout, int heads, int N, int d);

/// A kind of input. Ordinary and adversarial; `lab verify --input` takes the names.
struct InputKind {
    const char* name;         ///< "normal", "huge", "rising", "falling", "constant", "one_hot"
    const char* description;  ///< one line
};
const std::vector<InputKind>& input_kinds();

/// One thing to verify.
struct Case {
    Shape shape;
    DType dtype = DType::fp16;
    bool causal = false;
    Layout layout = Layout::bhnd;
    std::string input = "normal";
    std::uint64_t seed = 1;
    std::optional<float> scale = std::nullopt;  ///< default 1 / sqrt(d)

    float softmax_scale() const;
    /// "B=1 H=2 Hkv=1 Nq=37 Nk=65 d=64 fp16 causal bnhd rising"
    std::string description() const;
};

/// 16-bit Q, K and V in the layout of their case.
struct Inputs {
    std::vector<std::uint16_t> Q, K, V;
};

/// Deterministic in the case: the same on every machine.
Inputs make_inputs(const Case& c);

/// What a stage wrote: O as stored, in the case's layout, and L (B, H, Nq).
struct Outputs {
    std::vector<std::uint16_t> O;
    std::vector<float> L;
};

/// Runs a stage once. O and L start as NaN between canaries; throws CheckFailed if a canary was touched, an
/// element not written or a counter not left at 0, and what Device::run throws. Throws CannotRun before any
/// launch, saying how many bytes it would need, if the device has not enough memory.
Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Inputs& inputs);

/// The same with inputs that are on the device already.
Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Buffer& Q, const Buffer& K,
                  const Buffer& V);

/// The outcome of a comparison with the reference.
struct Verdict {
    bool passed = false;
    double max_error = 0;           ///< of O, against double precision
    double standard_max_error = 0;  ///< of standard attention in the storage precision
    double relative_l2 = 0;         ///< of O
    double max_L_error = 0;         ///< of L, relative
    std::string report;  ///< why it failed: where, the tile, expected and got, the pattern; empty if passed
};

/// Reports what is wrong whatever the reference says: values that were not written or are not finite, and
/// rows without keys that are not O = 0 and L = -inf. Empty if nothing is.
std::string report_impossible(const Case& c, const Outputs& outputs);

/// Compares with the Eigen reference by the design's pass rule. `sampled_rows` > 0 compares only that many
/// query rows per head and batch entry at most (first, last, tile edges, then seeded ones), for sizes where
/// all would take minutes; report_impossible() looks everywhere all the same.
Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows = 0);

/// run_stage, judge, and once more run_stage for bitwise repeatability.
/// Failures of the kernel become a failed verdict; CannotRun passes through.
Verdict verify(Device& device, const Stage& stage, const Case& c);

/// The cases that `lab verify` runs by default: ragged sizes, Nq != Nk both ways, GQA, both layouts, both
/// types, every input kind, rows without keys. `quick` keeps one case for each of these ideas.
std::vector<Case> verification_cases(const Stage& stage, bool quick);

}  // namespace ladder
