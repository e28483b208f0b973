/// @file
/// The command line: commands and what they take. CLI11 does the work, and only arguments.cpp includes it,
/// since every file that does takes seconds more to compile.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ladder {

/// One option or positional, to be told more about: command.option(...).required().type_name("FILE").
class Argument {
  public:
    explicit Argument(CLI::Option* option) : option_(option) {}
    Argument& required();
    /// How many words it takes.
    Argument& expected(int least, int most);
    /// The word for its value in the help; N for numbers and TEXT for other values unless it is set.
    Argument& type_name(const std::string& word);
    Argument& one_of(const std::vector<std::string>& words);
    Argument& within(int least, int most);
    /// Shows the value that its variable has now in the help.
    Argument& show_default();
    /// Refuses both at once.
    Argument& excludes(const Argument& other);

  private:
    CLI::Option* option_;
};

/// One command of `lab`. The variables that its arguments fill must live until the command has run.
class Command {
  public:
    explicit Command(CLI::App* app) : app_(app) {}
    Argument flag(const std::string& name, bool& variable, const std::string& description);
    /// A flag that may have a value, as in --name=value; without one it is "true".
    Argument flag(const std::string& name, std::string& variable, const std::string& description);
    /// A flag for the help alone.
    Argument flag(const std::string& name, const std::string& description);
    /// A name without dashes is a positional. Of numbers, strings, vectors of strings, and optional ones: see
    /// the end of arguments.cpp.
    template <class T>
    Argument option(const std::string& name, T& variable, const std::string& description);
    /// An option whose value is more than a word; `parse` may throw BadUsage.
    Argument parsed(const std::string& name, std::function<void(const std::string&)> parse,
                    const std::string& description);
    /// What to do when the command is named, once all its arguments have been read.
    void on_call(std::function<void()> run);
    /// Lists the command under a heading of its own.
    void group(const std::string& heading);
    /// Whether the option was on the command line.
    bool given(const std::string& name) const;
    /// The word that was given for an option, or nothing.
    std::string value(const std::string& name) const;

  private:
    CLI::App* app_;
};

/// `lab` and its commands.
class CommandLine {
  public:
    /// `version` is asked for when --version is.
    CommandLine(const std::string& description, const std::string& footer,
                std::function<std::string()> version);
    ~CommandLine();
    Command add(const std::string& name, const std::string& description);
    /// Adds a command that another program reads: `run` gets all words, the program's name first.
    void add_elsewhere(const std::string& name, const std::string& description,
                       std::function<void(const std::vector<const char*>& words)> run);
    /// Runs the command that the words name, or prints the help or version that they ask for: "help time" is
    /// "time --help". Throws BadUsage for words that mean nothing, naming the help that says what does, and
    /// what the command throws.
    void run(int argc, const char* const* argv);

  private:
    std::unique_ptr<CLI::App> app_;
    std::map<std::string, std::function<void(const std::vector<const char*>&)>> elsewhere_;
};

}  // namespace ladder
