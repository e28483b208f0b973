#include "course/fence/inspect.h"

#include <fmt/format.h>

#include <sstream>

#include "course/fence/sandbox.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {

std::string inspect(std::vector<std::string> command, const std::filesystem::path& file) {
    Limits limits;
    limits.cpu_s = 10;
    limits.memory = std::size_t{1} << 30;
    limits.confine = Sandbox{.readable = {file}};
    command.push_back(file.string());
    LimitedProcess process(command, limits);
    const std::string how_it_ended = process.wait(20), said = process.output();
    if (how_it_ended == "exit code 127")
        throw CannotRun(
            fmt::format("cannot look into the compiled kernel with {}: install binutils", command.front()));
    if (!how_it_ended.empty() || said.size() >= most_output) {
        throw CheckFailed(
            fmt::format("{} cannot look into the compiled kernel: {}", command.front(),
                        how_it_ended.empty() ? "it has more to say than it may" : how_it_ended));
    }
    return said;
}

std::string source_line(const fs::path& library, const std::string& address) {
    std::string said;
    try {
        said = inspect({"addr2line", "-i", address, "-e"}, library);
    } catch (const CheckFailed&) {  // the address has to do
    }
    std::istringstream frames(said);
    std::string source;
    for (std::string frame; std::getline(frames, frame);) {
        frame = frame.substr(frame.find_last_of('/') + 1);
        frame = frame.substr(0, frame.find(' '));
        // What is inlined comes first.
        if (source.empty() || source.starts_with("device.cuh") || source.starts_with("hopper.cuh") ||
            source.starts_with("cuda.h"))
            source = frame;
    }
    return source.empty() || source.find('?') != source.npos ? "code address " + address : source;
}

}  // namespace ladder
