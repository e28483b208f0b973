"""A draft that is a tree, as words of bits."""

import numpy as np

from . import _arrays


def tree_words(parents):
    """The words of a draft that is a tree, int64: bit k of word i says that row k is row i or one of its ancestors.

    parents: (Nq,) or (B, Nq), at most 64 rows: for each row the one that it continues, which comes before it, or -1 for
        none. An array, or lists.
    """
    host = parents.cpu().numpy() if _arrays.is_torch(parents) else np.asarray(parents)
    if host.dtype.kind not in "iu" or host.ndim not in (1, 2) or not 1 <= host.shape[-1] <= 64:
        raise ValueError(f"parents is {host.dtype} {host.shape}; expected integers, (Nq,) or (B, Nq), of at most 64 rows")
    rows = np.arange(host.shape[-1])
    if ((host < -1) | (host >= rows)).any():
        raise ValueError("parents: each row continues one before it, or -1")
    words = np.zeros(host.shape, np.uint64)
    for i in rows:
        before = np.take_along_axis(words, host[..., i:i + 1].clip(0), axis=-1)
        words[..., i:i + 1] = np.where(host[..., i:i + 1] < 0, np.uint64(0), before) | np.uint64(1) << np.uint64(i)
    words = words.view(np.int64)
    return _like(parents, words)


def _like(x, words):
    """Where x is"""
    if _arrays.is_torch(x):
        import torch
        return torch.as_tensor(words, device=x.device)
    return words


def halves_of(words):
    """Words of 64 bits as int32, two for each, where they lie; int32 as it is."""
    if isinstance(words, (list, tuple)):
        words = np.array(words, np.uint64)
    if str(getattr(words, "dtype", "")).rpartition(".")[2] not in ("int64", "uint64"):
        return words
    if _arrays.is_torch(words):
        import torch
        return words.contiguous().view(torch.int32)
    return np.ascontiguousarray(words).view(np.int32) if isinstance(words, np.ndarray) else words.view("int32")
