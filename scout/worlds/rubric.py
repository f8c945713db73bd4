"""Exact grading of a structured commit: 20 points a letter, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from scout.worlds.effects import EFFECTS, NAMES

LETTER_POINTS = 20

_NUMBERS = {name: number for number, names in NAMES.items() for name in names}
_NUMBERS |= {str(number): number for number in EFFECTS}


class Criterion(msgspec.Struct, frozen=True):
    """Points for one letter, with the reason."""

    criterion: str
    max_score: int
    awarded_score: int
    comment: str


class RubricResult(msgspec.Struct, frozen=True):
    """The grade of one commit."""

    final_score: int | float
    """0..100: 100 x letters found / letters in the grid; a whole number unless the grid has three letters."""
    score_breakdown: list[Criterion]
    """One entry for each letter of the grid in order, then one worth 0 for each thing submitted that is not in it."""


class Submission(msgspec.Struct, frozen=True):
    """What could be read of a commit."""

    claims: dict[str, int | None]
    """Letter -> effect number, or None where the commit leaves the letter open."""
    unreadable: dict[str, str]
    """Letter or other key -> why its value could not be read."""
    problem: str = ""
    """Why nothing could be read; empty when something could."""


def parse_commit(content: str) -> Submission:
    """The claims of a commit such as {"A": "thirds", "B": 7, "C": null}; never raises, whatever an agent hands in.

    An effect is given by number or by name, case ignored. A key that occurs twice is a conflicting claim: unreadable.
    """
    try:
        pairs = json.loads(content, object_pairs_hook=_Pairs)
    except (TypeError, ValueError, RecursionError):
        return Submission({}, {}, "The submission is not readable JSON.")
    if not isinstance(pairs, _Pairs):
        return Submission({}, {}, "The submission is not a JSON object with one entry for each letter.")
    claims: dict[str, int | None] = {}
    unreadable: dict[str, str] = {}
    for key, value in pairs:
        if key in claims or key in unreadable:
            claims.pop(key, None)
            unreadable[key] = "Several explanations are given."
        elif value is None:
            claims[key] = None
        elif (number := _effect_number(value)) is not None:
            claims[key] = number
        else:
            unreadable[key] = "The submission names no known rule."
    return Submission(claims, unreadable)


class _Pairs(list[tuple[str, Any]]):
    """Entries of a JSON object with repeated keys kept."""


def _effect_number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return (
        _NUMBERS.get(str(value).strip().casefold()) if isinstance(value, str) else value if value in EFFECTS else None
    )


def score_commit(claims: Mapping[str, int | None], effects: Mapping[str, int]) -> RubricResult:
    """The grade of readable claims against the true effect numbers of the letters."""
    return _grade(Submission(dict(claims), {}), effects)


def grade(content: str, effects: Mapping[str, int]) -> RubricResult:
    """The grade of a commit's text; what cannot be read earns 0 with a comment."""
    return _grade(parse_commit(content), effects)


def _grade(submission: Submission, effects: Mapping[str, int]) -> RubricResult:
    breakdown = [_criterion(letter, effects[letter], submission) for letter in sorted(effects)]
    found = sum(entry.awarded_score > 0 for entry in breakdown)
    others = sorted((submission.claims.keys() | submission.unreadable.keys()) - effects.keys())
    breakdown += [Criterion(key, 0, 0, "The grid has no such letter.") for key in others]
    share = 100 * found / len(effects)
    return RubricResult(int(share) if share.is_integer() else share, breakdown)


def _criterion(letter: str, effect: int, submission: Submission) -> Criterion:
    claim = submission.claims.get(letter)
    if claim == effect:
        return Criterion(letter, LETTER_POINTS, LETTER_POINTS, f"Right: {EFFECTS[effect].text}.")
    if claim is not None:
        comment = f"Wrong: the submission says {_text(claim)}; the rule is {EFFECTS[effect].text}."
    else:
        comment = submission.problem or submission.unreadable.get(letter, "No rule is given.")
    return Criterion(letter, LETTER_POINTS, 0, comment)


def _text(claim: int) -> str:
    return EFFECTS[claim].text if claim in EFFECTS else f"effect {claim}, which does not exist"
