"""Check the splits, and cut the parts that stages are scored on: a few tasks, and steps torn from their history.

python -m eval.slices --data runs/demo/data --out runs/demo/eval/slices
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from data_prep.split import is_leaky, leaks
from eval import runs as run_files
from scout import trajectory
from scout.errors import InputError, ScoutError, tell
from scout.metrics import task_of
from scout.trajectory import Labels, Outcome, Step, Trajectory

BASE_TASKS = 12
"""Enough to show that the base model is at chance; all tasks would cost as much time as the stages that matter."""
STEPS_PER_CLASS = 200
"""An AUROC of 0.65 then has a standard error of about 0.03."""
FILLER_STEPS = 1
"""With the step itself a whole window of the tiny recipe: it read 27 of 30 such prompts, and none of 400 without it."""


def without_history(runs: Sequence[Trajectory], *, per_class: int = STEPS_PER_CLASS, seed: int = 0) -> list[Trajectory]:
    """Runs that begin with the step to judge: at most `per_class` correct and as many incorrect steps.

    That step keeps its texts and its label but not its number; the outcome is dropped; the id is the run's id, "#" and
    the step's number. Behind it stands the first step of a run of another task, unlabelled: it tells nothing of the
    one before, and a prompt of a single step would be a shape that training does not show.
    Runs that are one step long anyway are left out.
    """
    fillers = _fillers(runs)
    pool: dict[str, list[Trajectory]] = {"correct": [], "incorrect": []}
    for run in runs:
        if run.labels is None or len(run.steps) < 2:
            continue
        for step, label in zip(run.steps, run.labels.step_labels, strict=True):
            if label in pool:
                pool[label].append(_alone(run, step.index, label, fillers[task_of(run)]))
    generator = random.Random(seed)
    chosen = [row for rows in pool.values() for row in generator.sample(rows, min(per_class, len(rows)))]
    return sorted(chosen, key=lambda row: row.id)


def _fillers(runs: Sequence[Trajectory]) -> dict[str, tuple[Step, ...]]:
    """Task -> first steps of the first run of the next task; the first task follows the last, none a lone one."""
    groups = run_files.by_task(runs)
    firsts = [group[0].steps[:FILLER_STEPS] for group in groups.values()]
    return dict(zip(groups, [*firsts[1:], firsts[0] if len(firsts) > 1 else ()], strict=True)) if firsts else {}


def _alone(run: Trajectory, index: int, label: str, filler: Sequence[Step]) -> Trajectory:
    steps = (run.steps[index - 1], *filler)
    labels = Labels(
        step_labels=(label, *["unlabelled"] * len(filler)),  # type: ignore[arg-type]
        first_mistake=1 if label == "incorrect" else None,
        known="some_failures",
        origin=run.labels.origin if run.labels else "human",
    )
    numbered = tuple(msgspec.structs.replace(step, index=place) for place, step in enumerate(steps, 1))
    return Trajectory(id=f"{run.id}#{index}", task=run.task, steps=numbered, outcome=Outcome(), labels=labels)


def first_tasks(runs: Sequence[Trajectory], count: int = BASE_TASKS) -> list[Trajectory]:
    """All candidate runs of the first `count` tasks."""
    return [run for group in list(run_files.by_task(runs).values())[:count] for run in group]


def _check(splits: Mapping[str, Sequence[Trajectory]]) -> None:
    """Raise InputError when splits share a task, a world or a text; say what was compared."""
    report = leaks(splits)
    found = msgspec.json.encode(report).decode()
    if is_leaky(report):
        raise InputError(f"The splits leak: {found}. Collect them again with other seeds.")
    print(f"splits are apart: {found}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the splits; write test_no_history.jsonl.zst, and {dev,test}.jsonl.zst of a few tasks, into --out."""
    parser = argparse.ArgumentParser(prog="python -m eval.slices", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train, dev and test runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="draws the steps shown without history")
    options = parser.parse_args(arguments)
    try:
        splits = {name: run_files.load_split(options.data, name) for name in ("train", "dev", "test")}
        _check(splits)
        dev, test = splits["dev"], splits["test"]
        alone = without_history(test, seed=options.seed)
        if not alone:
            raise InputError(f"{options.data}: no step of the test runs has a label, so none can be judged alone.")
        options.out.mkdir(parents=True, exist_ok=True)
        for name, rows in (("test_no_history", alone), ("dev", first_tasks(dev)), ("test", first_tasks(test))):
            count = trajectory.write(options.out / f"{name}.jsonl.zst", rows)
            print(f"{options.out / name}.jsonl.zst: {count} runs", file=sys.stderr)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
