#include "harness/ladder/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "harness/base/terminal.h"
#include "harness/ladder/ladder.h"
#include "stages/errors.h"

namespace fs = std::filesystem;

namespace ladder {
namespace {

[[noreturn]] void no_such_stage(const std::string& word) {
    std::vector<std::string> names;
    for (const Stage& stage : stages()) names.push_back(stage.name);
    throw BadUsage(
        fmt::format("there is no stage '{}'{}; see {}", word, did_you_mean(word, names), list_of_stages()));
}

bool is_number(const std::string& word) {
    return !word.empty() && word.size() < 5 && word.find_first_not_of("0123456789") == word.npos;
}

// Whether a word names a user's own kernel: a path, or a folder that has not a stage's name.
bool is_own(const std::string& word) {
    const auto has_its_name = [&](const Stage& s) { return word == s.name || word == s.folder(); };
    const bool known = std::any_of(stages().begin(), stages().end(), has_its_name);
    return word.find('/') != word.npos || (!known && !is_number(word) && fs::exists(word));
}

// The numbers that one word names: a name, a number or a range.
std::vector<int> numbers_of(const std::string& word) {
    for (const Stage& stage : stages()) {
        if (word == stage.name || word == stage.folder()) return {stage.number};
    }
    const std::size_t dash = word.find('-');
    const std::string from = word.substr(0, dash);
    const std::string to = dash == word.npos ? from : word.substr(dash + 1);
    if (!is_number(from) || !is_number(to)) no_such_stage(word);
    const int first = std::stoi(from), last = std::stoi(to);
    if (first > last || find_stage(first) == nullptr || find_stage(last) == nullptr) no_such_stage(word);
    std::vector<int> numbers;
    for (const Stage& stage : stages()) {
        if (first <= stage.number && stage.number <= last) numbers.push_back(stage.number);
    }
    return numbers;
}

}  // namespace

std::string& list_of_stages() {
    static std::string place = lab_command({"list"});
    return place;
}

std::vector<const Stage*> select_stages(const std::vector<std::string>& words) {
    std::set<int> numbers;
    std::vector<const Stage*> own;
    bool all = words.empty();
    for (const std::string& list : words) {
        std::istringstream parts(list + ",");
        for (std::string word; std::getline(parts, word, ',');) {
            if (word == "all") {
                all = true;
            } else if (is_own(word)) {
                const Stage& stage = own_stage(word);
                if (&stage == find_stage(stage.number))
                    numbers.insert(stage.number);
                else
                    own.push_back(&stage);
            } else {
                for (const int number : numbers_of(word)) numbers.insert(number);
            }
        }
    }
    std::vector<const Stage*> selected;
    for (const Stage& stage : stages()) {
        if (all || numbers.contains(stage.number)) selected.push_back(&stage);
    }
    selected.insert(selected.end(), own.begin(), own.end());
    return selected;
}

const Stage& select_stage(const std::string& word) {
    const auto selected = select_stages({word});
    if (selected.size() != 1) throw BadUsage(fmt::format("'{}' is not one stage", word));
    return *selected.front();
}

}  // namespace ladder
