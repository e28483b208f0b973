/// @file
/// The families of problems that are timed and counted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/case.h"
#include "stages/stage.h"

namespace ladder {

/// A family of problems in which one kind of change shows.
struct Regime {
    /// A shape, its mask, what its inputs are (one of input_kinds()), and what else it has.
    struct Problem {
        Shape shape;
        bool causal;
        const char* input = "normal";
        Features features = {};
    };
    const char* name;         ///< what Stage::shows_in and `lab time --regime` call it
    const char* description;  ///< one line
    std::vector<Problem> problems;
    bool sweep = false;         ///< not part of the default run; its problems are one table, a row each
    Pass pass = Pass::forward;  ///< of its problems: stages of the other one take no part
};
const std::vector<Regime>& regimes();

/// The regime of this name, or null.
const Regime* regime_named(std::string_view name);

/// Whether this regime has one query row, or the few of a draft: the stages that show there pack the heads of
/// a group.
bool is_decoding(std::string_view regime);

/// Whether a regime's problems are of the backward pass.
bool is_of_gradients(std::string_view regime);

/// Whether results of this name are of a sweep. "custom" is none.
bool is_sweep(const std::string& regime);

}  // namespace ladder
