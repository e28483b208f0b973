/// @file
/// Tests that cannot run everywhere.
#pragma once

#include <cstdio>
#include <string>

#include "harness/device/device.h"

namespace ladder::test {

/// Whether the back-end is here. If not, CTest will show the test as skipped, with the reason; return from it
/// then:
///
///     if (!available(Backend::gpu)) return;
inline bool available(Backend backend) {
    std::string why_not;
    if (has_device(backend, &why_not)) return true;
    std::printf("SKIPPED: %s\n", why_not.c_str());
    std::fflush(stdout);
    return false;
}

}  // namespace ladder::test
