"""Scout's own sampler and its shared prompts give what transformers and TRL give."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

from scout.train.sampler import sample, supports  # noqa: E402

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
