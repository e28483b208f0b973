/// @file
/// Verdicts kept: what has passed need not run again while all that it was made of is the same.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// A fingerprint of the sources that decide whether a stage passes: its folder's and its parent's code and
/// the headers that stages share; simt/, reference/ and the layers of harness/ up to count/, as a layer
/// includes none after it; the command that chooses the cases; and how all of it is built. `more`: files or
/// folders that decide too, relative to `root`, the source tree.
std::string verdict_key(const std::filesystem::path& root, const Stage& stage,
                        const std::vector<std::string>& more = {});

/// The verdict on a stage, if it passed, in the folder of its compiled kernels. Its key holds `built_of`,
/// too: the program may have been built before the sources became what they are.
class KeptVerdict {
  public:
    /// `what` tells it from other verdicts on the stage, and says all that `verdict_key` does not: the cases,
    /// the back-end, the order of threads.
    KeptVerdict(const Stage& stage, const std::string& what, const std::vector<std::string>& more = {});

    /// Whether it has passed with these sources. Then a line of kernels/kept.txt in the build folder says so:
    /// the suite counts them.
    bool holds() const;
    void keep() const;
    const std::filesystem::path& file() const { return file_; }

  private:
    std::string key_;
    std::filesystem::path file_;
};

}  // namespace ladder
