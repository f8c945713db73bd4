"""How fast a file of runs is read and checked, against `json.loads` with hand-written checks of the same schema."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scout import trajectory
from scout.trajectory import Labels, Outcome, Step, StepLabel, Task, Trajectory

RUNS = 300
STEPS = 30
OBSERVATION_CHARACTERS = 1500
"""A run of 30 steps with 1.5 kB observations is a typical terminal run."""
REPEATS = 5

_TEXT = {"thought", "action", "observation"}
_STEP = {"index", *_TEXT, "source_ref"}
_RUN = {"id", "task", "steps", "outcome", "labels", "meta", "schema_version"}
_LABELS = {"step_labels", "first_mistake", "known", "origin", "reasons", "annotators", "kinds", "proof_sizes"}


def measure(folder: Path | None = None) -> dict[str, float | int | str]:
    """Median seconds of both ways over the same file, taken in turn, and `ratio` = plain seconds / Scout's seconds.

    A ratio above 1 means that Scout is faster.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made:
        path = Path(made) / "runs.jsonl"
        trajectory.write(path, _runs())
        size = path.stat().st_size
        ours, plain = [], []
        for _ in range(REPEATS):
            ours.append(_seconds(lambda: trajectory.read(path)))
            plain.append(_seconds(lambda: _plain(path)))
    ours_seconds, plain_seconds = statistics.median(ours), statistics.median(plain)
    return {
        "name": "reading",
        "runs": RUNS,
        "megabytes": round(size / 1e6, 1),
        "seconds": round(ours_seconds, 4),
        "plain_seconds": round(plain_seconds, 4),
        "ratio": round(plain_seconds / ours_seconds, 2),
    }


def _seconds(read: Callable[[], Iterator[Any]]) -> float:
    begin = time.perf_counter()
    count = sum(1 for _ in read())
    assert count == RUNS, count
    return time.perf_counter() - begin


def words(seed: int) -> tuple[random.Random, list[str]]:
    """A generator and the 500 words that made-up texts consist of."""
    generator = random.Random(seed)
    return generator, ["".join(generator.choices("abcdefghij", k=6)) for _ in range(500)]


def _runs() -> Iterator[Trajectory]:
    generator, known = words(0)
    correct: tuple[StepLabel, ...] = tuple("correct" for _ in range(STEPS))
    for number in range(RUNS):
        steps = tuple(
            Step(index, " ".join(generator.choices(known, k=20)), '{"name": "run", "arguments": {"command": "ls"}}',
                 " ".join(generator.choices(known, k=OBSERVATION_CHARACTERS // 7)))
            for index in range(1, STEPS + 1)
        )  # fmt: skip
        labels = Labels(step_labels=correct)
        yield Trajectory(f"run-{number}", Task("do it", f"task-{number // 8}"), steps, Outcome(True, 1.0), labels)


def _plain(path: Path) -> Iterator[dict[str, Any]]:
    """What a careful script does without Scout: the same types, the same unknown keys, the same order of indices.

    Like Scout it checks the whole file before it gives out the first run.
    """
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            _checked(line)
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield _checked(line)


def _checked(line: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(line)
    _require(isinstance(run, dict) and run.keys() <= _RUN and {"id", "task", "steps"} <= run.keys())
    _require(isinstance(run["id"], str) and isinstance(run["task"], dict) and isinstance(run["task"]["text"], str))
    _require(isinstance(run["steps"], list))
    for position, step in enumerate(run["steps"], start=1):
        _require(isinstance(step, dict) and step.keys() <= _STEP and step["index"] == position)
        _require(all(isinstance(step.get(name, ""), str) for name in _TEXT))
    labels = run.get("labels")
    if labels is not None:
        _require(labels.keys() <= _LABELS and len(labels["step_labels"]) == len(run["steps"]))
        _require(all(label in ("correct", "incorrect", "unlabelled") for label in labels["step_labels"]))
    return run


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not a run")
