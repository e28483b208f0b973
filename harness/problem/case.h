/// @file
/// One attention problem to run: its sizes, type and memory order, and what its inputs are; and those that a
/// stage is verified on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/problem/features.h"
#include "stages/stage.h"

namespace ladder {

/// Where Q, K, V, O and their gradients have their elements in a device's memory.
enum class Layout : std::uint8_t {
    bhnd,   ///< (B, H, N, d)
    bnhd,   ///< (B, N, H, d)
    mixed,  ///< no two of Q, K, V, O, or of their gradients, alike: some of each order, some slices
    far     ///< rows, heads and batch entries each so far apart that offsets pass 2^31 elements
};
const char* name(Layout layout);
/// All of them, by name.
const std::map<std::string, Layout>& layouts();

/// A tensor of a problem that has strides.
enum class Tensor : std::uint8_t { Q, K, V, O, dO, dQ, dK, dV };

/// A (B, heads, N, d) tensor in memory: rows of d elements, and the strides between them.
struct Placement {
    int B, heads, N, d;
    std::int64_t batch, head, row;  ///< in elements

    /// Elements that it has.
    std::size_t count() const { return std::size_t(B) * heads * N * d; }
    /// Elements from its first to its last, with what lies between its rows.
    std::size_t span() const {
        return static_cast<std::size_t>((B - 1) * batch + (heads - 1) * head + (N - 1) * row + d);
    }
    /// Rows are so far apart that one looks at them one by one.
    bool is_sparse() const { return span() > 64 * count(); }
    View at(void* data) const { return {data, batch, head, row}; }

    /// Calls f(offset) for each row, in the order of a dense (B, heads, N, d) tensor.
    template <class F>
    void for_each_row(F&& f) const {
        for (int b = 0; b < B; ++b) {
            for (int h = 0; h < heads; ++h) {
                for (int i = 0; i < N; ++i) f(static_cast<std::size_t>(b * batch + h * head + i * row));
            }
        }
    }
};

/// The dense (B, heads, N, d) tensor at `data`, as tensors lie in the host's memory.
View dense_view(void* data, int heads, int N, int d);

/// Most multiprocessors that a CPU back-end plays: more than a GPU will have for a while.
constexpr int most_multiprocessors = 1 << 14;

/// One problem of one pass, with its inputs.
struct Case {
    Shape shape;
    Pass pass = Pass::forward;  ///< a run of a stage takes the stage's
    DType dtype = DType::fp16;
    bool causal = false;
    Features features = {};
    Layout layout = Layout::bhnd;  ///< in the device's memory; on the host tensors are (B, heads, N, d)
    std::string input = "normal";
    std::uint64_t seed = 1;
    std::optional<float> scale = std::nullopt;  ///< default 1 / sqrt(d)
    /// Of the machine that a CPU back-end plays, since schedules depend on it; 0 for what it plays anyway.
    int multiprocessors = 0;
    /// Of a sample of a larger problem: which of its batch entries each is, and its first query head there.
    std::vector<std::pair<int, int>> sampled = {};

    bool operator==(const Case&) const = default;
    float softmax_scale() const;
    /// "B=1 H=2 Hkv=1 Nq=37 Nk=65 d=64 fp16 causal bnhd rising"; "fp16 backward causal" for the gradients
    std::string description() const;
    /// "--shape 1,2,1,37,65,64 --causal --layout bnhd --input rising": the options of `lab verify` that are
    /// this case; the pass is the stage's
    std::string options() const;
};

/// The case of such options: parse_case(c.options()) is c, its pass aside. Throws BadUsage.
Case parse_case(const std::string& options);

/// Whether a stage declares that it takes this.
bool takes(const Stage& stage, Feature feature);

/// Why a stage takes no such problem: "04_split_q does not take a sliding window"; or why its ranks cannot
/// divide it. Empty if it does.
std::string why_not_taken(const Stage& stage, const Case& c);

/// Throws BadUsage with why_not_taken().
void require_taken(const Stage& stage, const Case& c);

/// How much of what a problem can be meets how much else of it.
enum class Cover : std::uint8_t {
    each,   ///< each idea once, on small problems
    pairs,  ///< each two ideas together
    all     ///< the same at each head dimension
};

/// Cases in which the stage's code is at its boundaries. The ideas: query rows and keys below, at and above
/// one tile (Stage::tilings), several tiles, as many keys as wrap its ring twice and as many parts as no warp
/// merges at once, more rows than keys; with and without a mask; batches of 1 to 3; groups of 1 to 8;
/// machines of 1, 3, 8 and 132 multiprocessors, and of more; every kind of input; positive, negative and no
/// scale; layouts; types; head dimensions; and, small in all else, sizes that indices and schedules may
/// outgrow. All of them of the stage's pass. Stages with the same tilings have their
/// cases in common, and so what is expected of them.
std::vector<Case> verification_cases(const Stage& stage, Cover how);

/// Where the tensors of a case are; L is (B, H, Nq).
struct Addresses {
    void *Q = nullptr, *K = nullptr, *V = nullptr, *O = nullptr, *L = nullptr;
    void *dO = nullptr, *dQ = nullptr, *dK = nullptr, *dV = nullptr;  ///< of the backward pass alone
    const void* columns = nullptr;                                    ///< of column bounds
    const void* tiles = nullptr;                                      ///< make_tile_lists()
    const void* documents = nullptr;                                  ///< document_bounds()
    const void* lengths = nullptr;                                    ///< lengths_of()
    const void* block_table = nullptr;                                ///< block_table()
};

/// Where a tensor of the case has its elements.
Placement placement(const Case& c, Tensor tensor);

/// The case as kernels get it, with its tensors there in the case's layout. workspace and sm_count are for
/// the run to fill in.
Problem make_problem(const Case& c, const Addresses& at);

}  // namespace ladder
