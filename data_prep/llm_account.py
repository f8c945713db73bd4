"""What a large model's analyses cost and how many were of use: by length and domain, per kept row, by reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

LENGTHS = (10, 20, 50, 100)
"""Upper ends of the classes of length, in steps."""


class Rejection(msgspec.Struct, frozen=True):
    """One analysis that was not used."""

    steps: str
    attempt: int
    """1-based."""
    kind: str
    reason: str


class SetAside(msgspec.Struct, frozen=True):
    """A run without rows, as it stands in the file of those set aside."""

    id: str
    kind: str
    reason: str
    steps: str
    """Steps of the window whose analyses failed; empty when nothing was asked for."""
    rejections: tuple[Rejection, ...]
    prompt_tokens: int
    completion_tokens: int


class Explained(msgspec.Struct):
    """What came of one run."""

    id: str
    domain: str
    length: int
    rows: list[dict[str, Any]] = []
    set_aside: SetAside | None = None
    rejections: list[Rejection] = []
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Account:
    """Sums over the runs of a split. The same answers give the same sums, whichever call they were paid in."""

    def __init__(self) -> None:
        self.runs = self.rows = self.tries = 0
        self.tokens = self.kept_tokens = (0, 0)
        self._lengths: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._domains: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._rejected: Counter[str] = Counter()
        self.set_aside: list[SetAside] = []

    def add(self, run: Explained) -> None:
        """Counts a run."""
        self.runs += 1
        self.rows += len(run.rows)
        self.tries += sum(row["tries"] for row in run.rows)
        self.tokens = (self.tokens[0] + run.prompt_tokens, self.tokens[1] + run.completion_tokens)
        if run.set_aside is None:
            self.kept_tokens = (
                self.kept_tokens[0] + run.prompt_tokens,
                self.kept_tokens[1] + run.completion_tokens,
            )
        else:
            self.set_aside.append(run.set_aside)
        for table, name in ((self._lengths, length_class(run.length)), (self._domains, run.domain)):
            table[name][0] += run.set_aside is None
            table[name][1] += 1
        self._rejected.update(rejection.kind for rejection in run.rejections)

    def summary(self) -> dict[str, Any]:
        """As it is printed. `acceptance`: [runs with rows, runs]; tokens: [prompt, completion]."""
        rows = max(1, self.rows)
        return {
            "runs": self.runs,
            "rows": self.rows,
            "set_aside": dict(Counter(item.kind for item in self.set_aside).most_common()),
            "acceptance": {
                "length": {name: self._lengths[name] for name in sorted(self._lengths, key=_start)},
                "domain": dict(sorted(self._domains.items())),
            },
            "tries_of_a_kept_row": round(self.tries / rows, 3),
            "tokens_of_a_kept_row": [round(tokens / rows, 1) for tokens in self.kept_tokens],
            "tokens": list(self.tokens),
            "rejected_analyses": dict(self._rejected.most_common()),
        }


def length_class(steps: int) -> str:
    """The class of a run of that many steps, such as `11-20`."""
    below = 0
    for limit in LENGTHS:
        if steps <= limit:
            return f"{below + 1}-{limit}"
        below = limit
    return f"{below + 1}-"


def _start(name: str) -> int:
    return int(name.split("-")[0])
