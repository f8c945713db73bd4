"""The figures of `scoutv stats` for reading on a terminal: tables, and bars for what has a shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scout.errors import printable
from scout.formats.stats_sums import LAST_STEP_LIMIT
from scout.formats.table import table

_BAR = 40
CLEAN_LIMIT = 0.5


def summary(result: Mapping[str, Any]) -> str:
    """All figures for reading."""
    lines: list[str] = []
    if "runs" in result:
        lines += _run_lines(result["runs"])
    if "rows" in result:
        lines += _row_lines(result["rows"])
    return printable("\n".join(lines))


def _spread_row(name: str, figures: Mapping[str, Any]) -> tuple[object, ...]:
    return (name, *(figures.get(key, "-") for key in ("n", "min", "median", "p90", "max", "mean")))


def _counts(figures: Mapping[str, int]) -> str:
    total = sum(figures.values())
    return ", ".join(f"{name} {n} ({n / total:.1%})" for name, n in figures.items() if n) if total else "none"


def _token_rows(tokens: Mapping[str, Any]) -> list[tuple[object, ...]]:
    return [
        _spread_row(f"tokens: {part}" + (f" ({name})" if len(tokens) > 1 else ""), sizes)
        for name, parts in tokens.items()
        for part, sizes in parts.items()
    ]


def _bars(counts: Mapping[str, int]) -> list[str]:
    most = max(counts.values())
    width = max(len(name) for name in counts)
    return [f"  {name.rjust(width)}  {n:6d}  {'#' * round(_BAR * n / most)}".rstrip() for name, n in counts.items()]


def _token_bars(tokens: Mapping[str, Any], part: str) -> list[str]:
    lines = []
    for name, parts in tokens.items():
        if parts[part]["histogram"]:
            lines += [f"tokens of a {part}, counted by {name}:", *_bars(parts[part]["histogram"])]
    return lines


def _run_lines(figures: Mapping[str, Any]) -> list[str]:
    first = figures["first_mistake"]
    lines = [
        f"{figures['runs']} runs of {figures['tasks']} tasks, "
        f"{figures['tasks_with_mixed_outcomes']} tasks with mixed outcomes",
        table(
            [
                ("", "n", "min", "median", "p90", "max", "mean"),
                _spread_row("steps", figures["steps"]),
                _spread_row("candidates a task", figures["candidates_per_task"]),
                *_token_rows(figures["tokens"]),
            ]
        ),
        *_token_bars(figures["tokens"], "run"),
        _per_task(figures["runs_per_task"]),
        f"outcomes: {_counts(figures['outcomes'])}",
        f"mistakes: {_counts(figures['mistakes'])}",
        f"mistakes and outcomes: {_counts(figures['mistakes_by_outcome'])}",
        f"step labels: {_counts(figures['step_labels'])}",
        f"mistakes by kind: {_counts(figures['mistakes_by_kind'])}",
        f"facts that prove a mistake: {_counts(figures['proof_sizes'])}",
        _duplicate_line(figures["duplicates"]),
        _near_line(figures["near_duplicates"]),
        f"runs with warnings: {figures['runs_with_warnings']}",
    ]
    if first["n"]:
        lines.append(f"first mistake by tenth of the run ({first['n']} runs):")
        tenths = {f"{10 * tenth}-{10 * tenth + 10} %": n for tenth, n in enumerate(first["by_tenth_of_run"])}
        lines += _bars(tenths)
        share = first["share_on_last_step"]
        lines.append(f"first mistake on the last step: {share:.1%}")
        if share > LAST_STEP_LIMIT:
            lines.append('warning: a model can learn to answer "last step"; keep the steps after a first mistake')
    return lines


def _per_task(figures: Mapping[str, Any]) -> str:
    rows: list[tuple[object, ...]] = [("runs of a task", *figures)]
    rows += [(name, *(counts[key] for counts in figures.values())) for name, key in _PER_TASK.items()]
    return table(rows)


_PER_TASK = {"tasks": "tasks", "with mixed outcomes": "mixed"}


def _row_lines(figures: Mapping[str, Any]) -> list[str]:
    without_task = bool(figures["trajectories_without_task_id"])
    lines = [
        f"{figures['rows']} rows of {figures['trajectories']} runs and {figures['tasks']} tasks"
        + (f", {figures['trajectories_without_task_id']} of the runs without a task id" * without_task),
        table(
            [
                ("", "n", "min", "median", "p90", "max", "mean"),
                *_token_rows(figures["tokens"]),
                _spread_row("steps a row", figures["steps_per_row"]),
                _spread_row("rows a run", figures["rows_per_trajectory"]),
            ]
        ),
        *_token_bars(figures["tokens"], "row"),
        *(
            f"longest row by {name}: {row['id']} with {row['tokens']} tokens"
            for name, row in figures["longest_row"].items()
        ),
        f"splits: {_counts(figures['split'])}",
        f"mistakes: {_counts(figures['mistakes'])}",
        f"step labels: {_counts(figures['step_labels'])}",
        _duplicate_line(figures["duplicates"]),
    ]
    clean = figures["mistakes"].get("clean", 0)
    if figures["rows"] and clean / figures["rows"] > CLEAN_LIMIT:
        lines.append(f"warning: more than half of the rows are clean; set scout.clean_share to {CLEAN_LIMIT} for them")
    return lines


def _duplicate_line(figures: Mapping[str, Any]) -> str:
    examples = "; ".join(" = ".join(ids[:3]) for ids in figures["examples"][:3])
    return f"duplicates: {figures['surplus']} surplus copies of {figures['texts']} texts" + (
        f", such as {examples}" if examples else ""
    )


def _near_line(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "near-duplicates: not looked for; that needs the package datasketch (extra `dev`)"
    examples = "; ".join(f"{row['first']} = {row['second']} ({row['similarity']:.2f})" for row in figures["pairs"][:3])
    return f"near-duplicates: {figures['runs']} runs at least {figures['threshold']:.0%} like an earlier one" + (
        f", such as {examples}" if examples else ""
    )
