#include "harness/report/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/base/table.h"
#include "harness/time/record_json.h"

namespace ladder {
namespace {

Cell number(double value, const char* format) {
    return {Value(value), fmt::format(fmt::runtime(format), value)};
}

Table overheads(const nlohmann::json& rows) {
    Table table("overhead", "Microseconds that the host takes to queue a call",
                {{"problem", "problem"},
                 {"pass", "gradients"},
                 {"ladder", "attention()", Align::right},
                 {"sdpa", "SDPA", Align::right},
                 {"more", "more than SDPA", Align::right},
                 {"operator", "the operator itself", Align::right}});
    constexpr std::pair<const char*, const char*> passes[] = {
        {"inference", "not wanted"}, {"training", "wanted"}, {"and_backward", "computed as well"}};
    for (const auto& row : rows) {
        for (const auto& [what, gradients] : passes) {
            const auto& times = row.at(what);
            const auto us = [&](const char* who) { return times.at(who).template get<double>(); };
            table.add_row({row.at("problem").template get<std::string>(), gradients,
                           number(us("ladder"), "{:.1f}"), number(us("sdpa"), "{:.1f}"),
                           number(us("ladder") - us("sdpa"), "{:+.1f}"), number(us("operator"), "{:.1f}")});
        }
    }
    return table;
}

Table tokens(const nlohmann::json& llama) {
    Table table(
        "llama",
        fmt::format("A Llama of {:.1f} billion random weights: tokens per second for {} prompts of {} "
                    "tokens, and for decoding behind them; how far its logits, of at most {:.2f}, are "
                    "from those of eager attention",
                    llama.at("parameters").get<double>() * 1e-9, llama.at("prompt").at(0).get<int>(),
                    llama.at("prompt").at(1).get<int>(), llama.at("largest_logit").get<double>()),
        {{"attention", "attention"},
         {"prefill", "prefill", Align::right},
         {"decode", "decoding", Align::right},
         {"difference", "largest difference", Align::right}});
    for (const auto& row : llama.at("implementations")) {
        table.add_row({row.at("name").get<std::string>(), number(row.at("prefill"), "{:.0f}"),
                       number(row.at("decode"), "{:.0f}"), number(row.at("from_eager"), "{:.3f}")});
    }
    return table;
}

std::string training_title(const nlohmann::json& training) {
    const auto& size = training.at("size");
    return fmt::format(
        "examples/train_gpt.py, {} steps of {} sequences of {} characters: milliseconds of a step",
        training.at("runs").at("SDPA").at("losses").size(), size.at("batch").get<int>(),
        size.at("context").get<int>());
}

Table trainings(const nlohmann::json& runs, const std::string& title) {
    Table table("training", title,
                {{"attention", "attention"},
                 {"step", "a step", Align::right},
                 {"gpu", "of the GPU", Align::right},
                 {"forward", "in attention", Align::right},
                 {"backward", "in its gradients", Align::right},
                 {"loss", "last loss", Align::right},
                 {"difference", "largest difference to SDPA's", Align::right}});
    for (const auto& training : runs) {
        if (training_title(training) != title) continue;
        for (const char* who : {"ladder", "SDPA"}) {
            const auto& run = training.at("runs").at(who);
            const auto& ms = run.at("gpu_ms");
            const bool ours = std::string(who) == "ladder";
            table.add_row({ours ? fmt::format("{}, {}", training.at("stage").get<std::string>(),
                                              training.at("backward_stage").get<std::string>())
                                : "SDPA beside it",
                           number(run.at("step_ms"), "{:.2f}"), number(ms.at("all"), "{:.2f}"),
                           number(ms.at("attention"), "{:.2f}"), number(ms.at("its gradients"), "{:.2f}"),
                           number(run.at("losses").back(), "{:.3f}"),
                           ours ? number(training.at("largest_difference"), "{:.4f}") : Cell()});
        }
    }
    return table;
}

}  // namespace

std::string python_block(const std::filesystem::path& record) {
    return read_record(record, "python", "of the Python package", [](const auto& json) {
        const auto text = [&](const char* key) { return json.at(key).template get<std::string>(); };
        std::string block =
            fmt::format("Recorded on {}, {}, commit {}, with PyTorch {}:\n", text("gpu"),
                        text("date").substr(0, 10), text("commit").substr(0, 7), text("torch"));
        std::vector<Table> tables{overheads(json.at("overhead_us"))};
        if (json.contains("llama")) tables.push_back(tokens(json.at("llama")));
        for (const auto& training : json.at("training")) {
            const std::string title = training_title(training);
            if (tables.back().title() != title) tables.push_back(trainings(json.at("training"), title));
        }
        for (const Table& table : tables)
            block += fmt::format("\n{}:\n\n{}", table.title(), to_markdown(table));
        return block;
    });
}

}  // namespace ladder
