"""Our own label file, CSV or JSON lines, with the columns run, step, label, reason, annotator (the last two optional).

run: the run's id. step: 1-based; empty for the run as a whole. label: `correct`, `incorrect` or `unlabelled`, or
`first_mistake`, which says besides that all earlier steps are correct; for a run as a whole `correct` or `incorrect`,
which becomes its outcome. What two annotators see differently is left unlabelled until it is adjudicated.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import msgspec

from data_prep.labels.join import Given, Mark, records
from scout.errors import FormatError, InputError, Problem, printable, refuse, shown
from scout.formats.source import HINT
from scout.lines import require_file
from scout.trajectory import StepLabel, Trajectory

COLUMNS = ("run", "step", "label", "reason", "annotator")
_STEP_LABELS = get_args(StepLabel)
_ALLOWED = (*_STEP_LABELS, "first_mistake")
_DIGITS = 10
"""A longer step number is no step; int() of a very long one would be slow."""
DISPUTED = "a step that annotators judge differently"


class Row(msgspec.Struct, frozen=True):
    """One line of a label file."""

    run: str
    label: str
    step: int | None = None
    reason: str | None = None
    annotator: str | None = None


def names(run: Trajectory) -> Iterable[str]:
    """The run's id."""
    yield run.id


def step(run: Trajectory, at: int) -> int | None:
    """The step itself, when the run has so many."""
    return at if 1 <= at <= len(run.steps) else None


def rows(path: str | Path) -> list[tuple[str, Row]]:
    """(place, line) of a label file. Raises FormatError with everything that is wrong with it."""
    problems: list[Problem] = []
    if Path(path).suffix.lower() == ".csv":
        found = list(_csv(Path(path), problems))
    else:
        found = [(where, row) for where, _, row in records(path, Row)]
    for where, row in found:
        allowed = _ALLOWED if row.step is not None else ("correct", "incorrect")
        if not row.run:
            problems.append(Problem(where, "run", "nothing", "the id of a run"))
        if row.label not in allowed:
            problems.append(Problem(where, "label", shown(row.label), ", ".join(allowed)))
        if row.step is not None and row.step < 1:
            problems.append(Problem(where, "step", str(row.step), "1 or more; empty for the run as a whole"))
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    return found


def _csv(path: Path, problems: list[Problem]) -> Iterator[tuple[str, Row]]:
    try:
        # utf-8-sig: spreadsheets put a byte order mark in front.
        with require_file(path).open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, strict=True)
            columns = table.fieldnames or []
            odd = [name for name in columns if name not in COLUMNS]
            missing = [name for name in COLUMNS[:3] if name not in columns]
            if odd or missing:
                problems.append(
                    Problem(f"{path}:1", "columns", printable(", ".join(columns), 200) or "nothing", ", ".join(COLUMNS))
                )
                return
            for line in table:
                where = f"{path}:{table.line_num}"
                if None in line or None in line.values():
                    problems.append(Problem(where, "", "another number of cells than columns", f"{len(columns)} cells"))
                    continue
                cells = {name: text.strip() for name, text in line.items()}
                number = cells["step"]
                if number and not (number.isascii() and number.isdecimal() and len(number) < _DIGITS):
                    problems.append(Problem(where, "step", shown(number), "a whole number, or empty"))
                    continue
                optional = {name: cells.get(name) or None for name in COLUMNS[3:]}
                yield where, Row(cells["run"], cells["label"], int(number) if number else None, **optional)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{printable(str(path))}: no CSV in UTF-8 ({error}). Save it as CSV in UTF-8.") from error


def read(path: str | Path) -> list[Given]:
    """What all annotators of the file together say of each run."""
    of_run: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for where, row in rows(path):
        of_run[row.run].append((where, row))
    return [_given(run, lines) for run, lines in of_run.items()]


def _given(run: str, lines: list[tuple[str, Row]]) -> Given:
    of_step: dict[int, list[Row]] = defaultdict(list)
    for _, row in lines:
        if row.step is not None:
            of_step[row.step].append(row)
            if row.label == "first_mistake":
                for earlier in range(1, row.step):
                    of_step[earlier].append(Row(run, "correct", earlier, None, row.annotator))
    marks, notes = [], []
    for at, found in sorted(of_step.items()):
        labels = {"incorrect" if row.label == "first_mistake" else row.label for row in found} - {"unlabelled"}
        reasons = "; ".join(dict.fromkeys(row.reason for row in found if row.reason))
        if len(labels) > 1:
            notes.append(DISPUTED)
        label: StepLabel = "unlabelled" if len(labels) != 1 else msgspec.convert(min(labels), StepLabel)
        marks.append(Mark(at, label, reasons or None if label != "unlabelled" else None))
    whole = {row.label for _, row in lines if row.step is None}
    if len(whole) > 1:
        notes.append("a run whose outcome annotators see differently")
    passed = whole == {"correct"} if len(whole) == 1 else None
    annotators = tuple(dict.fromkeys(row.annotator for _, row in lines if row.annotator))
    return Given(lines[0][0], run, tuple(marks), "unlabelled", annotators=annotators, passed=passed, notes=tuple(notes))
