"""A kernel as the one text that it is."""

import re

INCLUDE = re.compile(r'^#include "(stages/\d\d_\w+/\w+\.cuh)"\n', re.M)


def kernel_text(kernel):
    """kernel_text() of harness/ladder/declaration.h, of the path of a kernel.cu: a file of a stage's folder, its first
    comment aside, stands in the place of the line that includes it."""
    root = kernel.resolve().parents[2]
    included = lambda found: (root / found[1]).read_text(encoding="utf-8").partition("\n\n")[2]
    return INCLUDE.sub(included, kernel.read_text(encoding="utf-8"))
