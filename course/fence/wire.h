/// @file
/// What `lab` and the program that runs a student's kernel say to each other: plain structs over a socket.
/// The program (runner.cpp) trusts `lab`; `lab` (remote_device.cpp) believes nothing of what it hears.
#pragma once

#include <cstdint>

#include "simt/simt.h"
#include "stages/stage.h"

namespace ladder::wire {

/// The socket's file descriptor in the program.
inline constexpr int socket = 3;

enum class Request : std::uint32_t {
    describe,
    workspace,
    allocate,
    release,
    upload,
    download,
    run,
    run_ranks
};

struct Header {
    Request request;
    std::uint64_t address = 0;  ///< of allocate's answer, for release, upload and download
    std::uint64_t bytes = 0;    ///< to allocate, upload or download
    char name[16] = {};         ///< of an allocation, for reports
    bool writable = false;
};

/// Answer to `describe`: how the one stage of the library declares itself.
struct Description {
    char error[256] = {};  ///< why there is none; empty if all is well
    std::int32_t number = 0, parent = 0;
    Pass pass = Pass::forward;
    char stage_name[64] = {};
    std::uint32_t dims = 0;
    std::int32_t dim[8] = {};
    bool repeats_exactly = true, batch_invariant = true, has_workspace = false, has_counters = false;
    std::uint32_t takes = 0;  ///< bit k: Feature k
    std::int32_t chunks = 0;
    bool divides_rows = true;
    std::uint32_t products = 0;  ///< Products
    bool takes_e4m3 = false;
};

/// Follows the header of `workspace`. The answer is a WorkspaceBytes.
struct WorkspaceOf {
    Shape shape;
    std::int32_t sm_count, ranks;
};
struct WorkspaceBytes {
    std::uint64_t all = 0, counters = 0;
};

/// Follows the header of `run`.
struct Run {
    Problem problem;  ///< with addresses of the program's
    simt::Machine machine;
};

/// Follows the header of `run_ranks`, and is followed by the Problem of each rank. The answer is that to
/// `run`, and if the outcome is ok, the Did of each rank.
struct RunRanks {
    std::uint32_t ranks;
    Shape whole;
    simt::Machine machine;
};

/// Most ranks of a run, each with as many steps
inline constexpr std::uint32_t most_ranks = 64;

/// A rank's Traffic
struct Did {
    std::uint64_t messages = 0, bytes = 0, exposed_bytes = 0, steps = 0, products[most_ranks] = {};
};

enum class Outcome : std::uint32_t { ok, check_failed, cannot_run };

/// Answer to `run`, followed by `text` characters that say what went wrong, and by the asynchronous copies to
/// shared memory of each block (std::uint64_t).
struct Ran {
    Outcome outcome = Outcome::ok;
    std::uint32_t text = 0;
    std::uint64_t blocks = 0;
    simt::Counters counters;
};

/// Exit code of a program that ended because of an uncaught exception; its last words name it.
inline constexpr int terminated = 134;

/// Longest text and most blocks that an answer may have.
inline constexpr std::uint32_t most_text = 1 << 16;
inline constexpr std::uint64_t most_blocks = 1 << 20;

}  // namespace ladder::wire
