"""The ladder in Hugging Face transformers' models:

    from flash_ladder.transformers import register
    register()
    model = AutoModelForCausalLM.from_config(config, attn_implementation="ladder")

It takes transformers 4.54, since older ones make masks for attention that they do not know. Prefill, decoding with a
cache, grouped heads and sliding windows run as they are. Of a static cache the keys that exist are read. A batch with
padding, by the model's attention_mask (B, N), is computed as packed documents, without its padding, where O is 0. Any
other mask of bools is computed as lists of tiles. The softcap of Gemma 2 and the sinks of gpt-oss are computed, with their
gradients. All else that a model asks of attention and no stage computes is refused: a bias, dropout.
"""

from typing import NamedTuple, Optional

import torch

from . import tile_lists
from .torch import StageName, attention

__all__ = ["register"]

#: What models and their callers hand to attention that does not change O. Packed sequences, which position_ids may
#: describe, come as a mask, too.
HARMLESS = {"cache_position", "labels", "logits_to_keep", "num_items_in_batch", "output_hidden_states",
            "output_router_logits", "past_key_value", "past_key_values", "position_embeddings", "position_ids",
            "return_dict", "return_loss", "use_cache"}


def register(name: str = "ladder", stage: Optional[StageName] = None,
             backward_stage: Optional[StageName] = None) -> str:
    """Makes attn_implementation=name mean flash_ladder.torch.attention by these stages. Returns the name, which must
    not contain "flash": transformers would look for the libraries of that name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, softcap=None,
                s_aux=None, **kwargs):
        """O (B, Nq, H, d) of query (B, H, Nq, d), key and value (B, Hkv, Nk, d); s_aux (H) are sinks."""
        visible = _found(attention_mask)
        if attention_mask is not None:
            axes, expected = tuple(attention_mask.shape), (len(query), query.shape[2], key.shape[2])
            if visible is None or (axes[0], *axes[2:]) != expected:
                raise ValueError(f"{name} takes masks of bools that leave a key, ({expected[0]}, heads, {expected[1]}, "
                                 f"{expected[2]}), and this one is {axes} of {attention_mask.dtype}")
        asked = kwargs.pop("sliding_window", None)
        if visible is None and asked is not None and asked < key.shape[2]:
            kwargs["sliding_window"] = asked  # which the mask would have
        for word, asked in {"dropout": dropout, **kwargs}.items():
            if word not in HARMLESS and not _is_nothing(asked):
                raise ValueError(f"{name} has no {word}, and the model asks for {word}={_brief(asked)}")
        options = dict(softcap=softcap or 0.0, sinks=None if s_aux is None else s_aux.float(), scale=scaling,
                       stage=stage, backward_stage=backward_stage)
        if visible is None:
            causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
            o = attention(query, key, value, causal=causal, **options)
        else:
            o = visible.attend(query, key, value, **options)
        return o.transpose(1, 2).contiguous(), None

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, _mask(sdpa_mask))
    return name


def _is_nothing(value):
    """Whether an option with this value asks for nothing: None, False or 0."""
    return value is None or (isinstance(value, (bool, int, float)) and value == 0)


def _brief(value):
    return f"a {type(value).__name__}" if hasattr(value, "shape") else repr(value)


#: The attribute of a mask that says what it leaves
_VISIBLE = "flash_ladder_visible"


def _mask(sdpa_mask):
    """As for SDPA, which has none where rows see all keys before them; and here also while decoding: the causal mask's
    last row is the last key's. What another mask leaves is found once for all layers."""

    def mask(*arguments, **options):
        made = sdpa_mask(*arguments, **options)
        rows = options["q_length"] if "q_length" in options else len(options["cache_position"])
        if made is None and 1 < rows != options["kv_length"]:
            # SDPA's own causal mask is aligned top-left, which is right for the prompt in a static cache alone.
            made = sdpa_mask(*arguments, **options | {"allow_is_causal_skip": False})
        visible = _found(made, _padding(made, options))
        return None if visible is not None and visible.is_plain else made

    return mask


def _padding(made, options):
    """Which rows (B, Nq) of a mask that transformers makes are of padding, by the tokens that its caller said are real."""
    if made is None:
        return None
    B, _, Nq, _ = made.shape
    real = options.get("attention_mask")
    if real is None or real.ndim != 2:
        return made.new_zeros(B, Nq)
    place = options.get("cache_position")  # of each row's own token
    if place is None:
        place = torch.arange(Nq, device=made.device) + options.get("q_offset", 0)
    place, N = place.to(made.device), real.shape[1]
    return ~real.to(made.device, torch.bool)[:, place.clamp(max=N - 1)] & (place < N)


@torch.compiler.disable
def _found(mask, padding=None):
    """What a mask leaves, found when it is first asked for and kept with it until it changes, if that can be noticed, or
    if it is fresh, and so no one else changes it: then `padding` says which rows are of padding. None without a mask, or if
    it is of another type, or if no row sees a key."""
    if mask is None or mask.dtype != torch.bool or mask.ndim != 4:
        return None
    version = None if mask.is_inference() else mask._version
    known = getattr(mask, _VISIBLE, None)
    if known is None or known[0] != version:
        known = version, _visible(mask, padding) if mask.shape[1] == 1 else _Tiles(mask)
        if padding is not None or version is not None:
            setattr(mask, _VISIBLE, known)
    return known[1]


class _Packing(NamedTuple):
    """The tokens (B, N) of sequences that are no padding, one after the other."""

    tokens: torch.Tensor  # where they are among B N
    begins: torch.Tensor  # where each sequence begins once they are packed, and how many there are

    @staticmethod
    def of(real):
        return _Packing(real.flatten().nonzero()[:, 0], torch.nn.functional.pad(real.sum(1).cumsum(0), (1, 0)).int())


class _Visible:
    """Of each sequence a range of keys, seen by the rows that are no padding. What it takes to compute them is found
    here, and no layer waits for the GPU again."""

    def __init__(self, rows, keys, causal, tokens):
        """rows (B, Nq), keys (B, Nk): which are no padding, and which are in the range. causal: the last row sees the
        last key of the range, and the row before it one less. tokens: of a window, the row's own and those before it."""
        self.causal, self.window = causal, None if tokens is None else (tokens - 1, -1)
        self.range = self.rows = self.keys = None
        if bool(rows.all()) and bool((keys == keys[0]).all()):
            there = keys[0].nonzero()
            self.range = int(there[0]), int(there[-1]) + 1
        else:
            self.rows, self.keys = _Packing.of(rows), _Packing.of(keys)
        self.is_plain = causal and tokens is None and self.range == (0, keys.shape[1])

    def attend(self, query, key, value, **options):
        options |= dict(causal=self.causal, window=self.window)
        if self.range is not None:
            first, end = self.range
            return attention(query, key[:, :, first:end], value[:, :, first:end], **options)
        packed = attention(_packed(query, self.rows.tokens), _packed(key, self.keys.tokens),
                           _packed(value, self.keys.tokens), cu_seqlens_q=self.rows.begins,
                           cu_seqlens_k=self.keys.begins, **options)
        B, H, N, d = query.shape
        o = query.new_zeros(B * N, H, d).index_copy(0, self.rows.tokens, packed[0].transpose(0, 1))
        return o.view(B, N, H, d).transpose(1, 2)


class _Tiles:
    """What any other mask leaves, (B, heads, Nq, Nk)"""

    is_plain = False

    def __init__(self, mask):
        self.lists = tile_lists(mask)

    def attend(self, query, key, value, **options):
        return attention(query, key, value, tiles=self.lists, **options)


def _packed(x, tokens):
    """(1, heads, tokens, d) of x (B, heads, N, d)"""
    return x.transpose(1, 2).flatten(0, 1)[tokens].transpose(0, 1)[None]


def _visible(made, padding):
    """What a mask (B, 1, Nq, Nk) leaves: _Visible if it is a range of keys for each sequence, seen by all rows or up to
    their own key, or from so many tokens before it; else _Tiles, or None if no row sees a key. A row whose own key is
    outside of the range is left out. It must see no key, or be one of `padding`, which may see anything."""
    seen = made[:, 0]
    Nq, Nk = seen.shape[1:]
    row, key = torch.arange(Nq, device=made.device), torch.arange(Nk, device=made.device)
    some = seen.any(1)
    first = torch.where(some, key, Nk).amin(1, keepdim=True)
    end = torch.where(some, key + 1, 0).amax(1, keepdim=True)
    keys = (key >= first) & (key < end)
    if not bool(keys.any()):  # no row sees any key
        return None
    if bool((seen == keys[:, None]).all()):
        return _Visible(row.expand(len(keys), Nq) >= 0, keys, Nq == 1, None)
    # Row 0's own key: the last that any row sees, as far before the row as the row is after row 0.
    own = row + int((torch.where(seen, key, -1).amax(2) - row).amax())
    rows = (own >= first) & (own < end)
    left_out = ~seen.any(2)
    if padding is not None:
        left_out |= padding
    causal = keys[:, None] & (key <= own[:, None])
    tokens = int(torch.where(rows, seen.sum(2), 0).amax())
    for window in None, tokens:
        expected = causal if window is None else causal & (key > own[:, None] - window)
        if bool(torch.where(rows, (seen == expected).all(2), left_out).all()):
            return _Visible(rows, keys, True, window)
    return _Tiles(made)
