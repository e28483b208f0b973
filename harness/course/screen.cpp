#include "harness/course/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include "harness/base/process.h"
#include "stages/errors.h"

namespace ladder {
namespace {

bool starts_word(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' ||
           static_cast<unsigned char>(c) >= 128;
}
bool in_word(char c) {
    return starts_word(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

/// The source with comments and the insides of literals blanked out, line by line as it was. Notes raw
/// strings.
std::string blank(const std::string& source) {
    std::string text = source;
    const auto wipe = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < std::min(to, text.size()); ++i) text[i] = text[i] == '\n' ? '\n' : ' ';
    };
    for (std::size_t i = 0; i < source.size();) {
        if (source.compare(i, 2, "//") == 0) {
            const std::size_t end = std::min(source.find('\n', i), source.size());
            wipe(i, end);
            i = end;
        } else if (source.compare(i, 2, "/*") == 0) {
            const std::size_t end = source.find("*/", i + 2);
            const std::size_t after = end == source.npos ? source.size() : end + 2;
            wipe(i, after);
            i = after;
        } else if (source[i] == '"' || (source[i] == '\'' && (i == 0 || !in_word(source[i - 1])))) {
            const char quote = source[i];
            std::size_t end = i + 1;
            while (end < source.size() && source[end] != quote && source[end] != '\n')
                end += source[end] == '\\' ? 2 : 1;
            wipe(i + 1, end);
            i = std::min(end + 1, source.size());
        } else {
            ++i;
        }
    }
    return text;
}

// Double underscores are the compiler's and the system's. These are CUDA's.
const std::set<std::string, std::less<>> cuda_words{
    "__global__",  "__device__",      "__host__",       "__forceinline__",  "__launch_bounds__",
    "__shared__",  "__restrict__",    "__syncthreads",  "__syncwarp",       "__any_sync",
    "__shfl_sync", "__shfl_xor_sync", "__shfl_up_sync", "__shfl_down_sync", "__threadfence"};

const std::set<std::string, std::less<>> forbidden_words{
    "asm",   "extern",    "import",         "module", "export",  "simt",
    "Eigen", "reference", "register_stage", "goto",   "_Pragma", "main"};

/// Preprocessor directives: the one include, and #pragma unroll.
void screen_directive(const std::string& original, const std::string& line, int number,
                      std::vector<std::string>& found) {
    static const std::regex unroll(R"(^\s*#\s*pragma\s+unroll(\s+\d+|\s*\(\s*\d+\s*\))?\s*$)"),
        include(R"(^\s*#\s*include\s*"stages/device\.cuh"\s*(//.*)?$)");
    if (std::regex_match(line, unroll) || std::regex_match(original, include)) return;
    const std::size_t end = line.find_last_not_of(" \r");
    found.push_back(
        fmt::format("line {}: '{}': a kernel includes stages/device.cuh and has #pragma unroll, no other "
                    "line that starts with #",
                    number, original.substr(0, std::min<std::size_t>(end + 1, 60))));
}

}  // namespace

std::vector<std::string> screen_source(const std::string& source) {
    std::vector<std::string> found;
    if (source.find('\0') != source.npos) found.emplace_back("it is not text");
    if (source.find("R\"") != source.npos) found.emplace_back("a raw string: kernels need none");
    if (source.find("\\\n") != source.npos || source.find("\\\r\n") != source.npos)
        found.emplace_back("a line that ends with \\: kernels need none");
    if (source.find("%:") != source.npos || source.find("\\u") != source.npos)
        found.emplace_back("digraphs or \\u: kernels need none");
    if (!found.empty()) return found;

    std::istringstream lines(blank(source)), originals(source);
    int number = 0;
    std::string previous;  // word
    for (std::string line, original; std::getline(lines, line) && std::getline(originals, original);) {
        number += 1;
        const std::size_t first = line.find_first_not_of(" \t\r");
        if (first != line.npos && line[first] == '#') {
            screen_directive(original, line, number, found);
            continue;
        }
        for (std::size_t i = 0; i < line.size();) {
            if (line.compare(i, 2, "[[") == 0 && line.compare(i, 16, "[[maybe_unused]]") != 0)
                found.push_back(fmt::format("line {}: an attribute other than [[maybe_unused]]", number));
            if (previous == "namespace" && line[i] == '{') previous.clear();
            if (!starts_word(line[i])) {
                i += 1;
                continue;
            }
            std::size_t end = i;
            while (end < line.size() && in_word(line[end])) ++end;
            const std::string word = line.substr(i, end - i);
            i = end;
            const bool reserved = word.find("__") != word.npos && !cuda_words.contains(word);
            if (reserved || forbidden_words.contains(word))
                found.push_back(fmt::format("line {}: '{}': kernels do not need it", number, word));
            if (previous == "namespace" && word != "ladder") {
                found.push_back(
                    fmt::format("line {}: 'namespace {}': all of a kernel is in the namespace without a "
                                "name",
                                number, word));
            }
            previous = word;
        }
    }
    return found;
}

std::vector<std::string> screen_objects(const std::vector<std::filesystem::path>& objects, Backend backend) {
    // What the CUDA layer calls, what the compiler calls by itself, and arithmetic.
    static const std::regex used(
        R"((void |unsigned int )?simt::((mma|pack)<.*|(sync_block|sync_warp|fence|store|load|shuffle|any|atomic_inc|shared_memory)\(.*)"
        R"(|(copy_\w+|mbarrier_\w+|note_\w+|ldmatrix|exp2|divide|lane|launch)\(.*|builtins))"
        R"(|(TLS (init|wrapper) function for|thread-local (initialization|wrapper) routine for) simt::builtins)"
        R"(|ladder::register_stage\(.*|operator (new|delete)(\[\])?\(.*|(typeinfo|vtable|typeinfo name) for .*)"
        R"(|(log2|exp2|log|exp|fmax|fmin|fabs|sqrt|pow|floor|ceil|round|rint|fma|ldexp|frexp|sin|cos|tanh|erf)f?)"
        R"(|mem(cpy|set|move|cmp)|strlen|std::__throw_.*|std::terminate\(\)|std::(runtime_error|logic_error|exception|bad_.*)::.*)"
        R"(|__tsan_.*|__cxa_.*|__gxx_personality_v0|_Unwind_Resume|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)"
        R"(|__dso_handle|__tls_get_addr|std::__cxx11::basic_string<char.*)");
    // What the CUDA layer calls under nvcc, and what nvcc calls by itself.
    static const std::regex used_with_cuda(
        R"(cuda(DeviceGetAttribute|FuncSetAttribute|GetDevice|GetErrorString|LaunchKernel(ExC)?))"
        R"(|__cuda\w+|exit|atexit)");
    const bool gpu = backend == Backend::gpu;
    // Templates and inline functions of the headers. Sources cannot open their namespaces.
    static const std::regex defined(
        R"(.*\b(simt|ladder|std|Eigen|__gnu_cxx)::.*|DW\.ref\..*|__clang_call_terminate|operator .*|min\(int, int\)|max\(int, int\)|__.*)");
    std::vector<std::string> found;
    for (const auto& object : objects) {
        const ProcessResult symbols = run_process({"nm", "--demangle", "--format=posix", object.string()});
        if (symbols.status != 0)
            throw CannotRun("cannot look into the compiled kernel with nm: install binutils");
        std::istringstream lines(symbols.out);
        for (std::string line; std::getline(lines, line);) {
            // "name with spaces T value size"; undefined ones may have neither value nor size
            static const std::regex form(R"(^(.*) ([A-Za-z?])( +[0-9a-f]*)?( +[0-9a-f]*)? *$)");
            std::smatch match;
            if (!std::regex_match(line, match, form)) continue;
            const std::string name = match[1], kind = match[2];
            std::string problem;
            if (kind == "U" || kind == "w" || kind == "v") {
                if (!std::regex_match(name, used) && !(gpu && std::regex_match(name, used_with_cuda)))
                    problem = fmt::format("it uses {}, which is not of the CUDA layer", name);
            } else if (!gpu && (std::isupper(static_cast<unsigned char>(kind[0])) != 0 || kind == "u" ||
                                kind == "i")) {
                if ((kind != "W" && kind != "V" && kind != "u") || !std::regex_match(name, defined))
                    problem = fmt::format(
                        "it defines {} for others: all of a kernel is in the namespace without a name", name);
            }
            if (!problem.empty() && std::find(found.begin(), found.end(), problem) == found.end())
                found.push_back(problem);
        }
    }
    return found;
}

}  // namespace ladder
