"""Runs and training rows -> a folder that `datasets.load_dataset` takes: Parquet and a data card.

    python -m data_prep.export data/split --rows data/rows --out data/set --name "My runs" --sources sources.yaml

`--sources` is a YAML file that names origin, licence and note of each source; of the public sources that Scout reads
labels of they are known. docs/datasets.md tells the columns.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from data_prep.card import Source, card, read_sources, read_split, without_licence
from data_prep.columns import Record, row_record, run_record, schemas, write_parquet
from data_prep.facts import Facts
from scout.errors import FormatError, InputError, Problem, ScoutError, printable, refuse, tell
from scout.formats.workers import counted
from scout.lines import open_lines
from scout.trajectory import read

SPLITS = ("train", "dev", "test")
SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")


class Row(msgspec.Struct):
    """What an export needs of a training row."""

    id: str
    trajectory_id: str
    prompt: list[dict[str, str]]
    completion: str
    indices: list[int]
    gold: list[str]


def split_files(folder: Path, what: str) -> dict[str, Path]:
    """Split -> its file. Raises InputError when there is none, or one split has two."""
    found: dict[str, Path] = {}
    for split in SPLITS:
        files = [path for suffix in SUFFIXES if (path := folder / f"{split}{suffix}").is_file()]
        if len(files) > 1:
            names = ", ".join(path.name for path in files)
            raise InputError(f"{printable(str(folder))}: {names} are all there. Keep one file for the split {split}.")
        if files:
            found[split] = files[0]
    if not found:
        raise InputError(f"{printable(str(folder))}: no {what} there, that is, none of train, dev and test .jsonl.")
    return found


def export(
    data: Path, rows: Path | None, out: Path, name: str, sources: Mapping[str, Source]
) -> tuple[Facts, dict[str, dict[str, int]]]:
    """Write the folder, whole or not at all; returns what was counted and the records by configuration and split.

    Raises InputError when `out` is there already: files of another export would be taken for parts of this one.
    """
    if out.exists():
        raise InputError(f"{printable(str(out))}: is there already. Remove it, or give the name of a new folder.")
    schema = schemas()
    inputs = {"runs": split_files(data, "runs")} | ({"rows": split_files(rows, "training rows")} if rows else {})
    split = read_split(data)
    facts = Facts()
    written: dict[str, dict[str, int]] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as made:
        folder = Path(made, "set")
        folder.mkdir()
        for config, files in inputs.items():
            records = _runs if config == "runs" else _rows
            written[config] = {}
            for part, path in files.items():
                count = write_parquet(folder / config / f"{part}.parquet", records(path, part, facts), schema[config])
                written[config] |= {part: count} if count else {}
        paths = {config: {part: f"{config}/{part}.parquet" for part in parts} for config, parts in written.items()}
        text = card(name, facts, sources, {config: parts for config, parts in paths.items() if parts}, split)
        (folder / "README.md").write_text(text, "utf-8")
        os.replace(folder, out)
    return facts, written


def _runs(path: Path, split: str, facts: Facts) -> Iterator[Record]:
    for run in counted(read(path), f"runs of {split} exported"):
        facts.add_run(run, split)
        yield run_record(run)


def _rows(path: Path, split: str, facts: Facts) -> Iterator[Record]:
    problems: list[Problem] = []
    for number, line in counted(open_lines(path), f"rows of {split} exported"):
        try:
            msgspec.json.decode(line, type=Row)
            row: dict[str, Any] = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problems.append(Problem(f"{path}:{number}", "", printable(str(error), 200), "a training row"))
            continue
        facts.add_row(row, split)
        yield row_record(row)
    if problems:
        refuse(problems, hint="Write the rows again with `python -m data_prep.explain`.", kind=FormatError)


def main(arguments: list[str] | None = None) -> int:
    """Export; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with runs: train, dev, test .jsonl[.zst|.gz]")
    parser.add_argument("--rows", type=Path, metavar="ROWS", help="folder with training rows, in files named alike")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="must not be there yet")
    parser.add_argument("--name", default="Agent runs", help="title of the data card")
    parser.add_argument("--sources", metavar="FILE.yaml", help="name of a source: {origin, licence, note}")
    args = parser.parse_args(arguments)
    try:
        sources = read_sources(args.sources)
        facts, written = export(args.data, args.rows, args.out, args.name, sources)
    except (ScoutError, OSError, KeyboardInterrupt) as error:
        return tell(error)
    missing = without_licence(facts, sources)
    if missing:
        print(f"no licence is stated for: {printable(', '.join(missing))}; --sources can state it", file=sys.stderr)
    print(msgspec.json.encode({"out": str(args.out), **written}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
