#include "harness/base/built.h"

#include "built_of.h"

namespace ladder {

const char* const built_from = LADDER_SOURCE_DIR;
const char* const built_in = LADDER_BUILD_FOLDER;
const char* const built_of = LADDER_BUILT_OF;

}  // namespace ladder
