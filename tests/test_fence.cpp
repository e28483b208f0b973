// The fence around kernels that nobody vouches for: course/README.md says which test shows what.
#ifdef LADDER_HAS_CPU

#    include <fcntl.h>
#    include <sys/stat.h>
#    include <unistd.h>
#    include <algorithm>
#    include <chrono>
#    include <filesystem>
#    include <map>
#    include <regex>
#    include <sstream>

#    include "course/fence/remote_device.h"
#    include "course/fence/sandbox.h"
#    include "course/fence/screen.h"
#    include "harness/base/json.h"
#    include "harness/base/process.h"
#    include "harness/ladder/declaration.h"
#    include "harness/ladder/ladder.h"
#    include "harness/ladder/library.h"
#    include "stages/errors.h"
#    include "tests/any_stage.h"
#    include "tests/course.h"

using namespace ladder;
using namespace ladder::test;
namespace fs = std::filesystem;

namespace {

// Tries what reaches files, processes and the grader, and prints what it could do.
const char* const raw_calls = R"(
#include <cstdio>
#include <cstdlib>
#include <string>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int, char** words) {
    const char* file = words[1];
    const int grader = std::atoi(words[2]), own = open("/dev/null", O_RDONLY);
    bool none = true;
    const auto tell = [&](const char* what, long result) {
        if (result < 0) return;
        none = false;
        std::puts(what);
    };
    const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    tell("fork", child);
    tell("truncate", truncate(file, 3));
    tell("open to write", open(file, O_WRONLY));
    tell("open to truncate", open(file, O_RDONLY | O_TRUNC));
    tell("read", open(file, O_RDONLY));
    tell("chmod", chmod(file, 0600));
    tell("chown", chown(file, getuid(), getgid()));
    tell("utime", utimensat(AT_FDCWD, file, nullptr, 0));
    tell("unlink", grader == 0 ? -1 : unlink(file));
    tell("owner of signals", own < 0 ? 0 : fcntl(own, F_SETOWN, grader));
    tell("another signal", own < 0 ? 0 : fcntl(own, F_SETSIG, SIGKILL));
    tell("kill", grader == 0 ? -1 : kill(grader, 0));
    tell("socket", socket(AF_INET, SOCK_STREAM, 0));
    tell("memory that is not counted", memfd_create("x", 0));
    tell("others' words", open("/proc/self/../1/cmdline", O_RDONLY));
    if (grader != 0) tell("the grader's words", open((std::string("/proc/") + words[2] + "/cmdline").c_str(), O_RDONLY));
    if (none) std::puts("none");
}
)";

/// A submission that is kept as what it changes in a solution, with bytes as \x0c where it adds lines.
struct Submission {
    std::string kernel, says;
    int stage = 0;
    double least = 0, most = 0;  ///< points
};

Submission read_submission(const fs::path& file) {
    Submission read;
    std::istringstream lines(read_file(file));
    std::map<std::string, std::string> head;
    std::string line, from, to;
    while (std::getline(lines, line) && !line.empty())
        head[line.substr(0, line.find(": "))] = line.substr(line.find(": ") + 2);
    read.stage = std::stoi(head.at("Stage"));
    const std::string score = head.at("Score");
    read.least = std::stod(score);
    read.most = contains(score, " to ") ? std::stod(score.substr(score.find(" to ") + 4)) : read.least;
    read.says = head.at("Says");
    read.kernel = kernel_of(read.stage);
    while (std::getline(lines, line)) (line.starts_with('-') ? from : to) += line.substr(1) + "\n";
    for (std::size_t at = to.find("\\x"); at != to.npos; at = to.find("\\x", at + 1))
        to.replace(at, 4, 1, static_cast<char>(std::stoi(to.substr(at + 2, 2), nullptr, 16)));
    read.kernel = with(read.kernel, from, to);
    return read;
}

}  // namespace

TEST_CASE("course: the page that explains the fence names tests that exist", "[course]") {
    const std::string page = read_file(LADDER_SOURCE_DIR "/course/README.md");
    std::string tests;
    for (const char* file : {"fence", "grade"})
        tests += read_file(fmt::format("{}/tests/test_{}.cpp", LADDER_SOURCE_DIR, file));
    const std::regex name("\"(course: [^\"]+)\"|`([a-z]+_[a-z_]+[*]?)`");
    int cases = 0, files = 0;
    for (std::sregex_iterator found(page.begin(), page.end(), name), end; found != end; ++found) {
        INFO(found->str());
        const std::string test = (*found)[1], file = (*found)[2];
        const auto is_named = [&](const fs::directory_entry& entry) {
            const std::string stem = entry.path().stem().string();
            return file.ends_with('*') ? stem.starts_with(file.substr(0, file.size() - 1)) : stem == file;
        };
        const fs::directory_iterator submissions(LADDER_SOURCE_DIR "/tests/submissions");
        if (test.empty()) {
            CHECK(std::any_of(fs::begin(submissions), fs::end(submissions), is_named));
        } else {
            CHECK(contains(tests, "TEST_CASE(\"" + test + "\""));
        }
        (test.empty() ? files : cases) += 1;
    }
    CHECK(cases >= 8);
    CHECK(files >= 15);
}

TEST_CASE("course: the source of a kernel is screened", "[course]") {
    const std::string good = kernel_of(5);
    const auto refused = [&](const std::string& line) {
        return !screen_source(with(good, "namespace {\n", "namespace {\n" + line + "\n")).empty();
    };
    for (const char* line : {"#include <cstdio>",
                             "#include \"/etc/passwd\"",
                             "#define X",
                             "#pragma GCC optimize(\"O0\")",
                             "asm(\"\");",
                             "__asm__(\"\");",
                             "extern \"C\" int system(const char*);",
                             "void f() { simt::reset_counters(); }",
                             "[[gnu::no_sanitize(\"thread\")]] void f();",
                             "__attribute__((no_sanitize_thread)) void f();",
                             "namespace simt { }",
                             "namespace other { }",
                             "int a = 1; \\",
                             "_Pragma(\"x\")",
                             "%:include <cstdio>",
                             "auto s = R\"(x)\";",
                             "int main();",
                             "bool b = ladder::register_stage;",
                             "  #  include <vector>",
                             "constexpr bool c = backend == ladder::Backend::checked;",
                             "auto name = typeid(int).name();"}) {
        INFO(line);
        CHECK(refused(line));
    }
    // Lengths that compilers take, and what reads them need not.
    CHECK(refused(std::string(900'000, ' ') + "#include <cstdio>"));
    CHECK(refused("int " + std::string(300'000, 'x') + ";"));
    CHECK(refused("/*" + std::string(900'000, '\n')));
    CHECK(refused(std::string(500'000, '[')));
    for (const char* line :
         {"// #include <cstdio> asm simt", "/* extern */ int a;", "#pragma unroll 4",
          "[[maybe_unused]] int a = 1'000;", "const char* s = \"asm\";", "// caf\u00e9 ?\?= %: \\u0041",
          "constexpr char c = '\\'', d = '\"';", "#pragma unroll(4) // four"}) {
        INFO(line);
        CHECK(!refused(line));
    }
}

TEST_CASE("course: what nvcc refuses in a kernel is refused; what a host side divides is its own",
          "[course]") {
    const std::string good = kernel_of(5), kernel = "    const int first_row = i * Br";
    const auto said = [&](const std::string& before, const std::string& inside) {
        const auto found = screen_source(with(with(good, "template <class T, int d>\n__global__",
                                                   before + "template <class T, int d>\n__global__"),
                                              kernel, inside + kernel));
        return found.empty() ? "" : found.front();
    };
    CHECK(said("int twice(int n) { return 2 * n; }\n", "") == "");
    CHECK(contains(said("int twice(int n) { return 2 * n; }\n", "    const int n = i > 1 ? 0 : twice(i);\n"),
                   "twice() in attention(): it has no __device__"));
    CHECK(contains(
        said("template <class N>\nN twice(N n) { return 2 * n; }\n", "    const int n = ::twice<int>(i);\n"),
        "twice() in attention()"));
    CHECK(said("__device__ int twice(int n) { return 2 * n; }\n", "    const int n = twice(i);\n") == "");
    CHECK(said("constexpr int twice(int n) { return 2 * n; }\n", "    const int n = twice(3);\n") == "");
    CHECK(contains(said("", "    const std::string text(i, 'x');\n"),
                   "'string' in attention(): no GPU has it"));
    CHECK(contains(said("", "    if (i < 0) throw 1;\n"), "'throw' in attention()"));
    // It divides in its host side, to choose the heads of a section.
    const std::string sections = kernel_text(named("own_diagonal"));
    const Folder folder;
    const auto divides = [&](const std::string& source) {
        const Compilation c{folder.write("kernel.cu", source), name(Backend::cpu), folder / ""};
        REQUIRE(compile({c}, compiler_limits()).front() == "");
        return screen_compiled({c}, Backend::cpu);
    };
    CHECK(divides(sections).empty());
    // What a kernel calls is the kernel's, wherever it stands.
    const std::string counted = "divide(1.0f, l[r])";
    const auto is_refused = [&](const std::string& source) {
        const std::vector<std::string> found = divides(source);
        return found.size() == 1 && contains(found.front(), "a division that is not counted");
    };
    // In a structure of the host side
    const std::string of_kernel = "template <class T, int d>\n__global__",
                      host_side = "template <class T, int d>\nvoid forward(const Problem& p) {\n";
    const std::string by_type =
        with(with(with(kernel_of(5), of_kernel, "template <class T, int d, class Inverse>\n__global__"),
                  "    write_rows<T, d>(",
                  "    for (float& sum : l) sum = Inverse::of(sum);\n    write_rows<T, d>("),
             "launch(attention<T, d>", "launch(attention<T, d, Inverse>");
    CHECK(
        is_refused(with(by_type, host_side,
                        host_side + "    struct Inverse { static float of(float x) { return 1 / x; } };\n")));
    // On the line on which the host side begins
    const std::string on_one_line = with(good, "template <class T, int d>\nvoid forward(",
                                         "__device__ float inverse(float x) { return 1 / x; } "
                                         "template <class T, int d> void forward(");
    const std::string declared = with(on_one_line, "namespace {\n", "namespace {\nfloat inverse(float x);\n");
    CHECK(is_refused(with(declared, counted, "inverse(l[r])")));
    // In the host side, if its name is elsewhere than where it is defined and declared: a kernel may call it
    CHECK(!divides(with(sections, "    const int section =",
                        "    if (p.B < 0) forward<T, d>(p);\n    const int section ="))
               .empty());
}

TEST_CASE("course: a library is as new as all that its source includes", "[course]") {
    const Folder folder;
    folder.write("mine.h", "inline int mine() { return 1; }\n");
    const std::string kernel =
        folder.write("kernel.cu", "#include \"stages/device.cuh\"\n#include \"mine.h\"\n");
    const Compilation c{kernel, name(Backend::cpu), folder / ""};
    const auto made = [&] {
        REQUIRE(compile({c}, compiler_limits()).front() == "");
        return fs::last_write_time(c.library());
    };
    const auto first = made();
    CHECK(made() == first);
    // The layer too, also where the compiler had it from a precompiled header and does not list it.
    CHECK(contains(folder.read("cpu.so.made"), (fs::path(LADDER_SOURCE_DIR) / "simt/half.h").string()));
    CHECK(screen_compiled({c}, Backend::cpu) == std::vector<std::string>{"it includes mine.h"});
    folder.write("mine.h", "inline int mine() { return 2; }\n");
    CHECK(made() != first);
}

TEST_CASE("course: the checker sees memcpy where a compiler fortifies it by default", "[course]") {
    for (const Backend backend : {Backend::cpu, Backend::checked}) {
        std::vector<std::string> command =
            read_json(build_folder() / "kernels.json").at(name(backend)).at("compile");
        command.erase(std::remove(command.begin(), command.end(), ""), command.end());
        const Folder folder;
        // A compiler's own default, such as Ubuntu's, comes before all that a recipe says.
        command.insert(command.begin() + 1, "-D_FORTIFY_SOURCE=2");
        command.insert(command.end(), {"-E", "-P", folder.write("kernel.cu", "_FORTIFY_SOURCE\n")});
        CHECK(run_process(command).out == "_FORTIFY_SOURCE\n");
    }
}

TEST_CASE("course: what a kernel declares does not widen the bounds of the stage that it is to be",
          "[course]") {
    const Folder folder;
    const std::string generous = with(kernel_of(5), ".shows_in = \"causal\"",
                                      ".shows_in = \"causal\", .products = Products::of_8_bits, "
                                      ".takes_e4m3 = true, .rounds_large_scores = true");
    const Compilation c{folder.write("kernel.cu", generous), name(Backend::cpu), folder / ""};
    REQUIRE(compile({c}, sandboxed_compiler_limits(folder / "kernel.cu", folder / "")).front() == "");
    const Stage declared = read_declaration(folder / "kernel.cu"), yours = own_stage(c.library());
    CHECK(declared.rounds_large_scores);
    CHECK(declared.products == Products::of_8_bits);
    CHECK(declared.takes_e4m3);
    CHECK(yours.folder() == "05_yours");
    CHECK(!yours.rounds_large_scores);
    CHECK(yours.products == Products::of_16_bits);
    CHECK(!yours.takes_e4m3);
}

TEST_CASE("course: nvcc makes a library of a kernel, beside the solution of the same number", "[course]") {
    const Folder folder;
    const std::string kernel = folder.write("kernel.cu", kernel_of(5));
    const Compilation c{kernel, name(Backend::gpu), folder / ""};
    const auto build = [&] { return compile({c}, sandboxed_compiler_limits(kernel, folder / "")).front(); };
#    ifndef LADDER_HAS_GPU
    CHECK_THROWS_AS(build(), CannotRun);
    std::puts("SKIPPED: this build has no nvcc");
#    else
    REQUIRE(build() == "");
    CHECK(screen_compiled({c}, Backend::gpu) == std::vector<std::string>{});
    const auto made = fs::last_write_time(c.library());
    CHECK(build() == "");
    CHECK(fs::last_write_time(c.library()) == made);  // kept

    const std::size_t before = stages().size();
    const Stage yours = own_stage(c.library()), solution = named("causal_skip");
    CHECK(stages().size() == before);
    CHECK(yours.folder() == "05_yours");
    CHECK(yours.parent == 4);
    CHECK(yours.head_dims == solution.head_dims);
    REQUIRE(yours.run != nullptr);
    CHECK(yours.run != load_stage(solution, Backend::gpu).run);
    // What a library throws is caught here as what it is.
    Problem problem;
    problem.d = 64;
    if (!has_device(Backend::gpu)) CHECK_THROWS_AS(yours.run(problem), CheckFailed);

    folder.write("kernel.cu", with(kernel_of(5), "const int reach", "const in reach"));
    CHECK(contains(build(), place_of(kernel_of(5), "const int reach", "kernel.cu({}): error")));
    CHECK(!fs::exists(c.library()));
    // What only nvcc's host code calls, the CPU's objects do not show.
    folder.write("kernel.cu", with(kernel_of(5), "    launch(attention<T, d>",
                                   "    if constexpr (backend == Backend::gpu) cudaDeviceReset();\n"
                                   "    launch(attention<T, d>"));
    REQUIRE(build() == "");
    const auto foreign = screen_compiled({c}, Backend::gpu);
    REQUIRE(foreign.size() == 1);
    CHECK(contains(foreign.front(), "it uses cudaDeviceReset"));
#    endif
    CHECK_THROWS_AS(load_library(folder / "nothing.so"), CheckFailed);
    CHECK_THROWS_AS(load_library(kernel), CheckFailed);
}

TEST_CASE("course: a program that sleeps ends with its run, or with the time for all", "[course]") {
    const Folder folder;
    const std::string kernel = folder.write(
        "kernel.cu", "#include <unistd.h>\n" +
                         with(kernel_of(5), "namespace {\n", "namespace {\nconst int slept = pause();\n"));
    const Compilation c{kernel, name(Backend::cpu), folder / ""};
    REQUIRE(compile({c}, compiler_limits()).front() == "");
    const auto said = [&](const Limits& limits, double run_limit_s) -> std::string {
        RemoteDevice device(c.library(), Backend::cpu, limits, run_limit_s);
        try {
            device.stage();
        } catch (const CheckFailed& failure) {
            CHECK(device.hangs() == 1);
            return failure.what();
        }
        return "";
    };
    CHECK(contains(said({}, 0.1), "did not end within 0.1 s"));
    Limits limits;
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    CHECK(contains(said(limits, 60), "the time for all checks is over"));
}

TEST_CASE("course: the sandbox holds", "[course]") {
    const Folder folder;
    Limits limits;
    limits.confine = Sandbox();
    const std::string secret = folder.write("secret", "the answer\n");
    const auto run = [&](const std::string& script, double seconds = 10) {
        LimitedProcess process({"/bin/sh", "-c", script}, limits);
        const std::string how = process.wait(seconds);
        return how + "|" + process.output();
    };
    CHECK(run("echo hello") == "|hello\n");
    CHECK(run("exit 3") == "exit code 3|");
    CHECK(!contains(run("echo $HOME$SECRET"), "/"));
    CHECK(contains(run("kill -9 $PPID; echo alive"), "alive"));
    CHECK(contains(run("sleep 60", 0.2), "did not end"));
    if (contains(describe_sandbox(), "Landlock")) {
        CHECK(!contains(run("cat " + secret), "answer"));
        CHECK(!contains(run("echo x > /tmp/ladder-escape && echo written"), "written"));
        CHECK(!fs::exists("/tmp/ladder-escape"));
    }
    // What a kernel's process may call is a closed list: raw calls, as no kernel can write them.
    if (missing_in_sandbox().empty()) {
        const std::string mine = folder.write("mine", "my work\n"),
                          source = folder.write("calls.cpp", raw_calls);
        REQUIRE(run_process({LADDER_CXX, "-static-libstdc++", "-o", folder / "calls", source}).status == 0);
        fs::permissions(folder / "",
                        fs::perms(0777));  // the file system's own permissions are not what is asked
        fs::permissions(mine, fs::perms(0666));
        Limits strict = limits;
        strict.confine = Sandbox{.calls = Calls::kernel};
        LimitedProcess process({folder / "calls", mine, std::to_string(getpid())}, strict);
        CHECK(process.wait(10) == "");
        CHECK(process.output() == "none\n");
        CHECK(folder.read("mine") == "my work\n");
        const ProcessResult free = run_process({folder / "calls", mine, "0"});
        CHECK(contains(free.out, "fork\n"));  // it would have told
        CHECK(contains(free.out, "truncate\n"));
    }
    // What times a kernel on a GPU names its threads, as CUDA's driver does, and writes its result.
    fs::create_directory(folder / "timed");
    const auto of_compilers = std::exchange(
        limits.confine, Sandbox{.calls = Calls::cuda,
                                .readable = {LADDER_SOURCE_DIR, fs::path(LADDER_LAB).parent_path()},
                                .writable = {folder / "timed"}});
    limits.file_bytes = 1 << 20;
    CHECK(run("echo cuda > /proc/self/comm && echo named") == "|named\n");
    CHECK(contains(run(LADDER_LAB " list --json " + folder / "timed/list.json"), stages().front().folder()));
    CHECK(contains(folder.read("timed/list.json"), stages().front().folder()));
    limits.confine = of_compilers;
    // A deadline is over, however long each may take.
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    CHECK(contains(run("sleep 60", 60), "the time for all is over"));
    limits.deadline = Limits().deadline;
    // Memory and processor time end.
    limits.memory = std::size_t{256} << 20;
    limits.cpu_s = 1;
    CHECK(!run("x=x; while :; do x=$x$x; done", 20).starts_with("|"));
    CHECK(!run("while :; do :; done", 20).starts_with("|"));
}

TEST_CASE("course: hostile submissions get what they deserve", "[course][slow]") {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(LADDER_SOURCE_DIR "/tests/submissions")) {
        INFO(entry.path().filename().string());
        const Submission submission = read_submission(entry.path());
        const Grade grade = graded(submission.kernel, submission.stage);
        CHECK(grade.total() >= submission.least);
        CHECK(grade.total() <= submission.most);
        std::string said;
        for (const Score& s : grade.scores) said += s.output;
        INFO(said);
        CHECK(contains(said, submission.says));
        count += 1;
    }
    CHECK(count > 30);
}

TEST_CASE("course: a folder for submissions is closed to others, and ends with its owner", "[course]") {
    const Folder folder;
    let_sandbox_through(folder / "");
    struct stat info {};
    REQUIRE(stat((folder / "").c_str(), &info) == 0);
    const bool root = geteuid() == 0;
    CHECK((info.st_mode & 0777) == (root ? 0710 : 0700));
    if (root) {
        Limits limits;
        limits.confine = Sandbox{.as_nobody = true, .readable = {folder / ""}};
        const std::string kernel = folder.write("kernel.cu", "the kernel");
        LimitedProcess process({"/bin/sh", "-c", "cat " + kernel + "; ls " + (folder / "")}, limits);
        process.wait(10);
        CHECK(process.output().starts_with("the kernel"));
        CHECK(!contains(process.output(), "kernel.cu\n"));
    }
    // One that was killed is gone with the next that is made, when it has been quiet for a minute.
    const auto is_left = [&](const std::string& name, int minutes) {
        const fs::path left = fs::temp_directory_path() / name;
        fs::create_directories(left / "inside");
        const timespec times[2] = {{time(nullptr) - 60 * minutes, 0}, {time(nullptr) - 60 * minutes, 0}};
        utimensat(AT_FDCWD, left.c_str(), times, 0);
        const TemporaryFolder next("ladder-left-");
        const bool is_there = fs::exists(left);
        fs::remove_all(left);
        return is_there;
    };
    CHECK(!is_left("ladder-left-abcdef", 2));
    CHECK(is_left("ladder-left-abcdef", 0));
    CHECK(is_left("ladder-left-abcdefg", 2));  // of another kind
    const TemporaryFolder mine("ladder-left-");
    const timespec old[2] = {{0, 0}, {0, 0}};
    utimensat(AT_FDCWD, mine.path().c_str(), old, 0);
    { const TemporaryFolder next("ladder-left-"); }
    CHECK(fs::exists(mine.path()));  // somebody's
    // A signal takes them along.
    const std::string temporary = folder / "tmp";
    fs::create_directories(temporary);
    folder.write("kernel.cu", kernel_of(5));
    const std::string script = "TMPDIR=" + temporary + " " + LADDER_LAB + " grade " + (folder / "") +
                               " --stage 5 & while [ -z \"$(ls " + temporary +
                               ")\" ]; do sleep 0.1; done; kill $!; wait $!; sleep 1; ls " + temporary;
    const ProcessResult killed = run_process({"/bin/sh", "-c", script});
    CHECK(killed.out == "");
}

#endif
