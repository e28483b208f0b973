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

/// Two kernels, the first a submission; of two submissions, the one with the larger share.
struct Similarity {
    std::string submission, other;
    std::size_t own = 0, own_of_other = 0;  ///< sequences of each
    std::size_t shared = 0;                 ///< that both have
    double share() const { return part(own); }
    double share_of_other() const { return part(own_of_other); }

  private:
    double part(std::size_t of) const {
        return of == 0 ? 0 : static_cast<double>(shared) / static_cast<double>(of);
    }
};

/// What of the kernel `source` is not the parent's, as it was handed out. Of one that has no tokens (see
/// tokens_of()), nothing.
OwnCode own_code(const std::string& name, const std::string& source, const std::string& parent);

/// Each two submissions once, and each with that of the ladder's kernels which has most of it, where at least
/// `least` of the first's own is shared; the most similar first.
std::vector<Similarity> similarities(const std::vector<OwnCode>& submissions,
                                     const std::vector<OwnCode>& ladder, double least);

}  // namespace ladder
