#include "harness/base/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "stages/errors.h"

#ifdef LADDER_HAS_SECCOMP
#    include <sched.h>
#    include <seccomp.h>
#endif

namespace ladder {
namespace {

constexpr std::size_t most_output = 1 << 20;
constexpr uid_t nobody = 65534;

#ifdef LADDER_HAS_SECCOMP

// Memory, files that are read, time: what every program calls until it ends. A call without a rule fails with
// ENOSYS, as on a kernel that does not have it.
constexpr const char* everybody_calls =
    "execve brk mmap munmap mprotect mremap madvise arch_prctl set_tid_address set_robust_list rseq futex "
    "read readv pread64 write writev lseek close close_range fstat stat lstat newfstatat statx access "
    "faccessat "
    "faccessat2 getcwd readlink readlinkat getdents64 "
    "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall exit exit_group "
    "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getrandom uname sysinfo "
    "getpid gettid getuid geteuid getgid getegid getrusage getrlimit sched_yield sched_getaffinity";

// Other processes, and files that are written, where Landlock lets them.
constexpr const char* tools_call =
    "open openat creat pipe pipe2 dup dup2 dup3 clone fork vfork wait4 waitid getppid getpgrp getpgid "
    "prlimit64 setrlimit umask chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 "
    "link linkat "
    "symlink symlinkat chmod fchmod fchmodat ftruncate fallocate fadvise64 pwrite64 copy_file_range sendfile "
    "fsync "
    "flock poll ppoll pselect6 select times rt_sigsuspend rt_sigpending alarm statfs fstatfs prctl";

// A CUDA driver calls what its version pleases, so here it is the other way round: the network, other
// processes and their signals, other name spaces, files' owners, the system. Its sockets are between its own
// threads.
constexpr const char* cuda_may_not_call =
    "socketpair connect accept accept4 sendto sendmsg sendmmsg ptrace process_vm_readv process_vm_writev "
    "kill tkill "
    "tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal mount umount2 "
    "pivot_root chroot "
    "unshare setns bpf perf_event_open io_uring_setup io_uring_enter io_uring_register keyctl add_key "
    "request_key "
    "userfaultfd init_module finit_module delete_module kexec_load reboot swapon swapoff shmget shmat msgget "
    "semget "
    "mq_open setsid setpgid setpriority sched_setaffinity open_by_handle_at quotactl chmod fchmod fchmodat "
    "chown fchown "
    "lchown fchownat utime utimes utimensat futimesat truncate setxattr lsetxattr fsetxattr removexattr "
    "lremovexattr "
    "fremovexattr";

/// The rules as the program that the kernel runs at each system call. Made before the fork.
std::vector<sock_filter> filter_of(Calls calls) {
    const bool closed = calls != Calls::cuda;
    const scmp_filter_ctx filter = seccomp_init(closed ? SCMP_ACT_ERRNO(ENOSYS) : SCMP_ACT_ALLOW);
    if (filter == nullptr) throw CannotRun("libseccomp does not work here");
    const auto rule = [&](std::uint32_t action, const char* call, std::vector<scmp_arg_cmp> conditions = {}) {
        const int number = seccomp_syscall_resolve_name(call);
        if (number == __NR_SCMP_ERROR) return;  // of a newer or another system
        seccomp_rule_add_array(filter, action, number, static_cast<unsigned>(conditions.size()),
                               conditions.data());
    };
    const auto allow = [&](const char* call, const std::vector<scmp_arg_cmp>& conditions) {
        rule(SCMP_ACT_ALLOW, call, conditions);
    };
    const auto rules = [&](std::uint32_t action, const char* names) {
        std::istringstream words(names);
        for (std::string call; words >> call;) rule(action, call.c_str());
    };
    const auto equals = [](unsigned argument, std::uint64_t value) {
        return scmp_arg_cmp{argument, SCMP_CMP_EQ, value, 0};
    };
    if (closed) {
        rules(SCMP_ACT_ALLOW, everybody_calls);
        // Not those by which something that happens to a file sends a signal to anybody.
        for (const int command : {F_GETFD, F_SETFD, F_GETFL, F_DUPFD, F_DUPFD_CLOEXEC})
            allow("fcntl", {equals(1, static_cast<std::uint64_t>(command))});
    }
    if (calls == Calls::kernel) {
        constexpr scmp_datum_t changes = O_ACCMODE | O_CREAT | O_TRUNC;
        allow("open", {scmp_arg_cmp{1, SCMP_CMP_MASKED_EQ, changes, O_RDONLY}});
        allow("openat", {scmp_arg_cmp{2, SCMP_CMP_MASKED_EQ, changes, O_RDONLY}});
        allow("prlimit64", {equals(2, 0)});  // asks only
    } else if (calls == Calls::tools) {
        rules(SCMP_ACT_ALLOW, tools_call);
        for (const int command : {F_SETFL, F_SETLK, F_SETLKW, F_GETLK})
            allow("fcntl", {equals(1, static_cast<std::uint64_t>(command))});
        allow("ioctl", {equals(1, TCGETS)});  // is it a terminal?
    } else {
        constexpr std::uint32_t deny = SCMP_ACT_ERRNO(EPERM);
        rules(deny, cuda_may_not_call);
        const auto command_is = [](std::uint64_t command) {  // whatever the upper half of the register holds
            return scmp_arg_cmp{1, SCMP_CMP_MASKED_EQ, 0xffff'ffff, command};
        };
        for (const int command : {F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY})
            rule(deny, "fcntl", {command_is(static_cast<std::uint64_t>(command))});
        for (const unsigned command : {FIOSETOWN, SIOCSPGRP, FIOASYNC})
            rule(deny, "ioctl", {command_is(command)});
    }

    const int memory = memfd_create("filter", MFD_CLOEXEC);
    const bool written = memory >= 0 && seccomp_export_bpf(filter, memory) == 0;
    seccomp_release(filter);
    struct stat info {};
    if (!written || fstat(memory, &info) != 0) throw CannotRun("libseccomp does not work here");
    std::vector<sock_filter> code(static_cast<std::size_t>(info.st_size) / sizeof(sock_filter));
    const ssize_t bytes = pread(memory, code.data(), code.size() * sizeof(sock_filter), 0);
    close(memory);
    if (bytes != info.st_size) throw CannotRun("libseccomp does not work here");
    return code;
}

bool has_seccomp() {
    return prctl(PR_GET_SECCOMP) >= 0;
}

#else

std::vector<sock_filter> filter_of(Calls) {
    return {};
}
bool has_seccomp() {
    return false;
}

#endif

int landlock_version() {
    const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? static_cast<int>(version) : 0;
}

// Landlock's rights, of newer versions than the system's header may know.
constexpr std::uint64_t execute = 1 << 0, write_file = 1 << 1, read_file_right = 1 << 2, read_folder = 1 << 3,
                        truncate_file = 1 << 14, control_device = 1 << 15;
constexpr std::uint64_t file_rights = execute | write_file | read_file_right | truncate_file | control_device;
constexpr std::uint64_t read_rights = read_file_right | read_folder;

/// As in linux/landlock.h of version 6.
struct Ruleset {
    std::uint64_t files = 0, network = 0, scoped = 0;
};

/// All that the running version can take away, and what of it that structure has.
Ruleset handled(int version, std::size_t& bytes) {
    const int kinds = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
    bytes = sizeof(std::uint64_t) * (version >= 6 ? 3 : version >= 4 ? 2 : 1);
    return {(std::uint64_t{1} << kinds) - 1, 3, 3};
}

/// A Landlock rule set, made before the fork.
class Rules {
  public:
    Rules() {
        std::size_t bytes = 0;
        const Ruleset ruleset = handled(landlock_version(), bytes);
        files_ = ruleset.files;
        rules_ = static_cast<int>(syscall(SYS_landlock_create_ruleset, &ruleset, bytes, 0));
    }
    void allow(const std::filesystem::path& path, std::uint64_t rights) const {
        const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
        if (file < 0) return;  // what is not there needs no rule
        struct stat info {};
        if (fstat(file, &info) == 0 && !S_ISDIR(info.st_mode)) rights &= file_rights;
        const landlock_path_beneath_attr rule{rights & files_, file};
        syscall(SYS_landlock_add_rule, rules_, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
        close(file);
    }
    std::uint64_t all() const { return files_; }
    int descriptor() const { return rules_; }

  private:
    std::uint64_t files_ = 0;
    int rules_ = -1;
};

int make_rules(const Limits& limits, const std::string& program) {
    const Rules rules;
    const bool tools = limits.calls != Calls::kernel;
    // Not /usr as a whole: sources may lie in it.
    for (const char* path : {"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"})
        rules.allow(path, read_rights | (tools ? execute : 0));
    rules.allow("/etc/ld.so.cache", read_rights);
    rules.allow("/sys/devices/system/cpu", read_rights);
    rules.allow("/dev/null", read_rights | write_file);
    if (const char* libraries = std::getenv("LD_LIBRARY_PATH")) {
        std::istringstream folders(libraries);
        for (std::string folder; std::getline(folders, folder, ':');)
            if (!folder.empty()) rules.allow(folder, read_rights);
    }
    if (program.find('/') != program.npos) rules.allow(program, read_rights | execute);
    if (tools) {
        for (const char* path : {"/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/include", "/usr/local/bin",
                                 "/usr/local/include", "/bin", "/sbin", "/etc/alternatives"})
            rules.allow(path, read_rights | execute);
    } else {
        for (const char* loader : {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"})
            rules.allow(loader, read_rights | execute);
    }
    if (limits.calls == Calls::cuda) {
        rules.allow("/usr", read_rights | execute);
        rules.allow("/sys", read_rights);
        rules.allow("/proc", read_rights | write_file);  // CUDA names its threads there
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
            if (entry.path().filename().string().starts_with("nvidia"))
                rules.allow(entry.path(), read_rights | write_file | control_device);
        }
    }
    for (const auto& path : limits.readable) rules.allow(path, read_rights | (tools ? execute : 0));
    for (const auto& path : limits.writable) rules.allow(path, rules.all());
    return rules.descriptor();
}

void limit(int resource, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

}  // namespace

void let_sandbox_through(const std::filesystem::path& folder) {
    const bool as_nobody = geteuid() == 0;
    if (as_nobody && chown(folder.c_str(), uid_t(-1), nobody) != 0)
        throw CannotRun(
            fmt::format("cannot give {} to another group: {}", folder.string(), std::strerror(errno)));
    if (chmod(folder.c_str(), as_nobody ? 0710 : 0700) != 0)
        throw CannotRun(fmt::format("cannot close {}: {}", folder.string(), std::strerror(errno)));
}

std::string describe_sandbox() {
    std::string what = "resource limits";
    if (has_seccomp()) what += ", seccomp";
    if (const int version = landlock_version(); version > 0) what += fmt::format(", Landlock {}", version);
    if (geteuid() == 0) what += ", another user (nobody)";
    return what;
}

std::string missing_in_sandbox() {
#ifdef LADDER_HAS_SECCOMP
    const char* without_seccomp = "seccomp, which this system's kernel does not have";
#else
    const char* without_seccomp =
        "libseccomp, which lab was built without (install libseccomp-dev and build again)";
#endif
    std::vector<std::string> missing;
    if (!has_seccomp()) missing.emplace_back(without_seccomp);
    if (landlock_version() == 0)
        missing.emplace_back("Landlock, which this system's kernel does not have or not allow");
    return fmt::format("{}", fmt::join(missing, "; "));
}

SandboxedProcess::SandboxedProcess(const std::vector<std::string>& command, const Limits& limits, int socket)
    : deadline_(limits.deadline) {
    // All memory is allocated here: between fork and exec of a program with threads it must not be.
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    // Of the caller's environment, which may hold secrets, only what a driver is found by, and
    // under qemu-user the libraries.
    // The programs' caller keeps what they make, so a compiler in ccache needs no folder of ccache's.
    std::vector<std::string> variables{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "CCACHE_DISABLE=1",
                                       "TMPDIR=" + limits.temporary.string()};
    for (const std::string name : {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "QEMU_LD_PREFIX"}) {
        if (const char* value = std::getenv(name.c_str())) variables.push_back(name + "=" + value);
    }
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    const bool sandbox = limits.sandbox, filtered = sandbox && has_seccomp();
    std::vector<sock_filter> filter = filtered ? filter_of(limits.calls) : std::vector<sock_filter>();
    const bool as_nobody = sandbox && limits.as_nobody && geteuid() == 0;
    const int rules = sandbox && landlock_version() > 0 ? make_rules(limits, command.front()) : -1;
    output_ = memfd_create("output", MFD_CLOEXEC);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (output_ < 0 || nothing < 0)
        throw CannotRun(std::string("cannot start a process: ") + std::strerror(errno));

    const pid_t parent = getpid();
    forks_to_start_a_program = true;
    child_ = fork();
    if (child_ == 0) {
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(126);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        dup2(nothing, STDIN_FILENO);
        dup2(output_, STDOUT_FILENO);
        dup2(output_, STDERR_FILENO);
        if (socket >= 0) {
            dup2(socket, 3);
            fcntl(3, F_SETFD, 0);
        }
        syscall(SYS_close_range, socket >= 0 ? 4 : 3, ~0u, 1u << 2);  // CLOSE_RANGE_CLOEXEC
        limit(RLIMIT_CPU, limits.cpu_s);
        limit(RLIMIT_AS, limits.memory);
        limit(RLIMIT_FSIZE, limits.file_bytes > most_output ? limits.file_bytes : most_output);
        limit(RLIMIT_CORE, 0);
        limit(RLIMIT_NOFILE, 256);
        if (sandbox) {
            if (as_nobody) {
                if (limits.calls == Calls::cuda) limit(RLIMIT_NPROC, 512);
                if (setgroups(0, nullptr) != 0 || setgid(nobody) != 0 || setuid(nobody) != 0) _exit(126);
                prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user clears it
            }
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(126);
            if (rules >= 0 && syscall(SYS_landlock_restrict_self, rules, 0) != 0) _exit(126);
            const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
            if (filtered && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(126);
        }
        execvpe(arguments[0], arguments.data(), environment.data());
        _exit(127);
    }
    forks_to_start_a_program = false;
    close(nothing);
    if (rules >= 0) close(rules);
    if (child_ < 0) {
        close(output_);
        throw CannotRun(std::string("cannot start a process: ") + std::strerror(errno));
    }
}

SandboxedProcess::~SandboxedProcess() {
    if (child_ > 0) wait(0);
    close(output_);
}

std::string SandboxedProcess::wait(double limit_s) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = std::min<Clock::time_point>(
        deadline_,
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s)));
    if (child_ <= 0) return "it has ended";
    // WNOWAIT: as long as the process is not reaped, no other can have its number.
    siginfo_t info{};
    bool ended = false;
    for (auto pause = std::chrono::microseconds(200);;) {
        info.si_pid = 0;
        ended = waitid(P_PID, child_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
        if (ended || Clock::now() >= deadline) break;
        std::this_thread::sleep_for(pause);
        if (pause < std::chrono::milliseconds(10)) pause *= 2;
    }
    kill(-child_, SIGKILL);  // and all that it started
    kill(child_, SIGKILL);   // before it had a session of its own
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    if (!ended && deadline == deadline_) return "the time for all is over";
    if (!ended) return fmt::format("it did not end within {:g} s", limit_s);
    if (WIFEXITED(status)) {
        const int code = WEXITSTATUS(status);
        return code == 0 ? "" : fmt::format("exit code {}", code);
    }
    switch (WTERMSIG(status)) {
        case SIGSEGV:
        case SIGBUS:
            return "a segmentation fault";
        case SIGILL:  // what -fsanitize=bounds makes of it
            return "an index outside of an array, or another illegal instruction";
        case SIGXFSZ:
            return "it wrote more than it may";
        case SIGXCPU:
            return "it was stopped: too much processor time";
        case SIGKILL:
            return "it was killed: too much memory or processor time";
        default:
            return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
}

bool SandboxedProcess::running() const {
    siginfo_t info{};
    return child_ > 0 && std::chrono::steady_clock::now() < deadline_ &&
           waitid(P_PID, child_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

double SandboxedProcess::processor_s() const {
    clockid_t clock{};
    timespec used{};
    if (child_ <= 0 || clock_getcpuclockid(child_, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::string inspect(std::vector<std::string> command, const std::filesystem::path& file) {
    Limits limits;
    limits.cpu_s = 10;
    limits.memory = std::size_t{1} << 30;
    limits.sandbox = true;
    limits.readable = {file};
    command.push_back(file.string());
    SandboxedProcess process(command, limits);
    const std::string how_it_ended = process.wait(20), said = process.output();
    if (how_it_ended == "exit code 127")
        throw CannotRun(
            fmt::format("cannot look into the compiled kernel with {}: install binutils", command.front()));
    if (!how_it_ended.empty() || said.size() >= most_output) {
        throw CheckFailed(
            fmt::format("{} cannot look into the compiled kernel: {}", command.front(),
                        how_it_ended.empty() ? "it has more to say than it may" : how_it_ended));
    }
    return said;
}

std::string SandboxedProcess::output() const {
    std::string text(most_output, '\0');
    const ssize_t n = pread(output_, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
}

}  // namespace ladder
