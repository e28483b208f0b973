#include "harness/time/nsight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/base/table.h"
#include "stages/errors.h"

namespace ladder {
namespace fs = std::filesystem;
namespace {

// The pipes of a multiprocessor that have a metric of this form.
Metric pipe(const char* name, const char* title) {
    return {fmt::format("{}_pipe_pct", name),
            fmt::format("{} pipe", title),
            Metric::Unit::percent,
            {fmt::format("sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_elapsed", name)}};
}

Metric stall(const std::string& reason) {
    std::string title = reason;
    std::replace(title.begin(), title.end(), '_', ' ');
    return {"stall_" + reason,
            title,
            Metric::Unit::plain,
            {fmt::format("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio", reason)}};
}

// What ncu calls them.
std::vector<std::string> names_of(Asked asked) {
    std::vector<std::string> names;
    for (const auto* list : {&metrics(), &stalls()}) {
        for (const Metric& metric : *list) {
            // These fit one pass. More would have ncu save and restore a stage's whole workspace.
            const bool of_bytes = metric.key == "duration_ns" || metric.key == "hbm_read_bytes" ||
                                  metric.key == "hbm_write_bytes";
            if (asked == Asked::all || of_bytes)
                names.insert(names.end(), metric.names.begin(), metric.names.end());
        }
    }
    return names;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
    return lines;
}

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
}

// The cells of a line of CSV, quoted or not.
std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '"') {
            if (quoted && line.compare(i, 2, "\"\"") == 0)
                cells.back() += line[i++];
            else
                quoted = !quoted;
        } else if (line[i] == ',' && !quoted) {
            cells.emplace_back();
        } else if (line[i] != '\r') {
            cells.back() += line[i];
        }
    }
    return cells;
}

// "1,234.5"; empty for "n/a" and other words.
std::optional<double> number(std::string text) {
    std::erase(text, ',');
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
    return value;
}

// What follows the prefix on the first line that starts with it; empty if none does.
std::string line_after(const std::string& prefix, const std::string& text) {
    for (const std::string& line : lines_of(text)) {
        if (line.starts_with(prefix)) return line.substr(prefix.size());
    }
    return "";
}

// Whether an error names the metric, with its suffix or without.
bool is_refused(const std::string& metric, const std::string& text) {
    const std::string base = metric.substr(0, metric.find('.'));
    for (const std::string& line : lines_of(text)) {
        if (!line.starts_with("==ERROR==") && !line.starts_with("==WARNING==")) continue;
        for (std::size_t at = 0; (at = line.find(base, at)) != line.npos;) {
            at += base.size();
            const char next = at < line.size() ? line[at] : ' ';
            if (next != '_' && std::isalnum(static_cast<unsigned char>(next)) == 0) return true;
        }
    }
    return false;
}

[[noreturn]] void fail(const ProcessResult& result, unsigned limit, const std::string& otherwise) {
    const std::string text = result.out + "\n" + result.err;
    if (result.timed_out) {
        throw CannotRun(fmt::format(
            "Nsight Compute did not finish in {} s; name fewer stages, or a smaller --shape", limit));
    }
    if (text.find("ERR_NVGPUCTRPERM") != text.npos) {
        throw CannotRun(
            "the driver keeps the GPU's counters from this user (ERR_NVGPUCTRPERM). On your own machine load "
            "it with NVreg_RestrictProfilingToAdminUsers=0, or run as root; start a container with "
            "--cap-add=SYS_ADMIN; in a rented one, root or not, only the provider can allow it. lab count "
            "and lab profile --occupancy work without");
    }
    if (const auto said = line_after("lab: ", result.err); !said.empty()) {
        if (result.status == 3 || text.find("error code (3)") != text.npos) throw CannotRun(said);
        throw CheckFailed(said);
    }
    if (const auto error = line_after("==ERROR== ", text); !error.empty())
        throw CannotRun("Nsight Compute: " + error);
    if (result.status != 0)
        throw CannotRun(fmt::format("Nsight Compute ended with exit code {}", result.status));
    throw CheckFailed(otherwise);
}

std::string version_of(const std::string& ncu) {
    const ProcessResult asked = run_process({ncu, "--version"});
    const auto version = line_after("Version ", asked.out);
    return "Nsight Compute " +
           (version.empty() ? "of an unknown version" : version.substr(0, version.find(' ')));
}

// The launches of the profile and Nsight Compute's are the same, in the same order.
void add_metrics(Profile& profile, const std::vector<NsightLaunch>& launches) {
    auto launch = launches.begin();
    for (ProfileRow& row : profile.rows) {
        for (KernelProfile& kernel : row.kernels) {
            kernel.kernel = launch->kernel;
            for (const auto* list : {&metrics(), &stalls()}) {
                for (const Metric& metric : *list) {
                    const auto known =
                        std::find_if(metric.names.begin(), metric.names.end(),
                                     [&](const std::string& name) { return launch->values.contains(name); });
                    if (known != metric.names.end()) kernel.metrics[metric.key] = launch->values.at(*known);
                }
            }
            ++launch;
        }
    }
}

std::size_t launches_in(const Profile& profile) {
    std::size_t count = 0;
    for (const ProfileRow& row : profile.rows) count += row.kernels.size();
    return count;
}

}  // namespace

const std::vector<Metric>& metrics() {
    using Unit = Metric::Unit;
    static const std::string of_shared = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared";
    static const std::vector<Metric> list{
        {"duration_ns", "time", Unit::nanoseconds, {"gpu__time_duration.sum"}},
        {"sm_busy_pct",
         "multiprocessors at work",
         Unit::percent,
         {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed"}},
        {"tensor_pipe_pct",
         "tensor pipe",
         Unit::percent,
         {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
          "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
          "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed"}},
        pipe("xu", "exp2 (XU)"),
        pipe("fma", "FMA"),
        pipe("alu", "ALU"),
        {"issue_pct",
         "issue slots, of multiprocessors at work",
         Unit::percent,
         {"smsp__issue_active.avg.pct_of_peak_sustained_active"}},
        {"instructions", "instructions", Unit::count, {"smsp__inst_executed.sum"}},
        {"warps_active", "warps per SM", Unit::plain, {"sm__warps_active.avg.per_cycle_active"}},
        {"hbm_read_bytes", "HBM read", Unit::bytes, {"dram__bytes_read.sum"}},
        {"hbm_write_bytes", "HBM written", Unit::bytes, {"dram__bytes_write.sum"}},
        {"hbm_pct",
         "HBM bandwidth",
         Unit::percent,
         {"dram__throughput.avg.pct_of_peak_sustained_elapsed",
          "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"}},
        {"l2_bytes", "L2 traffic", Unit::bytes, {"lts__t_bytes.sum"}},
        {"l2_hit_pct", "L2 hits", Unit::percent, {"lts__t_sector_hit_rate.pct"}},
        {"shared_pipe_pct",
         "shared-memory pipe",
         Unit::percent,
         {"l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"}},
        {"shared_wavefronts",
         "shared-memory wavefronts",
         Unit::count,
         {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"}},
        {"bank_conflicts", "bank conflicts", Unit::count, {of_shared + ".sum"}},
        {"bank_conflicts_load", "bank conflicts of loads", Unit::count, {of_shared + "_op_ld.sum"}},
        {"bank_conflicts_store", "bank conflicts of stores", Unit::count, {of_shared + "_op_st.sum"}},
        {"bank_conflicts_ldmatrix",
         "bank conflicts of ldmatrix",
         Unit::count,
         {"smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"}},
    };
    return list;
}

const std::vector<Metric>& stalls() {
    static const std::vector<Metric> list{stall("selected"),
                                          stall("not_selected"),
                                          stall("barrier"),
                                          stall("long_scoreboard"),
                                          stall("short_scoreboard"),
                                          stall("math_pipe_throttle"),
                                          stall("mio_throttle"),
                                          stall("lg_throttle"),
                                          stall("wait"),
                                          stall("no_instruction"),
                                          stall("branch_resolving"),
                                          stall("dispatch_stall"),
                                          stall("imc_miss"),
                                          stall("drain"),
                                          stall("membar"),
                                          stall("sleeping"),
                                          stall("tex_throttle"),
                                          stall("misc"),
                                          stall("gmma")};
    return list;
}

std::vector<NsightLaunch> parse_nsight(const std::string& text) {
    std::vector<NsightLaunch> launches;
    std::vector<std::string> header;
    for (const std::string& line : lines_of(text)) {
        if (line.starts_with("\"ID\",")) header = cells_of(line);
        if (header.empty() || !line.starts_with('"')) continue;
        const auto cells = cells_of(line);
        if (cells.size() != header.size()) {
            throw CheckFailed(fmt::format("Nsight Compute's table has a row of {} cells under {} titles",
                                          cells.size(), header.size()));
        }
        if (cells[0].empty() || cells[0] == "ID") continue;  // units, titles
        NsightLaunch& launch = launches.emplace_back();
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (header[i] == "Kernel Name") launch.kernel = kernel_base_name(cells[i]);
            if (const auto value = number(cells[i])) launch.values[header[i]] = *value;
        }
    }
    return launches;
}

std::string find_ncu() {
    std::vector<fs::path> candidates;
    std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
    for (std::string folder; std::getline(folders, folder, ':');)
        candidates.push_back(fs::path(folder) / "ncu");
    candidates.emplace_back("/usr/local/cuda/bin/ncu");
    std::error_code error;
    std::set<fs::path> versions;
    for (const auto& entry : fs::directory_iterator("/opt/nvidia/nsight-compute", error))
        versions.insert(entry.path() / "ncu");
    candidates.insert(candidates.end(), versions.rbegin(), versions.rend());  // the newest first
    for (const fs::path& candidate : candidates) {
        if (fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0)
            return candidate.string();
    }
    throw CannotRun(
        "there is no ncu (Nsight Compute): it comes with the CUDA toolkit, package "
        "cuda-nsight-compute-<version>, or nsight-compute of Debian and Ubuntu; --occupancy works without "
        "it");
}

Profile profile_with_nsight(const std::string& ncu, const std::vector<std::string>& lab, unsigned limit,
                            Asked asked) {
    const TemporaryFolder folder("lab-profile-");
    const fs::path file = folder.path() / "profile.json";
    std::vector<std::string> names = names_of(asked);
    for (;;) {
        // Profiled is what runs between cudaProfilerStart and cudaProfilerStop.
        const std::vector<std::string> ncu_options = words_of(
            "--csv --page raw --print-units base --clock-control none --profile-from-start off "
            "--target-processes application-only " +
            fmt::format("--cache-control {} --metrics {}", asked == Asked::bytes ? "none" : "all",
                        fmt::join(names, ",")));
        std::vector<std::string> command{"env", "LC_ALL=C", ncu};  // numbers with a decimal point
        for (const auto* options : {&ncu_options, &lab})
            command.insert(command.end(), options->begin(), options->end());
        command.insert(command.end(), {"--occupancy", "--json", file.string()});
        const ProcessResult result = run_process(command, limit);
        const auto launches = parse_nsight(result.out);
        if (launches.empty()) {
            // Some versions pass over a name that they do not know, some refuse them all.
            const std::string text = result.out + "\n" + result.err;
            if (std::erase_if(names, [&](const auto& name) { return is_refused(name, text); }) > 0) continue;
        }
        if (!fs::exists(file)) fail(result, limit, "Nsight Compute ran nothing");
        Profile profile = load_profile(file);
        if (const auto launched = launches_in(profile); launched != launches.size()) {
            fail(result, limit,
                 fmt::format("Nsight Compute reports {}; lab made {}",
                             counted(launches.size(), "launch", "launches"), launched));
        }
        add_metrics(profile, launches);
        profile.profiler = version_of(ncu);
        return profile;
    }
}

}  // namespace ladder
