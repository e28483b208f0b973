/// @file
/// `lab-course`: the commands of course/. build/lab passes them on to it.

#include "course/commands/commands.h"

namespace {

void add_commands(ladder::CommandLine& lab) {
    ladder::add_exercise(lab);
    ladder::add_zoo(lab);
    ladder::add_grade(lab);
    ladder::add_handout(lab);
}

}  // namespace

int main(int argc, char** argv) {
    return ladder::run_program(argc, argv, add_commands);
}
