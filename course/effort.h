/// @file
/// What an exercise asks of a student: lines to change, hours, and functions that are new.
#pragma once

#include <string>
#include <vector>

#include "course/exercise.h"

namespace ladder {

/// A function or type of the CUDA layer that a solution calls and its parent does not.
struct NewFunction {
    std::string name, header;
    std::string meaning;  ///< the first sentence that the header says of it
};

struct Effort {
    int lines = 0;  ///< that the solution adds or changes
    std::vector<NewFunction> functions;
    bool on_hopper = false;  ///< the parent uses what only Hopper has

    /// An estimate: two to read and to predict, and one for each ten lines.
    int hours() const { return 2 + (lines + 5) / 10; }
    /// "easy", "medium", "hard" or "project": by lines and by what is new.
    std::string difficulty() const;
};

/// Of the solution's kernel. Where that is not here, in a hand-out, of what effort_section() wrote into
/// exercise.md.
Effort effort_of(const Exercise& exercise);

/// The section of exercise.md that says it in a hand-out.
std::string effort_section(const Effort& effort);

}  // namespace ladder
