/// @file
/// How far long work has come.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

namespace ladder {

/// Called before each step with one line about it, the steps done and the steps in all.
using OnStep = std::function<void(const std::string& what, int done, int total)>;

/// Shows it in one line on stderr; silent unless that is a terminal. Gone without a trace when the work is
/// done.
class ProgressLine {
  public:
    ProgressLine() = default;
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    ~ProgressLine() {
        if (shown_) std::fputs("\r\x1b[K", stderr);
    }

    void operator()(const std::string& what, int done, int total) const {
        if (shown_) std::fprintf(stderr, "\r\x1b[K[%d/%d] %.100s", done + 1, total, what.c_str());
    }

  private:
    bool shown_ = isatty(STDERR_FILENO) == 1;
};

}  // namespace ladder
