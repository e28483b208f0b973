/// @file
/// A timing measurement as data: what ran, on what, how fast, and how it is kept in docs/results/.
///
/// Only time_stages() (harness/time/timing.h) makes one. Tables, the README and the tests read it from here.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/file.h"
#include "harness/device/stopwatch.h"
#include "harness/problem/case.h"
#include "stages/stage.h"

namespace ladder {

/// Why a measurement of this build on this GPU must not be recorded, in one line; empty if it may be.
/// Code for another architecture runs, but slowly and without saying so.
std::string foreign_architecture(const Hardware& hardware);

/// Throws CannotRun, naming the file, if foreign_architecture() objects.
void refuse_foreign(const Hardware& hardware, const OutputFile& file);

/// Repeated times of one call, summarized.
struct Timing {
    double median_ms = 0;
    double p20_ms = 0;
    double p80_ms = 0;
    double noise = 0;  ///< standard error of the median relative to the median: 0.01 is 1%
    int repeats = 0;
};

/// Which problem a row is about.
struct ProblemLabel {
    std::string regime;  ///< a Regime's name, or "custom" for a shape given by hand
    Shape shape;
    DType dtype = DType::bf16;
    bool causal = false;
    Features features = {};     ///< in JSON only those that it has; column bounds are drawn by seed 1
    Pass pass = Pass::forward;  ///< in JSON only if it is not that
};

/// Whether both are about the same problem in the same regime.
bool same_problem(const ProblemLabel& a, const ProblemLabel& b);

/// "train: B=8 H=16 Hkv=16 Nq=2048 Nk=2048 d=128 bf16", and "backward" if it is
std::string long_name(const ProblemLabel& problem);

/// Which stage a row is about.
struct StageLabel {
    int stage = 0;
    int parent = -1;
    std::string folder;       ///< "04_split_q"
    bool shows_here = false;  ///< the stage's change should show in this regime
};

/// Something timed on one problem. Either it was timed, or `why_not` says what kept it from running.
struct Measurement : ProblemLabel {
    std::string why_not;           ///< why it was not timed or not verified, in one line; empty if both were
    std::optional<Timing> timing;  ///< empty if it was not timed

    // Derived from the above by derive().
    double flops = 0;                     ///< as the papers count them
    std::optional<double> bytes;          ///< unavoidable_bytes(), where they and not the products count
    double rate = 0;                      ///< in `unit`
    std::string unit;                     ///< "TFLOP/s", or "GB/s" where the bytes and not the products count
    std::optional<double> ceiling_share;  ///< rate / its ceiling: GEMM of the same type, or copy
};

/// One stage on one problem.
struct Row : Measurement, StageLabel {
    bool verified = false;  ///< the outputs of the timed calls passed judge() and repeated bit for bit
    std::optional<double> max_error;  ///< of O, or of a gradient, against double precision; empty if not
                                      ///< verified

    // Derived by derive().
    std::optional<double> over_parent;    ///< the parent's time / this time
    std::optional<double> over_baseline;  ///< stage 00's time / this time
};

/// One peer, a library's attention, on one problem: a yardstick in the same rounds as the stages.
struct PeerRow : Measurement {
    std::string peer;  ///< one of Peers::usual() or Peers::further()

    /// Derived by derive(): this time / the stage's time, by the stage's folder. Above 1 the stage is faster.
    std::map<std::string, double> stage_speedups;
};

/// What every record says of the run that made it.
struct Record {
    std::string date;    ///< UTC, "2026-11-21T07:52:00Z"
    std::string commit;  ///< see current_commit()
    Hardware hardware;
    std::map<std::string, std::string> kernels;  ///< folder of each stage that ran -> kernel_fingerprint()
};

/// One run of `lab time` on a GPU.
struct Results : Record {
    Ceilings ceilings;
    std::vector<Row> rows;                         ///< case by case, stages in order within a case
    std::map<std::string, std::string> libraries;  ///< what the peers are made of: "cuDNN" -> "9.10.2"
    std::vector<PeerRow> peers;                    ///< case by case; empty in a run without them
};

/// Fills every derived field from the timings and ceilings. Ratios are taken within a regime, shape, type
/// and mask, and only between verified rows: a wrong answer has no speed.
void derive(Results& results);

void to_json(nlohmann::json& json, const Results& results);
/// Throws nlohmann::json::exception on a missing or mistyped field.
void from_json(const nlohmann::json& json, Results& results);

/// Writes the measurement. Throws CannotRun if foreign_architecture() objects, BadUsage if it cannot be
/// written.
void save_results(const Results& results, const OutputFile& file);

/// Reads one file. Throws BadUsage naming the file if it cannot be read or is no timing measurement.
Results load_results(const std::filesystem::path& path);

/// docs/results/ of this source tree.
std::filesystem::path results_folder();

/// The time, as "2026-11-21T07:52:00Z".
std::string utc_now();

/// The environment variable LADDER_COMMIT, for copies of the sources; else `git rev-parse HEAD` of the source
/// tree, plus "-dirty" if it has changes; else "unknown".
std::string current_commit();

/// Of a stage's kernel_text(), what it declares aside: a new number makes no other kernel. What shows a
/// recorded number marks it if the recorded one is not the tree's. Throws BadUsage if there is no such
/// kernel.
std::string kernel_fingerprint(const std::string& stage_folder);

/// Of stages by their folders and fingerprints, those whose kernels are others now, by number.
std::vector<const Stage*> changed_since(const std::map<std::string, std::string>& kernels);

}  // namespace ladder
