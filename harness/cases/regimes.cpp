#include "harness/cases/regimes.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "harness/cases/cache_problems.h"
#include "harness/features/work.h"
#include "harness/problem/shape.h"

namespace ladder {
namespace {

Regime::Problem self_attention(int B, int H, int N, bool causal, int d = 128) {
    return {{.B = B, .H = H, .Hkv = H, .Nq = N, .Nk = N, .d = d}, causal};
}

// The grid on which attention libraries are compared: 16k tokens, 2048 columns in all heads together. Then
// one sequence of a model whose 64 query heads share 8 key/value heads.
std::vector<Regime::Problem> prefill_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128, 256}) {
        for (const bool causal : {false, true}) {
            for (int N = 512; N <= 16384; N *= 2)
                problems.push_back(self_attention(16384 / N, 2048 / d, N, causal, d));
        }
    }
    for (const bool causal : {false, true}) {
        for (int N = 2048; N <= 16384; N *= 2)
            problems.push_back({{.B = 1, .H = 64, .Hkv = 8, .Nq = N, .Nk = N, .d = 128}, causal});
    }
    return problems;
}

// The benchmark of the FlashAttention papers (arXiv 2307.08691, section 4.1), forward.
std::vector<Regime::Problem> papers_problems() {
    std::vector<Regime::Problem> problems;
    for (const Regime::Problem& problem : prefill_problems()) {
        if (problem.shape.d <= 128 && problem.shape.H == problem.shape.Hkv) problems.push_back(problem);
    }
    return problems;
}

// Many requests at once, up to 40 GB of keys and values.
std::vector<Regime::Problem> serving_problems() {
    std::vector<Regime::Problem> problems;
    for (const int Hkv : {8, 32}) {
        for (const int B : {1, 4, 16, 64}) {
            for (const int N : {2 << 10, 8 << 10, 32 << 10, 64 << 10, 256 << 10}) {
                const Regime::Problem problem = decode(N, B, Hkv);
                if (unavoidable_bytes(problem.shape) <= 40e9) problems.push_back(problem);
            }
        }
    }
    return problems;
}

// The rows of a draft, 2 to 16, for groups of 4, 1 and 8 query heads. Up to 10 GB of keys and values, since
// libraries copy them into pages.
std::vector<Regime::Problem> draft_problems() {
    std::vector<Regime::Problem> problems;
    const std::vector<int> all{2, 4, 8, 16}, some{4, 16};
    for (const int group : {4, 1, 8}) {
        for (const int B : {1, 4, 16, 64}) {
            for (const int N : {2 << 10, 16 << 10, 64 << 10}) {
                for (const int Nq : group == 4 ? all : some) {
                    const Shape shape{.B = B, .H = 8 * group, .Hkv = 8, .Nq = Nq, .Nk = N, .d = 128};
                    if (unavoidable_bytes(shape) <= 10e9) problems.push_back({shape, false});
                }
            }
        }
    }
    return problems;
}

// As prefill: 16k tokens, 2048 columns. Then as many tokens with grouped heads: 64, 40 and 32 over 8, few
// heads of few groups, and a single key/value head.
std::vector<Regime::Problem> gradient_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128, 256}) {
        for (const bool causal : {false, true}) {
            for (const int N : {512, 2048, 8192, 16384})
                problems.push_back(self_attention(16384 / N, 2048 / d, N, causal, d));
        }
    }
    const int heads[][3] = {{64, 8, 128}, {40, 8, 128}, {32, 8, 128}, {5, 1, 128}, {12, 4, 64}};
    for (const auto& [H, Hkv, d] : heads) {
        for (const bool causal : {false, true}) {
            for (const int N : {2048, 8192})
                problems.push_back({{.B = 16384 / N, .H = H, .Hkv = Hkv, .Nq = N, .Nk = N, .d = d}, causal});
        }
    }
    return problems;
}

// Sizes that divide nothing evenly: 24 query heads over 8, which are 3 rows of a tile; 3 to 40 requests.
std::vector<Regime::Problem> odd_serving_problems() {
    std::vector<Regime::Problem> problems;
    for (const int B : {1, 3, 11, 40}) {
        for (const int N : {1500, 5000, 20000, 100000}) {
            const Shape shape{.B = B, .H = 24, .Hkv = 8, .Nq = 1, .Nk = N, .d = 128};
            if (unavoidable_bytes(shape) <= 40e9) problems.push_back({shape, false});
        }
    }
    return problems;
}

// Heads and lengths that divide into no tile
std::vector<Regime::Problem> odd_prefill_problems() {
    const int sizes[][7] = {
        {9, 13, 13, 1777, 1777, 64, 0},   {5, 7, 7, 3333, 3333, 64, 1},   {2, 28, 4, 5001, 5001, 64, 0},
        {1, 9, 9, 12345, 12345, 64, 1},   {3, 40, 8, 1100, 7007, 64, 1},  {24, 9, 9, 677, 677, 128, 0},
        {12, 13, 13, 1350, 1350, 128, 1}, {4, 28, 4, 2222, 2222, 128, 0}, {3, 40, 8, 4500, 4500, 128, 1},
        {1, 5, 5, 12345, 12345, 128, 0},  {2, 7, 7, 3001, 9999, 128, 0},  {1, 28, 4, 2500, 11111, 128, 1},
        {25, 5, 5, 650, 650, 256, 0},     {6, 9, 9, 2345, 2345, 256, 1},  {2, 13, 13, 6001, 6001, 256, 0},
        {3, 7, 7, 777, 8190, 256, 1}};
    return problems_of(sizes);
}

// The same for gradients, few heads and a single key/value head among them
std::vector<Regime::Problem> odd_gradient_problems() {
    const int sizes[][7] = {
        {9, 13, 13, 1777, 1777, 64, 0}, {2, 12, 4, 3333, 3333, 64, 1},  {2, 28, 4, 5001, 5001, 64, 0},
        {1, 4, 4, 2000, 2000, 128, 0},  {1, 4, 4, 2000, 2000, 128, 1},  {3, 5, 1, 2049, 2049, 128, 0},
        {3, 5, 1, 2049, 2049, 128, 1},  {5, 7, 7, 1300, 1300, 128, 1},  {1, 40, 8, 6000, 6000, 128, 1},
        {2, 7, 7, 3001, 5999, 128, 0},  {1, 28, 4, 2500, 7111, 128, 1}, {9, 9, 9, 650, 650, 256, 0},
        {3, 7, 7, 2345, 2345, 256, 1},  {1, 5, 5, 7001, 7001, 256, 1}};
    return problems_of(sizes);
}

// A few query rows and many keys, for few and for many heads: the decoding of a draft of several tokens, the
// next words of a chat. What the default stage is chosen by (harness/time/fastest.h).
std::vector<Regime::Problem> few_rows_problems() {
    using Sizes = std::vector<std::pair<int, int>>;  // keys, and requests of so many
    const std::vector<int> all{1, 2, 4, 8, 16, 32, 64, 128}, some{1, 4, 16, 64};
    std::vector<Regime::Problem> problems;
    const auto add = [&](const Sizes& sizes, int group, int d, const std::vector<int>& rows) {
        for (const auto& [Nk, B] : sizes) {
            for (const int Nq : rows)
                problems.push_back({{.B = B, .H = 8 * group, .Hkv = 8, .Nq = Nq, .Nk = Nk, .d = d}, false});
        }
    };
    const Sizes grid{{2 << 10, 1}, {2 << 10, 16}, {8 << 10, 1}, {8 << 10, 16}, {64 << 10, 1}, {64 << 10, 4}};
    for (const int group : {1, 4, 8}) add(grid, group, 128, group == 4 ? all : some);
    for (const int d : {64, 256}) add({{8 << 10, 1}, {8 << 10, 16}, {64 << 10, 1}}, 4, d, some);
    add({{512, 16}}, 4, 128, some);
    add({{8 << 10, 1}, {64 << 10, 1}}, 4, 128, {256, 512});  // where more rows fill the machine
    for (const int N : {64, 128}) problems.push_back(self_attention(16384 / N, 16, N, false));
    return problems;
}

// The problems of FlashAttention-1's benchmarks (arXiv 2205.14135, appendix E: 16 sequences, 8 heads of 64)
// and the same with heads of 128: for 01, whose grid is one block per head, always one block for nearly each
// of an H200's multiprocessors.
std::vector<Regime::Problem> standard_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128}) {
        for (int N = 64; N <= 16384; N *= 2) problems.push_back(self_attention(16, 8, N, false, d));
    }
    return problems;
}

// Scores that rise from key to key: the maximum moves at every tile, as it does not with N(0, 1).
std::vector<Regime::Problem> rising_problems() {
    std::vector<Regime::Problem> problems{self_attention(8, 16, 2048, false),
                                          self_attention(8, 32, 2048, false, 64),
                                          self_attention(4, 8, 4096, false, 256)};
    for (Regime::Problem& problem : problems) problem.input = "rising";
    return problems;
}

std::vector<Regime::Problem> small_causal_problems() {
    std::vector<Regime::Problem> problems;
    for (int N = 512; N <= 4096; N *= 2) problems.push_back(self_attention(2, 4, N, true, 64));
    return problems;
}

Regime::Problem with_columns(Regime::Problem problem, const char* columns) {
    problem.features.columns = columns;
    return problem;
}

Regime::Problem with_tiles(const char* tiles) {
    Regime::Problem problem = self_attention(2, 16, 8192, false);
    problem.features.tiles = tiles;
    return problem;
}

Regime::Problem with_dropout(Regime::Problem problem) {
    problem.features.dropout = {230, 1};
    return problem;
}

// What becomes of a score, each alone and all at once; then the same problem without.
std::vector<Regime::Problem> score_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128, 256}) {
        for (const auto& [softcap, alibi, sinks] : {std::tuple{30.0f, "", ""},
                                                    {0.0f, "geometric", ""},
                                                    {0.0f, "", "drawn"},
                                                    {30.0f, "geometric", "drawn"},
                                                    {0.0f, "", ""}}) {
            Regime::Problem& problem = problems.emplace_back(self_attention(2, 2048 / d, 8192, true, d));
            problem.features.softcap = softcap, problem.features.alibi = alibi,
            problem.features.sinks = sinks;
        }
    }
    return problems;
}

// The masks of the FlashMask paper (arXiv 2410.01359) that are not a range of keys for each row.
std::vector<Regime::Problem> column_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128}) {
        for (const char* columns : {"documents", "prefix", "shared_question", "global_window", "eviction"})
            problems.push_back(with_columns(self_attention(2, 2048 / d, 8192, false, d), columns));
        problems.push_back(with_columns(self_attention(2, 2048 / d, 8192, true, d), "documents"));
    }
    return problems;
}

/// The tokens of the problem in so many documents: a quarter of the mean length, three, five and seven
/// quarters of it in turn; the last has the rest.
Regime::Problem packed(Regime::Problem problem, int count) {
    const int mean = problem.shape.Nk / count;
    int rest = problem.shape.Nk;
    for (int k = 0; k + 1 < count; ++k) {
        const int length = mean * (2 * (k % 4) + 1) / 4;
        problem.features.documents += std::to_string(length) + ",";
        rest -= length;
    }
    problem.features.documents += std::to_string(rest);
    return problem;
}

const Regime::Problem grouped_16k{{.B = 1, .H = 32, .Hkv = 8, .Nq = 16384, .Nk = 16384, .d = 128}, true};

std::vector<Regime::Problem> document_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128}) {
        for (const int count : {1, 4, 16, 64, 256})
            problems.push_back(packed(self_attention(1, 2048 / d, 16384, true, d), count));
        problems.push_back(packed(self_attention(1, 2048 / d, 16384, false, d), 16));
    }
    problems.push_back(packed(self_attention(1, 32, 16384, true, 64), 40));
    problems.push_back(packed(grouped_16k, 6));
    return problems;
}

std::vector<Regime::Problem> window_problems() {
    std::vector<Regime::Problem> problems;
    for (const int d : {64, 128, 256}) {
        for (const auto& [N, keys] :
             {std::pair{2048, 256}, {8192, 128}, {8192, 256}, {8192, 1024}, {8192, 4096}, {32768, 1024}})
            problems.push_back(
                in_window(self_attention(std::max(1, 16384 / N), 2048 / d, N, false, d), keys));
        problems.push_back(self_attention(2, 2048 / d, 8192, false, d));
        problems.back().features.window = {512, 512};
    }
    problems.push_back(
        in_window({{.B = 1, .H = 32, .Hkv = 8, .Nq = 16384, .Nk = 16384, .d = 128}, false}, 1024));
    return problems;
}

}  // namespace

const std::vector<Regime>& regimes() {
    static const std::vector<Regime::Problem> in_windows{in_window(self_attention(2, 16, 8192, false), 1024),
                                                         in_window(self_attention(2, 16, 8192, false), 4096)},
        by_columns{with_columns(self_attention(2, 16, 8192, false), "documents"),
                   with_columns(self_attention(2, 16, 8192, false), "shared_question")},
        in_documents{packed(self_attention(1, 16, 16384, true), 16), packed(grouped_16k, 6)},
        with_dropped{with_dropout(self_attention(2, 16, 8192, false)),
                     with_dropout(self_attention(1, 16, 16384, true))},
        by_tiles{with_tiles("quarter"), with_tiles("causal"), with_tiles("diagonal_and_random"),
                 with_tiles("dilated")};
    static const std::vector<Regime> list{
        {"train", "16k tokens in sequences of 2k, 16 heads of 128", {self_attention(8, 16, 2048, false)}},
        {"long", "one sequence of 16k, 4 heads of 128", {self_attention(1, 4, 16384, false)}},
        {"causal",
         "train and long under a causal mask",
         {self_attention(8, 16, 2048, true), self_attention(1, 4, 16384, true)}},
        {"decode",
         "one query row, 32 heads of 128 over 8, 8k to 256k keys",
         {decode(8 << 10), decode(16 << 10), decode(32 << 10), decode(64 << 10), decode(128 << 10),
          decode(256 << 10)}},
        {"batch",
         "one query row for each of 64 requests, 32 heads of 128 over 8, 2k and 8k keys",
         {decode(2 << 10, 64), decode(8 << 10, 64)}},
        {"narrow",
         "16k tokens, 32 heads of 64: sequences of 2k, and of 512 under a causal mask",
         {self_attention(8, 32, 2048, false, 64), self_attention(32, 32, 512, true, 64)}},
        {"wide",
         "16k tokens, 8 heads of 256: sequences of 4k, and of 512 under a causal mask",
         {self_attention(4, 8, 4096, false, 256), self_attention(32, 8, 512, true, 256)}},
        {"backward",
         "the gradients of train, and of 8k under a causal mask",
         {self_attention(8, 16, 2048, false), self_attention(2, 16, 8192, true)},
         false,
         Pass::backward},
        {"backward-narrow",
         "the gradients of narrow",
         {self_attention(8, 32, 2048, false, 64), self_attention(32, 32, 512, true, 64)},
         false,
         Pass::backward},
        {"backward-wide",
         "the gradients of wide",
         {self_attention(4, 8, 4096, false, 256), self_attention(32, 8, 512, true, 256)},
         false,
         Pass::backward},
        {"window", "two sequences of 8k, 16 heads of 128: a row sees 1k or 4k keys, up to its own",
         in_windows},
        {"backward-window", "the gradients of window", in_windows, false, Pass::backward},
        {"column-bounds",
         "two sequences of 8k, 16 heads of 128: packed documents, and a question with four answers",
         by_columns},
        {"backward-column-bounds", "the gradients of column-bounds", by_columns, false, Pass::backward},
        {"packed",
         "16k tokens under a causal mask: 16 documents with 16 heads of 128, 6 with 32 heads over 8",
         in_documents},
        {"backward-packed", "the gradients of packed", in_documents, false, Pass::backward},
        {"ragged",
         "decode for 64 requests: of 100 to 32k keys, and with as many keys in equal lengths",
         {ragged_requests(0), ragged_requests(0, mean_length)}},
        {"paged",
         "the first of ragged in pages of 256 and of 16 keys, and without pages",
         {ragged_requests(256), ragged_requests(16), ragged_requests(0)}},
        {"tiles", "two sequences of 8k, 16 heads of 128: masks by tile lists", by_tiles},
        {"backward-tiles", "the gradients of tiles", by_tiles, false, Pass::backward},
        {"dropout",
         "16 heads of 128: dropout of 0.1 in two sequences of 8k, and in one of 16k under a causal mask",
         with_dropped},
        {"backward-dropout", "the gradients of dropout", with_dropped, false, Pass::backward},
        {"prefix",
         "decode for 64 requests whose first 8k or 1k keys are the same, read once or not; 256 more for each",
         {with_prefix(8 << 10, true), with_prefix(8 << 10, false), with_prefix(1 << 10, true),
          with_prefix(1 << 10, false)}},
        {"prefill",
         "16k tokens, N = 512 to 16k, d = 64 to 256; then 64 heads over 8; with and without a mask",
         prefill_problems(), true},
        {"prefill-odd", "9k to 25k tokens, 5 to 40 heads, N = 650 to 12345: sizes that no tile divides",
         odd_prefill_problems(), true},
        {"papers",
         "those of prefill that the FlashAttention papers time: d = 64 and 128, as many heads of K and V",
         papers_problems(), true},
        {"serving", "decode for 1 to 64 requests, 32 heads over 8 and over 32", serving_problems(), true},
        {"serving-odd", "decode for 1 to 40 requests of 1500 to 100000 keys, 24 heads over 8",
         odd_serving_problems(), true},
        {"draft",
         "2 to 16 query rows of a draft: 1 to 64 requests of 2k to 64k keys, groups of 4, 1 and 8 heads",
         draft_problems(), true},
        {"few-rows", "1 to 512 query rows, up to 64k keys, groups of 1, 4 and 8 heads, few and many of them",
         few_rows_problems(), true},
        {"standard", "16 sequences of 64 to 16k, 8 heads of 64 and of 128", standard_problems(), true},
        {"rising", "train, narrow and 4k tokens at d = 256, with scores that rise from key to key",
         rising_problems(), true},
        {"causal-small", "two sequences of 512 to 4k, 4 heads of 64, under a causal mask",
         small_causal_problems(), true},
        {"windows",
         "16k tokens, N = 2k to 32k, d = 64 to 256: a row sees 128 to 4k keys, or as many on both sides",
         window_problems(), true},
        {"backward-windows", "the gradients of windows", window_problems(), true, Pass::backward},
        {"columns",
         "two sequences of 8k, 2048 columns, d = 64 and 128: masks by column bounds, pattern by pattern",
         column_problems(), true},
        {"documents", "16k tokens in 1 to 256 documents, 2048 columns, d = 64 and 128; then grouped heads",
         document_problems(), true},
        {"pages", "ragged, and 4 requests of 64k keys with 1 and 4 query rows: in pages of 1 to 256 keys",
         page_problems(), true},
        {"caches",
         "1 to 16 query rows, 1 to 16 requests of uneven lengths up to 64k, groups of 1, 4 and 8; also paged",
         cache_problems(), true},
        {"caches-wide",
         "what caches lacks: 512 and 128k keys, 64 requests, groups of 16, d = 256; also paged",
         wide_cache_problems(), true},
        {"caches-between",
         "30 problems between those of caches and caches-wide, drawn once, by which no stage is chosen",
         drawn_cache_problems(), true},
        {"cache-window",
         "decode for 16 requests of 64k keys in pages of 64, in a window of 1k; and of 1k keys without one",
         cache_window_problems()},
        {"cache-scores",
         "16 requests of 8k keys in pages of 64: a softcap, ALiBi, sinks, none; windows of three models",
         cache_score_problems(), true},
        {"cache-trees",
         "drafts of 16 and 64 rows in pages of 64, with a tree and without; also in a window of 1k",
         cache_tree_problems(), true},
        {"paged-e4m3", "decode for 16 requests of 8k keys, 4 of 32k and one of 128k, in pages of 64",
         paged_e4m3_problems(), true},
        {"e4m3-scales",
         "the problems of paged-e4m3 with a scale for each token of the cache, and with one for each head",
         e4m3_scale_problems(), true},
        {"scores",
         "two sequences of 8k under a causal mask, d = 64 to 256: a softcap, ALiBi, sinks, all, and none",
         score_problems(), true},
        {"backward-scores", "the gradients of scores", score_problems(), true, Pass::backward},
        {"gradients",
         "16k tokens, N = 512 to 16k, d = 64 to 256; then grouped heads; with and without a mask",
         gradient_problems(), true, Pass::backward},
        {"gradients-odd", "1k to 10k tokens, 4 to 40 heads, N = 650 to 7001: sizes that no tile divides",
         odd_gradient_problems(), true, Pass::backward},
    };
    return list;
}

const Regime* regime_named(std::string_view name) {
    const auto found = std::find_if(regimes().begin(), regimes().end(),
                                    [&](const Regime& known) { return name == known.name; });
    return found == regimes().end() ? nullptr : &*found;
}

bool is_decoding(std::string_view regime) {
    const Regime* known = regime_named(regime);
    return regime == "decode" || regime == "batch" || regime == "draft" ||
           (known != nullptr && known->problems.front().features.has_cache());
}

bool is_of_gradients(std::string_view regime) {
    const Regime* known = regime_named(regime);
    return known != nullptr && known->pass == Pass::backward;
}

bool is_sweep(const std::string& regime) {
    const Regime* known = regime_named(regime);
    return known != nullptr && known->sweep;
}

}  // namespace ladder
