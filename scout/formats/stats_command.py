"""`scoutv stats`: figures about files of runs or of training rows; one JSON object on stdout, a table on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scout import errors
from scout.errors import ConfigError, InputError, Problem, printable, refuse
from scout.formats import stats_plot
from scout.formats.detect import load
from scout.formats.source import decode, open_source
from scout.formats.stats_measure import WORDS, Found, Row, RunFigures, counter, measure
from scout.formats.stats_sums import RowStats, RunStats
from scout.formats.stats_text import summary
from scout.formats.workers import counted, each
from scout.trajectory import Trajectory

_HINT = "Write the rows again with `python -m data_prep.explain`."


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="runs of any known format, or training rows")
    parser.add_argument(
        "--tokenizer", action="append", default=[], metavar="DIR",
        help="count with DIR/tokenizer.json instead of by white space; may be given several times",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="draw the figures into a .png or .svg file")


def run(args: argparse.Namespace) -> int:
    """Print the figures of all files together."""
    for folder in args.tokenizer:
        counter(folder)
    if args.plot:
        stats_plot.require(args.plot)
    result = describe(args.files, args.tokenizer)
    if args.plot:
        stats_plot.write(args.plot, result)
    print(summary(result), file=sys.stderr)
    print(msgspec.json.encode(result).decode())
    return errors.OK


def describe(files: Sequence[str], tokenizers: Sequence[str] = ()) -> dict[str, Any]:
    """The figures of all files together, as JSON values; `runs` and `rows` where there are some.

    tokenizers: folders with a tokenizer.json; words between white space are counted when there is none.
    """
    runs, rows = RunStats(), RowStats()
    result: dict[str, Any] = {"files": list(files), "counted_with": list(tokenizers) or [WORDS]}
    found = (Found(file, item, tuple(tokenizers)) for file in files for item in _items(file))
    for figures in each(measure, counted(found, "runs or rows counted")):
        if isinstance(figures, RunFigures):
            runs.add(figures)
            result["runs"] = runs
        else:
            rows.add(figures)
            result["rows"] = rows
    return {name: value.result() if isinstance(value, RunStats | RowStats) else value for name, value in result.items()}


def _items(file: str) -> Iterator[Trajectory | Row]:
    if file.endswith(".parquet"):
        yield from _parquet(file)
        return
    source = open_source(file)
    if not {"prompt", "completion", "gold"} <= source.members.keys():
        yield from load(file)
        return
    problems: list[Problem] = []
    for record in source.records():
        row = decode(record.raw, Row, record.where, problems)
        if row is not None:
            yield row
    if problems:
        refuse(problems, hint=_HINT)


def _parquet(file: str) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError(
            f"{printable(file)}: Parquet needs pyarrow. Install the extra `train`, or give the .jsonl rows."
        ) from error
    if not Path(file).is_file():
        raise InputError(f"{printable(file)}: there is no such file. Check the path.")
    number = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=256):
            for values in batch.to_pylist():
                number += 1
                yield msgspec.convert(values, Row)
    except msgspec.ValidationError as error:
        refuse([Problem(f"{file}:{number}", "", str(error), "the columns of a training row")], hint=_HINT)
    except ArrowException as error:
        raise InputError(f"{printable(file)}: no Parquet ({printable(str(error), 200)}). {_HINT}") from error
