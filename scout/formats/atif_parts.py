"""Runs that ATIF keeps in several files: the continuation beside a file, found and joined.

Harbor names the parts `trajectory.json`, `trajectory.cont-1.json`, `trajectory.cont-2.json`; only such names are
followed, so that a folder can be read without any part counted twice (see `beside.holder`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import msgspec

from scout.formats.run import FEW_STEPS
from scout.formats.source import Raw, text_of
from scout.trajectory import Trajectory

CONTINUED = "continuation of this run"
_PART = re.compile(r"\.cont-(\d{1,6})(?=\.)")


def following(path: Path, ref: Raw | None) -> Path | None:
    """The file beside `path` that its `continued_trajectory_ref` names, or None when it is not there.

    The reference may lack the front of the name: golden files are called `<test>.trajectory.cont-1.json`.
    """
    name = PurePath(text_of(ref) or "").name
    if number(name) != number(path.name) + 1:
        return None
    front = path.name.partition("trajectory")[0] if "trajectory" in path.name else ""
    for candidate in (path.with_name(name), path.with_name(front + name)):
        if candidate.name != path.name and os.path.isfile(candidate):  # of any name; Path.is_file raises for long ones
            return candidate
    return None


def number(name: str) -> int:
    """Which part a file is by its name; 0 for the first."""
    match = _PART.search(name)
    return int(match[1]) if match else 0


def before(path: Path) -> Path | None:
    """The file that `path` would continue by its name, or None for a first part."""
    part = number(path.name)
    if not part:
        return None
    return path.with_name(_PART.sub("" if part == 1 else f".cont-{part - 1}", path.name, count=1))


def join(runs: Iterator[Trajectory], rest: Iterator[Trajectory], part: Path) -> Iterator[Trajectory]:
    """The runs with the first of `rest` at the end of the first; embedded sub-agents of both behind it."""
    first, more = next(runs), next(rest)
    yield _joined(first, more, part)
    yield from runs
    yield from rest


def _joined(first: Trajectory, more: Trajectory, part: Path) -> Trajectory:
    """One run. What the continuation was told beyond the task came back after the last step of the first part."""
    told = more.task.text.removeprefix(first.task.text).strip()
    steps = list(first.steps)
    if told:
        observation = "\n".join(text for text in (steps[-1].observation, told) if text)
        steps[-1] = msgspec.structs.replace(steps[-1], observation=observation)
    steps += [msgspec.structs.replace(step, index=len(first.steps) + step.index) for step in more.steps]
    notes = {
        key: [note for run in (first, more) for note in run.meta[key] if not _settled(note, part, len(steps))]
        for key in ("warnings", "left_out")
    }
    parts = [part.name, *more.meta.get("continuations", [])]
    entries = first.meta["agent_entries"] + more.meta["agent_entries"]
    meta = {**first.meta, **notes, "continuations": parts, "agent_entries": entries}
    return msgspec.structs.replace(first, steps=tuple(steps), meta=meta)


def _settled(note: str, part: Path, steps: int) -> bool:
    """Whether a note about one part is no longer so of the whole."""
    if note.startswith(CONTINUED):
        return part.name.endswith(note.rpartition("/")[2].rpartition(" ")[2])
    return note == "no task text was found" or (note.startswith("fewer than") and steps >= FEW_STEPS)
