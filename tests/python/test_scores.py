"""Softcap, ALiBi slopes and attention sinks, alone and with all else, on NumPy's arrays and the CPU back-end."""

import numpy as np
import pytest
from conftest import relative, visible
from test_features import KEYS, ROWS, SINKS, SLOPES, agrees, in_documents, packed, requests, softmax  # noqa: F401

import flash_ladder


def of_scores(q, k, v, seen, softcap=0.0, alibi_slopes=None, sinks=None, kept=1.0):
    """softmax() of scores that a softcap and slopes (B, H) changed, with the sinks (H,) of each row's sum."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    S = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if softcap:
        S = softcap * np.tanh(S / softcap)
    if alibi_slopes is not None:
        rows, keys = S.shape[-2:]
        S -= alibi_slopes[..., None, None] * abs(np.arange(rows)[:, None] + keys - rows - np.arange(keys))
    P = np.exp(np.where(seen, S, -np.inf))
    l = P.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(np.reshape(sinks, (-1, 1, 1))))
    with np.errstate(divide="ignore"):
        return P * kept @ v / np.maximum(l, 1e-300), np.log(l)[..., 0]


def gradients_of_scores(q, k, v, do, seen, softcap=0.0, **others):
    """dQ, dK and dV of the same, and with sinks dsinks, by the formulas of standard attention."""
    O, L = of_scores(q, k, v, seen, softcap, **others)
    q, k, v, do = (x.astype(np.float64) for x in (q, k, v, do))
    group, scale = q.shape[1] // k.shape[1], q.shape[-1] ** -0.5
    k, v = (x.repeat(group, axis=1) for x in (k, v))
    S = q @ k.swapaxes(-1, -2) * scale
    capped = softcap * np.tanh(S / softcap) if softcap else S
    slopes = others.get("alibi_slopes")
    rows, keys = S.shape[-2:]
    bias = 0 if slopes is None else slopes[..., None, None] * abs(np.arange(rows)[:, None] + keys - rows - np.arange(keys))
    P = np.where(seen, np.exp(capped - bias - np.where(np.isfinite(L), L, 0)[..., None]), 0)
    D = (do * O).sum(-1, keepdims=True)
    dS = P * (do @ v.swapaxes(-1, -2) - D) * scale
    if softcap:
        dS *= 1 - (capped / softcap) ** 2
    of_group = lambda x: x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)
    gradients = [dS @ k, of_group(dS.swapaxes(-1, -2) @ q), of_group(P.swapaxes(-1, -2) @ do)]
    if (sinks := others.get("sinks")) is not None:  # a key whose value is 0, and so its dP
        gradients.append((np.exp(np.reshape(sinks, (-1, 1)) - L) * -D[..., 0]).sum((0, 2)))
    return gradients


@pytest.mark.parametrize("causal, window, options", [
    (False, None, {"softcap": 0.5}), (True, None, {"alibi_slopes": SLOPES}), (False, None, {"alibi_slopes": SLOPES[0]}),
    (True, (9, -1), {"sinks": SINKS}), (True, (20, -1), {"softcap": 2.0, "alibi_slopes": SLOPES[1], "sinks": SINKS})])
def test_scores_and_sinks(problem, causal, window, options):
    q, k, v = problem
    exact = {name: np.broadcast_to(x, (2, 4)) if name == "alibi_slopes" else x for name, x in options.items()}
    got = flash_ladder.attention(q, k, v, causal=causal, window=window, **options, return_lse=True, backend="checked")
    agrees(got, of_scores(q, k, v, visible(70, 90, causal, window), **exact))
    as_lists = {name: x if name == "softcap" else list(x) for name, x in options.items() if np.ndim(x) < 2}
    if as_lists.keys() == options.keys():
        O = flash_ladder.attention(q, k, v, causal=causal, window=window, **as_lists)
        assert (O == got[0]).all()
    gradients = flash_ladder.attention_backward(q, k, v, *got, q, causal=causal, window=window, **options, backend="checked")
    expected = gradients_of_scores(q, k, v, q, visible(70, 90, causal, window), **exact)
    assert len(gradients) == len(expected) == 3 + ("sinks" in options)
    for result, right in zip(gradients, expected):
        assert relative(result, right) < 3e-3


def test_all_at_once(packed):
    """Documents, a window, dropout, and scores with a sink; a row without keys has L = sink."""
    options = {"softcap": 2.0, "alibi_slopes": SLOPES[0], "sinks": SINKS}
    kept = flash_ladder.dropout_mask((1, 4, 70, 90), 0.25, 3) / 0.75
    seen = visible(70, 90, True, (20, -1))
    got = flash_ladder.attention(*packed, causal=True, window=(20, -1), dropout_p=0.25, seed=3, **options, return_lse=True)
    agrees(got, of_scores(*packed, seen, **options | {"alibi_slopes": SLOPES[:1]}, kept=kept))
    O, L = flash_ladder.attention(*packed, causal=True, cu_seqlens_q=ROWS, cu_seqlens_k=KEYS, **options, return_lse=True)
    unseen = ~in_documents(ROWS, KEYS, True).any(1)
    assert unseen.any() and (O[:, :, unseen] == 0).all() and (abs(L[0][:, unseen] - SINKS[:, None]) < 1e-4).all()
    for row, end, key, last in zip(ROWS, ROWS[1:], KEYS, KEYS[1:]):
        if row < end and key < last:
            alone = packed[0][:, :, row:end], *(x[:, :, key:last] for x in packed[1:])
            assert abs(O[:, :, row:end] - flash_ladder.attention(*alone, causal=True, **options)).max() < 1e-2


@pytest.mark.parametrize("window", [None, (9, 0), (30, -1)])
def test_decoding_in_windows_and_with_scores(requests, window):
    """Each alone and all at once, in pages and in one piece; whatever lies before the window."""
    q, k, v, lengths = requests
    all_at_once = dict(softcap=2.0, alibi_slopes=SLOPES[0], sinks=SINKS)
    for b, length in enumerate(lengths):
        first = 0 if window is None else max(0, length - 4 - window[0])
        for x in k, v:
            x[b, length:] = x[b, :first] = np.nan
    pools, table = [x.reshape(9, 16, 2, 64) for x in (k, v)], np.arange(9, dtype=np.int32).reshape(3, 3)
    for scores in {"softcap": 2.0}, {"alibi_slopes": SLOPES[0]}, {"sinks": SINKS}, all_at_once:
        options = dict(seqused=lengths, causal=True, window=window, **scores, return_lse=True, backend="checked")
        O, L = flash_ladder.decode(q, *pools, block_table=table, **options)
        dense = flash_ladder.decode(q, k, v, **options)
        assert (O == dense[0]).all() and (L == dense[1]).all()
        for b, length in enumerate(lengths):
            if length == 0:
                assert (O[b] == 0).all() and (L[b] == np.reshape(scores.get("sinks", -np.inf), (-1, 1))).all()
                continue
            own = (np.nan_to_num(x[b:b + 1].swapaxes(1, 2)) for x in (q, k[:, :length], v[:, :length]))
            seen = visible(4, length, True, window)
            exact = of_scores(*own, seen, **scores)
            agrees((O[b:b + 1].swapaxes(1, 2), L[b:b + 1]), exact)
