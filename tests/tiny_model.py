"""A real tiny Qwen3 model and tokenizer, made in the test run: random, or taught in seconds to answer as a verifier.

The taught model solves a toy: a step that says "badly" is incorrect. It writes readable replies with a state line, so
everything behind a trained verifier can be tested for real. Both are cached in one folder per test session.
"""

from __future__ import annotations

import atexit
import functools
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from scout import prompt, render
from scout.config import ScoutConfig, write_scout
from scout.trajectory import Step, Task, Trajectory

STYLE = "brief"
WINDOW_STEPS = 4
PROMPT_TOKENS = 768
COMPLETION_TOKENS = 128
PLACES = ("the red door", "the blue hall", "the dark stair", "the old well")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def run(name: str, bad: set[int], steps: int = 6, task_id: str | None = "toy") -> Trajectory:
    """A toy run whose steps `bad` are incorrect."""
    draw = random.Random(name)
    return Trajectory(
        name,
        Task("walk the house", task_id),
        tuple(
            Step(i, f"I see {draw.choice(PLACES)}", f"go {'badly' if i in bad else 'well'}", draw.choice(PLACES))
            for i in range(1, steps + 1)
        ),
    )


def windows(trajectory: Trajectory) -> list[tuple[list[dict[str, str]], str]]:
    """(messages, right reply) of each window of a toy run."""
    rows = []
    for start in range(0, len(trajectory.steps), WINDOW_STEPS):
        steps = trajectory.steps[start : start + WINDOW_STEPS]
        last = start + WINDOW_STEPS >= len(trajectory.steps)
        state = "all seen" if start else None
        turns = prompt.messages(trajectory.task.text, steps, prompt.style(STYLE), state=state, last=last)
        labels: dict[int, prompt.Label] = {s.index: "incorrect" if "badly" in s.action else "correct" for s in steps}
        reasons = {s.index: f"It goes {'badly' if 'badly' in s.action else 'well'}." for s in steps}
        rows.append((turns, prompt.reply_text(reasons, labels, state=None if last else "all seen")))
    return rows


def make_tokenizer() -> Any:
    """A byte-level BPE of its own in which the four labels are single tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    texts = [
        text for i in range(40) for turns, reply in windows(run(str(i), {1, 3}, 12)) for text in (reply, str(turns))
    ]
    texts += ["Verdict: Yes\nVerdict: No\nStep 1: correct\nStep 2: incorrect"] * 40
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer: Any, seed: int = 0) -> Any:
    """A random Qwen3 with 64 hidden units, 2 layers and heads of 32 (vLLM on CPU fails with 16)."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.06,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def teach(model: Any, tokenizer: Any, steps: int = 340, batch: int = 5) -> float:
    """Trains the toy in a bare loop on fresh random runs, loss on the reply only; returns the last loss."""
    import torch

    draw = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.1)
    value = 0.0
    for number in range(steps):
        rows = []
        while len(rows) < batch:
            length = draw.randint(1, 8)
            bad = {i for i in range(1, length + 1) if draw.random() < 0.4}
            rows += windows(run(f"{number}/{len(rows)}", bad, length))
        ids, labels = _collate(rows[:batch], tokenizer)
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        value = loss.item()
    return value


def _collate(rows: list[tuple[list[dict[str, str]], str]], tokenizer: Any) -> tuple[Any, Any]:
    import torch

    prompts, replies = [], []
    for turns, reply in rows:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompts.append(tokenizer.encode(text, add_special_tokens=False))
        replies.append([*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id])
    width = max(len(a) + len(b) for a, b in zip(prompts, replies, strict=True))
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -100)
    for row, (before, reply) in enumerate(zip(prompts, replies, strict=True)):
        ids[row, : len(before) + len(reply)] = torch.tensor(before + reply)
        labels[row, len(before) : len(before) + len(reply)] = torch.tensor(reply)
    return ids, labels


def save(model: Any, tokenizer: Any, folder: Path, **changes: Any) -> Path:
    """Writes a Scout model folder, fingerprint included."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    fingerprint = render.fingerprint(tokenizer, prompt.PROMPT_VERSION, STYLE, WINDOW_STEPS, 0)
    settings = {
        "fingerprint": fingerprint,
        "prompt_version": prompt.PROMPT_VERSION,
        "style": STYLE,
        "window_steps": WINDOW_STEPS,
        "task_tokens": 0,
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        **changes,
    }
    write_scout(folder, ScoutConfig(**settings))
    return folder


def _scratch(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"scout-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / name


@functools.cache
def random_folder() -> Path:
    """A model folder with random weights: its replies are never readable."""
    tokenizer = make_tokenizer()
    return save(make_model(tokenizer), tokenizer, _scratch("random"))


@functools.cache
def taught_folder() -> Path:
    """A model folder that solves the toy; made once a session, in about 20 seconds."""
    import torch

    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small only wait for each other on two
    try:
        teach(model, tokenizer)
    finally:
        torch.set_num_threads(threads)
    return save(model, tokenizer, _scratch("taught"))
