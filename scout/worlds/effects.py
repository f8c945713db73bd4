"""The ten letter effects of the Mystery Grid world and the maps that give letters an effect.

Source: UltraHorizon, environment I; written from its description, no code taken.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

SIZE = 10
"""Tiles on a side; coordinates run from 0 to 9, y grows upwards."""

LETTERS = "ABCDE"
"""Letters a grid can hold; X is kept for used tiles."""

REFILL_BELOW_ENERGY = 10
RESERVE_FROM_ENERGY = 15


class Effect(msgspec.Struct, frozen=True):
    """One effect: its number in the benchmark and what it does in one sentence."""

    number: int
    text: str


EFFECTS: Mapping[int, Effect] = MappingProxyType(
    {
        number: Effect(number, text)
        for number, text in (
            (1, "score +1 at every visit"),
            (2, "energy +1 at every visit"),
            (3, "score +1 when x + y is odd, -1 when it is even"),
            (4, "score -1 at every visit"),
            (5, "score +2 when energy after the move is 15 or more, else -2"),
            (6, "score +2 when the step number of the round is divisible by 3, else -1"),
            (7, "score +3 when x or y is 0, 1, 8 or 9, else 0"),
            (8, "score +1 at odd visits of this letter in the round, 0 at even ones"),
            (9, "score -2 and energy +10 when energy after the move is below 10, else score +1"),
            (10, "score changes by x - y"),
        )
    }
)

NAMES: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        1: ("plus",),
        2: ("gift",),
        3: ("parity",),
        4: ("minus",),
        5: ("reserve",),
        6: ("thirds",),
        7: ("border", "boundary"),
        8: ("visits",),
        9: ("refill",),
        10: ("slope",),
    }
)
"""Words a commit may use for each effect, the canonical one first."""

DIFFICULTY: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "easy": MappingProxyType({"A": 1, "B": 2, "C": 3, "D": 4, "E": 5}),
        "medium": MappingProxyType({"A": 3, "B": 5, "C": 6, "D": 7, "E": 8}),
        "hard": MappingProxyType({"A": 6, "B": 7, "C": 8, "D": 9, "E": 10}),
    }
)
"""Letter -> effect number for the three published difficulties."""


def change(
    effect: int, x: int, y: int, energy: int, step: int, visit: int, *, corner_double: bool = False
) -> tuple[int, int]:
    """(score change, energy change) of one visit.

    energy and step: values after the move cost; step counts the round's steps.
    visit: visits of the letter in this round, this one included.
    corner_double: pay 6 instead of 3 on the four corner tiles for effect 7.
    Raises KeyError for an effect number outside 1..10.
    """
    if effect == 2:
        return 0, 1
    if effect == 9:
        return (-2, 10) if energy < REFILL_BELOW_ENERGY else (1, 0)
    if effect == 7:
        return _border(x, y, corner_double), 0
    if effect == 1:
        score = 1
    elif effect == 3:
        score = 1 if (x + y) % 2 else -1
    elif effect == 4:
        score = -1
    elif effect == 5:
        score = 2 if energy >= RESERVE_FROM_ENERGY else -2
    elif effect == 6:
        score = -1 if step % 3 else 2
    elif effect == 8:
        score = visit % 2
    elif effect == 10:
        score = x - y
    else:
        raise KeyError(effect)
    return score, 0


def _border(x: int, y: int, corner_double: bool) -> int:
    if 2 <= x <= SIZE - 3 and 2 <= y <= SIZE - 3:
        return 0
    corner = x in (0, SIZE - 1) and y in (0, SIZE - 1)
    return 6 if corner and corner_double else 3


def draw(rng: random.Random, letters: str = LETTERS) -> dict[str, int]:
    """An effect for each of `letters`, drawn without replacement from the ten."""
    return dict(zip(letters, rng.sample(sorted(EFFECTS), len(letters)), strict=True))
