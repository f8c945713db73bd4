"""`scoutv stats`: figures about files of runs or of training rows; one JSON object on stdout, a table on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from scout import errors
from scout.errors import ConfigError, InputError, Problem, printable, refuse
from scout.formats.detect import load
from scout.formats.source import decode, keys, open_source
from scout.formats.stats import LAST_STEP_LIMIT, Count, Row, RowStats, RunStats, count_words
from scout.formats.table import table

_HINT = "Write the rows again with `python -m data_prep.explain`."
_BAR = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="runs of any known format, or training rows")
    parser.add_argument("--tokenizer", metavar="DIR", help="count with DIR/tokenizer.json instead of by white space")


def run(args: argparse.Namespace) -> int:
    """Print the figures of all files together."""
    count = counter(args.tokenizer)
    runs, rows = RunStats(count), RowStats(count)
    held: set[str] = set()
    for file in args.files:
        held.add(_add(file, runs, rows))
    result: dict[str, Any] = {"files": list(args.files), "counted_with": args.tokenizer or "white space"}
    if "runs" in held:
        result["runs"] = runs.result()
    if "rows" in held:
        result["rows"] = rows.result()
    print(summary(result), file=sys.stderr)
    print(msgspec.json.encode(result).decode())
    return errors.OK


def _add(file: str, runs: RunStats, rows: RowStats) -> str:
    if file.endswith(".parquet"):
        for stored in _parquet(file):
            rows.add(stored)
        return "rows"
    source = open_source(file)
    if not {"prompt", "completion", "gold"} <= keys(source.first).keys():
        for found in load(file):
            runs.add(found)
        return "runs"
    problems: list[Problem] = []
    for record in source.records():
        row = decode(record.raw, Row, record.where, problems)
        if row is not None:
            rows.add(row)
    if problems:
        refuse(problems, hint=_HINT)
    return "rows"


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


def counter(folder: str | None) -> Count:
    """Counts tokens with the tokenizer of that folder, or pieces between white space when there is none."""
    if folder is None:
        return count_words
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{printable(str(path))}: there is no such file. Give a folder that holds a tokenizer.json.")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError("--tokenizer needs the package tokenizers. Install the extra `train` or `serve`.") from error
    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def summary(result: dict[str, Any]) -> str:
    """The figures for reading: one line each, and the histogram of first mistakes."""
    lines: list[str] = []
    if "runs" in result:
        lines += _run_lines(result["runs"])
    if "rows" in result:
        lines += _row_lines(result["rows"])
    return printable("\n".join(lines))


def _spread_row(name: str, figures: dict[str, float]) -> tuple[object, ...]:
    return (name, *(figures.get(key, "-") for key in ("n", "min", "median", "p90", "max", "mean")))


def _counts(figures: dict[str, int]) -> str:
    total = sum(figures.values())
    return ", ".join(f"{name} {n} ({n / total:.1%})" for name, n in figures.items() if n) if total else "none"


def _run_lines(figures: dict[str, Any]) -> list[str]:
    first = figures["first_mistake"]
    lines = [
        f"{figures['runs']} runs of {figures['tasks']} tasks, "
        f"{figures['tasks_with_mixed_outcomes']} tasks with mixed outcomes",
        table(
            [
                ("", "n", "min", "median", "p90", "max", "mean"),
                _spread_row("steps", figures["steps"]),
                _spread_row("candidates a task", figures["candidates_per_task"]),
                *(_spread_row(f"tokens: {part}", sizes) for part, sizes in figures["tokens"].items()),
            ]
        ),
        f"outcomes: {_counts(figures['outcomes'])}",
        f"mistakes: {_counts(figures['mistakes'])}",
        f"mistakes and outcomes: {_counts(figures['mistakes_by_outcome'])}",
        f"step labels: {_counts(figures['step_labels'])}",
        f"mistakes by kind: {_counts(figures['mistakes_by_kind'])}",
        f"facts that prove a mistake: {_counts(figures['proof_sizes'])}",
        _duplicate_line(figures["duplicates"]),
        f"runs with warnings: {figures['runs_with_warnings']}",
    ]
    if first["n"]:
        lines.append(f"first mistake by tenth of the run ({first['n']} runs):")
        most = max(first["by_tenth_of_run"])
        lines += [
            f"  {10 * tenth:3d}-{10 * tenth + 10:3d} %  {n:6d}  {'#' * round(_BAR * n / most)}".rstrip()
            for tenth, n in enumerate(first["by_tenth_of_run"])
        ]
        share = first["share_on_last_step"]
        lines.append(f"first mistake on the last step: {share:.1%}")
        if share > LAST_STEP_LIMIT:
            lines.append('warning: a model can learn to answer "last step"; keep the steps after a first mistake')
    return lines


def _row_lines(figures: dict[str, Any]) -> list[str]:
    return [
        f"{figures['rows']} rows of {figures['trajectories']} runs and {figures['tasks']} tasks",
        table(
            [
                ("", "n", "min", "median", "p90", "max", "mean"),
                *(_spread_row(f"tokens: {part}", sizes) for part, sizes in figures["tokens"].items()),
                _spread_row("steps a row", figures["steps_per_row"]),
                _spread_row("rows a run", figures["rows_per_trajectory"]),
            ]
        ),
        f"longest row: {figures['longest_row']['id']} with {figures['longest_row']['tokens']} tokens",
        f"splits: {_counts(figures['split'])}",
        f"mistakes: {_counts(figures['mistakes'])}",
        f"step labels: {_counts(figures['step_labels'])}",
        _duplicate_line(figures["duplicates"]),
    ]


def _duplicate_line(figures: dict[str, Any]) -> str:
    examples = "; ".join(" = ".join(ids[:3]) for ids in figures["examples"][:3])
    return f"duplicates: {figures['surplus']} surplus copies of {figures['texts']} texts" + (
        f", such as {examples}" if examples else ""
    )
