"""What is measured of one run or one training row; done on all cores, so that sums are all that is left to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from scout.errors import ConfigError, printable
from scout.formats import near
from scout.formats.stats import Count, count_words, digest, run_text, task_key
from scout.trajectory import Labels, Trajectory

WORDS = "white space"
"""Name of counting without a tokenizer."""
GRAM = 8
"""Words side by side by which runs are compared."""

Sizes = dict[str, dict[str, int]]
"""Name of a tokenizer -> part -> tokens of it."""


class Message(msgspec.Struct):
    """One chat message of a prompt."""

    content: str


class Row(msgspec.Struct):
    """The columns of a training row that are counted; other columns may stand beside them."""

    id: str
    trajectory_id: str
    task_id: str | None
    prompt: list[Message]
    completion: str
    indices: list[int]
    gold: list[str]
    split: str | None = None
    prompt_style: str | None = None
    prompt_version: str | None = None


class RunFigures(msgspec.Struct, frozen=True):
    """What counts of a run."""

    id: str
    file: str
    task: str
    passed: bool | None
    mistake: bool | None
    labels: Labels | None
    steps: int
    tokens: Sizes
    text: str
    signature: bytes
    """MinHash of the words of the steps; empty without datasketch."""
    warned: bool


class RowFigures(msgspec.Struct, frozen=True):
    """What counts of a row."""

    row: Row
    """With its texts emptied."""
    tokens: Sizes
    text: str


class Found(msgspec.Struct, frozen=True):
    """A run or row and the file it stands in."""

    file: str
    item: Trajectory | Row
    tokenizers: tuple[str, ...] = ()
    """Folders; white space is counted when there is none."""


def measure(found: Found) -> RunFigures | RowFigures:
    """The figures of a run or row."""
    counters = {name: counter(name) for name in found.tokenizers} or {WORDS: count_words}
    if isinstance(found.item, Trajectory):
        return _run(found.item, found.file, counters)
    return _row(found.item, counters)


def _run(run: Trajectory, file: str, counters: Mapping[str, Count]) -> RunFigures:
    words = ""
    if near.available():
        words = near.normal(" ".join(f"{step.thought} {step.action} {step.observation}" for step in run.steps))
    return RunFigures(
        id=run.id,
        file=file,
        task=task_key(run),
        passed=run.outcome.passed,
        mistake=run.has_mistake,
        labels=run.labels,
        steps=len(run.steps),
        tokens={name: _sizes(run, count) for name, count in counters.items()},
        text=digest(run_text(run)),
        signature=near.signature(near.shingles(words.split(), GRAM)),
        warned=bool(run.meta.get("warnings")),
    )


def _sizes(run: Trajectory, count: Count) -> dict[str, int]:
    sizes = {
        "task": count(run.task.text),
        "thought": sum(count(step.thought) for step in run.steps),
        "action": sum(count(step.action) for step in run.steps),
        "observation": sum(count(step.observation) for step in run.steps),
    }
    return {**sizes, "run": sum(sizes.values())}


def _row(row: Row, counters: Mapping[str, Count]) -> RowFigures:
    prompt = "\n".join(message.content for message in row.prompt)
    tokens = {}
    for name, count in counters.items():
        sizes = {"prompt": count(prompt), "completion": count(row.completion)}
        tokens[name] = {**sizes, "row": sum(sizes.values())}
    return RowFigures(
        row=msgspec.structs.replace(row, prompt=[], completion=""),
        tokens=tokens,
        text=digest(f"{prompt}\x1e{row.completion}"),
    )


@lru_cache(maxsize=8)
def counter(folder: str) -> Callable[[str], int]:
    """Counts tokens with the tokenizer of that folder. Raises ConfigError when there is none."""
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{printable(str(path))}: there is no such file. Give a folder that holds a tokenizer.json.")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError("--tokenizer needs the package tokenizers. Install the extra `train` or `serve`.") from error
    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
