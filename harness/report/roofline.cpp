#include "harness/report/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/table.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/regimes.h"
#include "harness/problem/shape.h"
#include "harness/report/problem_rows.h"

namespace ladder {
namespace {

// What the stage's kernels read from HBM and wrote to it, all of them together; 0 if that was not counted.
double hbm_bytes(const Profile& profile, const Row& row) {
    double bytes = 0;
    for (const ProfileRow& profiled : profile.rows) {
        if (profiled.folder != row.folder || !same_problem(profiled, row)) continue;
        for (const KernelProfile& kernel : profiled.kernels) {
            for (const char* key : {"hbm_read_bytes", "hbm_write_bytes"}) {
                const auto found = kernel.metrics.find(key);
                if (found == kernel.metrics.end()) return 0;
                bytes += found->second;
            }
        }
    }
    return bytes;
}

std::string to_line(const Roofline& roofline) {
    nlohmann::ordered_json line{{"name", "roofline"},
                                {"title", "Roofline"},
                                {"machine", roofline.machine},
                                {"tflops", roofline.tflops},
                                {"gbs", roofline.gbs}};
    for (const Roofline::Point& point : roofline.points) {
        line["points"].push_back({{"stage", point.folder},
                                  {"problem", point.problem},
                                  {"intensity", point.intensity},
                                  {"tflops", point.tflops}});
    }
    return line.dump();
}

std::string to_words(const Roofline& roofline) {
    std::string words = fmt::format("Roofline of {}: {:.0f} GB/s of a copy, {:.0f} TFLOP/s of a GEMM.",
                                    roofline.machine, roofline.gbs, roofline.tflops);
    for (const Roofline::Point& point : roofline.points) {
        words += fmt::format(" {} ({}): {:.0f} operations per byte, {:.{}f} TFLOP/s;", in_words(point.folder),
                             point.problem, point.intensity, point.tflops, point.tflops < 10 ? 1 : 0);
    }
    words.back() = '.';
    return words;
}

}  // namespace

std::optional<Roofline> roofline(const Results& results, const Profile& profile) {
    if (!results.ceilings.bf16_tflops || !results.ceilings.copy_gbs) return std::nullopt;
    Roofline roofline{.machine = results.hardware.gpu,
                      .tflops = *results.ceilings.bf16_tflops,
                      .gbs = *results.ceilings.copy_gbs,
                      .points = {}};
    const auto problems = by_problem(results);
    std::vector<const ProblemRows*> shown{telling_problem(problems, "train"),
                                          telling_problem(problems, "decode")};
    for (const ProblemRows& problem : problems) {  // of the gradients, those that were profiled
        if (is_of_gradients(problem.first->regime)) shown.push_back(&problem);
    }
    for (const ProblemRows* problem : shown) {
        if (problem == nullptr) continue;
        for (const Row* row : problem->rows) {
            const Stage* stage = find_stage(row->stage);
            const bool in_its_field =
                stage != nullptr && is_decoding(stage->shows_in) == counts_bytes(row->shape);
            const bool is_shown = stage != nullptr && (is_core(*stage) || is_last_of_part(*stage));
            const double bytes = hbm_bytes(profile, *row);
            if (!is_shown || !row->timing || bytes == 0) continue;
            if (!in_its_field && !(is_core(*stage) && counts_bytes(row->shape))) continue;
            const double operations = flops(row->shape, row->causal, row->pass);
            roofline.points.push_back({row->folder, problem->short_name(), operations / bytes,
                                       operations / row->timing->median_ms * 1e-9});
        }
    }
    return roofline.points.empty() ? std::nullopt : std::optional(roofline);
}

Picture picture_of(const Roofline& roofline) {
    return {.name = "roofline", .data = to_line(roofline), .words = to_words(roofline), .width = 480};
}

}  // namespace ladder
