/// @file
/// Many mutants of a kernel as one source, which is compiled once and of which one is chosen when it is
/// loaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "course/mutants.h"

namespace ladder {

/// Mutants numbered from 0 in their order. Where one changes an expression, both are in the source and its
/// number decides, `(MUTANT(3) ? (a <= b) : (a < b))`; where it changes statements, as an if. Some need a
/// source of their own: those that change what is no function's code, a constant expression, or a declaration
/// that others use.
class AllMutants {
  public:
    AllMutants(std::string kernel, const std::vector<Mutant>& mutants);

    /// Writes FOLDER/kernel.cu, which reads the chosen number from FOLDER/chosen when it is loaded.
    void write(const std::filesystem::path& folder);
    /// Makes another source without what a compiler refused in the last one, by what it said
    /// ("kernel.cu:12:3: error: ..."). Returns whether that leaves anything out.
    bool leave_out(const std::string& errors);

    bool has(std::size_t mutant) const;
    /// From now on programs that load the kernel have this mutant.
    void choose(std::size_t mutant) const;

  private:
    /// How a change is put next to what it changes.
    enum class Form { expression, statements, none };
    /// Tokens [first, end) of the kernel, in whose place the mutant has this text.
    struct Edit {
        std::size_t mutant, first, end;
        std::string text;
    };
    /// Tokens in whose place all versions of them stand, and the lines of the source where they do.
    struct Unit {
        std::size_t first, end;
        Form form;
        std::vector<std::size_t> mutants;
        int first_line = 0, last_line = 0;
    };
    struct Token {
        std::size_t at, end;
        std::string text;
        std::size_t partner = 0;  ///< of a bracket
        bool in_function = false;
        std::size_t template_first = 0, template_end = 0;  ///< of the template's arguments that it is one of
    };

    static std::vector<Token> tokens_of(const std::string& source);
    static bool is_complete(const std::vector<Token>& tokens, std::size_t first, std::size_t end);
    bool starts_statement(std::size_t token) const;
    bool extend(Unit& unit) const;
    bool extend_to_expression(Unit& unit) const;
    bool extend_to_statements(Unit& unit) const;
    bool declares_for_others(const Unit& unit) const;
    std::vector<Unit> units();
    std::string version(const Unit& unit, std::size_t mutant) const;
    std::string text_of(const Unit& unit) const;

    std::string kernel_;
    std::vector<Token> tokens_;
    std::vector<Edit> edits_;
    std::vector<Form> forms_;  ///< of each mutant
    std::vector<Unit> written_;
    std::filesystem::path folder_;
};

}  // namespace ladder
