"""Runs -> train, dev and test by task: `python -m data_prep.split RUNS... --out DIR --seed 7 --test-tasks 60 ...`.

Runs stay together that share a task, a leak key (`meta["leak_key"]`, what a model could memorise: in the mystery grid
the effect map), a task text, whole or nearly, or all of their text, whatever files they come from. `--held-out` sends a
domain, a source or a format to test whole. What was decided is then checked by other code, which knows nothing of the
grouping. The runs themselves stay in their files until they are written.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from data_prep.groups import Groups
from data_prep.leaks import compare, is_leaky, leaks
from data_prep.marks import Item, Mark, items_of, marks
from scout import trajectory
from scout.errors import InputError, ScoutError, printable, tell
from scout.formats.stats import task_key
from scout.formats.table import table
from scout.formats.workers import counted
from scout.lines import write_lines
from scout.trajectory import Trajectory

__all__ = ["SPLITS", "assign", "is_leaky", "leaks", "main", "require_apart", "split", "write"]

SPLITS = ("train", "dev", "test")
CLEAN_LIMIT = 0.5
"""A larger share of clean runs in training rewards a verifier for calling everything correct."""


def split(
    trajectories: Iterable[Trajectory], *, seed: int, test_tasks: int, dev_tasks: int, held_out: Sequence[str] = ()
) -> dict[str, list[Trajectory]]:
    """The runs by split, each split in the order of the input; the same seed gives the same split. See `assign`."""
    runs = list(trajectories)
    found = list(marks(Item(run, "") for run in runs))
    of_task, _ = assign(found, seed=seed, test_tasks=test_tasks, dev_tasks=dev_tasks, held_out=held_out)
    parts: dict[str, list[Trajectory]] = {name: [] for name in SPLITS}
    for run in runs:
        parts[of_task[task_key(run)]].append(run)
    return parts


def assign(
    found: Sequence[Mark], *, seed: int, test_tasks: int, dev_tasks: int, held_out: Sequence[str] = ()
) -> tuple[dict[str, str], Groups]:
    """(task key -> split, the groups of tasks that stayed together).

    held_out: names of domains, sources or formats; their tasks, and all that must stay with them, are test tasks beside
    the `test_tasks`. Raises InputError when there are not enough tasks, when runs that belong together make the numbers
    impossible, or when no run has one of the names.
    """
    groups = Groups(found)
    order = sorted(groups.tasks)
    random.Random(seed).shuffle(order)
    held = _held_out(found, groups, held_out)
    assigned = dict.fromkeys(held, "test")
    for name, wanted in (("test", test_tasks), ("dev", dev_tasks)):
        for group in _take([group for group in order if group not in assigned], groups.tasks, wanted, name):
            assigned[group] = name
    if len(assigned) == len(order):
        besides = f", {_count(groups.tasks, held)} held out" if held else ""
        raise InputError(
            f"{_count(groups.tasks, order)} tasks: none is left for training after {test_tasks} for test and "
            f"{dev_tasks} for dev{besides}. Collect more tasks or ask for fewer."
        )
    return {task: assigned.get(group, "train") for group, tasks in groups.tasks.items() for task in tasks}, groups


def _held_out(found: Sequence[Mark], groups: Groups, names: Sequence[str]) -> list[str]:
    """Groups with a task of one of these names, in order."""
    known = Counter(name for mark in found for name in mark.names)
    missing = [name for name in names if name not in known]
    if missing:
        raise InputError(
            f"no run has the domain, source or format {', '.join(map(printable, missing))}. "
            f"There are: {', '.join(printable(name) for name, _ in known.most_common(20)) or 'none'}."
        )
    tasks = {mark.task for mark in found if set(names) & set(mark.names)}
    return sorted(group for group, members in groups.tasks.items() if members & tasks)


def _take(order: Sequence[str], groups: Mapping[str, set[str]], wanted: int, name: str) -> Iterator[str]:
    """The first groups that together hold exactly `wanted` tasks; a group too large for the rest is passed over."""
    left = wanted
    for group in order:
        if len(groups[group]) <= left:
            left -= len(groups[group])
            yield group
    if left:
        raise InputError(
            f"{name}: {wanted} tasks were asked for, {wanted - left} can be had of {_count(groups, order)} "
            f"(in {len(order)} groups that must stay together). Collect more tasks or ask for fewer."
        )


def _count(groups: Mapping[str, set[str]], names: Iterable[str]) -> int:
    return sum(len(groups[name]) for name in names)


def write(files: Sequence[str], out: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Split the runs of the files, check the splits and write them with `split.json`.

    settings: the options of `assign`. Returns what `split.json` holds and the table to show. Raises InputError, and
    writes nothing, when the splits share a task, a leak key or a run.
    """
    found = list(marks(items_of(files)))
    of_task, groups = assign(found, **settings)
    parts: dict[str, list[Mark]] = {name: [] for name in SPLITS}
    for mark in found:
        parts[of_task[mark.task]].append(mark)
    report = compare(parts)
    require_apart(report)
    for name in SPLITS:
        runs = (item.run for item in items_of(files) if of_task[task_key(item.run)] == name)
        trajectory.write(out / f"{name}.jsonl.zst", counted(runs, f"runs written to {name}"))
    tasks = {name: sorted({mark.task for mark in members}) for name, members in parts.items()}
    record = {
        "files": list(files),
        **settings,
        "runs": {name: len(members) for name, members in parts.items()},
        "tasks": {name: len(names) for name, names in tasks.items()},
        "sources": {name: _sources(members) for name, members in parts.items()},
        "label_origins": {name: origins(members) for name, members in parts.items()},
        "clean_share": {name: clean_share(members) for name, members in parts.items()},
        "joined": groups.report(),
        "leaks": report,
        "task_ids": tasks,
    }
    write_lines(out / "split.json", [msgspec.json.format(msgspec.json.encode(record), indent=1)])
    return record, _show(parts, record)


def require_apart(report: Mapping[str, Any]) -> None:
    """Raises InputError when a report of `leaks` forbids to use the splits."""
    if is_leaky(report):
        raise InputError(
            f"the splits leak, nothing was written: {msgspec.json.encode(report).decode()}. "
            "Give runs of one task the same task.id and worlds their own meta.leak_key."
        )


def _sources(members: Sequence[Mark]) -> dict[str, int]:
    return dict(Counter(mark.names[0] for mark in members if mark.names).most_common())


def origins(members: Iterable[Mark]) -> dict[str, int]:
    """Labelled runs by how their labels were made, the most frequent first."""
    return dict(Counter(mark.origin for mark in members if mark.origin is not None).most_common())


def clean_share(members: Iterable[Mark]) -> float | None:
    """Share of runs without a mistake among those of which it is known; None when it is known of none."""
    known = [mark.mistake for mark in members if mark.mistake is not None]
    return round(known.count(False) / len(known), 4) if known else None


def _show(parts: Mapping[str, Sequence[Mark]], record: Mapping[str, Any]) -> str:
    rows: list[Sequence[object]] = [
        ("split", "tasks", "runs", "steps", "with mistake", "clean", "not known", "clean share")
    ]
    for name, members in parts.items():
        known = Counter(mark.mistake for mark in members)
        share = record["clean_share"][name]
        rows.append(
            (name, record["tasks"][name], len(members), sum(mark.steps for mark in members), known[True], known[False],
             known[None], "-" if share is None else f"{share:.3f}")
        )  # fmt: skip
    near, joined = record["leaks"]["near_duplicates"], record["joined"]
    lines = [
        table(rows),
        "joined: " + ", ".join(f"{why.replace('_', ' ')} {joined[why]['found']}" for why in joined),
        "shared tasks 0, shared leak keys 0, duplicate texts 0, near tasks 0; near-duplicates "
        f"{near['found']} of {near['compared']} held-out runs (highest {near['highest']})",
    ]
    for name, found in record["label_origins"].items():
        if "injected" in found and len(found) > 1:
            others = ", ".join(f"{number} {origin}" for origin, number in found.items() if origin != "injected")
            lines.append(
                f"warning: {name} mixes {found['injected']} runs with an injected fault with others ({others}); "
                "report figures for each apart, as labels.origin tells them"
            )
    share = record["clean_share"]["train"]
    if share is not None and share > CLEAN_LIMIT:
        lines.append(
            f"warning: {share:.0%} of the labelled training runs are clean; a recipe's scout.clean_share of "
            f"{CLEAN_LIMIT} leaves out clean rows until no more than half are"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Split files of runs; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.split",
        description="Split runs into train, dev and test by task.",
        epilog="example: python -m data_prep.split runs.jsonl --out data/split --seed 7 --test-tasks 60 --dev-tasks 20",
    )
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="files of runs, of any known format")
    parser.add_argument("--out", required=True, metavar="DIR", help="gets {train,dev,test}.jsonl.zst and split.json")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--test-tasks", type=int, required=True)
    parser.add_argument("--dev-tasks", type=int, required=True)
    parser.add_argument(
        "--held-out", nargs="+", default=[], metavar="NAME", help="domains, sources or formats that are for test only"
    )
    args = parser.parse_args(arguments)
    if min(args.test_tasks, args.dev_tasks) < 0:
        parser.error("--test-tasks and --dev-tasks are 0 or more")
    settings = {
        "seed": args.seed, "test_tasks": args.test_tasks, "dev_tasks": args.dev_tasks, "held_out": args.held_out
    }  # fmt: skip
    try:
        record, shown = write(args.runs, Path(args.out), settings)
    except (ScoutError, KeyboardInterrupt) as error:
        return tell(error)
    print(printable(shown), file=sys.stderr)
    kept = {name: record[name] for name in ("runs", "tasks", "clean_share")}
    print(msgspec.json.encode({"out": args.out, **kept}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
