/// @file
/// Stages as people name them, on a command line or in a call.
#pragma once

#include <string>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// The stages that words name: a number ("4"), a range ("1-5"), a name ("04_split_q", "split_q"), several
/// with commas, "all"; none for all of them. In order, each once; after them the kernels of one's own, named
/// by their folder or file ("my/", "my/kernel.cu"). Throws BadUsage for a stage that is not there.
std::vector<const Stage*> select_stages(const std::vector<std::string>& words);

/// What lists them, as messages say it: a command, or another program's words.
std::string& list_of_stages();

/// The one stage that a word names. Throws BadUsage.
const Stage& select_stage(const std::string& word);

}  // namespace ladder
