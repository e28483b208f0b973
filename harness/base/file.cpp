#include "harness/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "stages/errors.h"

namespace ladder {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void cannot_write(const fs::path& path, std::string_view why) {
    throw BadUsage(fmt::format("cannot write {}: {}", path.string(), why));
}

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The folders that there are, for a signal's handler.
std::array<std::array<char, 256>, 8> temporary_folders{};

/// Another process removes them once this one and what it started have ended.
void end_without_folders(int signal) {
    const pid_t owner = getpid();
    bool any = false;
    for (const auto& folder : temporary_folders) any = any || folder[0] != '\0';
    if (any && fork() == 0) {
        setsid();
        while (getppid() == owner) usleep(1000);
        std::array<char*, temporary_folders.size() + 4> words{};
        std::size_t count = 0;
        for (const char* word : {"rm", "-rf", "--"}) words[count++] = const_cast<char*>(word);
        for (auto& folder : temporary_folders) {
            if (folder[0] != '\0') words[count++] = folder.data();
        }
        execv("/bin/rm", words.data());
        _exit(1);
    }
    raise(signal);  // whose action is the system's again
}

/// Folders of this user's with that prefix whose owners have ended: no process holds their lock.
void remove_abandoned(const std::string& prefix) {
    constexpr auto time_to_lock = std::chrono::minutes(1);
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fs::temp_directory_path(), error)) {
        const std::string name = entry.path().filename().string();
        struct stat info {};
        if (!name.starts_with(prefix) || name.size() != prefix.size() + 6 ||
            lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
            std::chrono::system_clock::from_time_t(info.st_mtime) + time_to_lock >
                std::chrono::system_clock::now())
            continue;
        const int lock = open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (lock < 0) continue;
        if (flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), error);
        close(lock);
    }
}

// A device or a pipe, such as /dev/stdout, is written to and never replaced.
bool is_special(const fs::path& path) {
    std::error_code error;
    return fs::exists(path, error) && !fs::is_regular_file(path, error);
}

// Writes all of it and closes the file. Returns an errno, or 0.
int write_and_close(int file, std::string_view content) {
    bool good = true;
    while (good && !content.empty()) {
        const ssize_t written = ::write(file, content.data(), content.size());
        good = written > 0 || (written < 0 && errno == EINTR);
        if (written > 0) content.remove_prefix(static_cast<std::size_t>(written));
    }
    // close() may be the one to report a full disk.
    const int error = good ? 0 : errno;
    return close(file) != 0 && error == 0 ? errno : error;
}

void write_special(const fs::path& path, std::string_view content) {
    // A blocking open of a pipe would wait forever for a program that reads it.
    const int file = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (file < 0 && errno == ENXIO && fs::is_fifo(path))
        cannot_write(path, "it is a pipe that no program reads");
    if (file < 0) cannot_write(path, std::strerror(errno));
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
    if (const int error = write_and_close(file, content); error != 0)
        cannot_write(path, std::strerror(error));
}

}  // namespace

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    // Of a pipe, /dev/stdout is a link to a name that does not exist.
    if (fs::is_symlink(path_, error) && !is_special(path_)) path_ = fs::weakly_canonical(path_);
    if (path_ == "-") cannot_write(path_, "not a file name; standard output is /dev/stdout");
    if (path_.empty() || path_.filename().empty()) cannot_write(path_, "not a file name");
    if (fs::is_directory(path_, error)) cannot_write(path_, "it is a folder");
    const fs::path folder = folder_of(path_);
    if (!fs::is_directory(folder, error))
        cannot_write(path_, fmt::format("there is no folder {}", folder.string()));
    const fs::path target = is_special(path_) ? path_ : folder;
    if (access(target.c_str(), W_OK) != 0) cannot_write(path_, std::strerror(errno));
}

void OutputFile::write(std::string_view content) const {
    if (is_special(path_)) return write_special(path_, content);
    std::string temporary =
        (folder_of(path_) / fmt::format(".{}.XXXXXX", path_.filename().string())).string();
    const int file = mkstemp(temporary.data());
    if (file < 0) cannot_write(path_, std::strerror(errno));
    const mode_t mask = umask(0);
    umask(mask);
    const int denied = fchmod(file, 0666 & ~mask) == 0 ? 0 : errno;
    int error = write_and_close(file, content);
    if (denied != 0 && denied != EPERM) error = denied;  // a file system, or a sandbox, without modes
    if (error == 0 && std::rename(temporary.c_str(), path_.c_str()) != 0) error = errno;
    if (error != 0) {
        unlink(temporary.c_str());
        cannot_write(path_, std::strerror(error));
    }
}

TemporaryFolder::TemporaryFolder(const std::string& prefix) {
    remove_abandoned(prefix);
    std::string name = (fs::temp_directory_path() / (prefix + "XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) throw CannotRun("cannot create a temporary folder");
    path_ = name;
    lock_ = open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
    for (auto& slot : temporary_folders) {
        if (slot[0] != '\0' || name.size() >= slot.size()) continue;
        std::strcpy(slot.data(), name.c_str());
        break;
    }
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
    for (auto& slot : temporary_folders) {
        if (path_ == slot.data()) slot[0] = '\0';
    }
    if (lock_ >= 0) close(lock_);
}

void TemporaryFolder::remove_on_signals() {
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
        struct sigaction before {
        }, action{};
        sigaction(signal, nullptr, &before);
        if (before.sa_handler == SIG_IGN) continue;  // as under nohup
        action.sa_handler = end_without_folders;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        sigaction(signal, &action, nullptr);
    }
}

void require_new_folder(const fs::path& folder, std::string_view advice) {
    std::error_code error;
    if (fs::exists(folder, error) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error)))
        throw BadUsage(fmt::format("{} exists already{}", folder.string(), advice));
}

void ignore_in_git(const fs::path& folder) {
    const fs::path file = folder / ".gitignore";
    if (!fs::exists(file)) OutputFile(file).write("*\n");
}

std::string read_file(const fs::path& path) {
    std::error_code error;
    if (fs::is_directory(path, error))
        throw BadUsage(fmt::format("cannot read {}: it is a folder", path.string()));
    // A device may never end, and a pipe that no program writes to never begins.
    if (is_special(path))
        throw BadUsage(fmt::format("cannot read {}: it is a device or a pipe, not a file", path.string()));
    std::ifstream file(path, std::ios::binary);
    if (!file) throw BadUsage(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    std::string content;
    for (char piece[1 << 14]; file; content.append(piece, static_cast<std::size_t>(file.gcount())))
        file.read(piece, sizeof piece);
    if (file.bad()) throw BadUsage(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    return content;
}

std::string text_fingerprint(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
    return fmt::format("{:016x}", hash);
}

std::string code_fingerprint(const std::string& source) {
    std::string code;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source.compare(i, 2, "//") == 0) i = std::min(source.find('\n', i), source.size());
        if (i < source.size() && std::isspace(static_cast<unsigned char>(source[i])) == 0) code += source[i];
    }
    return text_fingerprint(code);
}

}  // namespace ladder
