"""Wording of the scripted scientist: the same sentences serve sound and faulty steps."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from scout.worlds.effects import NAMES
from scout.worlds.observer import ALL_EFFECTS, Claim, Visit

_LEFT = (
    "{letter} is {effects}.",
    "{letter} must be {effects}.",
    "Only {effects} fits {letter}.",
    "{letter} comes down to {effects}.",
    "For {letter} that leaves {effects}.",
    "So {letter} does {effects}.",
)
_HEARD = ("Heard: ", "They say: ", "Rumour: ", "It is said: ", "Someone noted: ")
_OPEN = ("{letter} is open.", "Nothing known of {letter}.", "{letter} could be anything.")
_TEST = ("Test {letter}.", "Now try {letter}.", "A visit to {letter} will tell.", "Test {letter} to learn more.")
_GO = ("On to {letter}.", "Next is {letter}.", "Go to {letter}.", "Step on {letter}.")
_LOOK = ("Look around.", "I need the view.", "See what is near.")
_NOTE = ("Write it down.", "Note what I know.", "Keep a record.")
_RESET = ("Start a new round.", "This round is spent, reset.", "Reset the grid.")
_COMMIT = ("Hand in the answer.", "Commit what I have.", "That is my answer.")
_EXPECT = ("If {effect}, expect {change}.", "{effect} would pay {change} there.", "With {effect} it gives {change}.")
_RECALL = ("{letter} paid {change} at ({x},{y}).", "At ({x},{y}) {letter} gave {change}.")
_REPAIR = ("I was wrong. ", "Correction: ", "On second thought, ")


def name(effect: int, rng: random.Random) -> str:
    """A name of the effect: mostly the first one."""
    return NAMES[effect][0] if rng.random() < 0.75 else rng.choice(NAMES[effect])


def listing(effects: Iterable[int], rng: random.Random) -> str:
    """The effects by name, joined with or."""
    return " or ".join(name(effect, rng) for effect in sorted(effects))


def claim(said: Claim, rng: random.Random) -> str:
    """One sentence that states the claim."""
    if said.effects == ALL_EFFECTS:
        return rng.choice(_OPEN).format(letter=said.letter)
    return rng.choice(_LEFT).format(letter=said.letter, effects=listing(said.effects, rng))


def hearsay(rng: random.Random) -> str:
    """Opens a claim that is passed on."""
    return rng.choice(_HEARD)


def note(claims: Iterable[Claim], rng: random.Random) -> str:
    """The text of a note: one entry a letter."""
    return "; ".join(
        f"{said.letter} {'open' if said.effects == ALL_EFFECTS else listing(said.effects, rng)}" for said in claims
    )


def aim(kind: str, letter: str, rng: random.Random) -> str:
    """One sentence that says what the step is for. kind: test, go, look, note, reset or commit."""
    choices = {"test": _TEST, "go": _GO, "look": _LOOK, "note": _NOTE, "reset": _RESET, "commit": _COMMIT}[kind]
    return rng.choice(choices).format(letter=letter)


def expectation(effect: int, score: int, energy: int, rng: random.Random) -> str:
    """What the tested tile would pay under one effect."""
    change = f"{score:+d}" if not energy else f"{score:+d} and energy {energy:+d}"
    return rng.choice(_EXPECT).format(effect=name(effect, rng), change=change)


def recall(letter: str, x: int, y: int, score: int, rng: random.Random) -> str:
    """A visit told again."""
    return rng.choice(_RECALL).format(letter=letter, x=x, y=y, change=f"{score:+d}")


def repair(rng: random.Random) -> str:
    """Opens a claim that takes an earlier one back."""
    return rng.choice(_REPAIR)


def books(visit: Visit, left: Iterable[int]) -> str:
    """A visit worked out in small steps: where it was, what it showed, which effects fit it, which are left."""
    place = f"{visit.x} {_parity(visit.x)} {visit.y} {_parity(visit.y)} {_parity(visit.x + visit.y)}"
    extra = f" energy {visit.energy_change:+d}" if visit.energy_change else ""
    shown = f"slope {visit.x - visit.y:+d}, score {visit.score_change:+d}{extra}"
    return f"{visit.letter} {place}, {shown} fits {plain(visit.fits())}, left {plain(left)}."


def _parity(number: int) -> str:
    return "odd" if number % 2 else "even"


def state(left: Mapping[str, Iterable[int]]) -> str:
    """What is left for every letter, in one line."""
    return "; ".join(f"{letter} {plain(effects)}" for letter, effects in left.items())


def plain(effects: Iterable[int]) -> str:
    """The effects by their first names; `open` for all ten, `none` for none."""
    found = sorted(effects)
    if len(found) == len(ALL_EFFECTS):
        return "open"
    return " or ".join(NAMES[effect][0] for effect in found) or "none"


def compared(listed: str, other: str) -> str:
    """The effects of one `plain` list, each with `in` or `no`: whether the other list has it."""
    known = other.split(" or ")
    return " or ".join(f"{name} {'in' if name in known else 'no'}" for name in listed.split(" or "))
