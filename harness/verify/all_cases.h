/// @file
/// Stages verified case by case, and the table and reports that come of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/progress.h"
#include "harness/base/table.h"
#include "harness/device/device.h"
#include "harness/verify/one_case.h"

namespace ladder {

/// The largest errors over some cases, as Verdict has them: of O, or of any of the gradients.
struct Errors {
    int cases = 0;
    double max_error = 0;
    double standard_max_error = 0;  ///< standard attention's on the case of max_error
    double relative_l2 = 0;
    double max_L_error = 0;
    double unquantized_l2 = 0;

    void add(const Verdict& verdict);
};

/// One stage, its cases, and once verified the outcome.
struct Verification {
    Verification(const Stage* s, std::vector<Case> c) : stage(s), cases(std::move(c)) {}

    const Stage* stage;
    std::vector<Case> cases;

    int passed = 0;
    int failed = 0;
    double seconds = 0;  ///< without what its cases share with other stages
    Verdict worst;       ///< of the case with the largest error
    std::map<std::pair<DType, std::string>, Errors> errors;  ///< by type and kind of input
    std::vector<std::string> reports;                        ///< one per failed case, with its description
    std::optional<Case> first_failed;
    std::string why_not;         ///< why the stage could not run some case; empty if all ran
    bool passed_before = false;  ///< so that it has no cases to run
};

/// Verifies all of them, case by case: stages that have a case share its inputs and what is expected of them.
/// A stage that cannot run a case says so in why_not and the others go on. Throws CannotRun if none could run
/// anything.
void verify_all(Device& device, std::vector<Verification>& verifications, const OnStep& on_step,
                Runs runs = Runs::usual);

/// "12 of 12", in green or red.
Cell verdict_cell(const Verification& verification);

Table verification_table(const std::vector<Verification>& verifications);

/// A row for each stage, type and kind of input.
Table error_table(const std::vector<Verification>& verifications);
std::vector<Listing> failure_reports(const std::vector<Verification>& verifications);

/// "2 of 7 stages failed: 01_..., 04_..."; empty if none did.
std::string failure_of(const std::vector<Verification>& verifications);

}  // namespace ladder
