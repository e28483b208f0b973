/// @file
/// Runs another program.
#pragma once

#include <string>
#include <vector>

namespace ladder {

/// How a program ended and what it wrote.
struct ProcessResult {
    int status = 0;  ///< exit code; 127 if the program could not be started, 128 + signal if one killed it
    std::string out;
    std::string err;
};

/// Runs `command` (found on PATH, no shell) and waits for it. Its standard input is empty.
ProcessResult run_process(const std::vector<std::string>& command);

}  // namespace ladder
