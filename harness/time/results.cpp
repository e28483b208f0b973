#include "harness/time/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <tuple>

#include "harness/base/built.h"
#include "harness/base/json.h"
#include "harness/base/process.h"
#include "harness/cases/regimes.h"
#include "harness/device/device.h"
#include "harness/features/work.h"
#include "harness/ladder/declaration.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/time/record_json.h"

namespace ladder {
namespace fs = std::filesystem;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ceilings, bf16_tflops, fp16_tflops, copy_gbs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Timing, median_ms, p20_ms, p80_ms, noise, repeats)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PeerRow, regime, shape, dtype, causal, peer, why_not, timing)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Row, regime, shape, dtype, causal, stage, parent, folder, shows_here,
                                   verified, why_not, max_error, timing)

namespace {

/// rows_json(), and what their rates are of: other programs need not count it.
template <class Row>
nlohmann::json timed_rows_json(const std::vector<Row>& rows) {
    auto list = rows_json(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        list[i]["flops"] = rows[i].flops;
        if (rows[i].bytes) list[i]["bytes"] = *rows[i].bytes;
    }
    return list;
}

}  // namespace

void to_json(nlohmann::json& json, const Results& results) {
    json = record_json("timing", results);
    json["ceilings"] = results.ceilings;
    json["rows"] = timed_rows_json(results.rows);
    json["libraries"] = results.libraries;
    json["peers"] = timed_rows_json(results.peers);
}

void from_json(const nlohmann::json& json, Results& results) {
    get_record(json, results);
    json.at("ceilings").get_to(results.ceilings);
    json.at("libraries").get_to(results.libraries);
    get_rows(json.at("rows"), results.rows);
    get_rows(json.at("peers"), results.peers);
    rename_stages(results.rows, results.kernels);
    derive(results);
}

namespace {

std::optional<double> speedup(const std::vector<Row>& rows, int over_stage, const Row& row) {
    const auto before = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
        return other.stage == over_stage && same_problem(other, row) && other.verified && other.timing;
    });
    if (before == rows.end() || before->stage == row.stage) return std::nullopt;
    return before->timing->median_ms / row.timing->median_ms;
}

void derive_rate(Measurement& m, const Ceilings& ceilings, const Stage& stage = {}) {
    m.flops = flops(m.shape, m.causal, m.pass, m.features);
    m.bytes = std::nullopt;
    if (counts_bytes(m.shape)) m.bytes = unavoidable_bytes(m.shape, m.pass, m.features, stage);
    if (!m.timing) return;
    const double ms = m.timing->median_ms;
    m.unit = m.bytes ? "GB/s" : "TFLOP/s";
    m.rate = m.bytes ? *m.bytes / ms * 1e-6 : m.flops / ms * 1e-9;
    const auto gemm = m.dtype == DType::fp16 ? ceilings.fp16_tflops : ceilings.bf16_tflops;
    const auto ceiling = m.bytes ? ceilings.copy_gbs : gemm;
    m.ceiling_share = ceiling ? std::optional(m.rate / (m.features.ranks * *ceiling)) : std::nullopt;
}

}  // namespace

nlohmann::json record_json(const char* kind, const Record& record) {
    return {{"kind", kind},
            {"version", record_version},
            {"date", record.date},
            {"commit", record.commit},
            {"hardware", record.hardware},
            {"kernels", record.kernels}};
}

void get_record(const nlohmann::json& json, Record& record) {
    if (json.value("version", 1) != record_version)
        throw BadUsage("its form is that of another version; record it again with this one");
    json.at("date").get_to(record.date);
    json.at("commit").get_to(record.commit);
    json.at("hardware").get_to(record.hardware);
    json.at("kernels").get_to(record.kernels);
}

namespace {

void shorten(nlohmann::json& value) {
    if (value.is_structured()) {
        for (nlohmann::json& part : value) shorten(part);
    } else if (value.is_number_float()) {
        const double number = value.get<double>();
        if (std::trunc(number) == number && std::abs(number) < 1e18) {
            value = static_cast<std::int64_t>(number);
        } else {
            value = std::stod(fmt::format("{:.8g}", number));
        }
    }
}

}  // namespace

std::string record_text(nlohmann::json record) {
    shorten(record);
    std::string text;
    for (const auto& [key, value] : record.items()) {
        text += fmt::format("{}\"{}\": ", text.empty() ? "{" : ",\n", key);
        if (!value.is_structured() || value.empty()) {
            text += value.dump();
            continue;
        }
        const bool is_object = value.is_object();
        text += is_object ? '{' : '[';
        const char* end = "\n";
        for (const auto& [name, part] : value.items()) {
            text += end + (is_object ? nlohmann::json(name).dump() + ": " : "") + part.dump();
            end = ",\n";
        }
        text += is_object ? "\n}" : "\n]";
    }
    return text + "}\n";
}

bool is_record(const nlohmann::json& json, const char* kind) {
    return json.is_object() && json.value("kind", "") == kind;
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char text[] = "2026-11-21T07:52:00Z";
    std::strftime(text, sizeof text, "%FT%TZ", &utc);
    return text;
}

std::string foreign_architecture(const Hardware& hardware) {
    const auto [device, binary, ptx] =
        std::tuple(hardware.device_arch, hardware.binary_arch, hardware.ptx_arch);
    if (binary == device && ptx == device) return "";
    // The driver compiles PTX for the very device, so only the PTX tells where that code came from.
    const std::string found = binary == device
                                  ? fmt::format("PTX for compute_{} that the driver compiled", ptx)
                                  : fmt::format("machine code for sm_{}", binary);
    return fmt::format(
        "the kernels run from {}, but this GPU is sm_{}: rebuild with -DCMAKE_CUDA_ARCHITECTURES={}", found,
        device, device);
}

void refuse_foreign(const Hardware& hardware, const OutputFile& file) {
    if (const auto why_not = foreign_architecture(hardware); !why_not.empty())
        throw CannotRun(fmt::format("{} is not written: {}", file.path().string(), why_not));
}

bool same_problem(const ProblemLabel& a, const ProblemLabel& b) {
    return a.regime == b.regime && a.shape == b.shape && a.dtype == b.dtype && a.causal == b.causal &&
           a.features == b.features && a.pass == b.pass;
}

std::string long_name(const ProblemLabel& problem) {
    return fmt::format("{}: {} {}{}{}{}", problem.regime, to_string(problem.shape), name(problem.dtype),
                       problem.pass == Pass::backward ? " backward" : "", problem.causal ? " causal" : "",
                       in_words(problem.features));
}

void derive(Results& results) {
    for (Row& row : results.rows) {
        const Stage* known = find_stage(row.stage);
        derive_rate(row, results.ceilings, known != nullptr ? *known : Stage());
        const bool valid = row.timing && row.verified;
        row.over_parent = valid ? speedup(results.rows, row.parent, row) : std::nullopt;
        row.over_baseline = valid ? speedup(results.rows, 0, row) : std::nullopt;
    }
    for (PeerRow& peer : results.peers) {
        derive_rate(peer, results.ceilings);
        peer.stage_speedups.clear();
        for (const Row& row : results.rows) {
            if (peer.timing && row.timing && row.verified && same_problem(peer, row))
                peer.stage_speedups[row.folder] = peer.timing->median_ms / row.timing->median_ms;
        }
    }
}

void save_results(const Results& results, const OutputFile& file) {
    refuse_foreign(results.hardware, file);
    file.write(record_text(results));
}

Results load_results(const fs::path& path) {
    return load_record<Results>(path, "timing", "a timing measurement");
}

fs::path results_folder() {
    return fs::path(built_from) / "docs" / "results";
}

std::string current_commit() {
    // A copy of the sources may have no repository, or one that knows an older state.
    if (const char* exported = std::getenv("LADDER_COMMIT"); exported != nullptr && *exported != '\0')
        return exported;
    if (!fs::exists(fs::path(built_from) / ".git")) return "unknown";
    const auto git = [](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"git", "-C", built_from});
        return run_process(arguments);
    };
    const auto head = git({"rev-parse", "HEAD"});
    if (head.status != 0) return "unknown";
    // A measurement that was just written to docs/ does not change what the next one measures.
    const auto changes = git({"status", "--porcelain", "--", ".", ":!docs"});
    return head.out.substr(0, head.out.find('\n')) + (changes.out.empty() ? "" : "-dirty");
}

std::string kernel_fingerprint(const std::string& stage_folder) {
    const std::string source = kernel_text(stages_folder() / stage_folder / "kernel.cu");
    return code_fingerprint(source.substr(0, source.rfind("LADDER_STAGE(")));
}

std::vector<const Stage*> changed_since(const std::map<std::string, std::string>& kernels) {
    std::vector<const Stage*> changed;
    for (const Stage& stage : stages()) {
        const auto recorded = kernels.find(stage.folder());
        if (recorded != kernels.end() && recorded->second != kernel_fingerprint(stage.folder()))
            changed.push_back(&stage);
    }
    return changed;
}

}  // namespace ladder
