"""Writes the variants of 38 from stages/38_split_keys/kernel.cu: each is a few replacements of its text."""
import os, sys

tree = sys.argv[1]
kernel = open(f"{tree}/stages/38_split_keys/kernel.cu").read()
LOAD = "bulk_load(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);"
MAP = "tensor_map<T, d>(p.{0}, p.B, p.Hkv, p.Nk, Tile<d>::Bc)"


def write(name, *changes):
    text = kernel
    for old, new in changes:
        assert text.count(old) == 1, (name, old, text.count(old))
        text = text.replace(old, new)
    os.makedirs(name, exist_ok=True)
    open(f"{name}/kernel.cu", "w").write(text)


def maps(arguments, rows="Tile<d>::Bc"):
    return [(MAP.format(x), f"tensor_map<T, d>(p.{x}, p.B, p.Hkv, p.Nk, {rows}{arguments})") for x in "KV"]


def boxes(rows, whole_rows=False, reads=""):
    """One bulk copy for each panel of `rows` rows: rows first, so both halves of a row follow each other sooner."""
    at = "0, 64 * n" if whole_rows else "n"
    return (LOAD, f"""for (int row = 0; row < Bc; row += {rows}) {{
                    for (int n = 0; n < d / 64; ++n) {{
                        bulk_load{reads}(&ring[slot][n][row][0], &map, j * Bc + row, h_kv, b, &full[slot], {at});
                    }}
                }}""")


once = (LOAD, LOAD.replace("bulk_load", "bulk_load<Reads::once>"))
write("38_evict_first", once)
write("38_fetch_128", *maps(", ceil_div(d, 64), 128"))
write("38_fetch_none", *maps(", ceil_div(d, 64), 0"))
write("38_fetch_128_evict_first", once, *maps(", ceil_div(d, 64), 128"))
write("38_fetch_none_evict_first", once, *maps(", ceil_div(d, 64), 0"))
write("38_narrow_box", boxes("Bc"), *maps(", 1"))
write("38_narrow_box_128", boxes("Bc"), *maps(", 1, 128"))
write("38_whole_rows_128", boxes("Bc", True), *maps(", 1, 128, true"))
write("38_boxes_of_64", boxes(64), *maps(", 1, 256", "64"))
write("38_boxes_of_16", boxes(16), *maps(", 1, 256", "16"))
write("38_boxes_of_16_128", boxes(16), *maps(", 1, 128", "16"))

last_wave = (
    "        rest = tiles % blocks * Tc < blocks ? 0 : tiles % blocks;  // too few to share\n",
    "        rest = tiles % blocks;\n"
    "        // Too few to share, or nearly as many as blocks: those that have none cost less than a merge.\n"
    "        if (rest * Tc < blocks || 8 * rest >= 7 * blocks) rest = 0;\n")
write("38_last_wave", last_wave)
early = [
    ("""    copy_wait();
    fence_proxy_async();
    // The tile is complete""",
     """}

/// Waits for the tile of Q.
template <int d>
__device__ void wait_queries() {
    copy_wait();
    fence_proxy_async();
    // The tile is complete"""),
    ("        for (int r = begin < end ? begin / shares.Tc : shares.rest + blockIdx.x; r < shares.tiles;\n",
     "        for (int r = first_tile; r < shares.tiles;\n"),
    ("    // Calls take() for each query tile",
     """    const int first_tile = begin < end ? begin / shares.Tc : shares.rest + blockIdx.x;
    // Calls take() for each query tile"""),
    ("    int k = 0;\n    for_each_tile(", """    const auto start_queries = [&](int r) {  // the copies of Q of query tile r
        if (r < shares.tiles)
            load_queries<T, d>(shared.Q[g], p, r / Tr / p.Hkv, r / Tr % p.Hkv, r % Tr * Br + 64 * g);
    };
    start_queries(first_tile);
    int k = 0;
    for_each_tile("""),
    ("        load_queries<T, d>(shared.Q[g], p, b, h_kv, first_row);\n", "        wait_queries<d>();\n"),
    ("            start_product(Tc - 1);\n",
     """            // The last scores are complete, so no product reads this Q again.
            start_queries(shares.next_tile(blockIdx.x, tile));
            start_product(Tc - 1);
"""),
    ("""            release(Tc - 1, shared.V_empty);
        }
""", """            release(Tc - 1, shared.V_empty);
        } else {
            start_queries(shares.next_tile(blockIdx.x, tile));
        }
"""),
]
write("38_early_queries", *early)
write("38_last_wave_early_queries", last_wave, *early)
write("38_all", once, last_wave, *early, *maps(", ceil_div(d, 64), 128"))
