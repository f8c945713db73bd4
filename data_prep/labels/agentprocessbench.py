"""AgentProcessBench: every assistant message judged by a person.

Keys of `step_labels` are 0-based positions in `messages`; 1 is correct, -1 incorrect, and 0 (unclear or no effect) is
no label. The first mistake is the smallest key with -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from data_prep.labels.join import Given, Mark, records
from scout.formats.positions import step_of_message as step
from scout.trajectory import StepLabel, Trajectory

__all__ = ["names", "read", "step"]

_LABELS: dict[int, StepLabel] = {1: "correct", 0: "unlabelled", -1: "incorrect"}


class _Explanations(msgspec.Struct):
    steps: dict[str, str] = {}


class _Row(msgspec.Struct):
    query_index: int
    sample_index: int
    data_source: str
    step_labels: dict[int, Literal[-1, 0, 1]]
    final_label: Literal[-1, 0, 1] | None = None
    annotator: str | None = None
    explanations: _Explanations | None = None


def names(run: Trajectory) -> Iterable[str]:
    """`searchR1_hotpotqa:0:3`: data source, question, sample."""
    if run.task.id:
        yield f"{run.task.id}:{run.id.rpartition(':')[2]}"


def read(path: str | Path) -> list[Given]:
    """The labels of people, or of a model where the row names an annotator."""
    return [_given(where, row) for where, _, row in records(path, _Row)]


def _given(where: str, row: _Row) -> Given:
    told = row.explanations.steps if row.explanations else {}
    marks = tuple(
        Mark(at, _LABELS[value], reason=told.get(str(at)) or None) for at, value in sorted(row.step_labels.items())
    )
    return Given(
        where,
        f"{row.data_source}:{row.query_index}:{row.sample_index}",
        marks,
        rest="unlabelled",
        origin="model" if row.annotator else "human",
        annotators=(row.annotator or "AgentProcessBench",),
        passed={1: True, -1: False}.get(row.final_label) if row.final_label is not None else None,
    )
