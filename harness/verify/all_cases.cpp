#include "harness/verify/all_cases.h"
#include "harness/features/features.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace ladder {
namespace {

void verify_one(Device& device, Verification& verification, Reference& reference, Runs runs) {
    const Stage& stage = *verification.stage;
    const Case& c = reference.problem;
    if (!stage.has_head_dim(c.shape.d)) {
        verification.why_not = fmt::format("it has no head dimension {}", c.shape.d);
        return;
    }
    const auto start = std::chrono::steady_clock::now();
    const double shared = reference.seconds();
    try {
        const Verdict verdict = verify(device, stage, reference, runs);
        // A NaN is worse than any number.
        if (!(verdict.max_error <= verification.worst.max_error)) verification.worst = verdict;
        verification.errors[{c.dtype, c.input}].add(verdict);
        if (verdict.passed) {
            ++verification.passed;
        } else {
            ++verification.failed;
            if (!verification.first_failed) verification.first_failed = c;
            verification.reports.push_back(
                fmt::format("{}, {}\n{}\n", stage.folder(), description_of(c), verdict.report));
        }
    } catch (const CannotRun& error) {
        verification.why_not = error.what();
    }
    verification.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() -
                            (reference.seconds() - shared);
}

/// A case and who is verified on it.
struct SharedCase {
    const Case* problem;
    std::vector<Verification*> verifications;
};

/// In the order in which the stages name them.
std::vector<SharedCase> shared_cases(std::vector<Verification>& verifications) {
    std::vector<SharedCase> shared;
    std::map<std::string, std::size_t> places;  // by description, which says all of a case
    for (Verification& v : verifications) {
        for (const Case& c : v.cases) {
            const auto [place, is_new] = places.emplace(description_of(c), shared.size());
            if (is_new) shared.push_back({&c, {}});
            shared[place->second].verifications.push_back(&v);
        }
    }
    return shared;
}

bool computes_gradients(const Verification& v) {
    return v.stage->pass == Pass::backward;
}

/// "largest error of O", or of whatever each stage computes.
std::string largest_error(const std::vector<Verification>& verifications) {
    const bool backward = std::any_of(verifications.begin(), verifications.end(), computes_gradients);
    return backward ? "largest error" : "largest error of O";
}

std::string scientific(double value) {
    return fmt::format("{:.1e}", value);
}

bool has_8_bits(const std::vector<Verification>& verifications) {
    return std::any_of(verifications.begin(), verifications.end(),
                       [](const Verification& v) { return v.stage->products != Products::of_16_bits; });
}

/// Their columns; of products of 8 bits also what rounding the inputs adds, which the other errors leave out.
void add_error_columns(std::vector<Column>& columns, const std::vector<Verification>& verifications) {
    columns.push_back({"max_error", largest_error(verifications), Align::right});
    columns.push_back({"standard_max_error", "standard attention's", Align::right});
    columns.push_back({"relative_l2", "relative L2", Align::right});
    if (has_8_bits(verifications)) columns.push_back({"unquantized_l2", "of 16-bit inputs", Align::right});
    columns.push_back({"max_L_error", "error of L", Align::right, true});
}

/// The errors as cells of a row. L is an input of the backward pass.
void add_errors(std::vector<Cell>& row, const Verification& v, const auto& errors, bool with_8_bits) {
    for (const double value : {errors.max_error, errors.standard_max_error, errors.relative_l2})
        row.push_back({Value(value), scientific(value)});
    if (with_8_bits)
        row.push_back(v.stage->products == Products::of_16_bits
                          ? Cell(Value(), "-", Tone::faint)
                          : Cell(Value(errors.unquantized_l2), scientific(errors.unquantized_l2)));
    row.push_back(computes_gradients(v) ? Cell(Value(), "-", Tone::faint)
                                        : Cell(Value(errors.max_L_error), scientific(errors.max_L_error)));
}

}  // namespace

void Errors::add(const Verdict& verdict) {
    const auto raise = [](double& largest, double value) {
        const bool larger = !(value <= largest);  // a NaN is larger than any number
        if (larger) largest = value;
        return larger;
    };
    ++cases;
    if (raise(max_error, verdict.max_error) || cases == 1) standard_max_error = verdict.standard_max_error;
    raise(relative_l2, verdict.relative_l2);
    raise(max_L_error, verdict.max_L_error);
    raise(unquantized_l2, verdict.unquantized_l2);
}

void verify_all(Device& device, std::vector<Verification>& verifications, const OnStep& on_step, Runs runs) {
    int done = 0, total = 0, ran = 0;
    for (Verification& v : verifications) {
        total += static_cast<int>(v.cases.size());
        if (device.backend() != Backend::gpu) continue;
        for (Case& c : v.cases) c.multiprocessors = 0;  // its multiprocessors are what they are
    }
    for (const SharedCase& shared : shared_cases(verifications)) {
        Reference reference(*shared.problem);
        for (Verification* v : shared.verifications) {
            on_step(fmt::format("verify {}, {}", v->stage->folder(), description_of(*shared.problem)), done++,
                    total);
            verify_one(device, *v, reference, runs);
        }
    }
    for (const Verification& v : verifications) ran += v.passed + v.failed;
    const auto first = std::ranges::find_if(verifications, [](const auto& v) { return !v.cases.empty(); });
    if (ran == 0 && first != verifications.end())
        throw CannotRun(fmt::format("{} cannot run: {}", first->stage->folder(), first->why_not));
}

Cell verdict_cell(const Verification& v) {
    if (v.passed_before) return {Value(true), "passed before", Tone::good};
    if (v.passed + v.failed == 0) return {Value(), "cannot run", Tone::faint};
    return {Value(v.failed == 0), fmt::format("{} of {}", v.passed, counted(v.passed + v.failed, "case")),
            v.failed == 0 ? Tone::good : Tone::bad};
}

Table verification_table(const std::vector<Verification>& verifications) {
    std::vector<Column> columns{{"stage", "stage"}, {"passed", "passed"}};
    add_error_columns(columns, verifications);
    columns.push_back({"seconds", "seconds", Align::right, true});
    columns.push_back({"why_not", ""});
    Table table("stages", "", columns);
    for (const Verification& v : verifications) {
        std::vector<Cell> row{v.stage->folder(), verdict_cell(v)};
        if (v.passed + v.failed > 0) {
            add_errors(row, v, v.worst, has_8_bits(verifications));
            row.push_back({Value(v.seconds), fmt::format("{:.1f}", v.seconds)});
        }
        row.resize(table.columns().size() - 1);
        row.push_back(v.why_not.empty() ? Cell() : Cell(v.why_not));
        table.add_row(std::move(row));
    }
    return table;
}

Table error_table(const std::vector<Verification>& verifications) {
    std::vector<Column> columns{
        {"stage", "stage"}, {"dtype", "type"}, {"input", "input"}, {"cases", "cases", Align::right}};
    add_error_columns(columns, verifications);
    Table table("errors", "", columns);
    for (const Verification& v : verifications) {
        for (const auto& [kind, errors] : v.errors) {
            std::vector<Cell> row{v.stage->folder(), name(kind.first), kind.second,
                                  Cell::count(static_cast<std::uint64_t>(errors.cases))};
            add_errors(row, v, errors, has_8_bits(verifications));
            table.add_row(std::move(row));
        }
    }
    return table;
}

std::vector<Listing> failure_reports(const std::vector<Verification>& verifications) {
    std::vector<Listing> listings;
    for (const Verification& v : verifications) {
        if (v.reports.empty()) continue;
        // One broken idea fails many cases alike; the first few tell.
        constexpr std::size_t shown = 3;
        std::string text;
        for (std::size_t i = 0; i < v.reports.size() && i < shown; ++i)
            text += (i > 0 ? "\n" : "") + v.reports[i];
        if (v.reports.size() > shown)
            text += fmt::format("\n... and {}\n", counted(v.reports.size() - shown, "more case"));
        listings.push_back({"report_" + v.stage->folder(), text, "", nullptr, Lines::wrapped});
    }
    return listings;
}

std::string failure_of(const std::vector<Verification>& verifications) {
    std::vector<std::string> failed;
    for (const Verification& v : verifications) {
        if (v.failed > 0) failed.push_back(v.stage->folder());
    }
    if (failed.empty()) return "";
    return fmt::format("{} of {} failed: {}", failed.size(), counted(verifications.size(), "stage"),
                       fmt::join(failed, ", "));
}

}  // namespace ladder
