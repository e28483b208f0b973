#include "harness/ladder/constants.h"

#include <cctype>
#include <charconv>
#include <optional>

namespace ladder {
namespace {

using Constants = std::map<std::string, int>;

/// Evaluates the expression that a text starts with. `ok` is false once something was not understood.
class Evaluator {
  public:
    Evaluator(std::string_view text, const Constants& known) : rest_(text), known_(known) {}

    int choice() {
        const int condition = comparison();
        if (!eat("?")) return condition;
        const int yes = choice();
        ok = ok && eat(":");
        const int no = choice();
        return condition != 0 ? yes : no;
    }

    /// What follows the expression.
    std::string_view rest() {
        while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front())))
            rest_.remove_prefix(1);
        return rest_;
    }

    bool ok = true;

  private:
    bool eat(std::string_view token) {
        if (!rest().starts_with(token)) return false;
        rest_.remove_prefix(token.size());
        return true;
    }

    int comparison() {
        const int left = sum();
        if (eat("<=")) return left <= sum();
        if (eat(">=")) return left >= sum();
        if (eat("==")) return left == sum();
        if (eat("<")) return left < sum();
        if (eat(">")) return left > sum();
        return left;
    }

    int sum() {
        int value = product();
        for (;;) {
            if (eat("+")) {
                value += product();
            } else if (eat("-")) {
                value -= product();
            } else {
                return value;
            }
        }
    }

    int product() {
        int value = operand();
        for (;;) {
            if (eat("*")) {
                value *= operand();
                continue;
            }
            const bool divides = eat("/");
            if (!divides && !eat("%")) return value;
            const int by = operand();
            ok = ok && by != 0;
            if (by != 0) value = divides ? value / by : value % by;
        }
    }

    int operand() {
        if (eat("(")) {
            const int value = choice();
            ok = ok && eat(")");
            return value;
        }
        int value = 0;
        const std::string_view text = rest();
        if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            error == std::errc()) {
            rest_.remove_prefix(static_cast<std::size_t>(end - text.data()));
            return value;
        }
        std::size_t length = 0;
        while (length < text.size() &&
               (std::isalnum(static_cast<unsigned char>(text[length])) != 0 || text[length] == '_'))
            ++length;
        const auto constant = known_.find(std::string(text.substr(0, length)));
        rest_.remove_prefix(length);
        eat("<d>");
        ok = ok && constant != known_.end();
        return ok ? constant->second : 0;
    }

    std::string_view rest_;
    const Constants& known_;
};

}  // namespace

std::map<std::string, int> read_constants(std::string_view source, int d) {
    Constants constants{{"d", d}};
    static constexpr std::string_view keyword = "constexpr int ";
    for (std::size_t at = source.find(keyword); at != source.npos; at = source.find(keyword, at + 1)) {
        const std::string_view line = source.substr(0, at).substr(source.rfind('\n', at) + 1);
        if (!line.empty() && line != "    static ") continue;  // in a function
        std::string_view text = source.substr(at + keyword.size());
        for (;;) {  // NAME = EXPRESSION, ...
            const std::size_t equals = text.find(" = ");
            if (equals == text.npos) break;
            Evaluator evaluator(text.substr(equals + 3), constants);
            const int value = evaluator.choice();
            text = text.substr(0, equals);
            const std::string_view rest = evaluator.rest();
            if (evaluator.ok && (rest.starts_with(';') || rest.starts_with(',')))
                constants.emplace(text.substr(text.find_first_not_of(" \n")), value);
            if (!evaluator.ok || !rest.starts_with(',')) break;
            text = rest.substr(1);
        }
    }
    constants.erase("d");
    return constants;
}

}  // namespace ladder
