"""Any mask as lists of the tiles that query rows see."""

from typing import Any, NamedTuple, Sequence

import numpy as np

from . import _arrays

SIDE = 64  # query rows and keys of a tile


class TileLists(NamedTuple):
    """A mask in tiles of 64 query rows and 64 keys: which key tiles each query tile sees, as a whole or in part, in
    ascending order. All numbers are int32. tile_lists() makes them of a mask.

    Query tile i of head h of batch entry b is number r = (b heads + h) Tr + i, where Tr = ceil(Nq / 64). Its full key
    tiles are full_tiles[full_first[r]] to full_tiles[full_first[r + 1] - 1], and its partial ones likewise.
    """

    axes: Sequence[int]  #: (batches, heads, Nq, Nk): batches is 1 or B, and heads divides H
    full_first: Any  #: (batches heads Tr + 1)
    full_tiles: Any  #: their rows see all 64 keys
    partial_first: Any  #: (batches heads Tr + 1)
    partial_tiles: Any
    bits: Any  #: (partial tiles, 64 rows, 2): bit n % 32 of number n / 32 says whether the row sees key n


def tile_lists(mask: Any) -> TileLists:
    """The lists of a mask, as arrays of its library and device.

    mask: an array of bools, (Nq, Nk) or (batches, heads, Nq, Nk), which says what a row sees, where batches is 1 or B
        and heads divides H. Or a BlockMask of flex_attention, with blocks of multiples of 64; its mask_mod is called
        with tensors of indices that broadcast, and only for the partial blocks.
    """
    return _of_mask(mask)


def _of_mask(mask):
    """The same; torch.py keeps it out of graphs."""
    if hasattr(mask, "kv_num_blocks"):
        return _of_block_mask(mask)
    like, to_host = mask, np.asarray
    if _arrays.is_torch(mask):
        to_host = _host
    else:
        _arrays.library_of("mask", mask)
    if str(mask.dtype).rpartition(".")[2] != "bool":
        raise TypeError(f"mask is {mask.dtype}; expected bool")
    if mask.ndim not in (2, 4) or 0 in mask.shape:
        raise ValueError(f"mask is {tuple(mask.shape)}; expected (Nq, Nk) or (batches, heads, Nq, Nk)")
    values = to_host(mask.get() if hasattr(mask, "get") else mask)  # CuPy's
    batches, heads, Nq, Nk = values.shape if values.ndim == 4 else (1, 1, *values.shape)
    Tr, Tc = _tiles(Nq), _tiles(Nk)
    padded = np.zeros((batches * heads, Tr * SIDE, Tc * SIDE), bool)
    padded[:, :Nq, :Nk] = values.reshape(-1, Nq, Nk)
    tiles = padded.reshape(-1, Tr, SIDE, Tc, SIDE).swapaxes(2, 3).reshape(-1, SIDE, SIDE)
    return _lists((batches, heads, Nq, Nk), np.arange(len(tiles)), tiles, np.arange(0), like)


def _of_block_mask(mask):
    import torch
    counts, (Nq, Nk) = mask.kv_num_blocks, mask.seq_lengths
    blocks = -(-Nq // mask.BLOCK_SIZE[0])
    if counts.ndim != 3 or counts.shape[2] != blocks:
        raise ValueError(f"mask is a BlockMask with kv_num_blocks {tuple(counts.shape)}; expected (batches, heads, {blocks})")
    batches, heads = counts.shape[:2]
    Tr, Tc, sides = _tiles(Nq), _tiles(Nk), [size // SIDE for size in mask.BLOCK_SIZE]
    if any(size % SIDE for size in mask.BLOCK_SIZE):
        raise ValueError(f"the mask's blocks are {tuple(mask.BLOCK_SIZE)}; expected multiples of {SIDE}")

    def tiles_of(counts, indices):
        """(b, h, i, j) of the tiles in these blocks, (4, tiles)."""
        if counts is None:
            return np.zeros((4, 0), int)
        counts, indices = _host(counts), _host(indices)
        b, h, i, k = np.nonzero(np.arange(indices.shape[-1]) < counts[..., None])
        blocks = np.stack([b, h, i * sides[0], indices[b, h, i, k] * sides[1]])
        inside = np.stack(np.meshgrid(0, 0, *map(np.arange, sides), indexing="ij")).reshape(4, 1, -1)
        tiles = (blocks[:, :, None] + inside).reshape(4, -1)
        return tiles[:, (tiles[2] < Tr) & (tiles[3] < Tc)]

    full, partial = tiles_of(mask.full_kv_num_blocks, mask.full_kv_indices), tiles_of(counts, mask.kv_indices)
    number = lambda tiles: ((tiles[0] * heads + tiles[1]) * Tr + tiles[2]) * Tc + tiles[3]
    ends_inside = (full[3] + 1) * SIDE <= Nk
    ragged = full[:, ~ends_inside]
    within = np.arange(SIDE)
    rows, keys = (tiles[:, None] * SIDE + within for tiles in np.concatenate([partial, ragged], axis=1)[2:])
    rows, keys = rows[:, :, None], keys[:, None]
    values = np.broadcast_to((rows < Nq) & (keys < Nk), (rows.shape[0], SIDE, SIDE)).copy()
    if count := partial.shape[1]:
        there = lambda x: torch.as_tensor(x, device=counts.device)
        b, h = (there(x)[:, None, None] for x in partial[:2])
        try:
            seen = mask.mask_mod(b, h, there(rows[:count].clip(max=Nq - 1)), there(keys[:count].clip(max=Nk - 1)))
        except RuntimeError as error:
            if "sliced BlockMask" not in str(error):
                raise
            raise ValueError("mask is a part of a BlockMask, and PyTorch gives a part no mask_mod") from None
        values[:count] &= _host(seen)
    numbers = number(np.concatenate([partial, ragged], axis=1))
    return _lists((batches, heads, Nq, Nk), numbers, values, number(full[:, ends_inside]), counts)


def _lists(axes, numbers, values, full, like):
    """TileLists of tiles with these numbers, (r Tc + key tile), of which values (tiles, 64, 64) say what is seen, and of
    further ones that are full."""
    batches, heads, Nq, Nk = axes
    Tr, Tc = _tiles(Nq), _tiles(Nk)
    past_end = np.arange(SIDE) >= Nq - numbers[:, None] // Tc % Tr * SIDE  # rows that do not exist
    whole = (values | past_end[:, :, None]).all((1, 2))
    partial = values.any((1, 2)) & ~whole
    order = np.argsort(numbers[partial])
    bits = np.packbits(values[partial][order], axis=-1, bitorder="little").view("<i4")
    lists = []
    for tiles in np.sort(np.concatenate([full, numbers[whole]])), numbers[partial][order]:
        lists += [np.searchsorted(tiles, np.arange(batches * heads * Tr + 1) * Tc), tiles % Tc]
    arrays = [np.ascontiguousarray(x, np.int32) for x in (*lists, bits)]
    return TileLists(axes, *(_arrays.uploaded(x, like) for x in arrays))


def _tiles(N):
    return -(-N // SIDE)


def _host(x):
    return x.detach().cpu().numpy()
