"""How probable a reply's labels were where it wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scout.render import label_positions
from scout.scorer.engine import Generation
from scout.verdict import Reply

Logps = tuple[float, float, float, float]


@dataclass
class Readings:
    """Probabilities read from one reply; a place whose label was not a single label token is missing."""

    closing: dict[int, float] = field(default_factory=dict)
    """Step index -> P(incorrect) at the closing sentence of its paragraph."""
    block: dict[int, float] = field(default_factory=dict)
    """Step index -> P(incorrect) at its line of the block."""
    p_yes: float | None = None
    """P(Yes) against P(No) at the last line."""

    def p_incorrect(self, index: int, read_at: str) -> float | None:
        """The reading of a step at the preferred place ("closing" or "block"), else at the other one."""
        first, second = (self.closing, self.block) if read_at == "closing" else (self.block, self.closing)
        return first.get(index, second.get(index))


def pair_probability(logp: float, logp_other: float) -> float | None:
    """Probability of the first against the second; None when either is no log-probability or both are impossible."""
    if any(math.isnan(value) or value > 1e-3 for value in (logp, logp_other)):
        return None
    top = max(logp, logp_other)
    if top == -math.inf:
        return None
    first, second = math.exp(logp - top), math.exp(logp_other - top)
    return first / (first + second)


def read(generation: Generation, reply: Reply, indices: Sequence[int], tokenizer: Any) -> Readings:
    """Readings of a readable reply to a prompt that showed the steps `indices`; empty for an unreadable one."""
    if not reply.readable:
        return Readings()
    places = label_positions(tokenizer, generation.token_ids, indices)
    logps = generation.label_logps
    readings = Readings(_p_incorrect(places.closing, logps), _p_incorrect(places.block, logps))
    if places.last is not None and places.last in logps:
        _, _, logp_yes, logp_no = logps[places.last]
        readings.p_yes = pair_probability(logp_yes, logp_no)
    return readings


def _p_incorrect(places: dict[int, int], logps: Mapping[int, Logps]) -> dict[int, float]:
    found = {}
    for index, place in places.items():
        chance = pair_probability(logps[place][1], logps[place][0]) if place in logps else None
        if chance is not None:
            found[index] = chance
    return found
