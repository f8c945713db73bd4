"""Scout's own sampler and its shared prompts give what transformers and TRL give."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

from scout.train.sampler import sample, supports  # noqa: E402
from scout.train.shared_prompt import _groups, shared_logps  # noqa: E402

END, PAD = 1, 0


def tiny(kv_heads: int = 2) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=kv_heads, head_dim=16, max_position_embeddings=256, tie_word_embeddings=True,
        initializer_range=0.3, pad_token_id=PAD, eos_token_id=END, bos_token_id=None,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


def prompts() -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(2, 64, (length,), generator=draw).tolist() for length in (9, 30, 17)]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_greedy_replies_are_those_of_generate(kv_heads: int) -> None:
    model = tiny(kv_heads)
    assert supports(model)
    ours = sample(model, prompts(), replies=2, limit_tokens=12, ends=[END], pad=PAD, temperature=0.0)
    for place, prompt in enumerate(prompts()):
        ids = torch.tensor([prompt])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
        theirs = made[0, len(prompt) :].tolist()
        assert ours[2 * place] == ours[2 * place + 1] == theirs


def test_sampled_tokens_follow_the_models_distribution() -> None:
    model = tiny()
    prompt = prompts()[0]
    torch.manual_seed(5)
    count = 4000
    drawn = sample(model, [prompt], replies=count, limit_tokens=2, ends=[], pad=PAD, temperature=1.3)
    with torch.inference_mode():
        first = (model(torch.tensor([prompt])).logits[0, -1] / 1.3).softmax(-1)
    seen = torch.bincount(torch.tensor([reply[0] for reply in drawn]), minlength=64) / count
    assert (seen - first).abs().sum() < 0.15
    likely = int(first.argmax())
    after = [reply[1] for reply in drawn if reply[0] == likely]
    with torch.inference_mode():
        second = (model(torch.tensor([[*prompt, likely]])).logits[0, -1] / 1.3).softmax(-1)
    seen = torch.bincount(torch.tensor(after), minlength=64) / len(after)
    assert (seen - second).abs().sum() < 6 / len(after) ** 0.5 + 0.1


def test_a_reply_ends_at_its_end_token_or_at_the_limit() -> None:
    model = tiny()
    torch.manual_seed(3)
    ends = list(range(2, 12))
    for reply in sample(model, prompts(), replies=16, limit_tokens=30, ends=ends, pad=PAD, temperature=1.0):
        assert not set(reply[:-1]) & set(ends)
        assert reply[-1] in ends or len(reply) == 30


def test_dropping_finished_prompts_changes_no_reply() -> None:
    model = tiny()
    together = sample(model, prompts(), replies=1, limit_tokens=40, ends=list(range(40)), pad=PAD, temperature=0.0)
    alone = [
        sample(model, [prompt], replies=1, limit_tokens=40, ends=list(range(40)), pad=PAD, temperature=0.0)[0]
        for prompt in prompts()
    ]
    assert together == alone


def test_shared_prompts_give_the_log_probabilities_and_gradients_of_full_rows() -> None:
    model, temperature, reply_tokens = tiny().train(), 0.9, 10
    draw = torch.Generator().manual_seed(2)
    longest = 30
    rows, mask = [], []
    for place in (0, 1, 0, 2, 1, 0):  # replies of a group need not be neighbours
        prompt, length = prompts()[place], int(torch.randint(3, reply_tokens + 1, (1,), generator=draw))
        reply = torch.randint(2, 64, (length,), generator=draw).tolist()
        left, right = longest - len(prompt), reply_tokens - length
        rows.append([PAD] * left + prompt + reply + [PAD] * right)
        mask.append([0] * left + [1] * (len(prompt) + length) + [0] * right)
    input_ids, attention_mask = torch.tensor(rows), torch.tensor(mask)
    real = attention_mask[:, -reply_tokens:].float()
    weights = torch.rand(real.shape, generator=draw)

    positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids, attention_mask=attention_mask, position_ids=positions).logits
    every = (logits[:, -reply_tokens - 1 : -1] / temperature).log_softmax(-1)
    full = every.gather(-1, input_ids[:, -reply_tokens:, None])[..., 0] * real
    full_entropy = -(every.exp() * every).sum(-1) * real
    (full * weights).sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()

    groups = _groups(input_ids[:, :longest], attention_mask[:, :longest])
    assert groups == [[0, 2, 5], [1, 4], [3]]
    logps, entropies = shared_logps(model, groups, input_ids, attention_mask, reply_tokens, temperature)
    (logps * weights).sum().backward()
    assert torch.allclose(logps, full, atol=1e-5)
    assert torch.allclose(entropies, full_entropy, atol=1e-4)
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
