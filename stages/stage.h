/// @file
/// The problem that every stage solves, how a stage declares itself, and the registry that lists them.
/// Plain C++ without dependencies: nvcc and the host compiler both read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ladder {

/// Storage type of Q, K, V, O and their gradients. Accumulation is fp32 for both.
enum class DType : std::uint8_t { fp16, bf16 };

/// What a stage computes: attention, or its gradients.
enum class Pass : std::uint8_t { forward, backward };

/// Where a stage's source was compiled for.
enum class Backend : std::uint8_t {
    cpu,      ///< the host, plain
    checked,  ///< the host, every memory access race-checked and audited
    gpu       ///< a CUDA device
};

/// Features of a problem that not every stage supports. A stage declares those that it takes.
enum class Feature : std::uint8_t {
    window,
    columns,
    documents,
    lengths,
    pages,
    prefix,
    ranks,
    tiles,
    dropout,
    softcap,
    alibi,
    sinks,
    promotion,
    tree,
    token_scales
};

/// What a stage multiplies, which determines the bounds that its outputs are held to.
enum class Products : std::uint8_t {
    of_16_bits,      ///< Q, K and V as they are, P rounded to their type; sums in fp32
    of_8_bit_cache,  ///< the same of K and V that come in e4m3, with a scale for each head or token
    of_8_bits,       ///< all of them rounded to e4m3, with a scale for each head; sums keep 13 bits
    of_8_promoted,   ///< and sums of P V over at most 128 keys are added in fp32
    of_8_in_blocks,  ///< and each 128 rows of Q and of K have a scale of their own
    of_8_rotated     ///< and rows of Q and K are first multiplied by random signs and a Hadamard matrix
};

const char* name(DType dtype);
const char* name(Pass pass);
const char* name(Backend backend);
/// "a sliding window"
const char* name(Feature feature);

/// Sizes of an attention problem, in the paper's notation.
struct Shape {
    int B = 1;    ///< batch
    int H = 1;    ///< query heads
    int Hkv = 1;  ///< key/value heads; query head h reads key/value head h / (H / Hkv)
    int Nq = 1;   ///< query rows
    int Nk = 1;   ///< keys
    int d = 64;   ///< head dimension

    bool operator==(const Shape&) const = default;
};

/// A (B, heads, N, d) tensor in memory. The last axis is contiguous; the strides of the others, in
/// elements and multiples of 8, make (B, H, N, d) and (B, N, H, d) both work without a copy.
struct View {
    void* data = nullptr;
    std::int64_t batch = 0;
    std::int64_t head = 0;
    std::int64_t row = 0;
};

/// A sliding window, aligned bottom-right: row i sees the keys i + Nk - Nq - left .. i + Nk - Nq + right.
struct Window {
    int left = -1, right = -1;  ///< -1 for no bound

    bool operator==(const Window&) const = default;
};

/// For each key, query rows that do not see it, in addition to those that the rest of the mask hides: rows
/// LTS .. LTE - 1, in many masks below the diagonal, and UTS .. UTE - 1, above it. A key has 1, 2 or 4
/// bounds: LTS; LTS and LTE under a causal mask, else LTS and UTE; LTS, LTE, UTS and UTE. Without a bound,
/// LTE is Nq and UTS and UTE are 0. An interval that does not end after its start is empty. (FlashMask, arXiv
/// 2410.01359.)
struct Columns {
    const int* bounds = nullptr;  ///< (B, heads, Nk, count)
    int heads = 0;                ///< a divisor of H: query head h has the bounds of head h / (H / heads)
    int count = 0;                ///< of a key; 0 if the problem has no such mask
};

/// Key tiles for each query tile, of 64 query rows and 64 keys: query tile r has those from tiles[first[r]]
/// to tiles[first[r + 1] - 1], which ascend.
struct TileList {
    const int* first = nullptr;  ///< (batches, heads, Tr) and one more
    const int* tiles = nullptr;
};

/// Any mask, tile by tile (what flex_attention calls a block mask). The rows of a query tile see all keys of
/// the tiles of one list; of those of the other list, row i sees key k if bit k of word i is set. They see no
/// key besides. No bit is set past Nk.
struct TileLists {
    TileList full, partial;
    const std::uint64_t* bits = nullptr;  ///< (partial tiles, 64), in the order of their list
    int batches = 0;                      ///< 1 or B: batch entry b has the lists of b % batches
    int heads = 0;  ///< a divisor of H, as in Columns; 0 if the problem has no such mask
};

/// Dropout: of the probabilities P that make up O, but not of those that make up L, element (b, h, i, j) is 0
/// unless its random byte is below `kept`; what is kept is multiplied by 256 / kept. Element (i, j) of head
/// (b, h) has byte (i / 8 % 2) * 2 + j % 2 of word j / 8 % 4 that Philox4x32-10 makes of the counter
/// (j less j / 8 % 4 * 8 + j % 2, i less i / 8 % 2 * 8, h, b) and the seed. In packed documents i and j count
/// from the first row and the first key of their document, whose first row in the sequence is b.
struct Dropout {
    int kept = 256;  ///< of 256; all of them if the problem has no dropout
    std::uint64_t seed = 0;

    bool operator==(const Dropout&) const = default;
};

/// Documents that are packed one after the other in one sequence: document k has the query rows from rows[k]
/// to rows[k + 1] - 1 and the keys from keys[k] to keys[k + 1] - 1 (cu_seqlens). A row sees only keys of its
/// document, in which a causal mask and a window are aligned bottom-right. A document may have no rows
/// or no keys.
struct Documents {
    const int* rows = nullptr;  ///< (count + 1): 0, ascending, Nq
    const int* keys = nullptr;  ///< (count + 1): 0, ascending, Nk
    int count = 0;              ///< 0 if nothing is packed; otherwise B is 1
};

/// One attention problem. Forward: O = softmax(scale Q K^T + mask) V and L = log(sum(exp(scale Q K^T +
/// mask))). Backward: with dO, the gradient of some loss by O, and with O and L from the forward pass, the
/// loss's gradients dQ, dK and dV by Q, K and V.
/// A causal mask is aligned bottom-right: row i sees the keys j <= i + Nk - Nq.
/// A row that sees no key has O = 0, L = -inf and dQ = 0. Kernels take it by value.
/// With a softcap, ALiBi or both, the scores scale Q K^T are changed first, in this order, before the mask.
struct Problem : Shape {
    View Q, K, V, O;
    float* L = nullptr;   ///< (B, H, Nq), natural logarithm
    View dO, dQ, dK, dV;  ///< of the backward pass alone, in the shapes of O, Q, K and V
    float scale = 1.0f;
    bool causal = false;
    Window window;  ///< with a causal mask, a row sees the keys that both allow
    Columns columns;
    Documents documents;
    TileLists tiles;  ///< the whole mask: not with a causal one
    /// c: a score s becomes s' = c tanh(s / c), whose derivative is 1 - (s' / c)^2. 0: none.
    float softcap = 0;
    /// ALiBi, (H) or (B, H): the score of row i and key j is less by the slope of its head times
    /// |i + Nk - Nq - j|, the distance of the key from the row's position. With documents or lengths a row's
    /// position is that of a causal mask. Slopes have no gradient. Null: none.
    const float* alibi_slopes = nullptr;
    int alibi_batch_stride = 0;  ///< from a batch entry's slopes to the next's: 0 or H
    /// (H): attention sinks, the score of one key more of each head, which every row sees and which has no
    /// value: O = sum(exp(S - m) V) / (l + exp(sink - m)), and L is the logarithm of the whole sum. A row
    /// that sees no other key has O = 0 and L = sink. Null: none.
    const float* sinks = nullptr;
    /// (H), of the backward pass: -sum(exp(sink - L) rowsum(dO o O)) over the rows of a head in all batch
    /// entries. Null where it is not asked for, in the forward pass and without sinks.
    float* dsinks = nullptr;
    Dropout dropout;
    /// (B,): the keys of each request, which are the first of its Nk; a causal mask and a window are aligned
    /// to the last of them. What lies past them may be NaN. Null: each request has all Nk.
    const int* lengths = nullptr;
    /// (B, ceil(Nk / page_size)): the page that holds a request's keys k page_size .. (k + 1) page_size - 1.
    /// K and V are then pools of pages, (pages, heads, page_size, d), and `batch` is the stride from page to
    /// page. Requests may share pages. Entries past a request's last page mean nothing. Null: no pages.
    const int* block_table = nullptr;
    int page_size = 0;  ///< a power of two
    DType dtype = DType::fp16;
    /// (B, Hkv): K and V are e4m3, whatever dtype is, and their elements are such numbers times the scale of
    /// their head, which is above 0 and finite. Strides of theirs are then multiples of 16. Null: K and V are
    /// of dtype.
    const float *K_scales = nullptr, *V_scales = nullptr;
    /// (B, H): Q is e4m3 in the same way, and so are K and V; O is of dtype. Null: Q is of dtype.
    const float* Q_scales = nullptr;
    /// Of products of 8 bits, whose sums keep 13 bits: sums of P V over at most 128 keys are added in fp32.
    bool promotion = false;
    void* workspace = nullptr;  ///< the stage's workspace_bytes(); all but its counters is undefined
    int sm_count = 1;           ///< multiprocessors of the device
    /// The first keys of all requests, in whole pages, that lie in the same pages: each row sees all of them.
    /// 0: none are known to.
    int prefix = 0;
    /// (Nq) or (B, Nq), under a causal mask: the last Nq keys of a request are a draft, row i's own among
    /// them, and of these row i sees key k if bit k of word i is set, as bit i is, and none after it. A row's
    /// position is that of the draft's first key and one more for each other bit of its word, and so is its
    /// own key's, seen from there: a window and ALiBi count so. Null: row i sees all rows before it.
    const std::uint64_t* tree = nullptr;
    int tree_batch_stride = 0;  ///< from a batch entry's words to the next's: 0 or Nq
    /// Of K and V in e4m3, fp32 scales of each token instead of K_scales and V_scales, which are then null:
    /// of the axes of K and V without d, (B, Hkv, Nk) or (pages, Hkv, page_size), with any strides. Where no
    /// request has a key, a scale may be NaN.
    View K_token_scales, V_token_scales;
};

/// Runs a stage's kernels on p (asynchronously on a GPU). Throws std::exception on failure.
using RunStage = void (*)(const Problem& p);

/// The sizes of a kernel's tiles, at which its code takes other branches.
struct Tiling {
    int Br = 64;    ///< query rows of a tile
    int Bc = 64;    ///< keys of a tile
    int depth = 1;  ///< key tiles in shared memory at a time: slots of the ring

    bool operator==(const Tiling&) const = default;
};

constexpr Tiling make_tiling(int Br, int Bc, int depth = 1) {
    return {Br, Bc, depth};
}

/// How a stage declares itself, in its kernel.cu. Everything that lists stages reads this.
struct Stage {
    int number = 0;
    std::string name = {};  ///< folder name without its number
    int parent = -1;        ///< the stage that it changes; -1 for none
    /// Its folder at an earlier time, by which recordings of its kernel name it: "13_fewer_parts".
    std::string formerly = {};
    int part = -1;   ///< the first number of its part; -1 for the part whose page comes before its number
    int place = -1;  ///< where it is read in its part, as if this were its number; -1 for its number
    std::vector<Tiling> tilings = {};          ///< at each of head_dims
    std::string change = {};                   ///< the one change, in one line
    std::string shows_in = {};                 ///< the timing regime where that change should show
    Pass pass = Pass::forward;                 ///< what it computes
    std::vector<Feature> takes = {};           ///< the features that it supports
    Products products = Products::of_16_bits;  ///< what it multiplies
    bool takes_e4m3 = false;  ///< Q, K and V come in e4m3, with a scale for each head: Problem::Q_scales
    int diff_budget = 80;     ///< most lines added or changed against the parent; 0 for no bound
    /// Most lines of its kernel.cu, if they are more than its part allows; 0 if they are not.
    int most_lines = 0;
    bool repeats_exactly = true;  ///< two runs agree bit for bit; false where sums go through atomics
    /// A request's results are the same bits alone and in any batch; false where the other requests decide
    /// how its keys or rows are divided. Means something only where it repeats exactly.
    bool batch_invariant = true;
    /// The weights of key tiles depend on how fp32 rounds large numbers: a score becomes an exponent in one
    /// multiply-add, `scale - m[...]`, with an m that was rounded, which the tile that set m was not. The
    /// judge allows for it.
    bool rounds_large_scores = false;
    /// Chunks of the sequence that each of P ranks holds: 1, number r of P for rank r; or 2, numbers r and
    /// 2 P - 1 - r of 2 P. 0 if the stage is for one GPU alone. See stages/ring.h.
    int chunks = 0;
    bool divides_rows = true;  ///< chunks are of keys and of query rows; otherwise each rank has all rows
    /// Bytes of global memory that the stage needs in addition to inputs and outputs; null for none.
    std::function<std::size_t(const Shape&, int sm_count)> workspace_bytes = nullptr;
    /// How many of these, at their end, are counters: 0 when a workspace is first used, and every run leaves
    /// them 0. An aborted run may not; then the next user of the workspace must zero them. Null for none.
    std::function<std::size_t(const Shape&, int sm_count)> counter_bytes = nullptr;
    std::vector<int> head_dims = {};  ///< filled in by LADDER_STAGE
    /// The only compute capability that it runs on, 90 for 9.0, if it uses instructions that no other has; 0
    /// for any. The CPU back-ends run every stage. Filled in when the declaration is read.
    int compute_capability = 0;

    /// Runs it on the back-end that its library was compiled for. Null, like the functions above, if only the
    /// declaration was read: harness/ladder/library.h compiles and loads.
    RunStage run = nullptr;
    std::string source = {};  ///< path of its kernel.cu; filled in when it is read or loaded

    /// "04_split_q": the stage's folder under stages/
    std::string folder() const;
    bool has_head_dim(int d) const;
};

/// Registers the one stage that a library holds, while the library is loaded. Called by LADDER_STAGE.
bool register_stage(const Stage& stage);

}  // namespace ladder
