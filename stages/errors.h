/// @file
/// The three ways to fail, each with its exit code.
#pragma once

#include <stdexcept>

namespace ladder {

/// A check failed: the kernel raced, deadlocked, crashed or computed the wrong thing. Exit code 1.
struct CheckFailed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The caller asked for something that makes no sense. Exit code 2.
struct BadUsage : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The request is sound but this machine cannot do it (no GPU, too little memory, ...). Exit code 3.
struct CannotRun : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace ladder
