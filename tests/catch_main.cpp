// Catch2 3 brings its own main; version 2 wants one.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
