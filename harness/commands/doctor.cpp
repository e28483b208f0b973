#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "harness/base/built.h"
#include "harness/base/process.h"
#include "harness/base/progress.h"
#include "harness/base/terminal.h"
#include "harness/commands/commands.h"
#include "harness/commands/options.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/verdict.h"

namespace ladder {
namespace {

struct DoctorOptions {
    explicit DoctorOptions(Command& command) : stages(command, "the algorithm's by default") {}
    StageOptions stages;
};

struct Tool {
    const char* name;
    std::vector<std::string> version;       // command that prints it
    std::vector<std::string> alternatives;  // tried when that is not there
    std::string line_with;                  // the line of its output that tells
    const char* purpose;
    const char* package;
};

const std::vector<Tool>& tools() {
    static const std::vector<Tool> list{
        {"g++", {"g++", "--version"}, {}, "g++", "builds the CPU side", "g++"},
        {"clang++", {"clang++", "--version"}, {}, "clang", "lab test builds with it too", "clang"},
        {"cmake", {"cmake", "--version"}, {}, "cmake", "configures the build", "cmake"},
        {"ninja", {"ninja", "--version"}, {}, "", "builds faster than make", "ninja-build"},
        {"nvcc",
         {"nvcc", "--version"},
         {"/usr/local/cuda/bin/nvcc", "--version"},
         "release",
         "builds the GPU back-end; 12.0 or newer",
         "the CUDA toolkit, developer.nvidia.com/cuda-downloads"},
        {"ncu",
         {"ncu", "--version"},
         {"/usr/local/cuda/bin/ncu", "--version"},
         "Version",
         "lab profile reads the GPU's counters with it",
         "the CUDA toolkit, package cuda-nsight-compute-<version>"},
        {"nvidia-smi",
         {"nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"},
         {},
         "",
         "the GPU and its driver",
         "an NVIDIA GPU and its driver"},
        {"clang-format",
         {"clang-format", "--version"},
         {},
         "version",
         "lab test checks the formatting",
         "clang-format"},
        {"shellcheck",
         {"shellcheck", "--version"},
         {},
         "version:",
         "lab test checks the shell scripts",
         "shellcheck"},
    };
    return list;
}

// The telling line of what the command prints; empty if it is not there.
std::string version_line(const std::vector<std::string>& command, const std::string& line_with) {
    const ProcessResult result = run_process(command);
    if (result.status != 0) return "";
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
        if (line.find(line_with) != line.npos) return line;
    }
    return "";
}

// "13.0.88" of "release 13.0, V13.0.88": a person needs the last number with a dot in it. All of a line that
// has none, or that names a GPU.
Cell shown(const Tool& tool, const std::string& found) {
    if (found.empty()) return {Value(), "no", Tone::faint};
    std::string number;
    std::istringstream words(found);
    for (std::string word; words >> word;) {
        const std::size_t digit = word.find_first_of("0123456789");
        const std::size_t end = word.find_first_not_of("0123456789.", std::min(digit, word.size()));
        if (digit <= 1 && end == word.npos && word.find('.') != word.npos) number = word.substr(digit);
    }
    const bool whole = number.empty() || tool.name == std::string("nvidia-smi");
    return {Value(found), whole ? found : number, Tone::good};
}

Table tool_table() {
    Table table("tools", "Tools",
                {{"tool", "tool"}, {"found", "found"}, {"purpose", "what for"}, {"install", "install"}});
    for (const Tool& tool : tools()) {
        std::string found = version_line(tool.version, tool.line_with);
        if (found.empty() && !tool.alternatives.empty())
            found = version_line(tool.alternatives, tool.line_with);
        table.add_row(
            {tool.name, shown(tool, found), tool.purpose, found.empty() ? Cell(tool.package) : Cell()});
    }
    return table;
}

// Runs the stage on a tiny problem for each head dimension and type; what went wrong, by case.
std::map<std::string, std::string> failures_of(Device& device, const Stage& stage, int& tried) {
    std::map<std::string, std::string> failures;
    for (const int d : stage.head_dims) {
        for (const DType dtype : {DType::fp16, DType::bf16}) {
            ++tried;
            Case c;
            c.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 16, .Nk = 16, .d = d};
            c.dtype = dtype;
            c.pass = stage.pass;
            const std::string label = fmt::format("d={} {}", d, name(dtype));
            try {
                const Inputs inputs = make_inputs(c);
                const Verdict verdict = judge(stage, c, inputs, run_stage(device, stage, c, inputs));
                if (!verdict.passed)
                    failures[label] = "computes the wrong answer; see " + lab_command({"verify"});
            } catch (const std::exception& error) {
                failures[label] = error.what();
            }
        }
    }
    return failures;
}

Printout run(const DoctorOptions& options) {
    auto selected = options.stages.selected();
    if (options.stages.words.empty()) std::erase_if(selected, [](const Stage* s) { return !is_core(*s); });
    constexpr std::array backends{Backend::cpu, Backend::checked, Backend::gpu};
    Printout printout;
    std::map<Backend, std::unique_ptr<Device>> devices;
    Table where(
        "backends", "Back-ends",
        {{"backend", "back-end"}, {"device", "device"}, {"missing", "missing"}, {"install", "install"}});
    for (const Backend backend : backends) {
        std::string why_not;
        if (has_device(backend, &why_not)) {
            devices[backend] = open_device(backend);
            where.add_row({name(backend), Cell(devices[backend]->description(), Tone::good)});
        } else {
            const char* package = backend == Backend::gpu          ? "the CUDA toolkit, a GPU and its driver"
                                  : devices.contains(Backend::cpu) ? ""
                                                                   : "libboost-context-dev";
            where.add_row({name(backend), Cell(Value(), "no", Tone::faint), why_not, package});
        }
    }

    Table table("stages",
                fmt::format("Stages that run here (all of them: {})", lab_command({"doctor", "all"})),
                {{"stage", "stage"}, {"cpu", "cpu"}, {"checked", "checked"}, {"gpu", "gpu"}});
    std::map<std::string, std::set<std::string>> problems;  // by reason, so that one cause takes one line
    const ProgressLine progress;
    int done = 0;
    for (const auto& [backend, device] : devices)
        compile_stages(runnable(selected, *device), backend, std::cref(progress));
    for (const Stage* stage : selected) {
        progress("run " + stage->folder(), done++, static_cast<int>(selected.size()));
        std::vector<Cell> row{stage->folder()};
        for (const Backend backend : backends) {
            if (!devices.contains(backend)) {
                row.push_back({Value(false), "no", Tone::faint});
                continue;
            }
            int tried = 0;
            const auto failures = failures_of(*devices[backend], *stage, tried);
            for (const auto& [label, why] : failures) {
                problems[why].insert(fmt::format("{} on {}, {}", stage->folder(), name(backend), label));
            }
            const int good = tried - static_cast<int>(failures.size());
            row.push_back(failures.empty()
                              ? Cell(Value(true), "yes", Tone::good)
                              : Cell(Value(good > 0), fmt::format("{} of {}", good, tried), Tone::bad));
        }
        table.add_row(std::move(row));
    }
    printout.facts = {{"sources", built_from}, {"compiled by", LADDER_COMPILER}};
    printout.tables = {tool_table(), std::move(where), std::move(table)};
    for (const auto& [why, where_seen] : problems) {
        printout.notes.push_back(fmt::format("{}: {}", fmt::join(where_seen, "; "), why));
    }
    return printout;
}

}  // namespace

void add_doctor(CommandLine& lab) {
    add_command<DoctorOptions>(
        lab, "doctor", "Show compilers, toolkit, GPU and driver, what is missing, and which stages can run",
        run);
}

}  // namespace ladder
