/// @file
/// What the programs of `lab` have in common: build/lab, and build/lab-course with the commands of course/.
#pragma once

#include <functional>
#include <string>

#include "harness/commands/arguments.h"

namespace ladder {

/// The whole of main(): reads the command line, runs one of the commands that `add_commands` adds, and turns
/// what went wrong into one line and an exit code.
int run_program(int argc, char** argv, const std::function<void(CommandLine& lab)>& add_commands);

/// What a command of course/ does, in a line: build/lab lists it, build/lab-course runs it.
std::string course_command(const std::string& name);

}  // namespace ladder
