"""Who&When: one decisive mistake a run, a 0-based position in `history` written as text.

It is the earliest step which, had it been right, would have let the run succeed: earlier steps count as correct, and
nothing is known of later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from data_prep.labels.join import Given, Mark, records
from scout.errors import FormatError, Problem, refuse
from scout.formats.positions import step_of_message as step
from scout.formats.source import HINT, open_source
from scout.trajectory import Origin, Trajectory

__all__ = ["names", "read", "step"]


class _Row(msgspec.Struct):
    mistake_step: str | int
    mistake_reason: str | None = None
    mistake_type: str | None = None
    question_ID: str | None = None


def names(run: Trajectory) -> Iterable[str]:
    """The id that the reader made of question and file: a question occurs in several files."""
    yield run.id


def read(path: str | Path) -> list[Given]:
    """The labels of people."""
    return given(path, origin="human", annotator="Who&When")


def given(path: str | Path, *, origin: Origin, annotator: str) -> list[Given]:
    """The labels that stand beside the `history` of each run. Raises FormatError for a position that is no number."""
    stem = open_source(path).stem
    problems: list[Problem] = []
    found = []
    for where, number, row in records(path, _Row):
        if not str(row.mistake_step).strip().isdecimal():
            problems.append(Problem(where, "mistake_step", repr(row.mistake_step), "a 0-based position in history"))
            continue
        name = stem if number is None else f"{stem}:{number}"
        mark = Mark(int(row.mistake_step), "incorrect", row.mistake_reason or None, row.mistake_type or None)
        run = f"{row.question_ID}:{name}" if row.question_ID else name
        found.append(
            Given(where, run, (mark,), "correct_before", known="first_mistake", origin=origin, annotators=(annotator,))
        )
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    return found
