#include "harness/commands/arguments.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <utility>

#include "stages/errors.h"

namespace ladder {

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
    option_->check(CLI::IsMember(words));
    return *this;
}

Argument& Argument::within(int least, int most) {
    option_->check(CLI::Range(least, most));
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
    return Argument(app_->add_option(name, variable, description));
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

CommandLine::CommandLine(const std::string& description, const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, "lab")) {
    app_->footer(footer);
    app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& name, const std::string& description) {
    return Command(app_->add_subcommand(name, description));
}

void CommandLine::run(int argc, const char* const* argv) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // --help
            app_->exit(error);
            return;
        }
        const std::string first = argc > 1 ? argv[1] : "-";
        const auto named_first = [&](const CLI::App* command) { return command->get_name() == first; };
        const bool unknown = first.rfind('-', 0) != 0 && app_->get_subcommands(named_first).empty();
        throw BadUsage((unknown ? "there is no command '" + first + "'" : error.what()) + "; see lab --help");
    }
}

}  // namespace ladder
