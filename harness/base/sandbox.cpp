#include "harness/base/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "stages/errors.h"

namespace ladder {
namespace {

constexpr std::size_t most_output = 1 << 20;
constexpr uid_t nobody = 65534;

#if defined(__x86_64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t architecture = 0;  // none that we know: no seccomp
#endif

// What neither a kernel nor addr2line needs: the network, other processes, other name spaces, the system.
constexpr long denied[] = {
    SYS_socketpair,
    SYS_connect,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_userfaultfd,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_shmget,
    SYS_shmat,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_setsid,
    SYS_setpgid,
    SYS_setpriority,
    SYS_sched_setaffinity,
    SYS_open_by_handle_at,
    SYS_quotactl,
    SYS_prlimit64,
    // CUDA does not start without these. A socket is no use without those above.
    SYS_memfd_create,
    SYS_socket,
    SYS_bind,
    SYS_listen,
};
constexpr std::size_t n_for_cuda = 4, most_denied = sizeof denied / sizeof *denied;

// The filter: another architecture's calls kill, the denied ones fail with EPERM, all others pass.
struct Filter {
    sock_filter code[most_denied + 8];
    std::uint16_t length = 0;

    void add(std::uint16_t operation, std::uint32_t k, std::uint8_t if_true = 0, std::uint8_t if_false = 0) {
        code[length++] = {operation, if_true, if_false, k};
    }
    explicit Filter(bool gpu) {
        const std::size_t n_denied = most_denied - (gpu ? n_for_cuda : 0);
        add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
        add(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0);
        add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
        // x32 has numbers of its own for the same calls
        add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, static_cast<std::uint8_t>(n_denied + 1), 0);
        for (std::size_t i = 0; i < n_denied; ++i) {
            add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(denied[i]),
                static_cast<std::uint8_t>(n_denied - i), 0);
        }
        add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
};

int landlock_version() {
    const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? static_cast<int>(version) : 0;
}

constexpr std::uint64_t read_rights =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t all_rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;  // of version 1
constexpr std::uint64_t file_rights =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;

void allow(int rules, const char* path, std::uint64_t rights) {
    const int file = open(path, O_PATH | O_CLOEXEC);
    if (file < 0) return;  // what is not there needs no rule
    struct stat info {};
    if (fstat(file, &info) == 0 && !S_ISDIR(info.st_mode)) rights &= file_rights;
    const landlock_path_beneath_attr rule{rights, file};
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(file);
}

/// A Landlock rule set, made before the fork.
int make_rules(const Limits& limits, const std::string& program) {
    const landlock_ruleset_attr attributes{.handled_access_fs = all_rights};
    const int rules = static_cast<int>(
        syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0));
    for (const char* path :
         {"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives", "/proc/self",
          "/proc/sys", "/proc/meminfo", "/proc/cpuinfo", "/sys/devices/system/cpu"})
        allow(rules, path, read_rights);
    allow(rules, "/proc", read_rights);  // the checker finds its own program in it
    allow(rules, "/dev/null", read_rights | LANDLOCK_ACCESS_FS_WRITE_FILE);
    if (program.find('/') != program.npos) allow(rules, program.c_str(), read_rights);
    if (limits.gpu) {
        allow(rules, "/sys", read_rights);
        allow(rules, "/proc", read_rights | LANDLOCK_ACCESS_FS_WRITE_FILE);  // CUDA names its threads there
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
            if (entry.path().filename().string().starts_with("nvidia"))
                allow(rules, entry.path().c_str(), read_rights | LANDLOCK_ACCESS_FS_WRITE_FILE);
        }
    }
    for (const auto& path : limits.readable) allow(rules, path.c_str(), read_rights);
    for (const auto& path : limits.writable) allow(rules, path.c_str(), all_rights);
    return rules;
}

void limit(int resource, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

bool has_seccomp() {
    return architecture != 0 && prctl(PR_GET_SECCOMP) >= 0;
}

}  // namespace

std::string describe_sandbox() {
    std::string what = "resource limits";
    if (has_seccomp()) what += ", seccomp";
    if (landlock_version() > 0) what += ", Landlock";
    if (geteuid() == 0) what += ", another user (nobody)";
    return what;
}

SandboxedProcess::SandboxedProcess(const std::vector<std::string>& command, const Limits& limits,
                                   int socket) {
    if (limits.sandbox && !has_seccomp())
        throw CannotRun("untrusted code needs seccomp, which this kernel does not have");
    // All memory is allocated here: between fork and exec of a program with threads it must not be.
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    // Of the caller's environment, which may hold secrets, only what a driver is found by.
    std::vector<std::string> variables{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C",
                                       "TMPDIR=" + limits.temporary.string()};
    for (const std::string name : {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"}) {
        if (const char* value = std::getenv(name.c_str())) variables.push_back(name + "=" + value);
    }
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    const Filter filter(limits.gpu);
    const bool sandbox = limits.sandbox, as_nobody = sandbox && limits.as_nobody && geteuid() == 0;
    const int rules = sandbox && landlock_version() > 0 ? make_rules(limits, command.front()) : -1;
    output_ = memfd_create("output", MFD_CLOEXEC);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (output_ < 0 || nothing < 0)
        throw CannotRun(std::string("cannot start a process: ") + std::strerror(errno));

    const pid_t parent = getpid();
    child_ = fork();
    if (child_ == 0) {
        setpgid(0, 0);
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
                limit(RLIMIT_NPROC, 512);
                if (setgroups(0, nullptr) != 0 || setgid(nobody) != 0 || setuid(nobody) != 0) _exit(126);
                prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user clears it
            }
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(126);
            if (rules >= 0 && syscall(SYS_landlock_restrict_self, rules, 0) != 0) _exit(126);
            const sock_fprog program{filter.length, const_cast<sock_filter*>(filter.code)};
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(126);
        }
        execvpe(arguments[0], arguments.data(), environment.data());
        _exit(127);
    }
    close(nothing);
    if (rules >= 0) close(rules);
    if (child_ < 0) {
        close(output_);
        throw CannotRun(std::string("cannot start a process: ") + std::strerror(errno));
    }
    setpgid(child_, child_);
}

SandboxedProcess::~SandboxedProcess() {
    if (child_ > 0) wait(0);
    close(output_);
}

std::string SandboxedProcess::wait(double limit_s) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
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
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    if (!ended) return fmt::format("it did not end within {:g} s", limit_s);
    if (WIFEXITED(status)) {
        const int code = WEXITSTATUS(status);
        return code == 0 ? "" : fmt::format("exit code {}", code);
    }
    switch (WTERMSIG(status)) {
        case SIGSEGV:
        case SIGBUS:
            return "a segmentation fault";
        case SIGXCPU:
        case SIGKILL:
            return "it was stopped: too much processor time or memory";
        case SIGSYS:
            return "it was stopped: a forbidden system call";
        default:
            return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
}

bool SandboxedProcess::running() const {
    siginfo_t info{};
    return child_ > 0 && waitid(P_PID, child_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

std::string SandboxedProcess::output() const {
    std::string text(most_output, '\0');
    const ssize_t n = pread(output_, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
}

}  // namespace ladder
