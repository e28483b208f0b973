#include "harness/verify/verdict.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/base/parallel.h"
#include "harness/verify/report.h"
#include "reference/attention.h"

namespace ladder {
namespace {

using reference::Matrix;

constexpr double infinity = std::numeric_limits<double>::infinity();

double largest_of(const Matrix& error) {
    const double largest = error.maxCoeff<Eigen::PropagateNaN>();
    return std::isnan(largest) ? infinity : largest;
}

/// A tensor that a stage wrote, held against what is expected of it.
class Comparison {
  public:
    Comparison(const Case& c, const WrittenTensor& written, const ExpectedTensor& expected,
               bool rounds_large_scores)
        : case_(c),
          written_(written),
          expected_(expected),
          columns_(written.tensor().columns(c.shape)),
          heads_(written.tensor().batches(c.shape) * written.tensor().heads(c.shape)),
          forgives_(rounds_large_scores && !expected.lost_in_rounding.empty()) {
        add_up();
    }

    double largest_error() const { return largest_; }
    double relative_l2() const { return relative_l2_; }
    bool passes() const {
        return held_largest_ <= bound_.absolute && held_relative_l2_ <= bound_.relative_l2;
    }
    /// Above 1 it fails. Where nothing but the exact value is allowed, and was found, it is as far from it as
    /// can be.
    double nearness() const {
        const auto over = [](double error, double limit) {
            return error == 0 ? 0 : error <= infinity && limit > 0 ? error / limit : infinity;
        };
        return std::max(over(held_largest_, bound_.absolute), over(held_relative_l2_, bound_.relative_l2));
    }
    std::string report(const std::vector<int>& peak) const;

  private:
    std::ptrdiff_t rows() const { return std::ssize(expected_.rows); }
    /// What is expected of a head: (rows, columns).
    Eigen::Map<const Matrix> wanted(int head) const {
        return {expected_.values.data() + head * rows() * columns_, rows(), columns_};
    }
    /// What the errors of its rows are relative to: (rows).
    Eigen::Map<const reference::Vector> sizes(int head) const {
        return {expected_.size.data() + head * rows(), rows()};
    }
    Matrix got(int head) const {
        Matrix values(rows(), columns_);
        for (std::ptrdiff_t k = 0; k < rows(); ++k)
            written_.read_row(head, expected_.rows[k], values.data() + k * columns_);
        return values;
    }
    Matrix errors(const Matrix& got, int head) const;
    /// As far as they are held to the bounds: what exceeds that which a merge of parts by L may lose.
    Matrix held(const Matrix& errors, int head) const;
    void add_up();

    const Case& case_;
    const WrittenTensor& written_;
    const ExpectedTensor& expected_;
    const int columns_, heads_;
    const bool forgives_;
    double largest_ = 0, relative_l2_ = 0, held_largest_ = 0, held_relative_l2_ = 0;
    Bounds bound_{};
};

/// What each element of a head is off by. Of L and dsinks, whose errors are relative, equal values are off by
/// 0, so that -inf matches -inf and nothing else.
Matrix Comparison::errors(const Matrix& got, int head) const {
    if (!written_.tensor().has_floats()) return (got - wanted(head)).cwiseAbs();
    Matrix errors(rows(), 1);
    for (std::ptrdiff_t k = 0; k < rows(); ++k) {
        const double expected = wanted(head)(k, 0), error = std::abs(got(k, 0) - expected) / sizes(head)[k];
        errors(k, 0) = got(k, 0) == expected ? 0 : std::isfinite(error) ? error : infinity;
    }
    return errors;
}

Matrix Comparison::held(const Matrix& errors, int head) const {
    if (!forgives_) return errors;
    const Eigen::Map<const reference::Vector> lost(expected_.lost_in_rounding.data() + head * rows(), rows());
    return (errors.colwise() - lost).unaryExpr([](double x) { return std::isnan(x) ? x : std::max(x, 0.0); });
}

void Comparison::add_up() {
    struct Sums {
        double largest = 0, squared = 0, size_squared = 0, largest_output = 0;
        double held_largest = 0, held_squared = 0;
    };
    std::vector<Sums> heads(heads_);
    parallel_for(heads_, [&](int i) {
        const Matrix all = errors(got(i), i), some = held(all, i);
        heads[i] = {.largest = largest_of(all),
                    .squared = all.squaredNorm(),
                    .size_squared = sizes(i).squaredNorm(),
                    .largest_output = std::max(wanted(i).cwiseAbs().maxCoeff(),
                                               sizes(i).maxCoeff() / std::sqrt(case_.shape.d)),
                    .held_largest = largest_of(some),
                    .held_squared = some.squaredNorm()};
    });
    Sums sums;
    for (const Sums& head : heads) {
        sums.largest = std::max(sums.largest, head.largest);
        sums.held_largest = std::max(sums.held_largest, head.held_largest);
        sums.squared += head.squared;
        sums.held_squared += head.held_squared;
        sums.size_squared += head.size_squared;
        sums.largest_output = std::max(sums.largest_output, head.largest_output);
    }
    const auto relative = [&](double squared) {
        return squared == 0 ? 0 : std::sqrt(squared / sums.size_squared);
    };
    largest_ = sums.largest;
    held_largest_ = sums.held_largest;
    relative_l2_ = relative(sums.squared);
    held_relative_l2_ = relative(sums.held_squared);
    bound_ = written_.tensor().has_floats() ? bounds_of_floats(case_)
                                            : bounds_of(case_, expected_.standard_error, sums.largest_output);
    bound_.relative_l2 += 2 * expected_.standard_l2;
}

/// Of the elements that make it fail: what breaks the bound, and in a row that breaks the L2 bound what
/// contributes to that. When the whole breaks the L2 bound some row does, so a failure always has a place.
std::string Comparison::report(const std::vector<int>& peak) const {
    const int heads = heads_ / written_.tensor().batches(case_.shape);
    Mismatch wrong = written_.mismatch(expected_.rows);
    wrong.set_peak(peak);
    for (int i = 0; i < heads_; ++i) {
        const Matrix values = got(i), error = held(errors(values, i), i);
        for (std::ptrdiff_t k = 0; k < rows(); ++k) {
            const double row_bound = bound_.relative_l2 * sizes(i)[k];
            const double row_error = error.row(k).norm();
            double limit = bound_.absolute;
            if (!(row_error <= row_bound))
                limit = std::min(limit, std::max(row_error / 4, row_bound) / std::sqrt(case_.shape.d));
            for (int column = 0; column < columns_; ++column) {
                if (!(error(k, column) <= limit))
                    wrong.add(i / heads, i % heads, expected_.rows[k], column, wanted(i)(k, column),
                              values(k, column));
            }
        }
    }
    return wrong.report(
        fmt::format("{} is wrong", written_.tensor().name),
        written_.tensor().has_floats()
            ? fmt::format(": max relative error {:.2e}, bound {:.0e}", largest_, bound_.absolute)
            : fmt::format(": max error {:.2e}, bound {:.2e}; relative L2 {:.2e}, bound {:.0e}", largest_,
                          bound_.absolute, relative_l2_, bound_.relative_l2));
}

/// The relative L2 of O against these values of it.
double distance(const WrittenTensor& O, const ExpectedTensor& expected, const std::vector<double>& values) {
    const auto rows = std::ssize(expected.rows), columns = std::ssize(values) / std::ssize(expected.size);
    std::vector<double> got(columns);
    double squared = 0, size_squared = 0;
    for (std::ptrdiff_t row = 0; row < std::ssize(expected.size); ++row) {
        O.read_row(static_cast<int>(row / rows), expected.rows[row % rows], got.data());
        for (std::ptrdiff_t c = 0; c < columns; ++c) {
            const double wanted = values[row * columns + c], error = got[c] - wanted;
            squared += error * error;
            size_squared += wanted * wanted;
        }
    }
    return squared == 0 ? 0 : std::sqrt(squared / size_squared);
}

}  // namespace

Verdict judge(const Case& c, const Expected& expected, const Outputs& outputs, bool rounds_large_scores) {
    std::vector<std::string> reports{report_impossible(c, outputs)};
    const bool possible = reports.front().empty();  // otherwise wrong values are no news
    Verdict verdict{.passed = possible, .report = "", .tensor = ""};
    double nearest = -1;
    const std::vector<WrittenTensor> written = written_tensors(c, outputs);
    for (std::size_t k = 0; k < written.size(); ++k) {
        const Comparison comparison(c, written[k], expected.tensors[k], rounds_large_scores);
        if (written[k].tensor().is_L()) {
            verdict.max_L_error = comparison.largest_error();
        } else if (!written[k].tensor().has_floats() && comparison.nearness() > nearest) {
            nearest = comparison.nearness();
            verdict.tensor = written[k].tensor().name;
            verdict.max_error = comparison.largest_error();
            verdict.standard_max_error = expected.tensors[k].standard_error;
            verdict.relative_l2 = comparison.relative_l2();
        }
        verdict.passed = verdict.passed && comparison.passes();
        if (possible && !comparison.passes()) reports.push_back(comparison.report(expected.peak));
    }
    if (!expected.unquantized_O.empty())
        verdict.unquantized_l2 = distance(written[0], expected.tensors[0], expected.unquantized_O);
    verdict.report = joined(reports);
    return verdict;
}

Verdict judge(const Stage& stage, const Case& c, const Inputs& inputs, const Outputs& outputs) {
    return judge(c, Expected(c, inputs, 0, stage.products), outputs, stage.rounds_large_scores);
}

Verdict judge(const Case& c, const Inputs& inputs, const Outputs& outputs, int sampled_rows) {
    return judge(c, Expected(c, inputs, sampled_rows), outputs);
}

}  // namespace ladder
