"""TRAIL: the errors of a run, each at a span anywhere in its tree.

A step whose span or one beneath it holds an error is incorrect; nothing is said of the others. An error in an agent
that works for another labels that agent's run. Spans outside any step (plans) have no label: their errors are left out
and named. An error that a message of the tools shows often stands at the call that read the message, one step after
the one that caused it; it stays where people put it. The description becomes the reason, the category the kind;
evidence, impact and scores are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from data_prep.labels.join import Given, Mark, records
from scout.errors import FormatError, Problem, refuse
from scout.formats.source import HINT, open_source
from scout.trajectory import Trajectory


class _Error(msgspec.Struct):
    location: str
    category: str = ""
    description: str = ""


class _Row(msgspec.Struct):
    errors: list[_Error] | None = None
    trace_id: str | None = None
    spans: list[msgspec.Raw] | None = None


def names(run: Trajectory) -> Iterator[str]:
    """The trace's id, and the ids of the run's spans: a file of errors may name no trace."""
    if trace := run.meta.get("trace_id"):
        yield trace
    for spans in (*run.meta.get("spans", ()), run.meta.get("spans_outside", ())):
        yield from spans


def step(run: Trajectory, at: str) -> int | None:
    """1-based step that holds the span with this id."""
    return next((number for number, spans in enumerate(run.meta.get("spans", ()), 1) if at in spans), None)


def read(path: str | Path) -> list[Given]:
    """The labels of people; a trace beside them is passed over. Raises FormatError for a record that is neither."""
    stem = open_source(path).stem
    problems: list[Problem] = []
    found = []
    for where, _, row in records(path, _Row):
        if row.errors is not None:
            found.append(_given(where, row.trace_id or stem, row.errors))
        elif row.spans is None:
            problems.append(Problem(where, "errors", "nothing", 'a list of errors, each with its "location"'))
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    return found


def _given(where: str, run: str, errors: Iterable[_Error]) -> Given:
    marks = tuple(
        Mark(error.location, "incorrect", error.description.strip() or None, error.category.strip() or None)
        for error in errors
    )
    return Given(
        where,
        run,
        marks,
        rest="unlabelled",
        known="some_failures" if marks else None,
        annotators=("TRAIL",),
        notes=() if marks else ("a record without an error",),
        places=tuple(dict.fromkeys(error.location for error in errors)),
    )
