"""The colours of plots and figures, on light pages and on dark ones: each is a pair."""

# Blue for what all branches share and orange for what is a branch's own: also apart for the colour-blind, as are green
# and pink, which figures need in addition. Lines of charts have markers of their own too.
COLORS = {"page": ("#ffffff", "#0d1117"), "text": ("#1f2328", "#e6edf3"), "faint": ("#59636e", "#9198a1"),
          "grid": ("#d1d9e0", "#3d444d"), "shared": ("#0072b2", "#56b4e9"), "own": ("#d55e00", "#e69f00"),
          "green": ("#00805c", "#2fc296"), "pink": ("#b5588f", "#df94bd")}
STAGES = [("#59636e", "#9198a1"), ("#d35e02", "#ff8f40"), ("#0072b2", "#56b4e9"), ("#007a5a", "#2fc79a")]
OTHERS = [("#a8558a", "#e39ac6"), ("#7a5c00", "#c8ad62"), ("#b07800", "#f5c542"), ("#1f2328", "#e6edf3"),
          ("#7d7fc4", "#a5a7ee"), ("#9c3b2e", "#f0a08f")]


def adaptive(svg):
    """A picture in the light colours, with a style that gives those that it has their dark ones on a dark page.
    A colour is an attribute, or part of a style (matplotlib's), over which only !important wins."""
    rules = [f"[{selector}] {{ {name}: {dark} !important; }}"
             for light, dark in sorted({*COLORS.values(), *STAGES, *OTHERS}) for name in ("fill", "stroke")
             for found, selector in ((f'{name}="{light}"',) * 2, (f"{name}: {light}", f'style*="{name}: {light}"'))
             if found in svg]
    style = "\n".join(["<style>@media (prefers-color-scheme: dark) {", *rules, "}</style>"])
    head, end, body = svg.partition("</title>\n")
    return f"{head}{end}{style}\n{body}"
