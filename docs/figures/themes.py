"""The colours of plots and figures, on light pages and on dark ones."""

# Blue for what all branches share and orange for what is a branch's own: also apart for the colour-blind, as are green
# and pink, which figures need beside them.
THEMES = {
    "light": {"page": "#ffffff", "text": "#1f2328", "faint": "#59636e", "grid": "#d1d9e0", "shared": "#0072b2",
              "own": "#d55e00", "green": "#00805c", "pink": "#b5588f"},
    "dark": {"page": "#0d1117", "text": "#e6edf3", "faint": "#9198a1", "grid": "#3d444d", "shared": "#56b4e9",
             "own": "#e69f00", "green": "#2fc296", "pink": "#df94bd"},
}
