"""`scoutv convert`: recorded runs of any known format -> one file of Scout's JSON lines, or of ATIF documents.

Folders are searched for files of data by name (.json, .jsonl, .ndjson, .traj, .cast, .txt, plain or compressed, and
.eval); what is no run there is passed over. A file that is named and cannot be read is refused. A refused file does not
stop the others.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scout import errors
from scout.errors import InputError
from scout.formats.beside import holder
from scout.formats.convert import WRITERS, Job, Part, cores, lines_of, parts
from scout.formats.detect import READERS
from scout.formats.table import table
from scout.lines import write_lines

_DATA_NAME = re.compile(r"\.((json|jsonl|ndjson|traj|cast|txt)(\.gz|\.zst)?|eval)$")
_PROGRESS_SECONDS = 2.0
_REASON_LINES = 5
_LISTED = 20
"""At most this many refused files, warnings and left-out kinds are listed; the JSON on stdout has all refused ones."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("inputs", nargs="+", metavar="IN", help="file, folder (searched for files of data) or glob")
    parser.add_argument("-o", "--out", required=True, metavar="OUT.jsonl", help="also .jsonl.gz or .jsonl.zst")
    parser.add_argument("--to", choices=list(WRITERS), default="scout", help="atif: one ATIF document a line")
    parser.add_argument("--format", choices=list(READERS), help="read every file as this format instead of detecting")


class _Input(msgspec.Struct, frozen=True):
    path: Path
    named: bool
    """False for a file found in a folder, where files that are no runs are passed over."""


class _Tally:
    """What happened, by format and in total."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = {}
        self.warnings: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.refused: list[tuple[str, str]] = []
        self.passed_over = 0
        self.held = 0
        self.renamed = 0

    def add(self, part: Part) -> None:
        """Count one file."""
        if part.refused is not None:
            self.refused.append((str(part.path), part.refused))
        elif part.format is None:
            self.passed_over += 1
        else:
            self.files[part.format] += 1
            self.runs[part.format] += len(part.ids)
            self.steps[part.format] += part.steps
            self.outcomes.setdefault(part.format, Counter()).update(part.outcomes)
            self.warnings.update(part.warnings)
            self.left_out.update(part.left_out)


def run(args: argparse.Namespace) -> int:
    """Convert; exit code 0, or 1 when a file was refused (everything else is written)."""
    tally = _Tally()
    inputs = _unheld(list(_expand(args.inputs)), tally)
    target = Path(args.out).resolve().parent
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".convert-") as folder:
        jobs = [
            Job(item.path, item.named, Path(folder, str(number)), args.format, args.to)
            for number, item in enumerate(inputs)
        ]
        lines = _lines(jobs, tally, args.to)
        first = next(lines, None)
        if first is not None:
            write_lines(args.out, _chain(first, lines))
    print(_report(tally, args.out), file=sys.stderr)
    result = {
        "out": args.out if first is not None else None,
        "files": tally.files.total(),
        "runs": tally.runs.total(),
        "steps": tally.steps.total(),
        "refused": [{"file": file, "reason": reason} for file, reason in tally.refused],
    }
    print(msgspec.json.encode(result).decode())
    return errors.INPUT if tally.refused or first is None else errors.OK


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _unheld(inputs: list[_Input], tally: _Tally) -> list[_Input]:
    """The inputs without files whose run another input holds."""
    given = {item.path for item in inputs}
    kept = []
    for item in inputs:
        try:
            held = holder(item.path)
        except errors.ScoutError:
            held = None  # the holder is refused by itself, and then this file is all there is of the run
        if held is not None and held in given:
            tally.held += 1
        else:
            kept.append(item)
    return kept


def _expand(patterns: Sequence[str]) -> Iterator[_Input]:
    """Files in the order given, each once. Raises InputError for a name or glob that matches nothing."""
    seen: set[str] = set()
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            found = [_Input(item, False) for item in sorted(path.rglob("*")) if _DATA_NAME.search(item.name)]
        elif path.exists():
            found = [_Input(path, True)]
        else:
            found = [_Input(Path(item), True) for item in sorted(glob.glob(pattern, recursive=True))]
        found = [item for item in found if item.path.is_file()]
        if not found:
            raise InputError(
                f"{errors.printable(pattern)}: no file of runs there. Check the path; nothing was written."
            )
        for item in found:
            real = os.path.realpath(item.path)
            if real not in seen:
                seen.add(real)
                yield item


def _lines(jobs: Sequence[Job], tally: _Tally, to: str) -> Iterator[bytes]:
    """The runs of all files, one a line, with ids made unique. Files that cannot be read go into the tally."""
    ids: set[str] = set()
    spoken = time.monotonic()
    for position, part in enumerate(parts(jobs, cores()), 1):
        tally.add(part)
        if part.format is not None:
            for run_id, line in zip(part.ids, lines_of(part), strict=True):
                free = run_id
                if run_id in ids:
                    tally.renamed += 1
                    free = _free(run_id, ids)
                    line = _renamed(line, free, run_id, to)
                ids.add(free)
                yield line
        if time.monotonic() - spoken >= _PROGRESS_SECONDS:
            spoken = time.monotonic()
            print(f"file {position} of {len(jobs)}, {tally.runs.total()} runs so far", file=sys.stderr)


def _free(run_id: str, ids: set[str]) -> str:
    """An id that no run has yet; verdicts are joined to runs by id, so two runs may not share one."""
    number = 2
    while f"{run_id}~{number}" in ids:
        number += 1
    return f"{run_id}~{number}"


def _renamed(line: bytes, run_id: str, before: str, to: str) -> bytes:
    found: dict[str, Any] = msgspec.json.decode(line)
    found["session_id" if to == "atif" else "id"] = run_id
    place = found.setdefault("extra", {}) if to == "atif" else found
    place["meta"] = {**place.get("meta", {}), "original_id": before}
    return msgspec.json.encode(found)


def _report(tally: _Tally, out: str) -> str:
    rows: list[Sequence[object]] = [("format", "files", "runs", "steps", "passed", "failed", "unknown")]
    total: Counter[str] = Counter()
    for name in tally.runs:
        outcomes = tally.outcomes[name]
        total.update(outcomes)
        rows.append((name, tally.files[name], tally.runs[name], tally.steps[name], *_outcomes(outcomes)))
    sums = (tally.files.total(), tally.runs.total(), tally.steps.total())
    rows.append(("total", *sums, *_outcomes(total)))
    told = [table(rows)]
    told += _notes("refused", [f"{file}\n{_beginning(reason)}" for file, reason in tally.refused])
    told += _notes("warnings", [f"{count} runs: {note}" for note, count in tally.warnings.most_common()])
    told += _notes("left out", [f"in {count} runs: {note}" for note, count in tally.left_out.most_common()])
    if tally.passed_over:
        told.append(f"passed over: {tally.passed_over} files in folders that hold no runs")
    if tally.held:
        told.append(f"not read by themselves: {tally.held} files whose run another file holds")
    if tally.renamed:
        told.append(f"renamed: {tally.renamed} runs whose id another run had (meta.original_id keeps it)")
    told.append(f"wrote {tally.runs.total()} runs to {out}" if tally.runs else "nothing was written: no run was found")
    return errors.printable("\n".join(told))


def _beginning(reason: str) -> str:
    """The first lines of a message, indented; the JSON on stdout has all of it."""
    lines = reason.splitlines()
    if len(lines) > _REASON_LINES + 1:
        lines = [*lines[:_REASON_LINES], f"  ... {len(lines) - _REASON_LINES} more lines"]
    return "\n".join(f"    {line}" for line in lines)


def _outcomes(counts: Counter[str]) -> tuple[int, int, int]:
    return counts["passed"], counts["failed"], counts["unknown"]


def _notes(title: str, notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    more = [f"  ... and {len(notes) - _LISTED} more"] if len(notes) > _LISTED else []
    return [f"{title} ({len(notes)}):", *(f"  {note}" for note in notes[:_LISTED]), *more]
