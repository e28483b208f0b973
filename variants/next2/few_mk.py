import re
root="/work/main/"
h=open(root+"stages/hopper.cuh").read()
def rep(t,a,b,n=1):
    assert t.count(a)==n,(a,t.count(a)); return t.replace(a,b)
h=rep(h,"int rows, int panels = ceil_div(d, 64)) {","int rows, int panels = ceil_div(d, 64),\n                     [[maybe_unused]] int fetch = 256, bool whole_rows = false) {")
h=rep(h,"constexpr int width = d < 64 ? d : 64, all_panels = ceil_div(d, 64);","const int width = whole_rows || d < 64 ? d : 64, all_panels = whole_rows ? 1 : ceil_div(d, 64);")
h=rep(h,"{width, cuuint64_t(N), all_panels,","{cuuint64_t(width), cuuint64_t(N), cuuint64_t(all_panels),")
h=rep(h,"        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);\n    if (result != CUDA_SUCCESS) throw CheckFailed(\"tensor map: error \" + std::to_string(int(result)));\n    return map;\n#else\n    return simt::tensor_map(X.data, {width,",
"        fetch == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : fetch == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : fetch == 64 ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B : CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);\n    if (result != CUDA_SUCCESS) throw CheckFailed(\"tensor map: error \" + std::to_string(int(result)));\n    return map;\n#else\n    return simt::tensor_map(X.data, {width,")
i=h.index("template <Reads reads = Reads::again>\n__device__ __forceinline__ void bulk_load"); j=h.index("/// cp.async.bulk.tensor, from shared to global memory: starts the copy of a box, whose")
f=h[i:j]
f=rep(f,"Mbarrier* full) {","Mbarrier* full, int panel = 0, int column = 0) {")
f=rep(f,'[%0], [%1, {%2, %3, %2, %4, %5}], [%6];\\n"','[%0], [%1, {%2, %3, %7, %4, %5}], [%6];\\n"')
f=rep(f,'"r"(0), "r"(row), "r"(head), "r"(batch), "r"(shared_address(full))\n            : "memory");\n    } else','"r"(column), "r"(row), "r"(head), "r"(batch), "r"(shared_address(full)), "r"(panel)\n            : "memory");\n    } else')
f=rep(f,'[%0], [%1, {%2, %3, %2, %4, %5}], [%6], %7;\\n"','[%0], [%1, {%2, %3, %8, %4, %5}], [%6], %7;\\n"')
f=rep(f,'"r"(0), "r"(row), "r"(head), "r"(batch), "r"(shared_address(full)), "l"(policy)','"r"(column), "r"(row), "r"(head), "r"(batch), "r"(shared_address(full)), "l"(policy), "r"(panel)')
f=rep(f,"{0, row, 0, head, batch}","{column, row, panel, head, batch}")
h=h[:i]+f+h[j:]
open("hopper.cuh","w").write(h)
import os
k=open(root+"stages/38_split_keys/kernel.cu").read()
LOAD="bulk_load<Reads::once>(ring[slot], &map, j * Bc, h_kv, b, &full[slot]);"
MAP="tensor_map<T, d>(p.{0}, p.B, p.Hkv, p.Nk, Tile<d>::Bc)"
def write(name,*ch):
    t=k
    for a,b in ch: t=rep(t,a,b)
    os.makedirs(name,exist_ok=True); open(name+"/kernel.cu","w").write(t)
def maps(a,rows="Tile<d>::Bc"): return [(MAP.format(x),f"tensor_map<T, d>(p.{x}, p.B, p.Hkv, p.Nk, {rows}{a})") for x in "KV"]
def boxes(rows,whole=False):
    at="0, 64 * n" if whole else "n"
    return (LOAD,f"""for (int row = 0; row < Bc; row += {rows}) {{
                    for (int n = 0; n < d / 64; ++n) {{
                        bulk_load<Reads::once>(&ring[slot][n][row][0], &map, j * Bc + row, h_kv, b, &full[slot], {at});
                    }}
                }}""")
again=(LOAD,LOAD.replace("<Reads::once>",""))
write("38_no_hint",again)
write("38_fetch_128",*maps(", ceil_div(d, 64), 128"))
write("38_fetch_none",*maps(", ceil_div(d, 64), 0"))
write("38_fetch_none_no_hint",again,*maps(", ceil_div(d, 64), 0"))
write("38_whole_rows_128",boxes("Bc",True),*maps(", 1, 128, true"))
write("38_boxes_of_64",boxes(64),*maps(", 1, 256","64"))
write("38_boxes_of_16",boxes(16),*maps(", 1, 256","16"))
write("38_boxes_of_16_128",boxes(16),*maps(", 1, 128","16"))
write("38_all_sms",("const auto most = [resident](int busy) { return 8 * busy >= 7 * resident; };","const auto most = [resident](int busy) { return busy >= resident; };"))
