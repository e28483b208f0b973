#include "course/fence/screen.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>

#include "course/fence/inspect.h"
#include "course/fence/tokens.h"
#include "harness/base/built.h"
#include "harness/base/file.h"
#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

using Words = std::set<std::string, std::less<>>;

constexpr std::size_t most_found = 20;

// --- What they say
// -------------------------------------------------------------------------------------------------

// Double underscores are the compiler's and the system's. These are CUDA's.
const Words cuda_words{"__global__",        "__device__",     "__host__",          "__forceinline__",
                       "__launch_bounds__", "__shared__",     "__restrict__",      "__syncthreads",
                       "__syncwarp",        "__any_sync",     "__ballot_sync",     "__ffs",
                       "__popcll",          "__byte_perm",    "__grid_constant__", "__shfl_sync",
                       "__shfl_xor_sync",   "__shfl_up_sync", "__shfl_down_sync",  "__threadfence"};

// The last ones would tell a kernel whether it is being checked. No stage's kernel asks.
const Words forbidden_words{"asm",       "extern",         "import",    "module",         "export",
                            "simt",      "Eigen",          "reference", "register_stage", "goto",
                            "main",      "backend",        "Backend",   "LADDER_BACKEND", "typeid",
                            "type_info", "source_location"};

/// Reads the tokens from the first to the last.
class Screen {
  public:
    explicit Screen(const std::vector<Token>& tokens) : tokens_(tokens) {}

    std::vector<std::string> found() {
        while (at_ < tokens_.size()) {
            if (is("#")) {
                directive();
            } else {
                token();
                at_ += 1;
            }
        }
        return std::move(found_);
    }

  private:
    std::string_view text(std::size_t ahead = 0) const {
        return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : std::string_view();
    }
    bool is(std::string_view mark, std::size_t ahead = 0) const { return text(ahead) == mark; }
    void refuse(const std::string& what) {
        if (found_.size() < most_found) found_.push_back(fmt::format("line {}: {}", tokens_[at_].line, what));
    }

    /// The one include, and #pragma unroll. Comments are gone.
    void directive() {
        const int line = tokens_[at_].line;
        const bool first = tokens_[at_].first;
        std::string whole;
        std::size_t end = at_;
        for (; end < tokens_.size() && tokens_[end].line == line; ++end) {
            whole += whole.size() > 1 ? " " : "";
            whole += tokens_[end].text;
        }
        const std::size_t words = end - at_;
        const bool include = whole == "#include \"stages/device.cuh\"" ||
                             whole == "#include \"stages/hopper.cuh\"" ||
                             whole == "#include \"stages/ring.h\"";
        const bool count = words == 4 && tokens_[at_ + 3].kind == Token::Kind::number;
        const bool count_in_brackets =
            words == 6 && is("(", 3) && tokens_[at_ + 4].kind == Token::Kind::number && is(")", 5);
        const bool unroll = is("pragma", 1) && is("unroll", 2) && (words == 3 || count || count_in_brackets);
        if (!first || (!include && !unroll)) {
            refuse(
                fmt::format("'{}': a kernel includes stages/device.cuh or hopper.cuh, and ring.h, and has "
                            "#pragma unroll, "
                            "no other line that starts with #",
                            whole.substr(0, 60)));
        }
        at_ = end;
    }

    void token() {
        const Token& token = tokens_[at_];
        if (depth_ == 0 && !opens_namespace()) {
            if (!said_outside_) refuse("outside of the unnamed namespace, which holds all of a kernel");
            said_outside_ = true;
        }
        if (token.text == "{") depth_ += 1;
        if (token.text == "}") depth_ -= depth_ > 0;
        const bool harmless = is("maybe_unused", 2) || is("no_unique_address", 2);
        if (is("[") && is("[", 1) && !(harmless && is("]", 3) && is("]", 4)))
            refuse("an attribute other than [[maybe_unused]] and [[no_unique_address]]");
        if (token.kind != Token::Kind::word) return;
        const std::string word(token.text);
        const bool reserved =
            (word.find("__") != word.npos && !cuda_words.contains(word)) ||
            (word.size() > 1 && word[0] == '_' && std::isupper(static_cast<unsigned char>(word[1])) != 0);
        if (reserved || forbidden_words.contains(word))
            refuse(fmt::format("'{}': kernels do not need it", word));
        const bool used = at_ > 0 && tokens_[at_ - 1].text == "using" && is("ladder", 1) && is(";", 2);
        if (word == "namespace" && depth_ > 0 && !used)
            refuse(fmt::format("'namespace {}': the unnamed namespace holds all of a kernel", text(1)));
    }

    /// Whether it is part of `namespace {`, which is all that there may be outside of braces.
    bool opens_namespace() const {
        if (is("namespace")) return is("{", 1);
        return is("{") && at_ > 0 && tokens_[at_ - 1].text == "namespace";
    }

    const std::vector<Token>& tokens_;
    std::size_t at_ = 0;
    int depth_ = 0;
    bool said_outside_ = false;
    std::vector<std::string> found_;
};

/// What nvcc refuses in a kernel and a C++ compiler does not: functions without __device__, and what needs
/// the host's library or its exceptions.
std::vector<std::string> hosts_own_in_kernels(const std::vector<Token>& tokens) {
    static const Words of_the_host{"throw",    "try",        "catch",      "typeid",      "dynamic_cast",
                                   "string",   "to_string",  "vector",     "map",         "set",
                                   "function", "unique_ptr", "shared_ptr", "make_unique", "make_shared"};
    const std::vector<SourceFunction> functions = functions_of(tokens);
    Words host, device;
    for (const SourceFunction& f : functions)
        (f.on_device || f.anywhere ? device : host).insert(std::string(f.name));
    std::vector<std::string> found;
    for (const SourceFunction& f : functions) {
        if (!f.on_device) continue;
        for (std::size_t i = f.begin + 2; i + 1 < f.end && found.size() < most_found; ++i) {
            const std::string word(tokens[i].text);
            const std::string_view after = tokens[i + 1].text, before = tokens[i - 1].text;
            const bool is_scoped = before == ":" && tokens[i - 2].text == ":" && i > 2 &&
                                   tokens[i - 3].kind == Token::Kind::word,
                       is_member = before == "." || (before == ">" && tokens[i - 2].text == "-");
            const bool of_std = is_scoped && tokens[i - 3].text == "std";
            const bool is_keyword = word == "throw" || word == "try" || word == "catch" || word == "typeid" ||
                                    word == "dynamic_cast";
            if (of_the_host.contains(word) && (of_std || is_keyword)) {
                found.push_back(
                    fmt::format("line {}: '{}' in {}(): no GPU has it", tokens[i].line, word, f.name));
            } else if (host.contains(word) && !device.contains(word) && (after == "(" || after == "<") &&
                       !is_scoped && !is_member) {
                found.push_back(
                    fmt::format("line {}: {}() in {}(): it has no __device__, and nvcc refuses it",
                                tokens[i].line, word, f.name));
            }
        }
    }
    return found;
}

// --- What was compiled
// ---------------------------------------------------------------------------------------------

/// For people, if it is no attack on the demangler.
std::string demangled(const std::string& symbol) {
    if (symbol.size() > 1000) return symbol.substr(0, 60) + "...";
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), &std::free);
    return name ? name.get() : symbol;
}

struct Symbol {
    std::string name;
    char kind;  ///< as nm has it
};

std::vector<Symbol> symbols(const fs::path& file, const std::vector<std::string>& options) {
    std::vector<std::string> command{"nm", "--format=posix", "--no-demangle"};
    command.insert(command.end(), options.begin(), options.end());
    std::istringstream lines(inspect(command, file));
    std::vector<Symbol> list;
    for (std::string line; std::getline(lines, line);) {  // "name kind value size"
        std::istringstream words(line);
        Symbol symbol;
        if (words >> symbol.name >> symbol.kind) list.push_back(std::move(symbol));
    }
    return list;
}

/// What the CUDA layer calls: all that the program which runs kernels has for them.
const Words& names_of_the_runner() {
    static const Words names = [] {
        Words all;
        for (const Symbol& symbol :
             symbols(built_in + std::string("/runner"), {"--dynamic", "--defined-only"})) {
            for (const char* of_the_layer : {"_ZN4simt", "_ZN6ladder", "__tsan_", "__sanitizer_cov_"})
                if (symbol.name.starts_with(of_the_layer)) all.insert(symbol.name);
        }
        return all;
    }();
    return names;
}

/// What the compiler calls by itself, exceptions, and arithmetic that is not counted.
bool is_of_the_language(std::string_view name) {
    static const Words whole{"memcpy",
                             "memset",
                             "memmove",
                             "memcmp",
                             "strlen",
                             "_Unwind_Resume",
                             "__gxx_personality_v0",
                             "__gcc_personality_v0",
                             "_GLOBAL_OFFSET_TABLE_",
                             "__stack_chk_fail",
                             "__dso_handle",
                             "__tls_get_addr",
                             "_ZSt9terminatev",
                             "__errno_location"};
    static const Words arithmetic{"log2",  "log",  "fmax",      "fmin",  "fabs", "sqrt",  "floor", "ceil",
                                  "round", "rint", "nearbyint", "trunc", "fma",  "ldexp", "frexp"};
    if (whole.contains(name)) return true;
    if (arithmetic.contains(name) ||
        (name.ends_with("f") && arithmetic.contains(name.substr(0, name.size() - 1))))
        return true;
    // new and delete; type information; exceptions and texts of the standard library
    for (const char* prefix :
         {"_Znw", "_Zna", "_Zdl", "_Zda", "_ZTI", "_ZTS", "_ZTV", "_ZTH", "_ZTW", "__cxa_", "__tsan_",
          "_ZNSt7__cxx1112basic_stringIc", "_ZNKSt7__cxx1112basic_stringIc"})
        if (name.starts_with(prefix)) return true;
    if (name.starts_with("_ZSt") && name.find("__throw_") != name.npos && name.size() < 60) return true;
    for (const char* scope : {"_ZNSt", "_ZNKSt"}) {
        if (!name.starts_with(scope)) continue;
        std::string_view rest = name.substr(std::string_view(scope).size());
        rest.remove_prefix(std::min(rest.find_first_not_of("0123456789"), rest.size()));
        for (const char* type :
             {"runtime_error", "logic_error", "exception", "bad_", "length_error", "out_of_range"})
            if (rest.starts_with(type)) return true;
    }
    return false;
}

/// What the CUDA layer calls under nvcc, and what nvcc calls by itself.
bool is_of_cuda(std::string_view name) {
    static const Words whole{"cudaDeviceGetAttribute",
                             "cudaFuncSetAttribute",
                             "cudaGetDevice",
                             "cudaGetErrorString",
                             "cudaLaunchKernel",
                             "cudaLaunchKernelExC",
                             "exit",
                             "atexit",
                             "_ZN6ladder13launch_streamEv",
                             "_ZN6ladder14register_stageERKNS_5StageE"};
    return whole.contains(name) || name.starts_with("__cuda");
}

std::string problem_of(const Symbol& symbol, Backend backend) {
    const auto& [name, kind] = symbol;
    if (kind == 'U' || kind == 'w' || kind == 'v') {
        const bool of_the_layer =
            backend == Backend::gpu ? is_of_cuda(name) : names_of_the_runner().contains(name);
        if (of_the_layer || is_of_the_language(name)) return "";
        const std::string shown = demangled(name);
        const bool is_exponential = shown.find("exp") != shown.npos || shown.starts_with("pow");
        return fmt::format("it uses {}, which is not of the CUDA layer{}", shown,
                           is_exponential ? ": fast_exp2() is counted" : "");
    }
    if (backend == Backend::gpu) return "";  // it defines what the CPU's objects do
    const bool of_a_header = kind == 'W' || kind == 'V' || kind == 'u';
    if (of_a_header && !names_of_the_runner().contains(name)) return "";
    return fmt::format("it defines {} for others: the unnamed namespace holds all of a kernel",
                       demangled(name));
}

/// Files other than the layer's, by the compiler's own list.
std::vector<std::string> foreign_includes(const Compilation& c) {
    std::vector<std::string> found;
    for (const fs::path& file : included_files(c)) {
        const fs::path folder = file.lexically_normal().parent_path();
        const bool of_the_layer = folder == source_folder() / "simt" || folder == source_folder() / "stages";
        if (!of_the_layer && file != c.source)
            found.push_back(fmt::format("it includes {}", file.filename().string()));
    }
    return found;
}

/// How the symbols of a kernel's host side begin: of `template <class T, int d> void forward(const
/// Problem&)`, if the source names it where it is defined and declared, and nowhere else. No kernel can call
/// it then, and what is local to it has symbols of another form. Empty if there is no such function.
std::string host_side_of(const std::vector<Token>& tokens) {
    std::string_view name;
    for (std::size_t i = 2; i < tokens.size(); ++i)
        if (tokens[i - 1].text == "(" && tokens[i - 2].text == "LADDER_STAGE") name = tokens[i].text;
    int named = 0;
    for (std::size_t i = 3; i < tokens.size(); ++i)  // Pass::forward is none
        named += tokens[i].text == name && tokens[i - 3].text != "Pass";
    return named == 2 ? fmt::format("_ZN12_GLOBAL__N_1{}{}I", name.size(), name) : "";
}

bool is_of_the_host(std::string_view symbol, const std::string& host_side) {
    // What a compiler splits off has a suffix: ".cold"
    const std::string_view name = symbol.substr(0, symbol.find('.'));
    return !host_side.empty() && name.starts_with(host_side) && name.ends_with("EEvRKN6ladder7ProblemE");
}

/// Divisions and reciprocals of floating-point numbers, those of the host side aside. The layer's own are not
/// in a kernel's library.
std::vector<std::string> uncounted_divides(const Compilation& c) {
    const fs::path library = c.library();
    const char* script =
        R"((objdump --disassemble --no-show-raw-insn "$0"; echo "ended with $?") |
           grep -E "^ended|^[0-9a-f]+ <|^ +[0-9a-f]+:.(v?div[sp][sd]|f[i]?divr?p?[sl]?|v?rcp[a-z0-9]*|v?rsqrt[a-z0-9]*|frecp[a-z]|frsqrt[a-z])\b")";
    const std::string said = inspect({"sh", "-c", script}, library);
    if (!said.ends_with("ended with 0\n")) throw CheckFailed("objdump cannot look into the compiled kernel");
    const std::string source = read_file(c.source), host_side = host_side_of(tokens_of(source));
    std::istringstream lines(said);
    std::set<std::string> found;
    constexpr std::size_t most_divides = 8;
    std::string symbol;  // of the function that the line is in
    for (std::string line; std::getline(lines, line) && found.size() < most_divides;) {
        if (const std::size_t name = line.find('<'); !line.starts_with(' ') && name != line.npos) {
            symbol = line.substr(name + 1, line.rfind('>') - name - 1);
            continue;
        }
        const std::size_t begin = line.find_first_not_of(' '), end = line.find(':');
        if (begin == line.npos || end == line.npos || is_of_the_host(symbol, host_side)) continue;
        const std::string place = source_line(library, "0x" + line.substr(begin, end - begin));
        found.insert(fmt::format("{}: a division that is not counted: use divide()", place));
    }
    return {found.begin(), found.end()};
}

}  // namespace

std::vector<std::string> screen_source(const std::string& source) {
    try {
        const std::vector<Token> tokens = tokens_of(source);
        std::vector<std::string> found = Screen(tokens).found();
        return found.empty() ? hosts_own_in_kernels(tokens) : found;
    } catch (const UnreadableToken& refusal) {
        return {fmt::format("line {}: {}", refusal.line, refusal.what)};
    }
}

std::vector<std::string> screen_compiled(const std::vector<Compilation>& compilations, Backend backend) {
    std::vector<std::string> found;
    const auto add = [&](const std::string& problem) {
        if (!problem.empty() && found.size() < most_found &&
            std::find(found.begin(), found.end(), problem) == found.end())
            found.push_back(problem);
    };
    const auto look_into = [&](const Compilation& c) {
        for (const Symbol& symbol : symbols(c.object(), {"--extern-only"})) add(problem_of(symbol, backend));
        if (backend == Backend::gpu) return;  // the source is the same
        for (const std::string& problem : foreign_includes(c)) add(problem);
        if (c.recipe != name(Backend::cpu)) return;
        for (const std::string& problem : uncounted_divides(c)) add(problem);
    };
    for (const Compilation& c : compilations) {
        try {
            look_into(c);
        } catch (const CheckFailed& failure) {
            add(failure.what());
        }
    }
    return found;
}

}  // namespace ladder
