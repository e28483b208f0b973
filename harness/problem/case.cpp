#include "harness/problem/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <sstream>

#include "harness/problem/cache.h"
#include "harness/problem/columns.h"
#include "harness/problem/documents.h"
#include "harness/problem/inputs.h"
#include "harness/problem/shape.h"
#include "harness/problem/tiles.h"
#include "stages/errors.h"

namespace ladder {
namespace {

/// How Layout::mixed has a tensor: the order of its axes, and how many columns more the tensor has that it is
/// a slice of. Each has an order or a slice that its neighbours have not.
struct Mixed {
    Layout order;
    int more_columns;
};
constexpr Mixed mixed[] = {
    {Layout::bhnd, 8},   // Q
    {Layout::bhnd, 0},   // K
    {Layout::bnhd, 0},   // V
    {Layout::bnhd, 16},  // O
    {Layout::bhnd, 24},  // dO
    {Layout::bnhd, 8},   // dQ
    {Layout::bhnd, 16},  // dK
    {Layout::bnhd, 24},  // dV
};

}  // namespace

const std::map<std::string, Layout>& layouts() {
    static const std::map<std::string, Layout> all{
        {"bhnd", Layout::bhnd}, {"bnhd", Layout::bnhd}, {"mixed", Layout::mixed}, {"far", Layout::far}};
    return all;
}

const char* name(Layout layout) {
    for (const auto& [name, known] : layouts()) {
        if (known == layout) return name.c_str();
    }
    return "?";
}

View dense_view(void* data, int heads, int N, int d) {
    return {data, std::int64_t{heads} * N * d, std::int64_t{N} * d, d};
}

Placement placement(const Case& c, Tensor tensor) {
    const Shape& s = c.shape;
    const bool of_keys =
        tensor == Tensor::K || tensor == Tensor::V || tensor == Tensor::dK || tensor == Tensor::dV;
    Placement p{s.B, of_keys ? s.Hkv : s.H, of_keys ? s.Nk : s.Nq, s.d, 0, 0, 0};
    if (c.layout == Layout::far) {
        // The offset of a row passes 2^31 after 256 rows, one head or one batch entry. No two rows meet:
        // those of each head begin at another place between multiples of p.row.
        constexpr std::int64_t place = 4096;
        p.row = static_cast<std::int64_t>(
            std::bit_ceil(std::max<std::uint64_t>(1 << 23, std::uint64_t(place) * s.B * p.heads)));
        p.head = (std::int64_t{1} << 31) + place;
        p.batch = (std::int64_t{1} << 31) + place * p.heads;
        return p;
    }
    if (of_keys && c.features.page_size > 0) {
        p.B = pool_pages(c);
        p.N = c.features.page_size;
    }
    const Mixed how = c.layout == Layout::mixed ? mixed[static_cast<int>(tensor)] : Mixed{c.layout, 0};
    const std::int64_t row = s.d + how.more_columns;
    // Pages hold their keys one after the other, each with all its heads, as caches do.
    const bool heads_first =
        how.order == Layout::bhnd && !(of_keys && c.features.page_size > 0 && c.layout != Layout::mixed);
    p.batch = row * p.heads * p.N;
    p.head = heads_first ? row * p.N : row;
    p.row = heads_first ? row : row * p.heads;
    return p;
}

float Case::softmax_scale() const {
    return scale.value_or(1.0f / std::sqrt(static_cast<float>(shape.d)));
}

std::string Case::description() const {
    const Shape& s = shape;
    std::string text = fmt::format("B={} H={} Hkv={} Nq={} Nk={} d={} {}{}{} {} {}", s.B, s.H, s.Hkv, s.Nq,
                                   s.Nk, s.d, name(dtype), pass == Pass::backward ? " backward" : "",
                                   causal ? " causal" : "", name(layout), input);
    text += in_words(features);
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
    for (const std::string& word : options_of(features)) text += " " + word;
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
        const auto form = std::find_if(feature_forms().begin(), feature_forms().end(),
                                       [&](const FeatureForm& known) { return known.option == option; });
        if (form != feature_forms().end()) {
            form->read(c.features, value);
        } else if (option == "--shape") {
            c.shape = parse_shape(value);
            has_shape = true;
        } else if (option == "--dtype") {
            c.dtype = one_of(dtypes);
        } else if (option == "--layout") {
            c.layout = one_of(layouts());
        } else if (option == "--input") {
            c.input = one_of(inputs);
        } else if (option == "--seed") {
            c.seed = number_in<std::uint64_t>(value);
        } else if (option == "--scale") {
            c.scale = number_in<float>(value);
        } else if (option == "--sms") {
            c.multiprocessors = number_in<int>(value);
            if (c.multiprocessors < 1 || c.multiprocessors > most_multiprocessors)
                throw BadUsage(fmt::format("--sms is from 1 to {}", most_multiprocessors));
        } else {
            throw BadUsage(fmt::format("a case has no {}", option));
        }
    }
    if (!has_shape) throw BadUsage("the case has no --shape");
    require_documents(c);
    require_tiles(c);
    require_cache(c);
    return c;
}

bool takes(const Stage& stage, Feature feature) {
    return std::find(stage.takes.begin(), stage.takes.end(), feature) != stage.takes.end();
}

std::string why_not_taken(const Stage& stage, const Case& c) {
    for (const Feature feature : features_of(c.features)) {
        if (!takes(stage, feature)) return fmt::format("{} does not take {}", stage.folder(), name(feature));
    }
    if (c.features.ranks == 1) return "";
    const auto [Nq, Nk] = std::pair(c.shape.Nq, c.shape.Nk);
    if (c.layout != Layout::bhnd)
        return fmt::format("{} takes K and V in one piece on several ranks: --layout bhnd", stage.folder());
    if (c.causal && Nq != Nk && stage.divides_rows) {
        return fmt::format("{} takes a causal mask on several ranks for as many keys as query rows alone",
                           stage.folder());
    }
    const int chunks = stage.chunks * c.features.ranks, rows = stage.divides_rows ? std::min(Nq, Nk) : Nk;
    if (rows < chunks) {
        return fmt::format("{} cuts a sequence for {} ranks into {} chunks: {} {} are too few",
                           stage.folder(), c.features.ranks, chunks, rows,
                           stage.divides_rows ? "rows" : "keys");
    }
    return "";
}

void require_taken(const Stage& stage, const Case& c) {
    if (const std::string why_not = why_not_taken(stage, c); !why_not.empty()) throw BadUsage(why_not);
}

Problem make_problem(const Case& c, const Addresses& at) {
    const Shape& s = c.shape;
    Problem problem;
    static_cast<Shape&>(problem) = s;
    const auto view = [&](Tensor tensor, void* data) { return placement(c, tensor).at(data); };
    problem.Q = view(Tensor::Q, at.Q);
    problem.K = view(Tensor::K, at.K);
    problem.V = view(Tensor::V, at.V);
    problem.O = view(Tensor::O, at.O);
    problem.L = static_cast<float*>(at.L);
    if (c.pass == Pass::backward) {
        problem.dO = view(Tensor::dO, at.dO);
        problem.dQ = view(Tensor::dQ, at.dQ);
        problem.dK = view(Tensor::dK, at.dK);
        problem.dV = view(Tensor::dV, at.dV);
    }
    problem.scale = c.softmax_scale();
    problem.causal = c.causal;
    problem.window = c.features.window;
    if (!c.features.columns.empty()) {
        const ColumnPattern& pattern = column_pattern(c.features.columns);
        problem.columns = {static_cast<const int*>(at.columns), pattern.heads(s), pattern.bounds(c)};
    }
    if (const auto count = static_cast<int>(documents_of(c).size()); count > 0) {
        const int* bounds = static_cast<const int*>(at.documents);
        problem.documents = {bounds, bounds + count + 1, count};
    }
    problem.tiles = tile_lists(c, at.tiles);
    problem.dropout = c.features.dropout;
    if (!c.features.lengths.empty()) problem.lengths = static_cast<const int*>(at.lengths);
    if (c.features.page_size != 0) {
        problem.block_table = static_cast<const int*>(at.block_table);
        problem.page_size = c.features.page_size;
        problem.prefix = c.features.prefix;
    }
    problem.dtype = c.dtype;
    return problem;
}

}  // namespace ladder
