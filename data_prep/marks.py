"""What is remembered of each run while sets are compared: small, so that the runs themselves stay in their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from data_prep.near import pieces
from scout.formats import load
from scout.formats.near import normal, shingles, signature
from scout.formats.stats import digest, run_text, task_key
from scout.formats.workers import counted, each
from scout.trajectory import Trajectory

GRAM = 8
"""Words side by side by which the steps of two runs are compared."""
_DATA_SUFFIXES = (".zst", ".gz", ".jsonl", ".ndjson", ".json")


class Item(NamedTuple):
    """A run and the file it came in."""

    run: Trajectory
    file: str


class Mark(msgspec.Struct, frozen=True):
    """What is remembered of a run."""

    id: str
    file: str
    task: str
    """Key of the task."""
    names: tuple[str, ...]
    """Source, domain and format, by which a part can be held out."""
    leak_key: str | None
    text: str
    """Digest of all that a verifier can read of the run."""
    pieces: tuple[str, ...]
    """Lines and sentences of the task; empty where `leak_key` says what the run's world shares with others."""
    mistake: bool | None
    origin: str | None
    """How its labels were made; None without labels."""
    steps: int
    signature: bytes
    """MinHash of the words of the steps."""


def mark(item: Item) -> Mark:
    """What to remember of the run."""
    run = item.run
    key = run.meta.get("leak_key")
    words = normal(" ".join(f"{step.thought} {step.action} {step.observation}" for step in run.steps)).split()
    return Mark(
        id=run.id,
        file=item.file,
        task=task_key(run),
        names=tuple(str(run.meta[name]) for name in ("source", "domain", "format") if run.meta.get(name)),
        leak_key=None if key is None else msgspec.json.encode(key).decode(),
        text=digest(run_text(run)),
        pieces=() if key is not None else pieces(run.task.text),
        mistake=run.has_mistake,
        origin=run.labels.origin if run.labels else None,
        steps=len(run.steps),
        signature=signature(shingles(words, GRAM)),
    )


def marks(items: Iterable[Item]) -> Iterator[Mark]:
    """The mark of every run, in order, made on all cores."""
    return each(mark, counted(items, "runs compared"))


def items_of(files: Sequence[str]) -> Iterator[Item]:
    """The runs of files of any known format, with `meta.source`: the name of the file, unless the run has one.

    A second run with the id of another becomes `id~2`, as in `scoutv convert`, and keeps the old one in
    `meta.original_id`. Two calls give the same.
    """
    ids: set[str] = set()
    for file in files:
        source = source_of(file)
        for run in load(file):
            meta = {"source": source, **run.meta}
            run_id, number = run.id, 1
            while run_id in ids:
                number += 1
                run_id = f"{run.id}~{number}"
            if number > 1:
                meta["original_id"] = run.id
            ids.add(run_id)
            yield Item(msgspec.structs.replace(run, id=run_id, meta=meta), file)


def source_of(file: str) -> str:
    """The file's name without the suffixes of data and compression."""
    name = Path(file).name
    for suffix in _DATA_SUFFIXES:
        name = name.removesuffix(suffix)
    return name
