"""A rational observer of a Mystery Grid run: what the evidence shown so far entails, never more.

It keeps, for each letter, the set of effects that agree with every visit seen so far. The player is told the ten
effects but not that they differ between letters, so letters are independent. Steps are judged by the four cases of
`Case`; a claim is always judged before the visit of its own step is added (no hindsight).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from scout.worlds.effects import EFFECTS, change

ALL_EFFECTS = frozenset(EFFECTS)


class Case(enum.StrEnum):
    """Why a step is incorrect (the four cases of a deterministic judge of discovery runs)."""

    REFUTED = "refuted"
    """States a hypothesis that the evidence has refuted."""
    USELESS = "useless"
    """Spends a step on an experiment that cannot change the consistent set."""
    REFUSED = "refused"
    """A call that the world refuses."""
    NOT_ENTAILED = "not_entailed"
    """States more than the evidence entails."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What one visit of a letter showed. energy and step are those after the move cost; visit counts this one."""

    letter: str
    x: int
    y: int
    energy: int
    step: int
    visit: int
    score_change: int
    energy_change: int

    def fits(self) -> frozenset[int]:
        """Effects that would have given exactly this change."""
        seen = (self.score_change, self.energy_change)
        return frozenset(
            e for e in ALL_EFFECTS if change(e, self.x, self.y, self.energy, self.step, self.visit) == seen
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """Says that exactly `effects` are left for `letter`."""

    letter: str
    effects: frozenset[int]


@dataclass(frozen=True, slots=True)
class Test:
    """A declared experiment on `letter` at the state in which its effect would be read."""

    letter: str
    landed: str
    x: int
    y: int
    energy: int
    step: int
    visit: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that makes a step incorrect. proof_size: fewest earlier visits that prove it."""

    case: Case
    proof_size: int
    letter: str | None = None


@dataclass
class Observer:
    """Evidence so far. `visits` holds every visit by letter, in order."""

    visits: dict[str, list[Visit]] = field(default_factory=dict)
    _left: dict[str, frozenset[int]] = field(default_factory=dict)

    def left(self, letter: str) -> frozenset[int]:
        """Effects still possible for the letter: all ten before its first visit."""
        return self._left.get(letter, ALL_EFFECTS)

    def left_before(self, letter: str, visits: int) -> frozenset[int]:
        """Effects that were possible for the letter after its first `visits` visits."""
        return _fit_all(self.visits.get(letter, [])[:visits])

    def see(self, visit: Visit) -> None:
        """Adds the visit to the evidence."""
        self.visits.setdefault(visit.letter, []).append(visit)
        self._left[visit.letter] = self.left(visit.letter) & visit.fits()

    def judge_claim(self, claim: Claim) -> Finding | None:
        """None when the claim is exactly what the evidence entails."""
        left = self.left(claim.letter)
        seen = self.visits.get(claim.letter, [])
        if claim.effects - left:
            wrong = claim.effects - left
            return Finding(Case.REFUTED, _fewest(seen, lambda some: bool(wrong - _fit_all(some))), claim.letter)
        if left - claim.effects:
            return Finding(Case.NOT_ENTAILED, len(seen), claim.letter)
        return None

    def informative(self, test: Test) -> bool:
        """True when the effects left for the tested letter predict different changes there."""
        return test.letter == test.landed and _splits(self.left(test.letter), test)

    def judge_test(self, test: Test) -> Finding | None:
        """None when the experiment can change what is known of the tested letter."""
        if self.informative(test):
            return None
        if test.letter != test.landed:
            return Finding(Case.USELESS, 0, test.letter)
        seen = self.visits.get(test.letter, [])
        return Finding(Case.USELESS, _fewest(seen, lambda some: not _splits(_fit_all(some), test)), test.letter)


def _fit_all(visits: Iterable[Visit]) -> frozenset[int]:
    left = ALL_EFFECTS
    for visit in visits:
        left &= visit.fits()
    return left


def _splits(effects: frozenset[int], test: Test) -> bool:
    return len({change(e, test.x, test.y, test.energy, test.step, test.visit) for e in effects}) > 1


def _fewest(visits: Sequence[Visit], proves: Callable[[Iterable[Visit]], bool]) -> int:
    """Size of the smallest group of visits that proves it; all of them when no smaller group does."""
    distinct = list({visit.fits(): visit for visit in visits}.values())
    for size in range(len(distinct)):
        if any(proves(some) for some in combinations(distinct, size)):
            return size
    return len(distinct)
