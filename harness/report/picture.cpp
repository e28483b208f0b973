#include "harness/report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace ladder {
namespace {

std::string replaced(const std::string& text, std::initializer_list<std::pair<char, const char*>> entities) {
    std::string result;
    for (const char c : text) {
        const auto* entity = std::find_if(entities.begin(), entities.end(),
                                          [&](const auto& known) { return known.first == c; });
        result += entity == entities.end() ? std::string(1, c) : entity->second;
    }
    return result;
}

}  // namespace

std::vector<std::string> file_names(const Picture& picture) {
    return {picture.name + "-light.svg", picture.name + "-dark.svg"};
}

bool is_shown(const Picture& picture, const std::string& svg) {
    const auto data = replaced(picture.data, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}});
    return svg.find(">" + data + "<") != svg.npos;
}

std::string to_html(const Picture& picture, const std::string& folder) {
    const auto files = file_names(picture);
    return fmt::format(
        "<picture>\n<source media=\"(prefers-color-scheme: dark)\" srcset=\"{0}/{1}\">\n"
        "<img width=\"{2}\" alt=\"{3}\" src=\"{0}/{4}\">\n</picture>\n",
        folder, files[1], picture.width,
        replaced(picture.words, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}}), files[0]);
}

}  // namespace ladder
