"""A kernel as the one text that it is."""

import re

INCLUDE = re.compile(r'^#include "(stages/\d\d_\w+/\w+\.cuh)"\n', re.M)


def kernel_text(kernel):
    """kernel_text() of harness/ladder/declaration.h, of the path of a kernel.cu: a file of a stage's folder, its first
    comment aside, stands in the place of the line that includes it."""
    return INCLUDE.sub(lambda found: file_text(kernel, found[1]), kernel.read_text(encoding="utf-8"))


def file_text(kernel, name):
    """What a kernel's text has of a file of a stage's folder, by the name that an #include gives it."""
    return (kernel.resolve().parents[2] / name).read_text(encoding="utf-8").partition("\n\n")[2]
