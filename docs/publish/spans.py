"""Measured numbers in prose: `<data value="over 04, causal 2k">1.97x</data>`. `lab tables` writes what the recordings say
into each, or what a lesson predicted. An HTML element, since a comment at the start of a line would end the paragraph."""

from blocks import Failure
from markdown import SPAN
from predictions import first_said
from quantities import find


def filled(sources, page, text):
    """The text with every span made anew."""
    def fill(span):
        words = " ".join(span[2].split())
        try:
            found = first_said(sources, words) if words.startswith("predicted ") else find(sources, page.stage, words)
        except Failure as failure:
            raise Failure(f"{page.path}: {failure}") from failure
        if found is None:
            raise Failure(f"{page.path}: no recording has '{words}'")
        if words.startswith(("gain", "loss", "longer", "most gain", "most loss")) and min(found.values) < -0.5:
            raise Failure(f"{page.path}: '{words}' is {found}: it is no {words.split()[0]}")
        return f'<data value={span[1]}"{span[2]}{span[1]}">{found}</data>'

    return SPAN.sub(fill, text)
