"""What the site's search looks through, as a script for search.js: the text of all pages, and the symbols' names."""

import html
import json
import re
from xml.etree import ElementTree

GLOSSARY = "docs/glossary.md"
# Around a lesson's text, and of its own making; a lesson's tables have the same rows everywhere.
FRAME = re.compile(r'<(nav) class="steps">.*?</nav>|<(dl) class="family">.*?</dl>', re.S)
TABLE = re.compile(r'<div class="table[^>]*>.*?</table></div>', re.S)
INLINE = re.compile(r"</?(?:a|b|code|data|em|i|span|strong|sub|sup|wbr)\b[^>]*>")
FORMULA = re.compile(r"\\\((.*?)\\\)|\\\[(.*?)\\\]", re.S)
KINDS = ("lesson", "glossary", "notebook", "page", "other", "changelog")
# What is found after the rest: what repeats other pages, and what few look for
OTHERS = re.compile(r"docs/course/(?:quiz|labs|plan|policies)|tests/|examples/|course/")
# What else people call what a page is about
ALIASES = {
    "README.md": "license licence MIT getting started",
    "docs/troubleshooting.md": "compile error, compiler, build fails, install, CUDA version, out of memory, OOM, disk full, WSL, Windows, macOS, Mac",
    "docs/course/students.md": "WSL, Windows, exercise, hint, first steps",
    "docs/course/policies.md": "cheating, plagiarism, academic integrity, similarity",
    "docs/course/instructors.md": "grading, autograder, Gradescope",
    "docs/results.md": "H100, H200, A100, 4090, other GPUs, Nsight, profile, benchmark",
    "docs/send_a_recording.md": "A100, 4090, V100, Volta",
    "docs/python.md": "PyTorch, JAX, NumPy, transformers, Llama, softcap, ALiBi, attention sink",
    "docs/one_descriptor.md": "wgmma descriptor, matrix descriptor",
    "docs/one_mma.md": "ldmatrix, fragment, tensor cores",
    "docs/how_it_runs.md": "race checker, simulator, CPU back-end",
    "stages/30s_hopper.md": "FlashAttention-3, FA3",
    "stages/04_split_q/README.md": "split-Q",
    "stages/93_paper_tiles/README.md": "tile size",
    "docs/flash_attention_1_and_2.md": "FA2",
    "stages/01_flash_attention_1/README.md": "FA1, why softmax subtracts the max",
    "stages/06_flash_decoding/README.md": "split-KV, split-K",
    "stages/10_packed_gqa/README.md": "GQA, MQA, grouped-query attention",
    "stages/20_wide_warps/README.md": "register spill, register pressure, occupancy",
    "stages/30_tma_wgmma/README.md": "TMA, tensor memory accelerator, wgmma",
    "stages/31_producer_warp/README.md": "warp specialization, setmaxnreg",
    "stages/34_persistent/README.md": "persistent kernel",
    "stages/60_sliding_window/README.md": "local attention",
    "stages/61_packed_sequences/README.md": "varlen, cu_seqlens, document mask",
    "stages/70s_fp8.md": "FP8 error, quantization, e4m3",
    "stages/80s_serving.md": "KV cache, inference, vLLM",
    "stages/81_pages/README.md": "paged attention, block table",
    "stages/83_shared_prefix/README.md": "prefix caching, cascade attention",
    "stages/86s_several_gpus.md": "multi-GPU, distributed, context parallel",
    "stages/38_split_keys/README.md": "speculative decoding, draft",
}
# Formulas as text: what TeX writes for a character, and what leaves nothing but its braces' content
CHARACTERS = {"cdot": "·", "sum": "Σ", "alpha": "α", "delta": "δ", "tau": "τ", "varphi": "φ", "Theta": "Θ", "ell": "l",
              "infty": "∞", "le": "≤", "ge": "≥", "lt": "<", "approx": "≈", "to": "→", "leftarrow": "←", "partial": "∂",
              "sqrt": "√", "circ": "∘", "oplus": "⊕", "times": "×", "lceil": "⌈", "rceil": "⌉", "lfloor": "⌊",
              "rfloor": "⌋", "ldots": "…", "dots": "…", "in": "∈", "longrightarrow": "→", "iff": "⇔",
              "Longleftrightarrow": "⇔", "bmod": " mod ", "quad": " ", "qquad": " ", **{
                  name: name for name in ("max", "min", "exp", "log", "ln", "tanh")}}


def formula_as_text(tex):
    r""" "\frac{m_i}{2} \cdot x" as "m_i/2 · x" """
    tex = re.sub(r"\\t?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"\1/\2", tex)
    tex = re.sub(r"\\([A-Za-z]+)", lambda command: CHARACTERS.get(command[1], ""), tex)
    return re.sub(r"\\.|[{}]", "", tex)


def text_in(body):
    """HTML as a reader sees it, in one line."""
    body = FORMULA.sub(lambda formula: html.escape(formula_as_text(html.unescape(formula[1] or formula[2]))), body)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", INLINE.sub("", FRAME.sub("", body)))).split())


def kind_of(page, lessons):
    if page in lessons:
        return "lesson"
    if page.path == GLOSSARY:
        return "glossary"
    if page.path == "CHANGELOG.md":
        return "changelog"
    return "notebook" if page.path.endswith(".ipynb") else "other" if OTHERS.match(page.path) else "page"

def page_entries(pages, lessons):
    """For each page its kind, its file, its title, its sections (anchor, heading, text) and its other names: lessons as a
    reader climbs, the glossary, the notebooks, and then the others. Kernels and diffs, which no text is made of, are left out: of them
    the symbols are found."""
    def place(page):
        return KINDS.index(kind_of(page, lessons)), lessons.index(page) if page in lessons else 0, page.path

    entries = []
    for page in sorted(pages, key=place):
        sections = [[section.anchor, section.heading,
                     text_in(TABLE.sub("", section.body) if page in lessons else section.body)]
                    for section in page.sections if section.level == 0 or section.tokens]
        entries.append([kind_of(page, lessons), page.file, page.title, sections, ALIASES.get(page.path, "")])
    return entries


def symbol_entries(tags):
    """Of each symbol in Doxygen's tag file its name, what it is, and where its page is."""
    def page(name):
        return name if name.endswith(".html") else f"{name}.html"

    entries = {}
    for compound in ElementTree.parse(tags).getroot():
        kind, name = compound.get("kind"), compound.findtext("name")
        if kind in ("class", "struct", "file"):
            entries[page(compound.findtext("filename"))] = [name, kind]
        for member in compound.findall("member") if kind in ("class", "struct", "file", "namespace") else ():
            url = f"{page(member.findtext('anchorfile'))}#{member.findtext('anchor')}"
            entries[url] = [member.findtext("name"), f"{member.get('kind')} of {name}"]
    return sorted([name, kind, url] for url, (name, kind) in entries.items())


def search_index(pages, lessons, tags):
    """The script. `lessons` are the pages that a reader climbs, in order; `tags` is Doxygen's tag file."""
    if unknown := ALIASES.keys() - pages.by_path.keys():
        pages.problems.append(f"the search has other names for pages that do not exist: {', '.join(sorted(unknown))}")
    index = {"pages": page_entries(pages, lessons), "symbols": symbol_entries(tags)}
    return "const searchIndex = " + json.dumps(index, ensure_ascii=False, separators=(",", ":")) + ";\n"
