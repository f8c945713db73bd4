"""Writer `world`: step analyses of Mystery Grid runs from the visible evidence, and the state that windows carry.

For each step: what is left for the letter it speaks of against what it says, effect by effect, whether a declared test
can tell something, then what the visit of this very step leaves. The order matters: a step is judged before its own
outcome.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from scout.agents.phrases import books, compared, plain, state
from scout.errors import InputError
from scout.trajectory import Step, Trajectory
from scout.worlds.effects import LETTERS
from scout.worlds.observer import Claim, Observer, Test, Visit

VISIT = re.compile(
    r"\((\d),(\d),([A-E])\) score ([+-]\d+) energy (\d+)(?: ([+-]\d+))? step (\d+) visit (\d+)", flags=re.ASCII
)


@dataclass(frozen=True)
class Wording:
    """The few words that vary between analyses."""

    says: str
    same: str
    differs: str


@dataclass(frozen=True)
class Analysis:
    """Paragraphs by step index, without their closing sentence, and the state after each step."""

    paragraphs: dict[int, str]
    states: dict[int, str]


def wording(rng: random.Random) -> Wording:
    """A wording for one analysis."""
    return Wording(
        rng.choice(("says", "claims", "holds")), rng.choice(("same", "agrees")), rng.choice(("differs", "conflicts"))
    )


def visit_in(observation: str) -> Visit | None:
    """The visit that an observation reports, or None."""
    match = VISIT.search(observation)
    if match is None or observation.startswith("refused"):
        return None
    x, y, letter, score, energy, extra, step, visit = match.groups()
    return Visit(letter, int(x), int(y), int(energy), int(step), int(visit), int(score), int(extra or 0))


def analyse(run: Trajectory, rng: random.Random) -> Analysis:
    """The analysis of a labelled world run. Raises InputError for a run that did not come from `collect`."""
    claims, tests = run.meta.get("claims"), run.meta.get("tests")
    if not isinstance(claims, list) or not isinstance(tests, list) or len(claims) < len(run.steps):
        raise InputError(
            f"run {run.id}: meta.claims and meta.tests are missing. The writer `world` needs runs of data_prep.collect."
        )
    observer, words = Observer(), wording(rng)
    paragraphs, states = {}, {}
    for step, said, tested in zip(run.steps, claims, tests, strict=False):
        parts = [_claim(observer, Claim(letter, frozenset(effects)), words) for letter, effects in said]
        visit = visit_in(step.observation)
        if step.observation.startswith("refused"):
            parts.append("refused.")
        elif tested is not None:
            parts.append(_test(observer, tested, visit, step))
        if visit is not None:
            observer.see(visit)
            parts.append(books(visit, observer.left(visit.letter)))
        paragraphs[step.index] = " ".join(parts)
        states[step.index] = state({letter: observer.left(letter) for letter in LETTERS})
    return Analysis(paragraphs, states)


def _claim(observer: Observer, claim: Claim, words: Wording) -> str:
    """What is left, what is said with each effect looked up in what is left, and the other way round: a small reader
    compares two lists only one effect at a time."""
    verdict = words.differs if observer.judge_claim(claim) else words.same
    left, said = plain(observer.left(claim.letter)), plain(claim.effects)
    looked_up = f"{words.says} {compared(said, left)}, left {compared(left, said)}"
    return f"{claim.letter} left {left}, {looked_up}: {verdict}."


def _test(observer: Observer, letter: str, visit: Visit | None, step: Step) -> str:
    if visit is None or visit.letter != letter:
        landed = visit.letter if visit else "X"
        return f"test {letter} on {landed}: tells nothing."
    place = Test(letter, letter, visit.x, visit.y, visit.energy, visit.step, visit.visit)
    tells = "tells" if observer.informative(place) else "tells nothing"
    return f"test {letter} left {plain(observer.left(letter))}: {tells}."
