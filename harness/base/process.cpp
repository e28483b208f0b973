#include "harness/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

#include "harness/base/built.h"
#include "stages/errors.h"

extern char** environ;

namespace ladder {
namespace {

// Output goes to unnamed files, not pipes: a pipe would need polling to be read without a deadlock. They are
// in memory, since in a sandbox no folder need be writable.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File capture() {
    const int memory = memfd_create("output", MFD_CLOEXEC);
    File file(memory < 0 ? nullptr : fdopen(memory, "w+"), std::fclose);
    if (!file) throw std::runtime_error("cannot keep what a program says");
    return file;
}

std::string content(std::FILE* file) {
    std::string text;
    std::rewind(file);
    char chunk[4096];
    while (const std::size_t n = std::fread(chunk, 1, sizeof chunk, file)) text.append(chunk, n);
    return text;
}

// Starts a program with these standard streams, or none for input if `in` is -1. Returns an errno.
int start(const std::vector<std::string>& command, int in, int out, int err, pid_t& child) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (in < 0) {
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    } else {
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    }
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

// Waits for it to end. As a shell has it: 128 + signal if one killed it.
int exit_code(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string last_line(std::string text) {
    text.erase(text.find_last_not_of(" \n") + 1);
    return text.substr(text.rfind('\n') + 1);
}

}  // namespace

double processor_s() {
    double seconds = 0;
    for (const auto whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
        rusage used{};
        getrusage(whose, &used);
        for (const timeval& time : {used.ru_utime, used.ru_stime})
            seconds += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    }
    return seconds;
}

ProcessResult run_process(const std::vector<std::string>& command) {
    const File out = capture(), err = capture();
    pid_t child = 0;
    if (start(command, -1, fileno(out.get()), fileno(err.get()), child) != 0) return {127, "", ""};
    const int status = exit_code(child);
    return {status, content(out.get()), content(err.get())};
}

Coprocess::Coprocess(const std::vector<std::string>& command) : name_(command.front()), err_(capture()) {
    // A socket and not two pipes: writing to one whose reader has died need not raise a signal.
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw CannotRun(fmt::format("cannot talk to {}: {}", name_, std::strerror(errno)));
    const int error = start(command, ends[1], ends[1], fileno(err_.get()), child_);
    close(ends[1]);
    socket_ = ends[0];
    if (error != 0) {
        close(socket_);
        throw CannotRun(fmt::format("cannot start {}: {}", name_, std::strerror(error)));
    }
}

Coprocess::~Coprocess() {
    close(socket_);
    if (child_ == 0) return;
    kill(child_, SIGKILL);
    exit_code(child_);
}

void Coprocess::write_line(const std::string& line) {
    // If it has died, the next read_line() says so.
    const std::string text = line + "\n";
    for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t n = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        sent += static_cast<std::size_t>(n);
    }
}

std::string Coprocess::read_line(double limit_s, std::size_t longest) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
    for (;;) {
        if (const std::size_t end = unread_.find('\n'); end != unread_.npos) {
            const std::string line = unread_.substr(0, end);
            unread_.erase(0, end + 1);
            return line;
        }
        if (unread_.size() > longest) throw CannotRun(name_ + " writes a line without end");
        const std::chrono::duration<double, std::milli> left = deadline - Clock::now();
        if (left.count() <= 0) throw CannotRun(fmt::format("{} did not answer for {:g} s", name_, limit_s));
        pollfd waiting{socket_, POLLIN, 0};
        if (poll(&waiting, 1, static_cast<int>(left.count()) + 1) <= 0) continue;
        char chunk[4096];
        const ssize_t n = recv(socket_, chunk, sizeof chunk, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) throw CannotRun(how_it_ended());
        unread_.append(chunk, static_cast<std::size_t>(n));
    }
}

std::string Coprocess::how_it_ended() {
    kill(child_, SIGKILL);  // it may have closed its output only
    const int status = exit_code(child_);
    child_ = 0;
    const std::string said = last_line(content(err_.get()));
    return fmt::format("{} ended with exit code {}{}", name_, status, said.empty() ? "" : ": " + said);
}

std::vector<std::string> python_command(const std::string& path) {
    const char* python = std::getenv("LADDER_PYTHON");
    return {python != nullptr && *python != '\0' ? python : "python3", built_from + std::string("/") + path};
}

std::string ask_python(const std::string& path, const std::string& request) {
    Coprocess program(python_command(path));
    program.write_line(request);
    return program.read_line(std::numeric_limits<int>::max() / 1000, std::size_t{1} << 30);
}

}  // namespace ladder
