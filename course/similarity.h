/// @file
/// Which submissions share more than the parent's code.
///
/// As MOSS does it (Schleimer, Wilkerson and Aiken: Winnowing, SIGMOD 2003): a kernel is the set of its
/// sequences of k tokens, in which names and literals are all the same. What the parent has counts for none.
/// A kernel is short, so all sequences are compared, not a sample of them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace ladder {

/// A kernel with the sequences of tokens that are its own, as hashes.
struct OwnCode {
    std::string name;
    std::set<std::uint64_t> sequences;
};

/// Two kernels, the first a submission.
struct Similarity {
    std::string submission, other;
    std::size_t own = 0;     ///< sequences of the first
    std::size_t shared = 0;  ///< of these, those that the second has, too
    double share() const { return own == 0 ? 0 : static_cast<double>(shared) / static_cast<double>(own); }
};

/// What of the kernel `source` is not the parent's, as it was handed out. Of one that has no tokens (see
/// tokens_of()), nothing.
OwnCode own_code(const std::string& name, const std::string& source, const std::string& parent);

/// Each submission against each other, and that of the ladder's kernels which has most of it, where
/// at least `least` of its own is shared; the most similar first.
std::vector<Similarity> similarities(const std::vector<OwnCode>& submissions,
                                     const std::vector<OwnCode>& ladder, double least);

}  // namespace ladder
