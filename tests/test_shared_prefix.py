"""Prompts shared by their replies give TRL's own log-probabilities, losses and gradients, in every shape that matters.

transformers' norms and rotations and TRL's head compute in float32 whatever the model's dtype; in the tests in float64
they do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from peft import LoraConfig, get_peft_model  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from transformers import (  # noqa: E402
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.trainer import utils as trl_utils  # noqa: E402

from scout.train import prefix_attention  # noqa: E402
from scout.train.prefix_attention import Group, Layout, attend  # noqa: E402
from scout.train.shared_prefix import SharedPrefixTrainer, shuffle_groups  # noqa: E402
from tests import tiny_model  # noqa: E402

PAD = 0
VOCABULARY = 96
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "head_dim": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": PAD,
}  # fmt: skip
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS: dict[str, Any] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**SHAPE)),
    "gemma3, windows longer than a prompt and shorter": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **SHAPE, sliding_window=7, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
        )
    ),
}


def make(name: str, dtype: Any = torch.float64) -> Any:
    torch.manual_seed(1)
    model = MODELS[name]()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2) if parameter.ndim > 1 else None
    if dtype == torch.float64:
        for module in model.modules():
            if "RMSNorm" in type(module).__name__:
                module.forward = norm(module, 1.0 if "Gemma" in type(module).__name__ else 0.0)
            if "RotaryEmbedding" in type(module).__name__:
                module.forward = rotary(module)
    return model.to(dtype)


def norm(module: Any, more: float) -> Any:
    eps = getattr(module, "eps", None) or module.variance_epsilon
    return lambda states: (more + module.weight) * states * (states.pow(2).mean(-1, keepdim=True) + eps).rsqrt()


def rotary(module: Any) -> Any:
    def forward(_: Any, position_ids: Any, layer_type: str | None = None) -> Any:
        speeds = getattr(module, f"{layer_type}_inv_freq" if layer_type else "inv_freq").double()
        angles = (position_ids[..., None] * speeds).repeat(1, 1, 2)
        return angles.cos(), angles.sin()

    return forward


class ExactHead:
    """TRL's `_ChunkedLogProbFunction` in the dtype of the states."""

    @staticmethod
    def apply(states: Any, weight: Any, bias: Any, labels: Any, temperature: float, *_: Any) -> tuple[Any, ...]:
        if states.dtype != torch.float64:
            return TRL_HEAD.apply(states, weight, bias, labels, temperature, *_)
        every = (states @ weight.T / temperature).log_softmax(-1)
        entropy = -(every.exp() * every).sum(-1).detach()
        return every.gather(-1, labels[:, None])[:, 0], entropy, None, None, None


TRL_HEAD = trl_utils._ChunkedLogProbFunction


@pytest.fixture(autouse=True)
def exact_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl_utils, "_ChunkedLogProbFunction", ExactHead)


def trainer_of(model: Any, folder: Path, **more: Any) -> Any:
    """A real trainer on one made-up prompt; its methods are called one by one."""
    from datasets import Dataset

    values: dict[str, Any] = {"gradient_checkpointing": False, "temperature": 0.9, "bf16": False, **more}
    config = GRPOConfig(
        output_dir=str(folder), report_to="none", use_cpu=True, num_generations=4, per_device_train_batch_size=4,
        disable_dropout=True, max_completion_length=10, **values,
    )  # fmt: skip
    return SharedPrefixTrainer(
        model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * 8),
        processing_class=tiny_model.make_tokenizer(),
    )


def batch(groups: str = "ABACBA", seed: int = 2) -> dict[str, Any]:
    """A batch as TRL's loss takes it; each letter is a reply to that prompt. Lengths 1 to 10, and 0 once."""
    draw = torch.Generator().manual_seed(seed)

    def ids(length: int) -> Any:
        return torch.randint(2, VOCABULARY, (length,), generator=draw)

    prompts = {letter: ids(length) for letter, length in zip("ABC", (17, 5, 1), strict=True)}
    replies = [ids(int(torch.randint(1, 11, (1,), generator=draw))) for _ in groups]
    replies[1] = replies[1][:1]
    if len(replies) > 4:
        replies[4] = replies[4][:0]
    pad = torch.nn.utils.rnn.pad_sequence
    left = {"batch_first": True, "padding_value": PAD, "padding_side": "left"}
    return {
        "prompt_ids": pad([prompts[letter] for letter in groups], **left),
        "prompt_mask": pad([torch.ones_like(prompts[letter]) for letter in groups], **{**left, "padding_value": 0}),
        "completion_ids": pad(replies, batch_first=True, padding_value=PAD),
        "completion_mask": pad([torch.ones_like(reply) for reply in replies], batch_first=True),
        "advantages": torch.randn(len(groups), generator=draw, dtype=torch.float64),
        "num_items_in_batch": torch.tensor(float(sum(map(len, replies)))),
    }


def logps(trainer: Any, given: dict[str, Any], kind: type[Any], **more: Any) -> Any:
    ids = torch.cat([given["prompt_ids"], given["completion_ids"]], dim=1)
    mask = torch.cat([given["prompt_mask"], given["completion_mask"]], dim=1)
    return kind._get_per_token_logps_and_entropies(
        trainer, trainer.model, ids, mask, given["completion_ids"].shape[1], compute_entropy=True, **more
    )[:2]


def loss_and_gradients(trainer: Any, batches: list[dict[str, Any]], *, shared: bool) -> tuple[float, dict[str, Any]]:
    """TRL's loss over the micro-batches, with its gradients."""
    trainer.not_shared = None if shared else "this test wants TRL's own way"
    trainer.model.train()
    trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = len(batches)
    total = 0.0
    for given in batches:
        loss = trainer.compute_loss(trainer.model, given)
        loss.backward()
        total += float(loss)
    found = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    assert found
    return total, found


def close(ours: dict[str, Any], theirs: dict[str, Any], limit: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        assert (gradient - theirs[name]).abs().max() <= limit, name


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_losses_and_gradients_are_those_of_trl(name: str, tmp_path: Path) -> None:
    trainer = trainer_of(make(name), tmp_path)
    assert trainer.not_shared is None
    given = batch()
    ours, our_entropy = logps(trainer, given, SharedPrefixTrainer)
    theirs, their_entropy = logps(trainer, given, GRPOTrainer)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 1e-9
    real = given["completion_mask"].bool()
    assert ((our_entropy - their_entropy) * real).abs().max() < 1e-6
    our_loss, our_gradients = loss_and_gradients(trainer, [given], shared=True)
    their_loss, their_gradients = loss_and_gradients(trainer, [given], shared=False)
    assert abs(our_loss - their_loss) < 1e-9
    close(our_gradients, their_gradients, 1e-9)


@pytest.mark.parametrize("way", ("checkpointing", "LoRA", "LoRA and checkpointing"))
def test_adapters_and_gradient_checkpointing(way: str, tmp_path: Path) -> None:
    model = make("qwen3")
    if "LoRA" in way:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(parameter.to(torch.float64), std=0.2)
    trainer = trainer_of(model.double(), tmp_path, gradient_checkpointing="checkpointing" in way)
    assert trainer.not_shared is None
    if "checkpointing" in way:
        trainer.model.gradient_checkpointing_enable(trainer.args.gradient_checkpointing_kwargs)
        assert any(getattr(module, "gradient_checkpointing", False) for module in trainer.model.modules())
    our_loss, ours = loss_and_gradients(trainer, [batch()], shared=True)
    their_loss, theirs = loss_and_gradients(trainer, [batch()], shared=False)
    assert abs(our_loss - their_loss) < 1e-9
    close(ours, theirs, 1e-9)
    assert all(("lora" in key) == ("LoRA" in way) for key in ours)


def test_micro_batches_that_split_a_group_add_up_to_the_whole(tmp_path: Path) -> None:
    trainer = trainer_of(make("qwen3"), tmp_path, loss_type="dapo")
    whole = batch("AAAABBBB")
    whole["old_per_token_logps"] = logps(trainer, whole, SharedPrefixTrainer)[0].detach() - 0.05
    parts = [
        {key: value[start : start + 3] if value.ndim else value for key, value in whole.items()} for start in (0, 3, 6)
    ]
    for part in parts:
        part["num_items_in_batch"] = whole["num_items_in_batch"] * trainer.args.steps_per_generation / len(parts)
    whole["num_items_in_batch"] = whole["num_items_in_batch"] * trainer.args.steps_per_generation
    _, at_once = loss_and_gradients(trainer, [whole], shared=False)
    _, split = loss_and_gradients(trainer, parts, shared=True)
    close(split, at_once, 1e-9)


def test_in_fp32_the_error_against_float64_is_at_most_twice_that_of_trl(tmp_path: Path) -> None:
    given = batch("AAAAAABBBBBB")
    exact, _ = logps(trainer_of(make("qwen3"), tmp_path / "64"), given, GRPOTrainer)
    trainer = trainer_of(make("qwen3", torch.float32), tmp_path / "32")
    error = {kind: (logps(trainer, given, kind)[0] - exact).abs().max() for kind in (SharedPrefixTrainer, GRPOTrainer)}
    assert error[SharedPrefixTrainer] <= 2 * error[GRPOTrainer]


def test_in_bf16_autocast_both_ways_differ_by_its_rounding(tmp_path: Path) -> None:
    given = batch("AAAAAABBBBBB")
    exact, _ = logps(trainer_of(make("qwen3"), tmp_path / "64"), given, GRPOTrainer)
    trainer = trainer_of(make("qwen3", torch.float32), tmp_path / "16", bf16=True)
    error = {kind: (logps(trainer, given, kind)[0] - exact).abs().mean() for kind in (SharedPrefixTrainer, GRPOTrainer)}
    assert 1e-4 < error[SharedPrefixTrainer] <= 1.5 * error[GRPOTrainer]
    loss, _ = loss_and_gradients(trainer, [given], shared=True)
    assert loss == loss


def test_log_probabilities_in_chunks_are_those_of_the_whole_batch(tmp_path: Path) -> None:
    trainer = trainer_of(make("qwen3"), tmp_path)
    given = batch("AAAABBBBAA")
    whole, _ = logps(trainer, given, GRPOTrainer)
    chunks, _ = logps(trainer, given, SharedPrefixTrainer, batch_size=3)
    assert (whole - chunks).abs().max() < 1e-9


@pytest.mark.parametrize("window", (None, 1, 4, 9, 40))
def test_attention_is_that_of_a_dense_mask_on_cpu_and_by_flex_attention(window: int | None) -> None:
    torch.manual_seed(0)
    groups = [Group(0, 9, (4, 1, 6)), Group(20, 1, (3, 3)), Group(27, 5, ())]
    layout = Layout(groups, torch.tensor([0]))
    shape = (1, 4, layout.tokens, 32)
    query = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    key, value = (torch.randn(1, 2, *shape[2:], dtype=torch.float64, requires_grad=True) for _ in range(2))
    weights = torch.randn(shape, dtype=torch.float64)
    ours = attend(query, key, value, layout, window=window)
    group, reply, place = layout._of_tokens()
    seen = (group[:, None] == group) & ((reply == 0) | (reply[:, None] == reply)) & (place <= place[:, None])
    if window is not None:
        seen &= place[:, None] - place < window
    dense = scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)
    assert (ours - dense).abs().max() < 1e-9
    gradients = [torch.autograd.grad((out * weights).sum(), (query, key, value)) for out in (ours, dense)]
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() < 1e-9
    parts = (query.detach(), key.detach(), value.detach())  # on CPU FlexAttention has no backward
    assert (prefix_attention._flex(*parts, layout, None, window) - dense).abs().max() < 1e-9


def test_a_model_that_cannot_share_says_so_once_and_gives_trls_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trainer_of(Gemma2ForCausalLM(Gemma2Config(**SHAPE)).double(), tmp_path)
    assert "caps the logits" in trainer.not_shared
    for _ in range(2):
        ours, _ = logps(trainer, batch(), SharedPrefixTrainer)
    assert torch.equal(ours, logps(trainer, batch(), GRPOTrainer)[0])
    assert capsys.readouterr().err.count("prompts are NOT shared") == 1


def test_a_model_that_places_tokens_by_itself_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Counting(Qwen3ForCausalLM):
        """Counts places in the row, whatever the position ids say."""

    model = Counting(Qwen3Config(**SHAPE)).double()
    inner = model.model.forward
    model.model.forward = lambda *args, position_ids=None, **kwargs: inner(*args, **kwargs)
    trainer = trainer_of(model, tmp_path)
    assert "answers otherwise" in trainer.not_shared
    assert "answers otherwise" in capsys.readouterr().err


def test_single_replies_are_not_shared_and_the_setting_to_change_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trainer_of(make("qwen3"), tmp_path)
    logps(trainer, batch("ABC"), SharedPrefixTrainer)
    assert "per_device_train_batch_size to 4" in capsys.readouterr().err


def test_groups_are_shuffled_and_stay_together() -> None:
    prompts = torch.arange(1, 7).repeat_interleave(4)[:, None]
    given = {
        "prompt_ids": prompts, "prompt_mask": torch.ones_like(prompts), "advantages": torch.arange(24.0),
        "num_items_in_batch": torch.tensor(9), "images": None, "names": [str(row) for row in range(24)],
    }  # fmt: skip
    torch.manual_seed(4)
    mixed = shuffle_groups(given)
    order = mixed["prompt_ids"][:, 0].tolist()
    assert [order[at] for at in range(0, 24, 4)] != list(range(1, 7))
    assert all(len(set(order[at : at + 4])) == 1 for at in range(0, 24, 4))
    assert sorted(mixed["names"], key=int) == given["names"]
    assert [float(name) for name in mixed["names"]] == mixed["advantages"].tolist()
    after = torch.randint(1000, (3,))
    torch.manual_seed(4)
    torch.randperm(24)
    assert torch.equal(after, torch.randint(1000, (3,)))
