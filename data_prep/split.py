"""Runs -> train, dev and test by task: `python -m data_prep.split RUNS.jsonl --out DIR --seed 7 --test-tasks 60 ...`.

Runs that share a task, a leak key (`meta["leak_key"]`, what a model could memorise: in the mystery grid the effect map)
or their whole text stay together. What was written is then checked by other code, which knows nothing of the grouping.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scout import trajectory
from scout.errors import InputError, ScoutError, exit_code
from scout.formats import load
from scout.formats.stats import digest, run_text, task_key
from scout.formats.table import table
from scout.lines import write_lines
from scout.trajectory import Trajectory

SPLITS = ("train", "dev", "test")
GRAM = 8
NEAR = 0.8
"""Share of common 8-grams from which two runs count as near-duplicates."""
SAMPLED_RUNS = 200


def leak_key(run: Trajectory) -> str | None:
    """What a model could memorise about the run's world, as text; None when the run does not say."""
    key = run.meta.get("leak_key")
    return None if key is None else msgspec.json.encode(key).decode()


def split(
    trajectories: Iterable[Trajectory], *, seed: int, test_tasks: int, dev_tasks: int
) -> dict[str, list[Trajectory]]:
    """The runs by split, each split in the order of the input; the same seed gives the same split.

    Raises InputError when there are not enough tasks, or when runs that belong together make the numbers impossible.
    """
    runs = list(trajectories)
    groups = _groups(runs)
    order = sorted(groups)
    random.Random(seed).shuffle(order)
    assigned: dict[str, str] = {}
    for name, wanted in (("test", test_tasks), ("dev", dev_tasks)):
        for group in _take([group for group in order if group not in assigned], groups, wanted, name):
            assigned[group] = name
    if len(assigned) == len(order):
        raise InputError(
            f"{_tasks(groups, order)} tasks: none is left for training after {test_tasks} for test and {dev_tasks} for "
            "dev. Collect more tasks or ask for fewer."
        )
    of_task = {task: assigned.get(group, "train") for group, tasks in groups.items() for task in tasks}
    parts: dict[str, list[Trajectory]] = {name: [] for name in SPLITS}
    for run in runs:
        parts[of_task[task_key(run)]].append(run)
    return parts


def _take(order: Sequence[str], groups: Mapping[str, set[str]], wanted: int, name: str) -> Iterator[str]:
    """The first groups that together hold exactly `wanted` tasks; a group too large for the rest is passed over."""
    left = wanted
    for group in order:
        if len(groups[group]) <= left:
            left -= len(groups[group])
            yield group
    if left:
        raise InputError(
            f"{name}: {wanted} tasks were asked for, {wanted - left} can be had of {_tasks(groups, order)} "
            f"(in {len(order)} groups that must stay together). Collect more tasks or ask for fewer."
        )


def _tasks(groups: Mapping[str, set[str]], names: Iterable[str]) -> int:
    return sum(len(groups[name]) for name in names)


def _groups(runs: Sequence[Trajectory]) -> dict[str, set[str]]:
    """Tasks that must stay together, by the first of them: joined through leak keys and equal texts."""
    parent: dict[str, str] = {}

    def root(task: str) -> str:
        while parent.setdefault(task, task) != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    owner: dict[str, str] = {}
    for run in runs:
        task = root(task_key(run))
        key = leak_key(run)
        marks = [f"text {digest(run_text(run))}"] + ([f"key {key}"] if key is not None else [])
        for mark in marks:
            first, second = sorted((root(owner.setdefault(mark, task)), root(task)))
            parent[second] = first
    groups: dict[str, set[str]] = defaultdict(set)
    for task in parent:
        groups[root(task)].add(task)
    return dict(groups)


def leaks(splits: Mapping[str, Sequence[Trajectory]], *, sampled: int = SAMPLED_RUNS, seed: int = 0) -> dict[str, Any]:
    """What two splits have in common. `near_duplicates` compares a sample of dev and test with all of train.

    A near-duplicate is reported, not held against the split: it shares at least NEAR of its 8-grams of step text.
    """
    return {
        "shared_tasks": _shared(splits, task_key),
        "shared_leak_keys": _shared(splits, leak_key),
        "duplicate_texts": _shared(splits, lambda run: digest(run_text(run))),
        "near_duplicates": _near(splits, sampled, seed),
    }


def is_leaky(report: Mapping[str, Any]) -> bool:
    """Whether a report of `leaks` forbids to use the splits."""
    return any(report[name]["found"] for name in ("shared_tasks", "shared_leak_keys", "duplicate_texts"))


def _shared(splits: Mapping[str, Sequence[Trajectory]], key: Any) -> dict[str, Any]:
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for name, runs in splits.items():
        for run in runs:
            value = key(run)
            if value is not None:
                places[value].setdefault(name, run.id)
    found = [where for where in places.values() if len(where) > 1]
    return {"found": len(found), "examples": found[:5]}


def _grams(run: Trajectory) -> set[int]:
    words = " ".join(f"{step.thought} {step.action} {step.observation}" for step in run.steps).split()
    return {hash(tuple(words[at : at + GRAM])) for at in range(max(1, len(words) - GRAM + 1))}


def _near(splits: Mapping[str, Sequence[Trajectory]], sampled: int, seed: int) -> dict[str, Any]:
    held_out = [run for name, runs in splits.items() if name != "train" for run in runs]
    chosen = random.Random(seed).sample(held_out, min(sampled, len(held_out)))
    grams = [_grams(run) for run in chosen]
    holders: dict[int, list[int]] = defaultdict(list)
    for number, own in enumerate(grams):
        for gram in own:
            holders[gram].append(number)
    best = [(0.0, "")] * len(chosen)
    for run in splits.get("train", ()):
        theirs = _grams(run)
        common: dict[int, int] = defaultdict(int)
        for gram in theirs & holders.keys():
            for number in holders[gram]:
                common[number] += 1
        for number, both in common.items():
            jaccard = both / (len(theirs) + len(grams[number]) - both)
            best[number] = max(best[number], (jaccard, run.id))
    near = [(run.id, other, round(share, 3)) for run, (share, other) in zip(chosen, best, strict=True) if share >= NEAR]
    highest = round(max((share for share, _ in best), default=0.0), 3)
    return {"sampled": len(chosen), "threshold": NEAR, "found": len(near), "highest": highest, "examples": near[:5]}


def write(runs_file: str, out: Path, parts: Mapping[str, Sequence[Trajectory]], settings: Mapping[str, int]) -> str:
    """Check the splits and write them with `split.json`; returns the table to show.

    Raises InputError, and writes nothing, when the splits share a task, a leak key or a text.
    """
    report = leaks(parts)
    if is_leaky(report):
        raise InputError(
            f"{runs_file}: the splits leak, nothing was written: {msgspec.json.encode(report).decode()}. "
            "Give runs of one task the same task.id and worlds their own meta.leak_key."
        )
    for name, runs in parts.items():
        trajectory.write(out / f"{name}.jsonl", runs)
    tasks = {name: sorted({task_key(run) for run in runs}) for name, runs in parts.items()}
    record = {
        "runs_file": runs_file,
        **settings,
        "runs": {name: len(runs) for name, runs in parts.items()},
        "tasks": {name: len(names) for name, names in tasks.items()},
        "leaks": report,
        "task_ids": tasks,
    }
    write_lines(out / "split.json", [msgspec.json.format(msgspec.json.encode(record), indent=1)])
    rows: list[Sequence[object]] = [("split", "tasks", "runs", "steps")]
    rows += [(name, len(tasks[name]), len(runs), sum(len(run.steps) for run in runs)) for name, runs in parts.items()]
    near = report["near_duplicates"]
    return (
        f"{table(rows)}\nshared tasks 0, shared leak keys 0, duplicate texts 0; near-duplicates {near['found']} of "
        f"{near['sampled']} sampled held-out runs (highest {near['highest']})"
    )


def main(arguments: list[str] | None = None) -> int:
    """Split a file of runs; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.split",
        description="Split runs into train, dev and test by task.",
        epilog="example: python -m data_prep.split runs.jsonl --out data/split --seed 7 --test-tasks 60 --dev-tasks 20",
    )
    parser.add_argument("runs", metavar="RUNS.jsonl")
    parser.add_argument("--out", required=True, metavar="DIR", help="gets train, dev and test .jsonl and split.json")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--test-tasks", type=int, required=True)
    parser.add_argument("--dev-tasks", type=int, required=True)
    args = parser.parse_args(arguments)
    if min(args.test_tasks, args.dev_tasks) < 0:
        parser.error("--test-tasks and --dev-tasks are 0 or more")
    settings = {"seed": args.seed, "test_tasks": args.test_tasks, "dev_tasks": args.dev_tasks}
    try:
        parts = split(load(args.runs), **settings)
        print(write(args.runs, Path(args.out), parts, settings), file=sys.stderr)
    except ScoutError as error:
        print(error, file=sys.stderr)
        return exit_code(error)
    print(msgspec.json.encode({"out": args.out, "runs": {name: len(runs) for name, runs in parts.items()}}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
