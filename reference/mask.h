/// @file
/// Which keys a query row sees, what becomes of their scores, and which of their probabilities count.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "reference/dropout.h"

namespace reference {

/// Query rows that do not see a key: begin[k] .. end[k] - 1.
struct HiddenRows {
    int begin[2] = {}, end[2] = {};
    bool contain(int row) const {
        return (row >= begin[0] && row < end[0]) || (row >= begin[1] && row < end[1]);
    }
};

/// Rows and keys that belong together: a row sees no others.
struct Document {
    int first_row, end_row, first_key, end_key;
    /// The key that a row stands at: the last row stands at the last key.
    int position(int row) const { return row - end_row + end_key; }
};

/// Any mask, in tiles of 64 query rows and 64 keys.
struct Tiles {
    static constexpr int hidden = -2, full = -1;
    std::vector<int> kinds = {};  ///< (Tr, Tc): hidden, full, or the number of a partial tile
    std::vector<std::uint64_t> bits =
        {};  ///< (partial tiles, 64): row i sees key k if bit k of word i is set
    bool empty() const { return kinds.empty(); }
    bool hide(int row, int key, int Nk) const {
        const int kind = kinds[row / 64 * ((Nk + 63) / 64) + key / 64];
        return kind == hidden || (kind >= 0 && (bits[kind * 64 + row % 64] >> key % 64) % 2 == 0);
    }
};

/// What the scores of a head become before its mask hides any.
struct Scores {
    double softcap = 0;  ///< c: a score s becomes c tanh(s / c); 0 for none
    double slope = 0;    ///< of ALiBi: then it is less by this times the distance of the key from the row
    int tanh_bits = 0;   ///< significant bits that are kept of tanh; 0 for all
    /// What a tanh may be off by, relative to it, in units of the error that Gradients' sizes of terms are
    /// for. These alone depend on it.
    double tanh_error = 0;
};

/// Which keys a query row sees, aligned bottom-right: row i is at the position i + Nk - Nq of the keys. Under
/// a causal mask it sees none past its position, in a window none more than `left` before or `right` past it,
/// and none that hides from it, itself or in its tile. `row` counts from the first row of the whole (Nq, d)
/// problem.
struct Mask {
    bool causal = false;
    int Nq = 0;
    int Nk = 0;
    int left = -1, right = -1;             ///< of a window; -1 for no bound
    std::vector<Document> documents = {};  ///< one after the other, in each of which this holds; or none
    std::vector<HiddenRows> hidden = {};   ///< of each key; empty if none hides
    Tiles tiles = {};                      ///< those that hide keys, too; or none
    /// Of the last Nq keys, those that a row sees: key k of them if bit k of its word is set. Or none.
    std::vector<std::uint64_t> tree = {};
    Scores scores = {};
    /// The score of one key more, which every row sees and which has no value.
    double sink = -std::numeric_limits<double>::infinity();
    Dropout dropout = {};  ///< of the probabilities of the keys that are seen
    /// `row` sees those of the keys first(row) .. end(row) - 1 that do not hide from it. Neither falls from a
    /// row to the next.
    int first(int row) const;
    int end(int row) const;
    Document document_of(int row) const;
    /// Does dropout leave it this key? In a document both count from its first, and its first row is added to
    /// the batch entry.
    bool keeps(int row, int key) const;
    bool hides(int row, int key) const {
        return (!hidden.empty() && hidden[key].contain(row)) ||
               (!tiles.empty() && tiles.hide(row, key, Nk)) || (!tree.empty() && tree_hides(row, key));
    }
    /// How far the row stands past the key: in a tree as many keys as it sees between them, and itself.
    int distance(int row, int key) const;
    /// How many keys it sees.
    int visible(int row) const;
    /// Does it see any? Found at the first one, where counting them all would take Nk steps.
    bool sees_keys(int row) const;

  private:
    bool tree_hides(int row, int key) const;
};

}  // namespace reference
