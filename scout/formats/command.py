"""`scoutv convert`: recorded runs of any known format -> one file of Scout's JSON lines.

Folders are searched for .json, .jsonl and .ndjson files, plain or compressed, and for .eval files; what is no run there
is passed over. A file that is named and cannot be read is refused. A refused file does not stop the others.
"""

from __future__ import annotations

import argparse
import glob
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from scout import errors, trajectory
from scout.errors import InputError, ScoutError
from scout.formats.detect import READERS, identify, refuse_unknown
from scout.formats.source import open_source
from scout.formats.table import table
from scout.trajectory import Trajectory

_DATA_NAME = re.compile(r"\.((json|jsonl|ndjson)(\.gz|\.zst)?|eval)$")
_PROGRESS_SECONDS = 2.0
_REASON_LINES = 5
_LISTED = 20
"""At most this many refused files, warnings and left-out kinds are listed; the JSON on stdout has all refused ones."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("inputs", nargs="+", metavar="IN", help="file, folder (searched for .json and .jsonl) or glob")
    parser.add_argument("-o", "--out", required=True, metavar="OUT.jsonl", help="also .jsonl.gz or .jsonl.zst")
    parser.add_argument("--format", choices=list(READERS), help="read every file as this format instead of detecting")


class _Input(msgspec.Struct, frozen=True):
    path: Path
    named: bool
    """False for a file found in a folder, where files that are no runs are passed over."""


class _Tally(msgspec.Struct):
    """What happened, by format and in total."""

    files: Counter[str]
    runs: Counter[str]
    steps: Counter[str]
    outcomes: dict[str, Counter[str]]
    warnings: Counter[str]
    left_out: Counter[str]
    refused: list[tuple[str, str]]
    passed_over: int = 0
    renamed: int = 0

    def add(self, name: str, run: Trajectory) -> None:
        """Count one run of that format."""
        self.runs[name] += 1
        self.steps[name] += len(run.steps)
        passed = run.outcome.passed
        self.outcomes.setdefault(name, Counter())[
            "unknown" if passed is None else "passed" if passed else "failed"
        ] += 1
        for note in run.meta.get("warnings", ()):
            self.warnings[_general(note)] += 1
        for note in run.meta.get("left_out", ()):
            self.left_out[_general(note)] += 1


def _general(note: str) -> str:
    """A note without its numbers and names, so that equal ones of many runs count as one."""
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'.*|: .*", "...", note))


def run(args: argparse.Namespace) -> int:
    """Convert; exit code 0, or 1 when a file was refused (everything else is written)."""
    inputs = list(_expand(args.inputs))
    tally = _Tally(Counter(), Counter(), Counter(), {}, Counter(), Counter(), [])
    runs = _read(inputs, args.format, tally)
    first = next(runs, None)
    if first is not None:
        trajectory.write(args.out, _chain(first, runs))
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


def _chain(first: Trajectory, rest: Iterator[Trajectory]) -> Iterator[Trajectory]:
    yield first
    yield from rest


def _expand(patterns: Sequence[str]) -> Iterator[_Input]:
    """Files in the order given, each once. Raises InputError for a name or glob that matches nothing."""
    seen: set[Path] = set()
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
            if item.path.resolve() not in seen:
                seen.add(item.path.resolve())
                yield item


def _read(inputs: Sequence[_Input], chosen: str | None, tally: _Tally) -> Iterator[Trajectory]:
    """The runs of all files with ids made unique. Files that cannot be read go into the tally."""
    ids: set[str] = set()
    spoken = time.monotonic()
    for position, item in enumerate(inputs, 1):
        try:
            for run in _read_file(item, chosen, tally, ids):
                yield run
                if time.monotonic() - spoken >= _PROGRESS_SECONDS:
                    spoken = time.monotonic()
                    print(f"file {position} of {len(inputs)}, {tally.runs.total()} runs so far", file=sys.stderr)
        except ScoutError as error:
            tally.refused.append((str(item.path), str(error)))


def _read_file(item: _Input, chosen: str | None, tally: _Tally, ids: set[str]) -> Iterator[Trajectory]:
    source = open_source(item.path)
    name = chosen or identify(source)
    if name is None:
        if item.named:
            refuse_unknown(source)
        tally.passed_over += 1
        return
    for number, found in enumerate(READERS[name].read(source)):
        if not number:
            tally.files[name] += 1
        run = found
        if run.id in ids:
            tally.renamed += 1
            run = _renamed(run, ids)
        ids.add(run.id)
        tally.add(name, run)
        yield run


def _renamed(run: Trajectory, ids: set[str]) -> Trajectory:
    """The run under a free id; verdicts are joined to runs by id, so two runs may not share one."""
    number = 2
    while f"{run.id}~{number}" in ids:
        number += 1
    meta = {**run.meta, "original_id": run.id}
    return msgspec.structs.replace(run, id=f"{run.id}~{number}", meta=meta)


def _report(tally: _Tally, out: str) -> str:
    rows: list[Sequence[object]] = [("format", "files", "runs", "steps", "passed", "failed", "unknown")]
    total: Counter[str] = Counter()
    for name in tally.runs:
        outcomes = tally.outcomes[name]
        total.update(outcomes)
        rows.append((name, tally.files[name], tally.runs[name], tally.steps[name], *_outcomes(outcomes)))
    sums = (tally.files.total(), tally.runs.total(), tally.steps.total())
    rows.append(("total", *sums, *_outcomes(total)))
    parts = [table(rows)]
    parts += _notes("refused", [f"{file}\n{_beginning(reason)}" for file, reason in tally.refused])
    parts += _notes("warnings", [f"{count} runs: {note}" for note, count in tally.warnings.most_common()])
    parts += _notes("left out", [f"in {count} runs: {note}" for note, count in tally.left_out.most_common()])
    if tally.passed_over:
        parts.append(f"passed over: {tally.passed_over} files in folders that hold no runs")
    if tally.renamed:
        parts.append(f"renamed: {tally.renamed} runs whose id another run had (meta.original_id keeps it)")
    parts.append(f"wrote {tally.runs.total()} runs to {out}" if tally.runs else "nothing was written: no run was found")
    return errors.printable("\n".join(parts))


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
