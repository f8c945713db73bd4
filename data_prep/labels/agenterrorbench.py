"""AgentErrorBench: the critical step of a failed run, 1-based over assistant messages, with module, type and reason.

Critical is the step where the failure began: earlier steps count as correct, and nothing is known of later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from data_prep.labels.join import Given, Mark, records
from scout.trajectory import Trajectory

_MODULES = ("planning", "reflection", "action", "memory", "system")


class _Finding(msgspec.Struct):
    failure_type: str = ""
    reasoning: str = ""


class _Annotation(msgspec.Struct):
    step: int
    planning: _Finding | None = None
    reflection: _Finding | None = None
    action: _Finding | None = None
    memory: _Finding | None = None
    system: _Finding | None = None


class _Row(msgspec.Struct):
    trajectory_id: str
    critical_failure_step: int
    critical_failure_module: str = ""
    step_annotations: list[_Annotation] = []


def names(run: Trajectory) -> Iterable[str]:
    """The run's id, which is the name of its file."""
    yield run.id


def step(run: Trajectory, at: int) -> int | None:
    """The step itself: readers of chat messages make one step of each assistant message."""
    return at if 1 <= at <= len(run.steps) else None


def read(path: str | Path) -> list[Given]:
    """The labels of people."""
    return [_given(where, row) for where, _, row in records(path, _Row)]


def _given(where: str, row: _Row) -> Given:
    reasons, kinds = [], []
    for annotation in row.step_annotations:
        for module in _MODULES:
            finding: _Finding | None = getattr(annotation, module)
            if finding is not None and annotation.step == row.critical_failure_step:
                reasons.append(finding.reasoning.strip())
                kinds.append(f"{module}: {finding.failure_type.strip().lower()}")
    others = sum(annotation.step != row.critical_failure_step for annotation in row.step_annotations)
    mark = Mark(
        row.critical_failure_step,
        "incorrect",
        "; ".join(reason for reason in reasons if reason) or None,
        "; ".join(kinds) or row.critical_failure_module or None,
    )
    return Given(
        where,
        row.trajectory_id,
        (mark,),
        "correct_before",
        known="first_mistake",
        annotators=("AgentErrorBench",),
        notes=("an annotation of another step than the critical one",) * others,
    )
