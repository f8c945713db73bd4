"""Makes the base checkpoint of the tiny recipe: next-token training on unlabelled Mystery Grid runs, on CPU.

    python recipes/tiny/base/pretrain.py --out recipes/tiny/base --minutes 45

It reads run texts alone (no label, no analysis, no outcome, no mistake) of worlds that belong to the train split and
that `data_prep.collect` never uses. A bare PyTorch loop: at this size a trainer's overhead would double the time.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from data_prep.collect import RULES, collect_task, world_seeds
from scout import prompt
from scout.agents.scientist import Habits, Scientist
from scout.config import FreshModel
from scout.train.fresh import make_model, train_tokenizer
from scout.trajectory import Step
from scout.worlds.effects import draw
from scout.worlds.mystery_grid import MysteryGrid

SHAPE = FreshModel(
    vocabulary=1024, hidden_size=128, layers=4, heads=4, kv_heads=4, intermediate_size=512, init_std=0.06
)
SEED = 1000
"""World seeds start here times ten million; the demo's seeds are 0, 1, 2, …"""
ROWS, LENGTH = 16, 512
MOVES = (5, 9)
PEAK_RATE = 3e-3
WARMUP_STEPS = 60
TASK = "Find what each letter A to E of a 10 x 10 grid does when stepped on."
REPLY_WORDS = (
    "This step is correct. This step is incorrect. left says same differs fits test tells nothing refused even odd "
    "open no claim State: Verdicts: Judge steps to. Then state. Task: "
)
"""Words of prompts and replies, so that the tokenizer knows them."""


def run_texts(seeds: Iterator[int]) -> Iterator[str]:
    """Each run as the last message of a prompt shows it: a sound scientist who keeps books plays briefly."""
    brief = prompt.style("brief")
    for seed in seeds:
        rng = random.Random(seed)
        world = MysteryGrid(draw(rng), seed=seed, required_steps=rng.randint(*MOVES), rules=RULES)
        scientist = Scientist(world, seed, Habits(books=True, note_every=4))
        steps = [Step(i, s.thought, s.action, s.observation) for i, s in enumerate(scientist.play(), 1)]
        yield prompt.messages(TASK, steps, brief)[-1]["content"]


def batches(texts: Iterator[str], encode: Callable[[str], list[int]], end: int) -> Iterator[torch.Tensor]:
    """Token ids of ROWS runs, cut and padded with -1 to LENGTH: one shape, so that the model compiles once."""
    while True:
        rows = [[*encode(next(texts)), end][:LENGTH] for _ in range(ROWS)]
        yield torch.tensor([ids + [-1] * (LENGTH - len(ids)) for ids in rows])


def main() -> None:
    """Trains until the time is over and writes the model folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=45)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    random.seed(SEED)
    texts = run_texts(world_seeds("train", SEED, 10**9))
    corpus = [next(texts) for _ in range(400)]
    brief = prompt.style("brief")
    mixed = [run for seed in world_seeds("train", SEED + 1, 200) for run in collect_task(seed, candidates=2)]
    corpus += [prompt.messages(TASK, run.steps, brief)[-1]["content"] for run in mixed]
    tokenizer = train_tokenizer([*corpus, *[REPLY_WORDS] * 600], SHAPE.vocabulary)
    model = make_model(SHAPE, tokenizer, SEED)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    started, seen, step, smooth = time.time(), 0, 0, 0.0
    for batch in batches(texts, lambda text: tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id):
        done = (time.time() - started) / (60 * args.minutes)
        if done >= 1:
            break
        rate = PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = max(rate, 1e-5)
        # Padding stands on the right and carries no loss, so the causal mask alone is enough (and fast).
        logits = compiled(input_ids=batch.clamp(min=0), use_cache=False).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten(), ignore_index=-1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen, step = seen + int((batch >= 0).sum()), step + 1
        smooth = loss.item() if step == 1 else 0.95 * smooth + 0.05 * loss.item()
        if step % 20 == 0:
            spent = time.time() - started
            print(
                f"{spent / 60:5.1f} min  step {step}  loss {smooth:.4f}  {seen / spent:,.0f} tokens/s", file=sys.stderr
            )
        if step % 100 == 0:
            model.save_pretrained(args.out)
            tokenizer.save_pretrained(args.out)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    print(json.dumps({"minutes": args.minutes, "tokens": seen, "steps": step, "loss": round(smooth, 4)}))


if __name__ == "__main__":
    main()
