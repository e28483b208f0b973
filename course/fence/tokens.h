/// @file
/// The tokens of a kernel's source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

struct Token {
    enum class Kind : std::uint8_t { word, number, literal, mark };  // a mark is one character of punctuation
    Kind kind;
    std::string_view text;
    int line;
    bool first;  ///< of its line
};

/// What a compiler could read in another way.
struct UnreadableToken {
    int line;
    std::string what;
};

/// The tokens of a source, which they refer to, without its comments. Throws UnreadableToken where a compiler
/// could read others.
std::vector<Token> tokens_of(std::string_view source);

/// A function of a kernel's namespace, and of no structure.
struct SourceFunction {
    std::string_view name;
    std::size_t begin = 0, end = 0;  ///< of its tokens, from its declaration to its last brace
    bool on_device = false;          ///< __device__ or __global__
    bool anywhere = false;           ///< constexpr
};

/// Those that are defined in a source which screen_source() accepts.
std::vector<SourceFunction> functions_of(const std::vector<Token>& tokens);

}  // namespace ladder
