#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "harness/base/file.h"
#include "harness/base/npy.h"
#include "harness/commands/commands.h"
#include "harness/commands/cpu_time.h"
#include "harness/commands/options.h"
#include "harness/device/device_problem.h"
#include "harness/features/features.h"
#include "harness/ladder/library.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "harness/verify/guarded_run.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

struct RunOptions {
    explicit RunOptions(Command& app) : command(app), backend(command), lengthy(command) {
        command.option("STAGE", stage, "Number or name").required();
        command.option("--q", q, "Q: .npy, float16 or float32, (B, H, Nq, d)").required().type_name("FILE");
        command.option("--k", k, "K: the same type, (B, Hkv, Nk, d)").required().type_name("FILE");
        command.option("--v", v, "V: as K").required().type_name("FILE");
        command.option("--out", out, "For a stage that computes attention, O: written in Q's type and shape")
            .type_name("FILE");
        command.option("--lse", lse, "With --out, L = log sum exp: written as float32, (B, H, Nq)")
            .type_name("FILE");
        command
            .option(
                "--do", dO,
                "For a stage that computes gradients, dO: as Q. O and L are computed first: on a GPU by the "
                "last stage that supports the problem, otherwise in double precision")
            .type_name("FILE");
        command.option("--dq", dQ, "dQ: written in Q's type and shape; or --dk, --dv").type_name("FILE");
        command.option("--dk", dK, "dK: written in K's type and shape").type_name("FILE");
        command.option("--dv", dV, "dV: written in V's type and shape").type_name("FILE");
        command.flag("--causal", causal, "Causal mask, aligned bottom-right");
        add_features(command, features, {Feature::window});
        command.option("--scale", scale, "Softmax scale [1/sqrt(d)]");
        add_dtype(command, dtype);
        add_layout(command, layout);
    }

    Command command;
    BackendOptions backend;
    LongOption lengthy;
    std::string stage, q, k, v, out, lse, dO, dQ, dK, dV;
    bool causal = false;
    Features features;
    std::optional<float> scale;
    std::optional<DType> dtype;
    std::optional<Layout> layout;
};

// Calls f with a value of the C++ type of the file's elements: Eigen::half or float.
template <class F>
auto with_type(NpyArray::Type type, F&& f) {
    return type == NpyArray::Type::float16 ? f(Eigen::half{}) : f(float{});
}

// Through its bits, since Eigen::half is not trivial to copy.
template <class T>
T element(const NpyArray& array, std::size_t i) {
    std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t> bits;
    std::memcpy(&bits, array.bytes.data() + i * sizeof bits, sizeof bits);
    return Eigen::numext::bit_cast<T>(bits);
}

// The elements, rounded to the storage type. The sources are named in messages.
template <class To, class From>
std::vector<std::uint16_t> rounded(const NpyArray& array, const std::string& source) {
    std::vector<std::uint16_t> bits(array.bytes.size() / sizeof(From));
    for (std::size_t i = 0; i < bits.size(); ++i) {
        const float exact = static_cast<float>(element<From>(array, i));
        const To stored(exact);
        if (!std::isfinite(exact)) throw BadUsage(fmt::format("{}: element {} is {}", source, i, exact));
        if (!std::isfinite(static_cast<float>(stored))) {
            throw BadUsage(fmt::format("{}: element {} is {}, beyond the range of fp16; try --dtype bf16",
                                       source, i, exact));
        }
        bits[i] = Eigen::numext::bit_cast<std::uint16_t>(stored);
    }
    return bits;
}

std::vector<std::uint16_t> to_storage(const NpyArray& array, DType dtype, const std::string& source) {
    return with_type(dtype, [&](auto to) {
        return with_type(array.type,
                         [&](auto from) { return rounded<decltype(to), decltype(from)>(array, source); });
    });
}

// O in the type of the input.
std::string from_storage(const std::vector<std::uint16_t>& bits, DType dtype, NpyArray::Type type) {
    return with_type(dtype, [&](auto stored) {
        return with_type(type, [&](auto to) {
            std::string bytes(bits.size() * sizeof to, '\0');
            for (std::size_t i = 0; i < bits.size(); ++i) {
                stored = Eigen::numext::bit_cast<decltype(stored)>(bits[i]);
                to = static_cast<decltype(to)>(static_cast<float>(stored));
                std::memcpy(bytes.data() + i * sizeof to, &to, sizeof to);
            }
            return bytes;
        });
    });
}

// The tensor with its second and third axis exchanged: files in the order (B, N, H, d) become (B, H, N, d).
std::vector<std::uint16_t> exchanged(const std::vector<std::uint16_t>& tensor,
                                     const std::vector<std::int64_t>& axes) {
    const std::int64_t B = axes[0], rows = axes[1], columns = axes[2], d = axes[3];
    std::vector<std::uint16_t> result(tensor.size());
    for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t k = 0; k < columns; ++k)
                std::copy_n(tensor.data() + ((b * rows + i) * columns + k) * d, d,
                            result.data() + ((b * columns + k) * rows + i) * d);
        }
    }
    return result;
}

// However they spell it, and wherever links lead.
bool same_file(const fs::path& a, const fs::path& b) {
    std::error_code error;
    return fs::equivalent(a, b, error) || fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error);
}

// Throws BadUsage if an output is another, or an input, which it would overwrite.
void keep_apart(const Command& command) {
    const std::vector<std::string> outputs{"--out", "--lse", "--dq", "--dk", "--dv", "--json"};
    std::vector<std::string> others{"--q", "--k", "--v", "--do"};
    for (const std::string& output : outputs) {
        for (const std::string& other : others) {
            if (command.given(output) && command.given(other) &&
                same_file(command.value(output), command.value(other)))
                throw BadUsage(fmt::format("{} and {} name the same file", other, output));
        }
        others.push_back(output);
    }
}

// Throws BadUsage for options of the other pass, or if what the stage computes goes nowhere.
void require_options_of(const Stage& stage, const Command& command) {
    const bool forward = stage.pass == Pass::forward;
    const auto given = [&](const char* option) { return command.given(option); };
    const std::vector<const char*> of_forward{"--out", "--lse"}, of_backward{"--dq", "--dk", "--dv", "--do"};
    for (const char* option : forward ? of_backward : of_forward) {
        if (!given(option)) continue;
        throw BadUsage(forward
                           ? fmt::format("{} is for stages that compute gradients; {} computes O and L",
                                         option, stage.folder())
                           : fmt::format("{} is for stages that compute attention; {} computes dQ, dK and dV",
                                         option, stage.folder()));
    }
    if (forward && !given("--out")) throw BadUsage("--out is required: where O goes");
    if (!forward && !given("--do")) throw BadUsage("--do is required: dO, which gradients are computed from");
    if (!forward && std::none_of(of_backward.begin(), of_backward.begin() + 3, given))
        throw BadUsage("--dq, --dk or --dv is required: where a gradient goes");
}

// O and L of the inputs, as the help has it.
void compute_forward(Device& device, const Case& c, Inputs& inputs) {
    const Stage* stage = device.backend() == Backend::gpu ? last_forward(device, c) : nullptr;
    if (stage == nullptr) return add_forward(c, inputs);
    Case forward = c;
    forward.pass = Pass::forward;
    Outputs outputs = run_stage(device, *stage, forward, inputs);
    inputs.O = std::move(outputs.O);
    inputs.L = std::move(outputs.L);
}

Outputs run_with_progress(Device& device, const Stage& stage, const Case& c, const Inputs& inputs) {
    const ProgressLine progress;
    compile_stages({&stage}, device.backend(), std::cref(progress));
    BlockProgress blocks(progress);
    blocks("run " + stage.folder(), 0, 1);
    return run_stage(device, stage, c, inputs);
}

Printout run(const RunOptions& options) {
    const Stage& stage = select_stage(options.stage);
    const bool forward = stage.pass == Pass::forward;
    require_options_of(stage, options.command);
    if (options.scale && !std::isfinite(*options.scale)) throw BadUsage("--scale must be a finite number");
    keep_apart(options.command);
    const auto output = [](const std::string& path) {
        return path.empty() ? std::nullopt : std::optional<OutputFile>(path);
    };
    const auto lse = output(options.lse);
    const std::map<std::string, std::optional<OutputFile>> files{{"O", output(options.out)},
                                                                 {"dQ", output(options.dQ)},
                                                                 {"dK", output(options.dK)},
                                                                 {"dV", output(options.dV)}};

    const NpyArray q = read_npy(options.q, 4), k = read_npy(options.k, 4), v = read_npy(options.v, 4);
    if (q.type != k.type || q.type != v.type) {
        throw BadUsage(fmt::format("Q is {}, K is {} and V is {}: they must agree", name(q.type),
                                   name(k.type), name(v.type)));
    }
    std::optional<NpyArray> dO;
    if (!forward) {
        dO = read_npy(options.dO, 4);
        if (dO->type != q.type || dO->shape != q.shape) {
            throw BadUsage(fmt::format("dO is {} {} and Q is {} {}: they must agree", name(dO->type),
                                       axes_text(dO->shape), name(q.type), axes_text(q.shape)));
        }
    }
    Case c;
    c.pass = stage.pass;
    c.dtype = options.dtype.value_or(DType::fp16);
    c.layout = options.layout.value_or(Layout::bhnd);
    c.causal = options.causal;
    c.features = options.features;
    c.scale = options.scale;
    c.shape = shape_of(q.shape, k.shape, v.shape, c.layout);
    if (c.dtype == DType::bf16 && q.type == NpyArray::Type::float16) {
        throw BadUsage("--dtype bf16 takes float32 files: float16 values would lose bits");
    }
    require_head_dim(stage, c.shape.d);
    require_taken(stage, c);
    const auto device = options.backend.open();
    require_memory(c.shape, *device, c.pass);
    CpuTime time;
    time.add_run(*device, stage, c.shape);
    if (!forward && device->backend() != Backend::gpu) time.add_reference(c.shape, Pass::forward);
    options.lengthy.require_patience(time);
    const auto stored = [&](const NpyArray& array, const std::string& source) {
        std::vector<std::uint16_t> bits = to_storage(array, c.dtype, source);
        return c.layout == Layout::bnhd ? exchanged(bits, array.shape) : bits;
    };
    Inputs inputs{stored(q, options.q), stored(k, options.k), stored(v, options.v)};
    if (dO) inputs.dO = stored(*dO, options.dO);
    if (const std::string why = device->why_not(stage); !why.empty())
        throw CannotRun(fmt::format("{} cannot run: {}", stage.folder(), why));
    if (!forward) compute_forward(*device, c, inputs);
    const Outputs outputs = run_with_progress(*device, stage, c, inputs);

    std::vector<std::pair<std::string, std::string>> written;
    for (const OutputTensor& tensor : output_tensors(c)) {
        const auto file = files.find(tensor.name);
        if (file == files.end() || !file->second) continue;
        const NpyArray& like = tensor.rows_of == RowsOf::keys ? k : q;
        std::vector<std::uint16_t> bits = outputs.*tensor.elements;
        if (c.layout == Layout::bnhd)
            bits = exchanged(bits, {like.shape[0], like.shape[2], like.shape[1], like.shape[3]});
        file->second->write(format_npy({like.type, like.shape, from_storage(bits, c.dtype, like.type)}));
        written.emplace_back(
            forward ? "out" : tensor.name,
            fmt::format("{}, {} {}", file->second->path().string(), name(like.type), axes_text(like.shape)));
    }
    if (lse) {
        std::string bytes(outputs.L.size() * sizeof(float), '\0');
        std::memcpy(bytes.data(), outputs.L.data(), bytes.size());
        lse->write(
            format_npy({NpyArray::Type::float32, {c.shape.B, c.shape.H, c.shape.Nq}, std::move(bytes)}));
    }
    Printout printout;
    printout.facts = {{"stage", stage.folder()},
                      {"backend", name(device->backend())},
                      {"shape", to_string(c.shape)},
                      {"dtype", name(c.dtype)}};
    for (const auto& [what, file] : written) printout.facts.emplace_back(what, file);
    if (lse) printout.facts.emplace_back("lse", options.lse);
    return printout;
}

}  // namespace

void add_run(CommandLine& lab) {
    add_command<RunOptions>(lab, "run", "Run a stage on tensors from .npy files", run);
}

}  // namespace ladder
