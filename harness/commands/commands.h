/// @file
/// The commands of `lab`. Each adds itself to the command line and runs when its name is given.
#pragma once

#include <CLI/CLI.hpp>

namespace ladder {

void add_doctor(CLI::App& lab);
void add_list(CLI::App& lab);
void add_time(CLI::App& lab);
void add_count(CLI::App& lab);
void add_verify(CLI::App& lab);
void add_run(CLI::App& lab);
void add_diff(CLI::App& lab);
void add_profile(CLI::App& lab);
void add_trace(CLI::App& lab);
void add_exercise(CLI::App& lab);
void add_zoo(CLI::App& lab);
void add_handout(CLI::App& lab);
void add_grade(CLI::App& lab);
void add_tables(CLI::App& lab);

}  // namespace ladder
