/// @file
/// One attention problem to run: its sizes, type and memory order, and what its inputs are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stages/stage.h"

namespace ladder {

/// Memory order of Q, K, V, O and their gradients.
enum class Layout : std::uint8_t {
    bhnd,  ///< (B, H, N, d)
    bnhd   ///< (B, N, H, d)
};
const char* name(Layout layout);

/// The (B, heads, N, d) tensor at `data` in this memory order.
View make_view(void* data, Layout layout, int heads, int N, int d);

/// One problem of one pass, with its inputs.
struct Case {
    Shape shape;
    Pass pass = Pass::forward;  ///< whoever runs a stage on it takes the stage's
    DType dtype = DType::fp16;
    bool causal = false;
    Layout layout = Layout::bhnd;
    std::string input = "normal";
    std::uint64_t seed = 1;
    std::optional<float> scale = std::nullopt;  ///< default 1 / sqrt(d)
    /// Of the machine that a CPU back-end plays, since schedules depend on it; 0 for what it plays anyway.
    int multiprocessors = 0;

    bool operator==(const Case&) const = default;
    float softmax_scale() const;
    /// "B=1 H=2 Hkv=1 Nq=37 Nk=65 d=64 fp16 causal bnhd rising"; "fp16 backward causal" for the gradients
    std::string description() const;
    /// "--shape 1,2,1,37,65,64 --causal --layout bnhd --input rising": the options of `lab verify` that are
    /// this case; the pass is the stage's
    std::string options() const;
};

/// The case of such options: parse_case(c.options()) is c, its pass aside. Throws BadUsage.
Case parse_case(const std::string& options);

/// Where the tensors of a case are; L is (B, H, Nq).
struct Addresses {
    void *Q = nullptr, *K = nullptr, *V = nullptr, *O = nullptr;
    float* L = nullptr;
    void *dO = nullptr, *dQ = nullptr, *dK = nullptr, *dV = nullptr;  ///< of the backward pass alone
};

/// The case as kernels get it, with its tensors there in the case's layout. workspace and sm_count are for
/// whoever runs it to fill in.
Problem make_problem(const Case& c, const Addresses& at);

}  // namespace ladder
