"""The parts as a reader chooses them: by what he wants, each with one number and the exercise to begin with."""

import re
from typing import NamedTuple

from blocks import Failure, block
from markdown import table
from parts import LADDER, opening, part_pages
from quantities import find


class Choice(NamedTuple):
    part: int
    wish: str
    number: str  # in the words of a span
    of_what: str
    exercise: int = None  # where it is not the part's first


CHOICES = [
    Choice(0, "Understand FlashAttention", "over 01 of 05, train", "the speed of the algorithm of FlashAttention-1", 2),
    Choice(90, "See what each change is worth", "over 05 of 91, train", "the speed of stage 05 once split-Q is removed"),
    Choice(20, "Training and prefill with mma.sync", "over FlashAttention-2 of 26, train",
           "the speed of FlashAttention-2"),
    Choice(30, "Training and prefill on Hopper", "over FlashAttention-3 of 36, train", "the speed of FlashAttention-3"),
    Choice(40, "Gradients with mma.sync", "over FlashAttention-2 of 46, backward 8k", "the speed of FlashAttention-2"),
    Choice(50, "Gradients on Hopper", "mean over FlashAttention-4 of 55, gradients, in h200-gradients",
           "the speed of FlashAttention-4, in the mean"),
    Choice(10, "Fast decoding", "over cuDNN of 17, decode 64k", "the speed of cuDNN at 64k keys"),
    Choice(80, "Serve requests of any length", "over FlashInfer of 84, prefix 1 in 16s of 8k in 8448, in h200-prefix",
           "the speed of FlashInfer with a shared prompt"),
    Choice(60, "Windows, documents and other masks", "over FlashAttention-4 of 65, window, in h200-window",
           "the speed of FlashAttention-4 in a window"),
    Choice(95, "Masks with a softcap, ALiBi, sinks or dropout", "over FlashAttention-2 of 95, dropout, in h200-dropout",
           "the speed of FlashAttention-2 with dropout"),
    Choice(70, "Products in 8 bits", "over 36 of 70, long, in h200-fp8-peers", "the speed of 16 bits at 16k keys"),
    Choice(86, "Several GPUs", "ms of 36, custom 64k, in h200-x1 / ms of 87, custom 64k on 2, in h200-x2",
           "the speed of one GPU, on two")]


def beginning(sources, choice):
    """The command of its first exercise; of a part without exercises, what shows its first change."""
    own = sources.of_part(choice.part)
    number = choice.exercise or next((stage.number for stage in own if (LADDER / stage.folder / "exercise.md").exists()), None)
    return f"./lab start {number}" if number else f"./lab diff {own[0].number}"


@block("choices")
def choices(sources, page, _):
    pages = part_pages()
    if missing := {*pages} ^ {choice.part for choice in CHOICES}:
        raise Failure(f"docs/publish/choices.py: not each part once: {', '.join(f'{part:02}s' for part in sorted(missing))}")
    rows, recorded = [], []
    for choice in CHOICES:
        found = find(sources, None, choice.number)
        stages = [sources.stage(int(number)) for number in re.findall(r"\b(?:over|of) (\d\d)\b", choice.number)]
        recorded += [(results, stages) for results in (found.recordings if found else ())]
        rows.append([f"[{choice.wish}]({page.link(f'stages/{pages[choice.part].name}')})", opening(pages[choice.part])[0],
                     f"**{found}** {choice.of_what}" if found else "not measured",
                     f"`{beginning(sources, choice)}`"])
    return table(["you want", "part", "what it reached", "begin with"], rows) + sources.mark(*recorded)
