/// @file
/// The program `lab`, as tests call it.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/base/process.h"
#include "harness/device/device.h"
#include "tests/catch.h"
#include "tests/folder.h"

namespace ladder::test {

inline ProcessResult lab(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), LADDER_LAB);
    return run_process(arguments);
}

/// Runs lab and expects the exit code and one line on stderr that contains the words.
inline void expect_failure(const std::vector<std::string>& arguments, int exit_code,
                           const std::string& words) {
    std::string command;
    for (const std::string& argument : arguments) command += " " + argument;
    const ProcessResult result = lab(arguments);
    INFO("lab" << command << "\nsaid: " << result.err);
    CHECK(result.status == exit_code);
    CHECK(result.err.find(words) != std::string::npos);
    CHECK(result.err.find("lab: ") == 0);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

/// What it writes as JSON.
inline nlohmann::json json_of(const Folder& folder, std::vector<std::string> arguments) {
    const std::string file = folder / "out.json";
    arguments.insert(arguments.end(), {"--json", file});
    const ProcessResult result = lab(arguments);
    INFO(result.err);
    REQUIRE(result.status == 0);
    return nlohmann::json::parse(folder.read("out.json"));
}

/// Any back-end of this build, for what does not depend on it.
inline const char* some_backend() {
    for (const Backend backend : {Backend::cpu, Backend::gpu}) {
        if (has_device(backend)) return name(backend);
    }
    return "none";
}

}  // namespace ladder::test
