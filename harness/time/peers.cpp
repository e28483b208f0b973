#include "harness/time/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/features/features.h"
#include "harness/problem/shape.h"
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
    all.insert(all.end(), {"FlashAttention-3-FP8", "FlashAttention-4-deterministic", "cuDNN-FP8"});
    std::istringstream parts(words + ",");
    for (std::string word; std::getline(parts, word, ',');) {
        if (std::find(all.begin(), all.end(), word) == all.end())
            throw BadUsage(fmt::format("unknown peer '{}': there are {}", word, fmt::join(all, ", ")));
        names.push_back(word);
    }
    return names;
}

std::vector<std::string> Peers::command() {
    return python_command("harness/time/peers.py");
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
    nlohmann::json request{{"do", "prepare"},    {"B", s.B},
                           {"H", s.H},           {"Hkv", s.Hkv},
                           {"Nq", s.Nq},         {"Nk", s.Nk},
                           {"d", s.d},           {"dtype", name(c.dtype)},
                           {"causal", c.causal}, {"pass", name(c.pass)},
                           {"peers", names},     {"features", nlohmann::json::object()}};
    for (const FeatureInfo* info : in_use_of(c.features)) {
        if (info->tell_peers != nullptr) info->tell_peers(c, request["features"]);
    }
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
