/// @file
/// What this program was built from. One source alone knows, so that all others are the same objects in every
/// folder.
#pragma once

namespace ladder {

/// The sources' folder, and the build's.
extern const char* const built_from;
extern const char* const built_in;
/// A fingerprint of those sources, as they were then, that are in programs and decide whether a stage passes.
extern const char* const built_of;

}  // namespace ladder
