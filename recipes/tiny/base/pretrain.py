"""Makes the base checkpoint of the tiny recipe: next-token training on unlabelled Mystery Grid runs, on CPU.

    torchrun --nproc-per-node 2 recipes/tiny/base/pretrain.py --out recipes/tiny/base --minutes 40

It reads the log of a scientist who passes hearsay on and holds no view, and the scientist's own notebook: what each
visit showed, which effects fit it, which are left for the letters it heard of or tests, and what it heard. There is
no label in it, no judgement of a claim, no outcome, no mistake; its worlds belong to the train split and
`data_prep.collect` never uses them. A bare PyTorch loop: at this size a trainer's overhead would double the time.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_prep.collect import MOVES, RULES, STEPS, collect_task, world_seeds
from scout import prompt
from scout.agents import phrases
from scout.agents.scientist import Habits, Scientist
from scout.config import FreshModel
from scout.render import render_row
from scout.train.fresh import make_model, train_tokenizer
from scout.trajectory import Step
from scout.worlds.effects import LETTERS, draw
from scout.worlds.mystery_grid import MysteryGrid
from scout.worlds.observer import Claim, Observer

SHAPE = FreshModel(
    vocabulary=1024, hidden_size=128, layers=4, heads=4, kv_heads=4, intermediate_size=512, init_std=0.06
)
SEED = 1000
"""World seeds start here times ten million; the demo's seeds are 0, 1, 2, …"""
QUIET = Habits(quiet=True, declare=0.3, note_every=3)
"""Notes and declared tests are read less well than moves, so there are more of them than in the runs to be judged."""
ROWS, LENGTH = 16, 288
PAGE_STEPS = (1, 2, 2, 2)
"""Steps on a page of the notebook, one of these at random."""
PEAK_RATE = 4e-3
WARMUP_STEPS = 100
TASK = "Find what each … {cut} tokens cut …"
"""The task as a prompt of the recipe shows it."""
NOTEBOOK = prompt.Style("brief", "", "Keep books of steps {first} to {last}.{state}")
SHUFFLED = 4096
"""Pages held back, so that those of one run do not come in a row."""
REPLY_WORDS = (
    "This step is correct. This step is incorrect. left says claims holds same agrees differs conflicts fits test "
    "tells nothing refused even odd open no claim State: Verdicts: Judge steps to. Then state. Task: "
)
"""Words of prompts and replies, so that the tokenizer knows them."""


def pages(seed: int) -> list[tuple[list[dict[str, str]], str]]:
    """The log of one quiet run in pages: chat prompt and the page of the notebook."""
    rng = random.Random(seed)
    world = MysteryGrid(draw(rng), seed=seed, required_steps=rng.randint(*MOVES), rules=RULES)
    scientist = Scientist(world, seed, QUIET)
    done = scientist.play()[: STEPS[1]]
    # A log may have begun before this run, so that every step number is seen equally often.
    offset = rng.randint(0, STEPS[1] - len(done))
    observer, found, state, begin = Observer(), [], None, 0
    while begin < len(done):
        end = min(begin + rng.choice(PAGE_STEPS), len(done))
        lines, steps = [], []
        for index, step in enumerate(done[begin:end], begin + 1 + offset):
            heard = [scientist.heard[index - offset - 1], *step.claims[1:]]
            books = [_heard(claim, observer) for claim in heard]
            if step.test:
                books.append(f"test {step.test.letter} left {phrases.plain(observer.left(step.test.letter))}.")
            if step.visit:
                observer.see(step.visit)
                books.append(phrases.books(step.visit, observer.left(step.visit.letter)))
            lines.append(f"[{index}] {' '.join(books)}")
            steps.append(Step(index, step.thought, step.action, step.observation))
        task = TASK.format(cut=rng.randint(300, 360))
        log = prompt.messages(task, steps, NOTEBOOK, state=state, last=end == len(done))
        state = phrases.state({letter: observer.left(letter) for letter in LETTERS})
        found.append((log, "\n".join([*lines, f"State: {state}"] if end < len(done) else lines)))
        begin = end
    return found


def _heard(claim: Claim, observer: Observer) -> str:
    return f"{claim.letter} left {phrases.plain(observer.left(claim.letter))}, heard {phrases.plain(claim.effects)}."


def shuffled_pages(seeds: Iterator[int]) -> Iterator[tuple[list[dict[str, str]], str]]:
    """Pages of many runs, mixed, made in a process of their own."""
    rng, held = random.Random(SEED), list[Any]()
    with ProcessPoolExecutor(1) as pool:
        ahead = [pool.submit(pages, next(seeds)) for _ in range(64)]
        while True:
            ahead.append(pool.submit(pages, next(seeds)))
            held.extend(ahead.pop(0).result())
            while len(held) > SHUFFLED:
                place = rng.randrange(len(held))
                held[place], held[-1] = held[-1], held[place]
                yield held.pop()


def batches(texts: Iterator[tuple[list[dict[str, str]], str]], tokenizer: Any) -> Iterator[tuple[Any, Any]]:
    """(ids, targets), each of shape (ROWS, LENGTH): one shape, so that the model compiles once. Targets of the log
    are -1: moves are drawn at random, there is nothing to learn in them. Longer pages are left out."""
    while True:
        ids, targets = [], []
        while len(ids) < ROWS:
            log, page = next(texts)
            row = render_row(tokenizer, log, page)
            if len(row.ids) <= LENGTH:
                pad = LENGTH - len(row.ids)
                ids.append([*row.ids, *[0] * pad])
                targets.append([*[-1] * row.prompt_length, *row.ids[row.prompt_length :], *[-1] * pad])
        yield torch.tensor(ids), torch.tensor(targets)


def make_tokenizer() -> Any:
    """The tokenizer of the recipe, trained on notebook pages and on run texts of the population it is to judge."""
    seeds = world_seeds("train", SEED + 2, 10**9)
    corpus = [f"{log[-1]['content']}\n{page}" for _ in range(300) for log, page in pages(next(seeds))]
    brief = prompt.style("brief")
    mixed = [run for seed in world_seeds("train", SEED + 1, 200) for run in collect_task(seed, candidates=2)]
    corpus += [prompt.messages(TASK.format(cut=336), run.steps, brief)[-1]["content"] for run in mixed]
    return train_tokenizer([*corpus, *[REPLY_WORDS] * 600], SHAPE.vocabulary)


def targets_loss(model: Any, body: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over the targets; the head is computed only where there is one."""
    # Padding stands on the right and carries no loss, so the causal mask alone is enough (and fast).
    hidden = body(input_ids=ids, use_cache=False).last_hidden_state
    wanted = targets[:, 1:] >= 0
    return cross_entropy(model.lm_head(hidden[:, :-1][wanted]), targets[:, 1:][wanted])


@torch.no_grad()
def exact_pages(model: Any, tokenizer: Any, runs: int = 60) -> float:
    """Share of pages of fresh runs of which the model foretells every token, each from the true ones before it."""
    texts = (page for seed in islice(world_seeds("train", SEED + 3, runs), runs) for page in pages(seed))
    exact = []
    for log, page in texts:
        row = render_row(tokenizer, log, page)
        ids = torch.tensor([row.ids])
        told = model(input_ids=ids).logits[0, row.prompt_length - 1 : -1].argmax(-1)
        exact.append(bool((told == ids[0, row.prompt_length :]).all()))
    return sum(exact) / len(exact)


def average(model: torch.nn.Module, done: float) -> float:
    """Averages the gradients, and the share of the time that is over, over the processes."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([*(g.flatten() for g in gradients), torch.tensor([done])])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for gradient, part in zip(gradients, flat[:-1].split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    return float(flat[-1])


def main() -> None:
    """Trains until the time is over and writes the model folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--begin", type=Path, help="checkpoint to go on from; default: random weights")
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(args.begin) if args.begin else make_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(args.begin) if args.begin else make_model(SHAPE, tokenizer, SEED)
    seed, peak = (SEED + 4, PEAK_RATE / 2) if args.begin else (SEED, PEAK_RATE)
    body = torch.compile(model.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    started, seen, step, smooth, done = time.time(), 0, 0, 0.0, 0.0
    seeds = islice(world_seeds("train", seed, 10**9), rank, None, processes)
    for ids, targets in batches(shuffled_pages(seeds), tokenizer):
        if done >= 1:
            break
        rate = peak * min(1.0, (step + 1) / WARMUP_STEPS) * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = max(rate, 1e-5)
        loss = targets_loss(model, body, ids, targets)
        loss.backward()
        done = average(model, (time.time() - started) / (60 * args.minutes))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen, step = seen + processes * int((ids > 0).sum()), step + 1
        smooth = loss.item() if step == 1 else 0.95 * smooth + 0.05 * loss.item()
        if step % 20 == 0 and rank == 0:
            spent = time.time() - started
            print(
                f"{spent / 60:5.1f} min  step {step}  loss {smooth:.4f}  {seen / spent:,.0f} tokens/s", file=sys.stderr
            )
    if rank == 0:
        model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
        figures = {"minutes": args.minutes, "tokens": seen, "steps": step, "loss": round(smooth, 5)}
        print(json.dumps({**figures, "exact pages": round(exact_pages(model, tokenizer), 4)}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
