"""Writes variants of 39 from a tree's kernel: variants.py TREE. Where the next kernel is let start, where it waits."""
import sys
from pathlib import Path
tree, out = Path(sys.argv[1]), Path(__file__).parent
base = (tree / "stages/39_early_launch/kernel.cu").read_text()
def sub(s, old, new):
    assert s.count(old) == 1, (old, s.count(old))
    return s.replace(old, new)
lines = base.splitlines(keepends=True)
trigger = next(l for l in lines if "let_next_kernel_start();" in l)
wait = next(l for l in lines if "wait_for_previous_kernel();" in l)
none = sub(base, trigger, "")
variants = {
    "39_no_trigger": none,
    "39_trigger_at_start": sub(none, "    __syncthreads();  // the mbarriers are set up\n", "    let_next_kernel_start();\n    __syncthreads();  // the mbarriers are set up\n"),
    "39_trigger_before_parts": sub(none, "            const Parts parts(p, shares, tile);\n            write_part", "            const Parts parts(p, shares, tile);\n            let_next_kernel_start();\n            write_part"),
    "39_wait_first": sub(sub(base, wait, ""), "    const int warp = (blockIdx.x * merge_threads", "    wait_for_previous_kernel();\n    const int warp = (blockIdx.x * merge_threads"),
    "39_in_order": sub(sub(none, wait, ""), "launch<Start::early>(merge", "launch(merge"),
}
for name, text in variants.items():
    (out / name).mkdir(exist_ok=True)
    (out / name / "kernel.cu").write_text(text.replace('.name = "early_launch"', f'.name = "{name[3:]}"'))
