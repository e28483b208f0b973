/// @file
/// The commands of `lab` that course/ has. Each adds itself to the command line.
#pragma once

#include "harness/commands/options.h"
#include "harness/commands/program.h"

namespace ladder {

void add_exercise(CommandLine& lab);
void add_zoo(CommandLine& lab);
void add_grade(CommandLine& lab);
void add_handout(CommandLine& lab);

/// add_command() of options.h, with the description that `lab` lists.
template <class Options>
void add_course_command(CommandLine& lab, const std::string& name, Printout (*run)(const Options&)) {
    add_command(lab, name, course_command(name), run);
}

}  // namespace ladder
