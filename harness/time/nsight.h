/// @file
/// Nsight Compute: which of its metrics `lab profile` asks for, how it is run, and how its output is read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/time/profile.h"

namespace ladder {

/// A hardware counter as the lessons call it.
struct Metric {
    enum class Unit : std::uint8_t { percent, bytes, count, nanoseconds, plain };

    std::string key;    ///< in JSON
    std::string title;  ///< in tables
    Unit unit;
    std::vector<std::string> names;  ///< Nsight Compute's; the first that this GPU knows is taken
};

/// All but the stalls. Percentages of a pipe are of what all multiprocessors together could do in the time.
const std::vector<Metric>& metrics();

/// Why warps waited, in cycles per issued instruction, so that the sum is how long an instruction takes.
/// "selected" is the cycle in which it is issued and no stall.
const std::vector<Metric>& stalls();

/// One launch in Nsight Compute's raw page. Cells that hold no number are not there.
struct NsightLaunch {
    std::string kernel;  ///< see kernel_base_name()
    std::map<std::string, double> values;
};

/// Reads `ncu --csv --page raw` and passes over what else is in the text. Throws CheckFailed if a row does
/// not fit its header.
std::vector<NsightLaunch> parse_nsight(const std::string& text);

/// Where ncu is: on PATH, in /usr/local/cuda/bin or under /opt/nvidia/nsight-compute. Throws CannotRun.
std::string find_ncu();

/// What `lab profile` asks Nsight Compute for.
enum class Asked : std::uint8_t {
    all,   ///< metrics() and stalls(), each kernel several times, from an empty L2 cache
    bytes  ///< time and HBM traffic alone, each kernel once, after those that the stage launched before it
};

/// Runs the command of a `lab` under ncu for `limit` seconds at most; `--occupancy --json FILE`, which makes
/// it write its profile without metrics, is added. Returns that profile with metrics. A metric that this ncu
/// or GPU does not know is left out. Throws CannotRun if ncu cannot measure here or takes too long,
/// CheckFailed if what it ran failed or its output makes no sense.
Profile profile_with_nsight(const std::string& ncu, const std::vector<std::string>& lab, unsigned limit,
                            Asked asked = Asked::all);

}  // namespace ladder
