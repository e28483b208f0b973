#include "harness/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <list>
#include <optional>
#include <stdexcept>

#include "harness/device_problem.h"
#include "harness/shape.h"

namespace ladder {
namespace {

Regime::Problem self_attention(int B, int H, int N, bool causal) {
    return {{.B = B, .H = H, .Hkv = H, .Nq = N, .Nk = N, .d = 128}, causal};
}

Regime::Problem decode(int Nk) {
    return {{.B = 1, .H = 32, .Hkv = 8, .Nq = 1, .Nk = Nk, .d = 128}, false};
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

template <class T>
std::vector<T> downloaded(Device& device, const Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    device.download(values.data(), buffer.data(), buffer.bytes());
    return values;
}

/// One stage's run at one case: its own outputs and workspace, its times, and its row of the results.
class Contestant {
  public:
    /// Allocates and warms up. Throws CannotRun or CheckFailed.
    Contestant(Device& device, const Stage& stage, const Case& c, const DeviceInputs& inputs, Row& row)
        : row_(row), device_(device), stage_(stage), case_(c) {
        run_.emplace(device, stage, c, inputs);
        for (const auto* output : {&run_->O, &run_->L}) {
            const std::vector<unsigned char> nan(output->bytes(), 0xff);
            device.upload(output->data(), nan.data(), nan.size());
        }

        for (int i = 0; i < 2; ++i) device.run(stage, run_->problem);
    }

    bool wants_more(const TimingOptions& options) const {
        const int repeats = static_cast<int>(times_.size());
        if (repeats < 3) return true;
        if (repeats >= options.max_repeats || spent_ms_ >= options.max_seconds * 1e3) return false;
        return repeats < options.min_repeats || summarize(times_).noise > options.target_noise;
    }

    void time_once(Stopwatch& stopwatch) {
        times_.push_back(stopwatch.time(stage_, run_->problem));
        spent_ms_ += times_.back();
    }

    /// Fetches what the last timed call wrote, and gives the device's memory back.
    void finish() {
        row_.timing = summarize(times_);
        outputs_ = {downloaded<std::uint16_t>(device_, run_->O), downloaded<float>(device_, run_->L)};
        run_.reset();
    }

    /// Runs once more, between canaries, and compares bit for bit; then has another thread compare with the
    /// reference, since that takes longer than the kernel.
    void start_verification(const Inputs& inputs, int sampled_rows) {
        const auto same = [](const auto& a, const auto& b) {
            return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
        };
        try {
            const Outputs again = run_stage(device_, stage_, case_, inputs);
            if (!same(again.O, outputs_.O) || !same(again.L, outputs_.L)) {
                throw CheckFailed("two runs on the same inputs differ");
            }
        } catch (const std::runtime_error& failure) {
            row_.why_not = first_line(failure.what());
            return;
        }
        verdict_ = std::async(std::launch::async, [this, &inputs, sampled_rows] {
            return judge(case_, inputs, outputs_, sampled_rows);
        });
    }

    void finish_verification() {
        if (!verdict_.valid()) return;
        const Verdict verdict = verdict_.get();
        row_.verified = verdict.passed;
        if (verdict.passed) row_.max_error = verdict.max_error;
        if (!verdict.passed) row_.why_not = first_line(verdict.report);
    }

  private:
    Row& row_;
    Device& device_;
    const Stage& stage_;
    const Case& case_;
    std::optional<DeviceProblem> run_;
    std::vector<double> times_;
    double spent_ms_ = 0;
    Outputs outputs_;
    std::future<Verdict> verdict_;  // last, so that its thread ends before what it reads is gone
};

Row empty_row(const TimedCase& timed, const Stage& stage) {
    Row row;
    row.regime = timed.regime;
    row.shape = timed.problem.shape;
    row.dtype = timed.problem.dtype;
    row.causal = timed.problem.causal;
    row.stage = stage.number;
    row.parent = stage.parent;
    row.folder = stage.folder();
    row.shows_here = timed.regime == stage.shows_in;
    return row;
}

/// Times the stages on one case and fills their rows, which come in the order of the stages. A stage that
/// crashes ends the measurement with CheckFailed: no later call on that device would work.
void time_case(Device& device, Stopwatch& stopwatch, const std::vector<Stage>& stages, const Case& c,
               const TimingOptions& options, Row* rows, const std::function<void(const char*)>& on_phase) {
    on_phase("time");
    Inputs host;  // outlives the contestants, whose verification reads it
    std::optional<DeviceInputs> inputs;
    std::list<Contestant> contestants;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        if (!stages[i].has_head_dim(c.shape.d)) {
            rows[i].why_not = fmt::format("has no kernel for d = {}", c.shape.d);
            continue;
        }
        try {
            if (!inputs) inputs.emplace(device, stopwatch, c);
            contestants.emplace_back(device, stages[i], c, *inputs, rows[i]);
        } catch (const CannotRun& reason) {
            rows[i].why_not = first_line(reason.what());
        }
    }
    if (contestants.empty()) return;

    for (bool again = true; again;) {
        again = false;
        for (Contestant& contestant : contestants) {
            if (!contestant.wants_more(options)) continue;
            contestant.time_once(stopwatch);
            again = true;
        }
    }

    on_phase("verify");
    for (Contestant& contestant : contestants) contestant.finish();
    host = {downloaded<std::uint16_t>(device, inputs->Q), downloaded<std::uint16_t>(device, inputs->K),
            downloaded<std::uint16_t>(device, inputs->V)};
    inputs.reset();  // run_stage brings its own
    for (Contestant& contestant : contestants) contestant.start_verification(host, options.sampled_rows);
    for (Contestant& contestant : contestants) contestant.finish_verification();
}

}  // namespace

const std::vector<Regime>& regimes() {
    static const std::vector<Regime> list{
        {"train", "16k tokens in sequences of 2k, 16 heads of 128", {self_attention(8, 16, 2048, false)}},
        {"long", "one sequence of 16k, 4 heads of 128", {self_attention(1, 4, 16384, false)}},
        {"causal",
         "train and long under a causal mask",
         {self_attention(8, 16, 2048, true), self_attention(1, 4, 16384, true)}},
        {"decode",
         "one query row, 32 heads of 128 over 8, 8k to 256k keys",
         {decode(8 << 10), decode(16 << 10), decode(32 << 10), decode(64 << 10), decode(128 << 10),
          decode(256 << 10)}},
    };
    return list;
}

std::vector<TimedCase> timed_cases(DType dtype, const std::string& regime) {
    std::vector<TimedCase> cases;
    for (const Regime& candidate : regimes()) {
        if (!regime.empty() && regime != candidate.name) continue;
        for (const auto& [shape, causal] : candidate.problems) {
            TimedCase& timed = cases.emplace_back();
            timed.regime = candidate.name;
            timed.problem.shape = shape;
            timed.problem.causal = causal;
            timed.problem.dtype = dtype;
        }
    }
    if (cases.empty()) {
        std::string names;
        for (const Regime& known : regimes()) names += (names.empty() ? "" : ", ") + std::string(known.name);
        throw BadUsage(fmt::format("unknown regime '{}': there are {}", regime, names));
    }
    return cases;
}

double percentile(const std::vector<double>& sorted, double p) {
    const double position = p * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const auto above = std::min(below + 1, sorted.size() - 1);
    return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

Timing summarize(std::vector<double> milliseconds) {
    if (milliseconds.empty()) throw std::invalid_argument("no times to summarize");
    std::sort(milliseconds.begin(), milliseconds.end());
    const auto at = [&](double p) { return percentile(milliseconds, p); };
    Timing timing{at(0.5), at(0.2), at(0.8), 0, static_cast<int>(milliseconds.size())};
    // A normal distribution has p80 - p20 = 1.683 sigma, and its median a standard error of 1.253 sigma /
    // sqrt(n).
    const double sigma = (timing.p80_ms - timing.p20_ms) / 1.683;
    timing.noise = 1.253 * sigma / std::sqrt(timing.repeats) / timing.median_ms;
    return timing;
}

Results time_stages(Device& device, const std::vector<Stage>& stages, const TimingOptions& options,
                    const OnStep& on_step) {
    auto* stopwatch = dynamic_cast<Stopwatch*>(&device);
    if (stopwatch == nullptr)
        throw CannotRun(device.description() + " has no clock that says anything of a GPU");

    int step = 0;
    const int steps = 1 + 2 * static_cast<int>(options.cases.size());
    const auto next_step = [&](const std::string& what) {
        if (on_step) on_step(what, step, steps);
        ++step;
    };

    Results results;
    results.date = utc_now();
    results.commit = current_commit();
    results.hardware = stopwatch->hardware();
    next_step("measure the machine's ceilings");
    results.ceilings = stopwatch->ceilings();
    for (const Stage& stage : stages) results.kernels[stage.folder()] = kernel_fingerprint(stage.folder());
    for (const TimedCase& timed : options.cases) {
        for (const Stage& stage : stages) results.rows.push_back(empty_row(timed, stage));
    }
    for (std::size_t i = 0; i < options.cases.size(); ++i) {
        const TimedCase& timed = options.cases[i];
        const auto on_phase = [&](const char* phase) {
            next_step(fmt::format("{} {}: {}", phase, timed.regime, timed.problem.description()));
        };
        time_case(device, *stopwatch, stages, timed.problem, options, &results.rows[i * stages.size()],
                  on_phase);
    }
    derive(results);
    return results;
}

}  // namespace ladder
