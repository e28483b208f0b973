"""The package in a Llama of Hugging Face transformers, with random weights: nothing is downloaded."""

import os
import re

import pytest
from conftest import stage_that

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import flash_ladder
from flash_ladder.transformers import register

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


@pytest.fixture(scope="module", autouse=True)
def registered():
    register("ladder", **({} if GPU else {"stage": 5}))


@pytest.fixture(scope="module")
def model(registered):
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                                      max_position_embeddings=512)
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()


def check_training(model, implementation, like, **inputs):
    """The loss and its gradients by all parameters differ from those of fp32 by at most twice what those of another
    implementation do in 16 bits."""
    if GPU and torch.cuda.get_device_capability() != (9, 0):
        return  # whose stages have no gradients of masks
    names, parameters = zip(*model.named_parameters())
    results = []
    for one, dtype in (implementation, torch.bfloat16), (like, torch.bfloat16), (like, torch.float32):
        model.to(dtype).set_attn_implementation(one)
        loss = model(**inputs).loss
        results.append([x.float() for x in (loss.detach(), *torch.autograd.grad(loss, parameters))])
    model.bfloat16()
    for name, got, other, exact in zip(("loss", *names), *results):
        assert (got - exact).norm() < 2 * (other - exact).norm() + 0.01 * exact.norm() + 1e-6, name


def logits(model, implementation, **inputs):
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(**inputs)


def check(got, model, tokens, like="sdpa", **inputs):
    """The error against fp32 is at most twice that of SDPA, or of what it should be like, in 16 bits."""
    other = logits(model, like, input_ids=tokens, **inputs).logits.float()
    exact = logits(model.float(), "eager", input_ids=tokens, **inputs).logits
    model.bfloat16()
    rows = got.shape[1]
    errors = [(x[:, -rows:] - exact[:, -rows:]).abs().max().item() for x in (got.float(), other)]
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


@pytest.fixture(scope="module")
def packing(registered):
    return register("ladder_packed", **({} if GPU else {"stage": 61}))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(model, packing, side):
    tokens = torch.randint(256, (3, 90), device=DEVICE)
    mask = torch.ones_like(tokens)
    for row, padding in enumerate((17, 0, 70)):
        mask[row, slice(padding) if side == "left" else slice(90 - padding, None)] = 0
    inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    got = logits(model, packing, **inputs).logits
    for row in range(3):
        own = mask[row].bool()
        check(got[row:row + 1, own], model, tokens[row:row + 1, own])


def test_padding_and_a_cache(model, packing):
    """The prompts of a batch end together, and then go on token by token."""
    tokens = torch.randint(256, (2, 44), device=DEVICE)
    mask = torch.ones_like(tokens)
    mask[0, :13] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)
    cache, steps = None, []
    for first, last in (0, 40), (40, 43), (43, 44):
        out = logits(model, packing, input_ids=tokens[:, first:last], attention_mask=mask[:, :last],
                     position_ids=places[:, first:last], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        steps.append(out.logits)
    got = torch.cat(steps, dim=1)
    check(got[:1, 13:], model, tokens[:1, 13:])
    check(got[1:], model, tokens[1:])


def test_a_static_cache(model):
    tokens = torch.randint(256, (2, 44), device=DEVICE)
    cache, steps = transformers.StaticCache(config=model.config, max_cache_len=100), []
    for first, last in (0, 40), (40, 43), (43, 44):
        out = logits(model, "ladder", input_ids=tokens[:, first:last], past_key_values=cache, use_cache=True,
                     cache_position=torch.arange(first, last, device=DEVICE))
        steps.append(out.logits)
    check(torch.cat(steps, dim=1), model, tokens)


def test_any_other_mask_is_lists_of_tiles(model):
    """Two sequences packed in one, which position_ids describe; and a mask of one's own."""
    register("ladder_any", **({} if GPU else {"stage": 63, "backward_stage": 97}))
    tokens = torch.randint(256, (2, 90), device=DEVICE)
    places = torch.cat([torch.arange(33), torch.arange(57)]).expand(2, -1).to(DEVICE)
    packed = logits(model, "ladder_any", input_ids=tokens, position_ids=places, use_cache=False).logits
    check(packed[:, :33], model, tokens[:, :33])
    check(packed[:, 33:], model, tokens[:, 33:])
    mask = torch.ones(2, 1, 90, 90, dtype=torch.bool, device=DEVICE).tril()
    mask[1, 0, 60:, 3:70] = False
    for _ in range(2):
        got, exact = (logits(model, name, input_ids=tokens, attention_mask=mask).logits for name in ("ladder_any", "sdpa"))
        assert (got - exact).abs().max() < 0.05 * exact.abs().max()
        mask[0, 0, 20:, :10] = False  # is noticed
    check_training(model, "ladder_any", "sdpa", input_ids=tokens, attention_mask=mask, labels=tokens)


def by_mask(q, k, v, seen):
    S = (q.double() @ k.double().mT / 8).masked_fill(~seen, -float("inf"))
    return torch.softmax(S, -1).nan_to_num() @ v.double()


@pytest.mark.parametrize("seen", [
    lambda i, j: (i - j).abs() <= 10,  # ModernBERT, EmbeddingGemma
    lambda i, j: j <= i + 5, lambda i, j: (j <= i + 5) & (j >= i - 20), lambda i, j: (j <= i) & (j < 30),
    lambda i, j: j >= i, lambda i, j: (i >= 30) & (j < 30), lambda i, j: (j <= i) & (i < 70), lambda i, j: (j <= i) & (j > 20)])
def test_a_mask_of_ones_own_is_what_is_computed(seen):
    """Also where rows see keys after themselves, or keys of a range that they are not in."""
    function = transformers.AttentionInterface()[register("ladder_any_stage")]
    mask = seen(torch.arange(100, device=DEVICE)[:, None], torch.arange(100, device=DEVICE))
    q, k, v = (torch.randn(1, 2, 100, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    o = function(torch.nn.Module(), q, k, v, mask[None, None], scaling=0.125)[0].transpose(1, 2)
    exact = by_mask(q, k, v, mask)
    assert (o - exact).abs().max() < 0.03
    if GPU and torch.cuda.get_device_capability() != (9, 0):
        return  # whose stages have no gradients of lists
    for got, expected in zip(*(torch.autograd.grad(x.double().sum(), (q, k, v)) for x in (o, exact))):
        assert (got - expected).norm() < 0.02 * expected.norm() + 0.1


@pytest.mark.parametrize("padding", ["left", "right", None])
def test_a_bidirectional_window_of_transformers(padding):
    """As its own interface makes it: rows of padding may be left out, and no others."""
    masking = pytest.importorskip("transformers.masking_utils")
    if not hasattr(masking, "create_bidirectional_sliding_window_mask"):
        pytest.skip("transformers is too old")
    name = register("ladder_both_sides")
    config = transformers.LlamaConfig(num_attention_heads=2, num_key_value_heads=2, attn_implementation=name)
    config.sliding_window = 10
    q, k, v = (torch.randn(2, 2, 100, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    real = torch.ones(2, 100, dtype=torch.bool, device=DEVICE)
    if padding:
        real[1, slice(40) if padding == "left" else slice(60, None)] = False
    embeds = torch.zeros(2, 100, 128, device=DEVICE, dtype=torch.bfloat16)
    made, exact = (masking.create_bidirectional_sliding_window_mask(config=config, inputs_embeds=embeds, attention_mask=real)
                   for config._attn_implementation in (name, "sdpa"))
    module = torch.nn.Module()
    module.is_causal = False
    o = transformers.AttentionInterface()[name](module, q, k, v, made, scaling=0.125)[0].transpose(1, 2)
    error = (o - by_mask(q, k, v, exact)).abs().amax((1, 3))
    assert error[real].max() < 0.03


def test_packed_position_ids_under_torch_compile():
    """Their mask becomes lists of tiles, outside of the graph."""
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=1, head_dim=64)
    torch.manual_seed(1)
    llama = transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()
    llama.set_attn_implementation(register("ladder_compiled"))
    places = torch.cat([torch.arange(13), torch.arange(17)])[None].to(DEVICE)
    inputs = {"input_ids": torch.arange(30, device=DEVICE)[None], "position_ids": places, "use_cache": False}
    with torch.no_grad():
        expected = llama(**inputs).logits
        got = torch.compile(llama, backend="aot_eager")(**inputs).logits
    assert (got - expected).abs().max() < 0.02 * expected.abs().max()


def test_masks_of_other_types_and_sizes_are_refused():
    function = transformers.AttentionInterface()["ladder"]
    q, k, v = (torch.randn(1, heads, 20, 64, device=DEVICE, dtype=torch.bfloat16) for heads in (4, 2, 2))
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool, device=DEVICE).tril()
    for wrong in mask.float(), mask & False, mask[:, :, :10], mask.expand(2, -1, -1, -1), mask[0, 0]:
        said = f"ladder takes masks of bools that leave a key, (1, heads, 20, 20), and this one is {tuple(wrong.shape)}"
        with pytest.raises(ValueError, match="^" + re.escape(said)):
            function(torch.nn.Module(), q, k, v, wrong)
    mask[0, 0, 9, 3] = False
    with pytest.raises(ValueError, match="causal_skip does not take lists of tiles"):
        transformers.AttentionInterface()[register("ladder_five", stage=5)](torch.nn.Module(), q, k, v, mask)


@pytest.fixture(scope="module")
def mistral():
    config = transformers.MistralConfig(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, head_dim=64, sliding_window=24)
    torch.manual_seed(1)
    return transformers.MistralForCausalLM(config).to(DEVICE, torch.bfloat16).eval()


def test_sliding_windows_of_mistral(mistral):
    tokens = torch.randint(256, (2, 100), device=DEVICE)
    register("ladder_windows", **({} if GPU else {"stage": stage_that("window")}))
    check(logits(mistral, "ladder_windows", input_ids=tokens).logits, mistral, tokens)
    with pytest.raises(ValueError, match="causal_skip does not take a sliding window"):
        register("without_windows", stage=5)
        logits(mistral, "without_windows", input_ids=tokens)


def attention_of(name):
    """A model's call of its attention, for 8 tokens, with what models say in addition."""
    module = torch.nn.Module()
    module.is_causal = True
    q, k, v = (torch.randn(1, heads, 8, 64, device=DEVICE, dtype=torch.bfloat16) for heads in (2, 1, 1))
    function = transformers.AttentionInterface()[name]
    return lambda **options: function(module, q, k, v, None, scaling=0.125, **options)[0]


def test_what_changes_the_result_is_refused_by_name():
    attend = attention_of("ladder")
    expected = attend()
    tokens = torch.arange(8)[None]
    harmless = {"position_ids": tokens, "use_cache": True, "softcap": None, "sliding_window": 8, "dropout": 0.0,
                "output_attentions": False, "num_items_in_batch": torch.tensor(8), "s_aux": None}
    assert torch.equal(attend(**harmless), expected)
    for word, value in {"sinks": torch.zeros(2), "dropout": 0.1,
                        "sliding_window": 7, "head_mask": torch.ones(2), "position_bias": torch.zeros(1, 2, 8, 8),
                        "output_attentions": True, "cu_seq_lens_q": tokens, "alibi": True, "a_new_one": 2}.items():
        with pytest.raises(ValueError, match=f"ladder has no {word}, and the model asks for {word}="):
            attend(**{word: value})


@pytest.fixture(scope="module")
def gemma():
    config = transformers.Gemma2Config(vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=2,
                                       num_attention_heads=2, num_key_value_heads=1, head_dim=64, sliding_window=24,
                                       attn_logit_softcapping=2.0, query_pre_attn_scalar=1)
    torch.manual_seed(1)
    return transformers.Gemma2ForCausalLM(config).to(DEVICE, torch.bfloat16).eval()


@pytest.fixture(scope="module")
def gpt_oss():
    config = transformers.GptOssConfig(vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=2,
                                       num_attention_heads=4, num_key_value_heads=2, head_dim=64, sliding_window=24,
                                       num_local_experts=2, num_experts_per_tok=2)
    torch.manual_seed(1)
    model = transformers.GptOssForCausalLM(config).to(DEVICE, torch.bfloat16).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, 3)
    return model


@pytest.mark.parametrize("name", ["gemma", "gpt_oss"])
def test_softcap_and_sinks_of_models(name, request):
    """Gemma 2 and gpt-oss, with their windows: a prompt, and decoding with a cache."""
    model, scores = request.getfixturevalue(name), register("ladder_scores")
    tokens = torch.randint(64, (2, 100), device=DEVICE)
    out = logits(model, scores, input_ids=tokens[:, :96], use_cache=True)
    last = logits(model, scores, input_ids=tokens[:, 96:], past_key_values=out.past_key_values)
    check(torch.cat([out.logits, last.logits], dim=1), model, tokens, like="eager")
    with torch.no_grad(), pytest.raises(ValueError, match="causal_skip does not take"):
        model.set_attn_implementation("ladder" if not GPU else register("ladder_five", stage=5))
        model(input_ids=tokens)
    # The result depends on them.
    attend = attention_of(scores)
    plain = attend()
    for option in {"softcap": 0.1}, {"s_aux": torch.full((2,), 3.0, device=DEVICE)}:
        assert (attend(**option) - plain).abs().max() > 0.1


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["model", "mistral", "gemma", "gpt_oss"])
def test_training(name, padded, request):
    model = request.getfixturevalue(name)
    tokens = torch.randint(64, (3, 60), device=DEVICE)
    real = torch.ones_like(tokens)
    if padded:
        real[0, :17] = real[2, 35:] = 0
    follows = real.bool()
    follows[:, 1:] &= follows[:, :-1].clone()  # what comes after padding is predicted from padding
    check_training(model, register("ladder_training"), "eager", input_ids=tokens, attention_mask=real,
                   position_ids=(real.cumsum(1) - 1).clamp(min=0), labels=tokens.where(follows, -100))


def test_sinks_in_packed_sequences(gpt_oss):
    """position_ids pack them, which makes lists of tiles."""
    tokens = torch.randint(64, (1, 30), device=DEVICE)
    inputs = {"position_ids": torch.cat([torch.arange(13), torch.arange(17)])[None].to(DEVICE), "use_cache": False}
    got = logits(gpt_oss, register("ladder_scores"), input_ids=tokens, **inputs).logits
    check(got, gpt_oss, tokens, "eager", **inputs)


@pytest.mark.parametrize("gradients", [False, True])
def test_dropout_in_training_is_refused(gradients):
    """Also without gradients: nothing is ever left out silently."""
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=1, head_dim=64, attention_dropout=0.1,
                                      attn_implementation="ladder")
    llama = transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16)
    tokens = torch.arange(16, device=DEVICE)[None]
    with torch.set_grad_enabled(gradients):
        llama.eval()(input_ids=tokens)
        with pytest.raises(ValueError, match="ladder has no dropout, and the model asks for dropout=0.1"):
            llama.train()(input_ids=tokens)


@pytest.mark.parametrize("head_dim", [32, 80, 96])
def test_other_head_dimensions(head_dim):
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=head_dim)
    torch.manual_seed(head_dim)
    model = transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()
    tokens = torch.randint(256, (1, 30), device=DEVICE)
    check(logits(model, "ladder", input_ids=tokens).logits, model, tokens)
