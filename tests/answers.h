/// @file
/// Answers to a case, right and wrong ones, computed on the host as kernels would.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "harness/cases/inputs.h"
#include "harness/problem/case.h"
#include "harness/verify/outputs.h"
#include "harness/verify/verdict.h"
#include "reference/attention.h"

namespace ladder::test {

using reference::Matrix;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

Case make_case(Shape shape, DType dtype = DType::fp16, bool causal = false, Layout layout = Layout::bhnd);
Case gradient_case(Shape shape, DType dtype = DType::fp16, bool causal = false, Layout layout = Layout::bhnd);
Stage make_stage();
Stage gradient_stage();

/// Tensors of a case, and any changes to them, by their logical indices.
struct Answer {
    Case c;
    Inputs inputs;
    Outputs outputs;

    std::uint16_t& stored(int b, int h, int row, int column);
    float get(int b, int h, int row, int column);
    void set(int b, int h, int row, int column, float o);
    float& L(int b, int h, int row) { return outputs.L[(b * c.shape.H + h) * c.shape.Nq + row]; }

    /// Adds to every element for which `where` holds.
    void spoil(const std::function<bool(int b, int h, int row, int column)>& where, float by = 0.5f);
    Verdict verdict(int sampled_rows = 0) const { return judge(c, inputs, outputs, sampled_rows); }
};

/// What `head` makes of one head's Q, K and V.
using Head =
    std::function<reference::Result(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c)>;

reference::Result exact(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c);
reference::Result standard(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c);

/// One head as the ladder's kernels round it: fp32 scores, exp2 of scores times scale log2(e), unnormalized P
/// in 16 bits, key tiles of 64, division at the end.
reference::Result as_a_kernel(const Matrix& Q, const Matrix& K, const Matrix& V, const Case& c);

/// The problem's O and L through `head`; host memory.
void attend(const Problem& p, const Head& head);
void attend_exactly(const Problem& p);

/// The case answered by `head`.
Answer answer(const Case& c, const Head& head = exact);

/// What a kernel of the backward pass can get wrong.
enum class Mistake : std::uint8_t {
    none,
    D_of_P,            ///< none either: rowsum(P o dP), which is rowsum(dO o O)
    no_D,              ///< dS = P o dP
    D_of_another_row,  ///< the next one's
    D_of_dO_alone,     ///< rowsum(dO o dO)
    dQ_not_scaled,
    dK_not_scaled,
    dQ_scaled_twice,
    dK_scaled_twice,
    L_in_base_2,        ///< exp2(S log2(e) - L)
    one_head_of_group,  ///< dK is the last head's
    mask_forgotten,
    dV_of_dS,  ///< dV = dS^T dO
    last_key_forgotten
};
constexpr Mistake mistakes[] = {Mistake::no_D,
                                Mistake::D_of_another_row,
                                Mistake::D_of_dO_alone,
                                Mistake::dQ_not_scaled,
                                Mistake::dK_not_scaled,
                                Mistake::dQ_scaled_twice,
                                Mistake::dK_scaled_twice,
                                Mistake::L_in_base_2,
                                Mistake::one_head_of_group,
                                Mistake::mask_forgotten,
                                Mistake::dV_of_dS,
                                Mistake::last_key_forgotten};

/// The problem's dQ, dK and dV as kernels round them: products in fp32, P and dS in the storage type as
/// factors of the next, sums in fp32. Host memory.
void differentiate(const Problem& p, Mistake mistake = Mistake::none);

/// The case answered so.
Outputs gradients(const Case& c, const Inputs& inputs, Mistake mistake = Mistake::none);

}  // namespace ladder::test
