/// @file
/// Runs another program.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
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

/// Seconds of processors that this program, and those that it started and that have ended, have used so far.
double processor_s();

/// Runs `command` (found on PATH, no shell) and waits for it. Its standard input is empty.
/// With a limit in seconds, the program and all that it started are ended once that is over, or when a signal
/// ends this one. One call with a limit at a time.
ProcessResult run_process(const std::vector<std::string>& command, unsigned limit = 0);

/// A program that runs next to this one and is talked to in lines, through its standard input and output. It
/// is killed with its owner.
class Coprocess {
  public:
    /// Starts `command` (found on PATH, no shell). Throws CannotRun if that fails.
    explicit Coprocess(const std::vector<std::string>& command);
    Coprocess(const Coprocess&) = delete;
    Coprocess& operator=(const Coprocess&) = delete;
    ~Coprocess();

    void write_line(const std::string& line);

    /// The next line that it writes. Throws CannotRun if it ends first, with the last thing it said on
    /// standard error, or if the line takes longer than `limit_s` seconds.
    std::string read_line(double limit_s);

  private:
    std::string how_it_ended();

    std::string name_;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> err_;
    pid_t child_ = 0;
    int socket_ = -1;
    std::string unread_;
};

}  // namespace ladder
