"""cuDNN's attention in e4m3, as a peer that peers.py times, by the package nvidia-cudnn-frontend."""

import torch


def cudnn_fp8(query, key, value, causal, window):
    """cuDNN's graph of attention in e4m3, built once. Q, K and V are converted beforehand; its scales are 1. O is e4m3, too."""
    import cudnn

    if query.requires_grad:
        raise ValueError("has no gradients")
    if window != (None, None):
        raise ValueError("is not timed with a window")
    if causal and query.shape[2] != key.shape[2]:
        raise ValueError("is timed with a causal mask of as many keys as rows")
    types, one = cudnn.data_type, torch.ones((1, 1, 1, 1), device="cuda")
    graph = cudnn.pygraph(io_data_type=types.FP8_E4M3, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT)

    def named(tensor, data_type):
        return graph.tensor(dim=[*tensor.shape], stride=[*tensor.stride()], data_type=data_type)

    tensors = [tensor.to(torch.float8_e4m3fn) for tensor in (query, key, value)]
    output, (largest_score, largest_output) = torch.empty_like(tensors[0]), (torch.empty_like(one) for _ in range(2))
    inputs, scales = [named(tensor, types.FP8_E4M3) for tensor in tensors], [named(one, types.FLOAT) for _ in range(6)]
    O, _, *largest = graph.sdpa_fp8(*inputs, *scales, attn_scale=query.shape[3] ** -0.5, generate_stats=False,
                                    use_causal_mask=causal)
    for name, tensor, data_type in ((O, output, types.FP8_E4M3), (largest[0], largest_score, types.FLOAT),
                                    (largest[1], largest_output, types.FLOAT)):
        name.set_output(True).set_dim([*tensor.shape]).set_stride([*tensor.stride()]).set_data_type(data_type)
    graph.build([cudnn.heur_mode.A])
    workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device="cuda")
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    pointers = dict(zip([*inputs, *scales, O, *largest], [*tensors, *[one] * 6, output, largest_score, largest_output]))

    def call():
        graph.execute(pointers, workspace, handle=handle)
        return output
    return call
