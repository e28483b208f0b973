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

constexpr std::size_t help_width = 80;

/// The help: names on the left, what they mean on the right, and nothing wider than a small terminal.
class Help final : public CLI::FormatterBase {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
        std::string text = paragraph(app->get_description()) + "\n" + paragraph(usage(app, name));
        std::vector<Entry> positionals, options;
        for (const CLI::Option* option : app->get_options()) {
            std::string meaning = option->get_description();
            if (!option->get_default_str().empty()) meaning += " [" + option->get_default_str() + "]";
            (option->get_positional() ? positionals : options).push_back({name_of(option), meaning});
        }
        text += section("", positionals) + section("Options:", options);
        const auto commands = app->get_subcommands({});
        std::vector<std::string> groups;
        for (const CLI::App* command : commands) {
            if (std::find(groups.begin(), groups.end(), command->get_group()) == groups.end())
                groups.push_back(command->get_group());
        }
        for (const std::string& group : groups) {
            std::vector<Entry> entries;
            for (const CLI::App* command : commands) {
                if (command->get_group() == group)
                    entries.push_back({command->get_name(), command->get_description()});
            }
            text += section(group + ":", entries);
        }
        const CLI::App* lab = app->get_parent() != nullptr ? app->get_parent() : app;
        return text + "\n" + paragraph(lab->get_footer());
    }

  private:
    struct Entry {
        std::string name, meaning;
    };

    static std::string paragraph(const std::string& text) {
        std::string lines;
        for (const std::string& line : wrapped(text, help_width)) lines += line + "\n";
        return lines;
    }

    static std::string usage(const CLI::App* app, const std::string& name) {
        std::string text = "Usage: ./" + name;
        if (!app->get_subcommands({}).empty()) return text + " COMMAND ...";
        text += " [OPTIONS]";
        for (const CLI::Option* option : app->get_options()) {
            if (!option->get_positional()) continue;
            std::string word = option->get_name();
            if (option->get_expected_max() == 2) {
                word += " [" + word + "]";
            } else if (option->get_expected_max() > 2) {
                word += "...";
            }
            text += option->get_required() ? " " + word : " [" + word + "]";
        }
        return text;
    }

    static std::string name_of(const CLI::Option* option) {
        if (option->get_positional()) return option->get_name();
        std::string name;
        for (const std::string& letter : option->get_snames()) name += "-" + letter + ", ";
        for (const std::string& word : option->get_lnames()) name += "--" + word + ", ";
        name.resize(name.size() - 2);
        const bool takes_a_value = option->get_items_expected_max() > 0;
        if (takes_a_value && !option->get_type_name().empty()) name += " " + option->get_type_name();
        return name + (option->get_required() ? " (needed)" : "");
    }

    static std::string section(const std::string& title, const std::vector<Entry>& entries) {
        constexpr std::size_t longest_name = 24;
        std::size_t column = 0;
        for (const Entry& entry : entries) {
            if (entry.name.size() <= longest_name) column = std::max(column, entry.name.size() + 4);
        }
        column = std::max<std::size_t>(column, 8);
        std::string text = entries.empty() ? "" : "\n";
        if (!entries.empty() && !title.empty()) text += title + "\n";
        for (const Entry& entry : entries) {
            std::string left = "  " + entry.name;
            if (left.size() + 2 > column) {
                text += left + "\n";
                left.clear();
            }
            for (const std::string& line : wrapped(entry.meaning, help_width - column)) {
                text += left + std::string(column - left.size(), ' ') + line + "\n";
                left.clear();
            }
        }
        return text;
    }
};

/// The names of all commands.
std::vector<std::string> command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(command->get_name());
    return names;
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
    : app_(std::make_unique<CLI::App>(description, "lab")) {
    app_->footer(footer);
    app_->require_subcommand(1);
    app_->formatter(std::make_shared<Help>());
    app_->set_help_flag("-h,--help", "Say what there is; with a command, what it takes");
    app_->set_version_flag("--version", std::move(version), "Say which version this is");
}

CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& name, const std::string& description) {
    CLI::App* command = app_->add_subcommand(name, description);
    command->group("Commands");
    command->set_help_flag("-h,--help", "Say this");
    return Command(command);
}

void CommandLine::add_elsewhere(const std::string& name, const std::string& description,
                                std::function<void(const std::vector<const char*>&)> run) {
    add(name, description);
    elsewhere_[name] = std::move(run);
}

void CommandLine::run(int argc, const char* const* argv) {
    std::vector<const char*> words(argv, argv + argc);
    if (argc > 1 && std::string(argv[1]) == "help") {
        words.erase(words.begin() + 1);
        words.push_back("--help");
    }
    const std::string first = words.size() > 1 ? words[1] : "";
    const auto there = command_names(*app_);
    const bool known = std::find(there.begin(), there.end(), first) != there.end();
    if (first.empty()) throw BadUsage("name a command; see ./lab --help");
    if (!known && first[0] != '-') {
        throw BadUsage("there is no command '" + first + "'" + did_you_mean(first, there) +
                       "; see ./lab --help");
    }
    if (const auto other = elsewhere_.find(first); other != elsewhere_.end()) return other->second(words);
    try {
        app_->parse(static_cast<int>(words.size()), words.data());
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // --help, --version
            app_->exit(error);
            return;
        }
        if (!known) throw BadUsage("name a command before " + first + "; see ./lab --help");
        throw BadUsage(std::string(error.what()) + "; see ./lab " + first + " --help");
    }
}

}  // namespace ladder
