/// @file
/// A picture that docs/plots/draw.py draws of numbers, in one version for light pages and one for dark ones.
#pragma once

#include <string>
#include <vector>

namespace ladder {

/// What a page needs of it.
struct Picture {
    std::string name;   ///< of its files
    std::string data;   ///< one line of JSON: what draw.py reads
    std::string words;  ///< the same in words, in one line, for those who do not see it
    int width = 400;    ///< on a page, in pixels
};

/// Its files: for light pages, for dark ones.
std::vector<std::string> file_names(const Picture& picture);

/// Whether draw.py made this SVG of these data, and not of older ones.
bool is_shown(const Picture& picture, const std::string& svg);

/// Both versions, in that folder, as HTML: the browser takes the one of its reader's theme.
std::string to_html(const Picture& picture, const std::string& folder);

}  // namespace ladder
