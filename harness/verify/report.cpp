#include "harness/verify/report.h"

#include <fmt/format.h>

#include <limits>

#include "harness/features/features.h"
#include "harness/problem/tensors.h"
#include "reference/attention.h"

namespace ladder {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

double unknown(std::size_t, int) {
    return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::string joined(const std::vector<std::string>& reports) {
    std::string all;
    for (const std::string& report : reports) {
        if (!report.empty()) all += (all.empty() ? "" : "\n") + report;
    }
    return all;
}

std::string report_unwritten(const Case& c, const Outputs& outputs) {
    std::vector<std::string> reports;
    for (const WrittenTensor& written : written_tensors(c, outputs)) {
        const auto is_missing = [&](std::size_t index, int) { return written.is_unwritten(index); };
        reports.push_back(written.where(is_missing, unknown)
                              .report(fmt::format("{} was not written", written.tensor().name)));
    }
    return joined(reports);
}

std::string report_impossible(const Case& c, const Outputs& outputs) {
    if (const std::string unwritten = report_unwritten(c, outputs); !unwritten.empty()) return unwritten;
    std::vector<bool> row_sees_keys;  // (B, H, Nq)
    const bool has_sinks = !c.features.sinks.empty();
    for (int head = 0; head < c.shape.B * c.shape.H; ++head) {
        const reference::Mask mask = mask_of(c, head / c.shape.H, head % c.shape.H);
        for (int row = 0; row < c.shape.Nq; ++row) row_sees_keys.push_back(mask.sees_keys(row));
    }
    std::vector<std::string> reports;
    for (const WrittenTensor& written : written_tensors(c, outputs)) {
        const std::string name = written.tensor().name;
        // Under a mask every key is seen by the last row, so dK and dV have no such rows. With sinks L is
        // finite in all.
        const auto sees_keys = [&](std::size_t index) {
            return written.tensor().rows_of != RowsOf::queries ||
                   row_sees_keys[index / written.tensor().columns(c.shape)];
        };
        const auto is_finite = [&](std::size_t index) { return written.is_finite(index); };
        if (written.tensor().is_L() && !has_sinks) {
            reports.push_back(written
                                  .where(
                                      [&](std::size_t index, int) {
                                          return sees_keys(index) ? !is_finite(index)
                                                                  : written.value(index) != minus_infinity;
                                      },
                                      [&](std::size_t index, int row) {
                                          return sees_keys(index) ? unknown(index, row) : minus_infinity;
                                      })
                                  .report("L is not finite, or not -inf where a row sees no key"));
            continue;
        }
        reports.push_back(written.where([&](std::size_t index, int) { return !is_finite(index); }, unknown)
                              .report(name + " is not finite"));
        const auto is_not_zero = [&](std::size_t index, int) {
            return !written.tensor().is_L() && !sees_keys(index) && is_finite(index) &&
                   written.value(index) != 0;
        };
        reports.push_back(written.where(is_not_zero, [](std::size_t, int) { return 0.0; })
                              .report(name + " is not 0 where a row sees no key"));
    }
    return joined(reports);
}

std::string report_difference(const Case& c, const Outputs& first, const Outputs& other,
                              const std::string& other_is) {
    std::vector<std::string> reports;
    for (const OutputTensor& tensor : output_tensors(c)) {
        const WrittenTensor before(c, tensor, first), after(c, tensor, other);
        const auto changed = [&](std::size_t index, int) { return !after.has_bits_of(before, index); };
        const auto value_before = [&](std::size_t index, int) { return before.value(index); };
        reports.push_back(
            after.where(changed, value_before).report(fmt::format("{} changed {}", other_is, tensor.name)));
    }
    return joined(reports);
}

}  // namespace ladder
