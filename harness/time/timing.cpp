#include "harness/time/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>

#include "harness/device/device_problem.h"
#include "harness/features/cache.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/problem/shape.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/parts.h"
#include "harness/verify/report.h"
#include "harness/verify/verdict.h"

namespace ladder {
namespace {

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

template <class T>
std::vector<T> downloaded(Device& device, const Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    if (!values.empty()) device.download(values.data(), buffer.data(), buffer.bytes());
    return values;
}

Inputs downloaded_inputs(Device& device, const DeviceInputs& from) {
    return {downloaded<std::uint16_t>(device, from.Q), downloaded<std::uint16_t>(device, from.K),
            downloaded<std::uint16_t>(device, from.V), downloaded<std::uint16_t>(device, from.dO),
            downloaded<std::uint16_t>(device, from.O), downloaded<float>(device, from.L)};
}

/// The part of a problem that is compared with the reference: all of it, or some key/value heads with their
/// query heads, spread evenly. Its batch is of those heads; timed tensors are (B, H, N, d), so each lies in
/// one piece, but K and V in pages.
class Sample {
  public:
    /// `on_host`: the same inputs, if they have been fetched.
    Sample(Device& device, const Case& c, const DeviceInputs& from, std::optional<Inputs> on_host,
           const TimingOptions& options)
        : problem(c), all_heads_(c.shape.B * c.shape.Hkv) {
        Shape& s = problem.shape;
        const std::size_t fit = options.max_compared / (std::size_t(s.Nk) * s.d);
        const int heads = static_cast<int>(std::clamp<std::size_t>(fit, 2, std::max(all_heads_, 2)));
        s = {.B = std::min(heads, all_heads_), .H = s.H / s.Hkv, .Hkv = 1, .Nq = s.Nq, .Nk = s.Nk, .d = s.d};
        for_each_piece([&](std::size_t, std::size_t head) {
            const int whole = static_cast<int>(head);
            problem.sampled.emplace_back(whole / c.shape.Hkv, whole % c.shape.Hkv * s.H);
        });
        problem.features.lengths.clear();
        problem.features.page_size = 0;
        if (const std::vector<int> all = lengths_of(c); !all.empty()) {
            for_each_piece([&](std::size_t to, std::size_t head) {
                problem.features.lengths += (to > 0 ? "," : "") + std::to_string(all[head / c.shape.Hkv]);
            });
        }
        if (is_all() && on_host) {
            inputs = *std::move(on_host);
            return;
        }
        const auto keys = [&](const Buffer& all, Tensor tensor) {
            return c.features.page_size == 0 ? part_of<std::uint16_t>(device, all)
                                             : gathered(device, c, all, placement(c, tensor));
        };
        inputs = {part_of<std::uint16_t>(device, from.Q),
                  keys(from.K, Tensor::K),
                  keys(from.V, Tensor::V),
                  part_of<std::uint16_t>(device, from.dO),
                  part_of<std::uint16_t>(device, from.O),
                  part_of<float>(device, from.L)};
    }

    bool is_all() const { return problem.shape.B == all_heads_; }

    Outputs part_of(const Outputs& all) const {
        return {part_of(all.O), part_of(all.L), part_of(all.dQ), part_of(all.dK), part_of(all.dV)};
    }

    Case problem;
    Inputs inputs;

  private:
    /// Calls copy(which piece of the part, which of the whole) for each head.
    template <class F>
    void for_each_piece(F copy) const {
        const int heads = problem.shape.B;
        for (int i = 0; i < heads; ++i)
            copy(std::size_t(i), heads == 1 ? 0 : std::size_t(i) * (all_heads_ - 1) / (heads - 1));
    }

    template <class T>
    std::vector<T> part_of(Device& device, const Buffer& all) const {
        if (is_all() || all.bytes() == 0) return downloaded<T>(device, all);
        const std::size_t bytes = all.bytes() / all_heads_;
        std::vector<T> part(problem.shape.B * bytes / sizeof(T));
        for_each_piece([&](std::size_t to, std::size_t from) {
            device.download(part.data() + to * bytes / sizeof(T),
                            static_cast<const std::byte*>(all.data()) + from * bytes, bytes);
        });
        return part;
    }

    /// K or V of the part, from a pool of pages. Where a request has no keys it is 0.
    std::vector<std::uint16_t> gathered(Device& device, const Case& whole, const Buffer& all,
                                        const Placement& pool) const {
        const Shape& s = problem.shape;
        const std::vector<int> table = block_table(whole);
        const int columns = static_cast<int>(table.size()) / whole.shape.B;
        std::vector<std::uint16_t> part(std::size_t(s.B) * s.Nk * s.d), page(pool.batch);
        for_each_piece([&](std::size_t to, std::size_t from) {
            const std::size_t b = from / pool.heads, h = from % pool.heads;
            for (int j = 0; j < s.Nk; ++j) {
                const int slot = table[b * columns + j / pool.N];
                if (slot < 0) break;
                if (j % pool.N == 0) {
                    device.download(page.data(),
                                    static_cast<const std::uint16_t*>(all.data()) + slot * pool.batch,
                                    page.size() * sizeof(page[0]));
                }
                std::copy_n(page.begin() + static_cast<std::ptrdiff_t>(h * pool.head + j % pool.N * pool.row),
                            s.d, part.begin() + static_cast<std::ptrdiff_t>((to * s.Nk + j) * s.d));
            }
        });
        return part;
    }

    template <class T>
    std::vector<T> part_of(const std::vector<T>& all) const {
        const std::size_t count = all.size() / all_heads_;
        std::vector<T> part(problem.shape.B * count);
        for_each_piece([&](std::size_t to, std::size_t from) {
            std::copy_n(all.begin() + from * count, count, part.begin() + to * count);
        });
        return part;
    }

    int all_heads_;  ///< B * Hkv
};

/// What is timed in the rounds of one case, a stage or a peer.
class Racer {
  public:
    Racer(Measurement& row, std::function<double()> time_once)
        : row_(row), time_once_(std::move(time_once)) {}

    bool wants_more(const TimingOptions& options) const {
        const int repeats = static_cast<int>(times_.size());
        if (repeats < 3) return true;
        if (repeats >= options.max_repeats || spent_ms_ >= options.max_seconds * 1e3) return false;
        return repeats < options.min_repeats || summarize(times_).noise > options.target_noise;
    }

    void run() {
        times_.push_back(time_once_());
        spent_ms_ += times_.back();
    }

    void finish() { row_.timing = summarize(times_); }

  private:
    Measurement& row_;
    std::function<double()> time_once_;
    std::vector<double> times_;
    double spent_ms_ = 0;
};

/// One stage's run at one case: its own outputs and workspace, and its row of the results.
class Contestant {
  public:
    /// Allocates and warms up. `on_host`: the inputs, if they are to be divided among ranks. Throws CannotRun
    /// or CheckFailed.
    Contestant(Device& device, const Stage& stage, const Case& c, const std::list<DeviceInputs>& whole,
               const std::optional<Inputs>& on_host, Row& row)
        : row_(row), device_(device), stage_(stage), case_(c) {
        require_taken(stage, c);
        if (on_host) of_ranks_ = inputs_of_ranks(device, stage, c, *on_host);
        for (const DeviceInputs& inputs : inputs_of(whole)) {
            const auto rank = static_cast<int>(runs_.size());
            const DeviceProblem& run =
                runs_.emplace_back(device.of_rank(rank, c.features.ranks), stage, part_case(stage, c, rank),
                                   inputs, c.features.ranks);
            problems_.push_back(run.problem);
            for (const auto* output : {&run.O, &run.L, &run.dQ, &run.dK, &run.dV, &run.dsinks}) {
                if (output->bytes() == 0) continue;
                const std::vector<unsigned char> nan(output->bytes(), 0xff);
                device.upload(output->data(), nan.data(), nan.size());
            }
        }
        for (int i = 0; i < 2; ++i) run_parts(device, stage, problems_, c.shape);
    }

    Products products() const { return stage_.products; }

    double time(Stopwatch& stopwatch) {
        return case_.features.ranks == 1 ? stopwatch.time(stage_, problems_.front())
                                         : stopwatch.time_ranks(stage_, problems_, case_.shape);
    }

    /// Fetches what the last timed call wrote, and gives the device's memory back.
    void fetch() {
        int rank = 0;
        for (const DeviceProblem& run : runs_) {
            add_part(stage_, case_, rank++,
                     {downloaded<std::uint16_t>(device_, run.O), downloaded<float>(device_, run.L),
                      downloaded<std::uint16_t>(device_, run.dQ), downloaded<std::uint16_t>(device_, run.dK),
                      downloaded<std::uint16_t>(device_, run.dV), downloaded<float>(device_, run.dsinks)},
                     outputs_);
        }
        runs_.clear();
    }

    /// Runs once more, between canaries, and compares bit for bit if that stage's runs agree.
    void repeat(const std::list<DeviceInputs>& whole) {
        try {
            const Outputs again = run_guarded(device_, stage_, case_, inputs_of(whole));
            if (!stage_.repeats_exactly) return;
            for (const OutputTensor& tensor : output_tensors(case_)) {
                const auto first = tensor.bytes(outputs_), second = tensor.bytes(again);
                if (std::memcmp(first.data(), second.data(), first.size()) != 0)
                    throw CheckFailed("two runs on the same inputs differ");
            }
        } catch (const std::runtime_error& failure) {
            row_.why_not = first_line(failure.what());
        }
    }

    /// Has another thread compare with what is expected, since that takes longer than the kernel.
    void start_verification(const Sample& sample, const Expected& expected) {
        if (!row_.why_not.empty()) return;
        verdict_ = std::async(std::launch::async, [this, &sample, &expected]() -> Verdict {
            if (sample.is_all()) return judge(sample.problem, expected, outputs_, stage_.rounds_large_scores);
            if (const auto report = report_impossible(case_, outputs_); !report.empty())
                return {.report = report};
            return judge(sample.problem, expected, sample.part_of(outputs_), stage_.rounds_large_scores);
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
    const std::list<DeviceInputs>& inputs_of(const std::list<DeviceInputs>& whole) const {
        return case_.features.ranks == 1 ? whole : of_ranks_;
    }

    Row& row_;
    Device& device_;
    const Stage& stage_;
    const Case& case_;
    std::list<DeviceInputs> of_ranks_;  ///< if there are several
    std::list<DeviceProblem> runs_;     ///< of each rank
    std::vector<Problem> problems_;
    Outputs outputs_;
    std::future<Verdict> verdict_;  // last, so that its thread ends before what it reads is gone
};

Row empty_row(const TimedCase& timed, const Stage& stage) {
    Row row;
    static_cast<ProblemLabel&>(row) = label_of(timed);
    static_cast<StageLabel&>(row) = label_of(stage, timed);
    return row;
}

PeerRow empty_row(const TimedCase& timed, const std::string& peer) {
    PeerRow row;
    static_cast<ProblemLabel&>(row) = label_of(timed);
    row.peer = peer;
    return row;
}

/// What a measurement runs on.
struct Machine {
    Device& device;
    Stopwatch& stopwatch;
    Peers* peers;  ///< null for none
};

/// Times the stages and peers on one case and fills their rows, which come in the same order. A stage that
/// crashes ends the measurement with CheckFailed: no later call on that device would work.
void time_case(const Machine& machine, const std::vector<Stage>& stages, const Case& c,
               const TimingOptions& options, std::span<Row> rows, std::span<PeerRow> peer_rows,
               const std::function<void(const char*)>& on_phase) {
    const auto& [device, stopwatch, peers] = machine;
    on_phase("time");
    std::list<DeviceInputs> inputs;  // of one
    std::optional<Inputs> on_host;   // if there are several ranks
    std::optional<Sample> sample;    // these outlive the contestants, whose verification reads them
    std::map<Products, Expected> expected;
    std::list<Contestant> contestants;
    std::vector<Racer> racers;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        if (!stages[i].has_head_dim(c.shape.d)) {
            rows[i].why_not = fmt::format("has no kernel for d = {}", c.shape.d);
            continue;
        }
        try {
            if (inputs.empty()) {
                inputs.emplace_back(device, stopwatch, c);
                if (c.features.ranks > 1) on_host = downloaded_inputs(device, inputs.front());
            }
            Contestant& contestant = contestants.emplace_back(device, stages[i], c, inputs, on_host, rows[i]);
            racers.emplace_back(rows[i], [&] { return contestant.time(machine.stopwatch); });
        } catch (const CannotRun& reason) {
            rows[i].why_not = first_line(reason.what());
        }
    }
    if (peers != nullptr) {
        const auto why_not = peers->prepare(c, options.peers);
        for (std::size_t i = 0; i < peer_rows.size(); ++i) {
            PeerRow& row = peer_rows[i];
            row.why_not = why_not[i];
            if (row.why_not.empty()) racers.emplace_back(row, [&] { return machine.peers->time(row.peer); });
        }
    }

    for (bool again = true; again;) {
        again = false;
        for (Racer& racer : racers) {
            if (!racer.wants_more(options)) continue;
            racer.run();
            again = true;
        }
    }
    for (Racer& racer : racers) racer.finish();
    if (peers != nullptr) peers->release();

    on_phase("verify");
    if (contestants.empty()) return;
    for (Contestant& contestant : contestants) contestant.fetch();
    for (Contestant& contestant : contestants) contestant.repeat(inputs);
    sample.emplace(device, c, inputs.front(), std::move(on_host), options);
    inputs.clear();
    for (Contestant& contestant : contestants) {
        const Products products = contestant.products();
        auto own = expected.find(products);
        if (own == expected.end())
            own = expected
                      .try_emplace(products, sample->problem, sample->inputs, options.sampled_rows, products)
                      .first;
        contestant.start_verification(*sample, own->second);
    }
    for (Contestant& contestant : contestants) contestant.finish_verification();
}

}  // namespace

ProblemLabel label_of(const TimedCase& timed) {
    const Case& c = timed.problem;
    return {timed.regime, c.shape, c.dtype, c.causal, c.features, c.pass};
}

StageLabel label_of(const Stage& stage, const TimedCase& timed) {
    const Stage* parent = parent_at(stage, timed.problem.shape.d);
    return {stage.number, parent != nullptr ? parent->number : -1, stage.folder(),
            timed.regime == stage.shows_in};
}

void TimingOptions::be_brief(double seconds) {
    max_seconds = seconds;
    sampled_rows = 4;
    max_compared = std::size_t(1) << 24;
}

TimingOptions timing_options(DType dtype, const std::string& regime) {
    TimingOptions options;
    for (const Regime& candidate : regimes()) {
        if (regime.empty() ? candidate.sweep : regime != candidate.name) continue;
        for (const auto& [shape, causal, input, features] : candidate.problems) {
            TimedCase& timed = options.cases.emplace_back();
            timed.regime = candidate.name;
            timed.problem.shape = shape;
            timed.problem.causal = causal;
            timed.problem.features = features;
            timed.problem.input = input;
            timed.problem.dtype = dtype;
            timed.problem.pass = candidate.pass;
        }
    }
    if (options.cases.empty()) {
        std::string names;
        for (const Regime& known : regimes()) names += (names.empty() ? "" : ", ") + std::string(known.name);
        throw BadUsage(fmt::format("unknown regime '{}': there are {}", regime, names));
    }
    if (is_sweep(regime)) {
        options.be_brief(0.15);
        std::erase(options.peers, Peers::slow);
    }
    return options;
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
                    const OnStep& on_step, Peers* peers) {
    auto* stopwatch = dynamic_cast<Stopwatch*>(&device);
    if (stopwatch == nullptr) throw CannotRun(device.description() + " has no clock of a GPU");

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
    if (peers != nullptr && peers->device() != results.hardware.gpu) {
        throw CannotRun(
            fmt::format("the stages run on {}, but PyTorch on {}", results.hardware.gpu, peers->device()));
    }
    next_step("measure the machine's ceilings");
    results.ceilings = stopwatch->ceilings();
    for (const Stage& stage : stages) {
        const Stage* known = find_stage(stage.number);  // a student's kernel is none of the ladder's
        if (known != nullptr && known->folder() == stage.folder())
            results.kernels[stage.folder()] = kernel_fingerprint(stage.folder());
    }
    const std::size_t peers_per_case = peers == nullptr ? 0 : options.peers.size();
    std::vector<std::vector<Stage>> stages_of;  // by case
    for (const TimedCase& timed : options.cases) {
        std::vector<Stage>& chosen = stages_of.emplace_back();
        for (const Stage& stage : stages) {
            if (stage.pass != timed.problem.pass || !why_not_taken(stage, timed.problem).empty()) continue;
            if (options.takes_part && !options.takes_part(stage, label_of(timed))) continue;
            chosen.push_back(stage);
            results.rows.push_back(empty_row(timed, stage));
        }
        for (std::size_t i = 0; i < peers_per_case; ++i)
            results.peers.push_back(empty_row(timed, options.peers[i]));
    }
    if (peers != nullptr) results.libraries = peers->libraries();
    for (std::size_t i = 0, row = 0; i < options.cases.size(); row += stages_of[i++].size()) {
        const TimedCase& timed = options.cases[i];
        const auto on_phase = [&](const char* phase) {
            next_step(fmt::format("{} {}: {}", phase, timed.regime, description_of(timed.problem)));
        };
        time_case({device, *stopwatch, peers}, stages_of[i], timed.problem, options,
                  std::span(results.rows).subspan(row, stages_of[i].size()),
                  std::span(results.peers).subspan(i * peers_per_case, peers_per_case), on_phase);
        if (!options.keep || i + 1 == options.cases.size()) continue;
        Results so_far = results;
        so_far.rows.resize(row + stages_of[i].size());
        so_far.peers.resize((i + 1) * peers_per_case);
        derive(so_far);
        options.keep(so_far);
    }
    derive(results);
    return results;
}

}  // namespace ladder
