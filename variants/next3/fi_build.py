import torch, os
import flashinfer
from flashinfer.jit.attention.modules import _gen_batch_prefill_primary_module as gen_batch_prefill_module
import flashinfer.jit.attention.modules as m
from flashinfer.jit.cascade import gen_cascade_module
from flashinfer.jit.page import gen_page_module
specs=[gen_batch_prefill_module("fa2", torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int32, 128,128,0,False,False,False), gen_cascade_module(), gen_page_module()]
import sys
for s in specs:
    print(s.name, s.is_aot if hasattr(s,'is_aot') else '')
    if len(sys.argv)>1: s.build(verbose=False); print("built", s.name)
