"""Outcomes that lie beside a run in files of their own, as evaluations of SWE-bench leave them.

Read are `outcomes.jsonl` (`resolved` for the `path` of a run) and `results.json` with lists of instance ids. An
instance that no list of failures names did not fail: it may not have been evaluated.
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from pathlib import Path, PurePath

import msgspec

from scout.errors import ScoutError
from scout.lines import open_lines
from scout.trajectory import Outcome

ROWS = "outcomes.jsonl"
LISTS = ("results.json", os.path.join("results", "results.json"))
_LEVELS_OF_ROWS = 3
"""`<rows>/<run>/trajs/<instance>.traj`: rows name the path, so a folder high up can be trusted."""
_LEVELS_OF_LISTS = 2
"""`<run>/trajs/<instance>.traj`: lists name no run, so only the run's own folder can be trusted."""


class _Row(msgspec.Struct):
    path: str
    resolved: bool | None = None


class _Lists(msgspec.Struct):
    resolved: list[str] | int | None = None
    resolved_ids: list[str] = []
    unresolved: list[str] | int | None = None
    unresolved_ids: list[str] = []


def outcome_beside(path: Path, instance_id: str) -> Outcome:
    """What the evaluation says of the run in this file; unknown where it says nothing."""
    place = os.path.abspath(path)
    folders = _above(place, _LEVELS_OF_ROWS)
    for folder in folders:
        resolved = _of_rows(os.path.join(folder, ROWS), place[len(folder) :].lstrip(os.sep).replace(os.sep, "/"))
        if resolved is not None:
            return Outcome(passed=resolved)
    for folder in folders[:_LEVELS_OF_LISTS]:
        for name in LISTS:
            resolved = _of_lists(os.path.join(folder, name), instance_id)
            if resolved is not None:
                return Outcome(passed=resolved)
    return Outcome()


def run_name(path: Path, stem: str) -> str:
    """Name of a run whose instance many runs share: the folder of the run and the file's name."""
    for folder in _above(os.path.abspath(path)):
        name = os.path.basename(folder)
        if name not in ("trajs", stem, ""):
            return f"{name}/{stem}"
    return stem


def _above(place: str, levels: int = 100) -> list[str]:
    """The folders that the file lies in, from the nearest, as text: paths as objects cost more than the run's JSON."""
    folders: list[str] = []
    while len(folders) < levels and (folder := os.path.dirname(place)) != place:
        folders.append(folder)
        place = folder
    return folders


def _of_rows(path: str, name: str) -> bool | None:
    try:
        told = os.stat(path)
    except OSError:
        return None
    return _rows(path, told.st_mtime_ns, told.st_size).get(name)


@lru_cache(maxsize=8)
def _rows(path: str, _changed: int, _size: int) -> dict[str, bool | None]:
    """What the file says of each path, up to where it is damaged; the first row of a path counts. Kept until the file
    changes, since all runs of a folder ask the same file."""
    found: dict[str, bool | None] = {}
    with contextlib.suppress(OSError, ScoutError):
        for _, line in open_lines(path):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                row = msgspec.json.decode(line, type=_Row)
                found.setdefault(PurePath(row.path).as_posix(), row.resolved)
    return found


def _of_lists(path: str, instance_id: str) -> bool | None:
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_Lists)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if instance_id in [*_named(found.resolved), *found.resolved_ids]:
        return True
    return False if instance_id in [*_named(found.unresolved), *found.unresolved_ids] else None


def _named(value: list[str] | int | None) -> list[str]:
    """The ids; some reports have their number in this place."""
    return value if isinstance(value, list) else []
