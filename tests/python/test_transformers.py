"""The package in a Llama of Hugging Face transformers, with random weights: nothing is downloaded."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from flash_ladder.transformers import register

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


@pytest.fixture(scope="module")
def model():
    register("ladder", **({} if GPU else {"stage": 5, "backward_stage": 40}))
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                                      max_position_embeddings=512)
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()


def logits(model, implementation, **inputs):
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(**inputs)


def check(got, model, tokens, **more):
    """The error against fp32 is at most twice that of SDPA in 16 bits."""
    sdpa = logits(model, "sdpa", input_ids=tokens).logits.float()
    exact = logits(model.float(), "eager", input_ids=tokens).logits
    model.bfloat16()
    rows = got.shape[1]
    errors = [(x[:, -rows:] - exact[:, -rows:]).abs().max().item() for x in (got.float(), sdpa)]
    assert errors[0] <= 2 * errors[1], errors


def test_prefill(model):
    tokens = torch.randint(256, (2, 100), device=DEVICE)
    check(logits(model, "ladder", input_ids=tokens).logits, model, tokens)


def test_decoding_with_a_cache(model):
    tokens = torch.randint(256, (2, 72), device=DEVICE)
    cache, steps = None, []
    for first, last in [(0, 64), (64, 68)] + [(i, i + 1) for i in range(68, 72)]:  # a prompt, a chunk, single tokens
        out = logits(model, "ladder", input_ids=tokens[:, first:last], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        steps.append(out.logits)
    check(torch.cat(steps, dim=1), model, tokens)


def test_padding_is_refused(model):
    tokens = torch.randint(256, (2, 20), device=DEVICE)
    mask = torch.ones_like(tokens)
    mask[0, :5] = 0
    with pytest.raises(ValueError, match="takes no attention mask but the causal one"):
        logits(model, "ladder", input_ids=tokens, attention_mask=mask)


def test_training(model):
    tokens = torch.randint(256, (2, 64), device=DEVICE)
    gradients = []
    for implementation in ("ladder", "sdpa"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        gradients.append(model.model.layers[0].self_attn.k_proj.weight.grad.float())
    assert (gradients[0] - gradients[1]).norm() < 0.05 * gradients[1].norm()
