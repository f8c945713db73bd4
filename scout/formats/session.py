"""Files whose records are the events of one run: an array or JSON lines with one event a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from scout.errors import FormatError, Problem, refuse
from scout.formats.source import HINT, Record, Source, decode
from scout.trajectory import Trajectory

T = TypeVar("T")


def events(records: Iterable[Record], kind: type[T], problems: list[Problem]) -> list[tuple[int, T]]:
    """Every event with its place (line from 1, item from 0). What is wrong with the others goes into `problems`."""
    found: list[tuple[int, T]] = []
    for record in records:
        event = decode(record.raw, kind, record.where, problems)
        if event is not None:
            found.append((record.number or 0, event))
    return found


def read_whole(source: Source, build: Callable[[list[Problem]], Iterable[Trajectory]]) -> Iterator[Trajectory]:
    """The runs that `build` makes of the whole file, all or nothing. Raises FormatError listing all problems."""
    problems: list[Problem] = []
    if not source.first:
        problems.append(Problem(str(source.path), "", "an empty array", "at least one event"))
    try:
        runs = [] if problems else list(build(problems))
    except RecursionError:
        runs = []
        problems.append(Problem(str(source.path), "", "values nested too deep", "at most about 100 levels"))
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    yield from runs
