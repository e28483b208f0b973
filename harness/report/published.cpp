#include "harness/report/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <variant>

#include "harness/problem/shape.h"
#include "harness/report/problem_rows.h"
#include "stages/errors.h"

namespace ladder {
namespace {

// Dense bf16 on tensor cores and fp32 outside them, in TFLOP/s: NVIDIA's data sheets. H100 and H200 have the
// same.
constexpr double A100_bf16 = 312, A100_fp32 = 19.5, Hopper_bf16 = 989, Hopper_fp32 = 67;

constexpr const char* FlashAttention = "[FlashAttention](https://arxiv.org/abs/2205.14135)";
constexpr const char* FlashAttention_2 = "[FlashAttention-2](https://arxiv.org/abs/2307.08691)";
constexpr const char* FlashAttention_3 = "[FlashAttention-3](https://arxiv.org/abs/2407.08608)";
constexpr const char* A10G =
    "[an article](https://thuat.dev/2026/06/04/flashattention-v2-causal-block-skipping/), on an A10G";
constexpr const char* Flash_Decoding = "[Flash-Decoding](https://pytorch.org/blog/flash-decoding/)";

struct Range {
    double low, high;
};

// Of numbers that must not be none.
Range range_of(const std::vector<double>& values) {
    if (values.empty()) throw CannotRun("no recording has it");
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return {*low, *high};
}

// How the measured range lies to the published one. Within a tenth is the same: other GPUs, other clocks.
const char* verdict(Range published, Range here) {
    const double low = 0.9 * published.low, high = 1.1 * published.high;
    if (here.high < low) return "less";
    if (here.low > high) return "more";
    if (here.low >= low) return here.high <= high ? "same" : "same to more";
    return here.high <= high ? "less to same" : "less to more";
}

std::string times(double x) {
    return fmt::format("{:.{}f}x", x, x < 10 ? 2 : x < 100 ? 1 : 0);
}

std::string percent(double x) {
    return fmt::format("{:.0f}%", 100 * x);
}

std::string text_of(Range range, const std::function<std::string(double)>& text) {
    const std::string low = text(range.low), high = text(range.high);
    return low == high ? low : fmt::format("{} to {}", low, high);
}

// A stage, or a peer.
using Who = std::variant<int, std::string>;

const Measurement* row_of(const ProblemRows& problem, const Who& who) {
    if (const int* stage = std::get_if<int>(&who)) return problem.row(*stage);
    return problem.peer(std::get<std::string>(who));
}

std::optional<double> ms_of(const ProblemRows& problem, const Who& who) {
    const Measurement* row = row_of(problem, who);
    return row == nullptr || !row->timing ? std::nullopt : std::optional(row->timing->median_ms);
}

// Problems of many query rows, and those of one.
std::vector<ProblemRows> long_queries(const Results& results) {
    std::vector<ProblemRows> problems = by_problem(results);
    std::erase_if(problems, [](const ProblemRows& p) { return counts_bytes(p.first->shape); });
    return problems;
}

std::vector<double> speedups(const std::vector<ProblemRows>& problems, const Who& fast, const Who& slow) {
    std::vector<double> values;
    for (const ProblemRows& problem : problems) {
        const auto fast_ms = ms_of(problem, fast), slow_ms = ms_of(problem, slow);
        if (fast_ms && slow_ms) values.push_back(*slow_ms / *fast_ms);
    }
    return values;
}

// The time without a mask over that with one, of each problem that was timed with both.
std::vector<double> mask_speedups(const std::vector<ProblemRows>& problems, const Who& who) {
    std::vector<double> values;
    for (const ProblemRows& masked : problems) {
        for (const ProblemRows& whole : problems) {
            if (!masked.first->causal || whole.first->causal || masked.first->shape != whole.first->shape)
                continue;
            const auto masked_ms = ms_of(masked, who), whole_ms = ms_of(whole, who);
            if (masked_ms && whole_ms) values.push_back(*whole_ms / *masked_ms);
        }
    }
    return values;
}

std::vector<double> shares_of_peak(const std::vector<ProblemRows>& problems, const Who& who) {
    std::vector<double> values;
    for (const ProblemRows& problem : problems) {
        const Measurement* row = row_of(problem, who);
        if (row != nullptr && row->timing) values.push_back(row->rate / Hopper_bf16);
    }
    return values;
}

double decoding_ms(const Results& results, int stage, int B, int Nk) {
    for (const ProblemRows& problem : by_problem(results)) {
        const Shape& s = problem.first->shape;
        const auto ms = ms_of(problem, stage);
        if (s.Nq == 1 && s.B == B && s.Nk == Nk && ms) return *ms;
    }
    throw CannotRun(fmt::format("stage {:02} was not timed with B = {}, {} keys", stage, B, Nk));
}

const ProfileRow& trained(const Profile& profile, int stage) {
    for (const ProfileRow& row : profile.rows) {
        if (row.stage == stage && row.regime == "train" && !row.kernels.empty()) return row;
    }
    throw CannotRun(fmt::format("stage {:02} was not profiled in train", stage));
}

// Read and written.
double HBM_bytes(const Profile& profile, int stage) {
    double bytes = 0;
    for (const KernelProfile& kernel : trained(profile, stage).kernels)
        bytes += kernel.metrics.at("hbm_read_bytes") + kernel.metrics.at("hbm_write_bytes");
    return bytes;
}

// Warps of one block each that 65,536 registers hold: a thread gets them in eights.
int warps_that_fit(int registers) {
    return 65536 / ((registers + 7) / 8 * 8 * 32);
}

// "160 registers, 12 of 64 warps (19%)"
std::string occupancy(const Profile& profile, int stage) {
    constexpr int most = 64;
    const KernelProfile& kernel = trained(profile, stage).kernels.front();
    return fmt::format("{:02} has {} registers and {} of {} warps ({})", stage, kernel.registers,
                       kernel.warps_per_sm, most, percent(1.0 * kernel.warps_per_sm / most));
}

}  // namespace

Table published_table(const Recordings& recordings) {
    Table table("published", "Claimed and measured",
                {{"what", "what"},
                 {"published", "published"},
                 {"here", "here"},
                 {"verdict", "verdict"},
                 {"why", "why"},
                 {"where", "where it stands"}});
    const char* section = "";  // of the page, which says why
    const auto add = [&](const char* what, const char* published, const std::string& where,
                         const std::string& here, const std::string& verdict) {
        table.add_row({what, published, here, verdict, fmt::format("[why](#{})", section), where});
    };
    // What is a range here, over problems: of ratios, or of shares.
    const auto compare = [&](const char* what, const char* published, Range claimed, const std::string& where,
                             const std::vector<double>& values, const std::string& who, const auto& text) {
        const Range here = range_of(values);
        add(what, published, where, fmt::format("{} ({})", text_of(here, text), who), verdict(claimed, here));
    };
    const auto at = [](const char* source, const char* place) {
        return fmt::format("{}, {}", source, place);
    };

    const std::vector<ProblemRows> problems = long_queries(recordings.all);
    const std::string library = "FlashAttention-2", standard = "unfused";
    const std::string results = at(FlashAttention_2, "section 4"),
                      abstract = at(FlashAttention_2, "abstract");

    section = "over-standard-attention";
    compare("FlashAttention-1 over standard attention", "2 to 4x", {2, 4}, at(FlashAttention_2, "section 1"),
            speedups(problems, 1, 0), "01 over 00", times);
    const char* what = "FlashAttention-2 over standard attention";
    compare(what, "3 to 10x", {3, 10}, results, speedups(problems, library, standard),
            "the library over PyTorch's unfused attention", times);
    compare(what, "3 to 10x", {3, 10}, results, speedups(problems, 5, standard),
            "05 over PyTorch's unfused attention", times);

    section = "flashattention-2-over-flashattention-1";
    compare("FlashAttention-2 over FlashAttention-1", "1.7 to 3.0x", {1.7, 3.0}, results,
            speedups(problems, 5, 1), "05 over 01", times);

    section = "shares-of-the-peak";
    compare("FlashAttention-1, of the peak", "25 to 40%", {0.25, 0.40}, abstract, shares_of_peak(problems, 1),
            "01", percent);
    const std::vector<double> of_library = shares_of_peak(long_queries(recordings.prefill), library);
    compare("FlashAttention-2, of an A100's peak", "50 to 73%", {0.50, 0.73}, abstract, of_library,
            "the library", percent);
    compare("FlashAttention-2, of an H100's peak", "35%", {0.35, 0.35}, at(FlashAttention_3, "abstract"),
            {range_of(of_library).high}, "the library, at its best", percent);

    section = "the-causal-mask";
    what = "time without a causal mask over that with one";
    const std::string causal = at(FlashAttention_2, "section 3.1.1");
    compare(what, "1.7 to 1.8x", {1.7, 1.8}, causal, mask_speedups(problems, 5), "05", times);
    compare(what, "1.7 to 1.8x", {1.7, 1.8}, causal, mask_speedups(problems, library), "the library", times);
    compare("the skip alone, few heads of 64", "1.06 to 1.70x", {1.06, 1.70}, A10G,
            speedups(long_queries(recordings.few_heads), 5, 4), "05 over 04", times);

    section = "decoding";
    const std::string benchmark = at(Flash_Decoding, "micro-benchmark");
    constexpr int k = 1024;
    const auto ms = [&](int stage, int B, int N) { return decoding_ms(recordings.all, stage, B, N); };
    for (const int stage : {6, 17}) {
        compare("split keys over whole ones, B = 1, N = 64k", "2300.6 over 64.4 us: 35.7x",
                {2300.6 / 64.4, 2300.6 / 64.4}, benchmark, {ms(5, 1, 64 * k) / ms(stage, 1, 64 * k)},
                fmt::format("{:02} over 05", stage), times);
    }
    what = "the slowest over the fastest, B x N held";
    compare(what, "77.7 over 56.4 us: 1.38x", {1, 77.7 / 56.4}, benchmark,
            {ms(17, 64, 2 * k) / ms(17, 1, 128 * k), ms(6, 64, 2 * k) / ms(6, 1, 128 * k)},
            "17 and 06, 64 x 2k over 1 x 128k", times);
    compare("N = 128k over 64k, B = 1", "106.6 over 64.4 us: 1.66x", {106.6 / 64.4, 106.6 / 64.4}, benchmark,
            {ms(17, 1, 128 * k) / ms(17, 1, 64 * k), ms(6, 1, 128 * k) / ms(6, 1, 64 * k)}, "17 and 06",
            times);

    section = "memory-and-traffic";
    for (const int stage : {1, 5}) {
        compare("HBM bytes, standard over FlashAttention", "40.3 over 4.4 GB: 9.2x", {40.3 / 4.4, 40.3 / 4.4},
                at(FlashAttention, "figure 2"),
                {HBM_bytes(recordings.profile, 0) / HBM_bytes(recordings.profile, stage)},
                fmt::format("00 over {:02}, train", stage), times);
    }
    const double GiB = std::pow(2, 30), N = 32 * k, head = 6 * N * N / GiB;
    add("memory at N = 32k", "24 GB, and under 1 GB", "an article",
        fmt::format("{:.0f} GiB of S and P for each head (00), 0 (05)", head),
        fmt::format("same, if there are {:.3g} heads", 24 / head));

    section = "the-machine";
    constexpr double A100 = A100_bf16 / A100_fp32, Hopper = Hopper_bf16 / Hopper_fp32;
    add("FLOP/s in tensor cores over those outside", "16x", at(FlashAttention_2, "section 3.1"),
        fmt::format("{} (data sheet)", times(Hopper)), verdict({A100, A100}, {Hopper, Hopper}));
    const double few = warps_that_fit(138) / 48.0, many = warps_that_fit(247) / 48.0;
    add("occupancy with 138 and 247 registers", "29%, 17%", "an article",
        fmt::format("{}, {} of 48 warps, by arithmetic; {}; {}", percent(few), percent(many),
                    occupancy(recordings.profile, 4), occupancy(recordings.profile, 26)),
        verdict({0.17, 0.29}, {many, few}));
    return table;
}

Table moved_table(const Profile& profile, const std::vector<int>& stages) {
    Table table("moved", "What HBM and L2 moved",
                {{"stage", "stage"},
                 {"kernel", "kernel"},
                 {"hbm_read_bytes", "HBM read", Align::right},
                 {"hbm_write_bytes", "HBM written", Align::right},
                 {"l2_bytes", "L2 traffic", Align::right},
                 {"shared_bytes", "shared memory per block", Align::right},
                 {"registers", "registers per thread", Align::right},
                 {"blocks_per_sm", "blocks per SM", Align::right}});
    const auto count = [](int n) { return Cell::count(static_cast<std::uint64_t>(n)); };
    for (const int stage : stages) {
        const ProfileRow& row = trained(profile, stage);
        for (const KernelProfile& kernel : row.kernels) {
            std::vector<Cell> cells{row.folder, kernel.kernel};
            for (const char* metric : {"hbm_read_bytes", "hbm_write_bytes", "l2_bytes"}) {
                const double bytes = kernel.metrics.at(metric);
                cells.emplace_back(Value(bytes), human_bytes(bytes));
            }
            for (const int n : {kernel.shared_bytes, kernel.registers, kernel.blocks_per_sm})
                cells.push_back(count(n));
            table.add_row(std::move(cells));
        }
    }
    return table;
}

}  // namespace ladder
