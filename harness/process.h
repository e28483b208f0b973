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
    bool timed_out = false;  ///< it was ended because it took too long
};

/// Runs `command` (found on PATH, no shell) and waits for it. Its standard input is empty.
/// With a limit in seconds, the program and all that it started are ended once that is over, or when a signal
/// ends this one. One call with a limit at a time.
ProcessResult run_process(const std::vector<std::string>& command, unsigned limit = 0);

}  // namespace ladder
