/// @file
/// What the outputs of a case should be, and how far off they may be.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "harness/cases/inputs.h"
#include "harness/problem/case.h"

namespace ladder {

/// What one of output_tensors() should be.
struct ExpectedTensor {
    std::vector<int> rows;       ///< the query rows, or keys, that are compared, ascending
    std::vector<double> values;  ///< (B, heads, rows, columns)
    std::vector<double> size;    ///< what the error of a row is relative to, as an L2 norm: (B, heads, rows)
    double standard_error = 0;   ///< largest error of standard attention in the storage type; 0 of L
    /// Its relative L2, if by products of 8 bits; what a GPU's tanh adds to that, with a softcap; of
    /// gradients with sinks, what it is above the bound, where weights are below the numbers of the type;
    /// otherwise 0.
    double standard_l2 = 0;
    /// Of O: what each element of a row may be off by, beyond the rule, if parts of the keys were merged by
    /// an L that fp32 has rounded: (B, heads, rows). Empty for the other tensors.
    std::vector<double> lost_in_rounding;
};

/// What the outputs of a case are compared with. Takes much longer than a comparison, on all cores, so stages
/// that have the case should share it.
struct Expected {
    /// In double precision: attention, or its gradients from the O and L of the inputs. `sampled_rows` > 0
    /// takes only that many query rows per head and batch entry at most, and of dK and dV so many keys
    /// (first, last, tile edges, then seeded ones), for sizes where all would take minutes.
    /// `products`: a stage's. If they are of 8 bits, O and L are attention of Q, K and V rounded to those,
    /// and standard attention is that by such products. Of a cache in 8 bits only K and V are rounded.
    Expected(const Case& c, const Inputs& inputs, int sampled_rows = 0,
             Products products = Products::of_16_bits);

    std::vector<ExpectedTensor> tensors;  ///< in the order of output_tensors()
    /// The key with a row's largest score, or -1: (B, H, rows). Empty in the backward pass.
    std::vector<int> peak;
    /// O of the inputs as they are, if any are rounded to 8 bits; otherwise empty.
    std::vector<double> unquantized_O;
};

/// The pass rule's numbers for a tensor. Nothing passes by not being comparable: write !(error <= bound),
/// never error > bound.
struct Bounds {
    double absolute;  ///< of an element's error; of L and dsinks, relative to ExpectedTensor::size, of that
    double relative_l2;
};

/// Those of O, dQ, dK or dV, whose largest output this is.
Bounds bounds_of(const Case& c, double standard_error, double largest_output);
/// That of L, dsinks in the backward pass.
Bounds bounds_of_floats(const Case& c);

/// A case with its inputs and what is expected of them, each made when first asked for: for all the stages
/// that are verified on it.
class Reference {
  public:
    explicit Reference(Case c) : problem(std::move(c)) {}

    const Inputs& inputs();
    /// Of stages with these products.
    const Expected& expected(Products products = Products::of_16_bits);
    /// How long making them took.
    double seconds() const { return seconds_; }

    const Case problem;

  private:
    std::optional<Inputs> inputs_;
    std::map<Products, Expected> expected_;
    double seconds_ = 0;
};

}  // namespace ladder
