"""What sets of runs that should be apart have in common: `python -m data_prep.leaks train.jsonl test.jsonl`.

Each file is one set, such as a split or a source. Pairs are named with ids, files and similarity. The exit code is 1
when two sets share a task, a leak key or a run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from data_prep.marks import Item, Mark, items_of, marks, source_of
from data_prep.near import NEAR_TASK, TaskTexts
from scout import errors
from scout.errors import InputError, ScoutError, printable, tell
from scout.formats.near import Index, jaccard
from scout.formats.table import table
from scout.trajectory import Trajectory

NEAR_RUN = 0.8
"""Share of common 8-word runs from which two runs count as near-duplicates."""
LISTED = 200
"""Pairs of a kind that a report names; `found` counts all."""
SHOWN = 5
FORBIDDEN = ("shared_tasks", "shared_leak_keys", "duplicate_texts", "near_tasks")


def leaks(splits: Mapping[str, Iterable[Trajectory]]) -> dict[str, Any]:
    """What two splits have in common, see `compare`. Every run is read once."""
    return compare(
        {
            name: list(marks(Item(run, str(run.meta.get("source_file", name))) for run in runs))
            for name, runs in splits.items()
        }
    )


def compare(splits: Mapping[str, Sequence[Mark]]) -> dict[str, Any]:
    """What two splits have in common, by kind: how much was found, and pairs with ids, files and similarity.

    `near_duplicates` are runs whose steps share at least NEAR_RUN of their 8-word runs, as MinHash estimates it. They
    are reported and not held against the splits: two runs of different tasks may start alike.
    """
    return {
        "shared_tasks": _shared(splits, lambda mark: mark.task),
        "shared_leak_keys": _shared(splits, lambda mark: mark.leak_key),
        "duplicate_texts": _shared(splits, lambda mark: mark.text),
        "near_tasks": _near_tasks(splits),
        "near_duplicates": _near_runs(splits),
    }


def is_leaky(report: Mapping[str, Any]) -> bool:
    """Whether a report of `leaks` forbids to use the splits."""
    return any(report[name]["found"] for name in FORBIDDEN)


def pair(first: Mark, second: Mark, similarity: float = 1.0) -> dict[str, Any]:
    """Two runs as reports name them."""
    return {
        "first": first.id,
        "first_file": first.file,
        "second": second.id,
        "second_file": second.file,
        "similarity": round(similarity, 3),
    }


def _shared(splits: Mapping[str, Sequence[Mark]], key: Callable[[Mark], str | None]) -> dict[str, Any]:
    places: dict[str, dict[str, Mark]] = defaultdict(dict)
    for name, found in splits.items():
        for mark in found:
            value = key(mark)
            if value is not None:
                places[value].setdefault(name, mark)
    shared = [where for where in places.values() if len(where) > 1]
    pairs = [pair(*two) for where in shared for two in combinations(where.values(), 2)]
    return {"found": len(shared), "pairs": pairs[:LISTED]}


def _near_tasks(splits: Mapping[str, Sequence[Mark]]) -> dict[str, Any]:
    """Tasks of two splits whose texts are alike, whatever their ids.

    Found exactly, not by the hashing that makes the groups of a split.
    """
    texts = TaskTexts()
    holders: dict[int, dict[str, Mark]] = defaultdict(dict)
    for name, found in splits.items():
        for mark in found:
            number = texts.add(mark.task, mark.pieces)
            if number is not None:
                holders[number].setdefault(name, mark)
    pairs = []
    for one, two, share in _alike(texts):
        crossing = (
            pair(first, second, share)
            for name, first in holders[one].items()
            for other, second in holders[two].items()
            if name != other and first.task != second.task
        )
        found_pair = next(crossing, None)
        if found_pair is not None:
            pairs.append(found_pair)
    return {"threshold": NEAR_TASK, "found": len(pairs), "pairs": pairs[:LISTED]}


def _alike(texts: TaskTexts) -> Iterator[tuple[int, int, float]]:
    """(number, same or later number, similarity) of texts from NEAR_TASK on; each text is one of itself.

    Exact, by prefix filtering: two sets that are so alike share one of their rarest members.
    """
    own = texts.own()
    frequency = Counter(gram for found in own for gram in found.tolist())
    holders: dict[int, list[int]] = defaultdict(list)
    for number, found in enumerate(own):
        yield number, number, 1.0
        rarest = sorted(found.tolist(), key=lambda gram: (frequency[gram], gram))
        prefix = rarest[: len(rarest) - math.ceil(NEAR_TASK * len(rarest)) + 1]
        for other in sorted({other for gram in prefix for other in holders[gram]}):
            share = jaccard(found, own[other])
            if share >= NEAR_TASK:
                yield other, number, share
        for gram in prefix:
            holders[gram].append(number)


def _near_runs(splits: Mapping[str, Sequence[Mark]]) -> dict[str, Any]:
    """Train comes last and is not kept in the index, so its size costs time and no memory."""
    index = Index(NEAR_RUN)
    indexed: list[Mark] = []
    best: dict[int, tuple[float, Mark]] = {}
    order = sorted(splits, key=lambda name: name == "train")
    for name in order:
        for mark in splits[name]:
            for number, share in index.similar(mark.signature):
                if number not in best or share > best[number][0]:
                    best[number] = share, mark
        if name != order[-1]:
            for mark in splits[name]:
                index.add(len(indexed), mark.signature)
                indexed.append(mark)
    pairs = [pair(indexed[number], other, share) for number, (share, other) in sorted(best.items())]
    highest = max((share for share, _ in best.values()), default=0.0)
    return {
        "threshold": NEAR_RUN,
        "compared": len(indexed),
        "found": len(pairs),
        "highest": round(highest, 3),
        "pairs": pairs[:LISTED],
    }


def show(report: Mapping[str, Any]) -> str:
    """The report for reading: how much of each kind, and its first pairs."""
    lines = [table((name.replace("_", " "), report[name]["found"]) for name in report)]
    for name, figures in report.items():
        if figures["found"]:
            lines.append(f"{name.replace('_', ' ')}, {min(SHOWN, figures['found'])} of {figures['found']}:")
        lines += [
            f"  {row['similarity']:.2f}  {row['first']} ({row['first_file']}) = {row['second']} ({row['second_file']})"
            for row in figures["pairs"][:SHOWN]
        ]
    return printable("\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare files of runs; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.leaks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="one set of runs each, of any known format")
    args = parser.parse_args(arguments)
    try:
        names = [source_of(file) for file in args.files]
        if len(set(names)) < max(2, len(names)):
            raise InputError(f"{', '.join(names)}: give two or more files with different names; each is one set.")
        report = compare({name: list(marks(items_of([file]))) for name, file in zip(names, args.files, strict=True)})
    except (ScoutError, KeyboardInterrupt) as error:
        return tell(error)
    print(show(report), file=sys.stderr)
    print(msgspec.json.encode(report).decode())
    return errors.INPUT if is_leaky(report) else errors.OK


if __name__ == "__main__":
    sys.exit(main())
