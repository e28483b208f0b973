#include "harness/trace/page.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/built.h"
#include "harness/base/file.h"
#include "stages/errors.h"

namespace ladder {
namespace {

const std::string explorer = built_from + std::string("/explorer/");

// The page with the files that its lines name: "@style.css@".
std::string with_modules() {
    std::string page;
    std::istringstream lines(read_file(explorer + "page.html"));
    for (std::string line; std::getline(lines, line);) {
        const bool named = line.size() > 2 && line.front() == '@' && line.back() == '@';
        page += named ? read_file(explorer + line.substr(1, line.size() - 2)) : line + "\n";
    }
    return page;
}

}  // namespace

std::string explorer_page(const nlohmann::ordered_json& traces) {
    std::string page = with_modules();
    std::string data = traces.dump();
    // Inside of <script>, nothing may look like its end.
    for (std::size_t at = 0; (at = data.find("</", at)) != data.npos; at += 3) data.replace(at, 2, "<\\/");
    const std::string marker = "@TRACES@</script>";
    const std::size_t place = page.find(marker);
    if (place == page.npos) throw CheckFailed(explorer + "page.html has no place for the traces");
    return page.replace(place, marker.find('<'), data);
}

}  // namespace ladder
