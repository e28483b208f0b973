/// @file
/// The commands of build/lab. Each adds itself to the command line and runs when its name is given.
#pragma once

#include "harness/commands/arguments.h"

namespace ladder {

void add_doctor(CommandLine& lab);
void add_list(CommandLine& lab);
void add_time(CommandLine& lab);
void add_count(CommandLine& lab);
void add_verify(CommandLine& lab);
void add_run(CommandLine& lab);
void add_diff(CommandLine& lab);
void add_profile(CommandLine& lab);
void add_trace(CommandLine& lab);

}  // namespace ladder
