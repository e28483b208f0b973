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
};

/// Seconds of processors that this program, and those that it started and that have ended, have used so far.
double processor_s();

/// Runs `command` (found on PATH, no shell) and waits for it. Its standard input is empty.
ProcessResult run_process(const std::vector<std::string>& command);

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
    /// standard error, or if the line takes longer than `limit_s` seconds or has more than `longest` bytes.
    std::string read_line(double limit_s, std::size_t longest = 1 << 20);

  private:
    std::string how_it_ended();

    std::string name_;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> err_;
    pid_t child_ = 0;
    int socket_ = -1;
    std::string unread_;
};

/// The command of one of this project's Python programs, whose path is below the sources: $LADDER_PYTHON, or
/// else python3.
std::vector<std::string> python_command(const std::string& path);

/// Runs such a program, which reads one line and answers with one. Throws CannotRun.
std::string ask_python(const std::string& path, const std::string& request);

}  // namespace ladder
