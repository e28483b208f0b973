"""cuDNN's graphs, as nvidia-cudnn-frontend builds them, as far as attention in 8 bits: 0.875 ms; none of d = 512."""

from types import SimpleNamespace

import torch

data_type = SimpleNamespace(FP8_E4M3=torch.float8_e4m3fn, FLOAT=torch.float32)
heur_mode = SimpleNamespace(A="A")


class Named:
    def __init__(self, dim=None, stride=None, data_type=None):
        self.set_dim(dim).set_stride(stride).set_data_type(data_type).is_output = False

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self

    def set_data_type(self, data_type):
        self.data_type = data_type
        return self

    def set_output(self, is_output):
        self.is_output = is_output
        return self


class pygraph:
    def __init__(self, io_data_type, intermediate_data_type, compute_data_type):
        assert (io_data_type, intermediate_data_type, compute_data_type) == (
            torch.float8_e4m3fn, torch.float32, torch.float32)
        self.is_built = False

    def tensor(self, dim, stride, data_type):
        return Named(dim, stride, data_type)

    def sdpa_fp8(self, q, k, v, descale_q, descale_k, descale_v, descale_s, scale_s, scale_o, attn_scale, generate_stats,
                 use_causal_mask):
        assert q.dim[1:3] == [2, 24] and k.dim == v.dim and not generate_stats and attn_scale == q.dim[3] ** -0.5
        self.inputs = [q, k, v, descale_q, descale_k, descale_v, descale_s, scale_s, scale_o]
        self.outputs = Named(), Named(), Named()
        return self.outputs[0], None, *self.outputs[1:]

    def build(self, modes):
        assert modes == ["A"] and all(x.is_output and len(x.dim) == len(x.stride) == 4 for x in self.outputs)
        assert [x.data_type for x in self.outputs] == [torch.float8_e4m3fn, torch.float32, torch.float32]
        self.is_built = True

    def get_workspace_size(self):
        return 16

    def execute(self, tensors, workspace, handle):
        assert self.is_built and handle == "a handle on stream 7" and set(tensors) == {*self.inputs, *self.outputs}
        torch.spend(0.875, workspace, *tensors.values())


def create_handle():
    return "a handle on stream 7"


def set_stream(handle, stream):
    assert handle == f"a handle on stream {stream}"
