"""The colours of plots and figures, on light pages and on dark ones."""

# Blue for what all branches share and orange for what is a branch's own: also apart for the colour-blind, as are green
# and pink, which figures need beside them. Lines of charts have markers of their own too.
THEMES = {
    "light": {"page": "#ffffff", "text": "#1f2328", "faint": "#59636e", "grid": "#d1d9e0", "shared": "#0072b2",
              "own": "#d55e00", "green": "#00805c", "pink": "#b5588f",
              "stages": ["#59636e", "#d55e00", "#0072b2", "#007a5a"],
              "others": ["#a8558a", "#7a5c00", "#b07800", "#1f2328", "#7d7fc4", "#9c3b2e"]},
    "dark": {"page": "#0d1117", "text": "#e6edf3", "faint": "#9198a1", "grid": "#3d444d", "shared": "#56b4e9",
             "own": "#e69f00", "green": "#2fc296", "pink": "#df94bd",
             "stages": ["#9198a1", "#ff8f40", "#56b4e9", "#2fc79a"],
             "others": ["#e39ac6", "#c8ad62", "#f5c542", "#e6edf3", "#a5a7ee", "#f0a08f"]},
}
