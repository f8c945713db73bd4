"""Trajectory: the recorded run of an agent, with what is known about its outcome and its steps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from scout import records
from scout.records import Finding

SCHEMA_VERSION = 1

StepLabel = Literal["correct", "incorrect", "unlabelled"]
Known = Literal["all_steps", "first_mistake", "some_failures", "final_only"]
Origin = Literal["human", "world", "injected", "outcome", "model"]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent was asked to do."""

    text: str
    id: str | None = None
    """Group key of best-of-N: runs with the same task id are candidates for one task."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One turn of the agent: what it thought, what it did, what came back."""

    index: int
    """1-based, over agent turns."""
    thought: str = ""
    action: str = ""
    """Tool calls keep their name and arguments as JSON text."""
    observation: str = ""
    source_ref: str | None = None
    """Position in the file the run was read from."""


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the run ended, as far as it is known."""

    passed: bool | None = None
    score: float | None = None


class Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about the steps of a run. Each list is empty or has one entry a step."""

    step_labels: tuple[StepLabel, ...]
    first_mistake: int | None = None
    """1-based step of the first mistake."""
    known: Known = "all_steps"
    """all_steps: each step is judged. first_mistake: up to and including the first mistake, or that there is none.
    some_failures: some incorrect steps, perhaps not all. final_only: nothing but the outcome."""
    origin: Origin = "human"
    reasons: tuple[str | None, ...] = ()
    annotators: tuple[str, ...] = ()
    """Who judged; any number of names."""
    kinds: tuple[str | None, ...] = ()
    """Kind of each mistake, None where the step is none."""
    proof_sizes: tuple[int | None, ...] = ()
    """Number of earlier facts that prove each mistake."""


class Trajectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run. Written as one JSON line; NaN in `meta` becomes null there, since JSON has no NaN."""

    id: str
    task: Task
    steps: tuple[Step, ...]
    outcome: Outcome = Outcome()
    labels: Labels | None = None
    meta: dict[str, Any] = {}
    """Domain, harness, agent model, source file and whatever else is worth keeping, as JSON values."""
    schema_version: int = SCHEMA_VERSION

    @property
    def has_mistake(self) -> bool | None:
        """Whether the run holds a mistake; None when the labels do not tell."""
        if self.labels is None:
            return None
        if self.labels.first_mistake is not None or "incorrect" in self.labels.step_labels:
            return True
        return False if self.labels.known in ("all_steps", "first_mistake") else None


def problems(trajectory: Trajectory) -> list[Finding]:
    """Everything that is wrong with a well-typed trajectory, as (field, value, what is allowed); empty when sound."""
    found: list[Finding] = []
    if trajectory.schema_version != SCHEMA_VERSION:
        found.append(("schema_version", trajectory.schema_version, f"{SCHEMA_VERSION} (this version of Scout)"))
    if not trajectory.id:
        found.append(("id", trajectory.id, "a text that is not empty"))
    score = trajectory.outcome.score
    if score is not None and not math.isfinite(score):
        found.append(("outcome.score", score, "a finite number or null"))
    found.extend(
        (f"steps[{position - 1}].index", step.index, f"{position}: indices run 1, 2, 3 ... in order, each once")
        for position, step in enumerate(trajectory.steps, start=1)
        if step.index != position
    )
    if trajectory.labels is not None:
        found.extend(_label_problems(trajectory.labels, len(trajectory.steps)))
    return found


def _label_problems(labels: Labels, steps: int) -> list[Finding]:
    found: list[Finding] = []
    if len(labels.step_labels) != steps:
        found.append(("labels.step_labels", f"{len(labels.step_labels)} labels", f"{steps}, one for each step"))
    for name in ("reasons", "kinds", "proof_sizes"):
        length = len(getattr(labels, name))
        if length not in (0, steps):
            found.append((f"labels.{name}", f"{length} entries", f"none, or {steps}, one for each step"))
    found.extend(
        (f"labels.proof_sizes[{position}]", size, "0 or more, or null")
        for position, size in enumerate(labels.proof_sizes)
        if size is not None and size < 0
    )
    first = labels.first_mistake
    if first is not None and not 1 <= first <= steps:
        found.append(("labels.first_mistake", first, f"a step of the run, 1 to {steps}, or null"))
    return found or _contradictions(labels)


def _contradictions(labels: Labels) -> list[Finding]:
    """Where the labels disagree with each other; lengths and ranges are sound here."""
    found: list[Finding] = []
    incorrect = [index for index, label in enumerate(labels.step_labels, start=1) if label == "incorrect"]
    first, field = labels.first_mistake, "labels.first_mistake"
    if labels.known == "all_steps" and "unlabelled" in labels.step_labels:
        position = labels.step_labels.index("unlabelled")
        found.append((f"labels.step_labels[{position}]", "unlabelled", 'a judgement, since known is "all_steps"'))
    if labels.known == "final_only" and (first is not None or set(labels.step_labels) - {"unlabelled"}):
        found.append(("labels.known", labels.known, "another value, since steps are labelled"))
    if first is not None and (not incorrect or incorrect[0] != first):
        allowed = f"{incorrect[0]}, the first step labelled incorrect" if incorrect else "null: no step is incorrect"
        found.append((field, first, allowed))
    if first is None and incorrect and labels.known in ("all_steps", "first_mistake"):
        found.append((field, None, f"{incorrect[0]}, the first step labelled incorrect"))
    return found


def dumps(trajectory: Trajectory) -> str:
    """The trajectory as one JSON line, without newline."""
    return records.dumps(trajectory).decode("utf-8")


def loads(line: str | bytes, where: str = "") -> Trajectory:
    """The trajectory on that line. Raises one InputError with everything that is wrong with it.

    where: place to name in the message, such as `runs.jsonl:3`.
    """
    return records.loads(line, Trajectory, problems, where)


def read(path: str | os.PathLike[str]) -> Iterator[Trajectory]:
    """Trajectories of a .jsonl file, plain or compressed, one at a time, after the whole file has been checked.

    Raises one InputError with all problems of the file, before the first trajectory is given out.
    """
    return records.read(path, Trajectory, problems, lambda trajectory: trajectory.id)


def write(path: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories to a .jsonl, .jsonl.gz or .jsonl.zst file and return their number.

    The file appears whole or not at all. Raises InputError for a trajectory that `read` would refuse.
    """
    return records.write(path, trajectories, Trajectory, problems, lambda trajectory: trajectory.id)
