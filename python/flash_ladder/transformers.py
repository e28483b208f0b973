"""The ladder in Hugging Face transformers' models:

    from flash_ladder.transformers import register
    register()
    model = AutoModelForCausalLM.from_config(config, attn_implementation="ladder")

It takes transformers 4.54, since older ones make masks for attention that they do not know. Prefill, decoding with a
cache, grouped heads and sliding windows run as they are. Masks are causal, a window under the causal one, or none: a
batch with padding or a static cache is refused. So is all else that a model asks of attention and no stage computes: softcap, sinks, a bias, dropout.
"""

from typing import Optional

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

    def forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, **kwargs):
        """O (B, Nq, H, d) of query (B, H, Nq, d), key and value (B, Hkv, Nk, d)."""
        tokens = getattr(attention_mask, _TOKENS, None)
        if attention_mask is not None and tokens is None:
            raise ValueError(f"{name} takes no attention mask but the causal one and a window: no padding, no static cache")
        asked = kwargs.pop("sliding_window", None)
        if asked is not None and asked < key.shape[2] and asked != tokens:
            kwargs["sliding_window"] = asked
        for word, asked in {"dropout": dropout, **kwargs}.items():
            if word not in HARMLESS and not _is_nothing(asked):
                raise ValueError(f"{name} has no {word}, and the model asks for {word}={_brief(asked)}")
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        o = attention(query, key, value, causal=causal, window=None if tokens is None else (tokens - 1, -1),
                      scale=scaling, stage=stage, backward_stage=backward_stage)
        return o.transpose(1, 2).contiguous(), None

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, _mask(sdpa_mask))
    return name


def _is_nothing(value):
    """Whether an option with this value asks for nothing: None, False or 0."""
    return value is None or (isinstance(value, (bool, int, float)) and value == 0)


def _brief(value):
    return f"a {type(value).__name__}" if hasattr(value, "shape") else repr(value)


#: The attribute of a mask that says how many tokens its window has: the row's own and those before it
_TOKENS = "flash_ladder_window"


def _mask(sdpa_mask):
    """As for SDPA, which has none where rows see all keys before them; and here also while decoding: the causal mask's
    last row is the last key's. A mask that is a window under the causal mask is marked as one."""

    def mask(*arguments, **options):
        made = sdpa_mask(*arguments, **options)
        if made is None:
            return None
        rows, keys = made.shape[-2:]
        causal = made.new_ones(rows, keys).tril(keys - rows)
        if bool((made == causal).all()):
            return None
        tokens = int(made.reshape(-1, rows, keys)[0, -1].sum())
        if bool((made == causal.triu(keys - rows - tokens + 1)).all()):
            setattr(made, _TOKENS, tokens)
        return made

    return mask
