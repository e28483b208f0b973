#include "harness/verify/verify.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "harness/device/workspace.h"
#include "harness/problem/shape.h"
#include "harness/problem/tensors.h"
#include "harness/verify/mismatch.h"
#include "reference/attention.h"

namespace ladder {
namespace {

using reference::Mask;
using reference::Matrix;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// Outputs start as this NaN. No arithmetic makes it: as fp16, as bf16 and, twice over, as fp32 it is quiet
// and has a payload that no CPU or GPU computes. So an element that was never written differs from one
// computed as NaN.
constexpr std::uint16_t unwritten_half = 0x7fed;
constexpr std::uint32_t unwritten_word = 0x7fed7fed;

// Past each end of an output. As long as four 64 x 128 tiles, so that most stray rows of a ragged tile land
// inside.
constexpr std::size_t canary_bytes = 64 * 1024;

bool is_unwritten(std::uint16_t stored) {
    return stored == unwritten_half;
}
bool is_unwritten(float stored) {
    return std::bit_cast<std::uint32_t>(stored) == unwritten_word;
}

double value(DType dtype, std::uint16_t stored) {
    return with_type(dtype, [&](auto type) {
        return static_cast<double>(static_cast<float>(std::bit_cast<decltype(type)>(stored)));
    });
}

/// An output on the device: one allocation, all of it unwritten_half at first, with canaries around the
/// `count` elements.
template <class T>
class Guarded {
  public:
    Guarded(Device& device, std::size_t count, const char* name)
        : device_(device), name_(name), count_(count), buffer_(device, bytes(count), name, true) {
        const std::vector<std::uint16_t> words(bytes(count) / sizeof(std::uint16_t), unwritten_half);
        device.upload(buffer_.data(), words.data(), bytes(count));
    }

    static std::size_t bytes(std::size_t count) { return count * sizeof(T) + 2 * canary_bytes; }

    T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(buffer_.data()) + canary_bytes); }

    /// The elements. Throws CheckFailed if a canary was touched.
    std::vector<T> download() const {
        std::vector<std::uint16_t> words(bytes(count_) / sizeof(std::uint16_t));
        device_.download(words.data(), buffer_.data(), bytes(count_));
        const std::ptrdiff_t canary = canary_bytes / sizeof(std::uint16_t), end = std::ssize(words) - canary;
        for (std::ptrdiff_t i = 0; i < std::ssize(words); ++i) {
            if ((i >= canary && i < end) || words[i] == unwritten_half) continue;
            const double element = static_cast<double>(i - canary) * sizeof(std::uint16_t) / sizeof(T);
            throw CheckFailed(fmt::format("wrote outside of {}: to element {:.0f} of {}", name_,
                                          std::floor(element), count_));
        }
        std::vector<T> elements(count_);
        std::memcpy(elements.data(), words.data() + canary, count_ * sizeof(T));
        return elements;
    }

  private:
    Device& device_;
    const char* name_;
    std::size_t count_;
    Buffer buffer_;
};

Buffer uploaded(Device& device, const std::vector<std::uint16_t>& tensor, const char* name) {
    Buffer buffer(device, tensor.size() * sizeof(std::uint16_t), name, false);
    device.upload(buffer.data(), tensor.data(), buffer.bytes());
    return buffer;
}

/// Rows of O: (B, H, Nq).
std::size_t query_rows(const Case& c) {
    return static_cast<std::size_t>(c.shape.B) * c.shape.H * c.shape.Nq;
}

std::vector<int> all_rows(const Case& c) {
    std::vector<int> rows(c.shape.Nq);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

/// At most `sampled` query rows: first, last, the edges of tiles, then seeded ones. All of them if sampled is
/// 0.
std::vector<int> compared_rows(const Case& c, int sampled) {
    const int Nq = c.shape.Nq;
    if (sampled <= 0 || sampled >= Nq) return all_rows(c);
    std::set<int> rows;
    const int last_tile = (Nq - 1) / tile * tile;
    for (const int row : {0, Nq - 1, last_tile, last_tile - 1, tile - 1, tile}) {
        if (row >= 0 && row < Nq && static_cast<int>(rows.size()) < sampled) rows.insert(row);
    }
    std::mt19937_64 random(c.seed);
    while (static_cast<int>(rows.size()) < sampled) {
        rows.insert(static_cast<int>(random() % static_cast<std::uint64_t>(Nq)));
    }
    return {rows.begin(), rows.end()};
}

/// The texts that are not empty, one below the other.
std::string join_lines(std::initializer_list<std::string> texts) {
    std::string joined;
    for (const std::string& text : texts) {
        if (!text.empty()) joined += (joined.empty() ? "" : "\n") + text;
    }
    return joined;
}

/// Calls f(b, h, row, column, index) for every element of O, index being its place in memory.
template <class F>
void for_each_O(const Case& c, F&& f) {
    const Shape& s = c.shape;
    const View view = make_view(nullptr, c.layout, s.H, s.Nq, s.d);
    for (int b = 0; b < s.B; ++b) {
        for (int h = 0; h < s.H; ++h) {
            for (int row = 0; row < s.Nq; ++row) {
                const std::int64_t first = b * view.batch + h * view.head + row * view.row;
                for (int column = 0; column < s.d; ++column) {
                    f(b, h, row, column, static_cast<std::size_t>(first + column));
                }
            }
        }
    }
}

/// Calls f(b, h, row, index) for every element of L.
template <class F>
void for_each_L(const Case& c, F&& f) {
    std::size_t index = 0;
    for (int b = 0; b < c.shape.B; ++b) {
        for (int h = 0; h < c.shape.H; ++h) {
            for (int row = 0; row < c.shape.Nq; ++row) f(b, h, row, index++);
        }
    }
}

/// Reports outputs that were left as they started; empty if there are none.
std::string report_unwritten(const Case& c, const Outputs& outputs) {
    Mismatch O(c, all_rows(c), c.shape.d), L(c, all_rows(c), 1);
    for_each_O(c, [&](int b, int h, int row, int column, std::size_t index) {
        if (is_unwritten(outputs.O[index])) O.add(b, h, row, column, unknown, unknown);
    });
    for_each_L(c, [&](int b, int h, int row, std::size_t index) {
        if (is_unwritten(outputs.L[index])) L.add(b, h, row, 0, unknown, unknown);
    });
    return join_lines({O.report("O was not written"), L.report("L was not written")});
}

/// Throws CannotRun if the device has not the memory for the outputs, the workspace and so many bytes of
/// inputs.
void require_room(const Device& device, const Stage& stage, const Case& c, std::size_t input_bytes) {
    const std::size_t rows = query_rows(c), workspace = Workspace::bytes(device, stage, c.shape);
    const std::size_t needed = input_bytes + Guarded<std::uint16_t>::bytes(rows * c.shape.d) +
                               Guarded<float>::bytes(rows) + workspace;
    if (const std::size_t there = device.free_memory(); needed > there) {
        throw CannotRun(
            fmt::format("{} on {} needs {} ({} bytes), {} of it workspace; {} has {} ({} bytes) free",
                        stage.folder(), c.description(), human_bytes(static_cast<double>(needed)), needed,
                        human_bytes(static_cast<double>(workspace)), device.description(),
                        human_bytes(static_cast<double>(there)), there));
    }
}

}  // namespace

std::string report_impossible(const Case& c, const Outputs& outputs) {
    if (const std::string unwritten = report_unwritten(c, outputs); !unwritten.empty()) return unwritten;
    const Mask mask{c.causal, c.shape.Nq, c.shape.Nk};
    Mismatch not_finite(c, all_rows(c), c.shape.d), not_zero(c, all_rows(c), c.shape.d), L(c, all_rows(c), 1);
    for_each_O(c, [&](int b, int h, int row, int column, std::size_t index) {
        const double o = value(c.dtype, outputs.O[index]);
        if (!std::isfinite(o)) not_finite.add(b, h, row, column, unknown, o);
        if (std::isfinite(o) && o != 0 && mask.visible(row) == 0) not_zero.add(b, h, row, column, 0, o);
    });
    for_each_L(c, [&](int b, int h, int row, std::size_t index) {
        const double l = outputs.L[index];
        const bool sees_keys = mask.visible(row) > 0;
        if (sees_keys ? !std::isfinite(l) : l != -infinity) {
            L.add(b, h, row, 0, sees_keys ? unknown : -infinity, l);
        }
    });
    return join_lines({not_finite.report("O is not finite"),
                       not_zero.report("O is not 0 where a row sees no key"),
                       L.report("L is not finite, or not -inf where a row sees no key")});
}

Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Inputs& inputs) {
    require_room(device, stage, c,
                 (inputs.Q.size() + inputs.K.size() + inputs.V.size()) * sizeof(std::uint16_t));
    const Buffer Q = uploaded(device, inputs.Q, "Q");
    const Buffer K = uploaded(device, inputs.K, "K");
    const Buffer V = uploaded(device, inputs.V, "V");
    return run_stage(device, stage, c, Q, K, V);
}

Outputs run_stage(Device& device, const Stage& stage, const Case& c, const Buffer& Q, const Buffer& K,
                  const Buffer& V) {
    require_room(device, stage, c, 0);
    const Shape& s = c.shape;
    const std::size_t rows = query_rows(c);
    const Guarded<std::uint16_t> O(device, rows * s.d, "O");
    const Guarded<float> L(device, rows, "L");
    Workspace workspace(device, stage, s);
    workspace.poison();

    Problem problem;
    static_cast<Shape&>(problem) = s;
    problem.Q = make_view(Q.data(), c.layout, s.H, s.Nq, s.d);
    problem.K = make_view(K.data(), c.layout, s.Hkv, s.Nk, s.d);
    problem.V = make_view(V.data(), c.layout, s.Hkv, s.Nk, s.d);
    problem.O = make_view(O.data(), c.layout, s.H, s.Nq, s.d);
    problem.L = L.data();
    problem.scale = c.softmax_scale();
    problem.causal = c.causal;
    problem.dtype = c.dtype;
    problem.workspace = workspace.data();
    problem.sm_count = device.sm_count();
    device.run(stage, problem);
    workspace.check_counters();

    Outputs outputs{O.download(), L.download()};
    if (const std::string report = report_unwritten(c, outputs); !report.empty()) throw CheckFailed(report);
    return outputs;
}

namespace {

/// One head: what the reference and the stage say of the compared rows, and how far standard attention is
/// off.
struct Comparison {
    reference::Result expected, got;
    double standard_error;  ///< largest of O
};

template <class T>
std::vector<Comparison> compare(const Case& c, const Inputs& inputs, const Outputs& outputs,
                                const std::vector<int>& rows) {
    const Shape& s = c.shape;
    const Mask mask{c.causal, s.Nq, s.Nk};
    const double scale = c.softmax_scale();
    const Eigen::VectorXi row_indices = Eigen::Map<const Eigen::VectorXi>(rows.data(), std::ssize(rows));

    const auto head = [&](const std::vector<std::uint16_t>& tensor, int b, int h, int heads, int N) {
        auto* data = const_cast<std::uint16_t*>(tensor.data());  // only read
        return head_of<T>(make_view(data, c.layout, heads, N, s.d), b, h, N, s.d);
    };
    const auto compared = [&](const std::vector<std::uint16_t>& tensor, int b, int h) -> Matrix {
        return head(tensor, b, h, s.H, s.Nq)(rows, Eigen::all).template cast<double>();
    };

    std::vector<Comparison> heads;  // (B, H)
    for (int b = 0; b < s.B; ++b) {
        Matrix K, V;
        for (int h = 0; h < s.H; ++h) {
            if (const int group = s.H / s.Hkv; h % group == 0) {
                K = head(inputs.K, b, h / group, s.Hkv, s.Nk).template cast<double>();
                V = head(inputs.V, b, h / group, s.Hkv, s.Nk).template cast<double>();
            }
            const Matrix Q = compared(inputs.Q, b, h);
            const auto L = Eigen::Map<const Eigen::VectorXf>(outputs.L.data() + heads.size() * s.Nq, s.Nq);
            const auto expected = reference::attention(Q, row_indices, K, V, scale, mask);
            const auto standard = reference::standard_attention<T>(Q, row_indices, K, V, scale, mask);
            // Scores too large for fp16 make standard attention NaN; such rows set no standard.
            const double error =
                (standard.O - expected.O).cwiseAbs().template maxCoeff<Eigen::PropagateNumbers>();
            heads.push_back({expected,
                             {compared(outputs.O, b, h), L(rows).template cast<double>()},
                             std::isfinite(error) ? error : 0});
        }
    }
    return heads;
}

/// The pass rule's numbers. Nothing passes by not being comparable: write !(error <= bound), never error >
/// bound.
struct Bounds {
    double O;  ///< absolute
    double O_relative_l2;
    double L_relative = 1e-4;  ///< L is fp32 whatever the storage type
};

/// The floor under the bound on O is one unit in the last place of the largest output, as in FlashAttention's
/// tests
/// ("the error of any arithmetic on the output", twice): P and O are each rounded, even where
/// standard attention happens to be exact.
Bounds bounds(DType dtype, double standard_error, double largest_output) {
    const bool fp16 = dtype == DType::fp16;
    const double ulp = (fp16 ? 0x1p-10 : 0x1p-7) * largest_output;
    return {.O = 2 * standard_error + ulp, .O_relative_l2 = fp16 ? 1e-3 : 8e-3};
}

/// Relative to at least 1; 0 for equal values, so that -inf matches -inf and nothing else.
double relative_error(double got, double expected) {
    if (got == expected) return 0;
    const double error = std::abs(got - expected) / std::max(1.0, std::abs(expected));
    return std::isfinite(error) ? error : infinity;
}

/// Reports the elements of O that make it fail: what breaks the bound, and in a row that breaks the L2 bound
/// what contributes to that. When the whole breaks the L2 bound some row does, so a failure always has a
/// place.
std::string report_wrong_O(const Case& c, const std::vector<int>& rows, const std::vector<Comparison>& heads,
                           const Bounds& bound, const Verdict& verdict) {
    Mismatch wrong(c, rows, c.shape.d);
    for (int i = 0; i < std::ssize(heads); ++i) {
        const Matrix &expected = heads[i].expected.O, &got = heads[i].got.O;
        for (int k = 0; k < std::ssize(rows); ++k) {
            const double row_bound = bound.O_relative_l2 * expected.row(k).norm();
            const double row_error = (got.row(k) - expected.row(k)).norm();
            double limit = bound.O;
            if (!(row_error <= row_bound)) {
                limit = std::min(limit, std::max(row_error / 4, row_bound) / std::sqrt(c.shape.d));
            }
            for (int column = 0; column < c.shape.d; ++column) {
                if (!(std::abs(got(k, column) - expected(k, column)) <= limit)) {
                    wrong.add(i / c.shape.H, i % c.shape.H, rows[k], column, expected(k, column),
                              got(k, column));
                }
            }
        }
    }
    return wrong.report("O is wrong",
                        fmt::format(": max error {:.2e}, bound {:.2e}; relative L2 {:.2e}, bound {:.0e}",
                                    verdict.max_error, bound.O, verdict.relative_l2, bound.O_relative_l2));
}

std::string report_wrong_L(const Case& c, const std::vector<int>& rows, const std::vector<Comparison>& heads,
                           const Bounds& bound, const Verdict& verdict) {
    Mismatch wrong(c, rows, 1);
    for (int i = 0; i < std::ssize(heads); ++i) {
        for (int k = 0; k < std::ssize(rows); ++k) {
            const double expected = heads[i].expected.L[k], got = heads[i].got.L[k];
            if (!(relative_error(got, expected) <= bound.L_relative)) {
                wrong.add(i / c.shape.H, i % c.shape.H, rows[k], 0, expected, got);
            }
        }
    }
    return wrong.report("L is wrong", fmt::format(": max relative error {:.2e}, bound {:.0e}",
                                                  verdict.max_L_error, bound.L_relative));
}

/// Reports where two runs on the same inputs differ; empty if they agree bit for bit.
std::string report_difference(const Case& c, const Outputs& first, const Outputs& second) {
    Mismatch O(c, all_rows(c), c.shape.d), L(c, all_rows(c), 1);
    for_each_O(c, [&](int b, int h, int row, int column, std::size_t i) {
        if (first.O[i] != second.O[i]) {
            O.add(b, h, row, column, value(c.dtype, first.O[i]), value(c.dtype, second.O[i]));
        }
    });
    for_each_L(c, [&](int b, int h, int row, std::size_t i) {
        if (std::memcmp(&first.L[i], &second.L[i], sizeof(float)) != 0)
            L.add(b, h, row, 0, first.L[i], second.L[i]);
    });
    return join_lines({O.report("a second run changed O"), L.report("a second run changed L")});
}

}  // namespace

Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows) {
    const std::vector<int> rows = compared_rows(c, sampled_rows);
    const std::vector<Comparison> heads =
        with_type(c.dtype, [&](auto type) { return compare<decltype(type)>(c, inputs, outputs, rows); });

    Verdict verdict;
    double squared_error = 0, squared_size = 0, largest = 0;
    for (const auto& [expected, got, standard_error] : heads) {
        const Matrix error = (got.O - expected.O).cwiseAbs();
        verdict.max_error = std::max(verdict.max_error, error.hasNaN() ? infinity : error.maxCoeff());
        verdict.standard_max_error = std::max(verdict.standard_max_error, standard_error);
        for (int k = 0; k < std::ssize(rows); ++k) {
            verdict.max_L_error = std::max(verdict.max_L_error, relative_error(got.L[k], expected.L[k]));
        }
        squared_error += error.squaredNorm();
        squared_size += expected.O.squaredNorm();
        largest = std::max(largest, expected.O.cwiseAbs().maxCoeff());
    }
    verdict.relative_l2 = squared_error == 0 ? 0 : std::sqrt(squared_error / squared_size);

    const Bounds bound = bounds(c.dtype, verdict.standard_max_error, largest);
    const bool O_passes = verdict.max_error <= bound.O && verdict.relative_l2 <= bound.O_relative_l2;
    const bool L_passes = verdict.max_L_error <= bound.L_relative;
    verdict.report = report_impossible(c, outputs);
    if (verdict.report.empty()) {  // otherwise wrong values are no news
        verdict.report = join_lines({O_passes ? "" : report_wrong_O(c, rows, heads, bound, verdict),
                                     L_passes ? "" : report_wrong_L(c, rows, heads, bound, verdict)});
    }
    verdict.passed = O_passes && L_passes && verdict.report.empty();
    return verdict;
}

Verdict verify(Device& device, const Stage& stage, const Case& c) {
    const Inputs inputs = make_inputs(c);
    Verdict verdict;
    try {
        const Outputs first = run_stage(device, stage, c, inputs);
        verdict = judge(c, inputs, first);
        if (verdict.passed) verdict.report = report_difference(c, first, run_stage(device, stage, c, inputs));
        verdict.passed = verdict.passed && verdict.report.empty();
    } catch (const CheckFailed& failure) {
        verdict.passed = false;
        verdict.report = failure.what();
    }
    return verdict;
}

}  // namespace ladder
