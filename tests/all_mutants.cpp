#include "tests/all_mutants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "harness/base/file.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

/// Reads the number when the library is loaded. Nothing of it is the kernel's: it is neither checked nor
/// counted.
constexpr const char* prelude = R"(#include <cstdio>
namespace {{
__attribute__((no_sanitize("thread"))) int read_chosen_mutant() {{
    int number = -1;
    if (std::FILE* file = std::fopen("{}", "r")) {{
        if (std::fscanf(file, "%d", &number) != 1) number = -1;
        std::fclose(file);
    }}
    return number;
}}
const int chosen_mutant = read_chosen_mutant();
[[maybe_unused]] __attribute__((no_sanitize("thread"), noinline)) bool MUTANT(int n) {{ return chosen_mutant == n; }}
}}  // namespace
)";

bool is_one_of(const std::string& text, const std::set<std::string>& words) {
    return words.contains(text);
}
bool opens(const std::string& text) {
    return text == "(" || text == "[" || text == "{";
}
bool closes(const std::string& text) {
    return text == ")" || text == "]" || text == "}";
}

}  // namespace

/// Without white space, comments and lines of the preprocessor.
std::vector<AllMutants::Token> AllMutants::tokens_of(const std::string& s) {
    static const std::vector<std::string> marks{"<<=", ">>=", "->", "++", "--", "&&", "||",
                                                "+=",  "-=",  "*=", "/=", "%=", "&=", "|=",
                                                "^=",  "==",  "!=", "<=", ">=", "::", "<<"};
    std::vector<Token> tokens;
    const auto is_word = [&](std::size_t i) {
        return std::isalnum(static_cast<unsigned char>(s[i])) || s[i] == '_';
    };
    for (std::size_t i = 0; i < s.size();) {
        std::size_t end = i + 1;
        if (std::isspace(static_cast<unsigned char>(s[i]))) {
            i = end;
            continue;
        }
        if (s.compare(i, 2, "//") == 0 || s[i] == '#') {
            i = std::min(s.find('\n', i), s.size());
            continue;
        }
        if (s.compare(i, 2, "/*") == 0) {
            i = std::min(s.find("*/", i), s.size() - 2) + 2;
            continue;
        }
        const bool is_number = std::isdigit(static_cast<unsigned char>(s[i]));
        if (s[i] == '"' || s[i] == '\'') {
            while (end < s.size() && s[end] != s[i]) end += s[end] == '\\' ? 2 : 1;
            end += 1;
        } else if (is_word(i)) {
            while (end < s.size() && (is_word(end) || (is_number && (s[end] == '.' || s[end] == '\''))))
                ++end;
        } else {
            for (const std::string& mark : marks) {
                if (s.compare(i, mark.size(), mark) == 0) {
                    end = i + mark.size();
                    break;
                }
            }
        }
        tokens.push_back({i, end, s.substr(i, end - i)});
        i = end;
    }
    // Brackets, and which of them is a function's body: one that follows a parenthesis and is in no other.
    std::vector<std::size_t> open;
    std::optional<std::size_t> body;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i].in_function = body.has_value();
        if (opens(tokens[i].text)) {
            if (!body && tokens[i].text == "{") {
                std::size_t start = i;
                while (start > 0 && !is_one_of(tokens[start - 1].text, {";", "}", "{"})) --start;
                bool has_list = false, is_type = false;
                for (std::size_t k = start; k < i; ++k) {
                    has_list = has_list || tokens[k].text == "(";
                    is_type =
                        is_type || is_one_of(tokens[k].text, {"struct", "namespace", "enum", "LADDER_STAGE"});
                }
                if (has_list && !is_type && tokens[i - 1].text != "=") body = open.size();
            }
            open.push_back(i);
        } else if (closes(tokens[i].text) && !open.empty()) {
            tokens[i].partner = open.back();
            tokens[open.back()].partner = i;
            open.pop_back();
            if (body && open.size() == *body) {
                body.reset();
                tokens[i].in_function = false;
            }
        }
    }
    // A template's arguments follow without a blank, as the formatter writes them; a comparison has blanks.
    for (std::size_t i = 1; i < tokens.size(); ++i) {
        if (tokens[i].text != "<" || tokens[i - 1].end != tokens[i].at || tokens[i].template_end != 0)
            continue;
        std::size_t end = i;
        for (int depth = 0; end < tokens.size() && (end == i || depth > 0); ++end)
            depth += tokens[end].text == "<" ? 1 : tokens[end].text == ">" ? -1 : 0;
        for (std::size_t k = i; k < end; ++k) {
            tokens[k].template_first = i;
            tokens[k].template_end = end;
        }
    }
    return tokens;
}

AllMutants::AllMutants(std::string kernel, const std::vector<Mutant>& mutants)
    : kernel_(std::move(kernel)), tokens_(tokens_of(kernel_)), forms_(mutants.size(), Form::expression) {
    for (std::size_t n = 0; n < mutants.size(); ++n) {
        for (const Replacement& replacement : mutants[n].replacements) {
            Mutant one = mutants[n];
            one.replacements = {replacement};
            const std::string wrong = wrong_kernel(kernel_, one);
            const std::vector<Token> now = tokens_of(wrong);
            std::size_t first = 0, same = 0;  // at the beginning and at the end
            const std::size_t shorter = std::min(tokens_.size(), now.size());
            while (first < shorter && tokens_[first].text == now[first].text) ++first;
            while (same < shorter - first &&
                   tokens_[tokens_.size() - 1 - same].text == now[now.size() - 1 - same].text)
                ++same;
            const std::size_t end = now.size() - same;
            edits_.push_back(
                {n, first, tokens_.size() - same,
                 first == end ? "" : wrong.substr(now[first].at, now[end - 1].end - now[first].at)});
        }
    }
}

/// Whether it is balanced.
bool AllMutants::is_complete(const std::vector<Token>& tokens, std::size_t first, std::size_t end) {
    std::vector<char> open;
    for (std::size_t i = first; i < end; ++i) {
        if (opens(tokens[i].text)) open.push_back(tokens[i].text[0]);
        if (!closes(tokens[i].text)) continue;
        const char wanted = tokens[i].text == ")" ? '(' : tokens[i].text == "]" ? '[' : '{';
        if (open.empty() || open.back() != wanted) return false;
        open.pop_back();
    }
    return open.empty();
}

/// Whether a statement may begin at this token.
bool AllMutants::starts_statement(std::size_t i) const {
    if (i == 0 || tokens_[i].text == "else") return false;
    const Token& before = tokens_[i - 1];
    if (is_one_of(before.text, {";", "}", "{", "else"})) {
        // A semicolon in the head of a loop, or a list in braces, begins none.
        std::size_t k = i;
        while (k-- > 0) {
            if (closes(tokens_[k].text)) {
                k = tokens_[k].partner;
            } else if (opens(tokens_[k].text)) {
                if (tokens_[k].text != "{") return false;
                const Token& head = tokens_[k - 1];
                return head.end != tokens_[k].at && !is_one_of(head.text, {"=", "return", ",", "("});
            }
        }
        return false;
    }
    return before.text == ")" &&
           is_one_of(tokens_[before.partner - 1].text, {"if", "for", "while", "constexpr"});
}

/// Widens a unit to the brackets that it has one end of.
bool AllMutants::extend(Unit& unit) const {
    for (std::size_t i = unit.first; i < unit.end; ++i) {
        if (!opens(tokens_[i].text) && !closes(tokens_[i].text)) continue;
        const std::size_t partner = tokens_[i].partner;
        if (partner < unit.first) {
            unit.first = partner;
            i = partner;
        } else if (partner >= unit.end) {
            unit.end = partner + 1;
        }
    }
    return tokens_[unit.first].in_function;
}

bool AllMutants::extend_to_expression(Unit& unit) const {
    static const std::set<std::string> before{"(",      "[",    "{",  ",",   ";",  "}",  "=",
                                              "return", "else", "+=", "-=",  "*=", "/=", "|=",
                                              "&=",     "%=",   "^=", "<<=", ">>="};
    static const std::set<std::string> after{")", "]", "}", ",", ";"};
    for (int level = 0; level < 6; ++level) {
        if (!extend(unit)) return false;
        while (!before.contains(tokens_[unit.first - 1].text)) {
            const Token& token = tokens_[unit.first - 1];
            if (token.text == ")" &&
                is_one_of(tokens_[token.partner - 1].text, {"if", "for", "while", "constexpr"}))
                return false;  // the expression is a statement
            unit.first = closes(token.text) ? token.partner : unit.first - 1;
        }
        while (!after.contains(tokens_[unit.end].text))
            unit.end = opens(tokens_[unit.end].text) ? tokens_[unit.end].partner + 1 : unit.end + 1;
        if (unit.first == unit.end) return false;
        if (starts_statement(unit.first) && tokens_[unit.end].text == ";") return false;
        // A list, or an argument more or less, is none: what it is the list of may be.
        bool is_list = tokens_[unit.first].text == "{";
        for (const Edit& edit : edits_) {
            if (edit.first < unit.first || edit.end > unit.end ||
                std::find(unit.mutants.begin(), unit.mutants.end(), edit.mutant) == unit.mutants.end())
                continue;
            const Token& token = tokens_[edit.first];
            if (token.template_first < edit.first && token.template_end > edit.end) return false;
        }
        for (std::size_t i = unit.first; i < unit.end; ++i) {
            if (opens(tokens_[i].text))
                i = tokens_[i].partner;
            else if (is_one_of(tokens_[i].text, {",", ";", "="}))
                is_list = true;
        }
        for (const std::size_t mutant : unit.mutants) {
            const std::vector<Token> changed = tokens_of(version(unit, mutant));
            if (changed.empty() || changed.front().text == "{" || !is_complete(changed, 0, changed.size()))
                is_list = true;
            for (std::size_t i = 0; i < changed.size() && !is_list; ++i) {
                if (opens(changed[i].text))
                    i = changed[i].partner;
                else if (is_one_of(changed[i].text, {",", ";", "="}))
                    is_list = true;
            }
        }
        if (!is_list) return true;
        std::size_t k = unit.first;  // the bracket around it
        while (!opens(tokens_[--k].text)) {
            if (closes(tokens_[k].text)) k = tokens_[k].partner;
            if (tokens_[k].text == ";") return false;
        }
        unit.first = k;
        unit.end = tokens_[k].partner + 1;
    }
    return false;
}

bool AllMutants::extend_to_statements(Unit& unit) const {
    for (std::size_t before = 0; before != unit.first + (unit.end << 20);) {
        before = unit.first + (unit.end << 20);
        if (!extend(unit)) return false;
        while (!starts_statement(unit.first)) {
            const Token& token = tokens_[unit.first - 1];
            if (token.text == "{" && !token.in_function) return false;
            unit.first = closes(token.text) ? token.partner : unit.first - 1;
            if (opens(token.text)) unit.end = std::max(unit.end, token.partner + 1);
        }
        // To the end of the statement, with all that an else adds.
        const auto is_end = [&] {
            if (unit.end == unit.first) return true;
            const Token& last = tokens_[unit.end - 1];
            const std::string& next = tokens_[unit.end].text;
            if (last.text == ";") return next != "else" && starts_statement(unit.end);
            return last.text == "}" && next != "else" && next != ";" && next != "," && next != ")" &&
                   next != "(";
        };
        while (!is_end()) {
            if (tokens_[unit.end].text == "}") return false;
            unit.end = opens(tokens_[unit.end].text) ? tokens_[unit.end].partner + 1 : unit.end + 1;
        }
    }
    for (const std::size_t mutant : unit.mutants) {
        const std::vector<Token> changed = tokens_of(version(unit, mutant));
        if (!is_complete(changed, 0, changed.size())) return false;
    }
    return !declares_for_others(unit);
}

/// Whether what follows statements in their block has the name of something that they declare.
bool AllMutants::declares_for_others(const Unit& unit) const {
    static const std::set<std::string> kinds{"const", "auto",     "int",       "float",
                                             "bool",  "unsigned", "constexpr", "static",
                                             "using", "template", "struct",    "static_assert"};
    std::set<std::string> names;
    bool declares = false;
    for (std::size_t i = unit.first; i < unit.end; ++i) {
        if (starts_statement(i)) declares = kinds.contains(tokens_[i].text);
        if (opens(tokens_[i].text) && !(tokens_[i].text == "[" && declares)) {
            i = tokens_[i].partner;
        } else if (declares && std::isalpha(static_cast<unsigned char>(tokens_[i].text[0]))) {
            names.insert(tokens_[i].text);
        }
    }
    for (std::size_t i = unit.end, open = 0; i < tokens_.size() && !names.empty(); ++i) {
        if (names.contains(tokens_[i].text) && !kinds.contains(tokens_[i].text)) return true;
        open += opens(tokens_[i].text);
        if (closes(tokens_[i].text) && open-- == 0) break;
    }
    return false;
}

/// The unit's text as the mutant has it.
std::string AllMutants::version(const Unit& unit, std::size_t mutant) const {
    std::vector<const Edit*> own;
    for (const Edit& edit : edits_) {
        if (edit.mutant == mutant && edit.first >= unit.first && edit.end <= unit.end) own.push_back(&edit);
    }
    std::ranges::sort(own, {}, &Edit::first);
    std::string text;
    std::size_t next = unit.first;
    const auto add_kept = [&](std::size_t end) {
        if (next < end)
            text += kernel_.substr(tokens_[next].at, tokens_[end - 1].end - tokens_[next].at) + " ";
    };
    for (const Edit* edit : own) {
        add_kept(edit->first);
        text += edit->text + " ";
        next = edit->end;
    }
    add_kept(unit.end);
    return text;
}

/// Disjoint, in order: changes of the same place are versions of it.
std::vector<AllMutants::Unit> AllMutants::units() {
    std::vector<Unit> units;
    const auto none = [&](const std::vector<std::size_t>& mutants) {
        for (const std::size_t mutant : mutants) forms_[mutant] = Form::none;
    };
    for (bool again = true; again;) {
        again = false;
        units.clear();
        for (const Edit& edit : edits_) {
            if (forms_[edit.mutant] == Form::none) continue;
            Unit unit{edit.first, edit.end, forms_[edit.mutant], {edit.mutant}};
            if (unit.form == Form::expression && !extend_to_expression(unit))
                unit = {edit.first, edit.end, Form::statements, {edit.mutant}};
            if (unit.form == Form::statements && !extend_to_statements(unit)) {
                none({edit.mutant});
                again = true;
                break;
            }
            units.push_back(unit);
        }
        std::ranges::sort(units, {}, [](const Unit& unit) { return std::pair(unit.first, unit.end); });
        for (std::size_t i = 1; i < units.size() && !again;) {
            Unit &a = units[i - 1], &b = units[i];
            if (b.first > a.end ||
                (b.first == a.end && a.first != a.end && b.first != b.end && b.first != a.first)) {
                ++i;
                continue;
            }
            Unit both{std::min(a.first, b.first), std::max(a.end, b.end),
                      a.form == Form::statements || b.form == Form::statements ? Form::statements
                                                                               : Form::expression,
                      a.mutants};
            both.mutants.insert(both.mutants.end(), b.mutants.begin(), b.mutants.end());
            const bool a_holds_b = a.first <= b.first && a.end >= b.end,
                       b_holds_a = b.first <= a.first && b.end >= a.end;
            if (a_holds_b)
                both.form = a.form;
            else if (b_holds_a)
                both.form = b.form;
            else
                both.form = Form::statements;
            if (!(both.form == Form::expression ? extend_to_expression(both) : extend_to_statements(both))) {
                none(b.mutants);
                again = true;
                break;
            }
            a = both;
            units.erase(units.begin() + static_cast<std::ptrdiff_t>(i));
            i = 1;
        }
    }
    for (Unit& unit : units) {
        std::ranges::sort(unit.mutants);
        unit.mutants.erase(std::unique(unit.mutants.begin(), unit.mutants.end()), unit.mutants.end());
    }
    return units;
}

std::string AllMutants::text_of(const Unit& unit) const {
    const std::string own =
        unit.first == unit.end
            ? ""
            : kernel_.substr(tokens_[unit.first].at, tokens_[unit.end - 1].end - tokens_[unit.first].at);
    std::string text = unit.form == Form::expression ? "(" : "{ ";
    for (const std::size_t mutant : unit.mutants)
        text += unit.form == Form::expression
                    ? fmt::format("MUTANT({}) ? ({}) : ", mutant, version(unit, mutant))
                    : fmt::format("if (MUTANT({})) {{ {} }} else ", mutant, version(unit, mutant));
    return text + (unit.form == Form::expression ? "(" + own + "))" : "{ " + own + " } }");
}

void AllMutants::write(const fs::path& folder) {
    folder_ = folder;
    written_ = units();
    std::string source = fmt::format(prelude, (folder / "chosen").string());
    // The kernel's own first header comes before all else, as a compiler may have it precompiled.
    std::size_t next = 0;
    std::string text;
    for (Unit& unit : written_) {
        const std::size_t at = unit.first < tokens_.size() ? tokens_[unit.first].at : kernel_.size();
        text += kernel_.substr(next, at - next);
        unit.first_line = static_cast<int>(std::ranges::count(text, '\n'));
        text += text_of(unit);
        unit.last_line = static_cast<int>(std::ranges::count(text, '\n'));
        next = unit.first == unit.end ? at : tokens_[unit.end - 1].end;
        if (unit.first == unit.end) text += "\n";
    }
    text += kernel_.substr(next);
    const std::size_t include = text.find("#include"), after = text.find('\n', include) + 1;
    source = text.substr(0, after) + source + text.substr(after);
    const int shift = static_cast<int>(std::ranges::count(fmt::format(prelude, ""), '\n'));
    for (Unit& unit : written_) {
        unit.first_line += shift + 1;
        unit.last_line += shift + 1;
    }
    OutputFile(folder / "kernel.cu").write(source);
    OutputFile(folder / "chosen").write("-1");
}

bool AllMutants::leave_out(const std::string& errors) {
    static const std::regex place("kernel\\.cu:(\\d+):\\d+: (error|  required)"),
        name("[‘']([A-Za-z_]\\w*)[’'] was not declared");
    bool any = false;
    const auto refuse = [&](const Unit& unit) {
        for (const std::size_t mutant : unit.mutants) {
            Form& form = forms_[mutant];
            const Form weaker = unit.form == Form::expression ? Form::statements : Form::none;
            any = any || form < weaker;
            form = std::max(form, weaker);
        }
    };
    for (std::sregex_iterator at(errors.begin(), errors.end(), place), end; at != end; ++at) {
        const int line = std::stoi((*at)[1]);
        for (const Unit& unit : written_) {
            if (unit.first_line <= line && line <= unit.last_line) refuse(unit);
        }
    }
    // What is declared inside of an if is not known after it.
    for (std::sregex_iterator at(errors.begin(), errors.end(), name), end; at != end && !any; ++at) {
        for (const Unit& unit : written_) {
            for (std::size_t i = unit.first; i < unit.end && unit.form == Form::statements; ++i) {
                if (tokens_[i].text == (*at)[1]) refuse(unit);
            }
        }
    }
    return any;
}

bool AllMutants::has(std::size_t mutant) const {
    return std::ranges::any_of(written_, [&](const Unit& unit) {
        return std::ranges::find(unit.mutants, mutant) != unit.mutants.end();
    });
}

void AllMutants::choose(std::size_t mutant) const {
    OutputFile(folder_ / "chosen").write(fmt::format("{}", mutant));
}

}  // namespace ladder
