#include "harness/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <stdexcept>

extern char** environ;

namespace ladder {
namespace {

// Output goes to unnamed files, not pipes: a pipe would need polling to be read without a deadlock.
struct Capture {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), std::fclose};

    Capture() {
        if (!file) throw std::runtime_error("cannot create a temporary file");
    }
    std::string read() {
        std::string text;
        std::rewind(file.get());
        char chunk[4096];
        while (const std::size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) text.append(chunk, n);
        return text;
    }
};

// Ends a process group when the time is over or a signal comes: with SIGTERM, and after five more seconds
// with SIGKILL. The program runs in a group of its own, so that what it started ends too.
class Watchdog {
  public:
    Watchdog(pid_t watched, unsigned limit) {
        group_ = watched;
        signal_ = 0;
        struct sigaction action {};
        action.sa_handler = end_group;
        action.sa_flags = SA_RESTART;
        for (std::size_t i = 0; i < signals.size(); ++i) {
            sigaction(signals[i], &action, &before_[i]);
            // What is ignored, as under nohup, stays so.
            if (before_[i].sa_handler == SIG_IGN && signals[i] != SIGALRM)
                sigaction(signals[i], &before_[i], nullptr);
        }
        alarm(limit);
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    ~Watchdog() {
        alarm(0);
        for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
        if (signal_ != 0) kill(-group_, SIGKILL);  // what outlived the program
        if (signal_ != 0 && signal_ != SIGALRM) raise(signal_);
    }

    bool timed_out() const { return signal_ == SIGALRM; }

  private:
    static constexpr std::array signals{SIGALRM, SIGHUP, SIGINT, SIGTERM};

    static void end_group(int signal) {
        kill(-group_, signal_ == 0 ? SIGTERM : SIGKILL);
        if (signal_ == 0) signal_ = signal;
        alarm(5);
    }

    static inline volatile sig_atomic_t group_, signal_;
    std::array<struct sigaction, signals.size()> before_;
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, unsigned limit) {
    Capture out, err;
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fileno(out.file.get()), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(err.file.get()), STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    if (limit != 0) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return {127, "", ""};

    int status = 0;
    bool timed_out = false;
    if (limit == 0) {
        waitpid(child, &status, 0);
    } else {
        const Watchdog watchdog(child, limit);
        waitpid(child, &status, 0);
        timed_out = watchdog.timed_out();
    }
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.read(), err.read(),
            timed_out};
}

}  // namespace ladder
