#include "harness/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command) {
    Capture out, err;
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fileno(out.file.get()), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(err.file.get()), STDERR_FILENO);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return {127, "", ""};

    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.read(), err.read()};
}

}  // namespace ladder
