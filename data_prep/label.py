"""Labels of people (or of a program) + runs -> labelled runs.

    python -m data_prep.label --source plain --runs runs.jsonl --labels labels.csv --out labelled.jsonl

Only runs with a label are written. What found no place is counted in the final table and listed beside the output.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from data_prep.labels import SOURCES
from data_prep.labels.join import Report, attach
from scout import trajectory
from scout.errors import FormatError, InputError, ScoutError, printable, tell
from scout.formats import load
from scout.formats.table import table
from scout.lines import write_lines
from scout.trajectory import Trajectory

_DATA_NAME = re.compile(r"\.(json|jsonl|ndjson)(\.gz|\.zst)?$")


def runs_in(paths: Sequence[Path], passed_over: Counter[str]) -> Iterator[Trajectory]:
    """The runs of files and folders. A file in a folder that holds no run is counted; one that is named is refused."""
    for path in paths:
        if not path.is_dir():
            yield from load(path)
            continue
        for file in sorted(item for item in path.rglob("*") if _DATA_NAME.search(item.name)):
            try:
                yield from load(file)
            except FormatError:
                passed_over["files without a run that Scout reads"] += 1


def label(source: str, runs: Sequence[Path], labels: Sequence[Path], out: Path) -> Report:
    """Write the labelled runs, and what found no place to `<out>.left_out.txt`; returns what became of the labels.

    Raises InputError, and writes nothing, when no run got a label.
    """
    report = Report()
    module = SOURCES[source]
    files = [file for path in labels for file in (sorted(path.rglob("*.json*")) if path.is_dir() else [path])]
    given = [item for file in files for item in module.read(file)]
    found = list(attach(runs_in(runs, report.left_out), given, module.names, module.step, report))
    if not found:
        reasons = "; ".join(report.details[:3]) or "there are no runs"
        raise InputError(
            f"none of {len(given)} label records could be used ({printable(reasons)}). Are these the runs they are of?"
        )
    trajectory.write(out, found)
    if report.details:
        write_lines(f"{out}.left_out.txt", (line.encode() for line in report.details))
    return report


def show(report: Report) -> str:
    """The final table."""
    rows: list[tuple[str, int]] = [("labelled runs", report.labelled)]
    rows += [(f"  known: {name}", number) for name, number in sorted(report.known.items())]
    rows += [(f"steps {name}", report.steps[name]) for name in ("correct", "incorrect", "unlabelled")]
    rows.append(("runs without a label", report.without))
    rows += [(f"left out: {name}", number) for name, number in sorted(report.left_out.items())]
    return table(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Label runs; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.label", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=list(SOURCES), required=True, help="who made the labels")
    parser.add_argument("--runs", type=Path, nargs="+", required=True, metavar="RUNS", help="files or folders")
    parser.add_argument("--labels", type=Path, nargs="+", required=True, metavar="LABELS", help="files or folders")
    parser.add_argument("--out", type=Path, required=True, metavar="LABELLED.jsonl")
    args = parser.parse_args(argv)
    try:
        report = label(args.source, args.runs, args.labels, args.out)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    print(printable(show(report)), file=sys.stderr)
    print(msgspec.json.encode({"out": str(args.out), "runs": report.labelled, "left_out": report.left_out}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
