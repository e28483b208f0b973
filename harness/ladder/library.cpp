#include "harness/ladder/library.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "harness/base/file.h"
#include "harness/base/json.h"
#include "harness/base/terminal.h"
#include "harness/ladder/declaration.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

constexpr double compile_limit_s = 600;

using Words = std::vector<std::string>;

/// How a source becomes a library, as CMake wrote it down.
struct Recipe {
    Words compile;  ///< the compiler and its options, all but the files' names
    Words link;     ///< the same of the linker
    /// What the source includes before all else, if the compiler can keep it precompiled.
    std::string header;
    /// Whether the compiler is told to put it there: the source includes it after others, or through them.
    bool must_be_put_first = false;
};

/// Whether a source is one of the ladder's stages, and not a user's.
bool is_own(const fs::path& source) {
    return source.parent_path().parent_path() == source_folder() / "stages";
}

const nlohmann::json& recipes() {
    static const nlohmann::json all = read_json(build_folder() / "kernels.json");
    return all;
}

/// The one of these headers that a source includes first: it alone can be had precompiled, and none that
/// another header includes.
std::string first_of(const Words& headers, const std::string& source) {
    std::string first;
    std::size_t first_place = source.npos;
    for (const std::string& header : headers) {
        const std::size_t place = source.find(fmt::format("#include \"{}\"", header));
        if (place >= first_place) continue;
        first = header;
        first_place = place;
    }
    return first;
}

/// How `source` is compiled. The ladder's own kernels compile without warnings where the suite runs; what has
/// instructions of one compute capability alone is compiled for that one.
Recipe recipe_of(const std::string& name, const fs::path& source) {
    if (!has_recipe(name))
        throw CannotRun(fmt::format("this build has no compiler for the {} back-end", name));
    const bool for_gpu = name == ladder::name(Backend::gpu);
    const std::string text = fs::is_regular_file(source) ? read_file(source) : "";
    const int capability = for_gpu ? needed_capability(text) : 0;
    const auto& recipe = recipes().at(capability == 0 ? name : fmt::format("{}_{}", name, capability));
    Recipe words{recipe.at("compile").get<Words>(), recipe.at("link").get<Words>(),
                 first_of(recipe.value("headers", Words()), text)};
    if (recipe.contains("first")) {
        recipe.at("first").get_to(words.header);
        words.must_be_put_first = true;
    }
    for (Words* list : {&words.compile, &words.link})
        std::erase_if(*list, [](const std::string& word) { return word.empty(); });
    if (!for_gpu && has_recipe("strict") && is_own(source)) {
        for (const std::string& option : recipes().at("strict").get<Words>()) words.compile.push_back(option);
    }
    return words;
}

/// The files that a compiler's dependency file (-MMD) names: words, with a blank in a name as "\ ".
std::vector<fs::path> dependencies(const fs::path& file) {
    const std::string text = read_file(file);
    std::vector<fs::path> files;
    std::string word;
    for (std::size_t i = std::min(text.find(": "), text.size()); ++i < text.size();) {
        const bool escaped = text[i] == '\\' && i + 1 < text.size();
        if (escaped && text[i + 1] == ' ') {
            word += text[++i];
        } else if (escaped && text[i + 1] == '\n') {
            ++i;
        } else if (text[i] != ' ' && text[i] != '\n') {
            word += text[i];
            continue;
        } else if (!word.empty()) {
            files.emplace_back(std::exchange(word, ""));
        }
    }
    if (!word.empty()) files.emplace_back(word);
    return files;
}

fs::path dependency_file(const Compilation& c) {
    return c.folder / (c.recipe + ".d");
}

std::string fingerprint_of_file(const fs::path& path) {
    return fs::is_regular_file(path) ? text_fingerprint(read_file(path)) : "none";
}

std::string size_of(const fs::path& file) {
    std::error_code error;
    const auto bytes = fs::file_size(file, error);
    return error ? "none" : std::to_string(bytes);
}

/// What a product was made of: the commands, and each file with a fingerprint; and the product's own size and
/// fingerprint, by which one is known that was damaged since. A product is up to date if this is still so.
std::string made_of(const Recipe& recipe, const fs::path& source, const std::vector<fs::path>& files,
                    const std::string& size, const std::string& fingerprint) {
    std::string text = fmt::format("{} {} {} {}\n", text_fingerprint(nlohmann::json(recipe.compile).dump()),
                                   text_fingerprint(nlohmann::json(recipe.link).dump()), size, fingerprint);
    text += fmt::format("{} {}\n", fingerprint_of_file(source), source.string());
    for (const fs::path& file : files) {
        if (file != source) text += fmt::format("{} {}\n", fingerprint_of_file(file), file.string());
    }
    return text;
}

/// Where that stands of a product.
fs::path record_of(const fs::path& product) {
    return product.string() + ".made";
}

/// Of a product only the size is looked at; load_stage() looks at all of it.
bool is_up_to_date(const fs::path& product, const fs::path& source, const Recipe& recipe) {
    const fs::path made = record_of(product);
    if (!fs::exists(product) || !fs::exists(made)) return false;
    const std::string recorded = read_file(made);
    std::istringstream lines(recorded);
    std::vector<fs::path> files;
    std::string line, fingerprint;
    std::getline(lines, line);
    fingerprint = line.substr(line.rfind(' ') + 1);
    std::getline(lines, line);
    while (std::getline(lines, line)) files.emplace_back(line.substr(line.find(' ') + 1));
    return made_of(recipe, source, files, size_of(product), fingerprint) == recorded;
}

/// Whether a product that is up to date is still what was made, to the last byte.
bool is_whole(const fs::path& product) {
    const std::string recorded = read_file(record_of(product));
    const std::string first = recorded.substr(0, recorded.find('\n'));
    return first.ends_with(" " + fingerprint_of_file(product));
}

/// Writes what a product was made of. Throws CannotRun: what is missing is a place for it, as for the
/// product.
void record(const fs::path& product, const std::string& made) {
    try {
        OutputFile(record_of(product)).write(made);
    } catch (const BadUsage& error) {
        throw CannotRun(error.what());
    }
}

/// The first errors of a compiler, with the file's name alone.
std::string first_errors(const std::string& said, const fs::path& source) {
    std::istringstream lines(said);
    std::string text;
    int count = 0;
    for (std::string line; std::getline(lines, line) && count < 24; ++count) {
        const std::string path = source.string();
        for (std::size_t at = line.find(path); at != line.npos; at = line.find(path, at + 1))
            line.replace(at, path.size(), source.filename().string());
        text += line + "\n";
    }
    return text;
}

/// One compiler at a time in a folder, also if several programs ask for the same library at once.
class FolderLock {
  public:
    /// Calls `on_wait` if another has it, and waits.
    FolderLock(const fs::path& folder, const std::function<void()>& on_wait)
        : file_(open((folder / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
        if (file_ < 0 || flock(file_, LOCK_EX | LOCK_NB) == 0) return;
        on_wait();
        flock(file_, LOCK_EX);
    }
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;
    ~FolderLock() {
        if (file_ < 0) return;
        flock(file_, LOCK_UN);  // also if a child of fork() has the file, too
        close(file_);
    }

  private:
    int file_;
};

/// Where the options of a command begin: its program may be two words, "ccache g++".
Words::const_iterator options_of(const Words& command) {
    return std::find_if(command.begin(), command.end(),
                        [](const std::string& word) { return word.starts_with("-"); });
}

/// Runs a compiler or linker. Returns what it said if it failed. Throws CannotRun if what failed is not the
/// source: there is no such program, or it says nothing, or the disk is full.
std::string run_tool(const Words& command, const Limits& limits, const fs::path& source) {
    LimitedProcess tool(command, limits);
    const std::string how_it_ended = tool.wait(2.0 * limits.cpu_s);  // it may have half a processor
    if (how_it_ended.empty()) return "";
    const std::string said = first_errors(tool.output(), source);
    const std::string program = fmt::format("{}", fmt::join(command.begin(), options_of(command), " "));
    const char* const variable = program.ends_with("nvcc") ? "CUDACXX" : "CXX";
    if (how_it_ended == "exit code 127" || (how_it_ended.starts_with("exit code") && said.empty()))
        throw CannotRun(fmt::format("{} does not work as the compiler of kernels ({}): {} names another one",
                                    program, how_it_ended, variable));
    for (const int why : {ENOSPC, EDQUOT, EROFS}) {
        if (said.find(std::strerror(why)) != said.npos)
            throw CannotRun(fmt::format("{} cannot write what it makes: {}", program, std::strerror(why)));
    }
    return how_it_ended.starts_with("exit code") && !said.empty()
               ? said
               : said + "the compiler: " + how_it_ended + "\n";
}

Words with(Words command, const Words& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

/// Words of a command by which a compiler lists what it reads.
Words listing(const fs::path& file) {
    return {"-MMD", "-MF", file.string()};
}

/// Precompiled headers: the folder before all others in which g++ looks for them.
fs::path headers_folder() {
    return build_folder() / "kernels" / "headers";
}

/// What kernels take from a precompiled header.
struct PrecompiledHeader {
    Words options;                ///< of the compiler, for it to be found
    std::vector<fs::path> files;  ///< that it holds, which the compiler does not list again
};

/// A header's, made anew if something in it has changed. Nothing where it cannot be made: then kernels read
/// the header itself, and its errors are theirs.
PrecompiledHeader precompiled_header(const std::string& name, const std::string& header) {
    if (header.empty()) return {};
    const Recipe recipe = recipe_of(name, {});
    const fs::path source = source_folder() / header, folder = headers_folder() / name;
    const fs::path product = folder / (header + ".gch"), fresh = product.string() + ".new",
                   named = product.string() + ".d";
    std::error_code error;
    fs::create_directories(product.parent_path(), error);
    const FolderLock lock(folder, [] {});
    if (!is_up_to_date(product, source, recipe)) {
        fs::remove(product, error);
        const Words command = with(with(recipe.compile, listing(named)),
                                   {"-x", "c++-header", "-o", fresh.string(), "-c", source.string()});
        if (!run_tool(command, compiler_limits(), source).empty()) return {};
        fs::rename(fresh, product, error);
        if (error) return {};
        record(product, made_of(recipe, source, dependencies(named), size_of(product), "-"));
    }
    if (recipe.must_be_put_first) return {{"-include", (folder / header).string()}, dependencies(named)};
    return {{"-I" + folder.string()}, dependencies(named)};
}

std::string compile_one(const Compilation& c, const Limits& limits, const std::function<void()>& on_wait) {
    const Recipe recipe = recipe_of(c.recipe, c.source);
    std::error_code error;
    fs::create_directories(c.folder, error);
    const FolderLock lock(c.folder / "", on_wait);
    if (is_up_to_date(c.library(), c.source, recipe)) return "";
    if (!error && access(c.folder.c_str(), W_OK) != 0) error = {errno, std::generic_category()};
    if (error) throw CannotRun(fmt::format("cannot write to {}: {}", c.folder.string(), error.message()));
    const PrecompiledHeader header = precompiled_header(c.recipe, recipe.header);
    const fs::path library = c.library(), named = dependency_file(c), fresh = library.string() + ".new";
    fs::remove(library, error);
    const std::string source = fingerprint_of_file(c.source);
    Words command = recipe.compile, link = recipe.link;
    command.insert(options_of(command), header.options.begin(), header.options.end());
    command = with(with(command, listing(named)), {"-o", c.object().string(), "-c", c.source.string()});
    if (auto said = run_tool(command, limits, c.source); !said.empty()) return said;
    const Words named_files{"-o", fresh.string(), c.object().string()};
    link.insert(options_of(link), named_files.begin(), named_files.end());
    if (auto said = run_tool(link, limits, c.source); !said.empty()) return said;
    fs::rename(fresh, library, error);
    if (error) throw CannotRun(fmt::format("cannot write {}: {}", library.string(), error.message()));
    // A source that was written meanwhile is not what was compiled.
    if (fingerprint_of_file(c.source) == source) {
        std::vector<fs::path> files = dependencies(named);
        files.insert(files.end(), header.files.begin(), header.files.end());
        record(library, made_of(recipe, c.source, files, size_of(library), fingerprint_of_file(library)));
    }
    if (!recipes().value("keep_objects", true)) fs::remove(c.object(), error);
    return "";
}

}  // namespace

Limits compiler_limits() {
    Limits limits;
    limits.cpu_s = static_cast<unsigned>(compile_limit_s);
    limits.memory = std::size_t{16} << 30;
    limits.file_bytes = std::size_t{1} << 28;
    return limits;
}

std::vector<fs::path> read_by_compilers() {
    std::vector<fs::path> paths{source_folder() / "simt", headers_folder()};
    for (const char* header : {"device.cuh", "hopper.cuh", "errors.h", "launch.h", "ring.h", "stage.h"})
        paths.push_back(source_folder() / "stages" / header);
    for (const Backend backend : {Backend::cpu, Backend::gpu}) {
        if (!has_recipe(name(backend))) continue;
        const auto command = recipes().at(name(backend)).at("compile").get<Words>();
        Words programs(command.begin(), options_of(command));
        for (const std::string& option : command)
            if (option.starts_with("-ccbin=")) programs.push_back(option.substr(option.find('=') + 1));
        for (const std::string& program : programs) {  // nvcc's host compiler among them
            const fs::path home = fs::weakly_canonical(program).parent_path().parent_path();
            if (home.has_relative_path() && home != "/usr") paths.push_back(home);
        }
    }
    return paths;
}

std::vector<fs::path> included_files(const Compilation& compilation) {
    return dependencies(dependency_file(compilation));
}

std::string with_named_lines(const std::string& report, const fs::path& kernel) {
    constexpr std::size_t most_columns = 100, most_lines = 4;
    std::set<int> numbers;  // in the order of the kernel, each once
    const std::string name = kernel.filename().string() + ":";
    for (std::size_t at = 0; (at = report.find(name, at)) != report.npos && numbers.size() < most_lines;) {
        at += name.size();
        int number = 0;
        std::from_chars(report.data() + at, report.data() + report.size(), number);
        if (number > 0) numbers.insert(number);
    }
    std::ifstream file(numbers.empty() ? fs::path() : kernel);
    std::string text = report, line;
    for (int number = 1; !numbers.empty() && std::getline(file, line); ++number) {
        if (numbers.erase(number) == 0) continue;
        const std::size_t begin = line.find_first_not_of(" \t");
        if (begin == line.npos) continue;
        text +=
            fmt::format("\n  {}{}  {}", name, number, cut_to(printable(line.substr(begin)), most_columns));
    }
    return text;
}

bool has_recipe(const std::string& recipe) {
    return recipes().contains(recipe);
}

Compilation compilation_of(const fs::path& source, const std::string& recipe) {
    const fs::path folder = source.parent_path();
    std::string name = folder.filename().string();
    // Folders elsewhere may have the names of the ladder's.
    if (!is_own(source)) name += "-" + text_fingerprint(source.string()).substr(0, 8);
    return {source, recipe, build_folder() / "kernels" / name};
}

Compilation compilation_of(const Stage& stage, Backend backend) {
    return compilation_of(fs::path(stage.source), name(backend));
}

std::vector<std::string> compile(const std::vector<Compilation>& compilations, const Limits& limits,
                                 const OnStep& on_step) {
    std::vector<std::string> errors(compilations.size());
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    int done = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < compilations.size(); i = next++) {
            const Compilation& c = compilations[i];
            int step = 0;
            const auto say = [&](const char* what) {
                if (!on_step) return;
                const std::lock_guard lock(mutex);
                on_step(fmt::format("{} {}", what, fs::path(c.source).parent_path().filename().string()),
                        step, static_cast<int>(compilations.size()));
            };
            {
                const std::lock_guard lock(mutex);
                step = done++;
            }
            say("compile");
            try {
                errors[i] = compile_one(c, limits, [&] { say("another lab is building: wait for"); });
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
            }
        }
    };
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    {
        std::vector<std::jthread> others;
        for (std::size_t i = 1; i < std::min(cores, compilations.size()); ++i) others.emplace_back(work);
        work();
    }
    if (failure) std::rethrow_exception(failure);
    return errors;
}

void compile_stages(const std::vector<const Stage*>& stages, Backend backend, const OnStep& on_step) {
    std::vector<Compilation> stale;
    std::vector<const Stage*> of;
    for (const Stage* stage : stages) {
        if (stage->run != nullptr) continue;
        const Compilation c = compilation_of(*stage, backend);
        if (is_up_to_date(c.library(), c.source, recipe_of(c.recipe, c.source))) continue;
        stale.push_back(c);
        of.push_back(stage);
    }
    const auto errors = compile(stale, compiler_limits(), on_step);
    for (std::size_t i = 0; i < errors.size(); ++i) {
        if (!errors[i].empty())
            throw CheckFailed(fmt::format("{} does not compile:\n{}", of[i]->source, errors[i]));
    }
}

const Stage& load_stage(const Stage& stage, Backend backend) {
    if (stage.run != nullptr) return stage;
    static std::map<std::pair<std::string, Backend>, Stage> loaded;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (const auto known = loaded.find({stage.source, backend}); known != loaded.end()) return known->second;
    const fs::path library = compilation_of(stage, backend).library();
    compile_stages({&stage}, backend, {});
    if (std::error_code error; !is_whole(library) && fs::remove(record_of(library), error))
        compile_stages({&stage}, backend, {});
    const Stage compiled = load_library(library);
    Stage runs = stage;  // what it declares was read already; its functions are what a library adds
    runs.run = compiled.run;
    runs.workspace_bytes = compiled.workspace_bytes;
    runs.counter_bytes = compiled.counter_bytes;
    return loaded.emplace(std::pair{stage.source, backend}, std::move(runs)).first->second;
}

}  // namespace ladder
