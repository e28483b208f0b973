#include "course/fence/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace ladder {
namespace {

constexpr std::size_t longest_line = 2000, longest_word = 200;

bool starts_word(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_digit(char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool in_word(char c) {
    return starts_word(c) || is_digit(c);
}

/// The tokens of a source that compilers cannot read in another way. Throws UnreadableToken for any other.
class Tokens {
  public:
    explicit Tokens(std::string_view source) : source_(source) {
        // An editor's byte order mark says that this is UTF-8. Compilers skip it at the beginning alone.
        if (source_.starts_with("\xef\xbb\xbf")) source_.remove_prefix(3);
        check_characters();
        while (at_ < source_.size()) next();
    }
    std::vector<Token> list() && { return std::move(list_); }

  private:
    [[noreturn]] void refuse(const std::string& what) const { throw UnreadableToken{line_, what}; }

    /// Before there are tokens: characters, the ends of lines, their lengths.
    void check_characters() {
        std::size_t begin = 0;
        for (std::size_t i = 0; i <= source_.size(); ++i) {
            if (i == source_.size() || source_[i] == '\n') {
                if (i - begin > longest_line) refuse(fmt::format("longer than {} characters", longest_line));
                const std::size_t last = source_.substr(begin, i - begin).find_last_not_of(" \t\r");
                if (last != source_.npos && source_[begin + last] == '\\')
                    refuse("it ends with \\: kernels need no joined lines");
                begin = i + 1;
                line_ += 1;
                continue;
            }
            const auto c = static_cast<unsigned char>(source_[i]);
            const bool end_of_line = c == '\r' && source_.substr(i + 1, 1) == "\n";
            if ((c < 32 && c != '\t' && !end_of_line) || c == 127)
                refuse(fmt::format("the control character {:#04x}", c));
        }
        line_ = 1;
    }

    bool at(std::string_view text) const { return source_.substr(at_, text.size()) == text; }

    void add(Token::Kind kind, std::size_t length) {
        list_.push_back({kind, source_.substr(at_, length), line_, first_});
        first_ = false;
        at_ += length;
    }

    std::size_t length_while(bool (*belongs)(char)) const {
        std::size_t end = at_;
        while (end < source_.size() && belongs(source_[end])) ++end;
        return end - at_;
    }

    void next() {
        const char c = source_[at_];
        if (c == '\n') {
            line_ += 1;
            first_ = true;
            at_ += 1;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            at_ += 1;
        } else if (at("//")) {
            at_ = std::min(source_.find('\n', at_), source_.size());
        } else if (at("/*")) {
            const std::size_t end = source_.find("*/", at_ + 2);
            if (end == source_.npos) refuse("a comment without an end");
            line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                 source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
            at_ = end + 2;
        } else if (c == '"' || c == '\'') {
            literal(c);
        } else if (is_digit(c) || (c == '.' && at_ + 1 < source_.size() && is_digit(source_[at_ + 1]))) {
            number();
        } else if (starts_word(c)) {
            const std::size_t length = length_while(in_word);
            if (length > longest_word) refuse(fmt::format("a name of {} letters", length));
            const std::size_t behind = at_ + length;
            if (behind < source_.size() && (source_[behind] == '"' || source_[behind] == '\''))
                refuse("a literal with a prefix, or a raw string: kernels need none");
            add(Token::Kind::word, length);
        } else {
            mark(c);
        }
    }

    void literal(char quote) {
        std::size_t end = at_ + 1;
        while (end < source_.size() && source_[end] != quote && source_[end] != '\n')
            end += source_[end] == '\\' ? 2 : 1;
        if (end >= source_.size() || source_[end] != quote) refuse("a literal without an end");
        if (end + 1 < source_.size() && in_word(source_[end + 1])) refuse("a literal with a suffix");
        add(Token::Kind::literal, end + 1 - at_);
    }

    void number() {
        std::size_t end = at_;
        for (; end < source_.size(); ++end) {
            const char c = source_[end];
            const bool sign = (c == '+' || c == '-') &&
                              std::string_view("eEpP").find(source_[end - 1]) != std::string_view::npos;
            const bool separator = c == '\'' && end + 1 < source_.size() && in_word(source_[end + 1]);
            if (!in_word(c) && c != '.' && !sign && !separator) break;
        }
        add(Token::Kind::number, end - at_);
    }

    void mark(char c) {
        static constexpr std::string_view marks = "#{}[]()<>;:?.,+-*/%^&|~!=";
        if (marks.find(c) == marks.npos) {
            refuse(static_cast<unsigned char>(c) >= 128
                       ? "letters beyond ASCII, which are for comments and texts"
                       : fmt::format("'{}': kernels do not need it", c));
        }
        for (const char* spelling : {"%:", "<:", ":>", "<%", "%>", "?\?"})
            if (at(spelling))
                refuse(fmt::format("'{}': kernels need no digraphs and no trigraphs", spelling));
        add(Token::Kind::mark, 1);
    }

    std::string_view source_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool first_ = true;  ///< nothing so far on this line
    std::vector<Token> list_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
    return Tokens(source).list();
}

std::vector<SourceFunction> functions_of(const std::vector<Token>& tokens) {
    std::vector<SourceFunction> functions;
    SourceFunction now;  // or whatever else is declared
    bool is_function = true;
    int braces = 0, parentheses = 0;
    const auto begin_next = [&](std::size_t at) {
        now = {.name = {}, .begin = at};
        is_function = true;
    };
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::string_view text = tokens[i].text;
        const bool outside = braces == 1 && parentheses == 0;  // of what is declared in the namespace
        if (outside && text == "template") {
            int angles = 0;
            do {
                if (++i >= tokens.size()) return functions;
                angles += tokens[i].text == "<" ? 1 : tokens[i].text == ">" ? -1 : 0;
            } while (angles > 0);
            continue;
        }
        if (text == "(" && outside && now.name.empty() && i > 0 && tokens[i - 1].kind == Token::Kind::word &&
            !tokens[i - 1].text.starts_with("__"))
            now.name = tokens[i - 1].text;
        if (outside &&
            (text == "=" || text == "struct" || text == "class" || text == "enum" || text == "union"))
            is_function = false;
        if (braces == 1 && (text == "__device__" || text == "__global__")) now.on_device = true;
        if (braces == 1 && text == "constexpr") now.anywhere = true;
        parentheses += text == "(" ? 1 : text == ")" ? -1 : 0;
        if (text == "{" && ++braces == 1) begin_next(i + 1);
        if (text == "}" && --braces == 1 && parentheses == 0) {
            now.end = i + 1;
            if (is_function && !now.name.empty()) functions.push_back(now);
            if (is_function) begin_next(i + 1);
        }
        if (text == ";" && outside) begin_next(i + 1);
    }
    return functions;
}

}  // namespace ladder
