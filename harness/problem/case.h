/// @file
/// One attention problem to run: its sizes, type and memory order, and what its inputs are.
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
/// What most cases are of, in turn.
constexpr Layout usual_layouts[] = {Layout::bnhd, Layout::bhnd, Layout::mixed};
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

/// A kind of input. Ordinary and adversarial; `lab verify --input` takes the names.
struct InputKind {
    const char* name;         ///< "normal", "huge", "rising", "falling", "constant", "one_hot", ...
    const char* description;  ///< one line
};
const std::vector<InputKind>& input_kinds();
constexpr int kinds_for_8_bits = 5;  ///< the last of them, which show what 8 bits lose

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
    /// Batch entry and query head of the whole problem.
    std::pair<int, int> in_whole(int b, int h) const {
        const auto [whole_b, first_h] = sampled.empty() ? std::pair(b, 0) : sampled[b];
        return {whole_b, first_h + h};
    }
};

/// The pages of the pool of a case: as many as all requests would have if each had Nk keys, and one more.
/// Those that no request has are stale.
int pool_pages(const Case& c);

/// Where a tensor of the case has its elements.
Placement placement(const Case& c, Tensor tensor);

}  // namespace ladder
