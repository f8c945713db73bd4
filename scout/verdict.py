"""Verdict: what a verifier says about a run, step by step, or why it could say nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from scout import records
from scout.records import Finding
from scout.reply import Reply, parse_reply
from scout.trajectory import StepLabel

__all__ = [
    "SCHEMA_VERSION",
    "Cut",
    "Reply",
    "StepVerdict",
    "Usage",
    "Verdict",
    "dumps",
    "loads",
    "parse_reply",
    "problems",
    "read",
    "write",
]

SCHEMA_VERSION = 1


class StepVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Judgement of one step."""

    index: int
    """1-based, as in the trajectory."""
    label: StepLabel
    """unlabelled: the verifier did not judge this step."""
    p_incorrect: float | None = None
    """Probability that the step is incorrect, in [0, 1]."""
    reason: str = ""


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ledger of what the verifier did not see."""

    steps: tuple[int, ...] = ()
    """Steps of which something was left out."""
    tokens: int = 0
    """Tokens left out."""
    parts: tuple[str, ...] = ()
    """Readable lines, such as `step 4 observation: 812 of 1200 tokens`."""


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the verdict cost, unreadable replies included."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One verdict. Written as one JSON line."""

    trajectory_id: str
    status: Literal["scored", "unscored"]
    unscored_reason: str | None
    """Why there is no score; None when there is one."""
    steps: tuple[StepVerdict, ...]
    first_mistake: int | None
    """1-based step of the first mistake; None when no step is judged incorrect, and when unscored."""
    p_yes: float | None
    """Probability that the run holds no mistake, in [0, 1]; None when unscored, never a stand-in number."""
    cut: Cut = Cut()
    contradictions: tuple[str, ...] = ()
    """Where analysis, block and last line of a reply disagree."""
    warnings: tuple[str, ...] = ()
    task_id: str | None = None
    model: str = ""
    prompt_version: str = ""
    fingerprint: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    schema_version: int = SCHEMA_VERSION


def problems(verdict: Verdict) -> list[Finding]:
    """Everything that is wrong with a well-typed verdict, as (field, value, what is allowed); empty when sound."""
    found: list[Finding] = []
    if verdict.schema_version != SCHEMA_VERSION:
        found.append(("schema_version", verdict.schema_version, f"{SCHEMA_VERSION} (this version of Scout)"))
    if not verdict.trajectory_id:
        found.append(("trajectory_id", verdict.trajectory_id, "a text that is not empty"))
    found.extend(_status_problems(verdict))
    chances = [("p_yes", verdict.p_yes)]
    chances += [(f"steps[{position}].p_incorrect", step.p_incorrect) for position, step in enumerate(verdict.steps)]
    found.extend((name, chance, "0 to 1, or null") for name, chance in chances if not _is_chance(chance))
    before = 0
    for position, step in enumerate(verdict.steps):
        if step.index <= before:
            found.append((f"steps[{position}].index", step.index, f"above {before}: 1-based, rising, each once"))
        before = max(before, step.index)
    if not math.isfinite(verdict.seconds):
        found.append(("seconds", verdict.seconds, "a finite number"))
    return found


def _status_problems(verdict: Verdict) -> list[Finding]:
    if verdict.status == "unscored":
        found: list[Finding] = []
        if not verdict.unscored_reason:
            found.append(("unscored_reason", verdict.unscored_reason, "the reason, since status is unscored"))
        for name in ("p_yes", "first_mistake"):
            if getattr(verdict, name) is not None:
                found.append((name, getattr(verdict, name), "null, since status is unscored"))
        return found
    if verdict.unscored_reason is not None:
        return [("unscored_reason", verdict.unscored_reason, "null, since status is scored")]
    first = verdict.first_mistake
    if first is not None and all(step.index != first for step in verdict.steps):
        return [("first_mistake", first, "the index of one of the steps, or null")]
    return []


def _is_chance(value: float | None) -> bool:
    return value is None or 0.0 <= value <= 1.0


def dumps(verdict: Verdict) -> str:
    """The verdict as one JSON line, without newline."""
    return records.dumps(verdict).decode("utf-8")


def loads(line: str | bytes, where: str = "") -> Verdict:
    """The verdict on that line. Raises one InputError with everything that is wrong with it.

    where: place to name in the message, such as `verdicts.jsonl:3`.
    """
    return records.loads(line, Verdict, problems, where)


def read(path: str | os.PathLike[str]) -> Iterator[Verdict]:
    """Verdicts of a .jsonl file, plain or compressed, one at a time, after the whole file has been checked.

    Raises one InputError with all problems of the file, before the first verdict is given out.
    """
    return records.read(path, Verdict, problems, lambda verdict: verdict.trajectory_id)


def write(path: str | os.PathLike[str], verdicts: Iterable[Verdict]) -> int:
    """Write verdicts to a .jsonl, .jsonl.gz or .jsonl.zst file and return their number; whole or not at all."""
    return records.write(path, verdicts, Verdict, problems, lambda verdict: verdict.trajectory_id)
