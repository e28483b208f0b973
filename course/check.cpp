#include "course/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "course/fence/remote_device.h"
#include "course/fence/sandbox.h"
#include "course/fence/screen.h"
#include "course/mutants.h"
#include "course/problems.h"
#include "harness/base/file.h"
#include "harness/base/process.h"
#include "harness/base/table.h"
#include "harness/count/claims.h"
#include "harness/count/counting.h"
#include "harness/features/features.h"
#include "harness/ladder/library.h"
#include "harness/report/diff.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/one_case.h"
#include "harness/verify/report.h"
#include "harness/verify/verdict.h"
#include "simt/simt.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

using Clock = std::chrono::steady_clock;

/// All checks may take this many times CheckOptions::limit_s by the clock.
constexpr double clock_over_limit = 2;

/// Bytes of address space, of which a block of 512 threads takes 64 MB for stacks, hardly touched; persistent
/// kernels have a dozen blocks at once. There are three at most: none while two compilers run, with 1 GB
/// each, and two while a third does. So all of a submission stays below the 4 GB that instructors.md
/// promises.
constexpr std::size_t memory_of_a_runner = std::size_t{3} << 29;

/// Everything about one check.
class Checker {
  public:
    Checker(const Exercise& exercise, const fs::path& kernel, const fs::path& products,
            const CheckOptions& options, const OnStep& on_step)
        : exercise_(exercise),
          kernel_(kernel),
          products_(products),
          options_(options),
          on_step_(on_step),
          deadline_(begin_ + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(clock_over_limit * options.limit_s))),
          processors_before_(processor_s()) {
        for (const auto& [key, title] : std::initializer_list<std::pair<const char*, const char*>>{
                 {"builds", "builds, and declares itself as the stage"},
                 {"correct", "correct on seeded problems and counted ones"},
                 {"edges", "correct on edge cases"},
                 {"races", "no races, in four orders of threads"},
                 {"moved", "the work moved as claimed"},
                 {"unmoved", "nothing else moved"}}) {
            result_.criteria.push_back({key, title, 0, 0, {}, ""});
        }
    }

    CheckResult run() {
        build();
        if (!criterion("builds").all()) {
            for (Criterion& c : result_.criteria) {
                if (c.key != "builds") c.why_not = "it needs a kernel that builds";
            }
            return std::move(result_);
        }
        const auto seeded = seeded_problems(exercise_, options_.seed),
                   edges = edge_problems(exercise_, options_.thorough),
                   raced = race_problems(exercise_, options_.seed), claimed = counted_problems(exercise_);
        steps_ += static_cast<int>(seeded.size() + edges.size() + raced.size() + claimed.size());
        verify_cases(criterion("correct"), seeded);
        verify_cases(criterion("edges"), edges);
        look_for_races(raced);
        hold_to_claims(claimed);
        return std::move(result_);
    }

  private:
    Criterion& criterion(const std::string& key) {
        return *std::find_if(result_.criteria.begin(), result_.criteria.end(),
                             [&](const Criterion& c) { return c.key == key; });
    }

    /// Says what comes next.
    void step(const std::string& what) { on_step_(what, done_++, steps_); }

    /// Why to stop here, if so: the time is over, or the kernel hung too often, and may each time. `so_far`
    /// is how often it did.
    std::string why_to_stop(int so_far, int most) const {
        if (so_far >= most)
            return fmt::format("not run: it hung {}, and is stopped after {:g} s each time",
                               so_far == 1 ? "before" : fmt::format("{} times before", so_far),
                               options_.run_limit_s);
        double used = processor_s() - processors_before_;
        for (const auto* device : {&plain_, &checked_, &comparing_})
            if (*device) used += (*device)->processor_s();
        if (used < options_.limit_s && Clock::now() < deadline_) return "";
        return fmt::format("not run: the time for all checks ({:g} s) is over", options_.limit_s);
    }

    /// The same in a criterion's report, once.
    bool stops(Criterion& c, int hangs) const {
        const std::string why = why_to_stop(hangs, 1);
        if (!why.empty() && (c.reports.empty() || !c.reports.back().starts_with("not run")))
            c.reports.push_back(why + "\n");
        return !why.empty();
    }

    /// What a run produced.
    struct Ran {
        Outputs outputs;
        Work work;
    };

    /// Where the parent masks every tile and the stage must not, what a kernel says of it is not enough.
    /// Builds it once more, so that its comparisons are seen. Empty if it masks the tiles that it notes as
    /// masked.
    std::string masks_in_secret(const Work& parent, const Ran& plain, const Case& one, const Inputs& inputs) {
        const simt::Counters &before = parent.counters, &told = plain.work.counters;
        const bool masks_all = before.tiles > 0 && before.masked_tiles == before.tiles;
        if (!masks_all || told.masked_tiles == told.tiles) return "";
        if (!comparing_) {
            const Compilation c{kernel_, "comparisons", products_};
            const std::string errors = compile({c}, compiling()).front();
            if (!errors.empty()) return errors;
            comparing_ = open(c, Backend::cpu);
        }
        const std::uint64_t seen = run_on(*comparing_, one, inputs).work.counters.masked_tiles;
        if (seen == told.masked_tiles) return "";
        return fmt::format("it masks {} tiles, but its note_tile says so of {} of {}", seen,
                           told.masked_tiles, told.tiles);
    }

    Ran run_on(RemoteDevice& device, const Case& one, const Inputs& inputs) {
        Ran ran{run_stage(device, stage_, one, inputs), {}};
        note_work(ran.work, device, stage_, one);
        return ran;
    }

    /// What a kernel does where it is checked, and may not: uncounted traffic, or anything else than
    /// in the plain run; wrong results, where two runs may differ. Empty if nothing.
    std::string difference(Reference& reference, const Ran& plain, const Ran& checked) const {
        const Case& one = reference.problem;
        if (const auto bypassed = checked.work.counters.bypassed_bytes; bypassed != 0)
            return fmt::format("{} bytes of global memory are read or written without load() or store()",
                               bypassed);
        const std::string report =
            stage_.repeats_exactly
                ? report_difference(one, plain.outputs, checked.outputs, "the run under the race checker")
                : judge(one, reference.expected(stage_.products), checked.outputs, stage_.rounds_large_scores)
                      .report;
        if (!report.empty()) return report;
        for (const auto& field : simt::counter_fields) {
            const auto expected = plain.work.counters.*field.value, got = checked.work.counters.*field.value;
            if (got != expected && field.value != &simt::Counters::bypassed_bytes && !field.in_model_time)
                return fmt::format("the race checker counts {} {}, the plain run {}", got,
                                   in_words(field.name), expected);
        }
        return "";
    }

    Limits compiling() const {
        Limits limits =
            options_.untrusted ? sandboxed_compiler_limits(kernel_, products_) : compiler_limits();
        limits.deadline = deadline_;
        return limits;
    }

    std::unique_ptr<RemoteDevice> open(const Compilation& c, Backend backend) const {
        Limits running;
        running.deadline = deadline_;
        running.memory = memory_of_a_runner;
        if (options_.untrusted)
            running.confine = Sandbox{.calls = Calls::kernel, .as_nobody = true, .readable = {c.library()}};
        running.cpu_s = static_cast<unsigned>(options_.limit_s);  // of all runs
        return std::make_unique<RemoteDevice>(c.library(), backend, running, options_.run_limit_s);
    }

    void build() {
        Criterion& builds = criterion("builds");
        builds.total = 1;
        const std::string source = read_file(kernel_);
        if (source.size() > 1 << 20) {
            builds.reports.emplace_back("kernel.cu is larger than 1 MiB");
            return;
        }
        std::vector<std::string> foreign = screen_source(source);
        if (options_.untrusted && !foreign.empty()) {
            builds.reports.push_back(fmt::format("{}\n", fmt::join(foreign, "\n")));
            return;
        }
        step("build");
        const std::vector<Compilation> both{{kernel_, name(Backend::cpu), products_},
                                            {kernel_, name(Backend::checked), products_}};
        for (const std::string& errors : compile(both, compiling())) {
            if (errors.empty()) continue;
            builds.reports.push_back(errors);
            return;
        }
        for (const std::string& line : screen_compiled(both, Backend::cpu)) foreign.push_back(line);
        if (options_.untrusted && !foreign.empty()) {
            builds.reports.push_back(fmt::format("{}\n", fmt::join(foreign, "\n")));
            return;
        }
        for (const std::string& line : foreign) result_.notes.push_back("a grader will refuse this: " + line);

        plain_ = open(both[0], Backend::cpu);
        checked_ = open(both[1], Backend::checked);
        try {
            stage_ = plain_->stage();
            stage_.source = kernel_.string();
            stage_.rounds_large_scores = exercise_.rounds_large_scores;
            stage_.batch_invariant = exercise_.batch_invariant;
            // The problems are the exercise's, and so is how they are laid out, whatever a kernel declares.
            stage_.products = exercise_.products;
            stage_.takes_e4m3 = exercise_.takes_e4m3;
            for (const Feature feature : exercise_.takes)
                if (!takes(stage_, feature)) undeclared_.push_back(feature);
            stage_.takes = exercise_.takes;
            stage_.chunks = exercise_.chunks;
            stage_.divides_rows = exercise_.divides_rows;
            checked_->stage();
        } catch (const CheckFailed& error) {
            builds.reports.emplace_back(error.what());
            return;
        }
        const std::string why = why_another_stage();
        if (!why.empty()) builds.reports.push_back(why);
        builds.passed = why.empty();
    }

    /// What a kernel declares unlike the stage; empty if nothing. What the parent has not is not asked here.
    std::string why_another_stage() const {
        if (stage_.pass != exercise_.pass)
            return fmt::format("it declares itself for the {} pass, not the {} one: see LADDER_STAGE",
                               name(stage_.pass), name(exercise_.pass));
        if (exercise_.repeats_exactly && !stage_.repeats_exactly)
            return "it declares that two of its runs may differ, and the stage's agree bit for bit";
        if (stage_.number != exercise_.number || stage_.parent != exercise_.parent)
            return fmt::format("it declares itself as stage {} of parent {}, not {} of {}: see LADDER_STAGE",
                               stage_.number, stage_.parent, exercise_.number, exercise_.parent);
        for (const int d : exercise_.head_dims)
            if (!stage_.has_head_dim(d) && parent_of(exercise_).has_head_dim(d))
                return why_not_declared({.shape = {.d = d}});
        return "";
    }

    /// Why a kernel does not take one of its stage's problems, by what it declares; empty if it does.
    std::string why_not_declared(const Case& one) const {
        if (!stage_.has_head_dim(one.shape.d))
            return fmt::format("it has no head dimension {}: see Dims at the end", one.shape.d);
        for (const Feature feature : undeclared_)
            if (info_of(feature).is_in(one.features))
                return fmt::format(
                    "it does not declare that it takes {}: add Feature::{} to .takes in LADDER_STAGE",
                    name(feature), word(feature));
        return "";
    }

    /// Verifies on the plain back-end, which sees wrong results and hangs but no races.
    void verify_cases(Criterion& c, const std::vector<Case>& cases) {
        const int hangs = plain_->hangs();
        for (const Case& one : cases) {
            step("verify " + description_of(one));
            if (stops(c, plain_->hangs() - hangs)) {
                c.total += 1;
                continue;
            }
            std::string report = why_not_declared(one);
            try {
                if (report.empty()) report = verify(*plain_, stage_, one).report;
            } catch (const CannotRun& error) {
                report = error.what();
            }
            count(c, one, report);
        }
    }

    /// Takes down what was found on one problem; an empty report is a pass.
    static void count(Criterion& c, const Case& one, const std::string& report) {
        c.total += 1;
        c.passed += report.empty();
        if (!report.empty()) c.reports.push_back(fmt::format("{}\n{}\n", description_of(one), report));
    }

    /// Runs under the race checker, forward, reversed, shuffled and delayed. The results and the work must be
    /// the same, and the same as without it; whether the results are right is asked only where two runs may
    /// differ.
    void look_for_races(const std::vector<Case>& cases) {
        Criterion& c = criterion("races");
        const int hangs = checked_->hangs() + plain_->hangs();
        for (const Case& one : cases) {
            step("races on " + description_of(one));
            Reference reference(one);
            std::optional<Ran> plain;
            for (const auto& [order, name] : {std::pair{simt::Order::forward, "forward"},
                                              {simt::Order::reversed, "reversed"},
                                              {simt::Order::shuffled, "shuffled"},
                                              {simt::Order::delayed, "delayed"}}) {
                c.total += 1;
                if (stops(c, checked_->hangs() + plain_->hangs() - hangs)) continue;
                const simt::KeptOptions kept;
                simt::options().order = order;
                simt::options().seed = options_.seed;
                std::string report = why_not_declared(one);
                try {
                    if (report.empty()) {
                        const Inputs& inputs = reference.inputs();
                        if (!plain) plain = run_on(*plain_, one, inputs);
                        report = difference(reference, *plain, run_on(*checked_, one, inputs));
                    }
                } catch (const CheckFailed& error) {
                    report = error.what();
                } catch (const CannotRun& error) {
                    report = error.what();
                }
                c.passed += report.empty();
                if (!report.empty())
                    c.reports.push_back(
                        fmt::format("{}, threads {}\n{}\n", description_of(one), name, report));
            }
        }
    }

    void hold_to_claims(const std::vector<Case>& cases) {
        Criterion &moved = criterion("moved"), &unmoved = criterion("unmoved");
        const auto local = open_device(Backend::cpu);
        const Stage& parent = parent_of(exercise_);
        constexpr int most_hangs = 3;  // each costs the claims on its problem
        const int hangs = plain_->hangs() + checked_->hangs();
        unmoved.needed = false;  // unless the parent takes one of the problems
        for (const Case& one : cases) {
            step("count " + description_of(one));
            Reference reference(one);
            const Work before = count_work(*local, parent, one, reference.inputs());
            unmoved.needed |= before.why_not.empty();
            const simt::KeptOptions kept;
            Work after;
            std::string wrong = why_not_declared(one), in_secret;
            if (wrong.empty()) wrong = why_to_stop(plain_->hangs() + checked_->hangs() - hangs, most_hangs);
            if (wrong.empty()) {
                try {
                    if (!options_.untrusted) take_turns(*plain_, stage_, one);  // the sandbox has no threads
                    const Ran plain = run_on(*plain_, one, reference.inputs());
                    after = plain.work;
                    wrong = difference(reference, plain, run_on(*checked_, one, reference.inputs()));
                    if (wrong.empty())
                        wrong = judge(one, reference.expected(stage_.products), plain.outputs,
                                      stage_.rounds_large_scores)
                                    .report;
                    if (wrong.empty()) in_secret = masks_in_secret(before, plain, one, reference.inputs());
                } catch (const CheckFailed& error) {
                    wrong = error.what();
                } catch (const CannotRun& error) {
                    wrong = error.what();
                }
            }
            count(criterion("correct"), one, wrong);
            // Why results are wrong is told once, there.
            if (!wrong.empty()) wrong = fmt::format("see \"{}\"", criterion("correct").title);
            judge_claims(one, before, after, wrong.empty() ? in_secret : wrong, local->sm_count());
        }
        const auto moves = [&](const auto& counter) { return moving_.contains(counter.first); };
        const auto& stayed = wrong_[unmoved.key];
        for (MovedCounter& one : of_refused_) add_once(result_.moved, std::move(one));
        result_.exact = moved.all() && std::none_of(stayed.begin(), stayed.end(), moves);
        for (auto* c : {&moved, &unmoved}) {
            for (const auto& [counter, wrong] : wrong_[c->key]) {
                const std::size_t others = wrong.problems.size() - 1;
                c->reports.push_back(wrong.text +
                                     (others > 0 ? "\n    and on " + counted(others, "more problem") : ""));
            }
        }
    }

    /// Each counter is told of on one problem.
    static void add_once(std::vector<MovedCounter>& list, MovedCounter moved) {
        if (std::ranges::find(list, moved.counter, &MovedCounter::counter) == list.end())
            list.push_back(std::move(moved));
    }

    void judge_claims(const Case& one, const Work& before, const Work& after, const std::string& broken,
                      int sm_count) {
        const auto list = claims(exercise_.folder(), one, sm_count, before, after);
        // What the parent breaks is the change; the rest is what must stay.
        const auto of_parent = claims(exercise_.folder(), one, sm_count, before, before);
        const bool refused = !before.why_not.empty();
        for (std::size_t k = 0; k < list.size(); ++k) {
            const Claim& claim = list[k];
            if (claim.of_parent) continue;
            const bool asked = !of_parent[k].holds(), moves = refused || asked;
            Criterion& c = criterion(moves ? "moved" : "unmoved");
            c.total += 1;
            if (moves) moving_.insert(claim.counter);
            if (asked && parent_of(exercise_).has_head_dim(one.shape.d)) {
                const Claim& known = broken.empty() ? claim : of_parent[k];
                MovedCounter moved{claim.counter, description_of(one), {}, known.expected, {}};
                if (!refused) moved.of_parent = of_parent[k].got;
                if (broken.empty()) moved.counted = claim.got;
                add_once(refused ? of_refused_ : result_.moved, std::move(moved));
            }
            if (broken.empty() && claim.holds()) {
                c.passed += 1;
                continue;
            }
            auto& [text, problems] = wrong_[c.key][broken.empty() ? claim.counter : "it fails: " + broken];
            problems.insert(description_of(one));
            if (!text.empty()) continue;
            const std::string got = fmt::format("{}: {} counted", in_words(claim.counter), claim.got),
                              has = refused ? "" : fmt::format(" (the parent has {})", of_parent[k].got),
                              on = "\n    on " + description_of(one);
            const char* must = refused ? "be" : moves ? "become" : "stay";
            if (!broken.empty())
                text = fmt::format("not counted on {}: {}", description_of(one), broken);
            else if (asked && options_.predicted && !options_.predicted->contains(in_words(claim.counter)))
                text = fmt::format("{}{}; what it must {} is told once you have predicted it{}", got,
                                   !refused && claim.got == of_parent[k].got ? ", as of the parent" : has,
                                   must, on);
            else
                text = fmt::format("{}, must {} {}{}{}", got, must, claim.expected, moves ? has : "", on);
        }
        const auto order = claimed_tiles_of_blocks(exercise_.folder(), one, sm_count);
        if (order.empty()) return;
        Criterion& c = criterion("moved");
        c.total += 1;
        const auto& copies = plain_->copies_of_blocks();
        if (broken.empty() && are_in_order(order, copies)) {
            c.passed += 1;
            return;
        }
        auto& [text, problems] = wrong_["moved"]["order of the blocks"];
        problems.insert(description_of(one));
        if (!text.empty()) return;
        const auto first = [](const std::vector<std::uint64_t>& of_blocks) {
            constexpr std::size_t most = 12;
            const std::size_t shown = std::min(of_blocks.size(), most);
            return fmt::format("{}{}", fmt::join(of_blocks.data(), of_blocks.data() + shown, " "),
                               of_blocks.size() > most ? " ..." : "");
        };
        text = fmt::format(
            "order of the blocks: their key tiles must be {}, and their copies to shared memory are {}\n    "
            "on {}",
            first(order), first(copies), description_of(one));
    }

    const Exercise& exercise_;
    const fs::path &kernel_, &products_;
    const CheckOptions& options_;
    const OnStep& on_step_;
    int done_ = 0, steps_ = 1;  ///< the build is one
    Clock::time_point begin_ = Clock::now(), deadline_;
    double processors_before_;
    CheckResult result_;
    std::unique_ptr<RemoteDevice> plain_, checked_, comparing_;
    Stage stage_;
    std::vector<Feature> undeclared_;  ///< that the stage takes, and the kernel does not say so
    /// What one report of "moved" and "unmoved" says, and where.
    struct Wrong {
        std::string text;
        std::set<std::string> problems;
    };
    std::map<std::string, std::map<std::string, Wrong>> wrong_;  ///< by criterion and counter
    std::set<std::string> moving_;          ///< counters that the change must move on some problem
    std::vector<MovedCounter> of_refused_;  ///< on problems that the parent refuses
};

}  // namespace

bool CheckResult::passed() const {
    return std::all_of(criteria.begin(), criteria.end(), [](const Criterion& c) { return c.all(); });
}

bool CheckResult::right() const {
    const CheckResult& all = *this;
    return all["correct"].all() && all["edges"].all() && all["races"].all();
}

const Criterion& CheckResult::operator[](const std::string& key) const {
    return *std::find_if(criteria.begin(), criteria.end(), [&](const Criterion& c) { return c.key == key; });
}

CheckResult check_kernel(const Exercise& exercise, const fs::path& kernel, const fs::path& products,
                         const CheckOptions& options, const OnStep& on_step) {
    return Checker(exercise, kernel, products, options, on_step).run();
}

}  // namespace ladder
