/// @file
/// Linked with one known-wrong variant of a stage. Verifies it like any stage, on the checked back-end:
///
///     mutant EXPECTED
///
/// exits with 0 if a case fails and its report contains EXPECTED, with 1 if the suite accepts the variant or
/// rejects it for another reason.

#include <cstdio>
#include <string>

#include "harness/verify/verify.h"

int main(int argc, char** argv) {
    using namespace ladder;
    const std::string expected = argc == 2 ? argv[1] : "";
    if (expected.empty() || stages().size() != 1) {
        std::fprintf(stderr, "usage: mutant EXPECTED, with exactly one stage linked\n");
        return 2;
    }
    const Stage& stage = stages().front();
    const auto device = open_device(Backend::checked);
    for (const bool quick : {true, false}) {
        for (const Case& c : verification_cases(stage, quick)) {
            const Verdict verdict = verify(*device, stage, c);
            if (verdict.passed) continue;
            std::printf("%s\n%s\n", c.description().c_str(), verdict.report.c_str());
            const bool as_expected = verdict.report.find(expected) != std::string::npos;
            if (!as_expected) std::printf("rejected, but not for \"%s\"\n", expected.c_str());
            return as_expected ? 0 : 1;
        }
    }
    std::printf("accepted: the suite does not notice\n");
    return 1;
}
