"""Collect labelled candidate runs of the Mystery Grid: N runs a task with exact step labels and outcomes.

    python -m data_prep.collect --out runs/demo/data --seed 0

Each task is one world (hidden effects, grid seed, number of moves); its candidates differ in the scientist's seed and
habits alone. Effect maps are dealt out to train, dev and test by a hash, so a map of one split never occurs in another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from scout.agents.scientist import Done, Habits, Scientist
from scout.errors import tell
from scout.trajectory import Labels, Outcome, Step, Task, Trajectory, write
from scout.worlds.effects import EFFECTS, NAMES, draw
from scout.worlds.mystery_grid import MysteryGrid, Rules
from scout.worlds.observer import Case, Finding
from scout.worlds.rubric import grade

CANDIDATES = 8
SOUND_SHARE = 0.42
"""Share of runs whose scientist never errs on purpose; luck adds some."""
FIRST_SLIP = 0.4
"""Chance of the first mistake at a step in the other runs."""
MOVES = (9, 17)
"""Moves of a task, drawn uniformly: with looks and notes 10 to 30 agent steps."""
STEPS = (10, 30)
PASS_SCORE = 60
RULES = Rules(report_changes=True)
BUCKETS = {"test": range(10), "dev": range(10, 16), "train": range(16, 100)}
"""Split -> hash buckets of effect maps."""
DEFAULT_TASKS = {"train": 400, "dev": 24, "test": 60}

_EFFECT_LIST = "; ".join(f"{NAMES[number][0]}: {effect.text}" for number, effect in EFFECTS.items())
TASK_TEXT = (
    "Find what each letter A to E of a 10 x 10 grid does when stepped on. A used tile turns into X. A move costs 1 "
    "energy; a round has 20 energy and 30 steps. Hand in one rule a letter, after {moves} moves. "
    "Each letter has one of these rules: " + _EFFECT_LIST + ".\nStart: {start}"
)


def bucket(effects: dict[str, int]) -> int:
    """Hash bucket in 0..99 of an effect map."""
    return hashlib.sha256(json.dumps(effects, sort_keys=True).encode()).digest()[0] * 100 // 256


def world_seeds(split: str, seed: int, count: int) -> Iterator[int]:
    """The first `count` world seeds from a start that depends on `seed` on whose effect map belongs to the split."""
    found, candidate = 0, seed * 10_000_000
    while found < count:
        if bucket(draw(random.Random(candidate))) in BUCKETS[split]:
            found += 1
            yield candidate
        candidate += 1


def make_world(world_seed: int) -> MysteryGrid:
    """The world of a task: effects, grid and number of moves follow from the seed."""
    rng = random.Random(world_seed)
    effects = draw(rng)
    return MysteryGrid(effects, seed=world_seed, required_steps=rng.randint(*MOVES), rules=RULES)


def collect_run(world_seed: int, candidate: int) -> Trajectory:
    """One labelled run of 10 to 30 steps; a longer one is played again with another scientist's seed."""
    for attempt in range(1000):
        rng = random.Random(f"{world_seed}/{candidate}/{attempt}")
        slip = 0.0 if rng.random() < SOUND_SHARE else FIRST_SLIP
        scientist = Scientist(make_world(world_seed), rng.randrange(2**32), Habits(slip=slip))
        start = scientist.start
        done = scientist.play()
        if STEPS[0] <= len(done) <= STEPS[1]:
            return _trajectory(world_seed, candidate, scientist, start, done)
    raise RuntimeError(f"world {world_seed} allows no run of {STEPS[0]} to {STEPS[1]} steps")


def _trajectory(world_seed: int, candidate: int, scientist: Scientist, start: str, done: Sequence[Done]) -> Trajectory:
    world = scientist.world
    content = json.loads(done[-1].action.split(" ", 1)[1])["content"]
    score = float(grade(content, world.effects).final_score)
    labels = tuple("incorrect" if step.findings else "correct" for step in done)
    return Trajectory(
        id=f"grid-{world_seed}-{candidate}",
        task=Task(TASK_TEXT.format(moves=world.required_steps, start=start), id=f"grid-{world_seed}"),
        steps=tuple(Step(i, s.thought, s.action, s.observation) for i, s in enumerate(done, 1)),
        outcome=Outcome(passed=score >= PASS_SCORE, score=score),
        labels=Labels(
            step_labels=labels,  # type: ignore[arg-type]
            first_mistake=labels.index("incorrect") + 1 if "incorrect" in labels else None,
            known="all_steps",
            origin="world",
            reasons=tuple("; ".join(map(_reason, step.findings)) or None for step in done),
            annotators=("rational observer",),
            kinds=tuple(step.kind for step in done),
            proof_sizes=tuple(min((f.proof_size for f in step.findings), default=None) for step in done),
        ),
        meta=_meta(world_seed, world, done),
    )


def _meta(world_seed: int, world: MysteryGrid, done: Sequence[Done]) -> dict[str, Any]:
    return {
        "domain": "mystery_grid",
        "harness": "scripted scientist",
        "world_seed": world_seed,
        "leak_key": json.dumps(dict(world.effects)),
        "claims": [[[claim.letter, sorted(claim.effects)] for claim in step.claims] for step in done],
        "tests": [step.test.letter if step.test else None for step in done],
    }


_REASONS = {
    Case.REFUTED: "what it says of {letter} was refuted",
    Case.NOT_ENTAILED: "what it says of {letter} does not follow from the visits so far",
    Case.USELESS: "its test of {letter} could not tell anything",
    Case.REFUSED: "the world refused the call",
}


def _reason(finding: Finding) -> str:
    return _REASONS[finding.case].format(letter=finding.letter)


def collect_task(world_seed: int, candidates: int = CANDIDATES) -> list[Trajectory]:
    """All candidate runs of one task."""
    return [collect_run(world_seed, candidate) for candidate in range(candidates)]


def collect(split: str, seed: int, tasks: int, workers: int = 2) -> Iterator[Trajectory]:
    """Runs of the split, task by task, on several cores; the order does not depend on their number."""
    seeds = list(world_seeds(split, seed, tasks))
    with ProcessPoolExecutor(workers) as pool:
        for number, runs in enumerate(pool.map(collect_task, seeds, chunksize=4), 1):
            if number % 100 == 0 or number == tasks:
                print(f"{split}: {number}/{tasks} tasks", file=sys.stderr)
            yield from runs


def _tasks(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if name not in DEFAULT_TASKS or not number.isdigit() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not like test=60; splits are {', '.join(DEFAULT_TASKS)}")
    return name, int(number)


def _seed(text: str) -> int:
    # `random` seeds with the absolute value, so the worlds of -1 would be those of 1 again.
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes train, dev and test trajectories."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.collect", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for {train,dev,test}.jsonl.zst")
    parser.add_argument("--seed", type=_seed, default=0, help="worlds and scientists, 0 or more (default 0)")
    parser.add_argument("--tasks", type=_tasks, nargs="+", default=[], metavar="SPLIT=N", help="tasks a split")
    args = parser.parse_args(argv)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for split, tasks in (DEFAULT_TASKS | dict(args.tasks)).items():
            runs = write(args.out / f"{split}.jsonl.zst", collect(split, args.seed, tasks))
            print(json.dumps({"split": split, "tasks": tasks, "runs": runs}))
    except (OSError, KeyboardInterrupt) as error:
        return tell(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
