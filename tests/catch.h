/// @file
/// Catch2, version 2 (Debian 12) or 3 (Ubuntu 24.04). Tests use only what both have: TEST_CASE, SECTION,
/// DYNAMIC_SECTION, CHECK, REQUIRE, their THROWS forms, INFO and CAPTURE.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#    include <catch2/catch_all.hpp>
#else
#    include <catch2/catch.hpp>
#endif

// Version 3 has it in another namespace.
#pragma GCC poison Approx
