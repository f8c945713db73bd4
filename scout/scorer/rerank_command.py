"""`scoutv rerank`: several runs of each task -> the runs in order, best first, one task a line."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import msgspec

from scout import rerank
from scout.errors import OK, UNSCORED, InputError, printable, shown
from scout.lines import write_lines
from scout.scorer import batch
from scout.verdict import Verdict


class Ranking(msgspec.Struct, frozen=True):
    """One line of output."""

    task_id: str
    order: tuple[str, ...]
    """Run ids, best first; unscored ones last."""
    best: str | None
    """None when no run of the task could be scored."""
    tie: bool
    reason: str
    verdicts: tuple[Verdict, ...]
    """In the order of the input."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    batch.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Writes one ranking a task, tasks in the order in which they first appear; UNSCORED when a run has no score."""
    batch.check_out(args.out, args.files)
    total = _check_tasks(args.files)
    source = batch.open_source(args)
    groups: dict[str, list[Verdict]] = {}
    statuses: Counter[str] = Counter()
    for item in batch.judge(args.files, source, total, args.out):
        groups.setdefault(str(item.task_id), []).append(item)
        statuses[item.unscored_reason or ""] += 1
    lines = _lines(groups, source.selector)
    if args.out:
        write_lines(args.out, lines)
        batch.finish(args.out)
    else:
        for line in lines:
            print(line.decode(), flush=True)
    batch.report(statuses)
    return UNSCORED if any(reason for reason in statuses) else OK


def _check_tasks(files: list[str]) -> int:
    """Number of runs; raises InputError for runs without a task id, which belong to no group."""
    total, missing = 0, []
    for item in batch.read_runs(files):
        total += 1
        if item.task.id is None:
            missing.append(item.id)
    if missing:
        raise InputError(
            f"{printable(', '.join(files), 200)}: {len(missing)} of {total} runs have no task.id, such as "
            f"{shown(missing[0])}. It groups the candidates of one task: set it, or use `scoutv score`."
        )
    return total


def _lines(groups: dict[str, list[Verdict]], selector: str) -> Iterator[bytes]:
    for task_id, verdicts in groups.items():
        choice = rerank.choose(verdicts, selector=selector)
        yield msgspec.json.encode(
            Ranking(task_id, choice.order, choice.best, choice.tie, choice.reason, tuple(verdicts))
        )
