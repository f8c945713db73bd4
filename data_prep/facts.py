"""What a data card tells of a data set: counted while the runs and rows pass by on their way to Parquet."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from data_prep.columns import source_of_run
from scout.formats.stats import task_key
from scout.trajectory import Trajectory

_NUMBER = re.compile(r"\d+")


class RunCounts(msgspec.Struct):
    """Of the runs of one split or one source."""

    runs: int = 0
    steps: int = 0
    tasks: set[str] = msgspec.field(default_factory=set)
    mistake: Counter[str] = msgspec.field(default_factory=Counter)
    outcome: Counter[str] = msgspec.field(default_factory=Counter)
    splits: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, run: Trajectory, split: str) -> None:
        """Count one run."""
        self.runs += 1
        self.steps += len(run.steps)
        self.tasks.add(task_key(run))
        self.splits[split] += 1
        self.mistake[{True: "with mistake", False: "clean", None: "not known"}[run.has_mistake]] += 1
        self.outcome[{True: "passed", False: "failed", None: "unknown"}[run.outcome.passed]] += 1


class LabelCounts(msgspec.Struct):
    """Of the runs whose labels were made in one way."""

    runs: int = 0
    steps: Counter[str] = msgspec.field(default_factory=Counter)
    reasons: int = 0


class Facts:
    """Everything that is counted."""

    def __init__(self) -> None:
        self.splits: dict[str, RunCounts] = defaultdict(RunCounts)
        self.sources: dict[str, RunCounts] = defaultdict(RunCounts)
        self.labels: dict[tuple[str, str, str], LabelCounts] = defaultdict(LabelCounts)
        """(origin, annotators, what is known) -> counts."""
        self.unlabelled = 0
        self.left_out: Counter[str] = Counter()
        """What readers left out of runs, with N for every number -> runs."""
        self.warnings: Counter[str] = Counter()
        self.rows: dict[str, Counter[str]] = defaultdict(Counter)
        """Split -> counts of rows and of their labels."""
        self.explained: dict[str, set[str]] = defaultdict(set)
        """Split -> ids of the runs that have rows."""

    def add_run(self, run: Trajectory, split: str) -> None:
        """Count one run."""
        for counts in (self.splits[split], self.sources[source_of_run(run)]):
            counts.add(run, split)
        self.left_out.update(_kinds(run.meta.get("left_out")))
        self.warnings.update(_kinds(run.meta.get("warnings")))
        labels = run.labels
        if labels is None:
            self.unlabelled += 1
            return
        made = self.labels[labels.origin, ", ".join(labels.annotators), labels.known]
        made.runs += 1
        made.steps.update(labels.step_labels)
        made.reasons += sum(reason is not None for reason in labels.reasons)

    def add_row(self, row: Mapping[str, Any], split: str) -> None:
        """Count one training row."""
        counts = self.rows[split]
        counts["rows"] += 1
        counts["with mistake" if "incorrect" in row["gold"] else "clean"] += 1
        counts["cut"] += bool(row.get("cut"))
        counts.update(f"steps {label}" for label in row["gold"])
        self.explained[split].add(row["trajectory_id"])


def _kinds(notes: Any) -> set[str]:
    """Notes of one run without their numbers, each once: `3 calls cut` and `4 calls cut` are one kind."""
    return {_NUMBER.sub("N", note) for note in notes if isinstance(note, str)} if isinstance(notes, list) else set()
