"""Which tasks are the same in other words: their texts without what many tasks share, compared by runs of three words.

Benchmarks wrap each question in the same policy, tool list or output format, often much longer than the question. A
line or sentence that stands in many tasks says nothing of any of them, so it is left out before texts are compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from scout.formats.near import Index, Shingles, jaccard, normal, shingles, signature
from scout.formats.stats import digest

NEAR_TASK = 0.7
"""Share of common three-word runs from which two tasks are one. On the public sets tried (578 texts) the same question
in another wrapping or wording has 0.79 or more, different questions 0.71 or less but for polite one-liners."""
COMMON_TASKS = 8
"""A line or sentence in so many tasks is wrapping. In smaller sets wrapping counts, and joins more than it must."""
SIZE = 3

_PIECE = re.compile(r"\n|(?<=[.!?:;])\s+")


def pieces(text: str) -> tuple[str, ...]:
    """Lines and sentences of a task's text, as `normal` leaves them; without those that hold no word."""
    return tuple(piece for piece in map(normal, _PIECE.split(text)) if piece)


class TaskTexts:
    """Distinct task texts, numbered as they come, with the tasks that carry them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[tuple[str, ...]] = []
        self._known: dict[str, str] = {}
        """One object for each piece: most texts repeat the pieces of others."""
        self._tasks: list[set[str]] = []
        self._own: list[Shingles] = []

    def add(self, task: str, text: tuple[str, ...]) -> int | None:
        """Number of the text, which may be known already; None for a text without words.

        task: its key, see `scout.formats.stats.task_key`.
        """
        if not text:
            return None
        number = self._numbers.setdefault(digest(" ".join(text)), len(self._texts))
        if number == len(self._texts):
            self._texts.append(tuple(self._known.setdefault(piece, piece) for piece in text))
            self._tasks.append(set())
        self._tasks[number].add(task)
        return number

    def own(self) -> list[Shingles]:
        """Of each text what is not wrapping; of a text that is nothing else, all of it. Call it after all `add`."""
        if len(self._own) < len(self._texts):
            holders: dict[str, set[str]] = defaultdict(set)
            for text, tasks in zip(self._texts, self._tasks, strict=True):
                for piece in text:
                    if len(holders[piece]) < COMMON_TASKS:
                        holders[piece] |= tasks
            self._own = [
                _shingles(tuple(piece for piece in text if len(holders[piece]) < COMMON_TASKS) or text)
                for text in self._texts
            ]
        return self._own

    def pairs(self) -> Iterator[tuple[int, int, float]]:
        """(number, later number, similarity) of every two texts that are near-duplicates."""
        own = self.own()
        index = Index(NEAR_TASK)
        for number, found in enumerate(own):
            sketch = signature(found)
            for other in index.candidates(sketch):
                share = jaccard(own[other], found)
                if share >= NEAR_TASK:
                    yield other, number, share
            index.add(number, sketch)


def _shingles(text: tuple[str, ...]) -> Shingles:
    return np.unique(np.concatenate([shingles(piece.split(), SIZE) for piece in text]))
