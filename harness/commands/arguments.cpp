#include "harness/commands/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "harness/base/terminal.h"
#include "stages/errors.h"

namespace ladder {
namespace {

// Columns of the help, of the names of commands in it, and of those of options.
constexpr std::size_t help_width = 80, command_width = 13, option_width = 27;

/// CLI11's help, but for a positional that is given up to twice, "STAGE [STAGE]", and without what an option
/// excludes.
class Help final : public CLI::Formatter {
    std::string make_option_opts(const CLI::Option* option) const override {
        const bool takes_a_value = option->get_items_expected_max() > 0 && !option->get_type_name().empty();
        return (takes_a_value ? " " + option->get_type_name() : "") +
               (option->get_required() ? " (required)" : "");
    }
    std::string make_option_usage(const CLI::Option* option) const override {
        if (option->get_expected_max() != 2) return Formatter::make_option_usage(option);
        return option->get_name() + " [" + option->get_name() + "]";
    }
};

std::shared_ptr<CLI::Formatter> help_with_names_of(std::size_t columns) {
    const auto help = std::make_shared<Help>();
    help->column_width(columns);
    help->label("Positionals", "Arguments");
    help->label("SUBCOMMAND", "COMMAND ...");
    help->label("Usage", "\nUsage");
    return help;
}

// A description in lines: CLI11 indents them, and does not make them.
template <class Described>
void fold(Described& described, std::size_t columns) {
    std::string text;
    for (const std::string& line : wrapped(described.get_description(), help_width - columns))
        text += (text.empty() ? "" : "\n") + line;
    described.description(text);
}

/// The names of all commands.
std::vector<std::string> command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(command->get_name());
    return names;
}

/// What CLI11 says of the words, and for an option that does not exist the one that may be meant.
std::string what_is_wrong(const CLI::App& command, const CLI::ParseError& error) {
    std::string text = error.what();
    const std::size_t at = text.find("--");
    const bool is_unknown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    if (!is_unknown || at == text.npos) return text;
    std::vector<std::string> options;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
    return text + did_you_mean(text.substr(at, text.find_first_of(" =", at) - at), options);
}

template <class T>
struct Plain {
    using type = T;
};
template <class T>
struct Plain<std::optional<T>> {
    using type = T;
};

}  // namespace

Argument& Argument::required() {
    option_->required();
    return *this;
}

Argument& Argument::expected(int least, int most) {
    option_->expected(least, most);
    return *this;
}

Argument& Argument::type_name(const std::string& word) {
    option_->type_name(word);
    return *this;
}

Argument& Argument::one_of(const std::vector<std::string>& words) {
    option_->check(CLI::IsMember(words).description(""));
    std::string list;
    for (const std::string& word : words) list += (list.empty() ? "" : "|") + word;
    if (constexpr std::size_t few = 28; list.size() <= few) {
        option_->type_name(list);
    } else {
        for (std::size_t bar; (bar = list.find('|')) != list.npos;) list.replace(bar, 1, ", ");
        option_->type_name("NAME")->description(option_->get_description() + ": " + list);
    }
    return *this;
}

Argument& Argument::within(int least, int most) {
    option_->check(CLI::Range(least, most).description(""));
    return *this;
}

Argument& Argument::show_default() {
    option_->capture_default_str();
    option_->description(option_->get_description() + " [" + option_->get_default_str() + "]");
    return *this;
}

Argument& Argument::excludes(const Argument& other) {
    option_->excludes(other.option_);
    return *this;
}

Argument Command::flag(const std::string& name, bool& variable, const std::string& description) {
    return Argument(app_->add_flag(name, variable, description));
}

Argument Command::flag(const std::string& name, std::string& variable, const std::string& description) {
    return Argument(app_->add_flag(name, variable, description));
}

Argument Command::flag(const std::string& name, const std::string& description) {
    return Argument(app_->add_flag(name, description));
}

template <class T>
Argument Command::option(const std::string& name, T& variable, const std::string& description) {
    CLI::Option* option = app_->add_option(name, variable, description);
    using Value = typename Plain<T>::type;
    option->type_name(option->get_positional() ? "" : std::is_arithmetic_v<Value> ? "N" : "TEXT");
    if constexpr (std::is_unsigned_v<Value>) {
        // CLI11 takes -1 for the largest number.
        option->check([](const std::string& word) {
            return word.starts_with('-') ? word + " is below 0" : std::string();
        });
    }
    return Argument(option);
}

template Argument Command::option(const std::string&, std::string&, const std::string&);
template Argument Command::option(const std::string&, int&, const std::string&);
template Argument Command::option(const std::string&, unsigned&, const std::string&);
template Argument Command::option(const std::string&, std::uint64_t&, const std::string&);
template Argument Command::option(const std::string&, std::optional<int>&, const std::string&);
template Argument Command::option(const std::string&, std::optional<std::uint64_t>&, const std::string&);
template Argument Command::option(const std::string&, std::optional<float>&, const std::string&);
template Argument Command::option(const std::string&, std::vector<std::string>&, const std::string&);

Argument Command::parsed(const std::string& name, std::function<void(const std::string&)> parse,
                         const std::string& description) {
    return Argument(app_->add_option_function<std::string>(name, std::move(parse), description));
}

void Command::on_call(std::function<void()> run) {
    app_->callback(std::move(run));
}

void Command::group(const std::string& heading) {
    app_->group(heading);
}

bool Command::given(const std::string& name) const {
    return app_->count(name) > 0;
}

std::string Command::value(const std::string& name) const {
    return given(name) ? app_->get_option(name)->results().back() : "";
}

CommandLine::CommandLine(const std::string& description, const std::string& footer,
                         std::function<std::string()> version)
    : app_(std::make_unique<CLI::App>(description, lab_command())) {
    app_->footer(footer);
    app_->require_subcommand(1);
    app_->formatter(help_with_names_of(command_width));
    app_->set_help_flag("-h,--help", "Print the commands; after a command, what it takes");
    app_->set_version_flag("--version", std::move(version), "Print the version");
}

CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& name, const std::string& description) {
    CLI::App* command = app_->add_subcommand(name, description);
    command->group("Commands");
    command->formatter(help_with_names_of(option_width));
    command->footer(app_->get_footer());
    command->set_help_flag("-h,--help", "Print this help");
    return Command(command);
}

void CommandLine::add_elsewhere(const std::string& name, const std::string& description,
                                std::function<void(const std::vector<const char*>&)> run) {
    add(name, description);
    elsewhere_[name] = std::move(run);
}

void CommandLine::run(int argc, const char* const* argv) {
    std::vector<const char*> words(argv, argv + argc);
    if (argc == 1) words.push_back("--help");
    if (argc > 1 && std::string(argv[1]) == "help") {
        words.erase(words.begin() + 1);
        words.push_back("--help");
    }
    const std::string first = words.size() > 1 ? words[1] : "";
    const auto there = command_names(*app_);
    const bool known = std::find(there.begin(), there.end(), first) != there.end();
    if (!known && first[0] != '-') {
        throw BadUsage("there is no command '" + first + "'" + did_you_mean(first, there) + "; see " +
                       lab_command({"--help"}));
    }
    if (const auto other = elsewhere_.find(first); other != elsewhere_.end()) return other->second(words);
    for (CLI::App* command : app_->get_subcommands({})) {
        fold(*command, command_width);
        for (CLI::Option* option : command->get_options()) fold(*option, option_width);
    }
    try {
        app_->parse(static_cast<int>(words.size()), words.data());
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // --help, --version
            app_->exit(error);
            return;
        }
        if (!known) throw BadUsage("name a command before " + first + "; see " + lab_command({"--help"}));
        throw BadUsage(what_is_wrong(*app_->get_subcommand(first), error) + "; see " +
                       lab_command({first, "--help"}));
    }
}

}  // namespace ladder
