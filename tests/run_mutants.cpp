/// @file
/// Runs the mutants of tests/mutate.py on the cases of `lab check`:
///
///     run_mutants STAGE_FOLDER FOLDER [--all]
///
/// FOLDER/kernel.cu holds the stage's mutants, FOLDER/ids those to run. Prints for each its number, what
/// rejected it ("none" if nothing did, "absent" if the library does not hold it) and how, with tabs between.
/// Each is run until something rejects it.
/// With --all the kernel runs once on all cases, for what it counts of itself.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "course/exercise.h"
#include "course/fence/remote_device.h"
#include "course/problems.h"
#include "harness/base/file.h"
#include "harness/cases/verification_cases.h"
#include "harness/count/claims.h"
#include "harness/count/counting.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/ladder/library.h"
#include "harness/problem/case.h"
#include "harness/verify/guarded_run.h"
#include "harness/verify/one_case.h"
#include "simt/simt.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace {

using namespace ladder;

/// Far beyond what a case takes, in seconds of processors: for endless loops.
constexpr double run_limit_s = 20;

/// A back-end with the mutants' library, once for each mutant.
struct Run {
    std::unique_ptr<RemoteDevice> device;
    Stage stage;
};

/// One thing that may reject a mutant. Returns why it does.
struct Test {
    std::string name;
    Backend backend;
    std::function<std::string(Run&)> rejects;
    double seconds = 1;                        ///< that the kernel itself takes
    std::map<std::string, int> rejected = {};  ///< how many mutants of a kind; of all kinds: ""
};

/// The stage as an exercise, which lab check takes it for; nothing of the first stage of all and such.
std::optional<Exercise> exercise_of(const Stage& stage) {
    try {
        return load_exercise(std::to_string(stage.number));
    } catch (const BadUsage&) {
        return std::nullopt;
    }
}

class Mutants {
  public:
    Mutants(const fs::path& stage_folder, const fs::path& folder, const std::vector<Backend>& backends)
        : folder_(folder) {
        stage_ = &stage_in(stage_folder);
        activate(0);
        for (const Backend backend : backends)
            compilations_.push_back({folder / "kernel.cu", name(backend), folder});
        for (const std::string& errors : compile(compilations_, compiler_limits())) {
            if (!errors.empty()) throw CheckFailed(errors);
        }
        library_ = read_file(compilations_.front().library());
        const auto exercise = exercise_of(*stage_);
        const auto results =
            exercise ? edge_problems(*exercise, false) : verification_cases(*stage_, Cover::pairs);
        const auto races = exercise ? race_problems(*exercise, 1) : verification_cases(*stage_, Cover::each);
        for (const Case& c : results) add_results(c);
        if (exercise) {
            for (const Case& c : seeded_problems(*exercise, 1)) add_results(c);
        }
        for (const Case& c : races) {
            for (const auto order :
                 {simt::Order::forward, simt::Order::reversed, simt::Order::shuffled, simt::Order::delayed})
                add_races(c, order);
        }
        add_claims();
    }

    /// The name of what rejects a mutant and why; "none" if nothing does.
    std::pair<std::string, std::string> verdict(int id, const std::string& kind) {
        activate(id);
        runs_.clear();
        for (Test* test : in_order_for(kind)) {
            std::string why;
            const auto begin = std::chrono::steady_clock::now();
            try {
                why = test->rejects(run(test->backend));
            } catch (const CheckFailed& error) {
                why = error.what();
            } catch (const CannotRun& error) {
                why = error.what();
            }
            if (id == 0)
                test->seconds =
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            if (why.empty()) continue;
            test->rejected[kind] += 1;
            test->rejected[""] += 1;
            return {test->name, why};
        }
        return {"none", ""};
    }

    /// Whether code with this mutant is in the library.
    bool holds(int id) const { return library_.find(fmt::format("mutant {}.", id)) != library_.npos; }

    /// Every result once, whatever it is.
    void run_all() {
        for (Test& test : tests_) {
            if (test.backend != Backend::cpu) continue;
            if (const std::string why = test.rejects(run(Backend::cpu)); !why.empty())
                throw CheckFailed(test.name + "\n" + why);
        }
    }

  private:
    /// First what rejected others of its kind, or of any, in little time.
    std::vector<Test*> in_order_for(const std::string& kind) {
        const auto worth = [&](Test& test) {
            return (test.rejected[kind] + 0.1 * test.rejected[""] + 0.01) / test.seconds;
        };
        std::vector<std::pair<double, Test*>> order;
        for (Test& test : tests_) order.emplace_back(-worth(test), &test);
        std::stable_sort(order.begin(), order.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<Test*> tests;
        for (const auto& [_, test] : order) tests.push_back(test);
        return tests;
    }

    void activate(int id) { std::ofstream(folder_ / "active") << id; }

    Run& run(Backend backend) {
        Run& run = runs_[backend];
        if (run.device == nullptr) {
            Limits limits;
            limits.cpu_s = 3600;  // of all cases; what bounds one is the limit of a run
            run.device = std::make_unique<RemoteDevice>(compilations_[backend == Backend::checked].library(),
                                                        backend, limits, run_limit_s);
            run.stage = run.device->stage();
        }
        return run;
    }

    void add_results(const Case& c) {
        const auto reference = std::make_shared<Reference>(c);
        const bool rounds_large_scores = stage_->rounds_large_scores;
        const Products products = stage_->products;
        tests_.push_back(
            {"result of " + description_of(c), Backend::cpu, [=](Run& run) {
                 const Outputs outputs = run_stage(*run.device, run.stage, c, reference->inputs());
                 return judge(c, reference->expected(products), outputs, rounds_large_scores).report;
             }});
    }

    void add_races(const Case& c, simt::Order order) {
        const auto inputs = std::make_shared<Reference>(c);
        const std::string orders[] = {"forward", "reversed", "shuffled", "delayed"};
        tests_.push_back({fmt::format("races, {}, {}", orders[static_cast<int>(order)], description_of(c)),
                          Backend::checked, [=](Run& run) {
                              const simt::KeptOptions kept;
                              simt::options().order = order;
                              run_stage(*run.device, run.stage, c, inputs->inputs());
                              const auto bytes = run.device->counters().bypassed_bytes;
                              return bytes == 0 ? std::string()
                                                : fmt::format("{} bytes bypass the counters", bytes);
                          }});
    }

    void add_claims() {
        const auto local = std::shared_ptr<Device>(open_device(Backend::cpu));
        const Stage* parent = find_stage(stage_->parent);  // null for the first
        for (const Case& c : claim_cases(stage_->folder())) {
            const auto inputs = std::make_shared<Reference>(c);
            const auto before = std::make_shared<Work>(
                parent == nullptr ? Work() : count_work(*local, *parent, c, inputs->inputs()));
            tests_.push_back({"claims on " + description_of(c), Backend::cpu, [=, this](Run& run) {
                                  const Work after = count_work(*run.device, run.stage, c, inputs->inputs());
                                  if (!after.why_not.empty()) return after.why_not;
                                  for (const Claim& claim :
                                       claims(stage_->folder(), c, local->sm_count(), *before, after)) {
                                      if (!claim.of_parent && !claim.holds())
                                          return fmt::format("{} is {}, not {}", claim.counter, claim.got,
                                                             claim.expected);
                                  }
                                  return std::string();
                              }});
        }
    }

    fs::path folder_;
    const Stage* stage_;
    std::vector<Compilation> compilations_;
    std::string library_;  ///< the first one's bytes
    std::vector<Test> tests_;
    std::map<Backend, Run> runs_;
};

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    // A thread for each of many cores would take most of the memory that a run may have.
    simt::options().workers = 1;
    try {
        const fs::path folder = fs::absolute(argv[2]);
        if (argc > 3) {
            Mutants(argv[1], folder, {Backend::cpu}).run_all();
            return 0;
        }
        Mutants mutants(argv[1], folder, {Backend::cpu, Backend::checked});
        if (const auto [by, why] = mutants.verdict(0, "none"); by != "none")
            throw CheckFailed(fmt::format("the kernel itself is rejected by {}\n{}", by, why));
        std::ifstream ids(folder / "ids");
        int id = 0;
        for (std::string kind; ids >> id >> kind;) {
            const auto [by, why] = mutants.holds(id) ? mutants.verdict(id, kind)
                                                     : std::pair<std::string, std::string>("absent", "");
            fmt::print("{}\t{}\t{}\n", id, by, first_line(why));
            std::fflush(stdout);
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    }
    return 0;
}
