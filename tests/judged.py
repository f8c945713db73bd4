"""Small runs with labels and verdicts about them, one character a step: c correct, i incorrect, ? unknown."""

from __future__ import annotations

from collections.abc import Sequence

from scout.trajectory import Known, Labels, Outcome, Step, StepLabel, Task, Trajectory
from scout.verdict import Reply, StepVerdict, Verdict

LABELS: dict[str, StepLabel] = {"c": "correct", "i": "incorrect", "?": "unlabelled"}


def labels(text: str, start: int = 1) -> dict[int, str]:
    """`"ci?"` -> {1: correct, 2: incorrect, 3: unlabelled}."""
    return {start + place: LABELS[letter] for place, letter in enumerate(text)}


def run(
    name: str,
    gold: str | None,
    *,
    task: str = "t",
    passed: bool | None = None,
    known: Known = "all_steps",
    facts: int | None = None,
) -> Trajectory:
    """A run with those labels (None: without any); facts is the proof size of its first mistake."""
    steps = tuple(Step(index) for index in range(1, len(gold or "cc") + 1))
    told = None
    if gold is not None:
        first = gold.index("i") + 1 if "i" in gold else None
        sizes = tuple(facts if index + 1 == first else None for index in range(len(gold)))
        told = Labels(tuple(LABELS[letter] for letter in gold), first, known, proof_sizes=sizes)
    return Trajectory(name, Task(f"do {task}", task), steps, Outcome(passed), told)


def verdict(name: str, said: str, *, p_yes: float | None = None, chances: Sequence[float | None] = ()) -> Verdict:
    """A scored verdict with those labels; `?` is a step without a judgement."""
    chances = chances or [None] * len(said)
    steps = tuple(StepVerdict(k + 1, LABELS[letter], chances[k]) for k, letter in enumerate(said))
    return Verdict(name, "scored", None, steps, said.index("i") + 1 if "i" in said else None, p_yes)


def unscored(name: str) -> Verdict:
    """A verdict that says nothing."""
    return Verdict(name, "unscored", "unreadable reply", (), None, None)


def reply(block: str, last: str | None = None, *, start: int = 1, readable: bool = True) -> Reply:
    """A reply with that block, a step marked `?` left out; the last line follows the block unless it is given."""
    said = {index: label for index, label in labels(block, start).items() if label != "unlabelled"}
    final = last or ("No" if "i" in block else "Yes")
    assert final in ("Yes", "No")
    return Reply(readable, None if readable else "unfinished", {}, {}, said, "No" if final == "No" else "Yes", None, ())
