/// @file
/// Text for a terminal: how wide it is, and how text is made to fit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

/// Columns of the terminal that an open file is: what the environment variable COLUMNS says, or else the
/// terminal itself. 0, which is no bound, if the file is no terminal or does not say.
std::size_t terminal_width(int file);

/// Columns that a UTF-8 text takes in a terminal.
std::size_t display_width(std::string_view utf8);

/// The words of a text in lines of at most so many columns; a longer word has a line of its own. Blanks stay
/// where no line ends. One line if `width` is 0; at least one, which may be empty.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// No narrower than this is text for the sake of others in its line.
constexpr std::size_t least_text = 12;

/// A text line by line; what has no room goes on below, further in than its line. Commands, which are copied,
/// and lines of sources that a compiler shows stay whole. Each line ends with '\n'. As it is if `width` is 0.
std::string continued(const std::string& text, std::size_t width);

/// At most so many columns of a text, of which the last is "…" if some are missing.
std::string cut_to(std::string_view text, std::size_t width);

/// A command as it can be typed where this one was: "./lab check 'my folder'". What calls this program says
/// in the environment variable LADDER_COMMAND how it was called itself; "./lab" if nothing does.
std::string lab_command(const std::vector<std::string>& words = {});

/// A word as a shell reads it: in quotes where it needs them.
std::string shell_word(std::string_view word);

/// " (did you mean 'time'?)" if a word is one of those that there are but for two mistyped letters, or a part
/// of one alone; else nothing.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& there);

}  // namespace ladder
