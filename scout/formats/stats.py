"""What figures about runs and rows are made with: digests, counts of words, spreads, histograms, duplicates."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scout.trajectory import Trajectory

Count = Callable[[str], int]


def count_words(text: str) -> int:
    """Number of pieces between white space; a stand-in for tokens that needs no tokenizer."""
    return len(text.split())


def spread(values: Sequence[float]) -> dict[str, Any]:
    """n, min, median, p90, max, mean and sum; only n when there is no value."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p90": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
        "max": ordered[-1],
        "mean": round(statistics.fmean(ordered), 2),
        "sum": sum(ordered),
    }


def histogram(values: Iterable[int]) -> dict[str, int]:
    """How many values lie in 0, 1, 2-3, 4-7, 8-15 and so on, from the first that holds one to the last, in order."""
    counts = Counter(value.bit_length() for value in values)
    if not counts:
        return {}
    return {_bounds(bits): counts[bits] for bits in range(min(counts), max(counts) + 1)}


def _bounds(bits: int) -> str:
    low, high = (1 << bits) // 2, (1 << bits) - 1
    return str(low) if low >= high else f"{low}-{high}"


def run_text(run: Trajectory) -> str:
    """Everything that a verifier could read of a run, as one text; equal texts are duplicates whatever their ids."""
    steps = (f"{step.thought}\x1f{step.action}\x1f{step.observation}" for step in run.steps)
    return "\x1e".join([run.task.text, *steps])


def task_key(run: Trajectory) -> str:
    """The task id, or a hash of the task's text where there is none."""
    return run.task.id if run.task.id is not None else f"text:{digest(run.task.text)}"


def digest(text: str) -> str:
    """Short hash of a text, for comparing many."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def duplicates(texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Texts that occur under more than one id: number of groups, of surplus copies, and the first groups."""
    groups = [list(ids) for ids in texts.values() if len(ids) > 1]
    return {"texts": len(groups), "surplus": sum(len(ids) - 1 for ids in groups), "examples": groups[:5]}
