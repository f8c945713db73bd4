"""AgentRx: every failure of a run, and which of them is the root cause.

`step_number` is 1-based over all messages, the system prompt or the human's request included. Steps without a failure
were looked at and found clean. The first mistake is the smallest step number; the root cause, which is often later,
becomes `meta["decisive_mistake"]`. A failure of the simulated user is none of the agent's and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from data_prep.labels.join import Given, Mark, records
from scout.formats.positions import step_of_message
from scout.trajectory import Trajectory

_SPELLED = {"instruction adherence failure": "instruction/plan adherence failure"}


class _Failure(msgspec.Struct):
    failure_id: int
    step_number: int
    step_reason: str = ""
    failure_category: str = ""
    failed_agent: str = ""


class _Cause(msgspec.Struct):
    failure_id: int | str | None = None


class _Row(msgspec.Struct):
    trajectory_id: int | str
    failures: list[_Failure]
    root_cause: _Cause | None = None


def names(run: Trajectory) -> Iterable[str]:
    """The task's id, and its bare number where the reader put a benchmark in front of it."""
    if run.task.id:
        yield run.task.id
        bare = run.task.id.rpartition(":")[2]
        if bare.isdecimal():
            yield bare


def step(run: Trajectory, at: int) -> int | None:
    """1-based step that holds the message with this 1-based number."""
    return step_of_message(run, at - 1)


def read(path: str | Path) -> list[Given]:
    """The labels of people."""
    return [_given(where, row) for where, _, row in records(path, _Row)]


def _kind(category: str) -> str | None:
    """The category in one spelling; the two parts of the set differ in case and in the name of one."""
    name = " ".join(category.lower().split())
    return _SPELLED.get(name, name) or None


def _given(where: str, row: _Row) -> Given:
    of_agent = [failure for failure in row.failures if failure.failed_agent.casefold() != "user"]
    notes = ["a failure of the simulated user, not of the agent"] * (len(row.failures) - len(of_agent))
    cause = row.root_cause.failure_id if row.root_cause else None
    named = [failure for failure in row.failures if str(failure.failure_id) == str(cause)]
    if cause is not None and not named:
        notes.append("a root cause that names no failure")
    marks = tuple(
        Mark(failure.step_number, "incorrect", failure.step_reason or None, _kind(failure.failure_category))
        for failure in of_agent
    )
    decisive = next((failure.step_number for failure in named if failure in of_agent), None)
    return Given(
        where,
        str(row.trajectory_id),
        marks,
        rest="correct",
        known="all_steps",
        annotators=("AgentRx",),
        decisive=decisive,
        notes=tuple(notes),
    )
