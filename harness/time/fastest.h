/// @file
/// Which stage is fast for a problem, by what was recorded: the one place that decides what runs where no
/// stage is named, for `lab` and for Python.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/ladder/ladder.h"
#include "harness/time/results.h"
#include "stages/stage.h"

namespace ladder {

/// The times of some stages on one problem, from one recording.
struct RecordedTimes : ProblemLabel {
    std::string file;                            ///< in docs/results: "h200-serving.json"
    std::string gpu;                             ///< "NVIDIA H200"
    std::string date;                            ///< "2026-11-23"
    std::map<std::string, double> median_ms;     ///< by the stage's folder; never empty
    std::map<std::string, std::string> kernels;  ///< their fingerprints, as far as the recording has them
};

/// Reads the times that stages are chosen by: stages/fastest.json, which `lab tables` makes of recordings, or
/// a file like it. Nothing if it does not exist, as in a hand-out. Throws BadUsage if it is something else.
std::vector<RecordedTimes> load_fastest(const std::filesystem::path& path);

/// What problems that are compared have in common: the pass, the head dimension and the kinds of features.
using ProblemKind = std::tuple<Pass, int, std::vector<Feature>>;
ProblemKind kind_of(const ProblemLabel& problem);

/// What is compared of two problems, in octaves.
using Position = std::array<double, 6>;

/// The logarithms to base 2 of the query rows that read the same keys, those of all heads of a group, which
/// fill a tile together, and two more from 17 rows on, a second tile of the stages that decode with mma.sync;
/// of the keys; half that of the query heads of a group; of the share of the scores that the mask leaves;
/// half that of all query rows, which share the machine; a quarter of that of a page's keys. The keys are
/// those that a request may have: how many it has is not known where that is on a GPU.
Position position_of(const ProblemLabel& problem);

/// The recorded problems of the same kind, the nearest first; of equally near ones the first recorded.
/// `count` at most.
std::vector<const RecordedTimes*> nearest_to(const ProblemLabel& problem,
                                             const std::vector<RecordedTimes>& recorded, std::size_t count);

/// The stages that run where none is named: on the nearest recorded problem, the last rung of those that were
/// timed there and run here, but for rungs that are slower than another one by more than two runs differ. If
/// none of them runs here, or nothing is recorded, the last rung that does: of decoding for one query row,
/// else of long queries. Where a problem has a Feature, a rung that takes as little else as can be comes
/// before a later one, and one that decodes before others where there is a cache, or few rows bound by bytes.
class DefaultStages {
  public:
    /// Two stages are equally fast if one reaches this share of the other's speed.
    static constexpr double equally_fast = 0.97;

    /// `runs` says which stages run here. Ablations never are a default, and stages that exist for the order
    /// of their sums only where they are faster. The stages of `ladder` must outlive it.
    DefaultStages(const std::vector<RecordedTimes>& recorded, const std::function<bool(const Stage&)>& runs,
                  const std::vector<Stage>& ladder = stages());

    /// Null if no stage that runs here has the problem's pass and head dimension.
    const Stage* find(const ProblemLabel& problem) const;

  private:
    /// A recorded problem, and the default for the problems that are nearest to it.
    struct Choice {
        Position position;
        const Stage* stage;  ///< null if none that was timed runs here
    };
    std::vector<const Stage*> candidates_;     ///< that take no features, in the order of preference
    std::vector<const Stage*> with_features_;  ///< those that take some, in that order, fewer first
    std::map<ProblemKind, std::vector<Choice>> choices_;  ///< one for each recorded problem, in their order
};

/// The fingerprints of all kernels that were recorded, by the stage's folder.
struct RecordedKernels {
    std::map<std::string, std::set<std::string>> timed, profiled;
};

/// Reads them from the same file. Nothing if it does not exist. Throws as load_fastest().
RecordedKernels load_recorded_kernels(const std::filesystem::path& path);

/// The times in stages/fastest.json of this ladder, read once.
const std::vector<RecordedTimes>& recorded_times();

/// The recordings that pages show of these stages, of those in `folder`: the one of the whole ladder without
/// the regimes that others hold anew, these others, and then those of the stages' own lessons. `lab tables`
/// chooses them, and `path` says which they are. Nothing where there is no such file. Throws as
/// load_results().
std::vector<Results> shown_results(const std::vector<const Stage*>& stages,
                                   const std::filesystem::path& path = stages_folder() / "fastest.json",
                                   const std::filesystem::path& folder = results_folder());

}  // namespace ladder
