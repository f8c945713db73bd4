"""One analysis of one run: what it has said so far, window by window."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from scout.neutral import neutralise
from scout.scorer.readings import Readings
from scout.verdict import Reply


def seed(trajectory_id: str, chain: int, window: int) -> int:
    """A seed below 2**31 that depends on nothing but its arguments, so neither batch order nor other runs matter."""
    digest = hashlib.blake2b(f"{chain}/{window}/{trajectory_id}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 33


@dataclass
class Chain:
    """One of the K analyses of a run. It carries its own state from window to window."""

    number: int
    """1-based."""
    state: str | None = None
    """What it wrote down for the next window; None before the first one."""
    problem: str | None = None
    """Why it is dead; None while every reply was readable."""
    labels: dict[int, str] = field(default_factory=dict)
    """Step index -> the label it wrote."""
    reasons: dict[int, str] = field(default_factory=dict)
    p_incorrect: dict[int, float] = field(default_factory=dict)
    p_yes: float = 1.0
    """Product over its windows: the run is clean when every window is."""
    contradictions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take(self, reply: Reply, readings: Readings, *, last: bool, read_at: str, where: str) -> None:
        """Adds the reply to one window, or dies of it.

        where: the window in words, such as `steps 5-8`.
        """
        self.contradictions += [f"analysis {self.number}, {where}: {text}" for text in reply.contradictions]
        if not reply.readable:
            self.problem = f"{where}: {reply.problem}"
            return
        if readings.p_yes is None:
            self.problem = f"{where}: the last line has no probability of Yes against No"
            return
        self.p_yes *= readings.p_yes
        # A step judged in the block but not in a paragraph, or the other way round, was judged all the same.
        for index, label in {**reply.paragraph_labels, **reply.block}.items():
            self.labels[index] = label
            chance = readings.p_incorrect(index, read_at)
            if chance is not None:
                self.p_incorrect[index] = chance
            self.reasons[index] = neutralise(reply.paragraphs.get(index, ""))
        self.state = reply.state or ""
        if not last and reply.state is None:
            self.warnings.append(f"analysis {self.number}, {where}: no State line, so the next window starts without")
