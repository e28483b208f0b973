"""Writes the variants of 83 (and of 82, whose loads are the same) from the tree's kernel and 81_ahead_offsets."""
import os, sys
tree = sys.argv[1]
ahead = open("81_ahead_offsets/kernel.cu").read()
begin = "template <int d>\nconstexpr int block_rows"
loads = ahead[ahead.index(begin):ahead.index("__device__ bool visible(")]
for stage, name in (("83_prefix_tiles", "83_ahead_offsets"), ("82_shared_prefix", "82_ahead_offsets")):
    s = open(f"{tree}/stages/{stage}/kernel.cu").read()
    def sub(a, b):
        global s
        assert s.count(a) == 1, (name, a, s.count(a))
        s = s.replace(a, b)
    a, b = s.index("/// Starts copying keys first .. first + Bc - 1"), s.index("__device__ bool visible(")
    s = s[:a] + loads + s[b:]
    a = s.index("    const auto load = [&](int j) {"); b = s.index("  // Q is in the first group\n")
    s = s[:a] + """    const auto pages_of = [&](int j) {
        const int own = own_key<d>(j * Bc<d>);
        return j < last && own < Nk ? page_of(p, b, own) : 0;
    };
    const auto load = [&](int j, int own_page) {  // one group of copies, empty past the last tile
        if (j < last) {
            load_tiles<T, d>(shared.K[j % depth<d>], shared.V[j % depth<d>], p, own_page, h_kv, j * Bc<d>, Nk);
        }
        copy_commit();
    };
    int pages[depth<d> + 1];  // none of these loads waits for another
#pragma unroll
    for (int n = 0; n <= depth<d>; ++n) pages[n] = pages_of(first + n);
#pragma unroll
    for (int n = 0; n < depth<d>; ++n) load(first + n, pages[n]);  // Q is in the first group
    int next = pages[depth<d>];  // looked up one tile before its copies start
""" + s[b + len("  // Q is in the first group\n"):]
    sub("        load(j + depth<d>);\n", "        load(j + depth<d>, next);\n        next = pages_of(j + depth<d> + 1);\n")
    os.makedirs(name, exist_ok=True)
    open(f"{name}/kernel.cu", "w").write(s)
    if stage.startswith("83"):
        sub("template <class T, int d>\n__device__ void load_tiles(", "template <Reads reads, class T, int d>\n__device__ void load_tiles(")
        s = s.replace("copy_async<Reads::once>", "copy_async<reads>")
        sub("load_tiles<T, d>(shared.K", "load_tiles<Br == own_Br ? Reads::once : Reads::again, T, d>(shared.K")
        os.makedirs(name + "_again", exist_ok=True)
        open(f"{name}_again/kernel.cu", "w").write(s)
