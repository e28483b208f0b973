/// @file
/// How far long work has come.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "harness/base/terminal.h"

namespace ladder {

/// Called before each step with one line about it, the steps done and the steps in all.
using OnStep = std::function<void(const std::string& what, int done, int total)>;

/// Shows it on stderr, with how long the rest of the steps takes if they take as long as those before. In a
/// terminal that is one line, never longer than the terminal is wide, and gone without a trace when the work
/// is done. Elsewhere, in a log, it is a line for each tenth of the steps, and none for what is soon over.
class ProgressLine {
  public:
    static constexpr double soon_s = 20;

    explicit ProgressLine(std::FILE* out = stderr, double quiet_s = soon_s)
        : out_(out), terminal_(isatty(fileno(out)) == 1), quiet_s_(quiet_s) {}
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    ~ProgressLine() {
        if (terminal_) std::fputs("\r\x1b[K", out_);
    }

    void operator()(const std::string& what, int done, int total) const {
        if (done < done_ || total != total_) steps_begun_ = Clock::now();  // of other work
        done_ = done, total_ = total;
        if (terminal_) {
            const std::string line =
                "[" + std::to_string(done + 1) + "/" + std::to_string(total) + rest() + "] " + what;
            // The last column stays free: some terminals begin a new line in it.
            const std::size_t width = terminal_width(fileno(out_));
            std::fprintf(out_, "\r\x1b[K%s", cut_to(line, width > 1 ? width - 1 : 100).c_str());
            std::fflush(out_);
            return;
        }
        const int tenth = total > 0 ? 10 * done / total : 0;
        if (tenth == tenth_) return;
        tenth_ = tenth;
        if (tenth > 0 && seconds_since(begun_) >= quiet_s_)
            std::fprintf(out_, "lab: %d%%%s, %s\n", 10 * tenth, rest().c_str(), what.c_str());
    }

    /// ", about 40 s left", after so many steps of so many in so long; nothing where it is too early to say.
    static std::string time_left(int done, int total, double seconds) {
        if (done < 1 || seconds < 2) return "";
        const int left = static_cast<int>(seconds / done * (total - done)) + 1;
        return ", about " +
               (left < 100 ? std::to_string(left < 10 ? left : (left + 5) / 10 * 10) + " s"
                           : std::to_string((left + 30) / 60) + " min") +
               " left";
    }

  private:
    using Clock = std::chrono::steady_clock;

    static double seconds_since(Clock::time_point begun) {
        return std::chrono::duration<double>(Clock::now() - begun).count();
    }
    std::string rest() const { return time_left(done_, total_, seconds_since(steps_begun_)); }

    std::FILE* out_;
    bool terminal_;
    double quiet_s_;
    Clock::time_point begun_ = Clock::now();
    mutable Clock::time_point steps_begun_ = begun_;
    mutable int done_ = 0, total_ = 0, tenth_ = 0;  ///< of the steps, when it was called last
};

}  // namespace ladder
