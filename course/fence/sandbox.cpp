#include "course/fence/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <link.h>
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
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "harness/ladder/library.h"
#include "stages/errors.h"

#ifdef LADDER_HAS_SECCOMP
#    include <sched.h>
#    include <seccomp.h>
#endif

namespace ladder {
namespace {

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
    Rules(const Rules&) = delete;
    Rules& operator=(const Rules&) = delete;
    ~Rules() { close(rules_); }
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
    bool restrict_self() const { return syscall(SYS_landlock_restrict_self, rules_, 0) == 0; }

  private:
    std::uint64_t files_ = 0;
    int rules_ = -1;
};

/// The shared libraries of this program, with which those that it starts are linked, too: CUDA's are in a
/// folder of their own. None that it opens later, such as a stage's.
const std::vector<std::string> own_libraries = [] {
    std::vector<std::string> found;
    const auto add = [](dl_phdr_info* library, std::size_t, void* names) {
        if (library->dlpi_name[0] == '/')
            static_cast<std::vector<std::string>*>(names)->push_back(library->dlpi_name);
        return 0;
    };
    dl_iterate_phdr(add, &found);
    return found;
}();

void allow_files(const Rules& rules, const Sandbox& sandbox, const std::string& program) {
    const bool tools = sandbox.calls != Calls::kernel;
    // Not /usr as a whole: sources may lie in it.
    for (const char* path : {"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"})
        rules.allow(path, read_rights | (tools ? execute : 0));
    for (const std::string& library : own_libraries) rules.allow(library, read_rights);
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
    if (sandbox.calls == Calls::cuda) {
        rules.allow("/usr", read_rights | execute);
        rules.allow("/sys", read_rights);
        rules.allow("/proc", read_rights | write_file | truncate_file);  // CUDA names its threads there
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
            if (entry.path().filename().string().starts_with("nvidia"))
                rules.allow(entry.path(), read_rights | write_file | control_device);
        }
    }
    for (const auto& path : sandbox.readable) rules.allow(path, read_rights | (tools ? execute : 0));
    for (const auto& path : sandbox.writable) rules.allow(path, rules.all());
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
        missing.emplace_back("Landlock, which this system's kernel does not have or does not allow");
    return fmt::format("{}", fmt::join(missing, "; "));
}

std::function<void()> Sandbox::operator()(const std::string& program) const {
    const std::vector<sock_filter> filter = has_seccomp() ? filter_of(calls) : std::vector<sock_filter>();
    const auto rules = landlock_version() > 0 ? std::make_shared<Rules>() : nullptr;
    if (rules) allow_files(*rules, *this, program);
    const bool other_user = as_nobody && geteuid() == 0, limit_processes = calls == Calls::cuda;
    return [=] {
        if (other_user) {
            const rlimit processes{512, 512};
            if (limit_processes) setrlimit(RLIMIT_NPROC, &processes);
            if (setgroups(0, nullptr) != 0 || setgid(nobody) != 0 || setuid(nobody) != 0) _exit(126);
            prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user clears it
        }
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(126);
        if (rules && !rules->restrict_self()) _exit(126);
        const sock_fprog code{static_cast<unsigned short>(filter.size()),
                              const_cast<sock_filter*>(filter.data())};
        if (!filter.empty() && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code) != 0) _exit(126);
    };
}

Limits sandboxed_compiler_limits(const std::filesystem::path& kernel, const std::filesystem::path& folder) {
    Limits limits = compiler_limits();
    limits.cpu_s = 120;
    limits.memory = sandboxed_compiler_memory;
    Sandbox sandbox{.readable = read_by_compilers(), .writable = {folder}};
    sandbox.readable.push_back(kernel);
    limits.confine = sandbox;
    limits.temporary = folder;
    return limits;
}

}  // namespace ladder
