/// @file
/// What commands share on the command line: stages, the problem, the back-end, and the form of the output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/table.h"
#include "harness/commands/arguments.h"
#include "harness/device/device.h"
#include "harness/ladder/words.h"
#include "harness/problem/case.h"
#include "stages/stage.h"

namespace ladder {

/// [STAGES]
struct StageOptions {
    /// `by_default`: which they are if none is named, in words.
    StageOptions(Command& command, const std::string& by_default);
    std::vector<const Stage*> selected() const { return select_stages(words); }

    std::vector<std::string> words;
};

/// --shape, --causal, those of Features, --dtype, --layout, --input, --seed
struct CaseOptions {
    explicit CaseOptions(Command& command);
    /// The case that the options describe; `shape` where none was given.
    Case with_default(const Shape& shape) const;

    std::optional<Shape> shape;
    bool causal = false;
    Features features;
    std::optional<DType> dtype;
    std::optional<Layout> layout;
    std::optional<std::string> input;
    std::optional<std::uint64_t> seed;
};

/// --regime, or --shape with all that goes with it; --dtype
struct RegimeOptions {
    explicit RegimeOptions(Command& command);
    /// Throws BadUsage for an option that goes with --shape without it.
    void check() const;
    /// The problem of --shape, for a pass.
    Case custom_case(Pass pass) const;
    DType dtype_or_default() const { return dtype.value_or(DType::bf16); }

    std::string regime;
    std::optional<Shape> shape;
    bool causal = false;
    Features features;
    std::optional<DType> dtype;
};

/// --shape, --dtype and --layout alone
Argument add_shape(Command& command, std::optional<Shape>& shape);
/// The options of all of them, --ranks aside; or of these alone.
void add_features(Command& command, Features& features, const std::vector<Feature>& of = {});
/// Throws BadUsage, with the option, if any was given.
void require_shape_for(const Features& features, const std::string& why = "");
void add_dtype(Command& command, std::optional<DType>& dtype);
/// 0 where it is not given.
void add_ranks(Command& command, int& ranks, const std::string& by_default);
/// Throws BadUsage with the name of a stage that is for one GPU alone, if --ranks is given.
void require_ranks(const std::vector<const Stage*>& stages, int ranks);
void add_layout(Command& command, std::optional<Layout>& layout);

/// --backend, and for the CPU --order, --order-seed and --workers
struct BackendOptions {
    explicit BackendOptions(Command& command);
    /// Opens the back-end; auto is the GPU if there is one, else the checked CPU, else the plain CPU.
    /// `for_cpu` says that another option is for the CPU too. Throws CannotRun.
    std::unique_ptr<Device> open(bool for_cpu = false) const;

    std::string backend = "auto";
    std::string order = "forward";
    std::uint64_t order_seed = 1;
    int workers = 0;
};

/// The first of these back-ends that this build and machine have. Throws CannotRun with the last one's
/// reason.
std::unique_ptr<Device> open_first(const std::vector<Backend>& backends);

/// What counts work: the checked CPU, else the plain one, which counts the same. Throws CannotRun.
std::unique_ptr<Device> open_counting_device();

/// --json FILE and --markdown
struct OutputOptions {
    explicit OutputOptions(Command& command);
    /// Throws BadUsage if the file could not be written.
    void check() const;
    /// Prints in the form that was asked for. Throws CheckFailed if the printout says so.
    void print(const Printout& printout) const;

    std::string json;
    bool markdown = false;
};

/// Adds a command whose Options take their places on the command line in their constructor.
/// When its turn comes `run` makes the printout, which is then printed.
template <class Options>
Command add_command(CommandLine& lab, const std::string& name, const std::string& description,
                    Printout (*run)(const Options&)) {
    Command command = lab.add(name, description);
    const auto options = std::make_shared<Options>(command);
    const auto output = std::make_shared<OutputOptions>(command);
    command.on_call([=] {
        output->check();
        Printout printout = run(*options);
        printout.command = name;
        output->print(printout);
    });
    return command;
}

}  // namespace ladder
