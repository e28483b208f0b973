#include "harness/time/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/built.h"
#include "harness/problem/cache.h"
#include "harness/problem/columns.h"
#include "harness/problem/documents.h"
#include "harness/problem/shape.h"
#include "harness/problem/tiles.h"
#include "stages/errors.h"

namespace ladder {
namespace {

// One answer, read by `read`. The program may report an error instead, or break the protocol.
template <class F>
auto answer(Coprocess& program, double limit_s, F read) {
    const std::string line = program.read_line(limit_s);
    try {
        const auto json = nlohmann::json::parse(line);
        if (json.contains("error")) throw CannotRun("peers: " + json.at("error").get<std::string>());
        return read(json);
    } catch (const nlohmann::json::exception&) {
        throw CannotRun(fmt::format("peers: no answer but '{:.80}'", line));
    }
}

/// LTS, LTE, UTS and UTE of each key, which are those of all heads.
nlohmann::json bounds_of_a_head(const Case& c) {
    auto bounds = nlohmann::json::array();
    for (const auto& [begin, end] : hidden_rows(c, 0, 0))
        bounds.push_back({begin[0], end[0], begin[1], end[1]});
    return bounds;
}

/// The kind of each tile, row by row of tiles, and the words of partial ones as halves of 32 bits; of all
/// heads.
nlohmann::json tiles_of_a_head(const Case& c) {
    const reference::Tiles tiles = tiles_of(c, 0, 0);
    auto halves = nlohmann::json::array();
    for (const std::uint64_t word : tiles.bits) halves.push_back({word & 0xffffffff, word >> 32});
    return {{"kinds", tiles.kinds}, {"bits", halves}};
}

}  // namespace

const std::vector<std::string>& Peers::usual() {
    static const std::vector<std::string> list{"FlashAttention-2", "cuDNN", "FlashAttention-3",
                                               "FlashAttention-4", slow};
    return list;
}

const std::vector<std::string>& Peers::further() {
    static const std::vector<std::string> list{"efficient", "flex", "FlashInfer"};
    return list;
}

std::vector<std::string> Peers::named(const std::string& words, const std::vector<std::string>& usual) {
    std::vector<std::string> all = words == "all" ? usual : Peers::usual(), names;
    all.insert(all.end(), further().begin(), further().end());
    if (words == "all") return all;
    all.push_back("FlashAttention-3-FP8");
    std::istringstream parts(words + ",");
    for (std::string word; std::getline(parts, word, ',');) {
        if (std::find(all.begin(), all.end(), word) == all.end())
            throw BadUsage(fmt::format("unknown peer '{}': there are {}", word, fmt::join(all, ", ")));
        names.push_back(word);
    }
    return names;
}

std::vector<std::string> Peers::command() {
    const char* python = std::getenv("LADDER_PYTHON");
    return {python != nullptr && *python != '\0' ? python : "python3",
            built_from + std::string("/harness/time/peers.py")};
}

Peers::Peers(const std::vector<std::string>& command, double limit_s) : program_(command), limit_s_(limit_s) {
    answer(program_, limit_s_, [&](const nlohmann::json& hello) {
        hello.at("device").get_to(device_);
        hello.at("libraries").get_to(libraries_);
        if (hello.contains("missing")) hello.at("missing").get_to(missing_);
    });
}

std::vector<std::string> Peers::prepare(const Case& c, const std::vector<std::string>& names) {
    const Shape& s = c.shape;
    nlohmann::json request{{"do", "prepare"},
                           {"B", s.B},
                           {"H", s.H},
                           {"Hkv", s.Hkv},
                           {"Nq", s.Nq},
                           {"Nk", s.Nk},
                           {"d", s.d},
                           {"dtype", name(c.dtype)},
                           {"causal", c.causal},
                           {"pass", name(c.pass)},
                           {"window", {c.features.window.left, c.features.window.right}},
                           {"peers", names}};
    if (!c.features.documents.empty()) request["documents"] = document_bounds(c);
    if (!c.features.lengths.empty()) request["lengths"] = lengths_of(c);
    if (c.features.page_size != 0) request["page_size"] = c.features.page_size;
    if (c.features.prefix != 0) request["prefix"] = c.features.prefix;
    if (!c.features.columns.empty()) request["columns"] = bounds_of_a_head(c);
    if (!c.features.tiles.empty()) request["tiles"] = tiles_of_a_head(c);
    if (c.features.dropout != Dropout()) request["dropout"] = (256 - c.features.dropout.kept) / 256.0;
    program_.write_line(request.dump());
    return answer(program_, limit_s_, [&](const nlohmann::json& json) {
        std::vector<std::string> why_not;
        for (const std::string& name : names) why_not.push_back(json.at("why_not").at(name));
        return why_not;
    });
}

double Peers::time(const std::string& name) {
    program_.write_line(nlohmann::json{{"do", "time"}, {"peer", name}}.dump());
    return answer(program_, limit_s_, [&](const nlohmann::json& json) {
        const double milliseconds = json.at("milliseconds");
        if (!(milliseconds > 0)) throw CannotRun(fmt::format("peers: {} took {} ms", name, milliseconds));
        return milliseconds;
    });
}

void Peers::release() {
    program_.write_line(nlohmann::json{{"do", "release"}}.dump());
    answer(program_, limit_s_, [](const nlohmann::json&) {});
}

}  // namespace ladder
