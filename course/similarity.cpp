#include "course/similarity.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>

#include "course/fence/tokens.h"

namespace ladder {
namespace {

constexpr std::size_t sequence_length = 10;  ///< tokens: about a line

using Sequences = std::set<std::uint64_t>;

/// Words that no submission can rename.
bool is_nobodys_name(std::string_view word) {
    static const std::set<std::string_view> words{
        "auto",     "bool",     "break",    "case",      "char",     "const",    "constexpr",
        "continue", "do",       "double",   "else",      "false",    "float",    "for",
        "if",       "int",      "long",     "operator",  "return",   "sizeof",   "static",
        "struct",   "switch",   "template", "true",      "typename", "unsigned", "using",
        "void",     "volatile", "while",    "threadIdx", "blockIdx", "gridDim",  "blockDim"};
    return words.contains(word) || word.starts_with("__");
}

/// What counts of a token.
std::string_view kept(const Token& token) {
    if (token.kind == Token::Kind::word && !is_nobodys_name(token.text)) return "name";
    return token.kind == Token::Kind::literal ? "text" : token.text;
}

Sequences sequences(const std::string& source) {
    std::vector<std::uint64_t> hashes;
    try {
        for (const Token& token : tokens_of(source)) {
            std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
            for (const unsigned char c : kept(token)) hash = (hash ^ c) * 0x100000001b3;
            hashes.push_back(hash);
        }
    } catch (const UnreadableToken&) {
        return {};
    }
    Sequences found;
    for (std::size_t i = 0; i + sequence_length <= hashes.size(); ++i) {
        std::uint64_t hash = 0;
        for (std::size_t j = i; j < i + sequence_length; ++j)
            hash = (hash ^ hashes[j]) * 0x9e3779b97f4a7c15 + (hash >> 29);
        found.insert(hash);
    }
    return found;
}

Similarity overlap(const OwnCode& submission, const OwnCode& other) {
    const auto &a = submission.sequences, &b = other.sequences;
    const auto shared = std::count_if(a.begin(), a.end(), [&](auto one) { return b.contains(one); });
    Similarity both;
    both.submission = submission.name, both.other = other.name;
    both.own = a.size(), both.own_of_other = b.size(), both.shared = static_cast<std::size_t>(shared);
    return both;
}

}  // namespace

OwnCode own_code(const std::string& name, const std::string& source, const std::string& parent) {
    const Sequences all = sequences(source), known = sequences(parent);
    OwnCode own{name, {}};
    std::set_difference(all.begin(), all.end(), known.begin(), known.end(),
                        std::inserter(own.sequences, own.sequences.end()));
    return own;
}

std::vector<Similarity> similarities(const std::vector<OwnCode>& submissions,
                                     const std::vector<OwnCode>& ladder, double least) {
    std::vector<Similarity> found;
    const auto add = [&](const Similarity& one) {
        if (one.own > 0 && one.share() >= least) found.push_back(one);
    };
    for (const OwnCode& submission : submissions) {
        for (const OwnCode& other : submissions) {
            if (&other <= &submission) continue;
            const bool is_first = submission.sequences.size() <= other.sequences.size();
            add(is_first ? overlap(submission, other) : overlap(other, submission));
        }
        std::optional<Similarity> nearest;
        for (const OwnCode& stage : ladder) {
            const Similarity one = overlap(submission, stage);
            if (!nearest || one.shared > nearest->shared) nearest = one;
        }
        if (nearest) add(*nearest);
    }
    std::stable_sort(found.begin(), found.end(), [](const Similarity& a, const Similarity& b) {
        return std::tuple(b.share(), b.own) < std::tuple(a.share(), a.own);
    });
    return found;
}

}  // namespace ladder
