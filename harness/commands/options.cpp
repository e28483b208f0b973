#include "harness/commands/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/base/file.h"
#include "harness/base/terminal.h"
#include "harness/cases/inputs.h"
#include "harness/cases/regimes.h"
#include "harness/features/features.h"
#include "harness/problem/shape.h"
#include "harness/time/timing.h"
#ifdef LADDER_HAS_CPU
#    include "simt/simt.h"
#endif

namespace ladder {
namespace {

bool colour_wanted() {
    const char* no_color = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

// An option that takes one of a few words, each standing for a value.
template <class T>
void add_choice(Command& command, const std::string& flag, const std::string& description,
                std::optional<T>& target, const std::map<std::string, T>& values) {
    std::vector<std::string> words;
    for (const auto& [word, value] : values) words.push_back(word);
    command
        .parsed(
            flag, [&target, values](const std::string& word) { target = values.at(word); }, description)
        .one_of(words);
}

}  // namespace

StageOptions::StageOptions(Command& command, const std::string& by_default) {
    command.option(
        "STAGES", words,
        "Numbers (4), ranges (1-5), names (split_q), folders with a kernel.cu of your own (my/), or all; " +
            by_default);
}

CaseOptions::CaseOptions(Command& command) {
    add_shape(command, shape);
    command.flag("--causal", causal, "Causal mask, aligned bottom-right");
    add_features(command, features);
    add_dtype(command, dtype);
    add_layout(command, layout);
    std::map<std::string, std::string> kinds;
    for (const InputKind& kind : input_kinds()) kinds[kind.name] = kind.name;
    add_choice(command, "--input", "Kind of input", input, kinds);
    command.option("--seed", seed, "Seed of the input");
}

Case CaseOptions::with_default(const Shape& default_shape) const {
    Case c;
    c.shape = shape.value_or(default_shape);
    c.causal = causal;
    c.features = features;
    c.dtype = dtype.value_or(c.dtype);
    c.layout = layout.value_or(c.layout);
    c.input = input.value_or(c.input);
    c.seed = seed.value_or(c.seed);
    require_possible(c);
    return c;
}

RegimeOptions::RegimeOptions(Command& command) {
    std::vector<std::string> names;
    for (const Regime& known : regimes()) names.emplace_back(known.name);
    const Argument by_regime =
        command.option("--regime", regime, "Only this family of problems").one_of(names);
    add_shape(command, shape).excludes(by_regime);
    command.flag("--causal", causal, "With --shape: causal mask, aligned bottom-right");
    add_features(command, features);
    add_dtype(command, dtype);
}

void RegimeOptions::check() const {
    if (causal && !shape) throw BadUsage("--causal goes with --shape; the regimes say which of theirs are");
    if (!shape) require_shape_for(features, "; the regimes say which of theirs have it");
    for (const FeatureInfo* info : in_use_of(features)) {
        if (info->why_not_timed == nullptr) continue;
        if (const std::string why_not = info->why_not_timed(features); !why_not.empty())
            throw BadUsage(why_not);
    }
}

Case RegimeOptions::custom_case(Pass pass) const {
    Case c;
    c.pass = pass;
    c.shape = *shape;
    c.causal = causal;
    c.features = features;
    require_possible(c);
    c.dtype = dtype_or_default();
    return c;
}

Argument add_shape(Command& command, std::optional<Shape>& shape) {
    return command
        .parsed(
            "--shape", [&shape](const std::string& text) { shape = parse_shape(text); },
            "Batch, query heads, key/value heads, query rows, keys, head dimension")
        .type_name("B,H,Hkv,Nq,Nk,D");
}

void add_ranks(Command& command, int& ranks, const std::string& by_default) {
    command
        .option("--ranks", ranks,
                "GPUs (without one, threads) that share the sequence, for stages that support several [" +
                    by_default + "]")
        .within(1, 64);
}

void require_ranks(const std::vector<const Stage*>& stages, int ranks) {
    for (const Stage* stage : stages) {
        if (ranks == 0 || takes(*stage, Feature::ranks)) continue;
        throw BadUsage(fmt::format("{} does not take {}", stage->folder(), name(Feature::ranks)));
    }
}

void add_features(Command& command, Features& features, const std::vector<Feature>& of) {
    for (const FeatureInfo& info : all_features()) {
        if (!of.empty() && std::find(of.begin(), of.end(), info.feature) == of.end()) continue;
        if (info.feature == Feature::ranks) continue;  // add_ranks()
        Argument argument = command.parsed(
            info.option, [&features, read = info.read](const std::string& text) { read(features, text); },
            info.help);
        argument.type_name(info.type);
        if (!info.choices.empty()) argument.one_of(info.choices);
    }
}

void require_shape_for(const Features& features, const std::string& why) {
    if (const auto words = options_of(features); !words.empty())
        throw BadUsage(fmt::format("{} goes with --shape{}", words.front(), why));
}

void add_dtype(Command& command, std::optional<DType>& dtype) {
    add_choice(command, "--dtype", "Storage type of Q, K, V, O and their gradients", dtype,
               {{"fp16", DType::fp16}, {"bf16", DType::bf16}});
}

void add_layout(Command& command, std::optional<Layout>& layout) {
    add_choice(command, "--layout",
               "Memory order: (B, H, N, d) or (B, N, H, d); far: with offsets past 2^31 elements; mixed: a "
               "different one for each tensor, with gaps",
               layout, layouts());
}

BackendOptions::BackendOptions(Command& command) {
    command
        .option("--backend", backend, "Where to run; auto is the GPU if there is one, else the checked CPU")
        .one_of({"auto", "cpu", "checked", "gpu"})
        .show_default();
    command.option("--order", order, "CPU: order in which the threads of a block run between barriers")
        .one_of({"forward", "reversed", "shuffled", "delayed"})
        .show_default();
    command.option("--order-seed", order_seed, "CPU: seed of --order shuffled and delayed").show_default();
    command.option("--workers", workers, "CPU: threads of the host to use; 0 for all")
        .within(0, 1024)
        .show_default();
}

std::unique_ptr<Device> BackendOptions::open(bool for_cpu) const {
#ifdef LADDER_HAS_CPU
    const std::map<std::string, simt::Order> orders{{"forward", simt::Order::forward},
                                                    {"reversed", simt::Order::reversed},
                                                    {"shuffled", simt::Order::shuffled},
                                                    {"delayed", simt::Order::delayed}};
    simt::options().order = orders.at(order);
    simt::options().seed = order_seed;
    simt::options().workers = workers;
#endif
    for_cpu = for_cpu || order != "forward" || workers != 0;
    if (for_cpu && backend == "gpu")
        throw BadUsage("--order, --orders, --sms and --workers are for the CPU back-ends");
    if (backend == "cpu") return open_device(Backend::cpu);
    if (backend == "checked") return open_device(Backend::checked);
    if (backend == "gpu") return open_device(Backend::gpu);
    if (for_cpu) return open_first({Backend::checked, Backend::cpu});
    return open_first({Backend::gpu, Backend::checked, Backend::cpu});
}

std::unique_ptr<Device> open_first(const std::vector<Backend>& backends) {
    std::string why_not;
    for (const Backend backend : backends) {
        if (has_device(backend, &why_not)) return open_device(backend);
    }
    throw CannotRun(why_not);
}

std::unique_ptr<Device> open_counting_device() {
    return open_first({Backend::checked, Backend::cpu});
}

OutputOptions::OutputOptions(Command& command) {
    command.option("--json", json, "Write the result as JSON to FILE").type_name("FILE");
    command.flag("--markdown", markdown, "Print Markdown");
}

void OutputOptions::check() const {
    if (!json.empty()) OutputFile{json};
}

void OutputOptions::print(const Printout& printout) const {
    const std::string text = markdown ? to_markdown(printout)
                                      : to_terminal(printout, colour_wanted(), terminal_width(STDOUT_FILENO));
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    if (!json.empty()) {
        const OutputFile file(json);
        if (printout.save) {
            printout.save(file);
        } else {
            file.write(to_json(printout).dump(2) + "\n");
        }
    }
    if (!printout.failure.empty()) throw CheckFailed(printout.failure);
}

}  // namespace ladder
