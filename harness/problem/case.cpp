#include "harness/problem/case.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

#include "harness/problem/inputs.h"
#include "harness/problem/shape.h"
#include "stages/errors.h"

namespace ladder {
namespace {

template <class T>
T number_in(const std::string& word) {
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
        throw BadUsage(fmt::format("'{}' is not a number", word));
    return value;
}

}  // namespace

const char* name(Layout layout) {
    return layout == Layout::bhnd ? "bhnd" : "bnhd";
}

View make_view(void* data, Layout layout, int heads, int N, int d) {
    const std::int64_t batch = std::int64_t{heads} * N * d;
    if (layout == Layout::bhnd) return {data, batch, std::int64_t{N} * d, d};
    return {data, batch, d, std::int64_t{heads} * d};
}

float Case::softmax_scale() const {
    return scale.value_or(1.0f / std::sqrt(static_cast<float>(shape.d)));
}

std::string Case::description() const {
    const Shape& s = shape;
    std::string text = fmt::format("B={} H={} Hkv={} Nq={} Nk={} d={} {}{}{} {} {}", s.B, s.H, s.Hkv, s.Nq,
                                   s.Nk, s.d, name(dtype), pass == Pass::backward ? " backward" : "",
                                   causal ? " causal" : "", name(layout), input);
    if (scale) text += fmt::format(" scale={}", *scale);
    if (seed != 1) text += fmt::format(" seed={}", seed);
    if (multiprocessors != 0) text += fmt::format(" sms={}", multiprocessors);
    return text;
}

std::string Case::options() const {
    const Shape& s = shape;
    std::string text = fmt::format("--shape {},{},{},{},{},{}", s.B, s.H, s.Hkv, s.Nq, s.Nk, s.d);
    const Case plain;
    if (causal) text += " --causal";
    if (dtype != plain.dtype) text += fmt::format(" --dtype {}", name(dtype));
    if (layout != plain.layout) text += fmt::format(" --layout {}", name(layout));
    if (input != plain.input) text += " --input " + input;
    if (seed != plain.seed) text += fmt::format(" --seed {}", seed);
    if (scale) text += fmt::format(" --scale {}", *scale);
    if (multiprocessors != 0) text += fmt::format(" --sms {}", multiprocessors);
    return text;
}

Case parse_case(const std::string& options) {
    Case c;
    bool has_shape = false;
    const std::map<std::string, DType> dtypes{{"fp16", DType::fp16}, {"bf16", DType::bf16}};
    const std::map<std::string, Layout> layouts{{"bhnd", Layout::bhnd}, {"bnhd", Layout::bnhd}};
    std::map<std::string, std::string> inputs;
    for (const InputKind& kind : input_kinds()) inputs[kind.name] = kind.name;
    std::istringstream words(options);
    for (std::string option, value; words >> option;) {
        if (option == "--causal") {
            c.causal = true;
            continue;
        }
        if (!(words >> value)) throw BadUsage(fmt::format("{} has no value", option));
        const auto one_of = [&](const auto& choices) {
            const auto found = choices.find(value);
            if (found == choices.end()) throw BadUsage(fmt::format("there is no {} {}", option, value));
            return found->second;
        };
        if (option == "--shape") {
            c.shape = parse_shape(value);
            has_shape = true;
        } else if (option == "--dtype") {
            c.dtype = one_of(dtypes);
        } else if (option == "--layout") {
            c.layout = one_of(layouts);
        } else if (option == "--input") {
            c.input = one_of(inputs);
        } else if (option == "--seed") {
            c.seed = number_in<std::uint64_t>(value);
        } else if (option == "--scale") {
            c.scale = number_in<float>(value);
        } else if (option == "--sms") {
            c.multiprocessors = number_in<int>(value);
        } else {
            throw BadUsage(fmt::format("a case has no {}", option));
        }
    }
    if (!has_shape) throw BadUsage("the case has no --shape");
    return c;
}

Problem make_problem(const Case& c, const Addresses& at) {
    const Shape& s = c.shape;
    Problem problem;
    static_cast<Shape&>(problem) = s;
    const auto of_queries = [&](void* data) { return make_view(data, c.layout, s.H, s.Nq, s.d); };
    const auto of_keys = [&](void* data) { return make_view(data, c.layout, s.Hkv, s.Nk, s.d); };
    problem.Q = of_queries(at.Q);
    problem.K = of_keys(at.K);
    problem.V = of_keys(at.V);
    problem.O = of_queries(at.O);
    problem.L = at.L;
    if (c.pass == Pass::backward) {
        problem.dO = of_queries(at.dO);
        problem.dQ = of_queries(at.dQ);
        problem.dK = of_keys(at.dK);
        problem.dV = of_keys(at.dV);
    }
    problem.scale = c.softmax_scale();
    problem.causal = c.causal;
    problem.dtype = c.dtype;
    return problem;
}

}  // namespace ladder
